"""Tests of Gemini's own behaviour; tests/models has those that all models share."""

from __future__ import annotations

import json
import logging
from typing import Any

import pytest
from asking import asked, assistant, calls_of, reply_of, said, user
from gemini_server import GeminiServer
from providers import data, stream

from sayso import Call, Model, ModelError, Result, ToolDefinition, load_model


def model(server: GeminiServer, name: str = "gemini-3.8-flash", **settings: Any) -> Model:
    return load_model(f"gemini:{name}", {**server.settings(), "retries": 0, **settings})


def sent(server: GeminiServer) -> dict[str, Any]:
    assert server.refusals == []
    body: dict[str, Any] = server.requests[-1].body
    return body


def test_call_that_the_model_did_not_make_itself_goes_with_the_mark_for_it(
    gemini_server: GeminiServer,
) -> None:
    gemini_server.then(stream(gemini_server.message("Fine.")))
    calls = (Call("a", "get_weather", {}), Call("b", "get_weather", {}))
    asked(model(gemini_server), user("go"), assistant(*calls), user(*map(_sun, calls)))
    parts = sent(gemini_server)["contents"][1]["parts"]
    signs = [part.get("thoughtSignature") for part in parts]
    assert signs[0] and signs[1] is None


def _sun(call: Call) -> Result:
    return Result(call.id, "sun")


def test_name_that_begins_with_a_digit_is_sent_as_gemini_takes_it(
    gemini_server: GeminiServer,
) -> None:
    tool = ToolDefinition("2nd", "The second.", {"type": "object", "properties": {}})
    gemini_server.then(stream(gemini_server.message("", [("c", "t_2nd", "{}")])))
    found = asked(model(gemini_server), tools=(tool,))
    assert [call.name for call in calls_of(reply_of(found).turn)] == ["2nd"]


def test_temperature_is_left_to_models_that_want_their_own(gemini_server: GeminiServer) -> None:
    for name, config, expected in (
        ("gemini-3.8-flash", {}, None),
        ("gemini-3.8-flash", {"temperature": 0.4}, 0.4),
        ("gemini-2.5-pro", {}, 0.1),
        ("gemini-2.5-pro", {"top_p": 0.5}, None),
    ):
        gemini_server.then(stream(gemini_server.message("Fine.")))
        asked(model(gemini_server, name), config=config)
        assert sent(gemini_server)["generationConfig"].get("temperature") == expected


@pytest.mark.parametrize("reason", ["MALFORMED_FUNCTION_CALL", "UNEXPECTED_TOOL_CALL"])
def test_call_that_gemini_could_not_write_is_asked_for_again(
    gemini_server: GeminiServer, reason: str
) -> None:
    broken = data({"candidates": [{"index": 0, "finishReason": reason}]})
    gemini_server.then(stream([broken]), stream(gemini_server.message("Fine.")))
    assert said(asked(model(gemini_server, retries=1))) == "Fine."


def test_prompt_that_is_blocked_is_a_refusal(gemini_server: GeminiServer) -> None:
    gemini_server.then(stream([data({"promptFeedback": {"blockReason": "SAFETY"}})]))
    assert reply_of(asked(model(gemini_server))).stop == "refusal"


def test_output_limit_is_sent_only_where_it_is_wished(gemini_server: GeminiServer) -> None:
    for config, expected in (({}, None), ({"max_tokens": 99}, 99), ({"max_tokens": "max"}, None)):
        gemini_server.then(stream(gemini_server.message("Fine.")))
        asked(model(gemini_server), config=config)
        assert sent(gemini_server)["generationConfig"].get("maxOutputTokens") == expected


def test_no_key_stands_in_what_is_shown(
    gemini_server: GeminiServer, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG, logger="sayso")
    made = model(gemini_server)
    with pytest.raises(ModelError):
        asked(made)
    secret = gemini_server.settings()["api_key"]
    assert secret not in caplog.text + repr(made) + json.dumps(gemini_server.requests[0].body)
