"""Claims as steps of one transaction, with those of others that have become void, and claims on
their way to the store."""

from __future__ import annotations

import asyncio
import logging
import secrets
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from random import Random
from typing import Any, TypeVar

from sayso.errors import LedgerUnavailable
from sayso.ledger import OPEN, Owner, Proposal, Reading, State, Store, SuspendedTurn, Transaction
from sayso.ledger.choices import Decided
from sayso.ledger.claims import (
    Claim,
    Continuation,
    Grant,
    Holdings,
    Lease,
    LeaseClock,
    boottime,
    margin,
)
from sayso.ledger.log import log
from sayso.ledger.writes import Writes

T = TypeVar("T")
_random = Random()
"""Not the module's own generator, which user code may seed alike in every process."""

logger = logging.getLogger("sayso.ledger")
LOST = "this process ran it, and the approvals store has lost what became of it"

NOT_RUN = (
    "Error: not run: it had not begun when its process was taken for dead and its outcome was "
    "reported as unknown; it is not run any more"
)
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

    def disown(self, tx: Transaction, token: str, turns: Sequence[str]) -> None:
        """Undo everything that a claim of ours, whose commit is in doubt, has claimed."""
        states: tuple[State, ...] = ("EXECUTING", "INDETERMINATE")
        for row in [row for state in states for row in tx.find(owner=self.owner, state=state)]:
            if row.owner is not None and row.owner.claim == token:
                # Whether there was an earlier run is unknown here; only an idempotent call may have
                # had one.
                self.hand_back(tx, row, again=row.idempotent)
        for id_ in turns:
            for row in tx.find(turn=id_, state="REJECTED"):
                self.unacknowledge(tx, row, token)
        for turn in tx.turns(turns).values():
            if turn.owner is not None and turn.owner.claim == token:
                suspend_again(tx, turn)

    def acknowledge(self, tx: Transaction, found: Decided, row: Proposal, token: str) -> None:
        """Claim a rejected call of a callable, to acknowledge it once."""
        row.owner = self.owner_of(row.fence, tx.now, token)
        tx.put(row)
        found.acknowledged.append(row)

    def unacknowledge(self, tx: Transaction, row: Proposal, token: str) -> None:
        """Undo the claim `token` of a rejected call that was not acknowledged to the callable."""
        if row.owner is not None and row.owner.claim == token:
            row.owner = None
            tx.put(row)

    def hand_back(
        self, tx: Transaction, row: Proposal, *, again: bool, refused: bool = False
    ) -> None:
        """Take back a claim of ours on which nothing ran. If a request meanwhile recorded the
        outcome as unknown, the call has failed and never runs.

        With `again` an earlier run may have taken effect, and its outcome stays unknown. `refused`
        says that the call was to start: then it rests.
        """
        if refused:
            rest(tx, row)
        if row.state == "EXECUTING":
            self._unclaim(tx, row)
        elif row.state == "INDETERMINATE" and row.owner is not None:
            row.owner = None
            if not again:
                row.state, row.output, row.finished = "FAILED", NOT_RUN, tx.now
            tx.put(row)
            log(tx, row.state.lower(), row)

    def _unclaim(self, tx: Transaction, row: Proposal) -> None:
        """Restore the row to its state before a claim on which nothing ran."""
        row.state, row.owner = "APPROVED", None
        if row.output is not None:
            row.state, row.finished = "INDETERMINATE", tx.now
        tx.put(row)
        log(tx, "unclaimed", row)


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


class Claiming:
    """Sends the claims of this process, and notes in `held` what they were granted."""

    def __init__(
        self, store: Store, claims: Claims, lease: Lease, writes: Writes, held: Holdings
    ) -> None:
        self.held = held
        self._store = store
        self._claims = claims
        self._lease = lease
        self._writes = writes

    def sent(self) -> Claim:
        """A claim that is about to be sent. Raises LedgerUnavailable if nothing would renew its
        lease."""
        self._lease.hold()
        return self._claims.new_claim()

    async def run(
        self, work: Callable[[Transaction], T], token: str, turns: Sequence[str] = ()
    ) -> T:
        """The result of the claim `token`, which is held from now on; `turns` are those that it may
        claim.

        A claim whose commit is in doubt is undone in the background: what it claimed would wait
        for its lease to run out.
        """
        self.held.send(token)
        try:
            result = await self._store.run(work)
        except (LedgerUnavailable, asyncio.CancelledError):
            # The claim itself may still be running.
            undone = partial(self._claims.disown, token=token, turns=turns)
            reading = Reading(undone, turns=turns, alone=True)
            self._writes.later(reading, turns, partial(self.held.end, token))
            raise
        except BaseException:
            self.held.end(token)
            raise
        self.held.keep(token, _granted(result))
        return result

    def ended(self, what: Grant | Continuation) -> None:
        """Note that the store has recorded the end of the call, or of the turns."""
        self.held.end(what.token, _ids(what))


def _granted(result: object) -> list[str]:
    """The calls or turns that a claim with this result was granted."""
    match result:
        case Decided():
            return [id_ for grant in result.grants for id_ in _ids(grant)]
        case (_, Continuation() as continuing):
            return _ids(continuing)
        case Continuation():
            return _ids(result)
    return []


def _ids(what: Grant | Continuation) -> list[str]:
    if isinstance(what, Grant):
        return [what.proposal.id]
    return [id_ for id_, _ in what.turns]
