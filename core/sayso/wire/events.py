"""Stream events (interface.md, "Stream events"), and the events of handlers ("Agent event hooks").

Stream events are plain dataclasses, since a reply may have thousands. `encode`, in `chat`, is
the only place that writes them as JSON, and `fold` the only one that makes a reply of them.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import cache, partial
from typing import Any, ClassVar, Literal, get_args

from pydantic import TypeAdapter

from sayso.wire.messages import (
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

_PLACE = re.compile(r"\Abody(\.\w+)*: ")
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
    """The pending tool calls."""

    tool_calls: Sequence[ToolCall]
    type: ClassVar[str] = "tool_calls"


@dataclass(slots=True)
class Approvals:
    """The same proposals as `tool_calls` and `commands`, in one shape, sent before them."""

    approvals: Sequence[Approval]
    type: ClassVar[str] = "approvals"


@dataclass(slots=True)
class Commands:
    """The pending commands."""

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
    """The outcomes of decisions made through `approvals`, including rejections."""

    executed_approvals: Sequence[ExecutedApproval]
    type: ClassVar[str] = "executed_approvals"


@dataclass(slots=True)
class Done:
    """The turn ended successfully. The last four fields are sent only if set."""

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
    """The turn failed. The log record can be found by `incident`."""

    error: str
    code: str | None = None
    incident: str | None = None
    type: ClassVar[str] = "error"

    @property
    def words(self) -> str:
        """The error without the place in a chat request, for callers who sent another body."""
        return _PLACE.sub("", self.error)


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


_KINDS: Mapping[str, Any] = {kind.type: kind for kind in get_args(Event)}


def is_event(value: object) -> bool:
    """Whether `value` is an event in its sent form: an object with its `type`."""
    return isinstance(value, Mapping) and str(value.get("type")) in _KINDS


def event_from(sent: Mapping[str, Any]) -> Event:
    """The event of such an object; raises ValidationError for one with wrong fields."""
    fields = {name: value for name, value in sent.items() if name != "type"}
    event: Event = _reader(sent["type"]).validate_python(fields)
    return event


@cache
def _reader(name: str) -> TypeAdapter[Any]:
    return TypeAdapter(_KINDS[name])


def outcomes_of(event: Event) -> Sequence[ExecutedApproval]:
    """The outcomes that an event reports, those of all its kinds in one shape.

    The output of a call that did not succeed begins with "Error:", "Rejected:" or "Outcome
    unknown:".
    """
    match event:
        case ExecutedApprovals():
            return event.executed_approvals
        case ExecutedToolCalls():
            return [
                ExecutedApproval(id=e.id, name=e.name, input=e.input, output=e.output)
                for e in event.executed_tool_calls
            ]
        case ExecutedCommands():
            return [
                ExecutedApproval(
                    id=e.id or "",
                    type="command",
                    name="command",
                    input={"command": e.command},
                    output=e.output,
                )
                for e in event.executed_cmds
            ]
        case _:
            return ()


def fold(events: Iterable[Event], *, stop_reason: bool = True) -> AgentMessage:
    """The reply made of a turn's events; an `error` event is left to the caller.

    The reason why the turn stopped is in `meta_data.stop_reason` unless it is `end_turn`; without
    `stop_reason` it is left out, as in V1.
    """
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
                if stop_reason and event.stop_reason != "end_turn":
                    reply.meta_data = {**reply.meta_data, "stop_reason": event.stop_reason}
    reply.content = "".join(text)
    return reply


def fold_done(done: Done, reply: AgentMessage) -> None:
    """Fill in the parts of `reply` that its `done` event carries."""
    if done.data:
        merged = {**reply.data.model_dump(), **done.data}
        reply.data = Data.model_validate(merged)
    if done.session is not None:
        reply.data.session = done.session
    # Setting a field of a model takes a microsecond, and most are absent.
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
    """The base of the events for handlers of `on_event` (interface.md, "Agent event hooks")."""

    event_type: ClassVar[str] = ""
    timestamp: datetime = field(default_factory=partial(datetime.now, UTC), kw_only=True)


@dataclass(slots=True)
class ConversationStarted(AgentEvent):
    """A request with a single message arrived."""

    event_type: ClassVar[str] = "ConversationStarted"


@dataclass(slots=True)
class ApprovalRequested(AgentEvent):
    """Proposals were recorded and are pending."""

    proposals: Sequence[Approval]
    event_type: ClassVar[str] = "ApprovalRequested"


@dataclass(slots=True)
class ToolCallApproved(AgentEvent):
    """A proposal was approved for the first time, by `principal` if known."""

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
    """A tool or command failed, or its outcome is unknown; `duration` is in seconds."""

    call: Approval
    error: str
    duration: float
    event_type: ClassVar[str] = "ToolExecutionFailed"


@dataclass(slots=True)
class ModelCalled(AgentEvent):
    """A model was called; `duration` is in seconds, `price` in US dollars where it is known.

    `input_tokens` are all that it read, those in `cached_tokens` and `cache_write_tokens` among
    them; `reasoning_tokens` are part of `output_tokens`. `error` is the kind of a failed call.
    """

    provider: str
    model: str
    duration: float
    input_tokens: int = 0
    output_tokens: int = 0
    cached_tokens: int = 0
    cache_write_tokens: int = 0
    reasoning_tokens: int = 0
    stop: str | None = None
    error: str | None = None
    price: float | None = None
    event_type: ClassVar[str] = "ModelCalled"


@dataclass(slots=True)
class MessageAdded(AgentEvent):
    """The current user message, then the reply, entered the conversation."""

    message: Message | AgentMessage
    event_type: ClassVar[str] = "MessageAdded"
