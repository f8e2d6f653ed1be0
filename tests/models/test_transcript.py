from __future__ import annotations

import json
import time
from typing import Any

from asking import WEATHER, assistant, user
from hypothesis import given
from hypothesis import strategies as st
from providers import SECRET, Request, anthropic_refusal, openai_refusal

from sayso.models import Ask, Block, Call, Result, Text, Turn
from sayso.models.schemas import closed, plain_object
from sayso.models.transcript import NOT_RECORDED, transcript
from sayso_anthropic import request as anthropic_request
from sayso_openai import request as openai_request

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


@given(TURNS, st.booleans())
def test_any_turns_become_a_request_that_the_providers_take(turns: list[Turn], tools: bool) -> None:
    ask = Ask(turns, tools=(WEATHER,) if tools else ())
    body: dict[str, Any] = anthropic_request.request(ask, "claude-opus-5-5")
    assert anthropic_refusal(Request("/v1/messages", HEADERS, body)) is None
    assert body["messages"][-1]["role"] == "user"
    body = openai_request.request(ask, "some-model", official=False)
    assert openai_refusal(Request("/chat/completions", HEADERS, body)) is None


@given(TURNS, st.booleans())
def test_no_word_is_lost(turns: list[Turn], tools: bool) -> None:
    ask = Ask(turns, tools=(WEATHER,) if tools else ())
    sent = json.dumps(anthropic_request.request(ask, "claude-opus-5-5")["messages"])
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
    own = {"anthropic": [{"type": "tool_use", "id": "1", "name": "get_weather", "input": {}}]}
    turns = [user("go"), Turn("assistant", (call,), own), user(Result("1", "sunny"))]
    body: dict[str, Any] = anthropic_request.request(Ask(turns), "claude-opus-5-5")
    assert anthropic_refusal(Request("/v1/messages", HEADERS, body)) is None
    assert "tool_use" not in json.dumps(body)
