"""Claims of this process on calls and continuations, and claims of others that have become void."""

from __future__ import annotations

import logging
import secrets
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from random import Random
from typing import Any

from sayso.ledger import OPEN, Owner, Proposal, State, SuspendedTurn, Transaction
from sayso.ledger.beginnings import Claim, boottime, margin
from sayso.ledger.choices import Continuation, Grant
from sayso.ledger.holdings import Holdings
from sayso.ledger.lease_clock import LeaseClock
from sayso.ledger.log import log

_random = Random()
"""Not the module's own generator, which user code may seed alike in every process."""

logger = logging.getLogger("sayso.ledger")
LOST = "this process ran it, and the approvals store has lost what became of it"

ABANDONED = "abandoned"
"""The owner of a call that started and that nobody waits for: no process renews its lease."""
_REST, _LONGEST_REST = 0.05, 5.0


@dataclass(frozen=True)
class Claims:
    """The claims of the process `owner` on the machine `boot`, each for `lease` seconds unless
    renewed; `gone` says whether an owner has certainly died, `held` what this process really
    holds."""

    owner: str
    boot: str
    lease: float
    gone: Callable[[Owner], bool]
    held: Holdings
    clock: LeaseClock

    def new_claim(self) -> Claim:
        """A claim that is about to be sent; the lease of its rows cannot start earlier."""
        return Claim(secrets.token_hex(8), boottime() + self.lease - margin(self.lease))

    def owner_of(self, fence: int, now: float, token: str) -> Owner:
        """This process as the owner of a row, under the claim `token`."""
        return Owner(self.owner, self.boot, fence, now + self.lease, token)

    def _dead(self, id_: str, owner: Owner, now: float) -> bool:
        """Whether nobody will record the end of the call or turn `id_` that `owner` has."""
        if owner.id == self.owner:
            # This process is alive, whatever happened to its lease; but the store may have lost the
            # end.
            return not self.held.holds(owner.claim, id_)
        if owner.id == ABANDONED:
            return self.clock.has_run_out(owner, now)
        return self.gone(owner) or self.clock.has_run_out(owner, now)

    def _loss(self, owner: Owner) -> tuple[str, str]:
        """The reason why nobody waits for a process that is considered dead, and the
        consequence."""
        if owner.id == self.owner:
            return LOST, ""
        if owner.id == ABANDONED:
            return "it did not end within the time limit of its turn", " and may still be running"
        if self.gone(owner):
            return "the process that ran it has ended", " before its result was recorded"
        silent = "the process that ran it has given no sign of life for the time of its lease"
        return silent, " and may still be running it"

    def abandon(self, tx: Transaction, row: Proposal) -> None:
        """Stop renewing the lease of a call that started and that nobody waits for."""
        if row.state == "EXECUTING" and row.owner is not None:
            row.owner = replace(row.owner, id=ABANDONED, boot="", lease=tx.now + self.lease)
            tx.put(row)

    def go_on(self, tx: Transaction, grant: Grant, request: str, token: str) -> Continuation | None:
        """Claim the continuation of the turn if this was its only call and nobody continues it
        yet."""
        turn = tx.turns([grant.proposal.turn]).get(grant.proposal.turn)
        if turn is None or turn.calls != [grant.proposal.id]:
            return None
        if turn.state != "SUSPENDED" or turn.reply:
            return None
        return self.claim_turns(tx, [turn], request, token)

    def claim_turns(
        self, tx: Transaction, turns: Sequence[SuspendedTurn], request: str, token: str
    ) -> Continuation:
        """Claim the continuation of these turns."""
        for turn in turns:
            turn.fence += 1
            # Clear the end, or a purge might remove the turn while it continues.
            turn.state, turn.request, turn.ended = "RESUMING", request, None
            turn.owner = self.owner_of(turn.fence, tx.now, token)
            tx.put_turn(turn)
        return Continuation([(t.id, t.fence) for t in turns], request, token)

    def finish(
        self,
        tx: Transaction,
        grant: Grant,
        state: State,
        output: str,
        duration: float | None,
        session: dict[str, Any] | None,
    ) -> bool:
        """Record the outcome of a claimed call; false if a later claim voided ours."""
        row = tx.proposals([grant.proposal.id]).get(grant.proposal.id)
        if row is None or not still_ours(row, grant):
            return False
        if row.state in OPEN:
            logger.warning("call %s of %s: the store had lost that it began", row.id, row.name)
            row.fence, row.decision = grant.fence, row.decision or grant.proposal.decision
            row.edited = row.edited or grant.proposal.edited
        if row.state != "INDETERMINATE" or session is not None:
            # A late outcome has no session; keep the one recorded when the call was abandoned.
            row.session = session
        row.state, row.output, row.duration = state, output, duration
        row.finished, row.owner = tx.now, None
        tx.put(row)
        log(tx, state.lower(), row)
        return True

    def settle_turn(self, tx: Transaction, turn: SuspendedTurn) -> SuspendedTurn:
        """The turn, updated if its owner has died."""
        if turn.state == "RESUMING" and turn.owner and self._dead(turn.id, turn.owner, tx.now):
            turn.state, turn.owner = ("ENDED" if turn.reply else "SUSPENDED"), None
        return turn


def rest(tx: Transaction, row: Proposal) -> None:
    """Make the next start of the call wait in any process, longer each time and for no two calls
    alike: it was claimed and did not start in time."""
    pause = min(_LONGEST_REST, _REST * 2 ** min(row.refusals, 10)) * _random.uniform(0.5, 1.5)
    row.refusals, row.rests = row.refusals + 1, tx.now + pause


def suspend_again(tx: Transaction, turn: SuspendedTurn) -> None:
    """Suspend a turn again whose continuation failed, so that another request can continue it."""
    if turn.state == "RESUMING":
        turn.state, turn.owner = ("ENDED" if turn.reply else "SUSPENDED"), None
        turn.ended = tx.now if turn.reply else None
        tx.put_turn(turn)


def still_ours(row: Proposal, grant: Grant) -> bool:
    """Whether the row is as the grant's claim left it, or as it was before, in a store that lost
    that claim and has given the call to nobody since.

    The fence alone does not tell: another claim after the loss has the same one.
    """
    if row.state not in ("EXECUTING", "INDETERMINATE"):
        return row.state in OPEN and row.fence < grant.fence
    if row.owner is not None:
        return row.fence == grant.fence and row.owner.claim == grant.token
    return row.fence <= grant.fence
