from __future__ import annotations

import json
import logging
from typing import Any

import pytest
from asking import WEATHER, asked, assistant, calls_of, reply_of, said, user
from providers import SECRET, AnthropicServer, sse, stream

from sayso import Call, Model, ModelError, Result, Text, Thought, ToolDefinition, Turn, load_model
from sayso_anthropic.models import version_of

# The client library warns about each model whose end is announced, and the next may be any of
# these.
pytestmark = pytest.mark.filterwarnings("ignore:The model .* is deprecated:DeprecationWarning")


def model(server: AnthropicServer, name: str = "claude-sonnet-5-5", **settings: Any) -> Model:
    known = {**server.settings(), "timeout": 60, "retries": 0}
    return load_model(f"anthropic:{name}", known | settings)


def sent(server: AnthropicServer, name: str, **fields: Any) -> tuple[dict[str, Any], str]:
    """The body and API version of one request with the model `name`."""
    server.then(stream(server.message("Fine.")))
    asked(model(server, name), **fields)
    assert server.refusals == []
    return server.requests[-1].body, server.requests[-1].headers["anthropic-version"]


@pytest.mark.parametrize(
    ("name", "version"),
    [
        ("claude-sonnet-5-5", (5, 5)),
        ("claude-opus-5", (5, 0)),
        ("claude-opus-4-6", (4, 6)),
        ("claude-haiku-4-5-20251001", (4, 5)),
        ("claude-sonnet-4-20250514", (4, 0)),
        ("us.anthropic.claude-opus-4-5-20251101-v1:0", (4, 5)),
        ("claude-opus-4-5@20251101", (4, 5)),
        ("claude-3-5-sonnet-20241022", (3, 5)),
        ("some-model-of-tomorrow", (5, 5)),
    ],
)
def test_generation_is_read_from_the_id(name: str, version: tuple[int, int]) -> None:
    assert version_of(name) == version


def test_the_default_model_needs_no_name(anthropic_server: AnthropicServer) -> None:
    assert load_model("anthropic", anthropic_server.settings()).name == "claude-sonnet-5-5"


def test_current_models_get_no_sampling_parameter(
    anthropic_server: AnthropicServer, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, logger="sayso")
    body, version = sent(anthropic_server, "claude-opus-5-5")
    assert not {"temperature", "top_p", "top_k"} & body.keys()
    assert version == "2026-10-21"
    assert body["max_tokens"] == 128_000 and body["stream"] is True
    assert body["thinking"] == {"type": "adaptive", "display": "summarized"}
    assert [r.levelname for r in caplog.records if "temperature" in r.message] == ["INFO"]


@pytest.mark.parametrize("name", ["claude-opus-5-5", "claude-opus-4-8", "claude-opus-4-1"])
def test_sampling_that_the_user_set_is_left_out_with_one_warning(
    anthropic_server: AnthropicServer, caplog: pytest.LogCaptureFixture, name: str
) -> None:
    caplog.set_level(logging.INFO, logger="sayso")
    anthropic_server.then(*[stream(anthropic_server.message("Fine."))] * 2)
    made = model(anthropic_server, name)
    for _ in range(2):
        asked(made, config={"temperature": 0.7})
    assert anthropic_server.refusals == []
    assert [r.levelname for r in caplog.records if "temperature" in r.message] == ["WARNING"]


@pytest.mark.parametrize(
    ("name", "config", "expected"),
    [
        ("claude-sonnet-4-6", {}, {"temperature": 0.1}),
        ("claude-haiku-4-5", {}, {"temperature": 0.1}),
        ("claude-sonnet-4-6", {"top_p": 0.9}, {"top_p": 0.9}),
        ("claude-sonnet-4-6", {"top_p": 0.9, "temperature": 0.0}, {"temperature": 0.0}),
        ("claude-opus-4-5", {"top_p": 0.9, "temperature": 0.0}, {"temperature": 0.0}),
        ("claude-opus-4-5", {"top_k": 5}, {"temperature": 0.1, "top_k": 5}),
        ("claude-sonnet-4-6", {"thinking_level": "low", "temperature": 0.3}, {}),
    ],
)
def test_models_4_5_and_4_6_get_sampling_under_the_old_version(
    anthropic_server: AnthropicServer, name: str, config: Any, expected: Any
) -> None:
    body, version = sent(anthropic_server, name, config=config)
    assert {k: body[k] for k in ("temperature", "top_p", "top_k") if k in body} == expected
    assert version == ("2023-06-01" if expected else "2026-10-21")


def test_thinking_level_is_effort(anthropic_server: AnthropicServer) -> None:
    body, _ = sent(anthropic_server, "claude-opus-4-7", config={"thinking_level": "high"})
    assert body["thinking"] == {"type": "adaptive", "display": "summarized"}
    assert body["output_config"] == {"effort": "high"}


def test_thinking_level_is_ignored_with_a_warning_by_older_models(
    anthropic_server: AnthropicServer, caplog: pytest.LogCaptureFixture
) -> None:
    body, _ = sent(anthropic_server, "claude-opus-4-5", config={"thinking_level": "high"})
    assert not {"thinking", "output_config"} & body.keys()
    assert "thinking_level" in caplog.text


def test_structured_reply_is_asked_for_by_its_format(anthropic_server: AnthropicServer) -> None:
    anthropic_server.then(stream(anthropic_server.message('{"ok": true}')))
    schema = {"type": "object", "properties": {"ok": {"type": "boolean"}}, "required": ["ok"]}
    config = {"thinking_level": "low"}
    found = asked(model(anthropic_server), user("hi"), schema=schema, tools=(), config=config)
    assert said(found) == '{"ok": true}'
    body = anthropic_server.requests[0].body
    wanted = {**schema, "additionalProperties": False}
    assert body["output_config"] == {
        "effort": "low",
        "format": {"type": "json_schema", "schema": wanted},
    }
    assert "tool_choice" not in body and "tools" not in body


def test_static_prompt_is_cached_and_the_context_stands_after_it(
    anthropic_server: AnthropicServer,
) -> None:
    fields = {"system": "Static.", "context": "Now.", "config": {"cache_system_prompt": True}}
    body, _ = sent(anthropic_server, "claude-opus-5-5", **fields)
    mark = {"cache_control": {"type": "ephemeral"}}
    assert body["system"] == [{"type": "text", "text": "Static.", **mark}]
    noted, late = body["messages"]
    assert noted["content"] == [{"type": "text", "text": "hello", **mark}]
    assert late == {"role": "system", "content": [{"type": "text", "text": "Now."}]}
    body, _ = sent(anthropic_server, "claude-opus-4-7", **fields)
    assert body["system"][1] == {"type": "text", "text": "Now."}, "it takes none behind the user's"


def test_empty_static_prompt_is_never_marked(anthropic_server: AnthropicServer) -> None:
    fields = {"system": " ", "context": "Now.", "config": {"cache_system_prompt": True}}
    body, _ = sent(anthropic_server, "claude-opus-4-7", **fields)
    assert body["system"] == [{"type": "text", "text": "Now."}]
    body, _ = sent(anthropic_server, "claude-opus-5-5", config={"cache_system_prompt": True})
    assert "system" not in body


def test_tools_get_valid_names_and_plain_schemas(anthropic_server: AnthropicServer) -> None:
    union = {
        "anyOf": [{"$ref": "#/$defs/A"}, {"properties": {"b": {"type": "integer"}}}],
        "$defs": {
            "A": {"type": "object", "properties": {"a": {"type": "string"}}, "required": ["a"]}
        },
    }
    tools = [
        ToolDefinition("read file!", "Read.", {"type": "object", "properties": {}}),
        ToolDefinition("read_file_", "", union),
    ]
    server = anthropic_server
    server.then(stream(server.message("", [("t1", "read_file_", "{}")])))
    reply = reply_of(asked(model(server), tools=tools))
    assert server.refusals == []
    first, second = server.requests[0].body["tools"]
    assert (first["name"], second["name"]) == ("read_file_", "read_file__2")
    assert set(second["input_schema"]["properties"]) == {"a", "b"}
    assert isinstance(reply.turn.blocks[0], Call)
    assert reply.turn.blocks[0].name == "read file!", "the reply names the tool as we do"


def test_parameters_that_the_provider_would_refuse_go_and_come_under_other_names(
    anthropic_server: AnthropicServer,
) -> None:
    schema = {
        "type": "object",
        "properties": {"$top": {"type": "integer"}, "_top": {}, "größe": {}, "x" * 80: {}},
        "required": ["$top", "_top"],
    }
    find = ToolDefinition("find", "Find it.", schema)
    anthropic_server.then(
        stream(
            anthropic_server.message(calls=[("1", "find", '{"_top_2": 5, "_top": 1, "gr__e": 2}')])
        ),
        stream(anthropic_server.message("Fine.")),
    )
    reply = reply_of(asked(model(anthropic_server), tools=(find,)))
    (call,) = calls_of(reply.turn)
    assert call.input == {"$top": 5, "_top": 1, "größe": 2}
    history = (user("go"), assistant(call), user(Result("1", "found")))
    asked(model(anthropic_server), *history, tools=(find,))
    sent = anthropic_server.requests[1].body
    properties = sent["tools"][0]["input_schema"]["properties"]
    assert list(properties) == ["_top_2", "_top", "gr__e", "x" * 60]
    assert properties["_top_2"] == {"title": "$top", "type": "integer"}
    assert sent["tools"][0]["input_schema"]["required"] == ["_top_2", "_top"]
    assert sent["messages"][1]["content"][0]["input"] == {"_top_2": 5, "_top": 1, "gr__e": 2}


def test_thinking_is_shown_and_goes_back_verbatim(anthropic_server: AnthropicServer) -> None:
    server = anthropic_server
    call = ("toolu_9", "get_weather", '{"city": "Rome"}')
    server.then(stream(server.message("I look.", [call], thinking="The user asks.")))
    made = model(server)
    found = asked(made, user("weather?"))
    first = reply_of(found)
    assert "".join(e.text for e in found if isinstance(e, Thought)) == "The user asks."
    assert first.turn.raw == {
        "anthropic@claude-sonnet-5-5": [
            {"type": "thinking", "thinking": "The user asks.", "signature": "c2lnbmF0dXJl"},
            {"type": "text", "text": "I look."},
            {"type": "tool_use", "id": "toolu_9", "name": "get_weather", "input": {"city": "Rome"}},
        ]
    }
    assert not any(isinstance(b, Text) and "asks" in b.text for b in first.turn.blocks)
    server.then(stream(server.message("Sunny.")))
    asked(made, user("weather?"), first.turn, user(Result("toolu_9", "sun")))
    body = server.requests[1].body
    assert body["messages"][1]["content"] == first.turn.raw["anthropic@claude-sonnet-5-5"]


def test_blocks_of_another_adapter_are_ignored(anthropic_server: AnthropicServer) -> None:
    server = anthropic_server
    server.then(stream(server.message("Fine.")))
    other = assistant("Told.", raw={"elsewhere": [{"type": "thing"}]})
    asked(model(server), user("a"), other, user("b"))
    assert server.requests[0].body["messages"][1]["content"] == [{"type": "text", "text": "Told."}]


def test_unknown_blocks_are_kept_for_the_way_back(anthropic_server: AnthropicServer) -> None:
    block = {"type": "tomorrow_block", "payload": {"a": [1, None]}}
    server = anthropic_server
    whole = server.message("Fine.")
    extra = [
        sse({"type": "content_block_start", "index": 1, "content_block": block}),
        sse({"type": "content_block_delta", "index": 1, "delta": {"type": "tomorrow_delta"}}),
        sse({"type": "content_block_stop", "index": 1}),
        sse({"type": "tomorrow_event", "x": 1}),
    ]
    server.then(stream([*whole[:-2], *extra, *whole[-2:]]))
    reply = reply_of(asked(model(server)))
    assert reply.turn.raw == {
        "anthropic@claude-sonnet-5-5": [{"type": "text", "text": "Fine."}, block]
    }


def test_paused_turn_goes_back_as_it_is(anthropic_server: AnthropicServer) -> None:
    server = anthropic_server
    server.then(stream(server.message("Searching.", thinking="Hm.", stop="pause_turn")))
    made = model(server)
    paused = reply_of(asked(made, user("go")))
    assert paused.stop == "pause"
    server.then(stream(server.message("Found.")))
    assert said(asked(made, user("go"), paused.turn)) == "Found."
    messages = server.requests[1].body["messages"]
    assert [m["role"] for m in messages] == ["user", "assistant"]
    assert messages[1]["content"] == (paused.turn.raw or {})["anthropic@claude-sonnet-5-5"]


def test_usage_keeps_cached_tokens_apart(anthropic_server: AnthropicServer) -> None:
    server = anthropic_server
    server.then(stream(server.message("Fine.")))
    usage = reply_of(asked(model(server))).usage
    assert (usage.input_tokens, usage.output_tokens) == (11, 7)
    assert (usage.cache_read_tokens, usage.cache_write_tokens) == (5, 3)


@pytest.mark.parametrize(
    ("reason", "stop"),
    [
        ("stop_sequence", "end_turn"),
        ("model_context_window_exceeded", "max_tokens"),
        ("a_reason_of_tomorrow", "end_turn"),
        ("tool_use", "end_turn"),
    ],
)
def test_stop_reasons_are_mapped(anthropic_server: AnthropicServer, reason: str, stop: str) -> None:
    server = anthropic_server
    server.then(stream(server.message("Fine.", stop=reason)))
    assert reply_of(asked(model(server))).stop == stop


def test_events_cut_anywhere_on_the_wire_read_the_same(anthropic_server: AnthropicServer) -> None:
    server = anthropic_server
    whole = b"".join(server.message("Grüße \u2028 und 🙂.", [("t", "get_weather", "{}")]))
    server.then(stream([whole[i : i + 5] for i in range(0, len(whole), 5)]))
    reply = reply_of(asked(model(server), tools=(WEATHER,)))
    assert reply.turn.blocks[0] == Text("Grüße \u2028 und 🙂.")


def test_message_that_ends_within_a_block_is_broken(anthropic_server: AnthropicServer) -> None:
    whole = anthropic_server.message("", [("t", "get_weather", '{"city": "Rome"}')])
    stops = [event for event in whole if b"content_block_stop" not in event]
    anthropic_server.then(stream(stops))
    with pytest.raises(ModelError) as caught:
        asked(model(anthropic_server))
    assert caught.value.kind == "protocol"


@pytest.mark.parametrize("given", ['"Rome"', '["Rome"]', '{"city": 1e999}'])
def test_an_input_that_is_no_object_goes_back_to_the_model_also_when_it_comes_in_one_piece(
    anthropic_server: AnthropicServer, given: str
) -> None:
    whole = anthropic_server.message("", [("t", "get_weather", "")])
    pieces = [e.replace(b'"input": {}', b'"input": ' + given.encode()) for e in whole]
    anthropic_server.then(stream(pieces), stream(anthropic_server.message("Mended.")))
    made = model(anthropic_server)
    reply = reply_of(asked(made))
    (call,) = calls_of(reply.turn)
    assert call.error and dict(call.input) == {}
    back = user(Result("t", f"Error: {call.error}", is_error=True))
    assert said(asked(made, user("hello"), reply.turn, back)) == "Mended."


def test_text_with_half_a_surrogate_pair_goes_back_without_it(
    anthropic_server: AnthropicServer,
) -> None:
    call = ("t", "get_weather", "{}")
    whole = [e.replace(b"HALF", b"\\ud83d") for e in anthropic_server.message("aHALF", [call])]
    anthropic_server.then(stream(whole), stream(anthropic_server.message("Fine.")))
    made = model(anthropic_server)
    reply = reply_of(asked(made))
    assert said(asked(made, user("hello"), reply.turn, user(Result("t", "sun")))) == "Fine."
    assert anthropic_server.requests[1].body["messages"][1]["content"][0]["text"] == "a?"


@pytest.mark.parametrize(("kind", "status"), [("billing_error", 402), ("request_too_large", 413)])
def test_an_error_event_that_no_second_try_mends_is_none_to_try_again(
    anthropic_server: AnthropicServer, kind: str, status: int
) -> None:
    error = {"type": "error", "error": {"type": kind, "message": "no"}}
    anthropic_server.then(stream([sse(error)]))
    with pytest.raises(ModelError, match=f"status {status}") as caught:
        asked(model(anthropic_server, retries=2))
    assert not caught.value.retryable


def test_call_without_an_id_is_broken(anthropic_server: AnthropicServer) -> None:
    anthropic_server.then(stream(anthropic_server.message("", [("", "get_weather", "{}")])))
    with pytest.raises(ModelError, match="could not be read"):
        asked(model(anthropic_server))


@pytest.mark.parametrize("part", [b'"id": "t"', b'"name": "get_weather"'])
def test_call_whose_id_or_name_is_no_text_is_broken(
    anthropic_server: AnthropicServer, part: bytes
) -> None:
    whole = anthropic_server.message("", [("t", "get_weather", "{}")])
    key = part.partition(b":")[0]
    anthropic_server.then(stream([e.replace(part, key + b': ["x"]') for e in whole]))
    with pytest.raises(ModelError, match="could not be read"):
        asked(model(anthropic_server))


def test_id_of_a_call_may_be_a_number(anthropic_server: AnthropicServer) -> None:
    whole = anthropic_server.message("", [("t", "get_weather", "{}")])
    pieces = [e.replace(b'"id": "t"', b'"id": 0') for e in whole]
    anthropic_server.then(stream(pieces), stream(anthropic_server.message("Fine.")))
    made = model(anthropic_server)
    reply = reply_of(asked(made))
    assert [call.id for call in calls_of(reply.turn)] == ["0"]
    assert said(asked(made, user("hello"), reply.turn, user(Result("0", "sun")))) == "Fine."
    assert anthropic_server.refusals == []


@pytest.mark.parametrize("end", ["/", "/v1", "/v1/", "/v1/messages"])
@pytest.mark.parametrize("named", ["setting", "environment"])
def test_base_url_may_end_with_the_version(
    anthropic_server: AnthropicServer, end: str, named: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    anthropic_server.then(stream(anthropic_server.message("Fine.")))
    address = {"base_url": anthropic_server.url + end}
    if named == "environment":
        monkeypatch.setenv("ANTHROPIC_BASE_URL", address.pop("base_url"))
    made = load_model("anthropic:claude-x", {"api_key": SECRET, "retries": 0, **address})
    assert said(asked(made)) == "Fine."


def test_result_of_a_failed_call_is_marked(anthropic_server: AnthropicServer) -> None:
    turns: list[Turn] = [
        user("go"),
        assistant(Call("x", "get_weather", {})),
        user(Result("x", " ", is_error=True), "and now?"),
    ]
    anthropic_server.then(stream(anthropic_server.message("Fine.")))
    asked(model(anthropic_server), *turns)
    content = anthropic_server.requests[0].body["messages"][2]["content"]
    assert content[0]["is_error"] is True and content[0]["content"].strip()
    assert content[1] == {"type": "text", "text": "and now?"}
    assert json.dumps(content)
