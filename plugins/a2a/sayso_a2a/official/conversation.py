"""A2A messages read as a conversation.

Everything in a reply beside its text (proposals, outcomes, session) is stored in the metadata of
its message or artifact, so that a task is the whole record of its conversation.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from a2a.types import Artifact, Part, Role, Task, TaskState, TaskStatus
from a2a.types import Message as WireMessage
from a2a.utils.errors import InvalidParamsError
from google.protobuf.json_format import MessageToDict
from pydantic import ValidationError
from pydantic_core import from_json

from sayso import Data, Message
from sayso_a2a.artifacts import Json, text_of_parts, whole

OURS = "sayso"
"""The key of our part of the metadata of a message, an artifact or a part."""
REPLY = "reply"
"""The key of our metadata that marks an artifact as the reply that completed its task, or names the
artifact with the text of a message."""

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

    Interim status messages are left out, as are refused messages, and the text of a failure or a
    cancellation, which is not the agent's.
    """
    found: list[Message] = []
    for task in tasks:
        for message in _messages(task):
            ours = ours_of(message)
            if message.role == Role.ROLE_USER:
                found.append(user_message(message))
            elif ours.get("refused"):
                # A message that was sent again under the same id is in the history once.
                if found[-1].role == "user":
                    found.pop()
            elif not _is_aside(ours):
                found.append(_spoken(message.parts, ours, task))
        for artifact in task.artifacts:
            if (ours := ours_of(artifact)).get(REPLY):
                found.append(_spoken(artifact.parts, {**ours, REPLY: None}, task))
    return found


def _messages(task: Task) -> Iterator[WireMessage]:
    yield from task.history
    if task.status.HasField("message"):
        yield task.status.message


def _is_aside(ours: Mapping[str, Any]) -> bool:
    """Whether the message is about the task, and not part of the agent's words."""
    if "error" in ours:
        return "data" not in ours
    return bool(ours.get("progress") or ours.get("canceled"))


def ours_of(given: WireMessage | Artifact | Part) -> dict[str, Any]:
    """Our part of the metadata; empty without one."""
    found = MessageToDict(given.metadata).get(OURS, {})
    return found if isinstance(found, dict) else {}


def changed(task: Task, state: TaskState, message: WireMessage | None = None) -> Task:
    """A copy of the task in `state` with this message; the message of its previous state moves to
    the history."""
    copy = Task()
    copy.CopyFrom(task)
    if task.status.HasField("message"):
        copy.history.append(task.status.message)
    copy.status.CopyFrom(TaskStatus(state=state, message=message))
    copy.status.timestamp.GetCurrentTime()
    return copy


def _spoken(parts: Iterable[Part], ours: Mapping[str, Any], task: Task) -> Message:
    if said := ours.get(REPLY):
        parts = [p for each in task.artifacts if each.artifact_id == said for p in each.parts]
    texts = [p.text for p in parts if p.HasField("text") and not ours_of(p).get("waiting")]
    data = Data.model_validate(whole(ours["data"])) if "data" in ours else None
    if isinstance(session := ours.get("session"), str):
        data = data or Data()
        data.session = from_json(session)
    # The parts of a reply are the pieces that it was streamed in.
    content = "" if "error" in ours else "".join(texts)
    return Message(role="assistant", content=content, data=data)
