"""Images and documents: given to models that take them, refused with a reason by others."""

from __future__ import annotations

import base64
import json
from typing import Any

import pytest
from gemini_server import GeminiServer
from platforms import BedrockServer
from providers import AnthropicServer, OpenAIServer, stream
from responses_server import ResponsesServer

from sayso import Agent, ImageContent, ToolResult, tool
from sayso.models import load_model
from sayso.models.fallback import Fallback
from sayso.testing import Service, served, user

PIXEL = base64.b64encode(b"\x89PNG\r\n\x1a\n" + bytes(range(250, 256)) * 9).decode()
IMAGE = {"mime": "image/png", "data": PIXEL, "name": "graph.png"}
PAPER = {"mime": "application/pdf", "data": base64.b64encode(b"%PDF-1.7").decode()}
WIRES: dict[str, tuple[type[Any], str]] = {
    "anthropic": (AnthropicServer, "anthropic:claude-opus-5-5"),
    "bedrock": (BedrockServer, "bedrock:eu.anthropic.claude-opus-4-8"),
    "openai-chat": (OpenAIServer, "openai-chat:some-model"),
    "openai-responses": (ResponsesServer, "openai-responses:gpt-5.5"),
    "gemini": (GeminiServer, "gemini:gemini-3.8-flash"),
}


@tool
def plot() -> ToolResult:
    """Plot it."""
    return ToolResult(["the load", ImageContent(base64.b64decode(PIXEL), "image/png")])


def agent_of(server: Any, spec: str) -> Agent:
    return Agent(model=load_model(spec, {**server.settings(), "retries": 0}), tools=[plot])


def said(*attachments: Any) -> dict[str, Any]:
    return user("What is wrong?", data={"attachments": list(attachments)})


def body_of(server: Any) -> str:
    return json.dumps(server.requests[-1].body).replace("-", "+").replace("_", "/")


@pytest.mark.parametrize("wire", WIRES)
def test_image_reaches_the_model_with_its_message_in_each_turn(wire: str) -> None:
    kind, spec = WIRES[wire]
    with kind() as server:
        server.then(*[stream(server.message("Fine."))] * 2)
        with served(agent_of(server, spec)) as service:
            first = service.chat(said(IMAGE))
            service.chat(said(IMAGE), first, user("and now?"))
        assert server.refusals == []
        sent = [json.dumps(r.body).replace("-", "+").replace("_", "/") for r in server.requests]
        assert all(body.count(PIXEL.replace("-", "+").replace("_", "/")) == 1 for body in sent)


@pytest.mark.parametrize("wire", ["anthropic", "openai-responses", "gemini"])
def test_document_reaches_models_that_take_some(wire: str) -> None:
    kind, spec = WIRES[wire]
    with kind() as server:
        server.then(stream(server.message("Fine.")))
        with served(agent_of(server, spec)) as service:
            service.chat(said(PAPER))
        assert server.refusals == [] and PAPER["data"] in body_of(server)


@pytest.mark.parametrize("wire", WIRES)
def test_image_that_a_tool_returns_reaches_the_model(wire: str) -> None:
    kind, spec = WIRES[wire]
    with kind() as server:
        server.then(
            stream(server.message("", [("c1", "plot", "{}")])), stream(server.message("Fine."))
        )
        with served(agent_of(server, spec)) as service:
            assert service.chat("plot it")["content"] == "Fine."
        assert server.refusals == []
        assert PIXEL.replace("-", "+").replace("_", "/") in body_of(server)
        assert "the load" in body_of(server)


def refused(service: Service, *attachments: Any) -> str:
    answer = service.post("/api/chat", {"messages": [said(*attachments)]})
    assert answer.status == 422
    [item] = answer.json()["detail"]
    assert item["type"] == "attachment_refused" and item["loc"][:2] == ["body", "messages"]
    return str(item["msg"])


def test_attachments_that_cannot_be_taken_are_refused_with_the_reason() -> None:
    config = '[limits]\nattachment_hosts = ["files.example"]\n'
    with OpenAIServer() as server:
        agent = agent_of(server, "openai-chat:some-model")
        with served(agent, config=config) as service:
            assert "takes no attachments of type application/pdf" in refused(service, PAPER)
            assert "may be image/gif" in refused(service, {**IMAGE, "mime": "text/html"})
            assert "no base64" in refused(service, {**IMAGE, "data": "%%%"})
            assert "at most 5242880 bytes" in refused(service, {**IMAGE, "data": "A" * 7_000_000})
            assert "at most 20" in refused(service, *[IMAGE] * 21)
            assert "either 'data' (base64) or 'url'" in refused(service, {"mime": "image/png"})
            for url in ("http://files.example/a", "https://else.example/a", 5):
                assert "is not https" in refused(service, {"mime": "image/png", "url": url})
            server.then(stream(server.message("Fine.")))
            service.chat(said({"mime": "image/png", "url": "https://files.example/a.png"}))
            assert "https://files.example/a.png" in json.dumps(server.requests[-1].body)
            assert len(server.requests) == 1


def test_model_that_takes_none_is_not_asked() -> None:
    with served(Agent(model="offline")) as service:
        assert "the model offline:offline takes no" in refused(service, IMAGE)


def test_models_in_a_row_take_what_all_of_them_take() -> None:
    one = load_model("anthropic:claude-opus-5-5", {"api_key": "k"})
    other = load_model("openai-chat:x", {"api_key": "k"})
    assert "application/pdf" not in Fallback([one, other]).takes_attachments
    assert "image/png" in Fallback([one, other]).takes_attachments
