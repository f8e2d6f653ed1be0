"""The usage of a turn's model calls: in the reply, for handlers, and in the log."""

from __future__ import annotations

import json
import logging
from typing import Any

import pytest
from providers import AnthropicServer, OpenAIServer, chunk, status, stream

from sayso import Agent, Call, ModelCalled, Reply, Turn, tool
from sayso.config.settings import ModelSettings
from sayso.models import Usage, load_model
from sayso.models.prices import price_table
from sayso.testing import scripted, served, user

SETTINGS = {"retries": 0}
ONE = {
    "input_tokens": 19,
    "output_tokens": 7,
    "cached_tokens": 5,
    "cache_write_tokens": 3,
    "reasoning_tokens": 2,
}


@tool
def look(name: str) -> str:
    """Look."""
    return f"{name} is up"


@tool(requires_approval=True)
def delete(name: str) -> str:
    """Delete."""
    return f"deleted {name}"


def agent_of(server: AnthropicServer, **fields: Any) -> Agent:
    model = load_model("anthropic:claude-sonnet-5-5", {**server.settings(), **SETTINGS})
    return Agent(name="counted", model=model, tools=[look, delete], **fields)


def test_usage_of_each_call_and_their_sum_stand_in_the_reply(
    anthropic_server: AnthropicServer, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, logger="sayso.models")
    server, events = anthropic_server, []
    server.then(
        stream(server.message("", [("t1", "look", '{"name": "web"}')])),
        stream(server.message("Fine.")),
    )
    with served(agent_of(server, on_event=events.append)) as service:
        reply = service.chat(user("how is web?"))
    call = {"model": "anthropic:claude-sonnet-5-5", **ONE}
    summed = {name: 2 * count for name, count in ONE.items()}
    assert reply["meta_data"]["usage"] == {**summed, "calls": [call, call]}
    called = [event for event in events if isinstance(event, ModelCalled)]
    assert [(event.stop, event.input_tokens) for event in called] == [
        ("tool_use", 19),
        ("end_turn", 19),
    ]
    assert caplog.text.count("19 tokens in (5 cached, 3 written), 7 out") == 2


def test_usage_stands_in_the_done_event_of_a_stream(anthropic_server: AnthropicServer) -> None:
    anthropic_server.then(stream(anthropic_server.message("Fine.")))
    with served(agent_of(anthropic_server)) as service:
        *_, done = service.stream(user("hi"))
    assert done["meta_data"]["usage"]["output_tokens"] == 7


def test_repeated_reply_states_what_the_first_one_took(anthropic_server: AnthropicServer) -> None:
    server = anthropic_server
    server.then(
        stream(server.message("", [("t1", "delete", '{"name": "web"}')])),
        stream(server.message("Gone.")),
    )
    with served(agent_of(server)) as service:
        talk = service.conversation()
        assert talk.say("delete web")["meta_data"]["usage"]["output_tokens"] == 7
        approved = talk.approve()
        again = service.chat(*talk.messages[:-1])
    assert approved == again and approved["content"] == "Gone."
    assert len(server.requests) == 2


def test_model_that_counts_nothing_adds_nothing() -> None:
    with served(Agent(model=scripted("Fine."))) as service:
        assert "usage" not in service.chat(user("hi"))["meta_data"]


def test_failed_call_is_told_to_handlers_with_its_kind(anthropic_server: AnthropicServer) -> None:
    anthropic_server.then(status(401))
    events: list[Any] = []
    with served(agent_of(anthropic_server, on_event=events.append)) as service:
        assert service.post("/api/chat", {"messages": [user("hi")]}).status == 502
    assert [event.error for event in events if isinstance(event, ModelCalled)] == ["auth"]


def test_price_of_a_turn_is_told_where_it_is_wanted(anthropic_server: AnthropicServer) -> None:
    anthropic_server.then(stream(anthropic_server.message("Fine.")))
    with served(agent_of(anthropic_server), config="[model]\nprices = true\n") as service:
        usage = service.chat(user("hi"))["meta_data"]["usage"]
    expected = price_table()("anthropic", "claude-sonnet-5-5", Usage(11, 7, 5, 3))
    assert expected and usage["price_usd"] == pytest.approx(expected)
    assert price_table()("anthropic", "a-model-of-tomorrow", Usage(1, 1)) is None
    assert ModelSettings().prices is False


def test_call_that_the_output_limit_cut_is_told_even_behind_a_text(
    openai_server: OpenAIServer,
) -> None:
    server = openai_server
    function = {"name": "delete", "arguments": '{"na'}
    half = chunk({"tool_calls": [{"index": 0, "id": "a", "function": function}]})
    for before, expected in (("", "The model reached"), ("I delete it.", "I delete it.\n\nThe")):
        text = [chunk({"content": before or " \n"})]
        ended = chunk({}, finish_reason="length")
        server.then(stream([*text, half, ended, b"data: [DONE]\n\n"]))
        model = load_model("openai:x", {**server.settings(), **SETTINGS})
        with served(Agent(model=model, tools=[delete])) as service:
            reply = service.chat(user("delete web"))
        assert expected in reply["content"] and "within a tool call" in reply["content"]


def test_call_of_a_reply_that_a_filter_broke_off_is_told_as_declined(
    openai_server: OpenAIServer,
) -> None:
    server = openai_server
    server.then(stream(server.message(calls=[("a", "delete", '{"name": "a"}')], stop="refusal")))
    model = load_model("openai:x", {**server.settings(), **SETTINGS})
    with served(Agent(model=model, tools=[delete])) as service:
        reply = service.chat(user("delete a"))
    assert reply["content"] == "The model declined to go on within a tool call, which was not run."
    assert reply["meta_data"]["stop_reason"] == "refusal"


def test_calls_of_a_reply_that_says_end_turn_are_run() -> None:
    calls = Turn(
        "assistant", [Call("1", "look", {"name": "a"}), Call("2", "delete", {"name": "a"})]
    )
    model = scripted(Reply(calls, "end_turn"), "Done.")
    with served(Agent(model=model, tools=[look, delete])) as service:
        talk = service.conversation()
        talk.say("look at a, then delete it")
        assert [call["name"] for call in talk.pending] == ["delete"]
        assert talk.approve()["content"] == "Done."
    assert "a is up" in str(model.asks[-1].turns)


def test_what_a_provider_said_reaches_callers_only_with_debug_and_no_interceptor(
    openai_server: OpenAIServer, caplog: pytest.LogCaptureFixture
) -> None:
    server = openai_server
    model = load_model("openai:x", {**server.settings(), **SETTINGS})

    def shout(response: Any, context: Any) -> str:
        return str(response.content).upper()

    for debug, interceptors, logged in (
        ("false", [], False),
        ("true", [], True),
        ("true", [shout], False),
    ):
        server.then(status(400, message="the model had said: nuts"))
        agent = Agent(model=model, response_interceptors=interceptors)
        with served(agent, config=f"[server]\ndebug = {debug}\n") as service:
            body = service.post("/api/chat", {"messages": [user("hi")]}).json()
        assert ("nuts" in json.dumps(body)) is logged
        assert body["detail"].startswith("the model provider 'openai' refused the request")
    assert caplog.text.count("nuts") == 3


def test_interceptor_may_choose_model_and_key_of_a_request(openai_server: OpenAIServer) -> None:
    server = openai_server
    model = load_model("openai:x", {"base_url": server.url, "api_key": "none", "retries": 0})
    secret = server.settings()["api_key"]

    def choose(request: Any, context: Any) -> None:
        context.use_model("llama-of-the-tenant", key=secret)

    server.then(stream(server.message("Fine.")))
    with served(Agent(model=model, request_interceptors=choose)) as service:
        reply = service.chat(user("hi"))
    assert server.requests[0].body["model"] == "llama-of-the-tenant" and server.refusals == []
    assert reply["meta_data"]["usage"]["calls"][0]["model"] == "openai:llama-of-the-tenant"
    assert secret not in json.dumps(reply)
