"""A turn's events read as changes of a task; shared by the adapters."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from sayso import (
    AgentMessage,
    Done,
    ErrorEvent,
    Event,
    Failure,
    IntermittentUpdate,
    TextDelta,
    fold,
)
from sayso_a2a.artifacts import Json, merged
from sayso_a2a.incoming import KEY


def own(content: Mapping[str, Any] | None) -> Mapping[str, Any]:
    """The A2A part of a status line or of a reply's data; empty if there is none."""
    found = (content or {}).get(KEY)
    return found if isinstance(found, Mapping) else {}


class Turned:
    """One turn: its events as they arrive; at the end its reply, artifacts and task state."""

    def __init__(self) -> None:
        self._text: list[str] = []
        self._events: list[Event] = []
        self.artifacts: list[Json] = []
        self.done: Done | None = None
        self.error: ErrorEvent | None = None
        self.failure: Failure | None = None
        """How the turn failed, with what its `error` event does not have."""

    def add(self, event: Event) -> None:
        """Add one event, in order."""
        match event:
            case TextDelta(text=piece):
                # Only the text, not the event: a reply may have a hundred thousand chunks.
                self._text.append(piece)
                return
            case IntermittentUpdate(content=content):
                said = own(content)
                if "artifact" in said:
                    merged(self.artifacts, said["artifact"], append=bool(said.get("append")))
                return
            case Done():
                self.done = event
                for artifact in own(event.data).get("artifacts", ()):
                    merged(self.artifacts, artifact, append=False)
            case ErrorEvent():
                self.error = event
            case _:
                pass
        self._events.append(event)

    def reply(self) -> AgentMessage:
        """The reply, without the A2A part of its data."""
        reply = fold([TextDelta("".join(self._text)), *self._events])
        (reply.data.model_extra or {}).pop(KEY, None)
        reply.meta_data = {k: v for k, v in reply.meta_data.items() if k != "request_context"}
        return reply

    @property
    def refused(self) -> bool:
        """Whether the request was refused before anything ran; such errors have no incident."""
        return self.error is not None and self.error.incident is None

    @property
    def withheld(self) -> bool:
        """Whether the request was blocked or silenced."""
        return self.done is not None and self.done.stop_reason in ("blocked", "silent")

    @property
    def proposes(self) -> bool:
        """Whether the turn ended with pending calls."""
        return self.done is not None and self.done.stop_reason == "approval_required"

    @property
    def state(self) -> str:
        """The task's state, in A2A's words."""
        if self.error is not None:
            return "failed"
        if self.proposes:
            return "input-required"
        stated = own(self.done.data if self.done else None).get("state", "completed")
        return str(stated)
