from __future__ import annotations

import json
import logging
from typing import Any

import pytest
from asking import WEATHER, asked, assistant, calls_of, reply_of, said, text_of, user
from providers import OpenAIServer, chunk, data, stream

from sayso import (
    Ask,
    Call,
    Model,
    ModelError,
    Result,
    Thought,
    ToolDefinition,
    ToolStart,
    Turn,
    load_model,
    tool,
)
from sayso.models.adapters import Connection, Learned, dump_turns, load_turns
from sayso_openai.dialects import dialect_of
from sayso_openai.request import OPTIONAL, explain_config, request

DONE = b"data: [DONE]\n\n"


def model(server: OpenAIServer, **settings: Any) -> Model:
    known = {**server.settings(), "timeout": 60, "retries": 0}
    return load_model("openai:some-model", known | settings)


def body(ask: Ask, name: str, preset: str = "openai") -> dict[str, Any]:
    """The request for a model that has refused nothing yet."""
    return request(ask, name, dialect_of(preset, name), Learned(name, OPTIONAL), Connection())


def answered(server: OpenAIServer, *chunks: bytes) -> Any:
    server.then(stream(list(chunks)))
    return asked(model(server))


def called(index: int | None = None, **function: Any) -> bytes:
    call: dict[str, Any] = {"function": function}
    if "id" in function:
        call["id"] = function.pop("id")
    if index is not None:
        call["index"] = index
    return chunk({"tool_calls": [call]})


def test_conversation_is_sent_as_chat_messages(openai_server: OpenAIServer) -> None:
    server = openai_server
    server.then(stream(server.message("Fine.")))
    asked(
        model(server),
        user("weather?"),
        assistant("I look.", Call("c1", "get_weather", {"a": 1})),
        user(Result("c1", "no such city", is_error=True), "try Rome"),
        system="S",
        context="C",
    )
    sent = server.requests[0].body
    assert sent["messages"] == [
        {"role": "system", "content": "S\n\nC"},
        {"role": "user", "content": "weather?"},
        {
            "role": "assistant",
            "content": "I look.",
            "tool_calls": [
                {
                    "id": "c1",
                    "type": "function",
                    "function": {"name": "get_weather", "arguments": '{"a": 1}'},
                }
            ],
        },
        {"role": "tool", "tool_call_id": "c1", "content": "Error: no such city"},
        {"role": "user", "content": "try Rome"},
    ]
    assert sent["stream_options"] == {"include_usage": True}
    assert sent["temperature"] == 0.1 and "max_tokens" not in sent
    assert sent["tools"][0]["function"]["parameters"] == WEATHER.input_schema


def test_call_whose_end_is_unknown_is_told_as_that_and_as_no_error(
    openai_server: OpenAIServer,
) -> None:
    openai_server.then(stream(openai_server.message("Look first.")))
    unknown = "Outcome unknown: the service stopped. It may or may not have taken effect."
    asked(
        model(openai_server),
        user("wipe it"),
        assistant(Call("c1", "wipe", {})),
        user(Result("c1", unknown, is_error=True)),
    )
    reported = openai_server.requests[0].body["messages"][-1]
    assert reported == {"role": "tool", "tool_call_id": "c1", "content": unknown}


def test_schema_of_a_tool_holds_nothing_that_openai_refuses() -> None:
    @tool
    def draw(line: tuple[float, float], lines: dict[str, list[tuple[int, str] | None]]) -> None:
        """Draw lines."""

    either = {"properties": {"items": {"type": ["array", "null"]}, "all": True}}
    close = either | {"type": "object", "not": {"required": ["items", "all"]}, "enum": [{}]}
    tools = [ToolDefinition("draw", "", draw.input_schema), ToolDefinition("close", "", close)]
    sent = body(Ask((user("go"),), tools=tools), "gpt-4.1")["tools"]
    drawn, closed = (each["function"]["parameters"] for each in sent)
    numbers = {"maxItems": 2, "minItems": 2, "prefixItems": [{"type": "number"}] * 2}
    assert drawn["properties"]["line"] == {"type": "array", **numbers, "items": {}}
    inner = drawn["properties"]["lines"]["additionalProperties"]["items"]["anyOf"][0]
    assert inner["items"] == {}
    properties = {"items": {"type": ["array", "null"], "items": {}}, "all": True}
    assert closed == {"type": "object", "properties": properties}


def test_no_key_is_needed_elsewhere(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENAI_BASE_URL", "http://127.0.0.1:9/v1")
    assert load_model("openai:llama", {}).name == "llama"


@pytest.mark.parametrize(
    ("name", "config", "expected"),
    [
        ("llama", {}, {"temperature": 0.1}),
        ("llama", {"top_p": 0.5}, {"top_p": 0.5}),
        (
            "llama",
            {"top_k": 5, "thinking_level": "low"},
            {"temperature": 0.1, "top_k": 5, "reasoning_effort": "low"},
        ),
        ("gpt-4.1", {"top_k": 5, "thinking_level": "low"}, {"temperature": 0.1}),
        (
            "gpt-5.5",
            {"temperature": 0.3, "thinking_level": "high"},
            {"reasoning_effort": "high"},
        ),
    ],
)
def test_config_is_sent_as_far_as_the_endpoint_takes_it(
    name: str, config: Any, expected: Any
) -> None:
    sent = body(Ask((user("hi"),), config=config), name)
    keys = ("temperature", "top_p", "top_k", "reasoning_effort")
    assert {key: sent[key] for key in keys if key in sent} == expected
    assert not {"max_tokens", "max_completion_tokens"} & sent.keys(), "the model's own maximum"


def test_config_that_is_left_out_is_told(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, logger="sayso")
    for name, config in (
        ("gpt-5.5", {"temperature": 0.3}),
        ("gpt-5.5", {}),
        ("gpt-4.1", {"top_k": 3}),
        ("llama", {"top_k": 3}),
    ):
        explain_config(config, dialect_of("openai", name), name)
    assert [record.levelname for record in caplog.records] == ["WARNING", "INFO", "WARNING"]
    assert {record.name for record in caplog.records} == {"sayso.models"}


def test_structured_reply_is_asked_for_by_its_format(openai_server: OpenAIServer) -> None:
    server = openai_server
    server.then(stream(server.message('```json\n{"ok": true}\n```')))
    schema = {"type": "object", "properties": {"ok": {"type": "boolean"}}, "required": ["ok"]}
    found = asked(model(server), schema=schema, tools=())
    assert said(found) == text_of(reply_of(found).turn) == '{"ok": true}'
    sent = server.requests[0].body["response_format"]["json_schema"]
    assert sent["schema"]["additionalProperties"] is False and sent["strict"] is True


def test_arguments_in_one_piece_without_index_and_id(openai_server: OpenAIServer) -> None:
    found = answered(
        openai_server,
        called(name="get_weather", arguments='{"city": "Rome"}'),
        called(name="get_weather", arguments='{"city": "Oslo"}'),
        chunk({}, finish_reason="stop"),
        DONE,
    )
    reply = reply_of(found)
    assert [dict(c.input) for c in calls_of(reply.turn)] == [{"city": "Rome"}, {"city": "Oslo"}]
    assert len({c.id for c in calls_of(reply.turn)}) == 2 and all(
        c.id for c in calls_of(reply.turn)
    )
    assert reply.stop == "tool_use", "calls stand beside a finish reason of stop"


def test_fragments_without_index_belong_to_the_last_call(openai_server: OpenAIServer) -> None:
    found = answered(
        openai_server,
        called(id="a", name="get_weather", arguments=""),
        called(arguments='{"city":'),
        called(arguments=' "Rome"}'),
        chunk({}, finish_reason="tool_calls"),
        DONE,
    )
    assert [(c.id, dict(c.input)) for c in calls_of(reply_of(found).turn)] == [
        ("a", {"city": "Rome"})
    ]


def test_every_call_with_the_index_zero(openai_server: OpenAIServer) -> None:
    found = answered(
        openai_server,
        called(0, id="a", name="get_weather", arguments='{"city": "Rome"}'),
        called(0, id="b", name="get_weather", arguments='{"city": "Oslo"}'),
        chunk({}, finish_reason="tool_calls"),
        DONE,
    )
    assert [c.id for c in calls_of(reply_of(found).turn)] == ["a", "b"]


def test_whole_calls_with_the_index_zero_need_no_id(openai_server: OpenAIServer) -> None:
    found = answered(
        openai_server,
        called(0, id="", name="get_weather", arguments='{"city": "Rome"}'),
        called(0, id="", name="get_weather", arguments=""),
        called(0, id="", name="get_time", arguments='{"city": "Oslo"}'),
        chunk({}, finish_reason="tool_calls"),
        DONE,
    )
    calls = [(c.name, dict(c.input)) for c in calls_of(reply_of(found).turn)]
    assert calls == [("get_weather", {"city": "Rome"}), ("get_time", {"city": "Oslo"})]


def test_calls_of_two_tools_with_the_index_zero_and_no_id_are_two(
    openai_server: OpenAIServer,
) -> None:
    found = answered(
        openai_server,
        called(0, id="", name="list_cities", arguments=""),
        called(0, id="", name="get_time", arguments=""),
        called(0, arguments='{"city": "Oslo"}'),
        chunk({}, finish_reason="tool_calls"),
        DONE,
    )
    calls = [(c.name, dict(c.input)) for c in calls_of(reply_of(found).turn)]
    assert calls == [("list_cities", {}), ("get_time", {"city": "Oslo"})]


def test_space_behind_the_arguments_of_a_call_is_no_further_call(
    openai_server: OpenAIServer,
) -> None:
    found = answered(
        openai_server,
        called(0, name="get_time", arguments='{"city": "Oslo"}'),
        called(0, name="get_time", arguments="\n"),
        chunk({}, finish_reason="tool_calls"),
        DONE,
    )
    assert [dict(c.input) for c in calls_of(reply_of(found).turn)] == [{"city": "Oslo"}]


def test_arguments_as_an_object(openai_server: OpenAIServer) -> None:
    found = answered(
        openai_server,
        called(0, id="a", name="get_weather", arguments={"city": "Rome"}),
        called(1, id="b", name="get_weather", arguments=None),
        chunk({}, finish_reason="tool_calls"),
    )
    assert [dict(c.input) for c in calls_of(reply_of(found).turn)] == [{"city": "Rome"}, {}]


def test_id_of_a_call_may_be_a_number(openai_server: OpenAIServer) -> None:
    piece = chunk({"tool_calls": [{"index": 0, "id": 7, "function": {"name": "get_weather"}}]})
    reply = reply_of(answered(openai_server, piece, chunk({}, finish_reason="tool_calls"), DONE))
    assert [call.id for call in calls_of(reply.turn)] == ["7"]


@pytest.mark.parametrize(
    ("written", "asked_at"),
    [
        ("/v1/", "/v1/chat/completions"),
        ("/v1/chat/completions", "/v1/chat/completions"),
        ("/deployments/d/?api-version=2026", "/deployments/d/chat/completions?api-version=2026"),
    ],
)
def test_base_url_may_have_a_query_or_name_the_whole_address(
    openai_server: OpenAIServer, written: str, asked_at: str
) -> None:
    # The local server only knows the plain path.
    with pytest.raises(ModelError, match="status 400"):
        asked(model(openai_server, base_url=openai_server.url + written))
    assert openai_server.requests[0].path == asked_at


def test_done_and_usage_may_be_missing(openai_server: OpenAIServer) -> None:
    reply = reply_of(
        answered(openai_server, chunk({"content": "Fine."}), chunk({}, finish_reason="stop"))
    )
    assert text_of(reply.turn) == "Fine."
    assert reply.usage.output_tokens == 0


def test_done_stands_in_for_a_missing_finish_reason(openai_server: OpenAIServer) -> None:
    assert said(answered(openai_server, chunk({"content": "Fine."}), DONE)) == "Fine."


def test_done_alone_is_no_answer(openai_server: OpenAIServer) -> None:
    with pytest.raises(ModelError):
        answered(openai_server, DONE)


def test_error_of_another_form_before_done_is_no_answer(openai_server: OpenAIServer) -> None:
    with pytest.raises(ModelError):
        answered(openai_server, data({"text": "server error", "error_code": 50001}), DONE)


def test_usage_counts_cached_tokens_apart(openai_server: OpenAIServer) -> None:
    usage = reply_of(answered(openai_server, *openai_server.message("Fine."))).usage
    assert (usage.input_tokens, usage.cache_read_tokens, usage.output_tokens) == (11, 5, 7)


def test_reasoning_is_a_thought(openai_server: OpenAIServer) -> None:
    found = answered(openai_server, *openai_server.message("Fine.", thinking="Let me see."))
    assert "".join(e.text for e in found if isinstance(e, Thought)) == "Let me see."
    assert said(found) == "Fine."


def test_reasoning_before_a_call_goes_back_with_it(openai_server: OpenAIServer) -> None:
    server = openai_server
    call = ("c", "get_weather", '{"city": "Rome"}')
    server.then(stream(server.message(calls=[call], thinking="Rome it is.")))
    server.then(stream(server.message("Fine.", thinking="Sunny.")))
    asker = model(server)
    first = reply_of(asked(asker, user("weather?"))).turn
    (first,) = load_turns(json.loads(json.dumps(dump_turns([first]))))
    last = reply_of(asked(asker, user("weather?"), first, user(Result("c", "sunny")))).turn
    assert last.raw is None
    server.then(stream(server.message("Fine.")))
    asked(asker, user("weather?"), assistant(*first.blocks), user(Result("c", "sunny")))
    sent = [request.body["messages"][1] for request in server.requests[1:]]
    assert [message.get("reasoning_content") for message in sent] == ["Rome it is.", None]
    assert all(message["tool_calls"] for message in sent)


def test_no_message_is_without_reasoning_where_another_of_the_model_has_some(
    openai_server: OpenAIServer,
) -> None:
    """DeepSeek refuses a conversation in which one message lacks it, but accepts an empty one."""
    server = openai_server
    call = ("c", "get_weather", '{"city": "Rome"}')
    server.then(stream(server.message(calls=[call], thinking="Rome it is.")))
    asker = model(server)
    first = reply_of(asked(asker, user("weather?"))).turn
    second = assistant("And", Call("d", "get_weather", {}))
    turns = [first, user(Result("c", "sunny")), second, user(Result("d", "rain")), assistant("So.")]
    for before in (turns, turns[2:]):
        server.then(stream(server.message("Fine.")))
        asked(asker, user("weather?"), *before, user("thanks"))
    sent = [
        [m.get("reasoning_content") for m in r.body["messages"] if m["role"] == "assistant"]
        for r in server.requests[1:]
    ]
    assert sent == [["Rome it is.", "", ""], [None, None]]


def test_signature_of_a_call_goes_back_with_that_call(openai_server: OpenAIServer) -> None:
    signature = {"google": {"thought_signature": "c2lnbmF0dXJl"}}
    function = {"name": "get_weather", "arguments": '{"city": "Rome"}'}
    signed = {"id": "c1", "function": function, "extra_content": signature}
    calls = chunk({"tool_calls": [signed, {"id": "c2", "function": function}]})
    first = reply_of(answered(openai_server, calls, chunk({}, finish_reason="stop"))).turn
    (first,) = load_turns(json.loads(json.dumps(dump_turns([first]))))
    openai_server.then(stream(openai_server.message("Fine.")))
    results = user(Result("c1", "sunny"), Result("c2", "sunny"))
    asked(model(openai_server), user("weather?"), first, results)
    message = openai_server.requests[1].body["messages"][1]
    called = {"type": "function", "function": function}
    assert message["tool_calls"] == [
        {"id": "c1", **called, "extra_content": signature},
        {"id": "c2", **called},
    ]


def reasoned(*details: Any) -> bytes:
    return chunk({"reasoning": "hm", "reasoning_details": list(details)})


def test_reasoning_details_go_back_whole_and_with_the_ids_of_their_calls(
    openai_server: OpenAIServer,
) -> None:
    """Gateways such as OpenRouter put into them the data that each provider behind them wants
    back."""
    server = openai_server
    text = {"type": "reasoning.text", "format": "google-gemini-v1", "index": 0}
    signed = {"type": "reasoning.encrypted", "format": "google-gemini-v1"}
    long = "tool_" + "x" * 60
    server.then(
        stream(
            [
                reasoned({**text, "text": "Rome ", "signature": None}),
                reasoned({**text, "text": "it is."}, {**text, "signature": "s"}),
                reasoned({**signed, "data": "b25l", "id": long, "index": 0}),
                reasoned(
                    {**signed, "data": "dHdv", "id": "r1", "index": 0}, {**signed, "id": "r2"}
                ),
                called(0, id=long, name="get_weather", arguments='{"city": "Rome"}'),
                called(1, id="c2", name="get_weather", arguments='{"city": "Oslo"}'),
                chunk({}, finish_reason="tool_calls"),
            ]
        ),
        stream(server.message("Fine.")),
    )
    asker = model(server)
    found = asked(asker, user("weather?"))
    assert "".join(e.text for e in found if isinstance(e, Thought)) == "hm" * 4
    first = reply_of(found).turn
    assert list(first.raw or ()) == ["openai:some-model"]
    (first,) = load_turns(json.loads(json.dumps(dump_turns([first]))))
    asked(asker, user("weather?"), first, user(Result(long, "sunny"), Result("c2", "rain")))
    message = server.requests[1].body["messages"][1]
    sent = [call["id"] for call in message["tool_calls"]]
    assert message["reasoning_details"] == [
        {**text, "text": "Rome it is.", "signature": "s"},
        {**signed, "data": "b25l", "id": sent[0], "index": 0},
        {**signed, "data": "dHdv", "id": "r1", "index": 0},
    ]
    assert len(sent[0]) == 40 and sent[1] == "c2"
    assert server.refusals == []


def test_reasoning_details_of_anthropic_are_bound_to_what_stands_before_them(
    openai_server: OpenAIServer,
) -> None:
    detail = {"type": "reasoning.text", "text": "hm", "format": "anthropic-claude-v1"}
    call = called(0, id="c", name="get_weather", arguments="{}")
    turn = reply_of(answered(openai_server, reasoned(detail), call, DONE)).turn
    assert turn.raw == {"openai": [{"reasoning_details": [detail]}]}


@pytest.mark.parametrize("details", ["hm", 1, ["hm", None], [{"type": ["x"], "id": ["y"]}], {}])
def test_reasoning_details_of_another_form_break_no_message(
    openai_server: OpenAIServer, details: Any
) -> None:
    call = called(0, id="c", name="get_weather", arguments="{}")
    odd = chunk({"reasoning_details": details})
    assert calls_of(reply_of(answered(openai_server, odd, call, DONE)).turn)


@pytest.mark.parametrize(
    ("key", "sent"), [("openai:some-model", "hm"), ("openai:other", None), ("openai", "hm")]
)
def test_fields_of_another_model_are_not_sent(key: str, sent: str | None) -> None:
    own = {"reasoning_content": "hm", "tool_calls": [{"extra_content": {"google": {}}}]}
    called = Turn("assistant", [Call("c", "get_weather", {})], {key: [own]})
    (called,) = load_turns(json.loads(json.dumps(dump_turns([called]))))
    ask = Ask((user("weather?"), called, user(Result("c", "sunny"))), tools=(WEATHER,))
    message = body(ask, "some-model")["messages"][1]
    assert message.get("reasoning_content") == sent
    assert ("extra_content" in message["tool_calls"][0]) is (sent is not None)


def test_content_in_parts(openai_server: OpenAIServer) -> None:
    parts = [{"type": "text", "text": "Fi"}, {"type": "text", "text": "ne."}]
    found = answered(openai_server, chunk({"content": parts}), chunk({}, finish_reason="stop"))
    assert said(found) == "Fine."


def test_refusal_is_told(openai_server: OpenAIServer) -> None:
    reply = reply_of(
        answered(openai_server, chunk({"refusal": "No."}), chunk({}, finish_reason="stop"))
    )
    assert (reply.stop, text_of(reply.turn)) == ("refusal", "No.")


@pytest.mark.parametrize(
    ("error", "kind"),
    [
        ({"code": 429, "message": "x"}, "rate_limit"),
        ({"code": "429"}, "rate_limit"),
        ({"code": "rate_limit_exceeded"}, "rate_limit"),
        ({"type": "invalid_request_error", "code": None}, "bad_request"),
        ({"code": "invalid_api_key"}, "auth"),
        ("out of memory", "server"),
    ],
)
def test_error_object_within_the_stream(openai_server: OpenAIServer, error: Any, kind: str) -> None:
    with pytest.raises(ModelError) as caught:
        answered(openai_server, chunk({"content": "Hal"}), data({"error": error}), DONE)
    assert caught.value.kind == kind
    assert "memory" not in str(caught.value)


def test_events_cut_anywhere_and_framed_otherwise_read_the_same(
    openai_server: OpenAIServer,
) -> None:
    text = "Grüße \u2028\x85 und 🙂."
    chunks = [chunk({"content": text}), chunk({}, finish_reason="stop"), DONE]
    whole = b": comment\r\n\r\n" + b"".join(chunks).replace(b"\n", b"\r\n").replace(
        b"data: ", b"data:"
    )
    assert said(answered(openai_server, *[whole[i : i + 3] for i in range(0, len(whole), 3)])) == (
        text
    )


@pytest.mark.parametrize("end", [b"\n", b"\r\n", b"\r"])
@pytest.mark.parametrize("size", [1, 4, 1000])
def test_events_are_framed_as_the_standard_allows(
    openai_server: OpenAIServer, end: bytes, size: int
) -> None:
    first = chunk({"content": "Fine."}).replace(b'"choices"', b'\ndata: "choices"')
    empty = b"data:\n\ndata\n\n: comment\nevent: ping\ndata: \n\nretry: 10\n\n"
    last = chunk({}, finish_reason="stop")
    whole = b"\xef\xbb\xbf" + (first + empty + last + DONE).replace(b"\n", end)
    pieces = [whole[i : i + size] for i in range(0, len(whole), size)]
    assert said(answered(openai_server, *pieces)) == "Fine."


def test_fragments_without_index_that_repeat_their_id_are_one_call(
    openai_server: OpenAIServer,
) -> None:
    found = answered(
        openai_server,
        called(id="a", name="get_weather", arguments='{"city":'),
        called(id="b", name="get_weather", arguments='{"city": "Os'),
        called(id="a", name="get_weather", arguments=' "Rome"}'),
        called(id="b", arguments='lo"}'),
        chunk({}, finish_reason="tool_calls"),
        DONE,
    )
    calls = [(c.id, dict(c.input)) for c in calls_of(reply_of(found).turn)]
    assert calls == [("a", {"city": "Rome"}), ("b", {"city": "Oslo"})]
    assert sum(isinstance(event, ToolStart) for event in found) == 2


def test_whole_calls_without_index_may_have_one_id(openai_server: OpenAIServer) -> None:
    found = answered(
        openai_server,
        called(id="0", name="get_weather", arguments='{"city": "Rome"}'),
        called(id="0", name="get_weather", arguments='{"city": "Oslo"}'),
        chunk({}, finish_reason="tool_calls"),
        DONE,
    )
    cities = [c.input.get("city") for c in calls_of(reply_of(found).turn)]
    assert cities == ["Rome", "Oslo"]


def test_legacy_function_call_is_a_call(openai_server: OpenAIServer) -> None:
    found = answered(
        openai_server,
        chunk({"content": None, "function_call": {"name": "get_weather", "arguments": ""}}),
        chunk({"function_call": {"arguments": '{"city":'}}),
        chunk({"function_call": {"arguments": ' "Rome"}'}}),
        chunk({}, finish_reason="function_call"),
        DONE,
    )
    reply = reply_of(found)
    assert [dict(c.input) for c in calls_of(reply.turn)] == [{"city": "Rome"}]
    assert reply.stop == "tool_use"


def test_whole_message_in_a_stream_is_the_answer(openai_server: OpenAIServer) -> None:
    call = {"id": "a", "function": {"name": "get_weather", "arguments": '{"city": "Rome"}'}}
    message = {"role": "assistant", "content": "I look.", "tool_calls": [call]}
    choice = {"index": 0, "message": message, "finish_reason": "tool_calls"}
    reply = reply_of(answered(openai_server, data({"choices": [choice]}), DONE))
    assert text_of(reply.turn) == "I look."
    assert [c.id for c in calls_of(reply.turn)] == ["a"]


def test_whole_message_beside_deltas_says_nothing_again(openai_server: OpenAIServer) -> None:
    last = {"index": 0, "message": {"content": "Fine."}, "finish_reason": "stop"}
    found = answered(openai_server, chunk({"content": "Fine."}), data({"choices": [last]}), DONE)
    assert said(found) == "Fine."


@pytest.mark.parametrize("reason", ["error", "insufficient_system_resource"])
def test_message_that_the_server_could_not_end_is_an_error(
    openai_server: OpenAIServer, reason: str
) -> None:
    pieces = (called(0, id="a", name="get_weather"), chunk({}, finish_reason=reason), DONE)
    with pytest.raises(ModelError, match="before it was complete"):
        answered(openai_server, *pieces)


@pytest.mark.parametrize(
    "reason", ["function_call_filter: MALFORMED_FUNCTION_CALL", "MALFORMED_FUNCTION_CALL"]
)
def test_call_that_the_provider_could_not_read_is_asked_for_again(
    openai_server: OpenAIServer, reason: str
) -> None:
    """Gemini ends such a message without a word; the next attempt usually succeeds."""
    server = openai_server
    server.then(stream([chunk({"role": "assistant"}, finish_reason=reason), DONE]))
    server.then(stream(server.message("Fine.")))
    assert said(asked(model(server, retries=1))) == "Fine."
    server.then(stream([chunk({"content": "So"}), chunk({}, finish_reason=reason), DONE]))
    with pytest.raises(ModelError, match="before it was complete"):
        asked(model(server, retries=1))


@pytest.mark.parametrize("reason", ["model_length", "max_tokens", "MAX_TOKENS", "LENGTH"])
def test_limit_of_the_model_is_told_as_a_limit(openai_server: OpenAIServer, reason: str) -> None:
    pieces = (chunk({"content": "Half a"}), chunk({}, finish_reason=reason), DONE)
    assert reply_of(answered(openai_server, *pieces)).stop == "max_tokens"


@pytest.mark.parametrize(
    "reason", ["content_filter", "content_filter: PROHIBITED_CONTENT", "SAFETY", "sensitive"]
)
def test_filtered_message_is_told_as_a_refusal_and_runs_no_tool(
    openai_server: OpenAIServer, reason: str
) -> None:
    call = called(0, id="a", name="get_weather", arguments='{"city": "Oslo"}')
    reply = reply_of(answered(openai_server, call, chunk({}, finish_reason=reason), DONE))
    assert reply.stop == "refusal"


def test_long_and_odd_ids_are_shortened_alike(openai_server: OpenAIServer) -> None:
    server = openai_server
    server.then(stream(server.message("Fine.")))
    ids = ["call:" + "x" * 80 + end for end in "ab"]
    calls = [Call(call_id, "get_weather", {}) for call_id in ids]
    results = [Result(call_id, call_id[-1]) for call_id in reversed(ids)]
    asked(model(server), user("go"), assistant(*calls), user(*results))
    assert server.refusals == []
    messages = server.requests[0].body["messages"]
    order = [call["id"] for call in messages[1]["tool_calls"]]
    outcome = {m["tool_call_id"]: m["content"] for m in messages if m["role"] == "tool"}
    assert [outcome[call_id] for call_id in order] == ["a", "b"]
    assert json.dumps(messages)
