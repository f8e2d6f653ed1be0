"""The decision on a single call: it is recorded, and this process carries it out if the call is its
own to run."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from sayso.context import RequestContext
from sayso.decisions.settling import Deciding, Edits, Prepared, Settled, settle
from sayso.engine import Engine, Unrecorded
from sayso.errors import InvalidRequest
from sayso.gate import Outcome
from sayso.ledger import Proposal
from sayso.ledger.choices import Choice, Conversation, Requester
from sayso.ledger.voting import not_issued

Ran = Callable[[Outcome], None]


@dataclass(frozen=True, slots=True)
class DirectDecision:
    """One decision, with the arguments of `DirectCalls.decide`; `edits` says that it changes the
    input."""

    engine: Engine
    choice: Choice
    who: Requester
    context: RequestContext
    edits: bool
    run: bool
    ran: Ran | None

    async def check(self, input: Mapping[str, Any]) -> None:
        """Raise InvalidRequest unless `input` is the proposed input, which never changes."""
        shown = replace(self.choice, input=dict(input))
        await self.engine.ledger.decide([shown], [], self.who, Conversation(), dry=True)

    async def carried_out(self, wait: float) -> Proposal:
        """The row when it is decided and, if the call runs, when the call has ended: in this
        process, or within `wait` seconds in another one. Raises StillRunning."""
        unrecorded: Unrecorded = asyncio.get_running_loop().create_future()
        deciding = Deciding(
            self.engine,
            [self.choice],
            self.who,
            self.context,
            Edits(self.engine, self.context.platform.secrets()),
            time.monotonic() + wait,
            self._ended,
            may_edit=self.edits,
            runs=self.run,
        )
        settled = await settle(deciding, Settled(), self._known, unrecorded)
        found = settled.decided
        return found.rows[found.chosen[0][1].id]

    def _ended(self, row: Proposal, outcome: Outcome) -> None:
        if self.ran is not None:
            self.ran(outcome)

    async def _known(self, settled: Settled, starts: Sequence[str]) -> Prepared:
        """Refuse a call that the ledger does not know. In a conversation an unknown call can be
        rejected, without any effect; here there would be no row to return."""
        if not settled.decided.chosen:
            raise InvalidRequest([not_issued(self.choice)])
        return Prepared(settled)
