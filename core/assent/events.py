"""What a turn sends (interface.md, "Stream events") and what handlers see ("Agent event hooks").

Stream events are plain dataclasses, since a reply may have thousands; `encode` is the only place
that writes them as JSON, and `fold` the only one that makes a reply of them.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from functools import lru_cache, partial
from math import isfinite
from typing import Any, ClassVar, Literal

from pydantic import BaseModel
from pydantic_core import PydanticSerializationError, to_json, to_jsonable_python

from assent.canonical import is_endless, may_hold_endless
from assent.messages import (
    AgentMessage,
    Approval,
    Command,
    Data,
    ExecutedApproval,
    ExecutedCommand,
    ExecutedToolCall,
    Message,
    Party,
    ToolCall,
)

StopReason = Literal[
    "end_turn", "approval_required", "max_tokens", "max_steps", "refusal", "blocked", "silent"
]


@dataclass(slots=True)
class TextDelta:
    """A piece of the reply's text."""

    text: str
    type: ClassVar[str] = "text_delta"


@dataclass(slots=True)
class IntermittentUpdate:
    """A status line while the turn runs; `content` is free."""

    text: str
    content: dict[str, Any] = field(default_factory=dict)
    type: ClassVar[str] = "intermittent_update"


@dataclass(slots=True)
class ToolCalls:
    """The tool calls that wait for a decision."""

    tool_calls: Sequence[ToolCall]
    type: ClassVar[str] = "tool_calls"


@dataclass(slots=True)
class Approvals:
    """The same proposals as `tool_calls` and `commands`, in one shape, sent before them."""

    approvals: Sequence[Approval]
    type: ClassVar[str] = "approvals"


@dataclass(slots=True)
class Commands:
    """The commands that wait for a decision."""

    commands: Sequence[Command]
    type: ClassVar[str] = "commands"


@dataclass(slots=True)
class ExecutedToolCalls:
    """The outcomes of approved tool calls."""

    executed_tool_calls: Sequence[ExecutedToolCall]
    type: ClassVar[str] = "executed_tool_calls"


@dataclass(slots=True)
class ExecutedCommands:
    """The outcomes of approved commands."""

    executed_cmds: Sequence[ExecutedCommand]
    type: ClassVar[str] = "executed_commands"


@dataclass(slots=True)
class ExecutedApprovals:
    """The outcomes of decisions that came through `approvals`, rejections among them."""

    executed_approvals: Sequence[ExecutedApproval]
    type: ClassVar[str] = "executed_approvals"


@dataclass(slots=True)
class Done:
    """The turn ended well. The last four fields are sent only when set."""

    stop_reason: StopReason = "end_turn"
    meta_data: dict[str, Any] = field(default_factory=dict)
    session: dict[str, Any] | None = None
    data: dict[str, Any] | None = None
    timestamp: str | None = None
    user: Party | None = None
    agent: Party | None = None
    type: ClassVar[str] = "done"


@dataclass(slots=True)
class ErrorEvent:
    """The turn failed. `incident` finds the log record."""

    error: str
    code: str | None = None
    incident: str | None = None
    type: ClassVar[str] = "error"


Event = (
    TextDelta
    | IntermittentUpdate
    | ToolCalls
    | Approvals
    | Commands
    | ExecutedToolCalls
    | ExecutedCommands
    | ExecutedApprovals
    | Done
    | ErrorEvent
)
_TEXT = b'{"type":"text_delta","text":'
_ALWAYS = {"stop_reason", "meta_data", "error", "text", "content"}


def encode(event: Event) -> bytes:
    """One event as a JSON object, UTF-8, without a line end."""
    if type(event) is TextDelta:
        # Most events are text: a third of a microsecond instead of three.
        return _TEXT + dump_json(event.text) + b"}"
    if type(event) is Done and _is_bare(event):
        return _bare_done(event.stop_reason)
    return _encoded(event)


def _encoded(event: Event) -> bytes:
    fields = {name: getattr(event, name) for name in event.__slots__}
    sent = {k: v for k, v in fields.items() if v is not None or k in _ALWAYS}
    return dump_json({"type": event.type, **sent})


def _is_bare(done: Done) -> bool:
    return not (
        done.meta_data
        or done.session is not None
        or done.data is not None
        or done.timestamp is not None
        or done.user is not None
        or done.agent is not None
    )


@lru_cache
def _bare_done(stop_reason: StopReason) -> bytes:
    # Most turns end with one of two or three such events: none of them is written twice.
    return _encoded(Done(stop_reason))


_DEEPEST = 100
"""Levels of what is made to fit."""


def dump_json(value: Any) -> bytes:
    """`value` as JSON, UTF-8; what no JSON holds, which only user code can bring, is made to fit.

    Infinities, NaN and endless integers become null, lone surrogates "?", and other objects their
    text; so does what holds itself.
    """
    try:
        raw = to_json(value, inf_nan_mode="null")
    except PydanticSerializationError:
        return to_json(_fitting(value), inf_nan_mode="null")
    if may_hold_endless(raw):
        return to_json(_fitting(value), inf_nan_mode="null")
    return raw


def sendable(event: Event) -> Event:
    """`event` itself, or its like of what JSON holds, where it has more, as `dump_json` does."""
    if type(event) is TextDelta and _is_text(event.text):
        # A stream may have thousands at a time, for the loop that all requests are read on.
        return event
    fields = {name: getattr(event, name) for name in event.__slots__}
    try:
        raw = to_json(fields)
    except PydanticSerializationError:
        raw = b"NaN"
    if not (b"NaN" in raw or b"Infinity" in raw or may_hold_endless(raw)):
        return event
    return replace(event, **{name: _like(value) for name, value in fields.items()})


def _is_text(value: object) -> bool:
    """Whether JSON holds it: a `str` without half a surrogate pair."""
    try:
        return type(value) is str and (value.isascii() or bool(value.encode()))
    except UnicodeEncodeError:
        return False


def _like(value: Any) -> Any:
    match value:
        case list():
            return [_like(item) for item in value]
        case BaseModel():
            return type(value).model_validate(_fitting(value))
    return _fitting(value)


def _fitting(value: Any, within: tuple[int, ...] = ()) -> Any:
    match value:
        case float() if not isfinite(value):
            return None
        case int() if is_endless(value):
            return None
        case None | bool() | int() | float():
            return value
        case str():
            return value.encode("utf-8", "replace").decode()
        case BaseModel():
            return _fitting(value.model_dump(warnings=False), within)
    ends = id(value) not in within and len(within) < _DEEPEST
    inner = (*within, id(value))
    match value:
        case dict() if ends:
            return {_fitting(_name(key)): _fitting(item, inner) for key, item in value.items()}
        case list() | tuple() | set() | frozenset() if ends:
            return [_fitting(item, inner) for item in value]
    try:
        return to_jsonable_python(value, inf_nan_mode="null")
    except Exception:
        return _fitting(f"<{type(value).__name__}>")


def _name(key: object) -> str:
    try:
        return str(key)
    except Exception:
        # An endless integer, or a text that fails to be made.
        return f"<{type(key).__name__}>"


def encode_lines(events: Sequence[Event | str]) -> bytes:
    """The events as NDJSON, as `encode` writes each; a `str` stands for the TextDelta of it."""
    return unbroken(_encoded_lines(events))


# Not escaped in JSON, and an end of a line to Python's `str.splitlines`, by which clients on httpx
# read lines and server-sent events.
_LINE_ENDS = (("\x85", rb"\u0085"), ("\u2028", rb"\u2028"), ("\u2029", rb"\u2029"))


def unbroken(lines: bytes) -> bytes:
    """The same lines of JSON, UTF-8, with nothing inside of one that a client could take for its
    end: U+0085, U+2028 and U+2029 are escaped."""
    if not lines.isascii():
        for character, escape in _LINE_ENDS:
            lines = lines.replace(character.encode(), escape)
    return lines


def _encoded_lines(events: Sequence[Event | str]) -> bytes:
    lines: list[bytes] = []
    start = 0
    for n, event in enumerate(events):
        if type(event) is not str:
            lines += (text_lines(events[start:n]), encode(event), b"\n")  # type: ignore[arg-type]
            start = n + 1
    rest = text_lines(events[start:] if start else events)  # type: ignore[arg-type]
    return b"".join([*lines, rest]) if lines else rest


# A letter that JSON escapes and that texts hardly ever hold.
_MARK = "\x1e"
_ESCAPED_MARK = to_json(_MARK)[1:-1]
_BETWEEN = b'"}\n' + _TEXT + b'"'


def text_lines(pieces: Sequence[str]) -> bytes:
    """The lines of text deltas, as `encode` writes each."""
    if not pieces:
        return b""
    # One call for all of them: a twentieth of a microsecond for each instead of a third. What
    # stands between two pieces is told from their text: a backslash could be half of an escape.
    joined = _MARK.join(pieces)
    alone = len(pieces) == 1
    if alone or ("\\" not in joined and joined.count(_MARK) == len(pieces) - 1):
        try:
            text = to_json(joined)
        except PydanticSerializationError:
            pass
        else:
            return _TEXT + (text if alone else text.replace(_ESCAPED_MARK, _BETWEEN)) + b"}\n"
    return b"".join([_TEXT + dump_json(piece) + b"}\n" for piece in pieces])


def decode(line: bytes | str) -> dict[str, Any]:
    """The JSON object of one line of a stream; for clients."""
    event: dict[str, Any] = json.loads(line)
    return event


def fold(events: Iterable[Event]) -> AgentMessage:
    """The reply that a turn's events amount to; an `error` event is left to the caller."""
    text: list[str] = []
    data = Data()
    reply = AgentMessage(data=data)
    for event in events:
        match event:
            case TextDelta(text=piece):
                text.append(piece)
            case ToolCalls():
                data.tool_calls = list(event.tool_calls)
            case Approvals():
                data.approvals = list(event.approvals)
            case Commands():
                data.cmds = list(event.commands)
            case ExecutedToolCalls():
                data.executed_tool_calls = list(event.executed_tool_calls)
            case ExecutedCommands():
                data.executed_cmds = list(event.executed_cmds)
            case ExecutedApprovals():
                data.executed_approvals = list(event.executed_approvals)
            case Done():
                fold_done(event, reply)
    reply.content = "".join(text)
    return reply


def _text_template() -> tuple[bytes, bytes]:
    before, _, after = dump_json(AgentMessage(content="@")).partition(b'"@"')
    return before, after


_TEXT_BEFORE, _TEXT_AFTER = _text_template()


def reply_json(events: Sequence[Event]) -> bytes:
    """The reply that a turn's events amount to, as JSON: `fold`, serialised."""
    last = events[-1] if events else None
    if type(last) is Done and _is_bare(last):
        # Most replies are text alone: two models less to make and to serialise.
        texts = [event.text for event in events if type(event) is TextDelta]
        if len(texts) == len(events) - 1:
            return _TEXT_BEFORE + dump_json("".join(texts)) + _TEXT_AFTER
    return dump_json(fold(events))


def fold_done(done: Done, reply: AgentMessage) -> None:
    """Fill in what of `reply` its `done` event carries."""
    if done.data:
        merged = {**reply.data.model_dump(), **done.data}
        reply.data = Data.model_validate(merged)
    if done.session is not None:
        reply.data.session = done.session
    # Setting a field of a model costs a microsecond, and most are absent.
    if done.meta_data:
        reply.meta_data = done.meta_data
    if done.timestamp is not None:
        reply.timestamp = done.timestamp
    if done.user is not None:
        reply.user = done.user
    if done.agent is not None:
        reply.agent = done.agent


@dataclass(slots=True)
class AgentEvent:
    """What handlers of `on_event` get (interface.md, "Agent event hooks")."""

    event_type: ClassVar[str] = ""
    timestamp: datetime = field(default_factory=partial(datetime.now, UTC), kw_only=True)


@dataclass(slots=True)
class ConversationStarted(AgentEvent):
    """A request with a single message came in."""

    event_type: ClassVar[str] = "ConversationStarted"


@dataclass(slots=True)
class ApprovalRequested(AgentEvent):
    """Proposals were recorded and wait for decisions."""

    proposals: Sequence[Approval]
    event_type: ClassVar[str] = "ApprovalRequested"


@dataclass(slots=True)
class ToolCallApproved(AgentEvent):
    """A proposal was approved for the first time, by `principal` where known."""

    call: Approval
    principal: str | None = None
    reason: str | None = None
    event_type: ClassVar[str] = "ToolCallApproved"


@dataclass(slots=True)
class ToolCallRejected(AgentEvent):
    """A proposal was rejected for the first time, with `reason`."""

    call: Approval
    reason: str | None = None
    principal: str | None = None
    event_type: ClassVar[str] = "ToolCallRejected"


@dataclass(slots=True)
class ToolExecuted(AgentEvent):
    """A tool or command ran; `duration` is in seconds."""

    call: Approval
    output: str
    duration: float
    event_type: ClassVar[str] = "ToolExecuted"


@dataclass(slots=True)
class ToolExecutionFailed(AgentEvent):
    """A tool or command failed, or its end is unknown; `duration` is in seconds."""

    call: Approval
    error: str
    duration: float
    event_type: ClassVar[str] = "ToolExecutionFailed"


@dataclass(slots=True)
class MessageAdded(AgentEvent):
    """The current user message, then the reply, entered the conversation."""

    message: Message | AgentMessage
    event_type: ClassVar[str] = "MessageAdded"
