"""The connections of clients: when they are written to, how long they may be idle, and the signs of
a client that has left."""

from __future__ import annotations

import asyncio
import socket
import sys
from collections.abc import Sized
from typing import Any, Protocol

from uvicorn.protocols.http.flow_control import FlowControl

from sayso.http.disconnect import A_MOMENT
from sayso.workers import per_loop

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


CONTINUE = b"HTTP/1.1 100 Continue\r\n\r\n"
"""An interim answer, which every client of HTTP/1.1 skips, whether it has asked for it or not."""
_CLOSED = 7
_LONGEST = 5.0
"""Seconds between two looks, at most; the first are a moment apart."""


def is_detectable() -> bool:
    """Whether this system says that a connection was refused before more is written to it."""
    return sys.platform == "linux"


class HalfClosed:
    """Looks after a connection to which something was just sent, until it is closed.

    Most clients that send no more have left, some have only closed their half of the connection;
    both send the same end. A probe that is sent to them shows the difference: the system of a
    client that has left refuses it, and the connection is closed then.
    """

    def __init__(self, transport: CorkedTransport, loop: asyncio.AbstractEventLoop) -> None:
        self._transport = transport
        self._loop = loop
        self._pause = A_MOMENT
        loop.call_later(self._pause, self._look)

    def _look(self) -> None:
        if self._transport.is_closing():
            return
        found = self._transport.get_extra_info("socket")
        if found.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, 1)[0] == _CLOSED:
            self._transport.abort()
            return
        self._pause = min(2 * self._pause, _LONGEST)
        self._loop.call_later(self._pause, self._look)


PIPELINED = 16
"""Most requests queued behind the one being answered; then reading pauses."""


class Connection(Protocol):
    """The operations needed of an idle connection."""

    loop: asyncio.AbstractEventLoop
    timeout_keep_alive: int

    def timeout_keep_alive_handler(self) -> None:
        """Close the connection: it was idle for too long."""
        ...


class Flow(FlowControl):
    """Pauses reading while many requests are queued: each takes far more memory than its bytes."""

    def __init__(self, transport: asyncio.Transport, pipeline: Sized) -> None:
        super().__init__(transport)
        self._pipeline = pipeline

    def resume_reading(self) -> None:
        """Continue reading, unless many requests are queued; the end of each asks again."""
        if len(self._pipeline) < PIPELINED:
            super().resume_reading()


class IdleConnections:
    """The idle connections of one loop with the start of their idle time, the longest idle
    first."""

    def __init__(self) -> None:
        self._since: dict[Connection, float] = {}
        self._armed = False

    def add(self, connection: Connection) -> None:
        """Count the connection as idle from now on."""
        self._since[connection] = connection.loop.time()
        if not self._armed:
            self._arm(connection)

    def discard(self, connection: Connection) -> None:
        """Count the connection as idle no longer."""
        self._since.pop(connection, None)

    def __contains__(self, connection: Connection) -> bool:
        return connection in self._since

    def _arm(self, connection: Connection) -> None:
        self._armed = True
        connection.loop.call_later(connection.timeout_keep_alive / 4, self._look)

    def _look(self) -> None:
        self._armed = False
        for connection, since in list(self._since.items()):
            if connection.loop.time() - since >= connection.timeout_keep_alive:
                self.discard(connection)
                connection.timeout_keep_alive_handler()
            elif not self._armed:
                self._arm(connection)


idle_connections = per_loop(IdleConnections)
"""The idle connections of the running loop."""
