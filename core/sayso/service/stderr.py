"""The service's log on standard error, which never holds up the service."""

from __future__ import annotations

import logging
import os
import select
import stat
import threading
from collections import deque
from contextlib import suppress
from time import monotonic, sleep
from typing import TextIO

from sayso.addresses import without_credentials
from sayso.service.lines import BARE, NAMED, JsonFormatter, LineFormatter, one_line

LINES = 1000
"""Records that wait for somebody to read; of further ones only the number is told."""
LINGER = 1.0
"""Seconds that the end of the process waits for them."""


class StandardError(logging.StreamHandler[TextIO]):
    """Writes records to standard error; while that is a full pipe, they wait in a queue.

    With `named` each has its time, level and logger before it. None can be forged: what a record
    says stands in one line, a trace in lines that begin with `  | `. With `as_json` each is one
    JSON object in one line.

    A blocking write would hold up the code that logs, such as the loop that answers every request.
    """

    def __init__(
        self, level: int = logging.NOTSET, *, named: bool = False, as_json: bool = False
    ) -> None:
        super().__init__()
        self.setLevel(level)
        self.setFormatter(JsonFormatter() if as_json else LineFormatter(NAMED if named else BARE))
        self._waiting: deque[bytes] = deque()
        self._lost = 0
        self._writer: threading.Thread | None = None

    def emit(self, record: logging.LogRecord) -> None:
        """Write `record` now, or behind those that wait."""
        # Who logs is not to fail for it, where standard error was closed by other code.
        with suppress(Exception):
            self._write(self.format(record) + self.terminator)

    def format(self, record: logging.LogRecord) -> str:
        """The text of `record`; of one that has none, where it was made."""
        try:
            return super().format(record)
        except Exception as error:
            # Logging's own way writes to standard error by itself, and all arguments with it.
            where = f"{record.pathname}:{record.lineno}: a record of {record.name!r}"
            why = f"{record.msg!r} ({type(error).__name__})"
            return one_line(without_credentials(f"{where} that cannot be written: {why}"))

    def _write(self, text: str) -> None:
        try:
            number = self.stream.fileno()
        except (AttributeError, OSError):
            # Something in its place, as in tests.
            self.stream.write(text)
            super().flush()
            return
        data = text.encode(self.stream.encoding, "backslashreplace")
        if not self._waiting and _takes_at_once(number, len(data)):
            data = _rest(number, data)
        if data:
            self._keep(data)

    def flush(self) -> None:
        """Wait a moment for what waits to be read."""
        end = monotonic() + LINGER
        while self._waiting and monotonic() < end:
            sleep(0.01)

    def _keep(self, data: bytes) -> None:
        if len(self._waiting) < LINES:
            self._waiting.append(data)
        else:
            self._lost += 1
        if self._writer is None or not self._writer.is_alive():
            self._writer = threading.Thread(target=self._write_on, name="sayso-log", daemon=True)
            try:
                self._writer.start()
            except RuntimeError:
                # None to be had: what there is no room for now waits for the next record.
                self._write_on(0)

    def _write_on(self, patience: float | None = None) -> None:
        number = self.stream.fileno()
        while self._more():
            while self._waiting:
                while self._waiting[0]:
                    if not select.select((), (number,), (), patience)[1]:
                        return
                    self._waiting[0] = _rest(number, self._waiting[0])
                self._waiting.popleft()

    def _more(self) -> bool:
        """Whether something waits; else the thread ends, and that is known."""
        assert self.lock is not None
        with self.lock:
            if self._lost:
                said = f"{self._lost} records are left out: nobody read standard error\n"
                self._waiting.append(said.encode())
                self._lost = 0
            if not self._waiting:
                self._writer = None
            return bool(self._waiting)


def say(*lines: str) -> None:
    """Tell whoever started this process `lines`, each behind `sayso: `.

    Where nobody reads them, or the disk is full, they are lost. `print` would keep them in a
    buffer, and Python exits with 120 where it cannot write that at its end.
    """
    handler = StandardError()
    text = "\n".join(f"sayso: {line}" for line in lines)
    with suppress(Exception):
        handler._write("\n".join(map(one_line, text.split("\n"))) + "\n")
    handler.flush()


def _takes_at_once(number: int, size: int) -> bool:
    """Whether nobody has to read before so many bytes are written."""
    if stat.S_ISREG(os.fstat(number).st_mode):
        return True
    # A pipe that is writable at all has room for this much (POSIX).
    return size <= select.PIPE_BUF and bool(select.select((), (number,), (), 0)[1])


def _rest(number: int, data: bytes) -> bytes:
    """What is left of `data` after one write; nothing where nobody reads it, or the disk is full.

    It is one write of all, so that no output of another process comes between.
    """
    try:
        return data[os.write(number, data) :]
    except BlockingIOError:
        return data
    except OSError:
        return b""
