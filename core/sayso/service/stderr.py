"""The service's log on standard error, which never blocks the service."""

from __future__ import annotations

import asyncio
import logging
import os
import select
import stat
import threading
from collections import deque
from collections.abc import Callable, Mapping
from contextlib import suppress
from contextvars import Context, copy_context
from time import monotonic, sleep, time
from typing import Any, NamedTuple, TextIO

from sayso.addresses import without_credentials
from sayso.service.lines import JsonFormatter, Line, LineFormatter, Lines, one_line

LINES = 1000
"""Most records queued for a reader; of further ones only the number is logged."""
LINGER = 1.0
"""Seconds that the end of the process waits for them."""
_LINES = 12
"""Most lines that are written at once: a pipe takes 4 KB as a whole."""
_SOON = 0.02
"""Seconds after which lines are written that may wait."""


class _Soon(NamedTuple):
    """A line of the level INFO that is not made yet; it has fields of its context."""

    created: float
    logger: str
    text: str
    fields: Callable[[], Mapping[str, Any]]
    context: Context


class StandardError(logging.StreamHandler[TextIO]):
    """Writes records to standard error; while that is a full pipe, they are queued.

    With `named` each is preceded by its time, level and logger. None can be forged: the message is
    on one line, a trace on lines that begin with ` | `. With `as_json` each is one JSON object in
    one line. With `alone` it writes nothing while the root logger has handlers.

    A blocking write would block the code that logs, such as the loop that answers every request.
    """

    def __init__(
        self,
        level: int = logging.NOTSET,
        *,
        named: bool = False,
        as_json: bool = False,
        alone: bool = False,
    ) -> None:
        super().__init__()
        self._alone = alone
        self.setLevel(level)
        self.setFormatter(JsonFormatter() if as_json else LineFormatter(named=named))
        self._soon: list[_Soon] = []
        self._since = 0.0
        self._waiting: deque[bytes] = deque()
        self._lost = 0
        self._writer: threading.Thread | None = None

    def emit(self, record: logging.LogRecord) -> None:
        """Write `record` now, or after the queued ones."""
        if self._alone and logging.getLogger().handlers:
            return
        # If other code has closed standard error, the code that logs must not fail.
        with suppress(Exception):
            self._write_soon()
            self._write(self.format(record) + self.terminator)

    @property
    def makes_lines(self) -> bool:
        """Whether `soon` writes what a record of the level INFO would become."""
        own = isinstance(self.formatter, Lines) and not self.filters
        return own and self.level <= logging.INFO

    def soon(self, logger: str, text: str, fields: Callable[[], Mapping[str, Any]]) -> None:
        """Write a line of the level INFO within 20 ms, and before any record.

        A write lets other threads have the interpreter, and twelve lines that are made in a row
        take a third of the time that a record for each takes.
        """
        assert self.lock is not None
        with self.lock, suppress(Exception):
            late = bool(self._soon) and monotonic() - self._since > 2 * _SOON
            now = late or bool(self._waiting)
            if not self._soon:
                self._since = monotonic()
                try:
                    asyncio.get_running_loop().call_later(_SOON, self._end_soon)
                except RuntimeError:
                    now = True
            self._soon.append(_Soon(time(), logger, text, fields, copy_context()))
            if now or len(self._soon) == _LINES:
                self._write_soon()

    def _end_soon(self) -> None:
        assert self.lock is not None
        with self.lock, suppress(Exception):
            self._write_soon()

    def _write_soon(self) -> None:
        lines, self._soon = self._soon, []
        texts = [line.context.run(self._made, line) + self.terminator for line in lines]
        # Records that wait for a reader are counted one by one.
        for text in texts if self._waiting else ["".join(texts)]:
            if text:
                self._write(text)

    def _made(self, line: _Soon) -> str:
        assert isinstance(self.formatter, Lines)
        made = Line(line.created, "INFO", line.logger, line.text, line.fields())
        return self.formatter.line(made)

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
        """Write the lines that may wait, and wait a moment for the queued ones to be read."""
        self._end_soon()
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
