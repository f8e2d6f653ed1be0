"""Tasks that wait for decisions: once others have decided, each continues by itself."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Sequence

from sayso import Caller, Host, Proposal
from sayso_a2a.artifacts import Json
from sayso_a2a.incoming import PROTOCOL

logger = logging.getLogger("sayso.a2a")
MOST = 1_000
"""Most tasks that are watched at once; the others continue with their next message."""
_LONG = 3600.0

GoOn = Callable[[str, str, list[Json]], Awaitable[None]]
"""Continues a task: its owner, its id, and the decisions on its calls."""


class Watch:
    """Knows the tasks of this process that wait for decisions."""

    def __init__(self, host: Host, go_on: GoOn) -> None:
        self._host = host
        self._go_on = go_on
        self._watched: dict[str, asyncio.Task[None]] = {}
        self._going: set[asyncio.Task[None]] = set()

    def __contains__(self, task_id: object) -> bool:
        return task_id in self._watched

    async def begin(
        self, task_id: str, owner: str, ids: Sequence[str], *, again: bool = False
    ) -> None:
        """Continue the task once none of `ids` is pending any more.

        `again` says that this was just tried: then some call must still be undecided.
        """
        if again and not await self._pending(owner, ids):
            return
        self.end(task_id)
        if ids and len(self._watched) < MOST:
            self._watched[task_id] = asyncio.ensure_future(self._watching(task_id, owner, ids))

    def end(self, task_id: str) -> None:
        """Stop watching the task."""
        if (watching := self._watched.pop(task_id, None)) is not None:
            watching.cancel()

    async def aclose(self) -> None:
        """Stop watching; the host ends the tasks that continue already."""
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
    return Caller(PROTOCOL, owner or None)


def _decision(row: Proposal) -> Json:
    """The decision on a call, in the form of a message on its task."""
    decision: Json = {"id": row.id, "type": row.kind, "seen": row.revision}
    if row.state != "REJECTED":
        return {**decision, "execute": True}
    reason = row.decision.reason if row.decision else None
    return {**decision, "rejection_reason": reason or "no reason given"}
