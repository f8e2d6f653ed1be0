"""The decisions of a turn's request are settled, and the continuation that the plan needs is
claimed; which outcomes of decided calls a reply reports, and their changes to the session."""

from __future__ import annotations

from collections.abc import AsyncIterator, Collection, Iterable, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import replace
from typing import Any

from sayso.context import Session
from sayso.conversation import approvals
from sayso.decisions import settling
from sayso.decisions.settling import NOTHING_DECIDED, Deciding, Prepared, Settled, released
from sayso.errors import ApprovalsPending, InvalidRequest, UnknownHost
from sayso.ledger import RAN, Proposal
from sayso.ledger.choices import Choice, Decided
from sayso.ledger.claims import Continuation
from sayso.turns.output import Output
from sayso.turns.plan import Asking, Replay, Restate, Step
from sayso.turns.request import Request, accepted
from sayso.wire.masking import holds_secret, mask
from sayso.wire.messages import Data, Message, beyond_text

_SUPERSEDED = "superseded by a new message"


async def settle(request: Request, out: Output) -> Settled:
    """Record the decisions of the request, run the calls that they approve, and wait for calls that
    others run. Returns NOTHING_DECIDED if no recorded call concerns the request."""

    async def prepare(settled: Settled, starts: Sequence[str]) -> Prepared:
        return await _prepared(request, settled, starts, out)

    known = Settled(known=reported_in(request.received.messages))
    settled = await settling.settle(deciding(request, out), known, prepare, out.unrecorded)
    if settled is NOTHING_DECIDED:
        return settled
    if not request.context.has_decision:
        settled = await _once_ended(request, settled)
    out.decided = settled.decided
    return caught_up(request, settled)


async def _once_ended(request: Request, settled: Settled) -> Settled:
    """The decisions once the calls have ended that the messages show and that the service, or
    another request, runs: the model answers a text, or an empty message, with their outcomes."""
    rows = settled.decided.rows
    running = [id_ for id_ in request.shown if id_ in rows and rows[id_].state == "EXECUTING"]
    if not running:
        return settled
    request.slot.pause()
    try:
        ended = await request.engine.ledger.outcomes(running, request.until)
    finally:
        request.slot.resume()
    return replace(settled, decided=replace(settled.decided, rows=rows | ended))


def deciding(request: Request, out: Output) -> Deciding:
    """The decisions of the request; raises UnknownHost if this host name may not decide."""
    if request.caller.foreign_page and request.choices:
        raise UnknownHost
    assert request.edits is not None
    return Deciding(
        request.engine,
        [_storable(request, choice) for choice in request.choices],
        request.who,
        request.context,
        request.edits,
        request.until,
        out.ran,
        request.shown,
        request.conversation,
        # Claim nothing yet for a new message, since it may still be refused.
        claims=request.context.has_decision or request.blank,
        slot=request.slot,
    )


def _storable(request: Request, choice: Choice) -> Choice:
    """The choice without secrets. It is refused if its input holds one, since that might be
    recorded."""
    if not request.secrets:
        return choice
    unissued = request.engine.ledger.accept_unissued and choice.approved and not choice.copy
    if unissued and holds_secret(choice.input, request.secrets):
        text = "the input holds a secret of the platform context"
        raise InvalidRequest.at(list(choice.loc), "approval_not_issued", text)
    reason, why = (mask(text, request.secrets) for text in (choice.reason, choice.why))
    return replace(choice, reason=reason, why=why)


async def _prepared(
    request: Request, settled: Settled, starts: Sequence[str], out: Output
) -> Prepared:
    """Refuse a new message that has to wait, and bring the session up to date for the calls that
    start."""
    decided = settled.decided
    if not (request.context.has_decision or request.blank):
        decided = await _past_pending(request, decided, out)
    out.decided = decided
    if decided.fresh or starts:
        await accepted(request, out)
    settled = caught_up(request, replace(settled, decided=decided))
    at_once = request.asking(decided).continues_at_once
    return Prepared(settled, message_digest(request, decided) if at_once else None)


def caught_up(request: Request, settled: Settled) -> Settled:
    """The same decisions, after the session got the changes of calls whose outcome the client has
    not received."""
    asking = request.asking(settled.decided)
    return replace(settled, known=catch_up(request.session, asking, settled.known))


def message_digest(request: Request, decided: Decided) -> str:
    """The digest of the message with its decisions; it is the same when the client sends the
    message again."""
    return approvals.request_digest(request.said[-1][1], decided.chosen)


async def _past_pending(request: Request, decided: Decided, out: Output) -> Decided:
    """Rule 3 of the contract: the ledger accepts no new message while calls are pending. A
    superseding message rejects them."""
    engine = request.engine
    pending = request.asking(decided).blocking
    if not pending:
        return decided
    if engine.approvals.on_new_message != "supersede":
        raise ApprovalsPending(pending)
    rejected = await engine.ledger.reject(pending, _SUPERSEDED, request.who)
    await accepted(request, out)
    rows = decided.rows | {row.id: row for row in rejected}
    for row in rejected:
        await request.fire(approvals.decision_event(row, request.who.principal))
    if len(rejected) < len(pending):
        # Another request has decided one of these calls since this one read them.
        others = set(pending) - {row.id for row in rejected}
        rows |= await engine.ledger.settle([*others])
    return replace(decided, rows=rows)


@asynccontextmanager
async def continuing(
    request: Request, settled: Settled, step: Step
) -> AsyncIterator[tuple[Settled, Step]]:
    """Claim the continuation that the step needs, or return a recorded reply as the next step. If
    the turn fails, the claim is given back."""
    try:
        own = () if isinstance(step, Restate | Replay) else step.own
        # The transaction that recorded the outcome of the only call may have claimed the
        # continuation already.
        if own and settled.continuing is None:
            found = await _claim(request, settled.decided, own)
            if isinstance(found, Continuation):
                settled = replace(settled, continuing=found)
            else:
                step = Replay(found)
        yield settled, step
    except BaseException:
        await released(request.engine, settled.continuing)
        raise


async def _claim(
    request: Request, decided: Decided, turns: Sequence[str]
) -> Continuation | dict[str, Any]:
    request.slot.pause()
    try:
        return await request.engine.ledger.continue_turns(
            turns,
            message_digest(request, decided),
            decided=known_to_reply(decided, turns) if request.blank else None,
            until=request.until,
        )
    finally:
        request.slot.resume()


def reported_in(messages: Sequence[Message]) -> frozenset[str]:
    """The calls whose outcome the client has received; the session that it sends has their
    changes."""
    return frozenset(
        outcome.id
        for message in beyond_text(messages)
        if message.data is not None
        for outcome in message.data.outcomes
    )


def catch_up(session: Session, asking: Asking, known: frozenset[str]) -> frozenset[str]:
    """Apply to the session the changes of calls whose outcome the client has not received, unless
    they are `known`. Returns the calls whose changes the session has now."""
    rows = {row.id: row for row in _unreported(asking) if row.session and row.id not in known}
    for row in sorted(rows.values(), key=lambda row: row.finished or 0.0):
        _apply(session, row.session or {})
    return known | rows.keys()


def _unreported(asking: Asking) -> Iterable[Proposal]:
    """The calls whose outcome the client may not know: those that its newest message decides, and
    all calls of a turn at which the history ends and that has not continued since."""
    found = asking.found
    yield from (found.rows[row.id] for choice, row in found.chosen if choice.newest)
    here = {row.turn for choice, row in found.chosen if not choice.copy} | asking.last_turns
    yield from (row for row in found.rows.values() if row.turn in here and _waits(found, row))


def _waits(found: Decided, row: Proposal) -> bool:
    """Whether the call belongs to a turn of the requester that has never been continued."""
    suspended = found.turns.get(row.turn)
    return suspended is not None and not suspended.reply


def _apply(session: Session, change: Mapping[str, Any]) -> None:
    for key, value in change.get("set", {}).items():
        # User code may have changed a value in place to one that no caller could send back.
        with suppress(ValueError):
            session.set(key, value)
    for key in change.get("delete", ()):
        session.delete(key)


def known_to_reply(found: Decided, turns: Collection[str]) -> list[str]:
    """The calls that the reply of a continuation of `turns` reports: those of these turns that have
    been carried out or rejected, those that a callable is about to carry out, and all that this
    request decides."""
    here = {row.id for choice, row in found.chosen if not choice.copy}
    here |= {grant.proposal.id for grant in found.grants}
    known: list[str] = []
    for row in found.rows.values():
        ended = row.state in RAN or row.state == "REJECTED"
        decided = ended or row.state in ("APPROVED", "EXECUTING")
        given = ended or (row.state == "APPROVED" and row.turn in found.callables)
        if (row.id in here and decided) or (row.turn in turns and given):
            known.append(row.id)
    return known


def outcomes_of(found: Decided, ran: Sequence[str]) -> Data:
    """The outcomes to report, each in the list that carried its decision; `ran` are the calls that
    this turn has carried out."""
    data = Data()
    named: set[tuple[str, bool]] = set()
    for choice, chosen in found.chosen:
        row = found.rows[chosen.id]
        if (row.id, choice.through_approvals) in named:
            continue
        named.add((row.id, choice.through_approvals))
        if _is_reported(found, choice, row, ran):
            _report(data, row, choice.through_approvals)
    # A callable may have run calls that were approved in earlier messages, which decide nothing
    # now.
    ids = {id_ for id_, _ in named}
    for row in [found.rows[id_] for id_ in ran if id_ not in ids]:
        if row.decision and row.state in RAN:
            _report(data, row, row.decision.through_approvals)
    return data


def _is_reported(found: Decided, choice: Choice, row: Proposal, ran: Collection[str]) -> bool:
    # The recorded reply has the outcome of a purged call, as long as it is kept.
    if row.purged:
        return False
    if row.state not in RAN and not (row.state == "REJECTED" and choice.through_approvals):
        return False
    decided_before = not choice.copy and _waits(found, row)
    return row.id in ran or choice.newest or decided_before


def _report(data: Data, row: Proposal, through_approvals: bool) -> None:
    if through_approvals:
        data.executed_approvals.append(approvals.executed_approval(row))
    elif row.kind == "tool_call":
        data.executed_tool_calls.append(approvals.executed_tool_call(row))
    else:
        data.executed_cmds.append(approvals.executed_command(row))
