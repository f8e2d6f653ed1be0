"""Noticing that a client has disconnected while its turn runs."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable
from time import monotonic

from starlette.types import Receive

from sayso.workers import per_loop

A_MOMENT = 0.05
"""Seconds before a disconnect counts, so that a decision sent just before is carried out."""


class DisconnectWatch:
    """Calls `then` when the client disconnects, until `stop`.

    It starts to watch a moment into the turn: most turns have ended by then, and starting and
    cancelling a task for each would cost a tenth of a small one. First it awaits `slow`, which
    prepares things that only longer turns need.
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
        if then is not None:
            delayed_calls().add(self.start)

    def stop(self) -> None:
        """Stop watching: the turn has ended."""
        self._then = None
        if self._task is not None:
            self._task.cancel()

    def start(self) -> None:
        """Start watching, unless the turn has ended."""
        if self._then is not None:
            self._task = asyncio.get_running_loop().create_task(self._disconnected())

    async def _disconnected(self) -> None:
        if self._slow is not None:
            await self._slow()
        while (await self._receive())["type"] != "http.disconnect":
            pass
        if self._then is not None:
            self._then()


class _DelayedCalls:
    """Calls that a loop makes a moment later, with one timer: a timer for each would cost as much
    as a task."""

    def __init__(self) -> None:
        self._waiting: deque[tuple[float, Callable[[], None]]] = deque()
        self._armed = False

    def add(self, call: Callable[[], None]) -> None:
        """Make the call a moment from now; the turn may have ended by then."""
        self._waiting.append((monotonic() + A_MOMENT, call))
        if not self._armed:
            self._arm()

    def _arm(self) -> None:
        # Arm a new timer rather than one for the next call: that was added a few microseconds
        # later.
        self._armed = True
        asyncio.get_running_loop().call_later(A_MOMENT / 2, self._make)

    def _make(self) -> None:
        now = monotonic()
        while self._waiting and self._waiting[0][0] <= now:
            self._waiting.popleft()[1]()
        self._armed = False
        if self._waiting:
            self._arm()


delayed_calls = per_loop(_DelayedCalls)
"""The delayed calls of the running loop."""
