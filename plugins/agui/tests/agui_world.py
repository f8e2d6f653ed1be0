"""A page that behaves like AG-UI's client; the protocol's own models check each event."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from ag_ui.core import Event
from pydantic import TypeAdapter

from sayso import Call, Caller
from sayso.testing import Service

Json = dict[str, Any]
CONFIG = 'plugins = ["agui", "v2", "console"]\n[server]\nhost = "127.0.0.1"\n'
_events: TypeAdapter[Any] = TypeAdapter(Event)


ELSEWHERE = Caller("console")


@dataclass
class World:
    """A service, and what its tool has deleted."""

    service: Service
    model: Any
    deleted: list[str] = field(default_factory=list)

    def decide(self, id: str, *, approve: bool, reason: str = "no") -> None:
        """Decide as a person on another surface, such as the console."""
        calls = self.service.host.calls
        why = None if approve else reason
        asyncio.run(calls.decide(id, ELSEWHERE, approved=approve, reason=why, run=False))


class Page:
    """One thread. `messages` are the client's, made from the events; `version` is the declared
    one."""

    def __init__(self, world: World, version: str | None = "1.0", **headers: str) -> None:
        self.world = world
        self.version = version
        self.headers = headers
        self.messages: list[Json] = []
        self.state: Json = {}
        self.events: list[Json] = []
        self.runs = 0

    def say(self, text: str) -> list[Json]:
        """Run with a user's message; returns the events."""
        self.messages.append({"id": f"u{len(self.messages)}", "role": "user", "content": text})
        return self.run()

    def resume(self, *entries: Json, **fields: Any) -> list[Json]:
        """Run with answers to interrupts."""
        return self.run(resume=list(entries), **fields)

    def connect(self) -> list[Json]:
        """The request of a page that was reloaded with the messages that it kept."""
        return self.run("/agui/connect")

    def run(self, path: str = "/agui", **fields: Any) -> list[Json]:
        """One run; the events are checked for their order, too."""
        self.runs += 1
        sent: Json = {
            "threadId": "t",
            "runId": f"r{self.runs}",
            "messages": self.messages,
            "state": self.state,
            "tools": [],
            "context": [],
            "forwardedProps": {},
        }
        if self.version:
            sent["protocolVersion"] = self.version
        answer = self.world.service.post(path, sent | fields, self.headers)
        assert answer.status == 200, answer.text
        assert b"\r" not in answer.body and b": null" not in answer.body
        frames = [f for f in answer.text.split("\n\n") if f and not f.startswith(":")]
        self.events = [json.loads(frame.removeprefix("data: ")) for frame in frames]
        for event in self.events:
            _events.validate_python(event)
            self._take(event)
        assert self.events[0]["type"] == "RUN_STARTED"
        assert self.events[-1]["type"] in ("RUN_FINISHED", "RUN_ERROR")
        return self.events

    @property
    def interrupts(self) -> list[Json]:
        """The interrupts of the last run."""
        outcome = self.events[-1].get("outcome", {})
        return list(outcome.get("interrupts", []))

    @property
    def text(self) -> str:
        """The text of the last run."""
        return "".join(e["delta"] for e in self.of("TEXT_MESSAGE_CONTENT"))

    def of(self, kind: str) -> list[Json]:
        """The events of a kind."""
        return [event for event in self.events if event["type"] == kind]

    def _take(self, event: Json) -> None:
        match event["type"]:
            case "TEXT_MESSAGE_START":
                new = {"id": event["messageId"], "role": "assistant", "content": ""}
                self.messages.append(new)
            case "TEXT_MESSAGE_CONTENT":
                self._message(event["messageId"])["content"] += event["delta"]
            case "TOOL_CALL_START":
                function = {"name": event["toolCallName"], "arguments": ""}
                call = {"id": event["toolCallId"], "type": "function", "function": function}
                parent = event.get("parentMessageId")
                if parent is None:
                    parent = event["toolCallId"]
                    self.messages.append({"id": parent, "role": "assistant", "content": ""})
                self._message(parent).setdefault("toolCalls", []).append(call)
            case "TOOL_CALL_ARGS":
                calls = [c for m in self.messages for c in m.get("toolCalls", [])]
                call = next(c for c in calls if c["id"] == event["toolCallId"])
                call["function"]["arguments"] += event["delta"]
            case "TOOL_CALL_RESULT":
                new = {"id": event["messageId"], "role": "tool", "content": event["content"]}
                self.messages.append(new | {"toolCallId": event["toolCallId"]})
            case "STATE_SNAPSHOT":
                self.state = event["snapshot"]

    def _message(self, id: str) -> Json:
        return next(m for m in self.messages if m["id"] == id)


def resolved(interrupt: Json, approved: object = True, **payload: Any) -> Json:
    """The answer to an interrupt."""
    given = {"approved": approved, **payload}
    return {"interruptId": interrupt["id"], "status": "resolved", "payload": given}


Start = Callable[..., World]


def deletion(*names: str) -> list[Call]:
    """A step of the model that asks for these deletions."""
    return [Call(f"call_{n}", "delete", {"name": name}) for n, name in enumerate(names)]
