"""The steps of a request that decides: restate, replay, or give a callable its decisions."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import partial
from typing import NamedTuple

from sayso.context import Session
from sayso.conversation import approvals
from sayso.conversation.calls import known_since
from sayso.decisions.deed import hinders
from sayso.decisions.settling import Settled, waited
from sayso.decisions.starts import NOT_STARTED, latest, words
from sayso.errors import Busy
from sayso.ledger import Proposal
from sayso.ledger.choices import Decided
from sayso.ledger.database import load_terms
from sayso.ledger.voting import standing
from sayso.turns.ending import Answer
from sayso.turns.output import OUTCOMES, Output
from sayso.turns.plan import AskFunction, Replay, Restate
from sayso.turns.request import Request
from sayso.turns.settle import caught_up, outcomes_of
from sayso.wire.messages import AgentMessage
from sayso.workers.abandoned import described
from sayso.workers.code import is_async_generator_function, is_coroutine_function
from sayso.workers.running import Place


async def restate(request: Request, settled: Settled, step: Restate, out: Output) -> Answer:
    """Send the pending calls again, and say what other calls wait for."""
    await out.outcomes(outcomes_of(settled.decided, settled.ran))
    held_up = [(row, settled.not_started.get(row.id)) for row in step.pending]
    held_up_by = [words(row, why) for row, why in held_up if why]
    await out.write("\n".join([*held_up_by, *_needed(request, step.pending)]))
    return Answer("approval_required", settled, step.pending)


def _needed(request: Request, pending: Sequence[Proposal]) -> Iterator[str]:
    """A line for each approved call that others have to approve, too, or that waits for something
    that this request has not stated."""
    if not request.context.has_decision:
        return
    engine = request.engine
    why = hinders(engine.agent, engine.gate.policy, request.context)
    stopped = engine.ledger.freezing.now
    for row in pending:
        if said := standing(row):
            yield said
        elif row.state == "APPROVED" and stopped is not None:
            yield stopped.words(row)
        if row.state == "APPROVED" and (found := why(row)):
            yield found[1]


async def replay(
    request: Request, settled: Settled, step: Replay, out: Output
) -> tuple[Request, Answer]:
    """Send the recorded reply of a continuation again, without asking the agent. The request gets
    the reply's session, unless it states a newer one."""
    recorded = step.recorded
    reply = AgentMessage.model_validate(recorded["reply"])
    # The conversation is the same as when the reply was recorded, so the client cannot have a newer
    # session.
    same = recorded.get("answers") == request.references[-1]
    if same or not request.asking(settled.decided).session_is_newer:
        request.context.session = session = Session(reply.data.session)
        request = request._replace(session=session)
    data = outcomes_of(settled.decided, settled.ran)
    stale = known_since(reply.data, settled.decided.rows)
    for name in OUTCOMES:
        reported = getattr(data, name)
        ids = {outcome.id for outcome in reported}
        kept = [outcome for outcome in getattr(reply.data, name) if outcome.id not in ids]
        for outcome in kept:
            row = settled.decided.rows.get(outcome.id or "")
            # The call may have ended since the reply was recorded; the outcome of a purged call is
            # only in the reply.
            if row is not None and row.output is not None:
                outcome.output = row.output
        reported += kept
    await out.outcomes(data)
    await out.write(reply.content)
    if stale:
        await out.write(f"\n\n{stale}" if reply.content else stale)
    pending = [
        Proposal(**{**row, "terms": load_terms(row.get("terms"))}) for row in recorded["proposals"]
    ]
    return request, Answer(recorded["stop_reason"], settled, pending, reply=reply)


class Given(NamedTuple):
    """The request and the decisions that a callable gets, and the place in which it carries out
    approved calls; None if none was approved."""

    request: Request
    settled: Settled
    place: Place | None = None


async def give(request: Request, settled: Settled, step: AskFunction, out: Output) -> Given:
    """Claim the decisions that the callable gets, and report the outcomes of calls that it does not
    carry out. Only one of the requests that decide claims them.

    Raises Busy if there is no place in which it could carry out approved calls.
    """
    rows = settled.decided.rows.values()
    place = None
    if any(row.state == "APPROVED" and row.turn in step.callables for row in rows):
        place = await _place(request)
    # An earlier agent with the same id may have proposed calls of tools. These have ended, even if
    # only as calls of an unknown tool.
    claimed = Decided(hinders=settled.decided.hinders)
    try:
        for id_ in step.callables:
            await _claim(request, id_, claimed)
        settled = await _looked_again(request, settled, claimed, out)
    except BaseException:
        if place is not None:
            place.leave()
        given_back = request.engine.ledger.give_back(claimed.grants, claimed.acknowledged)
        await asyncio.shield(request.engine.keep(given_back))
        raise
    if claimed.grants:
        # The callable reports these calls once it has carried them out, so that all outcomes are
        # sent in order.
        return Given(_shown(request, settled.decided, out), settled, place)
    if place is not None:
        place.leave()
    await out.outcomes(outcomes_of(settled.decided, settled.ran))
    return Given(_shown(request, settled.decided, out), settled)


async def _claim(request: Request, id_: str, claimed: Decided) -> None:
    """Claim the decisions of one turn. If an earlier start of one of its calls had no effect, wait
    until it may be tried again."""
    claim = partial(request.engine.ledger.claim_for_callable, id_, claimed)
    while pause := await claim():  # noqa: ASYNC110
        await asyncio.sleep(pause)


async def _looked_again(
    request: Request, settled: Settled, claimed: Decided, out: Output
) -> Settled:
    """The decisions with the claimed ones. Another request may have carried out in the meantime the
    calls for which this one waited."""
    decided = settled.decided
    decided = replace(
        decided,
        rows=decided.rows | claimed.rows,
        grants=claimed.grants,
        acknowledged=claimed.acknowledged,
    )
    settled = replace(settled, decided=decided)
    # Wait only while this request holds no claims: another request may wait for those.
    if not claimed.grants:
        settled, _ = await waited(request.engine, settled, request.until, request.slot)
    settled = caught_up(request, settled)
    out.decided = settled.decided
    return settled


def _shown(request: Request, decided: Decided, out: Output) -> Request:
    """The request that the callable sees, in which the calls that it carries out are live."""
    if not decided.rows:
        return request
    granted = {grant.proposal.id for grant in decided.grants}
    states = {row.id: row.state for row in decided.rows.values()}
    out.seen = approvals.as_seen(request.seen, granted, states)
    return request._replace(seen=out.seen)


async def _place(request: Request) -> Place:
    function = request.engine.agent.function
    is_async = is_coroutine_function(function) or is_async_generator_function(function)
    request.engine.code.abandoned.admit(described(function))
    try:
        place = request.engine.code.place(is_async=is_async)
    except RuntimeError:
        raise Busy(NOT_STARTED) from None
    if not await place.comes(latest(request.until)):
        place.leave()
        raise Busy(NOT_STARTED)
    return place
