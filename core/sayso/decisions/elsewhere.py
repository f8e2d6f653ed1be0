"""Calls that were approved elsewhere than by their caller, started by the service itself (design,
section 6, "Approved elsewhere")."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Iterable
from contextlib import suppress
from random import uniform
from typing import Any

from sayso.context import RequestContext
from sayso.decisions.direct_decision import DirectDecision
from sayso.engine import Engine
from sayso.errors import InvalidRequest, RequestError, TurnError
from sayso.ledger import Proposal, Reading, Transaction, outbox
from sayso.ledger.choices import Choice, Requester

logger = logging.getLogger("sayso.turn")
GRACE = 1.0
"""Seconds that the caller of a call has to start it itself, where it may be about to."""
HOLDER = 3.0
"""Seconds that a client has which waits for its single call with the connection open."""
PAUSE = 1.0
"""Seconds between two looks at the log; a store that wakes its readers is asked less often."""
WOKEN = 5.0
ROUND = 60.0
"""Seconds between two looks at all that is approved: what could not start before may do so now."""
_READ = 200
_MOST = 1_000
_AT_ONCE = 8
"""Calls that are started at the same time."""
_APPROVED = ("approved", "unclaimed")


class Elsewhere:
    """Starts what was approved and needs nothing of its caller; made for one life of a service."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._due: dict[str, float] = {}
        self._places = asyncio.Semaphore(_AT_ONCE)
        self._soon = asyncio.Event()
        self._started: set[str] = set()
        self._waking: asyncio.Task[None] | None = None

    def approved(self, row: Proposal) -> None:
        """Take note that this process recorded an approval that nobody carries out here."""
        if row.state == "APPROVED" and row.unattended:
            # Whoever proposed a single call holds the connection on which its result is waited for.
            self._add([row.id], HOLDER if not row.reference else 0.0)

    async def run(self) -> None:
        """Start what is approved, here or by others, until cancelled."""
        try:
            await self._look()
        finally:
            if self._waking is not None:
                self._waking.cancel()

    async def _look(self) -> None:
        cursor: str | None = None
        rounds = 0.0
        while True:
            try:
                if time.monotonic() >= rounds:
                    cursor = cursor or await outbox.newest(self._engine.ledger.store)
                    self._add(await self._open(), GRACE)
                    rounds = time.monotonic() + ROUND * uniform(0.75, 1.25)
                if self._engine.ledger.store.shared and cursor is not None:
                    cursor = await self._heard(cursor)
            except TurnError as error:
                logger.info("approved calls cannot be looked for now: %s", error)
            self._start()
            await self._pause()

    def _add(self, ids: Iterable[str], grace: float) -> None:
        for id_ in ids:
            self._due.setdefault(id_, time.monotonic() + grace)
        self._soon.set()

    async def _open(self) -> list[str]:
        """What is approved and has not begun, from before this process looked."""
        find = Reading(_approved, only=True)
        rows = await self._engine.ledger.store.run(find)
        return [row.id for row in rows if row.unattended]

    async def _heard(self, cursor: str) -> str:
        """Take note of what others have approved; gives where to go on."""
        page = await outbox.read(self._engine.ledger.store, cursor, _READ)
        found = [e.row.entry for e in page.events if e.row.entry.get("event") in _APPROVED]
        self._add((str(entry["id"]) for entry in found), GRACE)
        if any(e.row.entry.get("event") == "thawed" for e in page.events):
            self._add(await self._open(), 0.0)
        return page.cursor

    def _start(self) -> None:
        now = time.monotonic()
        for id_ in [id_ for id_, at in self._due.items() if at <= now]:
            del self._due[id_]
            if id_ not in self._started and not self._engine.host.stopping:
                self._started.add(id_)
                self._engine.keep(self._carried_out(id_))

    async def _pause(self) -> None:
        store: Any = self._engine.ledger.store
        woken = getattr(store, "woken", None)
        longest = (WOKEN if woken else PAUSE) * uniform(0.8, 1.2)
        if not store.shared:
            # Nobody else can approve anything.
            longest = ROUND
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
        """Run the call, if it is still approved and nobody else has claimed it."""
        try:
            async with self._places:
                row = (await self._engine.ledger.settle([id_])).get(id_)
                if row is not None and row.state == "APPROVED" and self._may_start(row):
                    with suppress(RequestError):
                        await self._run(row)
        except TurnError as error:
            logger.info("the approved call %s has not begun: %s", id_, error)
        finally:
            self._started.discard(id_)

    def _may_start(self, row: Proposal) -> bool:
        engine = self._engine
        tool = engine.agent.tools.get(row.name)
        own = row.agent in ("", engine.agent.id)
        return own and row.unattended and tool is not None and not tool.needs_caller

    async def _run(self, row: Proposal) -> None:
        who = Requester(row.principal, row.tenant, row.user, "service")
        choice = Choice(row.id, row.kind, True, loc=("id",), newest=True)
        context = RequestContext(principal=row.principal, protocol="service")
        decision = DirectDecision(self._engine, choice, who, context, False, True, None)
        try:
            await decision.carried_out(self._engine.limits.turn_time)
        except InvalidRequest as error:
            logger.info("the approved call %s is not started here: %s", row.id, error)


def _approved(tx: Transaction) -> list[Proposal]:
    return tx.find(state="APPROVED", limit=_MOST, newest=True)
