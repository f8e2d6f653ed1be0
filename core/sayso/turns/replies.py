"""The answer of a plain callable, in whatever form it comes, as one reply."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from contextvars import Context
from dataclasses import replace
from types import AsyncGeneratorType
from typing import Any, get_args

from pydantic import ValidationError

from sayso.context import RequestContext
from sayso.errors import AgentError, ReplyTooLarge
from sayso.turns.outcomes import collect_outcomes
from sayso.turns.output import OUTCOMES, done_of, executed_events
from sayso.turns.state import RunningTurn
from sayso.wire.events import (
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
    event_from,
    fold,
    fold_done,
    is_event,
)
from sayso.wire.messages import AgentMessage, Data
from sayso.workers import cancelled_here, let_cancel
from sayso.workers.places import Place

INVALID = "the agent returned neither text nor a message"
"""What is wrong with a reply that is none."""
_STATED = ("timestamp", "user", "agent")
_ITEMS = 100_000
"""Events beside text that a callable may give in a turn: a status line of each percent, and many
more."""
_EVENTS = frozenset(get_args(Event))


async def reply_of(
    turn: RunningTurn,
    function: Callable[..., Any],
    *,
    quiet: bool,
    place: Place | None = None,
    context: RequestContext | None = None,
) -> AgentMessage | str:
    """The reply of the callable; a text where it is nothing else, as much of it as is not sent.

    With `quiet` nothing is sent while it streams. It begins in `place` where there is one, and gets
    `context` in place of the request's.
    """
    agent, code = turn.engine.agent, turn.engine.code
    given = [turn.seen.messages.copy(), context or turn.context, turn.session]
    arguments = given[: agent.argument_count]
    own: Context | None = None
    if agent.generates:
        result = function(*arguments)
    else:
        result, own = await code.begin(function, *arguments, place=place)
        place = None
    if type(result) is str:
        return result
    if isinstance(result, (list, tuple)):
        result = iter(result)
    elif type(result) in _EVENTS or is_event(result):
        result = iter((result,))
    # The abstract classes take their time to say so of a generator.
    if type(result) is AsyncGeneratorType or isinstance(result, (AsyncIterator, Iterator)):
        collected = _Collected(turn, quiet)
        await collected.all_of(code.items(result, own, place))
        return "" if collected.only_text and not quiet else collected.whole()
    return _message(result)


def _event(sent: Mapping[str, Any]) -> Event:
    try:
        return event_from(sent)
    except ValidationError as error:
        raise AgentError(INVALID) from error


def _message(result: object) -> AgentMessage:
    if isinstance(result, AgentMessage):
        return _valid(result.model_copy(deep=True))
    if isinstance(result, str):
        return AgentMessage(content=result)
    if isinstance(result, Mapping) and ("content" in result or "data" in result):
        try:
            return AgentMessage.model_validate(dict(result))
        except ValidationError as error:
            raise AgentError(INVALID) from error
    # For the log: a function that forgets its `return` gives None.
    wanted = "a str, a dict with content or data, an AgentMessage, or events"
    raise AgentError(INVALID) from TypeError(f"it gave {type(result).__name__}; return {wanted}")


def _valid(reply: AgentMessage) -> AgentMessage:
    """`reply`, its author and time read as fields are: assigning to a model checks nothing."""
    stated = {name: value for name in _STATED if (value := getattr(reply, name)) is not None}
    if stated:
        try:
            read = AgentMessage.model_validate(stated)
        except ValidationError as error:
            raise AgentError(INVALID) from error
        for name in stated:
            setattr(reply, name, getattr(read, name))
    return reply


class _Collected:
    """The items of a streaming callable as one reply, its text sent on as it comes."""

    def __init__(self, turn: RunningTurn, quiet: bool) -> None:
        self.turn = turn
        self.quiet = quiet
        self.only_text = True
        self.items = 0
        # What is not quiet has been said.
        self.text: list[str] = [] if quiet else turn.out.text
        self._reply: AgentMessage | None = None

    @property
    def reply(self) -> AgentMessage:
        """What the items amount to beside text; most are text alone and never need it."""
        if self._reply is None:
            self._reply = AgentMessage()
        return self._reply

    async def all_of(self, items: AsyncIterator[Any]) -> None:
        """Take every item; for text at the least possible cost, since most items are a few
        letters."""
        say = self._keep if self.quiet else self.turn.out.say
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
        """The reply that the items amount to."""
        self.reply.content = "".join(self.text)
        return self.reply

    async def add(self, item: object) -> None:
        """Take one item: text, an event, also as it is sent, or a whole message."""
        if isinstance(item, Mapping) and is_event(item):
            item = _event(item)
        if isinstance(item, (str, TextDelta)):
            await self._text(item if isinstance(item, str) else item.text)
            return
        self.only_text = False
        self.items += 1
        if self.items > _ITEMS:
            raise ReplyTooLarge(_ITEMS, "events beside its text")
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

    def _keep(self, text: str) -> None:
        self.turn.out.take(text)
        self.text.append(text)

    async def _text(self, text: str) -> None:
        if self.quiet:
            self._keep(text)
        elif text:
            # Outcomes leave before the text that comes after them.
            await self._outcomes()
            await self.turn.out.send(TextDelta(text))

    async def _outcomes(self) -> None:
        data = self.reply.data
        if data.outcomes or data.executed_cmds:
            await send_outcomes(self.turn, self.reply)
            for name in OUTCOMES:
                setattr(data, name, [])

    def _rest(self, done: Done) -> None:
        if done.stop_reason not in get_args(StopReason):
            raise AgentError(INVALID)
        self.turn.stop = done.stop_reason
        reply, data = self.reply, dict(done.data or {})
        if links := reply.data.url_configs:
            data["url_configs"] = [*links, *data.get("url_configs", [])]
        fold_done(replace(done, data=data, meta_data={**reply.meta_data, **done.meta_data}), reply)
        _valid(reply)

    async def _whole(self, message: AgentMessage) -> None:
        """Take a whole message as its events, which add to the items before them."""
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


async def send_outcomes(turn: RunningTurn, reply: AgentMessage) -> None:
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
