"""The answer of a plain callable, in any of its forms, as one reply."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from contextvars import Context
from dataclasses import replace
from types import AsyncGeneratorType
from typing import Any, NamedTuple, get_args

from pydantic import ValidationError

from sayso.context import RequestContext
from sayso.decisions.settling import NOTHING_DECIDED
from sayso.errors import AgentError, ReplyTooLarge
from sayso.ledger.choices import Decided
from sayso.turns.output import OUTCOMES, Output, done_of, executed_events
from sayso.turns.request import Request
from sayso.turns.settle import outcomes_of
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
from sayso.wire.json_bytes import without_nulls
from sayso.wire.messages import AgentMessage, Data
from sayso.workers import cancelled_here, let_cancel
from sayso.workers.code import beginning
from sayso.workers.running import Place

INVALID = "the agent returned neither text nor a message"
"""The error for a result that is no reply."""
_STATED = ("timestamp", "user", "agent")
_ITEMS = 100_000
"""The largest number of events beside text that a callable may send in a turn: a status line for
each percent, and many more."""
_EVENTS = frozenset(get_args(Event))


class Said(NamedTuple):
    """The answer of a callable. A text-only answer is a text, as much of it as was not sent yet."""

    reply: AgentMessage | str
    stop: StopReason = "end_turn"


async def reply_of(
    request: Request,
    out: Output,
    *,
    begin: Callable[[], None] | None = None,
    place: Place | None = None,
    context: RequestContext | None = None,
) -> Said:
    """The reply of the callable. A callable that carries calls out has `begin` as its first step,
    begins in `place`, and gets `context` in place of the request's context; nothing of its reply is
    sent while it streams."""
    agent, code = request.engine.agent, request.engine.code
    function = agent.function
    assert function is not None
    if begin is not None:
        function = beginning(function, begin)
    given = [request.seen.messages.copy(), context or request.context, request.session]
    arguments = given[: agent.argument_count]
    own: Context | None = None
    if agent.generates:
        result = function(*arguments)
    else:
        result, own = await code.begin(function, *arguments, place=place)
        place = None
    if type(result) is str:
        return Said(result)
    if isinstance(result, (list, tuple)):
        result = iter(result)
    elif type(result) in _EVENTS or is_event(result):
        result = iter((result,))
    # Check for a generator first, since the abstract classes are slow to recognise one.
    if type(result) is AsyncGeneratorType or isinstance(result, (AsyncIterator, Iterator)):
        collected = _Collected(request, out, quiet=begin is not None)
        await collected.all_of(code.items(result, own, place))
        return collected.said()
    return Said(_message(result))


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
    stated = without_nulls(AgentMessage, dict(result)) if isinstance(result, Mapping) else {}
    if "content" in stated or "data" in stated:
        try:
            return AgentMessage.model_validate(stated)
        except ValidationError as error:
            raise AgentError(INVALID) from error
    # The log shows this to authors: a function without a `return` returns None.
    wanted = "a str, a dict with content or data, an AgentMessage, or events"
    raise AgentError(INVALID) from TypeError(f"it gave {type(result).__name__}; return {wanted}")


def _valid(reply: AgentMessage) -> AgentMessage:
    """`reply`, with its author and time validated as fields are: pydantic validates no assignment
    to a model."""
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

    stop: StopReason = "end_turn"

    def __init__(self, request: Request, out: Output, *, quiet: bool) -> None:
        self.request = request
        self.out = out
        self.quiet = quiet
        self.only_text = True
        self.items = 0
        # If the reply is not quiet, this text has been sent.
        self.text: list[str] = [] if quiet else out.text
        self._reply: AgentMessage | None = None

    @property
    def reply(self) -> AgentMessage:
        """The reply that the items make up beside text; most callables send only text and need
        none."""
        if self._reply is None:
            self._reply = AgentMessage()
        return self._reply

    async def all_of(self, items: AsyncIterator[Any]) -> None:
        """Take every item. Text has the shortest path, since most items are a few letters."""
        say = self._keep if self.quiet else self.out.say
        cancelled = cancelled_here()
        try:
            async for item in items:
                if type(item) is not str or self._reply is not None:
                    await self.add(item)
                elif item and say(item):
                    await self.out.caught_up()
                if cancelled:
                    await let_cancel(cancelled)
        finally:
            if close := getattr(items, "aclose", None):
                await close()

    def said(self) -> Said:
        """The reply that the items make up; an empty text if nothing is left to be sent."""
        if self.only_text and not self.quiet:
            return Said("")
        self.reply.content = "".join(self.text)
        return Said(self.reply, self.stop)

    async def add(self, item: object) -> None:
        """Take one item: text, an event (as an object or in the form in which it is sent), or a
        whole message."""
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
                self.out.working(item)
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
        self.out.take(text)
        self.text.append(text)

    async def _text(self, text: str) -> None:
        if self.quiet:
            self._keep(text)
        elif text:
            # Send the outcomes before the text that follows them.
            await self._outcomes()
            await self.out.send(TextDelta(text))

    async def _outcomes(self) -> None:
        data = self.reply.data
        if data.outcomes or data.executed_cmds:
            await send_outcomes(NOTHING_DECIDED.decided, self.reply, self.out)
            for name in OUTCOMES:
                setattr(data, name, [])

    def _rest(self, done: Done) -> None:
        if done.stop_reason not in get_args(StopReason):
            raise AgentError(INVALID)
        self.stop = done.stop_reason
        reply, data = self.reply, dict(done.data or {})
        if links := reply.data.url_configs:
            data["url_configs"] = [*links, *data.get("url_configs", [])]
        fold_done(replace(done, data=data, meta_data={**reply.meta_data, **done.meta_data}), reply)
        _valid(reply)

    async def _whole(self, message: AgentMessage) -> None:
        """Take a whole message as its events, which are added to the items before them."""
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


async def send_outcomes(decided: Decided, reply: AgentMessage, out: Output) -> None:
    """Send the outcomes of the calls that the callable has carried out, then the further outcomes
    that its reply reports."""
    granted = {grant.proposal.id: grant.proposal.call_id for grant in decided.grants}
    if not granted and not (reply.data.outcomes or reply.data.executed_cmds):
        return
    own = {*granted, *granted.values()}
    data = outcomes_of(decided, list(granted)) if granted else out.reported
    data.executed_tool_calls += [e for e in reply.data.executed_tool_calls if e.id not in own]
    data.executed_cmds += [] if granted else reply.data.executed_cmds
    data.executed_approvals += [e for e in reply.data.executed_approvals if e.id not in own]
    await out.outcomes(data)


def _extend(data: Data, more: Data) -> None:
    for name in OUTCOMES:
        getattr(data, name).extend(getattr(more, name))
