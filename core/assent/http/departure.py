"""Noticing that a client has gone while its turn runs."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable
from time import monotonic

from starlette.types import Receive

from assent.workers import per_loop

A_MOMENT = 0.05
"""Seconds in which nobody minds that a client leaves: what it decided is carried out by then."""


class Departure:
    """Calls `then` when the client has gone, until `stop`.

    It begins to look a moment into the turn: most turns have ended by then, and to start and
    cancel a task for each would cost a tenth of a small one. Before it looks it awaits `slow`,
    which does what only a turn that takes longer needs.
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
            soon().add(self.look)

    def stop(self) -> None:
        """The turn has ended; nobody is called any more."""
        self._then = None
        if self._task is not None:
            self._task.cancel()

    def look(self) -> None:
        """Begin to look, unless the turn has ended."""
        if self._then is not None:
            self._task = asyncio.get_running_loop().create_task(self._disconnected())

    async def _disconnected(self) -> None:
        if self._slow is not None:
            await self._slow()
        while (await self._receive())["type"] != "http.disconnect":
            pass
        if self._then is not None:
            self._then()


class _Soon:
    """Calls due on one loop a moment from now, by one timer: one each would cost as a task does."""

    def __init__(self) -> None:
        self._waiting: deque[tuple[float, Callable[[], None]]] = deque()
        self._armed = False

    def add(self, look: Callable[[], None]) -> None:
        """Call `look` a moment from now; the turn may have ended by then."""
        self._waiting.append((monotonic() + A_MOMENT, look))
        if not self._armed:
            self._arm()

    def _arm(self) -> None:
        # Not for the next one alone, which was added a few microseconds later.
        self._armed = True
        asyncio.get_running_loop().call_later(A_MOMENT / 2, self._look)

    def _look(self) -> None:
        now = monotonic()
        while self._waiting and self._waiting[0][0] <= now:
            self._waiting.popleft()[1]()
        self._armed = False
        if self._waiting:
            self._arm()


soon = per_loop(_Soon)
"""Those of the running loop."""
