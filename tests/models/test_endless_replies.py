"""An endless reply is broken off before it fills the memory: `limits.reply`, `blocks`."""

from __future__ import annotations

import asyncio
import gzip
from collections.abc import AsyncIterator, Iterator, Sequence
from typing import Any

import pytest
from providers import SECRET, AnthropicServer, Exchange, OpenAIServer, chunk, sse

from sayso import Agent, Call, TextDelta
from sayso.models import Ask, ModelEvent, Reply, Text, Turn, load_model
from sayso.testing import served

SMALL = "[limits]\nreply = 20_000\nblocks = 10\n"
OPENING = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nConnection: close\r\n\r\n"


def endless(first: Sequence[bytes], piece: bytes) -> Any:
    """An answer that continues until nobody reads it any more."""

    def answer(exchange: Exchange) -> None:
        exchange.close_connection = True
        try:
            exchange.wfile.write(OPENING + b"".join(first))
            while not exchange.owner.stopping():
                exchange.wfile.write(piece)
        except OSError:
            exchange.owner.disconnected.set()

    return answer


def start(block: dict[str, Any]) -> list[bytes]:
    message = {"id": "m", "type": "message", "role": "assistant", "content": [], "model": "m"}
    message |= {"stop_reason": None, "usage": {"input_tokens": 1, "output_tokens": 1}}
    return [
        sse({"type": "message_start", "message": message}),
        sse({"type": "content_block_start", "index": 0, "content_block": block}),
    ]


def delta(kind: str, name: str) -> bytes:
    return sse({"type": "content_block_delta", "index": 0, "delta": {"type": kind, name: "xxxx"}})


CALL = {"index": 0, "id": "c", "function": {"name": "look", "arguments": '{"a": "'}}
MORE = {"index": 0, "function": {"arguments": "xxxx"}}
ANTHROPIC = {
    "text": endless(start({"type": "text", "text": ""}), delta("text_delta", "text")),
    "call": endless(
        start({"type": "tool_use", "id": "c", "name": "look", "input": {}}),
        delta("input_json_delta", "partial_json"),
    ),
    "pings": endless([], sse({"type": "ping"})),
    "line": endless([b"event: ping\ndata: "], b"x" * 1000),
    "event": endless([], b"data: x\n"),
}
OPENAI = {
    "text": endless([], chunk({"content": "xxxx"})),
    "call": endless([chunk({"tool_calls": [CALL]})], chunk({"tool_calls": [MORE]})),
    "calls": endless([], chunk({"tool_calls": [CALL]})),
    "line": endless([b"data: "], b"x" * 1000),
    "event": endless([], b"data: x\n"),
}


@pytest.fixture
def servers() -> Iterator[dict[str, Any]]:
    with AnthropicServer() as one, OpenAIServer() as other:
        yield {"anthropic": one, "openai": other}


@pytest.mark.parametrize(
    ("provider", "kind"),
    [*(("anthropic", kind) for kind in ANTHROPIC), *(("openai", kind) for kind in OPENAI)],
)
def test_endless_reply_of_a_provider_is_broken_off(
    servers: dict[str, Any], provider: str, kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    server = servers[provider]
    server.then({"anthropic": ANTHROPIC, "openai": OPENAI}[provider][kind])
    monkeypatch.setenv("ANTHROPIC_API_KEY", SECRET)
    monkeypatch.setenv("OPENAI_API_KEY", SECRET)
    agent = Agent(model=f"{provider}:gpt-5-some", name="endless")
    config = SMALL + f"[model]\nbase_url = '{server.url}'\n"
    with served(agent, config=config) as service:
        answer = service.ask("hej")
        assert answer.status == 502
        assert answer.json()["code"] == "REPLY_TOO_LARGE"
        assert "20000 bytes" in answer.json()["detail"]
        assert server.disconnected.wait(60)


def test_compressed_reply_is_not_unpacked(
    servers: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    def bomb(exchange: Exchange) -> None:
        exchange.close_connection = True
        body = gzip.compress(chunk({"content": "x" * 1_000_000}))
        head = OPENING.replace(b"\r\n\r\n", b"\r\nContent-Encoding: gzip\r\n\r\n")
        exchange.wfile.write(head + body)

    server = servers["openai"]
    server.then(bomb)
    model = load_model("openai:some", {"base_url": server.url, "api_key": SECRET, "retries": 0})
    with served(Agent(model=model, name="packed")) as service:
        assert service.ask("hej").json()["code"] == "MODEL_ERROR"
    assert server.requests[0].headers["accept-encoding"] == "identity"


class Own:
    provider = "own"
    name = "own"

    def __init__(self, *events: ModelEvent, times: int = 1) -> None:
        self.events = events
        self.times = times

    async def stream(self, ask: Ask) -> AsyncIterator[ModelEvent]:
        for _ in range(self.times):
            for event in self.events:
                yield event
                await asyncio.sleep(0)


MANY = tuple(Call(str(number), "look", {}) for number in range(11))


@pytest.mark.parametrize(
    ("model", "words"),
    [
        (Own(TextDelta("xxxx"), times=1_000_000), "20000 bytes"),
        (Own(Reply(Turn("assistant", (Text("x" * 30_000),)), "end_turn")), "20000 bytes"),
        (Own(Reply(Turn("assistant", MANY), "tool_use")), "10 texts and tool calls"),
    ],
    ids=["deltas", "whole", "calls"],
)
def test_endless_reply_of_a_model_of_ones_own_is_broken_off(model: Any, words: str) -> None:
    with served(Agent(model=model, name="own"), config=SMALL) as service:
        answer = service.ask("hej")
        assert (answer.status, answer.json()["code"]) == (502, "REPLY_TOO_LARGE")
        assert words in answer.json()["detail"]
        last = service.stream("hej")[-1]
        assert (last["type"], last["code"]) == ("error", "REPLY_TOO_LARGE")


async def deltas(messages: Any, context: Any) -> AsyncIterator[Any]:
    while True:
        yield "xxxx"
        await asyncio.sleep(0)


async def events(messages: Any, context: Any) -> AsyncIterator[Any]:
    while True:
        yield TextDelta("xxxx")
        await asyncio.sleep(0)


def whole(messages: Any, context: Any) -> str:
    return "x" * 30_000


@pytest.mark.parametrize("function", [deltas, events, whole])
def test_endless_reply_of_a_callable_is_broken_off(function: Any) -> None:
    with served(function, config=SMALL) as service:
        assert service.ask("hej").json()["code"] == "REPLY_TOO_LARGE"
