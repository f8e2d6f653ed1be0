"""Plain callables as agents: `(messages, context[, session]) -> result` (design, section 8)."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, NoReturn

from sayso.context import DecidedCall, RequestContext
from sayso.conversation import approvals
from sayso.decisions.deed import carrying_out, platform_of_call
from sayso.decisions.execution import change_of, record, state_of
from sayso.decisions.starts import NOT_BEGUN
from sayso.errors import AgentError, Blocked, Busy, ModelError, Silence, TurnTimeout
from sayso.gate import Outcome
from sayso.ledger import Proposal
from sayso.ledger.beginnings import NotBegun
from sayso.ledger.choices import Grant, begin_all
from sayso.turns.ending import finish, suspend
from sayso.turns.proposals import proposals_of
from sayso.turns.replies import reply_of, send_outcomes
from sayso.turns.state import RunningTurn
from sayso.wire.masking import mask
from sayso.wire.messages import (
    AgentMessage,
    Data,
    ExecutedApproval,
    ExecutedCommand,
    ExecutedToolCall,
)
from sayso.wire.traces import cut
from sayso.workers.abandoned import Watched
from sayso.workers.code import beginning, is_coroutine_function

_ANSWERS = (AgentError, ModelError, Blocked, Busy, Silence, TurnTimeout)
"""What a callable raises that says by itself how the turn ends."""
_FAILED = "Error: the agent failed while it carried this out"
"""The outcome of calls during which a callable raised: its error is in the log, not for callers."""


async def ask_function(turn: RunningTurn, function: Callable[..., Any]) -> None:
    """Let the agent's function answer, with the decisions that it has to carry out; each is given
    once."""
    turn.context.decisions = _to_carry_out(turn) if turn.found.rows else ()
    reply: AgentMessage | str
    try:
        if turn.found.grants:
            rows = [grant.proposal for grant in turn.found.grants]
            context = carrying_out(rows, turn.context)
            reply = await _carry_out(turn, function, context)
        else:
            reply = await reply_of(turn, function, quiet=False)
    except _ANSWERS:
        raise
    except Exception as error:
        raise AgentError from error
    if isinstance(reply, str):
        # What of a reply of nothing but text has not been sent.
        if reply and turn.out.say(reply):
            await turn.out.caught_up()
        await finish(turn, "end_turn")
        return
    await _send(turn, reply)
    proposals = proposals_of(reply, turn)
    if proposals:
        await suspend(turn, proposals, [], "", reply=reply)
    else:
        await finish(turn, turn.stop, reply=reply)


def _to_carry_out(turn: RunningTurn) -> tuple[DecidedCall, ...]:
    granted = {g.proposal.id for g in turn.found.grants}
    rows = turn.found.rows
    given = [rows[id_] for id_ in granted] + turn.found.told
    states = {row.id: row.state for row in rows.values()}
    turn.seen = approvals.as_seen(turn.seen, granted, states)
    given.sort(key=lambda row: row.order)
    return tuple(_decided(row, turn.context) for row in given)


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


async def _carry_out(
    turn: RunningTurn, function: Callable[..., Any], context: RequestContext
) -> AgentMessage:
    """Call the agent's function, and record the calls that it carried out."""
    grants = turn.found.grants
    for grant in grants:
        grant.spend()
    engine, is_async = turn.engine, is_coroutine_function(function)
    watched = Watched(engine.gate.abandoned, engine.agent.name, is_async, is_tool=False)
    work = asyncio.ensure_future(_carried(turn, function, context, watched))
    if not (await asyncio.wait({work}, timeout=turn.left()))[0]:
        await _give_up(turn, watched, work, grants)
    return work.result()


async def _give_up(
    turn: RunningTurn, watched: Watched, work: asyncio.Future[Any], grants: Sequence[Grant]
) -> NoReturn:
    """End the turn: what is carried out goes on and is recorded when it ends, and nobody waits for
    that."""
    _abandoned.add(work)
    work.add_done_callback(_forget)
    if grants[0].withdraw():
        # The function says first that this one begins, and so does none of them.
        work.cancel()
        await turn.engine.ledger.give_back(grants, turn.found.told, refused=True)
        raise Busy(NOT_BEGUN)
    watched.abandon()
    for grant in grants:
        await turn.engine.ledger.abandon(grant)
    raise TurnTimeout(turn.engine.limits.turn_time)


_abandoned: set[asyncio.Future[Any]] = set()


def _forget(work: asyncio.Future[Any]) -> None:
    _abandoned.discard(work)
    if not work.cancelled():
        # What it raised is recorded with its calls.
        work.exception()


async def _carried(
    turn: RunningTurn, function: Callable[..., Any], context: RequestContext, watched: Watched
) -> AgentMessage:
    grants = turn.found.grants
    before = state_of(turn.session)
    start = time.perf_counter()
    try:
        begun = beginning(function, partial(_begin, grants, watched))
        try:
            reply = await reply_of(turn, begun, quiet=True, place=turn.place, context=context)
        finally:
            watched.end()
    except NotBegun:
        await turn.engine.ledger.give_back(grants, turn.found.told, refused=True)
        raise Busy(NOT_BEGUN) from None
    except Exception:
        took = time.perf_counter() - start
        change = _change(turn, before)
        for grant in grants:
            await _ended(turn, grant, Outcome("FAILED", _FAILED, took), change)
        raise
    if isinstance(reply, str):
        reply = AgentMessage(content=reply)
    took = time.perf_counter() - start
    change = _change(turn, before, reply.data.session)
    carried = [grant.proposal for grant in grants]
    limits = turn.engine.limits
    for grant in grants:
        row = grant.proposal
        output = _stated(reply.data, row, carried) or reply.content
        failed = output.startswith("Error:")
        most = limits.command_output if row.kind == "command" else limits.tool_output
        output = cut(mask(output, turn.secrets), most)
        await _ended(turn, grant, Outcome("FAILED" if failed else "DONE", output, took), change)
    return reply


def _begin(grants: Sequence[Grant], watched: Watched) -> None:
    begin_all(grants)
    watched.begin()


def _change(
    turn: RunningTurn, before: dict[str, Any] | None, stated: dict[str, Any] | None = None
) -> dict[str, Any] | None:
    """What carrying out did to the session, for requests that get the outcome without this
    reply."""
    try:
        turn.set_session(stated)
    except Exception:
        # No caller could send it back: the reply fails for it, once its outcomes are recorded.
        return None
    return change_of(before, turn.session, turn.secrets)


async def _ended(
    turn: RunningTurn, grant: Grant, outcome: Outcome, change: dict[str, Any] | None
) -> None:
    await record(turn.engine, grant, outcome, change, unrecorded=turn.unrecorded)
    row = turn.found.rows[grant.proposal.id]
    row.state, row.output, row.duration = outcome.state, outcome.output, outcome.duration
    await turn.ran(row, outcome)


async def _send(turn: RunningTurn, reply: AgentMessage) -> None:
    if turn.found.grants or reply.data.outcomes or reply.data.executed_cmds:
        await send_outcomes(turn, reply)
    turn.set_session(reply.data.session)
    await turn.say(reply.content[len("".join(turn.out.text)) :])


def _stated(data: Data, row: Proposal, carried: Sequence[Proposal]) -> str | None:
    """What the reply says of `row`, one of the calls that were carried out."""
    told: list[ExecutedToolCall | ExecutedApproval | ExecutedCommand] = [*data.outcomes]
    if row.kind == "command":
        told += data.executed_cmds
    for done in told:
        if done.id == row.id:
            return done.output
    if outputs := [done.output for done in told if done.id == row.call_id]:
        return _in_order(outputs, row, [r for r in carried if r.call_id == row.call_id])
    if row.kind != "command":
        return None
    text = row.input.get("command")
    outputs = [ran.output for ran in data.executed_cmds if ran.command == text]
    return _in_order(outputs, row, [r for r in carried if r.input.get("command") == text])


def _in_order(outputs: Sequence[str], row: Proposal, equal: Sequence[Proposal]) -> str | None:
    """The output of `row` among `equal` calls, which the callable named alike, by an id of its own
    or by their text: outputs are told in the order of the proposals."""
    order = [r.id for r in sorted(equal, key=lambda r: r.order)]
    return outputs[: order.index(row.id) + 1][-1] if outputs else None
