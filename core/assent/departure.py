"""Noticing that a client has gone while its turn runs."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, MutableMapping
from typing import Any

Receive = Callable[[], Awaitable[MutableMapping[str, Any]]]

_A_MOMENT = 0.05
"""Seconds of a turn after which a client that leaves is noticed."""


class Departure:
    """Calls `then` when the client has gone, until `stop`.

    It begins to look a moment into the turn: most turns have ended by then, and to start and
    cancel a task for each would cost a tenth of a small one. What is `slow` runs at that moment,
    for what only turns that take longer need.
    """

    def __init__(
        self,
        receive: Receive,
        then: Callable[[], object] | None,
        slow: Callable[[], Awaitable[None]] | None = None,
    ) -> None:
        self._receive = receive
        self._then = then
        self._slow = slow
        self._task: asyncio.Task[None] | None = None
        self._loop = asyncio.get_running_loop()
        self._timer = self._loop.call_later(_A_MOMENT, self._look) if then is not None else None

    def stop(self) -> None:
        """The turn has ended; nobody is called any more."""
        self._then = None
        if self._timer is not None:
            self._timer.cancel()
        if self._task is not None:
            self._task.cancel()

    def _look(self) -> None:
        self._task = self._loop.create_task(self._disconnected())

    async def _disconnected(self) -> None:
        if self._slow is not None:
            await self._slow()
        while (await self._receive())["type"] != "http.disconnect":
            pass
        if self._then is not None:
            self._then()
