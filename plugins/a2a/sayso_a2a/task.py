"""A task of the simple adapter: its shape, its conversation, and its state after a turn."""

from __future__ import annotations

import time
from collections.abc import Container, Sequence
from datetime import UTC, datetime
from typing import Any, Literal

from pydantic import BaseModel, Field

from sayso import AgentMessage, Approval, Message, Proposal
from sayso_a2a.artifacts import Json
from sayso_a2a.rows import Row
from sayso_a2a.turned import Turned
from sayso_a2a.waiting import outcome_words, waiting_words

Status = Literal["pending", "running", "input-required", "completed", "failed", "canceled"]
LEASE = 15.0
"""Seconds after which a running task counts as failed if its process does not renew the lease."""
SWEEP_EVERY = 60.0
"""Seconds between two sweeps for expired tasks, waiting ones, and those of dead processes."""
LEFT_BEHIND = (
    "the process that ran the task has given no sign of life for the time of its lease; what it "
    "ran may have taken effect, and may go on"
)
BUSY = ("pending", "running")
_STATES: dict[str, Status] = {
    "completed": "completed",
    "input-required": "input-required",
    "auth-required": "input-required",
    "failed": "failed",
    "rejected": "failed",
}
_SHOWN = (
    "tool_calls",
    "approvals",
    "cmds",
    "executed_tool_calls",
    "executed_cmds",
    "executed_approvals",
    "url_configs",
)


class Task(BaseModel):
    """One task with its conversation (design, section 7, "A2A task")."""

    id: str
    owner: str = ""
    text: str = ""
    status: Status = "pending"
    artifacts: list[Json] = Field(default=[])
    metadata: dict[str, Any] = Field(default={})
    error: dict[str, Any] | None = None
    messages: list[Message] = Field(default=[])
    run: str = ""
    """The run that may write the outcome; a canceled task has none."""

    def json_body(self) -> dict[str, Any]:
        """The task as callers see it."""
        shown: dict[str, Any] = {
            "task_id": self.id,
            "text": self.text,
            "status": self.status,
            "artifacts": self.artifacts,
            "metadata": self.metadata,
        }
        if self.error is not None:
            shown["error"] = self.error
        return shown

    def row(self) -> Row:
        """The task as the store has it; if it runs, its lease starts now."""
        body = self.model_dump_json().encode()
        lease = time.time() + LEASE if self.status in BUSY else 0.0
        return Row(self.id, self.owner, "", self.status, time.time_ns(), body, lease)


def task_of(row: Row | None, mine: Container[str] = ()) -> Task | None:
    """The task in `row`. It has failed if its lease ran out, unless its run is in `mine`."""
    if row is None:
        return None
    task = Task.model_validate_json(row.body)
    if task.status in BUSY and row.lease < time.time() and task.run not in mine:
        task.status, task.run = "failed", ""
        task.error = {
            "message": LEFT_BEHIND,
            "code": "INTERRUPTED",
        }
    return task


def proposals_of(messages: Sequence[Message]) -> list[Approval]:
    """The proposals of the newest reply; empty if there are none."""
    spoken = next((m for m in reversed(messages) if m.role == "assistant"), None)
    return list(spoken.data.approvals) if spoken is not None and spoken.data else []


def now() -> str:
    """The time in UTC, ISO 8601 with milliseconds, in the form of a task's metadata."""
    return datetime.now(UTC).isoformat(timespec="milliseconds")


def ended(task: Task, turned: Turned) -> Task:
    """The task after a turn that was not refused."""
    reply = turned.reply()
    status = _STATES.get(turned.state, "completed")
    update: dict[str, Any] = {
        "status": status,
        "text": reply.content,
        "run": "",
        "artifacts": _joined(task.artifacts, turned.artifacts),
        "metadata": {**task.metadata, "updated": now(), **_metadata(reply, turned)},
        "messages": [*task.messages, _spoken(reply)],
    }
    if turned.error is not None:
        update["error"] = {
            "message": turned.error.error,
            "code": turned.error.code,
            "incident": turned.error.incident,
        }
        update["messages"] = task.messages
    elif status == "failed":
        code = "REJECTED" if turned.state == "rejected" else "FAILED"
        update["error"] = {"message": reply.content, "code": code}
    return task.model_copy(update=update)


def left_waiting(before: Task, turned: Turned, waiting: Sequence[Approval]) -> Task:
    """The task after a turn without decisions on its calls: unchanged, with the new messages
    added."""
    reply = turned.reply()
    spoken = next(m.data for m in reversed(before.messages) if m.role == "assistant")
    assert spoken is not None
    ids = {proposal.id for proposal in waiting}
    for name in ("tool_calls", "approvals", "cmds"):
        setattr(reply.data, name, [item for item in getattr(spoken, name) if item.id in ids])
    created = before.metadata.get("created", now())
    update: dict[str, Any] = {
        "status": "input-required",
        "text": reply.content,
        "error": None,
        "metadata": {"created": created, "updated": now(), **_metadata(reply, turned)},
    }
    return before.model_copy(update=update)


def denied(task: Task) -> Task:
    """The task whose proposals are rejected, since nobody approves over this protocol."""
    error = {"message": waiting_words(proposals_of(task.messages), "deny"), "code": "REJECTED"}
    return task.model_copy(update={"status": "failed", "error": error})


def with_outcomes(task: Task, rows: Sequence[Proposal]) -> Task:
    """A canceled task with the outcomes of its calls that had started."""
    running = [row.id for row in rows if row.state == "EXECUTING"]
    metadata = {**task.metadata, "updated": now(), "running": running}
    return task.model_copy(update={"text": outcome_words(rows), "metadata": metadata})


def _joined(before: list[Json], new: list[Json]) -> list[Json]:
    fresh = {artifact["artifactId"] for artifact in new}
    return [*(a for a in before if a["artifactId"] not in fresh), *new]


def _metadata(reply: AgentMessage, turned: Turned) -> dict[str, Any]:
    data = reply.data.model_dump(mode="json")
    shown = {name: data[name] for name in _SHOWN if data[name]}
    if turned.done is not None:
        shown["stop_reason"] = turned.done.stop_reason
    return {**reply.meta_data, **shown}


def _spoken(reply: AgentMessage) -> Message:
    return Message(role="assistant", content=reply.content, data=reply.data)
