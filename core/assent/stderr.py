"""The service's log on standard error, which never holds up the service."""

from __future__ import annotations

import logging
import os
import select
import threading
from collections import deque
from contextlib import suppress
from time import monotonic, sleep
from typing import TextIO

LINES = 1000
"""Records that wait for somebody to read; of further ones only the number is told."""
LINGER = 1.0
"""Seconds that the end of the process waits for them."""


class StandardError(logging.StreamHandler[TextIO]):
    """Writes records to standard error; while a pipe there is full, they wait.

    A write would wait in their place, and with it the loop that answers every request.
    """

    def __init__(self) -> None:
        super().__init__()
        self._waiting: deque[bytes] = deque()
        self._lost = 0
        self._writer: threading.Thread | None = None

    def emit(self, record: logging.LogRecord) -> None:
        """Write `record` now, or behind those that wait."""
        try:
            self.stream.fileno()
        except (AttributeError, OSError):
            # Something in its place, as in tests.
            super().emit(record)
            super().flush()
            return
        try:
            text = self.format(record) + self.terminator
        except Exception:
            self.handleError(record)
            return
        data = text.encode(self.stream.encoding, "backslashreplace")
        rest = data if self._waiting else self._unwritten(data, 0)
        if rest:
            self._keep(rest)

    def flush(self) -> None:
        """Wait a moment for what waits to be read."""
        end = monotonic() + LINGER
        while self._waiting and monotonic() < end:
            sleep(0.01)

    def _unwritten(self, data: bytes, seconds: float | None) -> bytes:
        """What of `data` could not be written, in `seconds` for each piece of it."""
        number = self.stream.fileno()
        while data and select.select((), (number,), (), seconds)[1]:
            try:
                # So much there is room for when there is any.
                written = os.write(number, data[: select.PIPE_BUF])
            except BlockingIOError:
                break
            except OSError:
                # Nobody reads it any more, or the disk is full.
                return b""
            data = data[written:]
        return data

    def _keep(self, data: bytes) -> None:
        if len(self._waiting) < LINES:
            self._waiting.append(data)
        else:
            self._lost += 1
        if self._writer is None or not self._writer.is_alive():
            self._writer = threading.Thread(target=self._write_on, name="assent-log", daemon=True)
            # None to be had: the next record asks again.
            with suppress(RuntimeError):
                self._writer.start()

    def _write_on(self) -> None:
        while self._more():
            while self._waiting:
                rest = self._waiting[0]
                while rest := self._unwritten(rest, None):
                    pass
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
