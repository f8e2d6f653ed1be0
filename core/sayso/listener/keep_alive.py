"""Keep-alive connections: how many requests may wait on one, and for how long it may be idle."""

from __future__ import annotations

import asyncio
from collections.abc import Sized
from typing import Protocol

from uvicorn.protocols.http.flow_control import FlowControl

from sayso.workers import per_loop

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
