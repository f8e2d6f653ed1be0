"""Caching: the marks are at the points up to which the next request is the same."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any

from providers import AnthropicServer, Request, status, stream

from sayso import Agent, load_model, tool
from sayso.testing import served

LEAST = 1_024
"""Tokens of a prefix below which nothing is cached."""


@tool
def search(words: str) -> str:
    """Search the handbook for words and return the page that fits them best, in full."""
    return f"page about {words}: " + "the cluster is drained before an upgrade. " * 40


def blocks(body: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    """All that a request is read by, in the order in which it is cached."""
    yield from body.get("tools", ())
    yield from body.get("system", ())
    for message in body["messages"]:
        for block in message["content"]:
            yield {"role": message["role"], **block}


def cost(requests: list[Request]) -> float:
    """Units that the requests cost: 1 for a token, 1.25 for one written, 0.1 for one read."""
    cached: set[str] = set()
    units = 0.0
    for request in requests:
        prefix, size, read, written = "", 0, 0, 0
        seen: set[str] = set()
        for block in blocks(request.body):
            mark = "cache_control" in block
            plain = {key: value for key, value in block.items() if key != "cache_control"}
            text = json.dumps(plain, sort_keys=True)
            prefix, size = str(hash(prefix + text)), size + len(text) // 4
            if prefix in cached:
                read = size
            if mark and size >= LEAST:
                written = size
                seen.add(prefix)
        cached |= seen
        written = max(written, read)
        units += 0.1 * read + 1.25 * (written - read) + (size - written)
    return units


def talk(server: AnthropicServer, **config: Any) -> list[Request]:
    """Eight turns of one conversation, each with a call of a tool."""
    server.requests.clear()
    model = load_model("anthropic:claude-sonnet-5-5", server.settings())
    now = iter(range(99))
    agent = Agent(
        name="handbook",
        model=model,
        tools=[search],
        system_prompt="Answer from the handbook alone, and name the page. " * 120,
        system_context=lambda context: f"It is {next(now)} o'clock.",
        model_config=config,
    )
    with served(agent) as service:
        conversation = service.conversation()
        for n in range(8):
            server.then(
                stream(server.message("", [(f"t{n}", "search", '{"words": "upgrade"}')])),
                stream(server.message("Drain it first, says the page about upgrades. " * 30)),
            )
            conversation.say(f"question {n}: how is a cluster upgraded, and who has to agree?")
    assert server.refusals == []
    return list(server.requests)


def test_conversation_of_eight_turns_costs_less_than_half(
    anthropic_server: AnthropicServer,
) -> None:
    plain = cost(talk(anthropic_server))
    cached = cost(talk(anthropic_server, cache_system_prompt=True))
    assert cached < 0.45 * plain, (plain, cached)


def test_no_request_has_more_marks_than_four(anthropic_server: AnthropicServer) -> None:
    requests = talk(anthropic_server, cache_system_prompt=True)
    marks = [json.dumps(request.body).count("cache_control") for request in requests]
    assert set(marks) == {3, 4}


def test_gateway_that_knows_no_marks_gets_none(anthropic_server: AnthropicServer) -> None:
    anthropic_server.then(
        status(400, message="system.0.cache_control: Extra inputs are not permitted"),
        stream(anthropic_server.message("Fine.")),
    )
    model = load_model("anthropic:claude-sonnet-5-5", anthropic_server.settings())
    agent = Agent(model=model, system_prompt="S", model_config={"cache_system_prompt": True})
    with served(agent) as service:
        assert service.chat("hi")["content"] == "Fine."
    sent = [json.dumps(request.body) for request in anthropic_server.requests]
    assert ["cache_control" in body for body in sent] == [True, False]
