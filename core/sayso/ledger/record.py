"""The record of proposals, decisions and outcomes: each coroutine is one transaction, or a wait.

The rules are in `rules`, written once over a `Store` (design, section 6).
"""

from __future__ import annotations

import secrets
from collections.abc import Collection, Iterable, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import partial
from typing import Any, Literal

from sayso.errors import InvalidRequest, LedgerUnavailable, StillRunning
from sayso.ledger import (
    OPEN,
    Decision,
    Pending,
    Proposal,
    Reading,
    State,
    Store,
    SuspendedTurn,
    Transaction,
)
from sayso.ledger.choices import (
    WAITS,
    Choice,
    Conversation,
    Decided,
    Edit,
    Hinders,
    Requester,
    name_of,
)
from sayso.ledger.claiming import Claiming, suspend_again
from sayso.ledger.claims import Beginnings, Continuation, Grant, Holdings, Lease, LeaseClock
from sayso.ledger.grants import Granting
from sayso.ledger.log import log, log_unstarted
from sayso.ledger.owners import boot_id
from sayso.ledger.purging import purged
from sayso.ledger.rules import Freezing, Rules
from sayso.ledger.voting import barred
from sayso.ledger.writes import Writes

_REPLIES_KEPT = 8


class Ledger:
    """The record of proposals, decisions and outcomes over one store."""

    def __init__(
        self,
        store: Store,
        *,
        ttl: float = 86_400.0,
        lease: float = 15.0,
        deciders: Literal["principal", "any"] = "principal",
        accept_unissued: bool = False,
        for_callable: bool = False,
        agent: str | None = None,
    ) -> None:
        self.store = store
        self.agent = agent
        self.ttl = ttl
        self.accept_unissued = accept_unissued
        self.owner = secrets.token_hex(16)
        held = Holdings()
        self._rules = Rules(
            self.owner,
            boot_id(),
            lease,
            store.dead,
            held,
            LeaseClock(lease),
            ttl,
            deciders,
            accept_unissued,
            for_callable,
            Beginnings(ttl),
            agent=agent,
        )
        self._lease = Lease(store, self.owner, lease, held.ids)
        self._writes = Writes(store)
        self._claiming = Claiming(store, self._rules, self._lease, self._writes, held)
        self.freezing = Freezing()
        self.grants = Granting(store, self._rules, self.freezing)

    def visible(self, row: Proposal | Pending, who: Requester) -> bool:
        """Whether the proposal exists for `who`."""
        return self._rules.visible(row, who)

    def barred(self, row: Proposal, who: Requester) -> str:
        """The reason why `who` may not approve the call; empty if `who` may."""
        return barred(row, who)

    async def open(self) -> None:
        """Open the store; raises ConfigError with its name and the way out."""
        await self.store.open()
        await self.store.run(Reading(self.watch, only=True))

    def watch(self, tx: Transaction) -> None:
        """Compare the store's clock with that of this process, to know whether somebody set it."""
        self._rules.clock.watch(tx.now)

    async def wake(self) -> None:
        """Let the other processes look at the log now, if the store can wake them."""
        wake = getattr(self.store, "wake", None)
        if wake is not None:
            with suppress(LedgerUnavailable):
                await wake()

    async def check(self) -> None:
        """Raise LedgerUnavailable if the store would not accept a proposal now."""
        await self.store.check()

    async def close(self) -> None:
        """Stop renewing leases and close the store."""
        self._writes.stop()
        self._lease.stop()
        await self.store.close()

    async def propose(
        self,
        turn: SuspendedTurn | None,
        proposals: Sequence[Proposal],
        continuing: Continuation | None = None,
        reply: dict[str, Any] | None = None,
    ) -> None:
        """Record proposals with their suspended turn, and the reply that ends a continuation.

        One transaction: a crash leaves either all of it or nothing. It does not wait for the disk,
        since a power loss that undoes it makes nothing run: an approval of an unknown call is
        refused, and a continuation without a reply is claimed again. Raises StillRunning if another
        process took over the continuation meanwhile.
        """
        continued = [id_ for id_, _ in continuing.turns] if continuing is not None else []

        def work(tx: Transaction) -> None:
            if turn is not None:
                tx.put_turn(replace(turn, created=tx.now))
            for proposal in proposals:
                within = proposal.terms and proposal.terms.decide_within
                row = replace(proposal, created=tx.now, expires=tx.now + (within or self.ttl))
                row.agent = self.agent or row.agent
                tx.put(row)
                log(tx, "proposed", row)
            if continuing is not None:
                rows = tx.turns(continued)
                for id_, fence in continuing.turns:
                    row_ = rows.get(id_)
                    if row_ is None or row_.fence != fence:
                        raise StillRunning
                    kept = list((row_.reply or {}).items())[-(_REPLIES_KEPT - 1) :]
                    row_.reply = {**dict(kept), continuing.request: reply or {}}
                    row_.state, row_.owner, row_.ended = "ENDED", None, tx.now
                    tx.put_turn(row_)

        await self.store.run(Reading(work, turns=continued, flushed=False))
        if continuing is not None:
            self._claiming.ended(continuing)
        self._writes.notify(continued)
        self._writes.summarise(len(proposals))

    async def decide(
        self,
        choices: Sequence[Choice],
        shown: Iterable[str],
        who: Requester,
        conversation: Conversation,
        *,
        edit: Edit | None = None,
        hinders: Hinders | None = None,
        dry: bool = False,
        claim: bool = True,
        alone: bool = False,
        decided_by: str | None = None,
    ) -> Decided:
        """Match the choices to proposals, record the decisions, and claim the calls that start now.

        - `shown`: further ids of the history.
        - `dry`: only look; no decision, no grant.
        - `claim` false: record decisions, grant nothing.
        - `alone`: claim only if a single call is to be started.
        - `decided_by`: the person, if `who` only stands for the proposal's principal (command
          line).
        - `hinders`: may return a reason for not starting a call. It is then not claimed: the
          request that decides it is refused, or the call waits. The log has the reason, and the row
          stays unchanged, for a service that may start it.

        Raises InvalidRequest, with one item for each refused choice; then nothing is recorded.
        """
        ids = list(dict.fromkeys([*shown, *(c.id for c in choices if c.id)]))
        claim = claim and not dry and any(c.approved for c in choices)
        # Most requests claim nothing, and need no token.
        sent = self._claiming.sent() if claim else None

        late: list[str] = []
        unstarted: dict[str, str] = {}

        def may_start(row: Proposal) -> tuple[str, str] | None:
            if (stopped := self.freezing.now) is not None:
                return WAITS, stopped.words(row)
            if (why := hinders(row) if hinders else None) and why[0] != WAITS:
                unstarted[row.id] = why[0]
            return why

        def work(tx: Transaction) -> Decided:
            self.freezing.look(tx)
            found = self._rules.rows(tx, ids, who)
            self._rules.choose(tx, choices, found, who, conversation, dry=dry)
            late[:] = [row.id for _, row in found.chosen if row.state == "EXPIRED"]
            self._rules.check(
                found, who, edit, None if dry else may_start, operator=decided_by is not None
            )
            if not dry:
                self._rules.record(tx, found, who, edit, decided_by)
                found.hinders = may_start
                found.starts = self._rules.starts(found)
                if sent is not None and not (alone and len(found.starts) > 1):
                    self._rules.claim(tx, found, who, sent)
                self._rules.write(tx, found)
            return found

        reading = Reading(work, proposals=ids)
        try:
            if sent is not None:
                decided = await self._claiming.run(reading, sent.token)
            else:
                decided = await self.store.run(reading)
        except InvalidRequest:
            # Persist the expiry that we reported, so that a clock adjustment cannot revive the
            # proposal. The refusal rolled back its record.
            if late:
                await self.settle(late)
            if unstarted:
                await self.store.run(partial(log_unstarted, unstarted=unstarted))
            raise
        if decided.fresh:
            self._writes.notify(decided.fresh)
        return decided

    async def claim(self, choice: Choice, found: Decided, id_: str, who: Requester) -> Grant | None:
        """The grant for an approved call that now has its place to run; None if it is not to be
        started any more. `found` has its row as it was then."""
        sent = self._claiming.sent()

        def work(tx: Transaction) -> Decided:
            self.freezing.look(tx)
            rows = {row.id: self._rules.settle(tx, row) for row in tx.proposals([id_]).values()}
            now = Decided(rows=rows, chosen=[(choice, row) for row in rows.values()])
            now.hinders = found.hinders
            now.starts = self._rules.starts(now)
            self._rules.claim(tx, now, who, sent)
            return now

        now = await self._claiming.run(Reading(work, proposals=[id_]), sent.token)
        found.rows |= now.rows
        found.resting |= now.resting
        return now.grants[0] if now.grants else None

    async def give_back(
        self,
        grants: Sequence[Grant],
        acknowledged: Sequence[Proposal] = (),
        *,
        refused: bool = False,
    ) -> None:
        """Give back those `grants` whose calls were not started, and the rejected calls
        `acknowledged` if the callable has not received them. With `refused` they were to start, and
        rest now."""
        unstarted = [grant for grant in grants if grant.withdraw()]
        ids = [grant.proposal.id for grant in unstarted] + [row.id for row in acknowledged]

        def work(tx: Transaction) -> None:
            rows = tx.proposals(ids)
            for grant in unstarted:
                row = rows.get(grant.proposal.id)
                if row is not None and row.fence == grant.fence:
                    self._rules.hand_back(tx, row, again=grant.again, refused=refused)
            for row in acknowledged:
                if row.id in rows and row.owner is not None:
                    self._rules.unacknowledge(tx, rows[row.id], row.owner.claim)

        def given_back() -> None:
            for grant in unstarted:
                self._claiming.ended(grant)

        if ids:
            await self._writes.now_or_later(work, ids, given_back)

    async def abandon(self, grant: Grant) -> None:
        """Stop renewing the lease of a running call that nobody waits for: unless it ends before,
        its outcome is unknown when the lease is over."""

        def work(tx: Transaction) -> None:
            row = tx.proposals([grant.proposal.id]).get(grant.proposal.id)
            if row is not None and row.fence == grant.fence:
                self._rules.abandon(tx, row)

        await self._writes.now_or_later(work, [grant.proposal.id])

    async def claim_for_callable(self, turn: str, found: Decided) -> float:
        """Claim all decided calls of a callable's turn at once: approved ones to carry out, and
        rejected ones to acknowledge; each once.

        Returns the seconds for which one of them rests; then nothing was claimed.
        """
        sent = self._claiming.sent()

        def work(tx: Transaction) -> Decided:
            self.freezing.look(tx)
            rows = [self._rules.settle(tx, row) for row in tx.find(turn=turn)]
            claimed = Decided(rows={row.id: row for row in rows})
            late = {row.id: row.rests - tx.now for row in rows if row.state == "APPROVED"}
            claimed.resting = {id_: seconds for id_, seconds in late.items() if seconds > 0}
            waits = claimed.resting or found.hindered(rows)
            for row in () if waits else rows:
                if row.state == "APPROVED":
                    self._rules.grant(tx, claimed, row, sent)
                elif row.state == "REJECTED" and row.owner is None:
                    self._rules.acknowledge(tx, claimed, row, sent.token)
            return claimed

        claimed = await self._claiming.run(work, sent.token, [turn])
        found.rows |= claimed.rows
        found.grants += claimed.grants
        found.acknowledged += claimed.acknowledged
        return max(claimed.resting.values(), default=0.0)

    async def finish(
        self,
        grant: Grant,
        state: State,
        output: str,
        *,
        duration: float | None = None,
        session: dict[str, Any] | None = None,
    ) -> bool:
        """Record the outcome of a claimed call; false if a later claim voided ours.

        If an INDETERMINATE call's real outcome arrives later, it replaces the unknown one.
        """

        def work(tx: Transaction) -> bool:
            return self._rules.finish(tx, grant, state, output, duration, session)

        id_ = grant.proposal.id
        written = await self._writes.notifying(
            [id_], self.store.run(Reading(work, proposals=[id_]))
        )
        self._claiming.ended(grant)
        return written

    async def finish_last(
        self,
        grant: Grant,
        state: State,
        output: str,
        request: str,
        *,
        duration: float | None = None,
        session: dict[str, Any] | None = None,
    ) -> tuple[bool, Continuation | None]:
        """`finish`, then `continue_turns` for the turn of the call if that was its only call.

        One transaction instead of two. Returns no continuation if another request has continued the
        turn or is doing so; then `continue_turns` has to be called.
        """
        token = self._claiming.sent().token

        def work(tx: Transaction) -> tuple[bool, Continuation | None]:
            if not self._rules.finish(tx, grant, state, output, duration, session):
                return False, None
            return True, self._rules.go_on(tx, grant, request, token)

        id_ = grant.proposal.id
        claiming = self._claiming.run(Reading(work, proposals=[id_]), token, [grant.proposal.turn])
        written = await self._writes.notifying([id_], claiming)
        self._claiming.ended(grant)
        return written

    async def reject(
        self, ids: Sequence[str], reason: str, who: Requester, *, approved: bool = False
    ) -> list[Proposal]:
        """Reject the pending ones of `ids`, with `approved` also those that were approved and not
        claimed yet; returns the rejected rows."""
        open_ = OPEN if approved else {"PENDING"}

        def work(tx: Transaction) -> list[Proposal]:
            found = [self._rules.settle(tx, row) for row in tx.proposals(ids).values()]
            rows = [r for r in found if r.state in open_ and self._rules.may_withdraw(r, who)]
            for row in rows:
                row.decision = Decision(False, tx.now, *name_of(who), reason=reason)
                row.state, row.finished, row.output = "REJECTED", tx.now, f"Rejected: {reason}"
                tx.put(row)
                log(tx, "rejected", row)
            return rows

        rejected = await self.store.run(work)
        self._writes.notify([row.id for row in rejected])
        return rejected

    async def decided_elsewhere(self, id_: str, until: float, pause: float) -> None:
        """Return when the proposal may have been decided, after `pause` seconds at the latest.

        Raises StillRunning after `until`.
        """
        await self._writes.changed(id_, until, pause)

    async def continue_turns(
        self, ids: Sequence[str], request: str, *, decided: Collection[str] | None, until: float
    ) -> Continuation | dict[str, Any]:
        """Claim the continuation of suspended turns for the message whose digest is `request`.

        Returns the recorded reply instead if this message already continued one of them, or if the
        last replies know all calls in `decided`. Returns None for a message with words of its own,
        which need an answer. Waits while another request continues a turn; raises StillRunning when
        `until` (monotonic seconds) passes first.
        """
        token = self._claiming.sent().token

        def work(tx: Transaction) -> Continuation | dict[str, Any] | str:
            turns = [self._rules.settle_turn(tx, t) for t in tx.turns(ids).values()]
            for turn in turns:
                if turn.reply and request in turn.reply:
                    return dict(turn.reply[request])
            for turn in turns:
                if turn.state == "RESUMING":
                    return turn.id
            replies = [list(turn.reply.values())[-1] for turn in turns if turn.reply]
            if decided is not None and replies and len(replies) == len(turns):
                if {id_ for reply in replies for id_ in reply.get("known", ())}.issuperset(decided):
                    return dict(replies[-1])
            return self._rules.claim_turns(tx, turns, request, token)

        reading = Reading(work, turns=ids)
        while isinstance(outcome := await self._claiming.run(reading, token, ids), str):
            await self._writes.changed(outcome, until)
        return outcome

    async def release(self, continuation: Continuation) -> None:
        """Give back a continuation that failed or was cancelled, so that it can be claimed again.

        While the store is unavailable this is retried in the background.
        """
        ids = [id_ for id_, _ in continuation.turns]

        def work(tx: Transaction) -> None:
            turns = tx.turns(ids)
            for id_, fence in continuation.turns:
                if id_ in turns and turns[id_].fence == fence:
                    suspend_again(tx, turns[id_])

        ended = partial(self._claiming.ended, continuation)
        await self._writes.now_or_later(work, ids, ended)

    def check_recorded(self, id_: str) -> None:
        """Raise LedgerUnavailable if the store has been refusing this row's outcome for long, so
        that waiting would be pointless."""
        self._writes.check(id_)

    async def outcomes(self, ids: Sequence[str], until: float) -> dict[str, Proposal]:
        """The rows once none of them executes any more; raises StillRunning after `until`."""
        while True:
            rows = await self.settle(ids)
            running = next((r.id for r in rows.values() if r.state == "EXECUTING"), None)
            if running is None:
                return rows
            await self._writes.changed(running, until)

    async def purge(
        self, retention: float, log_retention: float | None = None
    ) -> tuple[int, int, int]:
        """Remove contents older than `retention` seconds, turns that ended `retention` or `ttl`
        seconds ago, whichever is shorter, and rows of the record and its log older than
        `log_retention`, if that is given.

        Returns the numbers of contents, turns, and rows of the record and the log.
        """

        return await purged(self.store, retention, self.ttl, log_retention)

    async def settle(self, ids: Sequence[str]) -> dict[str, Proposal]:
        """The rows, updated for expiry and for owners that have died."""

        def work(tx: Transaction) -> dict[str, Proposal]:
            return {id_: self._rules.settle(tx, r) for id_, r in tx.proposals(ids).items()}

        return await self.store.run(Reading(work, proposals=ids, only=True))
