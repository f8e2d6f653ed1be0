"""Plain callables as agents: `(messages, context[, session]) -> result` (design, section 8)."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any, NoReturn

from sayso.context import DecidedCall, RequestContext
from sayso.conversation import approvals
from sayso.decisions.deed import carrying_out, platform_of_call
from sayso.decisions.execution import change_of, record, state_of
from sayso.decisions.settling import Settled
from sayso.decisions.starts import NOT_STARTED
from sayso.errors import AgentError, Blocked, Busy, Exhausted, ModelError, Silence, TurnTimeout
from sayso.gate import Outcome
from sayso.ledger import Proposal, State
from sayso.ledger.choices import Decided
from sayso.ledger.claims import CallNotStarted, Grant, begin_all
from sayso.turns.continuation import Given
from sayso.turns.ending import Answer, suspended
from sayso.turns.output import Output
from sayso.turns.proposals import proposals_of
from sayso.turns.replies import Said, reply_of, send_outcomes
from sayso.turns.request import Request
from sayso.wire.masking import cut, mask
from sayso.wire.messages import (
    AgentMessage,
    Data,
    ExecutedApproval,
    ExecutedCommand,
    ExecutedToolCall,
)
from sayso.workers.abandoned import Watched, described
from sayso.workers.code import is_coroutine_function

_ANSWERS = (AgentError, ModelError, Blocked, Busy, Exhausted, Silence, TurnTimeout)
"""Exceptions of a callable that already say how the turn ends."""
_FAILED = "Error: the agent failed while it carried this out"
"""The outcome of calls during which a callable raised: its error is in the log, since callers must
not read it."""


async def ask_function(given: Given, out: Output) -> Answer:
    """Let the agent's function answer. It gets the decisions that it has to carry out, each one
    once."""
    request, settled = given.request, given.settled
    if settled.decided.rows:
        request.context.decisions = _to_carry_out(settled.decided, request.context)
    try:
        if settled.decided.grants:
            said, settled = await _carry_out(given, out)
        else:
            said = await reply_of(request, out)
    except _ANSWERS:
        raise
    except Exception as error:
        raise AgentError from error
    if isinstance(said.reply, str):
        # Send the part of a text-only reply that was not streamed yet.
        if said.reply and out.say(said.reply):
            await out.caught_up()
        return Answer("end_turn", settled)
    await _send(request, settled.decided, said.reply, out)
    proposals = proposals_of(said.reply, request, settled.decided.rows)
    if proposals:
        return await suspended(request, settled, proposals, out, reply=said.reply)
    return Answer(said.stop, settled, reply=said.reply)


def _to_carry_out(decided: Decided, context: RequestContext) -> tuple[DecidedCall, ...]:
    granted = [decided.rows[grant.proposal.id] for grant in decided.grants]
    given = sorted([*granted, *decided.acknowledged], key=lambda row: row.order)
    return tuple(_decided(row, context) for row in given)


def _decided(row: Proposal, context: RequestContext) -> DecidedCall:
    reason = row.decision.reason if row.decision else None
    return DecidedCall(
        row.id,
        row.call_id,
        row.kind,
        row.name,
        row.runs,
        approved=row.state != "REJECTED",
        reason=reason,
        fence=row.fence,
        platform=platform_of_call(row, context),
    )


async def _carry_out(given: Given, out: Output) -> tuple[Said, Settled]:
    """Call the agent's function, and record the calls that it carried out."""
    engine, grants = given.request.engine, given.settled.decided.grants
    for grant in grants:
        grant.spend()
    is_async = is_coroutine_function(engine.agent.function)
    watched = Watched(engine.code.abandoned, described(engine.agent.function), is_async)
    work = asyncio.ensure_future(_carried(given, watched, out))
    if not (await asyncio.wait({work}, timeout=given.request.left))[0]:
        await _give_up(given, watched, work)
    return work.result()


async def _give_up(given: Given, watched: Watched, work: asyncio.Future[Any]) -> NoReturn:
    """End the turn. Calls that the callable carries out continue and are recorded when they end,
    without a request that waits for them."""
    engine, decided = given.request.engine, given.settled.decided
    _abandoned.add(work)
    work.add_done_callback(_forget)
    if decided.grants[0].withdraw():
        # The function has to say that it begins the first call; after the cancellation it begins
        # none of them.
        work.cancel()
        await engine.ledger.give_back(decided.grants, decided.acknowledged, refused=True)
        raise Busy(NOT_STARTED)
    watched.abandon()
    for grant in decided.grants:
        await engine.ledger.abandon(grant)
    raise TurnTimeout(engine.limits.turn_time)


_abandoned: set[asyncio.Future[Any]] = set()


def _forget(work: asyncio.Future[Any]) -> None:
    _abandoned.discard(work)
    if not work.cancelled():
        # Read its error, which asyncio would log otherwise; it is recorded with the function's
        # calls.
        work.exception()


async def _carried(given: Given, watched: Watched, out: Output) -> tuple[Said, Settled]:
    request, decided = given.request, given.settled.decided
    grants = decided.grants
    context = carrying_out([grant.proposal for grant in grants], request.context)
    before = state_of(request.session)
    start = time.perf_counter()
    try:
        begin = partial(_begin, grants, watched)
        try:
            said = await reply_of(request, out, begin=begin, place=given.place, context=context)
        finally:
            watched.end()
    except CallNotStarted:
        await request.engine.ledger.give_back(grants, decided.acknowledged, refused=True)
        raise Busy(NOT_STARTED) from None
    except Exception:
        outcome = Outcome("FAILED", _FAILED, time.perf_counter() - start)
        change = _change(request, before)
        await _ended(request, dict.fromkeys(grants, outcome), change, out)
        raise
    reply = AgentMessage(content=said.reply) if isinstance(said.reply, str) else said.reply
    took = time.perf_counter() - start
    change = _change(request, before, reply.data.session)
    rows = await _ended(request, _outcomes(request, grants, reply, took), change, out)
    decided = replace(decided, rows=decided.rows | rows)
    return Said(reply, said.stop), replace(given.settled, decided=decided)


def _begin(grants: Sequence[Grant], watched: Watched) -> None:
    begin_all(grants)
    watched.begin()


def _outcomes(
    request: Request, grants: Sequence[Grant], reply: AgentMessage, took: float
) -> dict[Grant, Outcome]:
    """The outcomes of the calls that the callable carried out, according to its reply."""
    carried, limits = [grant.proposal for grant in grants], request.engine.limits
    outcomes: dict[Grant, Outcome] = {}
    for grant in grants:
        row = grant.proposal
        output = _stated(reply.data, row, carried) or reply.content
        state: State = "FAILED" if output.startswith("Error:") else "DONE"
        most = limits.command_output if row.kind == "command" else limits.tool_output
        outcomes[grant] = Outcome(state, cut(mask(output, request.secrets), most), took)
    return outcomes


def _change(
    request: Request, before: dict[str, Any] | None, stated: dict[str, Any] | None = None
) -> dict[str, Any] | None:
    """The change that the calls made to the session, for requests that get the outcome without this
    reply."""
    try:
        request.set_session(stated)
    except Exception:
        # No caller could send this session back, so the reply fails once its outcomes are recorded.
        return None
    return change_of(before, request.session, request.secrets)


async def _ended(
    request: Request,
    outcomes: Mapping[Grant, Outcome],
    change: dict[str, Any] | None,
    out: Output,
) -> dict[str, Proposal]:
    """The rows of the calls that have ended, after their outcomes were recorded."""
    rows: dict[str, Proposal] = {}
    for grant, outcome in outcomes.items():
        await record(request.engine, grant, outcome, change, unrecorded=out.unrecorded)
        row = rows[grant.proposal.id] = replace(
            grant.proposal, state=outcome.state, output=outcome.output, duration=outcome.duration
        )
        out.ran(row, outcome)
        if request.engine.events_on:
            await request.fire(outcome.event(approvals.approval(row, execute=True)))
    return rows


async def _send(request: Request, decided: Decided, reply: AgentMessage, out: Output) -> None:
    await send_outcomes(decided, reply, out)
    request.set_session(reply.data.session)
    await out.write(reply.content[len("".join(out.text)) :])


def _stated(data: Data, row: Proposal, carried: Sequence[Proposal]) -> str | None:
    """The output that the reply states for `row`, one of the calls that were carried out."""
    stated: list[ExecutedToolCall | ExecutedApproval | ExecutedCommand] = [*data.outcomes]
    if row.kind == "command":
        stated += data.executed_cmds
    for done in stated:
        if done.id == row.id:
            return done.output
    if outputs := [done.output for done in stated if done.id == row.call_id]:
        return _in_order(outputs, row, [r for r in carried if r.call_id == row.call_id])
    if row.kind != "command":
        return None
    text = row.input.get("command")
    outputs = [ran.output for ran in data.executed_cmds if ran.command == text]
    return _in_order(outputs, row, [r for r in carried if r.input.get("command") == text])


def _in_order(outputs: Sequence[str], row: Proposal, equal: Sequence[Proposal]) -> str | None:
    """The output of `row` among `equal` calls, which the callable gave the same name. An id or the
    text identifies it; otherwise the outputs are in the order of the proposals."""
    order = [r.id for r in sorted(equal, key=lambda r: r.order)]
    return outputs[: order.index(row.id) + 1][-1] if outputs else None
