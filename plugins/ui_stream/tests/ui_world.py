"""A page that behaves like the AI SDK: it keeps messages of parts, and posts all of them each
time."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from sayso import Call, Caller
from sayso.testing import Service

Json = dict[str, Any]
CONFIG = 'plugins = ["ui_stream", "v2", "console"]\n[server]\nhost = "127.0.0.1"\n'


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
    """One chat. `messages` are its parts; a chunk that the SDK would refuse fails the test."""

    def __init__(self, world: World, path: str = "/ai/chat", **headers: str) -> None:
        self.world = world
        self.path = path
        self.headers = headers
        self.messages: list[Json] = []
        self.chunks: list[Json] = []
        self.error = ""

    def say(self, text: str) -> Json:
        """Send a user's message; returns the assistant's."""
        parts = [{"type": "text", "text": text}]
        self.messages.append({"id": f"u{len(self.messages)}", "role": "user", "parts": parts})
        return self.post()

    def answer(self, part: Json, approved: object, reason: str | None = None) -> None:
        """Answer the question of a part, as a click does."""
        assert part["state"] == "approval-requested"
        part["state"] = "approval-responded"
        part["approval"] |= {"approved": approved} | ({"reason": reason} if reason else {})

    def post(self, **fields: Any) -> Json:
        """Post all messages and read the chunks; returns the assistant's message."""
        sent = {"id": "chat", "messages": self.messages, "trigger": "submit-message", **fields}
        answer = self.world.service.post(self.path, sent, self.headers)
        assert answer.status == 200, answer.text
        assert b"\r" not in answer.body
        frames = [f for f in answer.text.split("\n\n") if f and not f.startswith(":")]
        assert frames.pop() == "data: [DONE]"
        self.chunks = [json.loads(frame.removeprefix("data: ")) for frame in frames]
        self.error = ""
        for chunk in self.chunks:
            self._take(chunk)
        return self.messages[-1]

    def calls(self) -> list[Json]:
        """The calls of the last message."""
        return [p for p in self.messages[-1]["parts"] if p["type"] == "dynamic-tool"]

    def text(self) -> str:
        """The text of the last message."""
        return "".join(p["text"] for p in self.messages[-1]["parts"] if p["type"] == "text")

    def _take(self, chunk: Json) -> None:
        match chunk["type"]:
            case "start":
                id_ = chunk.get("messageId")
                if id_ and self.messages[-1]["id"] != id_:
                    self.messages.append({"id": id_, "role": "assistant", "parts": []})
            case "start-step":
                self._parts.append({"type": "step-start"})
            case "text-start":
                self._parts.append({"type": "text", "text": "", "id": chunk["id"]})
            case "text-delta":
                self._found("id", chunk["id"])["text"] += chunk["delta"]
            case "tool-input-available":
                assert chunk["dynamic"] and chunk["providerExecuted"]
                kept = ("toolCallId", "toolName", "input")
                part = {"type": "dynamic-tool", "state": "input-available"}
                self._parts.append(part | {name: chunk[name] for name in kept})
            case "tool-approval-request":
                part = self._found("toolCallId", chunk["toolCallId"])
                part |= {"state": "approval-requested", "approval": {"id": chunk["approvalId"]}}
            case "tool-output-available":
                part = self._found("toolCallId", chunk["toolCallId"])
                part |= {"state": "output-available", "output": chunk["output"]}
            case "tool-output-error":
                part = self._found("toolCallId", chunk["toolCallId"])
                part |= {"state": "output-error", "errorText": chunk["errorText"]}
            case "tool-output-denied":
                self._found("toolCallId", chunk["toolCallId"])["state"] = "output-denied"
            case "finish":
                if self.messages[-1]["role"] == "assistant":
                    self.messages[-1]["metadata"] = chunk["messageMetadata"]
            case "error":
                self.error = chunk["errorText"]
            case other:
                assert other in ("text-end", "finish-step", "data-update"), other

    @property
    def _parts(self) -> list[Json]:
        assert self.messages[-1]["role"] == "assistant", "a chunk for no message"
        parts: list[Json] = self.messages[-1]["parts"]
        return parts

    def _found(self, name: str, id: str) -> Json:
        return next(part for part in reversed(self._parts) if part.get(name) == id)


Start = Callable[..., World]


def deletion(*names: str) -> list[Call]:
    """A step of the model that asks for these deletions."""
    return [Call(f"call_{n}", "delete", {"name": name}) for n, name in enumerate(names)]
