"""Continuing the turns that the decisions of a request belong to (design, section 6)."""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Iterator, Sequence
from functools import partial
from typing import Any

from sayso.conversation.mentions import Mentions
from sayso.conversation.wording import known_since
from sayso.decisions.deed import hinders
from sayso.decisions.starts import NOT_BEGUN, latest, words
from sayso.errors import Busy
from sayso.ledger import Proposal
from sayso.turns.decisions import message_digest, wait_for_others
from sayso.turns.ending import finish
from sayso.turns.outcomes import catch_up, collect_outcomes, decided_calls
from sayso.turns.output import OUTCOMES
from sayso.turns.plan import Asking, GoOn, Restate, decided_at, plan
from sayso.turns.state import RunningTurn
from sayso.wire.messages import AgentMessage, Data
from sayso.wire.session import Session
from sayso.workers.code import is_async_generator_function, is_coroutine_function


def next_step(turn: RunningTurn) -> Restate | GoOn:
    """What the turn does, now that its decisions are recorded; raises InvalidRequest."""
    return plan(
        Asking(
            turn.request.messages,
            turn.shown,
            turn.found,
            decides=turn.context.has_decision,
            blank=turn.blank,
            empty=turn.empty,
            to_callable=turn.engine.agent.function is not None,
        )
    )


async def resume(turn: RunningTurn, step: Restate | GoOn, known: set[str]) -> bool:
    """Take the step; true if the turn has ended without asking the agent."""
    await turn.accepted()
    if isinstance(step, Restate):
        await turn.out.outcomes(turn.data)
        held_up = [(row, turn.not_begun.get(row.id)) for row in step.pending]
        held_up_by = [words(row, why) for row, why in held_up if why]
        await turn.say("\n".join([*held_up_by, *_needed(turn, step.pending)]))
        await finish(turn, "approval_required", pending=step.pending)
        return True
    recorded = await _continue(turn, step.own) if step.own else None
    if recorded is not None:
        await _replay(turn, recorded)
        return True
    if turn.engine.agent.function is not None:
        # The calls that another agent in this one's place proposed have ended, if only as calls of
        # an unknown tool.
        ran = {g.proposal.id for g in turn.found.grants}
        turn.found.grants = []
        await _claim_for_callable(turn, step.callables, known, ran)
        if turn.place is not None and not turn.found.grants:
            turn.place.leave()
    # A callable that carries calls out reports them when it has, and all outcomes leave in order.
    if not (turn.engine.agent.function and turn.found.grants):
        await turn.out.outcomes(turn.data)
    return False


def _needed(turn: RunningTurn, pending: Sequence[Proposal]) -> Iterator[str]:
    """What the approved calls wait for that this request has not stated."""
    if not turn.context.has_decision:
        return
    why = hinders(turn.engine.agent, turn.context)
    for row in pending:
        if row.state == "APPROVED" and (found := why(row)):
            yield found[1]


async def _look_again(turn: RunningTurn, known: set[str], ran: set[str]) -> None:
    """Read again what a callable is told: another request may have carried out in the meantime what
    this one waited for."""
    # Who waits for that holds nothing that others wait for.
    if not turn.found.grants:
        await wait_for_others(turn)
    catch_up(turn, known)
    turn.data = Data()
    collect_outcomes(turn, ran)


async def _continue(turn: RunningTurn, turns: Sequence[str]) -> dict[str, Any] | None:
    """Claim the continuation of these turns; gives the recorded reply if the model need not be
    called."""
    if turn.continuing is not None:
        # Claimed already, with the outcome of its only call.
        return None
    turn.slot.pause()
    try:
        claimed = await turn.engine.ledger.continue_turns(
            turns,
            message_digest(turn),
            decided=decided_calls(turn, turns) if turn.blank else None,
            until=turn.until,
        )
    finally:
        turn.slot.resume()
    if isinstance(claimed, dict):
        return claimed
    turn.continuing = claimed
    return None


async def _claim_for_callable(
    turn: RunningTurn, turns: Collection[str], known: set[str], ran: set[str]
) -> None:
    """Claim the decisions that the callable is given, whichever of the deciders asks, and find what
    else it is told. Raises Busy where there is no place for it to carry out what was approved."""
    rows = turn.found.rows.values()
    if any(row.state == "APPROVED" and row.turn in turns for row in rows):
        await _take_place(turn)
    try:
        for id_ in turns:
            await _claimed(turn, id_)
        await _look_again(turn, known, ran)
    except BaseException:
        if turn.place is not None:
            turn.place.leave()
        given_back = turn.engine.ledger.give_back(turn.found.grants, turn.found.told)
        await asyncio.shield(turn.engine.keep(given_back))
        raise


async def _claimed(turn: RunningTurn, id_: str) -> None:
    """Claim the decisions of one turn. If an earlier start of one of its calls came to nothing,
    wait until it may be tried again."""
    claim = partial(turn.engine.ledger.claim_for_callable, id_, turn.found)
    while pause := await claim():  # noqa: ASYNC110
        await asyncio.sleep(pause)


async def _take_place(turn: RunningTurn) -> None:
    function = turn.engine.agent.function
    is_async = is_coroutine_function(function) or is_async_generator_function(function)
    try:
        place = turn.place = turn.engine.code.place(is_async=is_async)
    except RuntimeError:
        raise Busy(NOT_BEGUN) from None
    if not await place.comes(latest(turn.until)):
        place.leave()
        raise Busy(NOT_BEGUN)


async def _replay(turn: RunningTurn, recorded: dict[str, Any]) -> None:
    """Send the recorded reply of a continuation again, without asking the model."""
    reply = AgentMessage.model_validate(recorded["reply"])
    # Who sends the very conversation that it answered has no newer session.
    if recorded.get("answers") == turn.references[-1] or not _has_gone_on(turn):
        turn.session = turn.context.session = Session(reply.data.session)
    stale = known_since(reply.data, turn.found.rows)
    for name in OUTCOMES:
        told = getattr(turn.data, name)
        ids = {outcome.id for outcome in told}
        kept = [outcome for outcome in getattr(reply.data, name) if outcome.id not in ids]
        for outcome in kept:
            row = turn.found.rows.get(outcome.id or "")
            # It may have ended, late, since the reply was recorded; what is purged stands there.
            if row is not None and row.output is not None:
                outcome.output = row.output
        told += kept
    await turn.out.outcomes(turn.data)
    await turn.say(reply.content)
    if stale:
        await turn.say(f"\n\n{stale}" if reply.content else stale)
    rows = [Proposal(**row) for row in recorded["proposals"]]
    await finish(turn, recorded["stop_reason"], pending=rows, reply=reply)


def _has_gone_on(turn: RunningTurn) -> bool:
    """Whether the request's session is newer than the reply to these decisions: it is stated, and
    an assistant message stands, after the first message that makes each or reports its outcome."""
    messages, chosen = turn.request.messages, turn.found.chosen
    spoken = [n for n, m in enumerate(messages) if m.role == "assistant"]
    stated = [
        n for n, m in enumerate(messages) if m.data is not None and m.data.session is not None
    ]
    newest = min(max(spoken, default=0), max(stated, default=0))
    mentions = Mentions(messages, chosen)
    rows = {row.id: row for choice, row in chosen if not choice.copy}.values()
    first = [decided_at(row, mentions) for row in rows]
    return bool(first) and all(index is not None and index < newest for index in first)
