"""A refused parameter is left out from then on; a refused key is read again; other models
answer."""

from __future__ import annotations

import json
import logging
import stat
import sys
from pathlib import Path
from typing import Any

import pytest
from asking import asked, events, reply_of, run, said, text_of, user
from gemini_server import GeminiServer
from providers import SECRET, AnthropicServer, OpenAIServer, drop, silence, status, stream
from responses_server import ResponsesServer

from sayso import Agent, Config, ModelError, ServiceHost, load_model
from sayso.config.settings import ModelOptions, ModelSettings
from sayso.errors import ConfigError
from sayso.models import Ask, Model, Reply
from sayso.models.fallback import Fallback
from sayso.testing import scripted

REFUSED = "Unsupported parameter: {!r} is not supported with this model."


def refusing(message: str, *, param: str | None = None, code: int = 400) -> Any:
    """The answer of a provider that refuses a parameter."""
    body = {"error": {"message": message, "type": "invalid_request_error", "param": param}}
    data = json.dumps(body).encode()
    return lambda exchange: exchange.whole(
        code, "application/json", data, {"x-request-id": "req-7"}
    )


def model(server: Any, spec: str, **settings: Any) -> Model:
    return load_model(spec, {**server.settings(), "retries": 0, **settings})


@pytest.mark.parametrize(
    ("spec", "server", "parameter", "message"),
    [
        ("openai:llama", OpenAIServer, "temperature", REFUSED.format("temperature")),
        ("openai:llama", OpenAIServer, "stream_options", "Extra inputs: stream_options"),
        ("openai:llama", OpenAIServer, "temperature", "temperature: only the default (1) works"),
        ("anthropic:claude-opus-4-6", AnthropicServer, "temperature", "temperature: not here"),
        ("anthropic:claude-opus-5-5", AnthropicServer, "thinking", "thinking.display: unknown"),
        ("openai-responses:gpt-5.5", ResponsesServer, "include", "include: not supported"),
        ("openai-responses:gpt-5.5", ResponsesServer, "reasoning", "reasoning.summary: verify"),
        ("gemini:gemini-2.5-pro", GeminiServer, "temperature", "Unknown name temperature"),
    ],
)
def test_refused_parameter_is_left_out_from_then_on_and_told_once(
    caplog: pytest.LogCaptureFixture, spec: str, server: Any, parameter: str, message: str
) -> None:
    caplog.set_level(logging.INFO, logger="sayso.models")
    with server() as provider:
        made = model(provider, spec)
        provider.then(refusing(message), *[stream(provider.message("Fine."))] * 2)
        assert said(asked(made)) == said(asked(made)) == "Fine."
        sent = [json.dumps(request.body) for request in provider.requests]
        name = message.partition(":")[0].split(".")[-1] if "." in message else parameter
        name = parameter if name not in sent[0] else name
        assert [f'"{name}"' in body for body in sent] == [True, False, False]
        assert caplog.text.count("left out from now on") == 1


def test_parameter_that_the_refusal_names_in_a_field_is_left_out() -> None:
    with OpenAIServer() as server:
        server.then(refusing("no", param="temperature"), stream(server.message("Fine.")))
        assert said(asked(model(server, "openai:llama"))) == "Fine."
        assert "temperature" not in server.requests[1].body


def test_what_was_not_named_stays_refused() -> None:
    with OpenAIServer() as server:
        server.then(refusing("messages.1.content: is no text"))
        with pytest.raises(ModelError, match="refused the request"):
            asked(model(server, "openai:llama"))
        assert len(server.requests) == 1


@pytest.mark.parametrize(
    ("spec", "server", "message", "expected"),
    [
        (
            "anthropic:claude-opus-9-9",
            AnthropicServer,
            "max_tokens: 128000 > 8192, which is the maximum allowed number of output tokens",
            8192,
        ),
        (
            "anthropic:claude-opus-4-1",
            AnthropicServer,
            "input length and `max_tokens` exceed context limit: 188240 + 32000 > 200000",
            11760,
        ),
    ],
)
def test_output_limit_that_is_too_large_is_lowered(
    spec: str, server: Any, message: str, expected: int
) -> None:
    with server() as provider:
        provider.then(refusing(message), stream(provider.message("Fine.")))
        assert said(asked(model(provider, spec))) == "Fine."
        assert provider.requests[1].body["max_tokens"] == expected


def test_output_limit_goes_under_the_name_that_the_server_knows() -> None:
    with OpenAIServer() as server:
        server.then(
            refusing(REFUSED.format("max_tokens") + " Use 'max_completion_tokens' instead."),
            stream(server.message("Fine.")),
        )
        asked(model(server, "openai:llama"), config={"max_tokens": 500})
        first, second = (request.body for request in server.requests)
        assert first["max_tokens"] == 500 and "max_tokens" not in second
        assert second["max_completion_tokens"] == 500


def test_format_that_a_server_does_not_know_is_asked_for_in_words() -> None:
    schema = {"type": "object", "properties": {"ok": {"type": "boolean"}}}
    with OpenAIServer() as server:
        server.then(refusing("response_format: unknown"), stream(server.message('{"ok": true}')))
        found = asked(model(server, "openai:llama"), schema=schema, tools=())
        assert text_of(reply_of(found).turn) == '{"ok": true}'
        assert "one JSON document" in server.requests[1].body["messages"][0]["content"]


# Options


def test_options_stand_in_each_request() -> None:
    options = {
        "headers": {"x-team": "ops"},
        "query": {"api-version": "7"},
        "extra_body": {"seed": 1},
        "omit": ["temperature", "stream_options"],
        "effort": "high",
    }
    with OpenAIServer() as server:
        made = load_model("openai:llama", {**server.settings(), **options, "retries": 0})
        with pytest.raises(ModelError):
            asked(made)
        sent = server.requests[0]
        assert sent.path == "/chat/completions?api-version=7"
        assert sent.headers["x-team"] == "ops" and sent.body["seed"] == 1
        assert sent.body["reasoning_effort"] == "high"
        assert not {"temperature", "stream_options"} & sent.body.keys()


@pytest.mark.parametrize(
    ("spec", "server", "effort", "path", "expected"),
    [
        ("anthropic:claude-opus-4-8", AnthropicServer, "xhigh", "output_config.effort", "xhigh"),
        ("anthropic:claude-opus-4-8", AnthropicServer, "off", "thinking.type", "disabled"),
        ("anthropic:claude-opus-5-5", AnthropicServer, "off", "output_config.effort", "low"),
        ("anthropic:claude-opus-4-6", AnthropicServer, "medium", "thinking.type", "adaptive"),
        ("openai-responses:gpt-5.5", ResponsesServer, "off", "reasoning.effort", "none"),
        ("openai-responses:gpt-5.5", ResponsesServer, "minimal", "reasoning.effort", "minimal"),
        (
            "gemini:gemini-3.8-flash",
            GeminiServer,
            "high",
            "generationConfig.thinkingConfig.thinking_level",
            "HIGH",
        ),
        (
            "gemini:gemini-2.5-flash",
            GeminiServer,
            "off",
            "generationConfig.thinkingConfig.thinking_budget",
            0,
        ),
    ],
)
def test_effort_is_asked_for_as_each_model_takes_it(
    spec: str, server: Any, effort: str, path: str, expected: Any
) -> None:
    with server() as provider:
        provider.then(stream(provider.message("Fine.")))
        assert said(asked(model(provider, spec, effort=effort))) == "Fine."
        found: Any = provider.requests[0].body
        for part in path.split("."):
            found = found[part]
        assert found == expected and provider.refusals == []


def test_gateway_that_takes_one_header_for_the_key_gets_it_there() -> None:
    for spec, server in (
        ("openai:x", OpenAIServer),
        ("anthropic:claude-opus-5-5", AnthropicServer),
    ):
        with server() as provider:
            made = model(provider, spec, key_header="x-api-key")
            with pytest.raises(ModelError):
                asked(made)
            headers = provider.requests[0].headers
            assert headers["x-api-key"] == SECRET and "authorization" not in headers


def test_settings_reach_factories_and_other_providers_get_no_key_of_it() -> None:
    options = ModelOptions(key="env:K", headers={"x-a": "1"}, effort="low", retries=0)
    settings = ModelSettings(name="openai:x", base_url="http://h/v1", options=options)
    config = Config(model=settings)
    own = config.model_connection(own=True)
    assert own["base_url"] == "http://h/v1" and own["key"] == "env:K"
    assert own["headers"] == {"x-a": "1"} and (own["effort"], own["retries"]) == ("low", 0)
    assert not {"base_url", "key", "headers"} & config.model_connection(own=False).keys()


# Keys


def test_key_is_read_again_where_it_was_refused(tmp_path: Path) -> None:
    for spec, server in (
        ("openai:x", OpenAIServer),
        ("anthropic:claude-opus-5-5", AnthropicServer),
        ("openai-responses:gpt-5.5", ResponsesServer),
        ("gemini:gemini-3.8-flash", GeminiServer),
    ):
        file = tmp_path / "key"
        file.write_text("old-key\n")
        with server() as provider:
            settings = {"base_url": provider.url, "key": "file:key", "folder": str(tmp_path)}
            made = load_model(spec, {**settings, "retries": 0})
            provider.refuse = lambda request: None
            provider.then(status(401), stream(provider.message("Fine.")))
            file.write_text(SECRET)
            assert said(asked(made)) == "Fine.", spec
            sent = [" ".join(request.headers.values()) for request in provider.requests]
            assert ["old-key" in one for one in sent] == [True, False], spec
            assert SECRET in sent[1]


def test_key_that_is_refused_again_is_not_read_for_ever(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TEAM_KEY", SECRET)
    with OpenAIServer() as server:
        made = load_model("openai:x", {"base_url": server.url, "key": "env:TEAM_KEY"})
        server.then(status(401), status(401))
        with pytest.raises(ModelError, match="key for it has to be checked"):
            asked(made)
        assert len(server.requests) == 1


def test_key_may_be_printed_by_a_command_or_returned_by_a_function(tmp_path: Path) -> None:
    script = tmp_path / "vault"
    script.write_text(f"#!/bin/sh\necho {SECRET}\n")
    script.chmod(stat.S_IRWXU)
    (tmp_path / "my_keys.py").write_text(f"def key():\n    return {SECRET!r}\n")
    for place in (f"command:{script}", "function:my_keys.py:key"):
        with OpenAIServer() as server:
            settings = {"base_url": server.url, "key": place, "folder": str(tmp_path)}
            server.then(stream(server.message("Fine.")))
            assert said(asked(load_model("openai:x", settings))) == "Fine."
            assert server.refusals == []


@pytest.mark.parametrize(
    ("place", "why"),
    [
        ("env:NOT_SET_ANYWHERE", "there is no key"),
        ("file:/nowhere/key", "FileNotFoundError"),
        (f"command:{sys.executable} -c 'raise SystemExit(3)'", "CalledProcessError"),
        ("sk-my-own-key", "write no key into the configuration"),
    ],
)
def test_key_that_cannot_be_read_stops_the_start(place: str, why: str) -> None:
    with pytest.raises(ConfigError, match=why) as caught:
        load_model("openai:x", {"key": place, "base_url": "http://127.0.0.1:1/v1"})
    assert "sk-my-own-key" not in str(caught.value)


# Another model, or key, for one request


@pytest.mark.parametrize(
    ("spec", "server"),
    [
        ("openai:x", OpenAIServer),
        ("anthropic:claude-opus-5-5", AnthropicServer),
        ("openai-responses:gpt-5.5", ResponsesServer),
    ],
)
def test_request_may_have_a_model_and_a_key_of_its_own(spec: str, server: Any) -> None:
    with server() as provider:
        made = load_model(spec, {"base_url": provider.url, "api_key": "other", "retries": 0})
        provider.then(stream(provider.message("Fine.")))
        found = run(events(made, Ask((user("hi"),), model="claude-haiku-5-5", key=SECRET)))
        assert said(found) == "Fine." and provider.refusals == []
        assert provider.requests[0].body["model"] == "claude-haiku-5-5"


# Fallback


def test_next_model_answers_where_the_first_fails_before_it_said_anything(
    caplog: pytest.LogCaptureFixture,
) -> None:
    with OpenAIServer() as broken:
        broken.then(status(529))
        first = model(broken, "openai:x")
        both = Fallback([first, scripted("From the second.")])
        assert said(asked(both)) == "From the second."
        assert "asking" in caplog.text and SECRET not in caplog.text


def test_model_that_has_said_something_is_not_replaced() -> None:
    with OpenAIServer() as broken:
        broken.then(stream(broken.message("A long text that is cut off.")[:4], "reset"))
        both = Fallback([model(broken, "openai:x"), scripted("Never.")])
        with pytest.raises(ModelError, match="connection was lost"):
            asked(both)


def test_first_failure_is_told_where_all_fail() -> None:
    with OpenAIServer() as one, AnthropicServer() as other:
        one.then(status(401))
        other.then(status(529))
        both = Fallback([model(one, "openai:x"), model(other, "anthropic:claude-opus-5-5")])
        with pytest.raises(ModelError) as caught:
            asked(both)
        assert caught.value.kind == "auth"


def test_configured_fallbacks_are_made_at_the_start(monkeypatch: pytest.MonkeyPatch) -> None:
    settings = ModelSettings(name="offline", fallback=["openai:gpt-5.5"])
    with pytest.raises(ConfigError, match="OPENAI_API_KEY"):
        ServiceHost.create(Agent(), Config(model=settings))
    monkeypatch.setenv("OPENAI_API_KEY", "key")
    host = ServiceHost.create(Agent(), Config(model=settings))
    assert isinstance(host.model, Fallback) and host.model.context_window == 1_000_000


# Time


def test_first_piece_may_take_longer_than_the_next_ones() -> None:
    with OpenAIServer() as server:
        server.then(silence())
        with pytest.raises(ModelError, match="in time"):
            asked(model(server, "openai:x", timeout=0.2, first_byte_timeout=0.4))
        server.then(stream(server.message("Some text")[:4], "stall"))
        with pytest.raises(ModelError, match="in time"):
            asked(model(server, "openai:x", timeout=0.3, first_byte_timeout=600))


@pytest.mark.parametrize("started", [0, 1])
def test_connection_that_drops_before_anything_was_said_is_tried_again(started: int) -> None:
    for spec, server in (
        ("openai:x", OpenAIServer),
        ("anthropic:claude-opus-5-5", AnthropicServer),
        ("openai-responses:gpt-5.5", ResponsesServer),
    ):
        with server() as provider:
            answer = stream(provider.message("Fine.")[:started], "reset") if started else drop()
            provider.then(answer, stream(provider.message("Fine.")))
            assert said(asked(model(provider, spec, retries=1))) == "Fine."


def test_ask_shows_no_key() -> None:
    assert SECRET not in repr(Ask((user("hi"),), key=SECRET, secrets=(SECRET,)))
    assert isinstance(reply_of(asked(scripted("Fine."))), Reply)
