"""Plain callables as agents: `(messages, context[, session]) -> result` (design, section 8)."""

from __future__ import annotations

import time
from collections.abc import AsyncIterator, Callable, Iterator, Mapping, Sequence
from contextvars import Context
from dataclasses import replace
from types import AsyncGeneratorType
from typing import TYPE_CHECKING, Any, get_args

from pydantic import ValidationError

from assent import approvals
from assent.agent import DecidedCall
from assent.errors import AgentError, Blocked, ModelError, Silence
from assent.events import (
    Approvals,
    Commands,
    Done,
    ErrorEvent,
    Event,
    ExecutedApprovals,
    ExecutedCommands,
    ExecutedToolCalls,
    IntermittentUpdate,
    StopReason,
    TextDelta,
    ToolCalls,
    fold,
    fold_done,
)
from assent.ledger import Proposal
from assent.ledger.choices import Grant
from assent.masking import holds_secret, mask
from assent.messages import (
    AgentMessage,
    Approval,
    Command,
    Data,
    ExecutedApproval,
    ExecutedCommand,
    ExecutedToolCall,
    ToolCall,
)
from assent.traces import cut, error_text
from assent.turns.carrying import change_of, record, state_of
from assent.turns.ending import finish, suspend
from assent.turns.gate import Outcome
from assent.turns.outcomes import collect_outcomes
from assent.turns.output import OUTCOMES, done_of, executed_events
from assent.workers import cancelled_here, let_cancel

if TYPE_CHECKING:
    from assent.turns.turn import RunningTurn

_EVENTS = frozenset(get_args(Event))
_ANSWERS = (AgentError, ModelError, Blocked, Silence)
"""What a callable raises that says by itself how the turn ends."""
_INVALID = "the agent returned neither text nor a message"


async def ask_function(turn: RunningTurn, function: Callable[..., Any]) -> None:
    """Let the agent's function answer, with the decisions that it has to carry out, given once."""
    turn.context.decisions = _to_carry_out(turn) if turn.found.rows else ()
    reply: AgentMessage | str
    try:
        if turn.found.grants:
            reply = await _carry_out(turn, function)
        else:
            reply = await _reply(turn, function, quiet=False)
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
    going_on = turn.continuing
    continued = dict(going_on.turns) if going_on else {}
    rejected_before = going_on.again if going_on else ()
    given = [
        row
        for row in turn.found.rows.values()
        if row.id in granted
        or (row.state == "REJECTED" and row.turn in continued and row.turn not in rejected_before)
    ]
    states = {row.id: row.state for row in turn.found.rows.values()}
    turn.seen = approvals.as_seen(turn.seen, granted, states)
    given.sort(key=lambda row: row.order)
    return tuple(_decided(row) for row in given)


def _decided(row: Proposal) -> DecidedCall:
    reason = row.decision.reason if row.decision else None
    approved = row.state != "REJECTED"
    return DecidedCall(row.id, row.call_id, row.kind, row.name, row.runs, approved, reason)


async def _carry_out(turn: RunningTurn, function: Callable[..., Any]) -> AgentMessage:
    """Call the agent's function, and record the calls that it carried out."""
    grants = turn.found.grants
    for grant in grants:
        grant.spend()
    before = state_of(turn.session)
    start = time.perf_counter()
    try:
        reply = await _reply(turn, function, quiet=True)
    except Exception as error:
        took = time.perf_counter() - start
        change = _change(turn, before)
        for grant in grants:
            text = error_text(error, turn.secrets)
            await _ended(turn, grant, Outcome("FAILED", text, took), change)
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


def _change(
    turn: RunningTurn, before: dict[str, Any] | None, stated: dict[str, Any] | None = None
) -> dict[str, Any] | None:
    """What carrying out has done to the session, for who gets the outcome without this reply."""
    try:
        turn.set_session(stated)
    except Exception:
        # No caller could send it back: the reply fails for it, once its outcomes are recorded.
        return None
    change: dict[str, Any] | None = mask(change_of(before, turn.session), turn.secrets)
    return change


async def _ended(
    turn: RunningTurn, grant: Grant, outcome: Outcome, change: dict[str, Any] | None
) -> None:
    await record(turn.engine, grant, outcome, change, unrecorded=turn.unrecorded)
    row = turn.found.rows[grant.proposal.id]
    row.state, row.output, row.duration = outcome.state, outcome.output, outcome.duration
    await turn.ran(row, outcome)


async def _send(turn: RunningTurn, reply: AgentMessage) -> None:
    if turn.found.grants or reply.data.outcomes or reply.data.executed_cmds:
        await _send_outcomes(turn, reply)
    turn.set_session(reply.data.session)
    await turn.say(reply.content[len("".join(turn.out.text)) :])


async def _send_outcomes(turn: RunningTurn, reply: AgentMessage) -> None:
    ran = {g.proposal.id for g in turn.found.grants}
    given = {g.proposal.call_id for g in turn.found.grants}
    already = Data(
        executed_tool_calls=[e for e in reply.data.executed_tool_calls if e.id not in ran | given],
        executed_cmds=[] if ran else reply.data.executed_cmds,
        executed_approvals=[e for e in reply.data.executed_approvals if e.id not in ran | given],
    )
    told = already
    if ran:
        told = turn.data = Data()
        collect_outcomes(turn, ran)
    _extend(turn.data, already)
    for name in OUTCOMES:
        # An event tells of all outcomes of its kind; a kind that has not grown was told before.
        if getattr(told, name):
            setattr(told, name, list(getattr(turn.data, name)))
    await turn.out.outcomes(told)


def _extend(data: Data, more: Data) -> None:
    for name in OUTCOMES:
        getattr(data, name).extend(getattr(more, name))


def _stated(data: Data, row: Proposal, carried: Sequence[Proposal]) -> str | None:
    """What the reply says of one of the calls that were `carried` out."""
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
    """The output of `row` among calls that the callable named alike, by an id of its own or by
    their text: they are told in the order of their proposal."""
    order = [r.id for r in sorted(equal, key=lambda r: r.order)]
    return outputs[: order.index(row.id) + 1][-1] if outputs else None


async def _reply(
    turn: RunningTurn, function: Callable[..., Any], *, quiet: bool
) -> AgentMessage | str:
    agent, code = turn.engine.agent, turn.engine.code
    arguments = [turn.seen.messages.copy(), turn.context, turn.session][: agent.argument_count]
    own: Context | None = None
    if agent.generates:
        result = function(*arguments)
    else:
        result, own = await code.begin(function, *arguments)
    if type(result) is str:
        return result
    if isinstance(result, (list, tuple)):
        result = iter(result)
    elif type(result) in _EVENTS:
        result = iter((result,))
    # The abstract classes take their time to say so of a generator.
    if type(result) is AsyncGeneratorType or isinstance(result, (AsyncIterator, Iterator)):
        collected = _Collected(turn, quiet)
        await collected.all_of(code.items(result, own))
        return "" if collected.only_text and not quiet else collected.whole()
    return _message(result)


def _message(result: object) -> AgentMessage:
    if isinstance(result, AgentMessage):
        return result.model_copy(deep=True)
    if isinstance(result, str):
        return AgentMessage(content=result)
    if isinstance(result, Mapping) and ("content" in result or "data" in result):
        try:
            return AgentMessage.model_validate(dict(result))
        except ValidationError as error:
            raise AgentError(_INVALID) from error
    raise AgentError(_INVALID)


class _Collected:
    """The items of a streaming callable as one reply, its text sent on as it comes."""

    def __init__(self, turn: RunningTurn, quiet: bool) -> None:
        self.turn = turn
        self.quiet = quiet
        self.only_text = True
        # What is not quiet has been said.
        self.text: list[str] = [] if quiet else turn.out.text
        self._reply: AgentMessage | None = None

    @property
    def reply(self) -> AgentMessage:
        """What the items make beside text; most are text alone and never need it."""
        if self._reply is None:
            self._reply = AgentMessage()
        return self._reply

    async def all_of(self, items: AsyncIterator[Any]) -> None:
        """Take every item, text with as little ado as can be: most items are a few letters."""
        say = self.text.append if self.quiet else self.turn.out.say
        unheard = cancelled_here()
        try:
            async for item in items:
                if type(item) is not str or self._reply is not None:
                    await self.add(item)
                elif item and say(item):
                    await self.turn.out.caught_up()
                if unheard:
                    await let_cancel(unheard)
        finally:
            if close := getattr(items, "aclose", None):
                await close()

    def whole(self) -> AgentMessage:
        """The reply that the items make."""
        self.reply.content = "".join(self.text)
        return self.reply

    async def add(self, item: object) -> None:
        """Take one item: text, an event, or a whole message."""
        if isinstance(item, (str, TextDelta)):
            await self._text(item if isinstance(item, str) else item.text)
            return
        self.only_text = False
        data = self.reply.data
        match item:
            case IntermittentUpdate(text=str(), content=dict()):
                self.turn.out.working(item)
            case ToolCalls():
                data.tool_calls += item.tool_calls
            case Approvals():
                data.approvals += item.approvals
            case Commands():
                data.cmds += item.commands
            case ExecutedToolCalls() | ExecutedCommands() | ExecutedApprovals():
                _extend(data, fold([item]).data)
            case Done():
                self._rest(item)
            case ErrorEvent():
                raise _stated_failure(item)
            case _:
                await self._whole(_message(item))

    async def _text(self, text: str) -> None:
        if self.quiet:
            self.text.append(text)
        elif text:
            # Outcomes leave before the text that comes after them.
            await self._outcomes()
            await self.turn.out.send(TextDelta(text))

    async def _outcomes(self) -> None:
        data = self.reply.data
        if data.outcomes or data.executed_cmds:
            await _send_outcomes(self.turn, self.reply)
            for name in OUTCOMES:
                setattr(data, name, [])

    def _rest(self, done: Done) -> None:
        if done.stop_reason not in get_args(StopReason):
            raise AgentError(_INVALID)
        self.turn.stop = done.stop_reason
        reply, data = self.reply, dict(done.data or {})
        if links := reply.data.url_configs:
            data["url_configs"] = [*links, *data.get("url_configs", [])]
        fold_done(replace(done, data=data, meta_data={**reply.meta_data, **done.meta_data}), reply)

    async def _whole(self, message: AgentMessage) -> None:
        """Take a whole message as its events: beside what came before, not in its place."""
        data = message.data
        for event in executed_events(data):
            await self.add(event)
        await self._text(message.content)
        for stated in (ToolCalls(data.tool_calls), Approvals(data.approvals), Commands(data.cmds)):
            await self.add(stated)
        await self.add(done_of(message, "end_turn"))


def _stated_failure(event: ErrorEvent) -> AgentError:
    failure = AgentError(event.error)
    if event.code:
        failure.code = event.code
    return failure


def proposals_of(reply: AgentMessage, turn: RunningTurn) -> list[Proposal]:
    """What a callable's reply proposes, under ids of Assent's; raises AgentError for a call
    whose input no request can send back, or that holds a secret of the platform context."""
    data = reply.data
    if not (data.tool_calls or data.cmds or data.approvals):
        return []
    found = _proposed(data, turn)
    for row in found:
        if why := approvals.unsendable(row.input, turn.engine.limits.nesting):
            raise AgentError(f"the agent proposed a call with an input that cannot be sent: {why}")
    if any(holds_secret(row.input, turn.secrets) for row in found):
        raise AgentError("the agent proposed a call that holds a secret of the platform context")
    return found


def _proposed(data: Data, turn: RunningTurn) -> list[Proposal]:
    companions = {c.id for c in data.tool_calls} | {c.id for c in data.cmds if c.id}

    def is_new(item: ToolCall | Command | Approval) -> bool:
        return not (item.execute or item.rejection_reason or item.id in turn.found.rows)

    found = [_tool_call(call, turn) for call in data.tool_calls if is_new(call)]
    found += [
        turn.new_command(command, command.id or f"command-{n}", command.intent)
        for n, command in enumerate(data.cmds)
        if is_new(command)
    ]
    others = [item for item in data.approvals if item.id not in companions]
    return found + [_approval(item, turn) for item in others if is_new(item)]


def _tool_call(call: ToolCall, turn: RunningTurn) -> Proposal:
    return turn.new_proposal(
        kind="tool_call",
        name=call.name,
        input=call.input,
        call_id=call.id,
        description=call.tool_description,
        intent=call.intent,
        input_description=call.input_description,
    )


def _approval(item: Approval, turn: RunningTurn) -> Proposal:
    if item.type == "command":
        return turn.new_command(_command(item.input), item.id, item.intent, item.description)
    return turn.new_proposal(
        kind="tool_call",
        name=item.name,
        input=item.input,
        call_id=item.id,
        description=item.description,
        intent=item.intent,
    )


def _command(given: Mapping[str, Any]) -> Command:
    try:
        return Command.model_validate(given)
    except ValidationError as error:
        raise AgentError(_INVALID) from error
