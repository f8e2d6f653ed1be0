"""The rules of the ledger as steps of one transaction: who may decide, what may run, once; and the
stop of all starts."""

from __future__ import annotations

import json
import logging
import secrets
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from typing import Any, Literal

from sayso.errors import InvalidRequest
from sayso.ledger import OPEN, Pending, Proposal, Transaction
from sayso.ledger.choices import (
    WAITS,
    Choice,
    Conversation,
    Decided,
    Edit,
    Hinders,
    Lookup,
    Requester,
    decision_of,
    name_of_unissued,
    revise,
    unknown_outcome,
    would_start,
)
from sayso.ledger.claiming import ABANDONED, Claims
from sayso.ledger.claims import MINT, Beginnings, Claim, Grant
from sayso.ledger.log import append, digest, log
from sayso.ledger.voting import (
    barred,
    completes,
    contradiction,
    edited_twice,
    is_named,
    may_be_issued,
    not_issued,
    refusal,
    refuse,
    refused,
    vote,
    wrong_edit,
)

logger = logging.getLogger("sayso.ledger")
_OUTDATED = (
    "the input was changed: revision {} is what would run; decide on that one, and send its input, "
    "or its digest as 'seen'"
)
_FROZEN = "frozen"
_LOOK = 1.0
"""Seconds for which a process uses the note that it has read: a stop applies everywhere within
two."""


@dataclass(frozen=True, slots=True)
class Frozen:
    """A stop of all starts: its author, its time (by the store's clock) and its reason."""

    who: str | None
    at: float
    reason: str

    def words(self, row: Proposal) -> str:
        """The text for callers about an approved call that does not start."""
        by = f" by {self.who}" if self.who else ""
        why = f": {self.reason}" if self.reason else ""
        return f"{row.name} was approved and has not run: all starts were stopped{by}{why}."


class Freezing:
    """The stop of all starts, in the state that this process knows: a note in the store that every
    process reads before it claims a call (design, section 6, "Approved elsewhere")."""

    def __init__(self) -> None:
        self.now: Frozen | None = None
        self._read = -_LOOK

    def look(self, tx: Transaction) -> Frozen | None:
        """The stop that applies now; it is read in this transaction, unless it was read a moment
        ago."""
        if time.monotonic() - self._read > _LOOK:
            text = tx.notes(_FROZEN).get(_FROZEN)
            self.now = Frozen(**json.loads(text)) if text else None
            self._read = time.monotonic()
        return self.now

    def words(self, row: Proposal) -> str:
        """Why the approved call does not start, if that is because of a stop; else empty."""
        return self.now.words(row) if self.now is not None else ""

    def freeze(self, tx: Transaction, who: str | None, reason: str) -> Frozen:
        """Stop all starts."""
        frozen = Frozen(who, tx.now, reason)
        tx.note(_FROZEN, json.dumps(asdict(frozen)))
        append(tx, {"event": "frozen", "who": who, "reason": digest(reason)})
        self._read = -_LOOK
        return frozen

    def thaw(self, tx: Transaction, who: str | None) -> bool:
        """Let calls start again; returns whether they were stopped."""
        if _FROZEN not in tx.notes(_FROZEN):
            return False
        tx.note(_FROZEN, None)
        append(tx, {"event": "thawed", "who": who})
        self._read = -_LOOK
        return True


@dataclass(frozen=True)
class Rules(Claims):
    """The rules as configured, for one process."""

    ttl: float
    deciders: Literal["principal", "any"]
    accept_unissued: bool
    for_callable: bool
    """Whether the agent is a plain callable: it then carries out calls that nobody proposed."""
    started: Beginnings
    agent: str | None = None
    """The agent whose proposals are visible; None: those of all agents, for the command line."""
    logged: set[tuple[str, int]] = field(default_factory=set)
    """The claims, by call and fence, whose death is already in the log."""

    def rows(self, tx: Transaction, ids: Sequence[str], who: Requester) -> Decided:
        """The visible proposals with these ids, and all others of their turns."""
        found = Decided()
        rows = [r for r in tx.proposals(ids).values() if self.visible(r, who)]
        known = {row.id: row for row in rows}
        turns = tx.turns(list({r.turn for r in rows}))
        for id_ in {r.turn for r in rows}:
            calls = turns[id_].calls if id_ in turns else []
            # All rows of the turn are already there, so do not read them again.
            whole = bool(calls) and known.keys() >= set(calls)
            for row in [known[call] for call in calls] if whole else tx.find(turn=id_):
                found.rows[row.id] = self.settle(tx, row)
        found.keep_turns(turns.values(), who)
        return found

    def visible(self, row: Proposal | Pending, who: Requester) -> bool:
        """Whether the proposal exists for `who` (design, section 6, "Who may decide")."""
        if self.agent is not None and row.agent not in ("", self.agent):
            return False
        if row.tenant is not None and who.tenant is not None and row.tenant != who.tenant:
            return False
        # The approvers that a rule names see the call, whatever `deciders` says.
        named = row.terms is not None and is_named(row.terms, who.principal)
        return row.principal == who.principal or self.deciders == "any" or named

    def may_withdraw(self, row: Proposal, who: Requester) -> bool:
        """Whether `who` may withdraw the call: its requester, or anybody who may decide on it."""
        own = row.principal == who.principal
        return self.visible(row, who) and (own or not barred(row, who))

    def settle(self, tx: Transaction, row: Proposal) -> Proposal:
        """The row, updated if it has expired or its owner has died."""
        if row.state in OPEN and tx.now >= row.expires:
            row.state = "EXPIRED"
        elif row.state == "EXECUTING" and row.owner and self._dead(row.id, row.owner, tx.now):
            row.state, row.finished = "INDETERMINATE", tx.now
            owner, why = row.owner, self._loss(row.owner)
            row.output = unknown_outcome("".join(why), idempotent=row.idempotent)
            if owner.id == ABANDONED:
                # No process has died: this is an outcome like that of a timeout.
                row.owner = None
            # A transaction that is refused or retried gets here again, but logs it once.
            if (claim := (row.id, owner.fence)) not in self.logged:
                self.logged.add(claim)
                logger.warning(
                    "call %s of %s: %s, its outcome is unknown", row.id, row.name, why[0]
                )
        else:
            return row
        tx.put(row)
        log(tx, row.state.lower(), row)
        return row

    def choose(
        self,
        tx: Transaction,
        choices: Sequence[Choice],
        found: Decided,
        who: Requester,
        conversation: Conversation,
        *,
        dry: bool,
    ) -> None:
        """Pair each choice with its row; raises InvalidRequest for a call that was never
        proposed."""
        unknown: list[Choice] = []
        lookup = Lookup(tx, who, conversation, found.rows, self.visible, self.settle)
        rows = [_row(choice, found, lookup) for choice in choices]
        turn = secrets.token_hex(16)
        for index, (choice, row) in enumerate(zip(choices, rows, strict=True)):
            if row is None and choice.id:
                # Stated twice: the first one, earlier in this request, has issued it.
                row = _row(choice, found, lookup)
            if row is None and self.accept_unissued and may_be_issued(choice):
                row = self._unissued(tx, choice, who, conversation)
                if not row.turn:
                    row.turn, row.index = turn, index
                    if not dry:
                        log(tx, "unissued", row)
            if row is None:
                unknown.append(choice)
                continue
            if row.id not in found.rows:
                self._adopt(tx, found, row, who)
            found.chosen.append((choice, found.rows[row.id]))
        refuse([not_issued(c) for c in unknown if c.approved and not c.copy])
        if self.for_callable:
            found.callables |= {row.turn for row in found.rows.values() if row.unissued}

    def _adopt(self, tx: Transaction, found: Decided, row: Proposal, who: Requester) -> None:
        for sibling in tx.find(turn=row.turn):
            found.rows[sibling.id] = self.settle(tx, sibling)
        found.rows.setdefault(row.id, row)
        found.keep_turns(tx.turns([row.turn]).values(), who)

    def _unissued(
        self, tx: Transaction, choice: Choice, who: Requester, conversation: Conversation
    ) -> Proposal:
        """The row of a call that this service never proposed; only with `accept_unissued`.

        It is recorded with its decision. A command without an id gets one by which the same request
        finds it again.
        """
        id_ = choice.id or name_of_unissued(choice, who, conversation)
        known = tx.proposals([id_]).get(id_)
        if known is not None and (choice.id or not self.visible(known, who)):
            raise InvalidRequest([not_issued(choice)])
        if known is not None:
            return self.settle(tx, known)
        return Proposal(
            id=id_,
            kind=choice.kind or "tool_call",
            name=choice.name or "command",
            input=choice.input or {},
            turn="",
            index=0,
            call_id=id_,
            created=tx.now,
            expires=tx.now + self.ttl,
            conversation=conversation.id,
            agent=self.agent or "",
            **who._asdict(),
        )

    def check(
        self,
        found: Decided,
        who: Requester,
        edit: Edit | None,
        hinders: Hinders | None = None,
        *,
        operator: bool = False,
    ) -> None:
        """Raise InvalidRequest for choices that are changed, too late, contradictory or not allowed
        to `who`, and for calls that would start now although `hinders` has a reason against it."""
        items: list[dict[str, Any]] = []
        decided = [(choice, row) for choice, row in found.chosen if not choice.copy]
        unseen = found.unseen()
        for choice, row in decided:
            if kind := contradiction(choice, row):
                items.append(refused(choice, *kind))
            elif kind := refusal(choice, row, who, operator=operator):
                items.append(refused(choice, *kind))
            elif row.id in unseen or found.outdated(choice, row):
                items.append(refused(choice, "approval_changed", _OUTDATED.format(row.revision)))
            elif (
                choice.approved
                and found.changed(choice, row)
                and (message := wrong_edit(choice, row, edit))
            ):
                items.append(refused(choice, "approval_changed", message))
            elif not (hinders and would_start(choice, row) and completes(choice, row, who)):
                continue
            elif kind := hinders(row):
                if kind[0] != WAITS:
                    items.append(refused(choice, *kind))
        by_row: dict[str, set[bool]] = {}
        for choice, row in decided:
            by_row.setdefault(row.id, set()).add(choice.approved)
        twice = edited_twice(found)
        for choice, row in decided:
            if len(by_row[row.id]) > 1:
                items.append(refused(choice, "approval_conflict", "two decisions contradict"))
            elif choice.approved and row.id in twice:
                items.append(refused(choice, "approval_conflict", "two decisions state two inputs"))
        refuse(items)

    def record(
        self,
        tx: Transaction,
        found: Decided,
        who: Requester,
        edit: Edit | None,
        decided_by: str | None,
    ) -> None:
        """Record the decisions of this request; `write` stores the rows that no claim stores."""
        # If one decision is stated twice, one may have no input and the other a changed one.
        changes = {
            row.id: choice.input or {}
            for choice, row in found.chosen
            if choice.approved and not choice.copy and found.changed(choice, row)
        }
        for choice, row in found.chosen:
            if choice.copy or row.state != "PENDING":
                continue
            if edit and row.id in changes:
                revise(row, changes[row.id], edit(row, changes[row.id]))
            if choice.approved and not vote(tx, choice, row, who, edits=row.id in changes):
                continue
            row.decision = decision_of(choice, who, tx.now)
            if decided_by is not None:
                row.decision.who, row.decision.claimed = decided_by, True
            row.state = "APPROVED" if choice.approved else "REJECTED"
            if not choice.approved:
                row.finished, row.output = tx.now, f"Rejected: {choice.reason or 'no reason given'}"
            log(tx, row.state.lower(), row)
            found.fresh.append(row.id)

    def write(self, tx: Transaction, found: Decided) -> None:
        """Store the rows that were decided and not claimed; a claim stores its own."""
        claimed = {grant.proposal.id for grant in found.grants}
        for id_ in found.fresh:
            if id_ not in claimed:
                tx.put(found.rows[id_])

    def starts(self, found: Decided) -> list[tuple[Choice, Proposal]]:
        """The approved calls to start, each once."""
        starts: dict[str, tuple[Choice, Proposal]] = {}
        for choice, row in found.chosen:
            again = row.runs_again and not (choice.copy or row.purged)
            startable = choice.approved and (row.state == "APPROVED" or again)
            # A hindered call waits, or is a copy in the history, which does not refuse the request.
            hindered = found.hinders is not None and startable and found.hinders(row)
            if startable and not hindered and row.turn not in found.callables:
                starts.setdefault(row.id, (choice, row))
        return list(starts.values())

    def claim(self, tx: Transaction, found: Decided, who: Requester, claim: Claim) -> None:
        """Grant the calls that are to be started, except for those that rest."""
        for choice, row in found.starts:
            if row.rests > tx.now:
                found.resting[row.id] = row.rests - tx.now
                continue
            if row.state == "INDETERMINATE":
                # A re-run belongs to the new decision; its approver may differ from the first one.
                row.decision = decision_of(choice, who, tx.now)
                log(tx, "approved", row)
            self.grant(tx, found, row, claim)

    def grant(self, tx: Transaction, found: Decided, row: Proposal, claim: Claim) -> None:
        """Claim one row and mint the grant for it."""
        again = row.state == "INDETERMINATE"
        if not again and row.id in self.started:
            self._forgotten(tx, row)
            return
        if again:
            self._reopen(tx, row.turn)
        row.fence += 1
        # The output of a run with unknown outcome stays, for `unclaim`.
        row.state, row.finished = "EXECUTING", None
        row.owner = self.owner_of(row.fence, tx.now, claim.token)
        tx.put(row)
        log(tx, "claimed", row)
        granted = Grant(
            row, MINT, until=claim.until, known=self.started, token=claim.token, again=again
        )
        found.grants.append(granted)

    def _forgotten(self, tx: Transaction, row: Proposal) -> None:
        """Record that this process started a call that the store has forgotten: the store may be a
        restored backup, or a standby that took over."""
        row.state, row.finished = "INDETERMINATE", tx.now
        why = "this process began it before, and the approvals store has lost what became of it"
        row.output = unknown_outcome(why, idempotent=row.idempotent)
        tx.put(row)
        log(tx, row.state.lower(), row)

    def _reopen(self, tx: Transaction, id_: str) -> None:
        """Let the turn be continued again: its recorded replies report an outcome that is about to
        change."""
        turn = tx.turns([id_]).get(id_)
        if turn is not None and self.settle_turn(tx, turn).state == "ENDED":
            turn.state, turn.reply, turn.ended = "SUSPENDED", None, None
            tx.put_turn(turn)


def _row(choice: Choice, found: Decided, lookup: Lookup) -> Proposal | None:
    row = found.rows.get(choice.id) if choice.id else lookup.row(choice)
    return row if row is None or choice.kind in (None, row.kind) else None
