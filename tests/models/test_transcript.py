from __future__ import annotations

import json
import re
import time
from typing import Any

from asking import WEATHER, assistant, user
from gemini_server import gemini_refusal
from google.genai import types
from hypothesis import given
from hypothesis import strategies as st
from providers import SECRET, Request, anthropic_refusal, openai_refusal
from responses_server import responses_refusal

from sayso.models import Ask, Block, Call, Result, Text, Turn
from sayso.models.adapters import Connection, Learned
from sayso.models.schemas import closed, plain_object
from sayso.models.transcript import NOT_RECORDED, transcript
from sayso_anthropic import request as anthropic_request
from sayso_gemini import request as gemini_request
from sayso_openai import request as openai_request
from sayso_openai import responses_request
from sayso_openai.dialects import dialect_of

IDS = st.sampled_from(["a", "b", "c:1", "c_1", "", "x" * 70])
TEXTS = st.sampled_from(["", " \n", "word", "more words"])
BLOCKS: st.SearchStrategy[Block] = st.one_of(
    TEXTS.map(Text),
    st.builds(Call, IDS, st.sampled_from(["get_weather", "odd name!", ""]), st.just({"k": 1})),
    st.builds(Result, IDS, TEXTS, st.booleans()),
)
TURNS = st.lists(
    st.builds(
        Turn, st.sampled_from(["user", "assistant"]), st.lists(BLOCKS, max_size=4).map(tuple)
    ),
    max_size=7,
)
HEADERS = {"authorization": f"Bearer {SECRET}"}
CLAUDE, GPT, GEMINI = "claude-opus-5-5", "gpt-5.5", "gemini-3.8-flash"


def learned(model: str) -> Learned:
    return Learned(model, ())


def anthropic_body(ask: Ask) -> dict[str, Any]:
    return anthropic_request.request(ask, CLAUDE, learned(CLAUDE))


def openai_body(ask: Ask, model: str = "some-model", preset: str = "openai") -> dict[str, Any]:
    dialect = dialect_of(preset, model)
    return openai_request.request(ask, model, dialect, learned(model), Connection())


def refusal_of_responses(ask: Ask) -> str | None:
    dialect = dialect_of("openai", GPT)
    body = responses_request.request(ask, GPT, dialect, learned(GPT), Connection())
    return responses_refusal(Request("/responses", HEADERS, body))


def refusal_of_gemini(ask: Ask) -> str | None:
    sent = [
        types.Content.model_validate(content).model_dump(
            mode="json", by_alias=True, exclude_none=True
        )
        for content in gemini_request.contents(ask, GEMINI)
    ]
    path = f"/v1/models/{GEMINI}:streamGenerateContent?alt=sse"
    return gemini_refusal(Request(path, {"x-goog-api-key": SECRET}, {"contents": sent}))


@given(TURNS, st.booleans())
def test_any_turns_become_a_request_that_the_providers_take(turns: list[Turn], tools: bool) -> None:
    ask = Ask(turns, tools=(WEATHER,) if tools else ())
    body: dict[str, Any] = anthropic_body(ask)
    assert anthropic_refusal(Request("/v1/messages", HEADERS, body)) is None
    assert body["messages"][-1]["role"] == "user"
    body = openai_body(ask)
    assert openai_refusal(Request("/chat/completions", HEADERS, body)) is None
    body = openai_body(ask, "mistral-large-4", "mistral")
    assert openai_refusal(Request("/chat/completions", HEADERS, body)) is None
    assert mistral_refusal(body["messages"]) is None
    assert refusal_of_responses(ask) is None
    assert refusal_of_gemini(ask) is None


def mistral_refusal(messages: list[dict[str, Any]]) -> str | None:
    """The rule of Mistral's own that a conversation breaks, None when it breaks none."""
    before = "system"
    for message in messages:
        role = message["role"]
        ids = [message.get("tool_call_id", "a23456789")]
        ids += [call["id"] for call in message.get("tool_calls", ())]
        if not all(re.fullmatch(r"[a-zA-Z0-9]{9}", call_id) for call_id in ids):
            return f"Tool call id was {ids} but must be a-z, A-Z, 0-9, with a length of 9"
        if (before, role) in (("tool", "user"), ("user", "tool"), ("assistant", "assistant")):
            return f"Unexpected role {role!r} after role {before!r}"
        before = role
    return None if before in ("user", "tool") else "the last message must be a user's or a tool's"


@given(TURNS, st.booleans())
def test_no_word_is_lost(turns: list[Turn], tools: bool) -> None:
    ask = Ask(turns, tools=(WEATHER,) if tools else ())
    sent = json.dumps(anthropic_body(ask)["messages"])
    wanted = sum(
        (b.text if isinstance(b, Text) else b.output).count("word")
        for turn in turns
        for b in turn.blocks
        if not isinstance(b, Call)
    )
    assert sent.count("word") == wanted


@given(TURNS)
def test_what_is_valid_once_stays_as_it_is(turns: list[Turn]) -> None:
    once = transcript(turns)
    assert transcript(once) == once


def test_results_stand_in_the_order_of_the_calls_and_texts_after_them() -> None:
    turns = transcript(
        [
            user("go"),
            assistant(Call("1", "a", {}), Call("2", "b", {})),
            user("a word", Result("2", "two"), Result("1", "one")),
        ]
    )
    assert turns[2].blocks == (Result("1", "one"), Result("2", "two"), Text("a word"))


def test_call_without_a_result_gets_one_that_says_so() -> None:
    turns = transcript([user("go"), assistant(Call("1", "a", {})), user("and?")])
    assert turns[2].blocks[0] == Result("1", NOT_RECORDED, True)


def test_repeated_ids_are_told_apart_with_their_results() -> None:
    turns = transcript(
        [
            user("go"),
            assistant(Call("1", "a", {})),
            user(Result("1", "first")),
            assistant(Call("1", "a", {})),
            user(Result("1", "second")),
        ]
    )
    outcome = [block for turn in turns for block in turn.blocks if isinstance(block, Result)]
    assert [result.output for result in outcome] == ["first", "second"]
    assert len({result.call_id for result in outcome}) == 2


def test_thousands_of_calls_cost_no_more_each_than_a_few() -> None:
    count = 10_000
    alike = [Call("1", "a", {}) for _ in range(count)]
    apart = [Call(f"c{n}", "a", {}) for n in range(count)]
    results = [Result(call.id, str(n)) for calls in (alike, apart) for n, call in enumerate(calls)]
    start = time.process_time()
    turns = transcript([user("go"), assistant(*alike, *apart), user(*results)])
    for n in range(count // 10):
        turns += [assistant(Call("1", "a", {})), user(Result("1", str(n)))]
    turns = transcript(turns)
    assert time.process_time() - start < 4
    outcomes = [block for turn in turns for block in turn.blocks if isinstance(block, Result)]
    assert len({result.call_id for result in outcomes}) == 2 * count + count // 10


def test_schema_of_an_object_is_left_as_it_is() -> None:
    schema = {"type": "object", "properties": {"a": {"anyOf": [{"type": "string"}]}}, "$defs": {}}
    assert plain_object(schema) == schema
    assert plain_object({}) == {"type": "object", "properties": {}}


def test_all_of_keeps_what_is_required_and_one_of_does_not() -> None:
    one = {"type": "object", "properties": {"a": {}}, "required": ["a"]}
    two = {"type": "object", "properties": {"b": {}}, "required": ["b"]}
    assert plain_object({"allOf": [one, two]})["required"] == ["a", "b"]
    merged = plain_object({"oneOf": [one, two]})
    assert "required" not in merged and set(merged["properties"]) == {"a", "b"}


def test_schema_that_refers_to_itself_ends() -> None:
    schema = {"$ref": "#/$defs/A", "$defs": {"A": {"allOf": [{"$ref": "#/$defs/A"}]}}}
    assert plain_object(schema)["type"] == "object"
    assert plain_object({"$ref": "#/$defs/A", "$defs": {"A": {"$ref": "#/$defs/A"}}})


def test_closing_a_schema_leaves_names_and_values_alone() -> None:
    schema = {
        "type": "object",
        "properties": {"properties": {"type": "string"}, "type": {"enum": [{"type": "object"}]}},
        "$defs": {"A": {"type": "object", "additionalProperties": True}},
    }
    shut = closed(schema)
    assert shut["properties"] == schema["properties"]
    assert shut["additionalProperties"] is False
    assert shut["$defs"]["A"]["additionalProperties"] is True


def test_calls_among_a_providers_own_blocks_are_told_as_text_where_there_are_no_tools() -> None:
    call = Call("1", "get_weather", {})
    own = {
        "anthropic@claude-opus-5-5": [
            {"type": "tool_use", "id": "1", "name": "get_weather", "input": {}}
        ]
    }
    turns = [user("go"), Turn("assistant", (call,), own), user(Result("1", "sunny"))]
    body: dict[str, Any] = anthropic_body(Ask(turns))
    assert anthropic_refusal(Request("/v1/messages", HEADERS, body)) is None
    assert "tool_use" not in json.dumps(body)
