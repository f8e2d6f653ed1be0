"""Decisions are recorded, with the inputs that approvers changed, the calls that they approve run,
and the request waits for calls that others run.

Turns and single calls come here alike (design, section 6). A step takes a `Settled` and returns a
new one; it changes nothing in place.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, NamedTuple

from sayso.context import RequestContext
from sayso.conversation import approvals
from sayso.decisions.deed import hinders
from sayso.decisions.execution import Ended, carry_out
from sayso.decisions.starts import Start, decide_in_place, latest
from sayso.engine import Engine, Slot, Unrecorded
from sayso.errors import InvalidRequest, ToolInputError
from sayso.gate import Outcome
from sayso.ledger import Proposal
from sayso.ledger.choices import Choice, Conversation, Decided, Edit, Requester
from sayso.ledger.claims import Continuation
from sayso.tools import Tool
from sayso.tools.inputs import recorded
from sayso.trees import canonical
from sayso.wire.masking import holds_secret
from sayso.workers.running import Place


@dataclass(frozen=True, slots=True)
class Deciding:
    """The decisions of one request, whose requester waits until `until` (`time.monotonic`)."""

    engine: Engine
    choices: Sequence[Choice]
    who: Requester
    context: RequestContext
    edits: Edits
    until: float
    ended: Callable[[Proposal, Outcome], None]
    """Called with each call that this request has carried out."""
    shown: Sequence[str] = ()
    conversation: Conversation = Conversation()
    may_edit: bool = True
    runs: bool = True
    """Whether approved calls run here, or their approval is only recorded."""
    claims: bool = False
    """Whether a single call may be claimed with its decision."""
    slot: Slot | None = None
    """The turn's place; None for a single call, since it continues no turn."""


@dataclass(frozen=True, slots=True)
class Settled:
    """The decisions of a request and their effects so far.

    - `ran`: the calls that this request has carried out;
    - `not_started`: for each call that has not started, the reason;
    - `known`: the calls whose changes the request's session has;
    - `continuing`: the continuation that the request has claimed already.
    """

    decided: Decided = field(default_factory=Decided)
    ran: Sequence[str] = ()
    not_started: Mapping[str, str] = field(default_factory=dict)
    known: frozenset[str] = frozenset()
    continuing: Continuation | None = None


NOTHING_DECIDED = Settled()


class Prepared(NamedTuple):
    """The decisions before any call runs. `request` is the digest for which the turn of a single
    call continues as soon as that call ends; None if no turn does."""

    settled: Settled
    request: str | None = None


Prepare = Callable[[Settled, Sequence[str]], Awaitable[Prepared]]
"""Called between the decisions and the start of calls, with the ids of these calls; if it raises,
none of them starts."""


async def look(deciding: Deciding) -> Decided:
    """Match the decisions to the ledger, and record nothing."""
    return await deciding.edits.decided(partial(_matched, deciding))


async def _matched(deciding: Deciding, edit: Edit) -> Decided:
    return await deciding.engine.ledger.decide(
        deciding.choices, deciding.shown, deciding.who, deciding.conversation, edit=edit, dry=True
    )


async def settle(
    deciding: Deciding, settled: Settled, prepare: Prepare, unrecorded: Unrecorded
) -> Settled:
    """Record the decisions, run the calls that they approve, and wait for calls that others run. If
    one of those is handed back, its decision is settled again.

    A claimed call is carried out even if the client leaves meanwhile. Returns NOTHING_DECIDED for a
    request without decisions if the ledger knows none of the calls that it shows.
    """
    engine, found = deciding.engine, None
    if not deciding.choices:
        # Without a decision nothing is claimed, so this need not be carried through.
        found = await _decide(deciding)
        if not found[0].rows:
            return NOTHING_DECIDED
    while True:
        carried = _decided_and_run(deciding, settled, prepare, unrecorded, found)
        found = None
        settled = await engine.carried(carried, unrecorded, partial(_unused, engine))
        try:
            settled, again = await waited(engine, settled, deciding.until, deciding.slot)
        except BaseException:
            await released(engine, settled.continuing)
            raise
        if not (again and deciding.runs):
            return settled


async def waited(
    engine: Engine, settled: Settled, until: float, slot: Slot | None
) -> tuple[Settled, bool]:
    """The decisions when others have ended the calls that this request needs, and whether a call
    that it approves is to be started now. Raises StillRunning after `until`.

    `slot` is the turn's place; without one the decisions are of a single call, and no turn
    continues.
    """
    decided = settled.decided
    approved = {row.id for choice, row in decided.chosen if choice.approved}
    running = _running(decided, approved, continues=slot is not None)
    if not running:
        return settled, False
    if slot is not None:
        slot.pause()
    try:
        rows = await engine.ledger.outcomes(running, until)
    finally:
        if slot is not None:
            slot.resume()
    settled = replace(settled, decided=replace(decided, rows=decided.rows | rows))
    return settled, any(rows[id_].startable for id_ in running if id_ in approved)


def _running(decided: Decided, approved: set[str], *, continues: bool) -> list[str]:
    """The calls that others run and for which this request waits: the calls that it approves, and
    those that a turn needs to continue once all its calls are decided."""
    rows = decided.rows.values()
    turns = {row.turn for choice, row in decided.chosen if continues and not choice.copy}
    turns -= {row.turn for row in rows if row.state == "PENDING" and row.kind == "tool_call"}
    return [
        row.id
        for row in rows
        if row.state == "EXECUTING" and (row.id in approved or row.turn in turns)
    ]


async def released(engine: Engine, continuing: Continuation | None) -> None:
    """Give back the continuation, if there is one, even while the turn is being cancelled."""
    if continuing is not None:
        await asyncio.shield(engine.keep(engine.ledger.release(continuing)))


def _unused(engine: Engine, settled: Settled) -> None:
    """Give back what was settled for a turn that was cancelled meanwhile, so that another request
    may continue."""
    if settled.continuing is not None:
        engine.keep(engine.ledger.release(settled.continuing))


async def _decided_and_run(
    deciding: Deciding,
    before: Settled,
    prepare: Prepare,
    unrecorded: Unrecorded,
    found: tuple[Decided, list[Start]] | None,
) -> Settled:
    decided, starts = found or await _decide(deciding)
    try:
        prepared = await prepare(replace(before, decided=decided), [start.id for start in starts])
        decided = prepared.settled.decided
        await _announce(deciding, decided)
    except BaseException:
        for start in starts:
            start.leave()
        await deciding.engine.ledger.give_back([s.grant for s in starts if s.grant])
        raise
    ended = await _run(deciding, starts, prepared.request, unrecorded)
    return _settled(before.decided, prepared.settled, starts, ended)


def _settled(
    before: Decided, settled: Settled, starts: Sequence[Start], ended: Sequence[Ended]
) -> Settled:
    """The decisions with the state of each call that was to start."""
    decided = settled.decided
    rows = {start.id: start.row for start in starts} | {end.row.id: end.row for end in ended}
    grants = [start.grant for start in starts if start.grant is not None]
    return replace(
        settled,
        decided=replace(
            decided,
            rows=decided.rows | rows,
            fresh=[*before.fresh, *decided.fresh],
            grants=[*before.grants, *grants],
        ),
        ran=(*settled.ran, *(grant.proposal.id for grant in grants)),
        not_started={**settled.not_started, **{start.id: start.why for start in starts}},
        known=settled.known | {start.id for start in starts},
        continuing=next((e.continuing for e in ended if e.continuing), settled.continuing),
    )


async def _decide(deciding: Deciding) -> tuple[Decided, list[Start]]:
    """Match the decisions to the ledger and record them. Returns the calls to start; a single one
    is claimed already if it has a place."""
    engine = deciding.engine
    why = hinders(engine.agent, engine.gate.policy, deciding.context) if deciding.runs else None
    place: Place | None = None

    async def record(edit: Edit, at_once: bool) -> Decided:
        return await engine.ledger.decide(
            deciding.choices,
            deciding.shown,
            deciding.who,
            deciding.conversation,
            edit=edit if deciding.may_edit else None,
            hinders=why,
            claim=at_once,
            alone=True,
        )

    async def with_edit(edit: Edit) -> Decided:
        nonlocal place
        if not deciding.claims:
            return await record(edit, at_once=False)
        found, place = await decide_in_place(engine, deciding.choices, partial(record, edit))
        return found

    found = await deciding.edits.decided(with_edit)
    until = latest(deciding.until)
    starts = [
        Start(choice, row.id, _alone(found, row), deciding.who, until, deciding.until)
        for choice, row in (found.starts if deciding.runs else ())
    ]
    if found.grants:
        starts[0].place, starts[0].grant = place, found.grants[0]
    return replace(found, grants=[]), starts


def _alone(found: Decided, row: Proposal) -> Decided:
    """The decisions on one call, whose row changes when it is claimed and handed back."""
    resting = {id_: seconds for id_, seconds in found.resting.items() if id_ == row.id}
    return Decided({row.id: row}, hinders=found.hinders, resting=resting)


async def _announce(deciding: Deciding, decided: Decided) -> None:
    engine = deciding.engine
    for id_ in () if deciding.runs else decided.fresh:
        engine.on_approved(decided.rows[id_])
    for id_ in decided.fresh if engine.events_on else ():
        event = approvals.decision_event(decided.rows[id_], deciding.who.principal)
        await engine.fire(event, deciding.edits.secrets)


async def _run(
    deciding: Deciding, starts: Sequence[Start], request: str | None, unrecorded: Unrecorded
) -> list[Ended]:
    """Run the calls: commands one after another, since they build on each other, and tool calls at
    the same time."""
    commands = [start for start in starts if start.row.kind == "command"]
    groups = [[start] for start in starts if start.row.kind != "command"]
    if commands:
        groups.append(sorted(commands, key=lambda start: start.row.order))
    running = [_one_by_one(deciding, group, request, unrecorded) for group in groups]
    # A single group needs no task of its own.
    ended = [await running[0]] if len(running) == 1 else await asyncio.gather(*running)
    return [end for group in ended for end in group]


async def _one_by_one(
    deciding: Deciding, starts: Sequence[Start], request: str | None, unrecorded: Unrecorded
) -> list[Ended]:
    engine, context = deciding.engine, deciding.context
    report = partial(_report_end, deciding)
    found: list[Ended] = []
    for start in starts:
        ended = await carry_out(engine, start, context, unrecorded, report, request)
        if ended is not None:
            found.append(ended)
            await report(ended)
    return found


async def _report_end(deciding: Deciding, ended: Ended) -> None:
    engine = deciding.engine
    deciding.ended(ended.row, ended.outcome)
    if engine.events_on:
        event = ended.outcome.event(approvals.approval(ended.row, execute=True))
        await engine.fire(event, deciding.edits.secrets)


class _Unread(Exception):
    """A changed input that its tool has not validated yet; raising it undoes the transaction."""


class Edits:
    """The inputs that an approver changed, with what their tools validated of them so far (design,
    section 6, "Edited input").

    Tools validate between transactions: validators are user code, and a slow one would delay all
    other approvals.
    """

    def __init__(self, engine: Engine, secrets: Sequence[str]) -> None:
        self._engine = engine
        self.secrets = secrets
        # The input that each tool gets for a changed input, or the error of its validation.
        self._read: dict[bytes, ToolInputError | dict[str, Any]] = {}
        self._unread: dict[bytes, tuple[Tool[..., Any], dict[str, Any]]] = {}

    async def decided(self, decide: Callable[[Edit], Awaitable[Decided]]) -> Decided:
        """The result of `decide`, which is called with the edits until all of them are
        validated."""
        while True:
            try:
                found = await decide(self._edit)
            except (_Unread, InvalidRequest):
                if not self._unread:
                    raise
            else:
                if not self._unread:
                    return found
            await self._have_read()

    def _edit(self, row: Proposal, stated: dict[str, Any]) -> dict[str, Any] | None:
        """The input that the tool gets for the changed one, if it allows the change.

        Raises ToolInputError if the input does not fit the tool's schema or holds a secret. The
        first time, an input that was not validated yet passes, so that one transaction finds all of
        them; then it raises _Unread.
        """
        tool = self._engine.agent.tools.get(row.name)
        if row.kind != "tool_call" or tool is None or not tool.editable:
            return None
        if holds_secret(stated, self.secrets):
            raise ToolInputError("it holds a secret of the platform context")
        # Unchanged parameters run as recorded, since the client may have rounded a number.
        edited = {
            name: row.runs[name] if _equal(name, stated, row.runs) else value
            for name, value in stated.items()
        }
        key = canonical([row.id, row.revision, edited])
        if key not in self._read:
            if key in self._unread:
                raise _Unread
            self._unread[key] = tool, edited
            return edited
        if isinstance(known := self._read[key], ToolInputError):
            raise known
        return known if _may_change(tool, row.runs, known) else None

    async def _have_read(self) -> None:
        unread, self._unread = self._unread, {}
        for key, (tool, edited) in unread.items():
            try:
                found = await self._engine.code.check(recorded, tool, edited)
                self._read[key] = found.input
            except ToolInputError as error:
                self._read[key] = error


def _may_change(tool: Tool[..., Any], before: dict[str, Any], after: dict[str, Any]) -> bool:
    """Whether the tool lets an approver change the fields in which the two inputs differ."""
    if isinstance(tool.editable, bool):
        return tool.editable
    return all(name in tool.editable or _equal(name, before, after) for name in {*before, *after})


def _equal(name: str, one: dict[str, Any], other: dict[str, Any]) -> bool:
    return name in one and name in other and canonical(one[name]) == canonical(other[name])
