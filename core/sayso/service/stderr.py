"""The service's log on standard error, which never blocks the service."""

from __future__ import annotations

import asyncio
import logging
import os
import select
import stat
import threading
from collections import deque
from contextlib import suppress
from contextvars import Context, copy_context
from time import monotonic, sleep
from typing import TextIO

from sayso.addresses import without_credentials
from sayso.service.lines import BARE, NAMED, JsonFormatter, LineFormatter, one_line

LINES = 1000
"""Most records queued for a reader; of further ones only the number is logged."""
LINGER = 1.0
"""Seconds that the end of the process waits for them."""
_TURNS = "sayso.turn"
_LINES = 12
"""Most lines of turns that are written at once: a pipe takes 4 KB as a whole."""
_SOON = 0.02
"""Seconds after which they are written."""


class StandardError(logging.StreamHandler[TextIO]):
    """Writes records to standard error; while that is a full pipe, they are queued.

    With `named` each is preceded by its time, level and logger. None can be forged: the message is
    on one line, a trace on lines that begin with ` | `. With `as_json` each is one JSON object in
    one line.

    A blocking write would block the code that logs, such as the loop that answers every request.
    """

    def __init__(
        self, level: int = logging.NOTSET, *, named: bool = False, as_json: bool = False
    ) -> None:
        super().__init__()
        self.setLevel(level)
        self.setFormatter(JsonFormatter() if as_json else LineFormatter(NAMED if named else BARE))
        self._turns: list[tuple[Context, logging.LogRecord]] = []
        self._since = 0.0
        self._waiting: deque[bytes] = deque()
        self._lost = 0
        self._writer: threading.Thread | None = None

    def emit(self, record: logging.LogRecord) -> None:
        """Write `record` now, or after the queued ones."""
        # If other code has closed standard error, the code that logs must not fail.
        with suppress(Exception):
            # A write lets other threads have the interpreter, and twelve lines in a row take less
            # time each than one alone. The lines of turns therefore wait a moment for each other,
            # but not longer than until the next line of any other kind.
            of_turn = record.name == _TURNS and record.levelno == logging.INFO
            if not (of_turn and self._gathered(record)):
                self._write_turns()
                self._write(self.format(record) + self.terminator)

    def _gathered(self, record: logging.LogRecord) -> bool:
        """Keep the record for a moment, if there are a loop and room."""
        late = self._turns and monotonic() - self._since > 2 * _SOON
        if self._waiting or late or len(self._turns) == _LINES:
            return False
        if not self._turns:
            try:
                asyncio.get_running_loop().call_later(_SOON, self._end_turns)
            except RuntimeError:
                return False
            self._since = monotonic()
        # The line has fields of its context.
        self._turns.append((copy_context(), record))
        return True

    def _end_turns(self) -> None:
        assert self.lock is not None
        with self.lock, suppress(Exception):
            self._write_turns()

    def _write_turns(self) -> None:
        turns, self._turns = self._turns, []
        lines = [context.run(self.format, record) + self.terminator for context, record in turns]
        # Records that wait for a reader are counted one by one.
        for text in lines if self._waiting else ["".join(lines)]:
            if text:
                self._write(text)

    def format(self, record: logging.LogRecord) -> str:
        """The text of `record`; if it cannot be formatted, the place where it was made."""
        try:
            return super().format(record)
        except Exception as error:
            # Logging's own way writes to standard error itself, with all arguments.
            where = f"{record.pathname}:{record.lineno}: a record of {record.name!r}"
            why = f"{record.msg!r} ({type(error).__name__})"
            return one_line(without_credentials(f"{where} that cannot be written: {why}"))

    def _write(self, text: str) -> None:
        try:
            number = self.stream.fileno()
        except (AttributeError, OSError):
            # Standard error was replaced, as in tests.
            self.stream.write(text)
            super().flush()
            return
        data = text.encode(self.stream.encoding, "backslashreplace")
        if not self._waiting and _takes_at_once(number, len(data)):
            data = _rest(number, data)
        if data:
            self._keep(data)

    def flush(self) -> None:
        """Write the lines of turns, and wait a moment for the queued records to be read."""
        self._end_turns()
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
                # No thread can be had: records without room now wait for the next record.
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
        """Whether records are queued; if not, the thread is marked as ended."""
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
    """Write `lines` for the person who started this process, each after `sayso: `.

    If nobody reads them, or the disk is full, they are lost. `print` would keep them in a buffer,
    and Python exits with 120 if it cannot write that at its end.
    """
    handler = StandardError()
    text = "\n".join(f"sayso: {line}" for line in lines)
    with suppress(Exception):
        handler._write("\n".join(map(one_line, text.split("\n"))) + "\n")
    handler.flush()


def _takes_at_once(number: int, size: int) -> bool:
    """Whether this many bytes can be written before anybody reads."""
    if stat.S_ISREG(os.fstat(number).st_mode):
        return True
    # A pipe that is writable at all has room for this much (POSIX).
    return size <= select.PIPE_BUF and bool(select.select((), (number,), (), 0)[1])


def _rest(number: int, data: bytes) -> bytes:
    """The rest of `data` after one write; empty if nobody reads it, or the disk is full.

    All is written at once, so that no output of another process comes between.
    """
    try:
        return data[os.write(number, data) :]
    except BlockingIOError:
        return data
    except OSError:
        return b""
