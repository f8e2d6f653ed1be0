"""The decision on a single call: recorded, and carried out where the call is ours to run."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from sayso.context import RequestContext
from sayso.conversation import approvals
from sayso.decisions.deed import hinders
from sayso.decisions.edits import Edits
from sayso.decisions.execution import carry_out
from sayso.decisions.starts import Start, latest
from sayso.engine import Engine, Unrecorded
from sayso.errors import InvalidRequest
from sayso.gate import Outcome
from sayso.ledger import Proposal
from sayso.ledger.choices import Choice, Conversation, Decided, Edit, Requester, not_issued

Ran = Callable[[Outcome], None]


@dataclass(frozen=True, slots=True)
class DirectDecision:
    """One decision as `DirectCalls.decide` is given it; `edits` says that it changes the input."""

    engine: Engine
    choice: Choice
    who: Requester
    context: RequestContext
    edits: bool
    run: bool
    ran: Ran | None

    async def check(self, input: Mapping[str, Any]) -> None:
        """Raise InvalidRequest unless `input` is what was proposed, which never changes."""
        shown = replace(self.choice, input=dict(input))
        await self.engine.ledger.decide([shown], [], self.who, Conversation(), dry=True)

    async def carried_out(self, wait: float) -> Proposal:
        """The row once it is decided and, if it runs, has ended, here or within `wait` seconds
        elsewhere; raises StillRunning."""
        until = time.monotonic() + wait
        unrecorded: Unrecorded = asyncio.get_running_loop().create_future()
        while True:
            # A claim that commits is carried out, also when the caller leaves meanwhile.
            row = await self.engine.carried(self._take(until, unrecorded), unrecorded)
            if row.state != "EXECUTING":
                return row
            row = (await self.engine.ledger.outcomes([row.id], until))[row.id]
            if not (self.run and row.startable):
                return row

    async def _take(self, until: float, unrecorded: Unrecorded) -> Proposal:
        """The row as it stands when the decision is recorded and, if it is ours to run, has run."""
        found = await self._recorded()
        row = found.rows[found.chosen[0][1].id]
        if found.fresh:
            await self.engine.fire(approvals.decision_event(row, self.who.principal))
        rows: dict[str, Proposal] = {}

        async def ended(row: Proposal, outcome: Outcome) -> None:
            rows[row.id] = row
            if self.ran is not None:
                self.ran(outcome)
            await self.engine.fire(outcome.event(approvals.approval(row, execute=True)))

        for choice, known in found.starts if self.run else ():
            start = Start(choice, known.id, found, self.who, latest(until), until)
            await carry_out(self.engine, start, self.context, ended, unrecorded)
        return rows.get(row.id) or found.rows[row.id]

    async def _recorded(self) -> Decided:
        async def with_edit(edit: Edit) -> Decided:
            allowed = edit if self.edits else None
            return await self.engine.ledger.decide(
                [self.choice],
                [],
                self.who,
                Conversation(),
                edit=allowed,
                hinders=hinders(self.engine.agent, self.context) if self.run else None,
                claim=False,
            )

        found = await Edits(self.engine, self.context.platform.secrets()).decided(with_edit)
        if not found.chosen:
            # An unknown call can be rejected in a conversation, where nothing comes of it.
            raise InvalidRequest([not_issued(self.choice)])
        return found
