"""Continuing the turns that the decisions of a request belong to (design, section 6)."""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Iterator, Sequence
from typing import TYPE_CHECKING, Any

from sayso.errors import InvalidRequest
from sayso.ledger import ENDED, Proposal
from sayso.messages import AgentMessage, Data, Message
from sayso.session import Session
from sayso.turns.decisions import message_digest, wait_for_others
from sayso.turns.deed import starts
from sayso.turns.ending import finish
from sayso.turns.mentions import Mentions
from sayso.turns.outcomes import catch_up, collect_outcomes, decided_calls, last_turns
from sayso.turns.output import OUTCOMES

if TYPE_CHECKING:
    from sayso.turns.turn import RunningTurn


async def resume(turn: RunningTurn, known: set[str]) -> bool:
    """Continue the turns that the decisions belong to; true if the turn has ended without the
    model."""
    ran = {g.proposal.id for g in turn.found.grants}
    touched = {row.turn for c, row in turn.found.chosen if not c.copy or row.id in ran}
    if not turn.context.has_decision and turn.blank:
        touched |= _ready(turn)
    touched |= owed(turn)
    pending = _pending(turn, touched)
    await turn.accepted()
    if any(r.kind == "tool_call" for r in pending) or (pending and turn.blank):
        await turn.out.outcomes(turn.data)
        await turn.say("\n".join(_needed(turn, pending)))
        await finish(turn, "approval_required", pending=pending)
        return True
    own = [id_ for id_ in touched if id_ in turn.found.turns]
    recorded = await _continue(turn, own) if own else None
    if recorded is not None:
        await _replay(turn, recorded)
        return True
    if turn.engine.agent.function is not None:
        # What an agent in its place proposed has ended, if only as a call of an unknown tool.
        turn.found.grants = []
        await _claim_for_callable(turn, touched & turn.found.callables, known, ran)
    # What a callable carries out itself is told when it has, and all outcomes leave in order.
    if not (turn.engine.agent.function and turn.found.grants):
        await turn.out.outcomes(turn.data)
    return False


def owed(turn: RunningTurn) -> set[str]:
    """The turns of a callable that nothing keeps from going on, with decisions of this conversation
    of which it has not been told: another turn may have waited when they were made."""
    stated_again = not turn.context.has_decision and _waits(turn)
    if turn.engine.agent.function is None or stated_again:
        return set()
    rows = turn.found.rows.values()
    untold = [
        row
        for row in rows
        if row.state == "APPROVED" or (row.state == "REJECTED" and row.owner is None)
    ]
    if not untold:
        return set()
    mentions = Mentions(turn.request.messages, turn.found.chosen)
    decided = {row.turn for row in untold if _decided_here(row, mentions) is not None}
    waiting = {
        row.turn for row in rows if row.state == "PENDING" and (row.kind != "command" or turn.blank)
    }
    return (decided - waiting) & turn.found.callables


def _decided_here(row: Proposal, mentions: Mentions) -> int | None:
    """The message that decides the call, if any does."""
    # From where it was proposed: an equal command may have been decided before.
    return mentions.decided(row, mentions.shown([row.id]) or 0)


def _waits(turn: RunningTurn) -> bool:
    """Whether a tool call waits that the history shows."""
    rows = turn.found.rows.values()
    waiting = {r.id for r in rows if r.kind == "tool_call" and r.state == "PENDING"}
    return not waiting.isdisjoint(turn.shown)


def _waits_for_caller(turn: RunningTurn, row: Proposal) -> bool:
    """Whether the call is undecided, or approved elsewhere and not sent back yet by its caller."""
    # A callable is given what others approved together with what its caller decides.
    return row.state == "PENDING" or (
        row.state == "APPROVED" and row.turn not in turn.found.callables
    )


def _pending(turn: RunningTurn, touched: Collection[str]) -> list[Proposal]:
    """What still waits in the turns that are `touched`; if an empty message touches none, what
    waits of the calls it shows. Raises InvalidRequest if nothing waits for such a message."""
    waiting = [row for row in turn.found.rows.values() if _waits_for_caller(turn, row)]
    waiting.sort(key=lambda row: row.order)
    if touched or not turn.blank:
        return [row for row in waiting if row.turn in touched]
    shown = {*turn.shown, *(row.id for _, row in turn.found.chosen)}
    pending = [row for row in waiting if row.id in shown]
    if not pending and not turn.context.has_decision and turn.empty:
        raise nothing_to_answer(turn.request.messages)
    return pending


def _needed(turn: RunningTurn, pending: Sequence[Proposal]) -> Iterator[str]:
    """What the approved calls wait for that this request has not stated."""
    if not turn.context.has_decision:
        return
    why = starts(turn.engine.agent, turn.context)
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


def _ready(turn: RunningTurn) -> set[str]:
    """The turns at which the history ends and whose calls are all decided, although this message
    decides none of them; none while a tool call waits that the history shows."""
    if _waits(turn):
        return set()
    rows = turn.found.rows.values()
    decided = last_turns(turn) - {row.turn for row in rows if row.state not in ENDED}
    return {
        suspended.id
        for suspended in turn.found.turns.values()
        if suspended.state == "SUSPENDED" and suspended.id in decided
    }


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
    else it is told."""
    try:
        for id_ in turns:
            await turn.engine.ledger.claim_for_callable(id_, turn.found)
        await _look_again(turn, known, ran)
    except BaseException:
        given_back = turn.engine.ledger.give_back(turn.found.grants, turn.found.told)
        await asyncio.shield(turn.engine.keep(given_back))
        raise


async def _replay(turn: RunningTurn, recorded: dict[str, Any]) -> None:
    """Send the recorded reply of a continuation again, without asking the model."""
    reply = AgentMessage.model_validate(recorded["reply"])
    # Who sends the very conversation that it answered has no newer session.
    if recorded.get("answers") == turn.references[-1] or not _has_gone_on(turn):
        turn.session = turn.context.session = Session(reply.data.session)
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
    first = [_decided_here(row, mentions) for row in rows]
    return bool(first) and all(index is not None and index < newest for index in first)


def nothing_to_answer(messages: Sequence[Message]) -> InvalidRequest:
    """The refusal of an empty message that nothing waits for."""
    loc: list[str | int] = ["body", "messages", len(messages) - 1, "content"]
    return InvalidRequest.at(
        loc, "nothing_to_answer", "the last message is empty and nothing waits for a decision"
    )
