"""Answers of another agent, over either protocol, as results for our model."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from pydantic import BaseModel, ValidationError
from pydantic_core import to_json
from typing_extensions import TypedDict

from sayso import ToolResult
from sayso_a2a.artifacts import text_of_parts, whole

Json = dict[str, Any]


@dataclass(slots=True)
class Answer:
    """The other agent's answer: its task, the task's state, and the calls pending there."""

    task: str
    state: str
    text: str = ""
    waiting: list[Json] = field(default_factory=list)
    artifacts: list[Json] = field(default_factory=list)
    context: str = ""
    """The id by which a new message continues the conversation; empty where it cannot."""

    def result(self, decide: str) -> ToolResult:
        """The answer as a tool result for the model."""
        lines = [self.text] if self.text else []
        if len(self.artifacts) == 1 and not lines:
            lines.append(text_of_parts(self.artifacts[0].get("parts") or ()))
        else:
            lines += map(_artifact_text, self.artifacts)
        for call in self.waiting:
            named = {key: call.get(key) for key in ("id", "name", "input")}
            shown = to_json(named, inf_nan_mode="null").decode()
            lines.append(
                f"A call waits for a decision: {shown}. To have a person decide it, call "
                f"{decide} with task {self.task!r} and the call's id, name and input unchanged."
            )
        if self.state == "input-required":
            lines.append(f"The task {self.task!r} waits for input.")
        elif self.state != "completed" or not lines:
            lines.append(f"The task {self.task!r} is {self.state}.")
        structured = {"task": self.task, "state": self.state, "waiting": self.waiting}
        is_error = self.state in ("failed", "rejected", "canceled")
        return ToolResult(["\n".join(lines)], structured=structured, is_error=is_error)

    @property
    def runs(self) -> bool:
        """Whether the task is running: it has not ended, and waits for nobody."""
        return self.state in ("submitted", "working", "pending", "running")


def _artifact_text(artifact: Json) -> str:
    name = artifact.get("name") or artifact.get("artifactId", "artifact")
    return f"[{name}]\n{text_of_parts(artifact.get('parts') or ())}"


class _Artifact(TypedDict, total=False):
    name: str | None
    artifactId: str | None
    parts: list[Json] | None


class _Calls(BaseModel):
    tool_calls: list[Json] | None = None


class _Failure(BaseModel):
    message: str | None = None


class _Task(BaseModel):
    """A task in the contract's protocol; null means absent."""

    status: str
    task_id: str | None = None
    text: str | None = None
    error: _Failure | None = None
    metadata: _Calls | None = None
    artifacts: list[_Artifact] | None = None


def simple_answer(response: Any) -> Answer:
    content = json_of(response)
    if response.status_code != 200:
        raise ValueError(f"the remote agent answered {response.status_code}{_detail(content)}")
    try:
        task = _Task.model_validate(content)
    except ValidationError as error:
        wrong = error.errors(include_input=False, include_url=False)[0]
        where = ".".join(map(str, wrong["loc"])) or "the body"
        raise ValueError(f"the remote agent's answer is no task: {where} is wrong") from None
    text = task.text or (task.error and task.error.message) or ""
    waiting = (task.metadata and task.metadata.tool_calls) or []
    artifacts = [dict(artifact) for artifact in task.artifacts or ()]
    id = task.task_id or ""
    # A task that waits or was canceled accepts only messages with a decision.
    context = id if task.status in ("completed", "failed") else ""
    return Answer(id, task.status, text, waiting, artifacts, context)


def json_of(response: Any) -> Any:
    """The JSON value of a body; None if the body is not JSON."""
    try:
        return response.json()
    except (ValueError, RecursionError):
        return None


def _detail(content: Any) -> str:
    detail = content.get("detail") if isinstance(content, dict) else None
    if isinstance(detail, list) and detail and isinstance(detail[0], dict):
        detail = detail[0].get("msg")
    return "" if detail is None else f": {detail}"[:300]


def task_answer(task: Any) -> Answer:
    from a2a.types import TaskState
    from google.protobuf.json_format import MessageToDict

    shown = whole(MessageToDict(task))
    state = TaskState.Name(task.status.state).removeprefix("TASK_STATE_")
    text, waiting = _said(shown.get("status", {}).get("message", {}).get("parts", []))
    artifacts = list(shown.get("artifacts", ()))
    if (said := [each for each in artifacts if _ours(each).get("reply")]) and not text:
        # Another Sayso's reply.
        text = "".join(part.get("text", "") for part in said[-1].get("parts", ()))
        artifacts.remove(said[-1])
    named = state.lower().replace("_", "-")
    return Answer(task.id, named, text, waiting, artifacts, task.context_id)


def message_answer(message: Any) -> Answer:
    from google.protobuf.json_format import MessageToDict

    text, _ = _said(whole(MessageToDict(message)).get("parts", []))
    return Answer(message.task_id, "completed", text, context=message.context_id)


def _said(parts: Sequence[Json]) -> tuple[str, list[Json]]:
    """The text of the parts, and the pending calls among them."""
    said = [part for part in parts if "waiting" not in _ours(part)]
    texts = [str(part["text"]) for part in said if part.get("text")]
    waiting = [
        part["data"]
        for part in parts
        if isinstance(part.get("data"), dict)
        and part["data"].get("execute") is False
        and "id" in part["data"]
    ]
    return "\n".join(texts), waiting


def _ours(part: Json) -> Json:
    """The metadata of another Sayso; its words about pending calls are for people at a client."""
    ours = (part.get("metadata") or {}).get("sayso")
    return ours if isinstance(ours, dict) else {}
