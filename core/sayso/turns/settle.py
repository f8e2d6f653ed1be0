"""The decisions of a turn's request are settled, and the continuation that the plan needs is
claimed."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import Any

from sayso.conversation import approvals
from sayso.decisions import settling
from sayso.decisions.settling import NOTHING_DECIDED, Deciding, Prepared, Settled, released
from sayso.errors import ApprovalsPending, InvalidRequest, UnknownHost
from sayso.ledger.choices import Choice, Decided
from sayso.ledger.claims import Continuation
from sayso.turns.outcomes import catch_up, known_to_reply, reported_in
from sayso.turns.output import Output
from sayso.turns.plan import Replay, Restate, Step
from sayso.turns.request import Request, accepted
from sayso.wire.masking import holds_secret, mask

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
