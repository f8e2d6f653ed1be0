"""Our replies and pending calls as A2A messages and artifacts."""

from __future__ import annotations

import secrets
from collections.abc import Mapping, Sequence
from typing import Any, TypeVar

from a2a.types import Artifact, Task
from a2a.types import Message as WireMessage
from google.protobuf.json_format import ParseDict
from google.protobuf.message import Message as ProtobufMessage
from pydantic_core import to_json

from sayso import Approval, Data, Proposal
from sayso.trees import rebuilt
from sayso_a2a.artifacts import Json
from sayso_a2a.official.card import EXTENSION
from sayso_a2a.official.conversation import OURS
from sayso_a2a.waiting import outcome_words

P = TypeVar("P", bound=ProtobufMessage)


def agent_message(
    task_id: str,
    context_id: str,
    text: str,
    *,
    data: Data | None = None,
    waiting: Sequence[Approval] = (),
    words: str = "",
    ours: Mapping[str, Any] | None = None,
) -> WireMessage:
    """Our message: its text, `words` about the pending calls, one data part for each of them, and
    everything else as metadata."""
    parts: list[Json] = [{"text": text}] if text or not waiting else []
    if words:
        parts.append({"text": words, "metadata": {OURS: {"waiting": True}}})
    parts += [{"data": proposal_json(approval)} for approval in waiting]
    shown: Json = {
        "messageId": secrets.token_hex(16),
        "role": "ROLE_AGENT",
        "taskId": task_id,
        "contextId": context_id,
        "parts": parts,
    }
    if waiting:
        shown["extensions"] = [EXTENSION]
    if kept := {**(ours or {}), **kept_of(data)}:
        shown["metadata"] = {OURS: kept}
    return parsed(shown, WireMessage)


def kept_of(data: Data | None) -> Json:
    """The parts of a reply beside its text, as its metadata keeps them; empty for none."""
    kept: Json = {}
    if data is not None and (stated := _stated(data)):
        kept["data"] = stated
    if data is not None and data.session is not None:
        # Stored as text, so that large numbers and other values from a tool come back unchanged.
        kept["session"] = to_json(data.session, inf_nan_mode="null").decode()
    return kept


def parsed(shown: Json, kind: type[P]) -> P:
    """`shown` as protobuf. Its numbers are doubles, so larger integers are sent as text."""
    message: P = kind()
    try:
        ParseDict(shown, message)
    except OverflowError:
        message = kind()
        ParseDict(rebuilt(shown, _double), message)
    return message


def canceled_message(task: Task, rows: Sequence[Proposal]) -> WireMessage:
    """The status message of a canceled task, about its calls that had started."""
    running = any(row.state == "EXECUTING" for row in rows)
    ours: Json = {"canceled": True, "calls": [row.id for row in rows], "running": running}
    return agent_message(task.id, task.context_id, outcome_words(rows), ours=ours)


def decision_message(task: Task, decisions: Sequence[Json]) -> WireMessage:
    """The message that continues a task after decisions made elsewhere."""
    shown: Json = {
        "messageId": secrets.token_hex(16),
        "role": "ROLE_USER",
        "taskId": task.id,
        "contextId": task.context_id,
        "parts": [{"data": decision} for decision in decisions],
        "metadata": {OURS: {"elsewhere": True}},
    }
    return parsed(shown, WireMessage)


def reply_chunk(id: str, text: str, kept: Json | None = None) -> Artifact:
    """The text of a reply, or a piece of it, as an artifact; `kept` is its metadata of ours."""
    shown: Json = {"artifactId": id, "name": "reply", "parts": [{"text": text}]}
    if kept:
        shown["metadata"] = {OURS: kept}
    return parsed(shown, Artifact)


def _double(leaf: Any) -> Any:
    """A number that protobuf can hold; an integer beyond its doubles as text."""
    if isinstance(leaf, int):
        try:
            float(leaf)
        except OverflowError:
            return str(leaf)
    return leaf


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
        shown |= {"revision": approval.revision, "seen": approval.seen}
    return shown


def _stated(data: Data) -> dict[str, Any]:
    # The approvals contain the same calls.
    elsewhere = {"session", "tool_calls"} if data.approvals else {"session"}
    stated = data.model_dump(mode="json", exclude=elsewhere)
    return {name: value for name, value in stated.items() if value}
