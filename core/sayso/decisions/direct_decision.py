"""The decision on a single call: recorded, and carried out where the call is ours to run."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from sayso.context import RequestContext
from sayso.decisions.edits import Edits
from sayso.decisions.settling import Deciding, Prepared, Settled, settle
from sayso.engine import Engine, Unrecorded
from sayso.errors import InvalidRequest
from sayso.gate import Outcome
from sayso.ledger import Proposal
from sayso.ledger.choices import Choice, Conversation, Requester, not_issued

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
        """Refuse a call that is not there: an unknown one can be rejected in a conversation, where
        nothing comes of it."""
        if not settled.decided.chosen:
            raise InvalidRequest([not_issued(self.choice)])
        return Prepared(settled)
