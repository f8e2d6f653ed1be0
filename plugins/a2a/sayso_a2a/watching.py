"""Tasks that wait for decisions: once others have decided, each continues by itself."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable, Sequence

from sayso import Caller, Host, Proposal
from sayso_a2a.artifacts import Json
from sayso_a2a.incoming import PROTOCOL
from sayso_a2a.owners import principal_of

logger = logging.getLogger("sayso.a2a")
MOST = 1_000
"""Most tasks that are watched at once; the others continue with their next message."""
_PAUSE = 60.0
_LONG = 3600.0

LOOK_EVERY = 3.0
"""Seconds between two looks for tasks that have begun to wait in another process."""
_SWEEP = 60.0
"""Seconds between two looks at all waiting tasks."""
_APART = 60.0
"""Seconds by which the clocks of two machines may differ."""

GoOn = Callable[[str, str, list[Json]], Awaitable[None]]
"""Continues a task: its owner, its id, and the decisions on its calls."""


class Looks:
    """The times of the looks at the tasks that wait in the store.

    A look finds those that changed since the one before, so that a task goes on at once although
    the process that began it has died. Each minute one finds all of them.
    """

    def __init__(self) -> None:
        self._swept = self._looked = 0.0

    def since(self) -> float:
        """The time from which on tasks may be new to this look (seconds since 1970); 0 for all."""
        now = time.monotonic()
        passed, self._looked = now - self._looked, now
        if not self._swept or now - self._swept > _SWEEP:
            self._swept = now
            return 0.0
        return time.time() - passed - _APART


class Watch:
    """Knows the tasks of this process that wait for decisions."""

    def __init__(self, host: Host, go_on: GoOn) -> None:
        self._host = host
        self._go_on = go_on
        self._watched: dict[str, asyncio.Task[None]] = {}
        self._going: set[asyncio.Task[None]] = set()
        # Tasks that were continued without effect: the time until which each is left alone, and the
        # length of that pause.
        self._tried: dict[str, tuple[float, float]] = {}

    async def begin(
        self, task_id: str, owner: str, ids: Sequence[str], *, again: bool = False
    ) -> None:
        """Continue the task once none of the calls `ids` is pending any more.

        `again` says that this was just tried: then some call must still be undecided.
        """
        self.end(task_id)
        if again and not await self._pending(owner, ids):
            self._leave(task_id)
            return
        self._tried.pop(task_id, None)
        self._start(task_id, owner, ids)

    def take_up(self, task_id: str, owner: str, ids: Sequence[str]) -> None:
        """Watch a task that was found waiting in the store, unless it is watched already or was
        tried a short time ago."""
        until, _ = self._tried.get(task_id, (0.0, 0.0))
        if task_id not in self._watched and time.monotonic() >= until:
            self._start(task_id, owner, ids)

    def _start(self, task_id: str, owner: str, ids: Sequence[str]) -> None:
        if ids and len(self._watched) < MOST:
            self._watched[task_id] = asyncio.ensure_future(self._watching(task_id, owner, ids))

    def end(self, task_id: str) -> None:
        """Stop watching the task."""
        if (watching := self._watched.pop(task_id, None)) is not None:
            watching.cancel()

    def _leave(self, task_id: str) -> None:
        """Leave the task alone for a while, longer each time: the reason that keeps its calls from
        starting, such as a freeze, may last."""
        _, pause = self._tried.get(task_id, (0.0, _PAUSE / 2))
        pause = min(2 * pause, _LONG)
        if len(self._tried) >= 10 * MOST:
            self._tried.clear()
        self._tried[task_id] = (time.monotonic() + pause, pause)

    async def aclose(self) -> None:
        """Stop watching; the host ends the turns that have started already."""
        watching = [*self._watched.values(), *self._going]
        for each in watching:
            each.cancel()
        await asyncio.gather(*watching, return_exceptions=True)

    async def _pending(self, owner: str, ids: Sequence[str]) -> bool:
        rows = await self._host.calls.settled(ids, _caller(owner), 0.0)
        return any(row.state == "PENDING" for row in rows)

    async def _watching(self, task_id: str, owner: str, ids: Sequence[str]) -> None:
        try:
            rows = await self._decided(owner, ids)
        except Exception:
            # The next sweep of waiting tasks starts this again.
            logger.exception("the calls of task %s could not be watched", task_id)
            rows = []
        mine = self._watched.pop(task_id)
        if decisions := [_decision(row) for row in rows if row.state not in ("PENDING", "EXPIRED")]:
            self._going.add(mine)
            mine.add_done_callback(self._going.discard)
            await self._goes_on(owner, task_id, decisions)
        elif rows:
            # All calls have expired, so continuing would have no effect.
            self._leave(task_id)

    async def _goes_on(self, owner: str, task_id: str, decisions: list[Json]) -> None:
        try:
            await self._go_on(owner, task_id, decisions)
        except Exception:
            logger.exception("task %s could not go on after a decision made elsewhere", task_id)

    async def _decided(self, owner: str, ids: Sequence[str]) -> list[Proposal]:
        while True:
            rows: list[Proposal] = await self._host.calls.settled(ids, _caller(owner), _LONG)
            if all(row.state != "PENDING" for row in rows):
                return rows


def _caller(owner: str) -> Caller:
    return Caller(PROTOCOL, principal_of(owner))


def _decision(row: Proposal) -> Json:
    """The decision on a call, in the form of a message on its task. A call that it would run again
    is only stated."""
    decision: Json = {"id": row.id, "type": row.kind, "seen": row.seen}
    if row.state != "REJECTED":
        return {**decision, "execute": not row.runs_again}
    reason = row.decision.reason if row.decision else None
    return {**decision, "rejection_reason": reason or "no reason given"}
