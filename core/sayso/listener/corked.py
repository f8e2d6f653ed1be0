"""A transport that writes once for each iteration of its event loop."""

from __future__ import annotations

import asyncio
from typing import Any

SEND_TIME = 60.0
"""Seconds in which a client must take some of the data waiting for it."""


class CorkedTransport:
    """A transport that sends everything written in one iteration of the loop at once.

    uvloop sends on every `write`: the head and the body of a response, and each frame of many,
    would be a system call of its own.
    """

    __slots__ = ("_loop", "_transport", "_unsent", "_waiting", "get_protocol", "is_closing")

    def __init__(self, transport: asyncio.Transport) -> None:
        self._transport = transport
        # Read with every request; other attributes are found by `__getattr__`, at ten times the
        # cost.
        self.is_closing = transport.is_closing
        self.get_protocol = transport.get_protocol
        self._loop = asyncio.get_running_loop()
        self._waiting: list[bytes] | None = None
        self._unsent: asyncio.TimerHandle | None = None

    def __getattr__(self, name: str) -> Any:
        return getattr(self._transport, name)

    def write(self, data: bytes) -> None:
        if self._waiting is None:
            self._waiting = [data]
            self._loop.call_soon(self.flush)
        else:
            self._waiting.append(data)

    def write_now(self, data: bytes) -> None:
        """Send `data` at once, after the data already waiting; for output that is complete."""
        if self._waiting is not None:
            self._waiting.append(data)
            self.flush()
        elif not self.is_closing():
            self._transport.write(data)

    def close(self) -> None:
        self.flush()
        self._transport.close()
        self.watch()

    def watch(self) -> None:
        """Abort the connection if the client takes none of the waiting data for SEND_TIME seconds.

        Otherwise it could occupy that memory, and the connection, as long as it likes.
        """
        if self._unsent is None and (size := self._transport.get_write_buffer_size()):
            self._unsent = self._loop.call_later(SEND_TIME, self._look, size)

    def unwatch(self) -> None:
        """Stop watching: the client has taken much of it, or has gone."""
        if self._unsent is not None:
            self._unsent.cancel()
            self._unsent = None

    def _look(self, before: int) -> None:
        self._unsent = None
        if self._transport.get_write_buffer_size() < before:
            self.watch()
        else:
            self.abort()

    def abort(self) -> None:
        self._waiting = None
        self._transport.abort()

    def flush(self) -> None:
        """Send the waiting data."""
        waiting, self._waiting = self._waiting, None
        if waiting and not self.is_closing():
            self._transport.write(waiting[0] if len(waiting) == 1 else b"".join(waiting))
