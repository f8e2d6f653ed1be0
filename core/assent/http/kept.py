"""Connections that are kept: how many requests wait on one, and how long one waits for the next."""

from __future__ import annotations

import asyncio
from collections.abc import Sized
from typing import TYPE_CHECKING

from uvicorn.protocols.http.flow_control import FlowControl

from assent.workers import per_loop

if TYPE_CHECKING:
    from assent.http.protocol import Http

PIPELINED = 16
"""Requests that may wait behind the one that is answered; then reading pauses."""


class Flow(FlowControl):
    """Reads no further while many requests wait: each takes far more memory than its bytes."""

    def __init__(self, transport: asyncio.Transport, pipeline: Sized) -> None:
        super().__init__(transport)
        self._pipeline = pipeline

    def resume_reading(self) -> None:
        """Read on, unless many requests wait; the end of one of them asks again."""
        if len(self._pipeline) < PIPELINED:
            super().resume_reading()


class Idle:
    """The connections of a loop that wait for their next request, since when, the oldest first."""

    def __init__(self) -> None:
        self._since: dict[Http, float] = {}
        self._armed = False

    def add(self, connection: Http) -> None:
        """It waits from now on."""
        self._since[connection] = connection.loop.time()
        if not self._armed:
            self._arm(connection)

    def discard(self, connection: Http) -> None:
        """It waits no longer."""
        self._since.pop(connection, None)

    def __contains__(self, connection: Http) -> bool:
        return connection in self._since

    def _arm(self, connection: Http) -> None:
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


idle_connections = per_loop(Idle)
"""Those of the running loop."""
