"""The decisions of a request: carried out, and the turns they belong to continued.

Design, section 6.
"""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from assent import approvals
from assent.errors import ApprovalsPending, InvalidRequest
from assent.events import ToolCallApproved, ToolCallRejected
from assent.ledger import ENDED, RAN, Proposal
from assent.ledger.choices import Choice, Decided, Edit, Grant
from assent.masking import holds_secret, mask
from assent.messages import AgentMessage, Data, Message, beyond_text
from assent.session import Session
from assent.turns.carrying import Resume, carry_out
from assent.turns.ending import finish
from assent.turns.output import OUTCOMES

if TYPE_CHECKING:
    from assent.turns.turn import RunningTurn

_SUPERSEDED = "superseded by a new message"


async def decide(turn: RunningTurn, *, dry: bool = False, claim: bool = True) -> Decided:
    """Match the request's decisions to the ledger, record them, claim what may run."""
    choices = [_storable(turn, choice) for choice in turn.decisions]

    async def with_edit(edit: Edit) -> Decided:
        return await turn.engine.ledger.decide(
            choices, turn.shown, turn.who, turn.conversation, edit=edit, dry=dry, claim=claim
        )

    return await turn.edits.decided(with_edit)


def _storable(turn: RunningTurn, choice: Choice) -> Choice:
    """The choice without secrets; refused where its input, which might be recorded, holds one."""
    if not turn.secrets:
        return choice
    unissued = turn.engine.ledger.accept_unissued and choice.approved and not choice.copy
    if unissued and holds_secret(choice.input, turn.secrets):
        text = "the input holds a secret of the platform context"
        raise InvalidRequest.at(list(choice.loc), "approval_not_issued", text)
    return replace(choice, reason=mask(choice.reason, turn.secrets))


async def carry_decisions(turn: RunningTurn) -> bool:
    """Carry the decisions out; true when the turn has ended with them."""
    known = _told(turn)
    # A claim that commits is carried out, also when the client leaves meanwhile.
    await turn.engine.carried(_decide_and_run(turn, known), turn.unrecorded)
    while await _wait_for_others(turn):
        before = turn.found
        await turn.engine.carried(_decide_and_run(turn, known), turn.unrecorded)
        turn.found.grants = [*before.grants, *turn.found.grants]
        turn.found.fresh = [*before.fresh, *turn.found.fresh]
    _catch_up(turn, known)
    collect_outcomes(turn, {g.proposal.id for g in turn.found.grants})
    return await _resume(turn, known)


def _told(turn: RunningTurn) -> set[str]:
    """The calls whose outcome the client has got: its session has what they did to it."""
    messages = beyond_text(turn.request.messages)
    return {outcome.id for m in messages if m.data is not None for outcome in m.data.outcomes}


def _catch_up(turn: RunningTurn, known: set[str]) -> None:
    """Do to the session what calls have done to it that ended without the client hearing."""
    for row in sorted(_unheard(turn), key=lambda row: row.finished or 0.0):
        if row.session and row.id not in known:
            _apply(turn.session, row.session)
            known.add(row.id)


def _unheard(turn: RunningTurn) -> list[Proposal]:
    """The calls of which the client may not know how they ended: those that its newest message
    decides, and all of a turn that has not gone on since, where the history stands at it."""
    found, rows = turn.found, turn.found.rows
    here = {row.turn for choice, row in found.chosen if not choice.copy}
    here |= _last(turn)
    here = {id_ for id_ in here & found.turns.keys() if not found.turns[id_].reply}
    decided = [rows[row.id] for choice, row in found.chosen if choice.newest]
    return [*decided, *(row for row in rows.values() if row.turn in here)]


async def _decide_and_run(turn: RunningTurn, known: set[str]) -> None:
    """Take the decisions and run what was approved; `known` are the calls of which the session
    has what they did to it."""
    # A new message may yet be refused, and then nothing must have been claimed.
    decides = turn.context.has_decision or turn.blank
    turn.found = await decide(turn, claim=decides)
    if not decides:
        await _refuse_new_message(turn)
        if any(c.approved and row.state == "APPROVED" for c, row in turn.found.chosen):
            turn.found = await decide(turn)
    grants = turn.found.grants
    try:
        if turn.found.fresh or grants:
            await turn.accepted()
            await _tell_decided(turn)
        _catch_up(turn, known)
    except BaseException:
        await turn.engine.ledger.give_back(grants)
        raise
    known |= {g.proposal.id for g in grants}
    commands = [g for g in grants if g.proposal.kind == "command"]
    groups = [[g] for g in grants if g.proposal.kind != "command"]
    if commands:
        groups.append(commands)
    if len(groups) == 1:
        # Nothing runs beside it: no task of its own.
        await _carry_out(turn, groups[0])
    else:
        await asyncio.gather(*(_carry_out(turn, group) for group in groups))


async def _carry_out(turn: RunningTurn, grants: Sequence[Grant]) -> None:
    """Run calls one after another: commands build on each other, tool calls do not."""
    resume = Resume(_digest(turn), turn.take) if _goes_on_at_once(turn) else None
    for grant in sorted(grants, key=lambda g: g.proposal.order):
        row = turn.found.rows[grant.proposal.id]
        context, ran = turn.context, turn.ran
        await carry_out(turn.engine, row, grant, context, ran, turn.unrecorded, resume)


def _goes_on_at_once(turn: RunningTurn) -> bool:
    """Whether the request decides one call and no more, so that nothing but its end is waited for
    before its turn continues."""
    found = turn.found
    touched = {row.turn for _, row in found.chosen}
    return (
        turn.context.has_decision
        and len(found.grants) == 1
        and touched == {found.grants[0].proposal.turn}
        and touched <= found.turns.keys()
    )


def _digest(turn: RunningTurn) -> str:
    return approvals.request_digest(turn.said[-1][1], turn.found.chosen)


async def _tell_decided(turn: RunningTurn) -> None:
    for id_ in turn.found.fresh if turn.events_on else ():
        await turn.fire(decision_event(turn.found.rows[id_], turn.who.principal))


def decision_event(row: Proposal, principal: str | None) -> ToolCallApproved | ToolCallRejected:
    """What event handlers are told of a call that `principal` has just decided."""
    reason = row.decision.reason if row.decision else None
    if row.state == "REJECTED":
        return ToolCallRejected(approvals.approval(row), reason, principal)
    return ToolCallApproved(approvals.approval(row, execute=True), principal, reason)


async def _refuse_new_message(turn: RunningTurn) -> None:
    """Rule 3 of the contract: no new message while calls are pending."""
    shown = set(turn.shown)
    pending = [
        row.id
        for row in turn.found.rows.values()
        if row.state == "PENDING" and row.kind == "tool_call" and row.id in shown
    ]
    if not pending:
        return
    if turn.engine.approvals.on_new_message != "supersede":
        raise ApprovalsPending(pending)
    rejected = await turn.engine.ledger.reject(pending, _SUPERSEDED, turn.who)
    await turn.accepted()
    for row in rejected:
        turn.found.rows[row.id] = row
        await turn.fire(decision_event(row, turn.who.principal))


async def _wait_for_others(turn: RunningTurn) -> bool:
    """Wait for calls that other requests run: the decided ones, and those without which a turn
    whose calls are now all decided cannot go on. True when one was given back, not run."""
    decided = {row.id for c, row in turn.found.chosen if c.approved}
    touched = {row.turn for c, row in turn.found.chosen if not c.copy}
    rows = turn.found.rows.values()
    waiting = {row.turn for row in rows if row.state == "PENDING" and row.kind == "tool_call"}
    running = [
        row.id
        for row in rows
        if row.state == "EXECUTING" and (row.id in decided or row.turn in touched - waiting)
    ]
    if running:
        turn.slot.pause()
        try:
            turn.found.rows |= await turn.engine.ledger.outcomes(running, turn.until)
        finally:
            turn.slot.resume()
    return any(turn.found.rows[id_].state == "APPROVED" for id_ in running if id_ in decided)


def collect_outcomes(turn: RunningTurn, ran: set[str]) -> None:
    """Fill `data` with what this turn reports as executed, by the carrier of its decision."""
    told: set[tuple[str, bool]] = set()
    for choice, chosen in turn.found.chosen:
        row = turn.found.rows[chosen.id]
        if (row.id, choice.through_approvals) in told:
            continue
        told.add((row.id, choice.through_approvals))
        if row.purged:
            # Its outcome stands in the recorded reply, while that is kept.
            continue
        rejected = row.state == "REJECTED" and choice.through_approvals
        if not rejected and row.state not in RAN:
            continue
        if row.id not in ran and not choice.newest and not _untold(turn, choice, row):
            continue
        _tell(turn, row, choice.through_approvals)
    # What a callable has run may have been approved by messages that are no choice of this request.
    named = {id_ for id_, _ in told}
    for grant in turn.found.grants:
        row = turn.found.rows[grant.proposal.id]
        if row.decision and row.id not in named and row.state in RAN:
            _tell(turn, row, row.decision.through_approvals)


def _tell(turn: RunningTurn, row: Proposal, through_approvals: bool) -> None:
    if through_approvals:
        turn.data.executed_approvals.append(approvals.executed_approval(row))
    elif row.kind == "tool_call":
        turn.data.executed_tool_calls.append(approvals.executed_tool_call(row))
    else:
        turn.data.executed_cmds.append(approvals.executed_command(row))


def _untold(turn: RunningTurn, choice: Choice, row: Proposal) -> bool:
    """Whether the call was decided directly before, and no reply has told its end yet."""
    suspended = turn.found.turns.get(row.turn)
    return not choice.copy and suspended is not None and not suspended.reply


async def _resume(turn: RunningTurn, known: set[str]) -> bool:
    """Go on with the turns that the decisions belong to; true when there is nothing to ask."""
    ran = {g.proposal.id for g in turn.found.grants}
    touched = {row.turn for c, row in turn.found.chosen if not c.copy or row.id in ran}
    if not turn.context.has_decision and turn.blank:
        touched |= _ready(turn)
    rows = turn.found.rows.values()
    pending = [r for r in rows if r.turn in touched and r.state == "PENDING"]
    if not touched and turn.blank:
        shown = {*turn.shown, *(row.id for _, row in turn.found.chosen)}
        pending = [r for r in rows if r.state == "PENDING" and r.id in shown]
        if not pending and not turn.context.has_decision and turn.empty:
            raise nothing_to_answer(turn.request.messages)
    await turn.accepted()
    if any(r.kind == "tool_call" for r in pending) or (pending and turn.blank):
        pending.sort(key=lambda r: r.order)
        await turn.out.outcomes(turn.data)
        await finish(turn, "approval_required", pending=pending)
        return True
    own = [id_ for id_ in touched if id_ in turn.found.turns]
    recorded = await _continue(turn, own) if own else None
    if recorded is not None:
        await _replay(turn, recorded)
        return True
    await _claim_for_callable(turn, touched & turn.found.callables)
    if turn.engine.agent.function is not None:
        # Another request may have carried out what this one has waited for, or does: who waits
        # for that holds nothing that others wait for.
        if not turn.found.grants:
            await _wait_for_others(turn)
        _catch_up(turn, known)
        turn.data = Data()
        collect_outcomes(turn, ran)
    # What a callable carries out itself is told when it has, and all outcomes leave in order.
    if not (turn.engine.agent.function and turn.found.grants):
        await turn.out.outcomes(turn.data)
    return False


def _ready(turn: RunningTurn) -> set[str]:
    """The turns at which the history stands and whose calls are all decided, although this
    message decides nothing."""
    rows = turn.found.rows.values()
    decided = _last(turn) - {row.turn for row in rows if row.state not in ENDED}
    return {
        suspended.id
        for suspended in turn.found.turns.values()
        if suspended.state == "SUSPENDED" and suspended.id in decided
    }


def _last(turn: RunningTurn) -> set[str]:
    """The turns whose calls the newest assistant message shows."""
    rows = turn.found.rows
    return {rows[id_].turn for id_ in approvals.last_shown(turn.request.messages) if id_ in rows}


async def _continue(turn: RunningTurn, turns: Sequence[str]) -> dict[str, Any] | None:
    """Claim the continuation of these turns; the recorded reply where there is nothing to ask."""
    if turn.continuing is not None:
        # Claimed already, with the outcome of its only call.
        return None
    turn.slot.pause()
    try:
        claimed = await turn.engine.ledger.continue_turns(
            turns,
            _digest(turn),
            blank=turn.blank,
            fresh=_has_news(turn, turns),
            until=turn.until,
        )
    finally:
        turn.slot.resume()
    if isinstance(claimed, dict):
        return claimed
    turn.continuing = claimed
    return None


async def _claim_for_callable(turn: RunningTurn, turns: Collection[str]) -> None:
    """Claim what the callable carries out itself, whoever of the deciders asks."""
    try:
        for id_ in turns:
            await turn.engine.ledger.claim_for_callable(id_, turn.found)
    except BaseException:
        given_back = turn.engine.ledger.give_back(turn.found.grants)
        await asyncio.shield(turn.engine.keep(given_back))
        raise


def _has_news(turn: RunningTurn, turns: Sequence[str]) -> bool:
    """Whether a continuation of `turns` that others have made may not know what this request
    decided: it waits until all tool calls of its turn are decided and have ended, and for nothing
    else."""
    found = turn.found
    rows = [found.rows[id_] for id_ in found.fresh]
    waited_for = {r.id for r in rows if r.kind == "tool_call" and [r.turn] == [*turns]}
    news = {*found.fresh, *(grant.proposal.id for grant in found.grants)} - waited_for
    return bool(news)


async def _replay(turn: RunningTurn, recorded: dict[str, Any]) -> None:
    """Send the recorded reply of a continuation again, without asking the model."""
    reply = AgentMessage.model_validate(recorded["reply"])
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
    turn.session = turn.context.session = Session(reply.data.session)
    rows = [Proposal(**row) for row in recorded["proposals"]]
    await finish(turn, recorded["stop_reason"], pending=rows, reply=reply, record=False)


def _apply(session: Session, change: Mapping[str, Any]) -> None:
    for key, value in change.get("set", {}).items():
        # Changed in place, a value may be what no caller could send back.
        with suppress(ValueError):
            session.set(key, value)
    for key in change.get("delete", ()):
        session.delete(key)


def nothing_to_answer(messages: Sequence[Message]) -> InvalidRequest:
    """The refusal of an empty message that nothing waits for."""
    loc: list[str | int] = ["body", "messages", len(messages) - 1, "content"]
    return InvalidRequest.at(
        loc, "nothing_to_answer", "the last message is empty and nothing waits for a decision"
    )
