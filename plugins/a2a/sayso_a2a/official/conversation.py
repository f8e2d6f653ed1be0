"""A2A messages read as a conversation, and our replies written as A2A messages.

Everything in a reply beside its text (proposals, outcomes, session) is stored in the metadata of
its message, so that a task's history is the whole record of its conversation.
"""

from __future__ import annotations

import secrets
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, TypeVar

from a2a.types import Message as WireMessage
from a2a.types import Role, Task, TaskState, TaskStatus
from a2a.utils.errors import InvalidParamsError
from google.protobuf.json_format import MessageToDict, ParseDict
from google.protobuf.message import Message as ProtobufMessage
from pydantic import ValidationError
from pydantic_core import from_json, to_json

from sayso import Approval, Data, Message
from sayso_a2a.artifacts import Json, text_of_parts, whole

P = TypeVar("P", bound=ProtobufMessage)
OURS = "sayso"
"""The key of our part of a message's metadata."""

_LISTS = ("approvals", "tool_calls", "cmds")


def parts_of(message: WireMessage) -> list[Json]:
    """The parts as objects, in the form of A2A 1.0."""
    return [whole(MessageToDict(part)) for part in message.parts]


def user_message(message: WireMessage) -> Message:
    """The caller's message: text, and the decisions in its data parts.

    A decision is a data part `{id, execute: true}` or `{id, rejection_reason}`, optionally with the
    `name` and `input` that it decides on; or an object with lists of them, in the form of the chat
    endpoints. Raises InvalidParamsError for a part that is neither.
    """
    decisions: dict[str, list[Any]] = {name: [] for name in _LISTS}
    rest: list[Json] = []
    for part in parts_of(message):
        data = part.get("data")
        if isinstance(data, dict) and "id" in data and {"execute", "rejection_reason"} & {*data}:
            decisions["approvals"].append(data)
        elif isinstance(data, dict) and set(_LISTS) & set(data):
            for name in _LISTS:
                given = data.get(name) or []
                if not isinstance(given, list):
                    raise InvalidParamsError(message=f"a decision is wrong: {name} is a list")
                decisions[name] += given
        else:
            rest.append(part)
    return Message(role="user", content=text_of_parts(rest), data=_decided(decisions))


def _decided(decisions: Mapping[str, list[Any]]) -> Data | None:
    if not any(decisions.values()):
        return None
    try:
        return Data.model_validate({name: items for name, items in decisions.items() if items})
    except ValidationError as error:
        found = error.errors(include_url=False, include_context=False, include_input=False)
        first = found[0]
        where = ".".join(str(step) for step in first["loc"])
        raise InvalidParamsError(message=f"a decision is wrong: {where}: {first['msg']}") from None


def conversation(tasks: Iterable[Task]) -> list[Message]:
    """The messages of the tasks, in order.

    Interim status messages are left out, as are refused messages, and the text of a failure, which
    is not the agent's.
    """
    found: list[Message] = []
    for task in tasks:
        said = [*task.history]
        if task.status.HasField("message"):
            said.append(task.status.message)
        for message in said:
            ours = MessageToDict(message.metadata).get(OURS, {})
            if message.role == Role.ROLE_USER:
                found.append(user_message(message))
            elif ours.get("refused"):
                # A message that was sent again under the same id is in the history once.
                if found[-1].role == "user":
                    found.pop()
            elif not ours.get("progress") and ("error" not in ours or "data" in ours):
                found.append(_spoken(message, ours))
    return found


def changed(task: Task, state: TaskState) -> Task:
    """A copy of the task in `state`; the message of its previous state moves to the history."""
    copy = Task()
    copy.CopyFrom(task)
    if task.status.HasField("message"):
        copy.history.append(task.status.message)
    copy.status.CopyFrom(TaskStatus(state=state))
    copy.status.timestamp.GetCurrentTime()
    return copy


def _spoken(message: WireMessage, ours: Mapping[str, Any]) -> Message:
    texts = [part.text for part in message.parts if part.HasField("text")]
    data = Data.model_validate(whole(ours["data"])) if "data" in ours else None
    if isinstance(session := ours.get("session"), str):
        data = data or Data()
        data.session = from_json(session)
    content = "" if "error" in ours else "\n".join(texts)
    return Message(role="assistant", content=content, data=data)


def agent_message(
    task_id: str,
    context_id: str,
    text: str,
    *,
    data: Data | None = None,
    approvals: Sequence[Approval] = (),
    ours: Mapping[str, Any] | None = None,
) -> WireMessage:
    """Our message: its text, one data part for each proposal, and everything else as metadata."""
    parts: list[Json] = [{"text": text}] if text or not approvals else []
    parts += [{"data": proposal_json(approval)} for approval in approvals]
    kept = dict(ours or {})
    if data is not None and (stated := _stated(data)):
        kept["data"] = stated
    if data is not None and data.session is not None:
        # Stored as text, so that large numbers and other values from a tool come back unchanged.
        kept["session"] = to_json(data.session, inf_nan_mode="null").decode()
    shown: Json = {
        "messageId": secrets.token_hex(16),
        "role": "ROLE_AGENT",
        "taskId": task_id,
        "contextId": context_id,
        "parts": parts,
    }
    if kept:
        shown["metadata"] = {OURS: kept}
    return parsed(shown, WireMessage)


def parsed(shown: Json, kind: type[P]) -> P:
    """`shown` as protobuf. Its numbers are doubles, so larger integers are sent as text."""
    message: P = kind()
    try:
        ParseDict(shown, message)
    except OverflowError:
        message = kind()
        ParseDict(_in_doubles(shown), message)
    return message


def _in_doubles(value: Any) -> Any:
    match value:
        case int():
            try:
                float(value)
            except OverflowError:
                return str(value)
        case dict():
            return {name: _in_doubles(item) for name, item in value.items()}
        case list():
            return [_in_doubles(item) for item in value]
    return value


def proposal_json(approval: Approval) -> Json:
    """A proposal as a data part; sent back with `execute` true it is the approval."""
    shown = {
        "id": approval.id,
        "type": approval.type,
        "name": approval.name,
        "input": approval.input,
        "execute": False,
        "description": approval.description,
    }
    if approval.intent:
        shown["intent"] = approval.intent
    if approval.input_description:
        shown["input_description"] = approval.input_description
    if approval.bound:
        shown["bound"] = approval.bound
    if approval.revision is not None:
        shown["revision"] = approval.revision
    return shown


def _stated(data: Data) -> dict[str, Any]:
    # The approvals contain the same calls.
    elsewhere = {"session", "tool_calls"} if data.approvals else {"session"}
    stated = data.model_dump(mode="json", exclude=elsewhere)
    return {name: value for name, value in stated.items() if value}
