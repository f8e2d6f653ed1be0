"""The service itself starts calls that somebody else than their caller approved (design, section 6,
"Approved elsewhere")."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Iterable, Sequence
from contextlib import suppress
from functools import partial
from random import Random
from typing import Any

from sayso.context import RequestContext
from sayso.decisions.deed import changed, needs_caller
from sayso.decisions.direct import DirectDecision
from sayso.engine import Engine
from sayso.errors import InvalidRequest, RequestError, TurnError
from sayso.ledger import Proposal, Reading, State, Transaction
from sayso.ledger.choices import Choice, Requester

_random = Random()
"""Not the module's own generator, which user code may seed alike in every process."""

logger = logging.getLogger("sayso.turn")
GRACE = 1.0
"""Seconds within which the request that approved a call should start it itself."""
HOLDER = 10.0
"""Seconds within which a client that waits for its single call, with the connection open, should
start it."""
PAUSE = 1.0
"""Seconds between two looks at the approved calls. A store that wakes its readers is asked less
often, and one that no other process shares hardly ever."""
WOKEN, ALONE = 5.0, 60.0
_READ = 200
"""The number of calls that one look reads, since many may wait for their callers."""
_TO_END: tuple[State, ...] = ("APPROVED", "EXECUTING")
_AGAIN = 0.2
"""Seconds after which it is looked again whether an earlier command has ended."""
_AT_ONCE = 8
"""Calls that are started at the same time."""


class Elsewhere:
    """Starts approved calls that need nothing of their caller. One is made for each life of a
    service."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._due: dict[str, float] = {}
        self._after: str | None = None
        self._places = asyncio.Semaphore(_AT_ONCE)
        self._soon = asyncio.Event()
        self._started: set[str] = set()
        self._refused: set[str] = set()
        """The calls that this process cannot start as they were approved."""
        self._waking: asyncio.Task[None] | None = None

    def approved(self, row: Proposal) -> None:
        """Note that this process recorded an approval whose call nobody starts here."""
        if row.state == "APPROVED" and row.unattended:
            self._due.setdefault(row.id, time.monotonic() + _grace(row, 0.0))
            self._soon.set()

    async def run(self) -> None:
        """Start calls that were approved in this process or in others, until cancelled."""
        try:
            while True:
                await self._look()
                await self._pause()
        finally:
            if self._waking is not None:
                self._waking.cancel()

    async def _look(self) -> None:
        now = time.monotonic()
        due = [id_ for id_, at in self._due.items() if at <= now]
        try:
            rows, at = await self._engine.ledger.store.run(
                Reading(partial(_look_for_approved, due=due, after=self._after), only=True)
            )
        except TurnError as error:
            logger.info("approved calls cannot be looked for now: %s", error)
            return
        self._after = rows[-1].id if len(rows) >= _READ else None
        for id_ in due:
            del self._due[id_]
        self._start(row for row in rows if row.id in due or _is_due(row, at))

    def _start(self, rows: Iterable[Proposal]) -> None:
        for row in rows:
            if row.id in self._started or self._engine.host.stopping or not self._may_start(row):
                continue
            self._started.add(row.id)
            self._engine.keep(self._carried_out(row.id))

    async def _pause(self) -> None:
        store: Any = self._engine.ledger.store
        woken = getattr(store, "woken", None)
        longest = (WOKEN if woken else PAUSE) * _random.uniform(0.8, 1.2) if store.shared else ALONE
        if woken is not None and (self._waking is None or self._waking.done()):
            self._waking = asyncio.create_task(woken(longest))
        if self._due:
            longest = min(longest, max(0.0, min(self._due.values()) - time.monotonic()))
        soon = asyncio.create_task(self._soon.wait())
        waits = {soon, self._waking} if self._waking is not None else {soon}
        try:
            await asyncio.wait(waits, timeout=longest, return_when=asyncio.FIRST_COMPLETED)
        finally:
            soon.cancel()
            self._soon.clear()

    async def _carried_out(self, id_: str) -> None:
        """Run the call if it is still approved and no other process has claimed it."""
        try:
            async with self._places:
                row = (await self._engine.ledger.settle([id_])).get(id_)
                if row is None or row.state != "APPROVED":
                    return
                if await self._follows(row):
                    self._due[id_] = time.monotonic() + _AGAIN
                    self._soon.set()
                    return
                with suppress(RequestError):
                    await self._run(row)
        except TurnError as error:
            logger.info("the approved call %s has not begun: %s", id_, error)
        finally:
            self._started.discard(id_)

    def _may_start(self, row: Proposal) -> bool:
        agent = self._engine.agent
        own = row.agent in ("", agent.id) and row.unattended
        if not own or needs_caller(agent, row.kind, row.name):
            return False
        # The first attempt leaves the reason in the log; another machine may have the right tool.
        refused = row.id in self._refused and changed(agent, {}, row) is not None
        return not refused

    async def _follows(self, row: Proposal) -> bool:
        """Whether the call is a command after another one of its turn that was approved, too, and
        has not ended: commands build on each other."""
        if row.kind != "command":
            return False
        siblings = await self._engine.ledger.store.run(
            Reading(lambda tx: tx.find(turn=row.turn), only=True)
        )
        return any(
            one.index < row.index and one.kind == "command" and one.state in _TO_END
            for one in siblings
        )

    async def _run(self, row: Proposal) -> None:
        who = Requester(row.principal, row.tenant, row.user, "service")
        choice = Choice(row.id, row.kind, True, loc=("id",), newest=True, seen=row.seen)
        context = RequestContext(principal=row.principal, protocol="service")
        decision = DirectDecision(self._engine, choice, who, context, False, True, None)
        try:
            await decision.carried_out(self._engine.limits.turn_time)
        except InvalidRequest as error:
            self._refused.add(row.id)
            logger.info("the approved call %s is not started here: %s", row.id, error)


def _grace(row: Proposal, least: float) -> float:
    """The seconds that others have to start the call. A single call has no conversation: its client
    holds open the connection on which it waits for the result."""
    return least if row.reference else HOLDER


def _is_due(row: Proposal, now: float) -> bool:
    decided = row.decision.at if row.decision else now
    return row.expires > now >= max(row.rests, decided + _grace(row, GRACE))


def _look_for_approved(
    tx: Transaction, due: Sequence[str], after: str | None
) -> tuple[list[Proposal], float]:
    """The calls that are due and approved, then some approved ones after `after`."""
    known = [row for row in tx.proposals(due).values() if row.state == "APPROVED"]
    return known + tx.find(state="APPROVED", after=after, limit=_READ, newest=True), tx.now
