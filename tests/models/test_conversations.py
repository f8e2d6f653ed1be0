"""Whole conversations with approvals, against each provider's rules: not one request is refused."""

from __future__ import annotations

import json
import random
from typing import Any

import pytest
from gemini_server import GeminiServer
from platforms import BedrockServer, FoundryServer, VertexServer
from providers import AnthropicServer, OpenAIServer, Request, openai_refusal, stream
from responses_server import ResponsesServer
from test_transcript import mistral_refusal

from sayso import Agent, LocalShell, tool
from sayso.models import load_model
from sayso.testing import Service, served


class MistralServer(OpenAIServer):
    """The same wire with Mistral's own rules of ids and order."""

    def refuse(self, request: Request) -> str | None:
        return openai_refusal(request) or mistral_refusal(request.body["messages"])


WIRES: dict[str, tuple[type[Any], str]] = {
    "anthropic": (AnthropicServer, "anthropic:claude-opus-5-5"),
    "bedrock": (BedrockServer, "bedrock:eu.anthropic.claude-opus-4-6-v1"),
    "vertex": (VertexServer, "vertex:claude-opus-5-5"),
    "foundry": (FoundryServer, "foundry:claude-opus-5-5"),
    "openai-chat": (OpenAIServer, "openai-chat:some-model"),
    "openai-responses": (ResponsesServer, "openai-responses:gpt-5.5"),
    "mistral": (MistralServer, "mistral:mistral-large-4"),
    "gemini": (GeminiServer, "gemini:gemini-3.8-flash"),
}
SEEDS = range(4)


@tool
def look(name: str) -> str:
    """Look at a pod."""
    return f"{name} is up"


@tool(requires_approval=True)
def delete(name: str) -> str:
    """Delete a pod."""
    return f"deleted {name}"


class Talk:
    """A caller that says, approves, rejects, and forgets, as `dice` fall."""

    def __init__(self, service: Service, server: Any, dice: random.Random) -> None:
        self._talk = service.conversation()
        self._server = server
        self._dice = dice
        self._calls = 0

    def step(self) -> None:
        """One request; the model answers it with texts and calls of its own choice."""
        pending = bool(self._talk.pending)
        commands = bool(self._talk.pending_commands)
        for _ in range(4):
            self._server.then(self._reply())
        if not pending and not (commands and self._dice.random() < 0.5):
            self._talk.say(f"words {self._dice.random()}", platform_context={"tenant_name": "t"})
        elif self._dice.random() < 0.6:
            ids = [call["id"] for call in self._talk.pending]
            some = ids[:1] if ids and self._dice.random() < 0.4 else ()
            self._talk.approve(*some)
        else:
            self._talk.reject("not now")
        self._server._answers.clear()

    def _reply(self) -> Any:
        made: list[tuple[str, str, str]] = []
        for _ in range(self._dice.choice([0, 0, 1, 1, 2])):
            self._calls += 1
            name = self._dice.choice(["look", "delete", "delete", "no_such_tool", "commands"])
            arguments: Any = {"name": f"pod-{self._calls}"}
            if name == "commands":
                name, arguments = "suggest_commands", {"commands": [{"command": "true"}]}
            made.append((f"call_{self._calls}", name, json.dumps(arguments)))
        text = self._dice.choice(["", "I look.", "Done."]) if made else "Fine."
        thinking = self._dice.choice(["", "The user asks."])
        return stream(self._server.message(text, made, thinking=thinking))


@pytest.mark.parametrize("wire", WIRES)
def test_no_request_of_a_conversation_with_approvals_is_refused(wire: str) -> None:
    kind, spec = WIRES[wire]
    with kind() as server:
        model = load_model(spec, {**server.settings(), "retries": 0})
        agent = Agent(
            name="kube",
            model=model,
            tools=[look, delete],
            commands=LocalShell(),
            system_prompt="Look after the cluster.",
            system_context=lambda context: f"Tenant {context.platform.tenant_name}.",
            model_config={"cache_system_prompt": True},
        )
        with served(agent) as service:
            for seed in SEEDS:
                talk = Talk(service, server, random.Random(f"{wire} {seed}"))
                for _ in range(7):
                    talk.step()
        assert server.refusals == []
        assert len(server.requests) > 20
