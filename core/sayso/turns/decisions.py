"""The decisions of a request: recorded, and the approved calls run (design, section 6)."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import replace

from sayso.conversation import approvals
from sayso.decisions.deed import hinders
from sayso.decisions.execution import Resume, carry_out
from sayso.decisions.starts import Start, decide_in_place, latest
from sayso.errors import ApprovalsPending, InvalidRequest, UnknownHost
from sayso.ledger.choices import Choice, Decided, Edit
from sayso.turns.outcomes import catch_up, collect_outcomes, heard
from sayso.turns.state import RunningTurn
from sayso.wire.masking import holds_secret, mask
from sayso.workers.places import Place

_SUPERSEDED = "superseded by a new message"


async def look(turn: RunningTurn) -> Decided:
    """Match the request's decisions to the ledger, and record nothing."""
    choices = _choices(turn)

    async def with_edit(edit: Edit) -> Decided:
        return await turn.engine.ledger.decide(
            choices, turn.shown, turn.who, turn.conversation, edit=edit, dry=True
        )

    return await turn.edits.decided(with_edit)


async def decide(turn: RunningTurn) -> list[Start]:
    """Match the request's decisions to the ledger and record them; gives the calls to start, a
    single one claimed already where its place is there."""
    choices = _choices(turn)
    # A new message may yet be refused, and then nothing must have been claimed.
    claims = turn.context.has_decision or turn.blank
    place: Place | None = None

    async def with_edit(edit: Edit) -> Decided:
        async def recorded(at_once: bool) -> Decided:
            return await turn.engine.ledger.decide(
                choices,
                turn.shown,
                turn.who,
                turn.conversation,
                edit=edit,
                hinders=hinders(turn.engine.agent, turn.context),
                claim=at_once and claims,
                alone=True,
            )

        nonlocal place
        found, place = await decide_in_place(turn.engine, choices, recorded)
        return found

    found = turn.found = await turn.edits.decided(with_edit)
    until = latest(turn.until)
    starts = [
        Start(choice, row.id, found, turn.who, until, turn.until) for choice, row in found.starts
    ]
    if found.grants:
        starts[0].place, starts[0].grant = place, found.grants.pop()
    return starts


def _choices(turn: RunningTurn) -> list[Choice]:
    """The request's decisions as they are stored; raises UnknownHost where it may not decide."""
    if turn.caller.foreign_page and turn.decisions:
        raise UnknownHost
    return [_storable(turn, choice) for choice in turn.decisions]


def _storable(turn: RunningTurn, choice: Choice) -> Choice:
    """The choice without secrets; refused if its input, which might be recorded, holds one."""
    if not turn.secrets:
        return choice
    unissued = turn.engine.ledger.accept_unissued and choice.approved and not choice.copy
    if unissued and holds_secret(choice.input, turn.secrets):
        text = "the input holds a secret of the platform context"
        raise InvalidRequest.at(list(choice.loc), "approval_not_issued", text)
    return replace(choice, reason=mask(choice.reason, turn.secrets))


async def carry_decisions(turn: RunningTurn) -> set[str]:
    """Carry out the decisions; gives the calls whose changes the session has."""
    known = heard(turn)
    # A claim that commits is carried out, also when the client leaves meanwhile.
    await turn.engine.carried(_decide_and_run(turn, known), turn.unrecorded)
    while await wait_for_others(turn):
        before = turn.found
        await turn.engine.carried(_decide_and_run(turn, known), turn.unrecorded)
        turn.found.grants = [*before.grants, *turn.found.grants]
        turn.found.fresh = [*before.fresh, *turn.found.fresh]
    catch_up(turn, known)
    collect_outcomes(turn, {g.proposal.id for g in turn.found.grants})
    return known


async def _decide_and_run(turn: RunningTurn, known: set[str]) -> None:
    """Record the decisions and run what was approved; `known` are the calls whose changes the
    session has."""
    # A new message may yet be refused, and then nothing must have been claimed.
    starts = await decide(turn)
    try:
        if not (turn.context.has_decision or turn.blank):
            await _refuse_new_message(turn)
        if turn.found.fresh or starts:
            await turn.accepted()
            await _tell_decided(turn)
        catch_up(turn, known)
    except BaseException:
        for start in starts:
            start.leave()
        await turn.engine.ledger.give_back([s.grant for s in starts if s.grant])
        raise
    known |= {start.id for start in starts}
    commands = [start for start in starts if start.row.kind == "command"]
    groups = [[start] for start in starts if start.row.kind != "command"]
    if commands:
        groups.append(commands)
    if len(groups) == 1:
        # Nothing runs beside it: no task of its own.
        await _carry_out(turn, groups[0])
    else:
        await asyncio.gather(*(_carry_out(turn, group) for group in groups))


async def _carry_out(turn: RunningTurn, starts: Sequence[Start]) -> None:
    """Run calls one after another: commands build on each other, tool calls do not."""
    resume = Resume(message_digest(turn), turn.take) if _goes_on_at_once(turn) else None
    for start in sorted(starts, key=lambda start: start.row.order):
        context, ran = turn.context, turn.ran
        await carry_out(turn.engine, start, context, ran, turn.unrecorded, resume)
        if start.grant is not None:
            turn.found.grants.append(start.grant)
        turn.not_begun[start.id] = start.why


def _goes_on_at_once(turn: RunningTurn) -> bool:
    """Whether the request decides a single call, so that its turn continues as soon as that call
    ends."""
    found = turn.found
    touched = {row.turn for _, row in found.chosen}
    return (
        turn.context.has_decision
        and len(found.starts) == 1
        and touched == {found.starts[0][1].turn}
        and touched <= found.turns.keys()
    )


def message_digest(turn: RunningTurn) -> str:
    """The digest of the message with its decisions; the same when it is sent again."""
    return approvals.request_digest(turn.said[-1][1], turn.found.chosen)


async def _tell_decided(turn: RunningTurn) -> None:
    for id_ in turn.found.fresh if turn.events_on else ():
        await turn.fire(approvals.decision_event(turn.found.rows[id_], turn.who.principal))


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
        await turn.fire(approvals.decision_event(row, turn.who.principal))
    if len(rejected) < len(pending):
        # Somebody has decided one since it was read.
        others = set(pending) - {row.id for row in rejected}
        turn.found.rows |= await turn.engine.ledger.settle([*others])


async def wait_for_others(turn: RunningTurn) -> bool:
    """Wait for calls that other requests run: those decided here, and those that the continuation
    of a turn needs whose calls are now all decided. True when one decided here is to be
    started."""
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
    return any(turn.found.rows[id_].startable for id_ in running if id_ in decided)
