"""Streams of servers that are not quite OpenAI's: what was meant is what the turn gets."""

from __future__ import annotations

import json
from typing import Any

import pytest
from asking import asked, calls_of, reply_of, said, text_of
from hypothesis import given
from hypothesis import strategies as st
from providers import OpenAIServer, chunk, stream

from sayso import Thought, ToolDefinition, load_model
from sayso_openai.thinking import Thinking

DONE = b"data: [DONE]\n\n"
DRAW = ToolDefinition(
    "draw",
    "Draw a line.",
    {
        "type": "object",
        "properties": {
            "points": {"type": "array", "items": {"type": "integer"}},
            "pen": {"anyOf": [{"$ref": "#/$defs/Pen"}, {"type": "null"}]},
            "title": {"type": "string"},
            "any": {},
        },
        "$defs": {"Pen": {"type": "object"}},
    },
)


def answered(server: OpenAIServer, *chunks: bytes, name: str = "some-model", **fields: Any) -> Any:
    server.then(stream([*chunks, DONE]))
    settings = {**server.settings(), "retries": 0}
    return asked(load_model(f"openai:{name}", settings), **fields)


def piece(arguments: Any, index: int | None = 0, *, id: str = "", name: str = "") -> bytes:
    call: dict[str, Any] = {"function": {"arguments": arguments} | ({"name": name} if name else {})}
    call |= {"id": id} if id else {}
    call |= {} if index is None else {"index": index}
    return chunk({"tool_calls": [call]})


ENDED = chunk({}, finish_reason="tool_calls")


def inputs(found: Any) -> list[tuple[str, dict[str, Any]]]:
    return [(call.name, dict(call.input)) for call in calls_of(reply_of(found).turn)]


def test_fragments_under_an_index_that_nobody_began_belong_to_the_last_call(
    openai_server: OpenAIServer,
) -> None:
    found = answered(
        openai_server,
        piece("", 0, id="a", name="get_weather"),
        piece('{"city":', 1),
        piece(' "Rome"}', 1),
        ENDED,
    )
    assert inputs(found) == [("get_weather", {"city": "Rome"})]


def test_call_that_is_sent_again_at_other_indexes_is_one(openai_server: OpenAIServer) -> None:
    whole = '{"city": "Rome"}'
    found = answered(
        openai_server,
        *(piece(whole, index, id="a", name="get_weather") for index in range(3)),
        ENDED,
    )
    assert inputs(found) == [("get_weather", {"city": "Rome"})]


def test_equal_calls_with_ids_of_their_own_stay_two(openai_server: OpenAIServer) -> None:
    whole = '{"city": "Rome"}'
    found = answered(
        openai_server,
        piece(whole, 0, id="a", name="get_weather"),
        piece(whole, 1, id="b", name="get_weather"),
        ENDED,
    )
    assert len(inputs(found)) == 2


@pytest.mark.parametrize(
    "arguments",
    [
        ["{}", '{"city": "Rome"}'],
        ["null", '{"city": "Rome"}'],
        ['{"city": "Rome"}', '{"city": "Rome"}'],
        [json.dumps('{"city": "Rome"}')],
        ["{}", '{"city":', ' "Rome"}'],
        ['{"city": "Rome"}', "{}"],
    ],
)
def test_arguments_said_oddly_are_read_as_they_were_meant(
    openai_server: OpenAIServer, arguments: list[str]
) -> None:
    first, *rest = arguments
    fragment = piece(first, 0, id="a", name="get_weather")
    found = answered(openai_server, fragment, *map(piece, rest), ENDED)
    assert inputs(found) == [("get_weather", {"city": "Rome"})]


def test_arguments_of_null_are_none(openai_server: OpenAIServer) -> None:
    found = answered(openai_server, piece("null", 0, id="a", name="get_weather"), ENDED)
    [call] = calls_of(reply_of(found).turn)
    assert (call.error, dict(call.input)) == (None, {})


def test_two_different_objects_in_one_call_are_an_error(openai_server: OpenAIServer) -> None:
    fragment = piece('{"city": "Rome"}{"city": "Oslo"}', 0, id="a", name="get_weather")
    [call] = calls_of(reply_of(answered(openai_server, fragment, ENDED)).turn)
    assert call.error and dict(call.input) == {}


def test_interleaved_calls_keep_their_own_arguments(openai_server: OpenAIServer) -> None:
    found = answered(
        openai_server,
        piece('{"city":', 0, id="a", name="get_weather"),
        piece('{"city":', 1, id="b", name="get_weather"),
        piece(' "Rome"}', 0),
        piece(' "Oslo"}', 1),
        ENDED,
    )
    assert [dict(given)["city"] for _, given in inputs(found)] == ["Rome", "Oslo"]


@pytest.mark.parametrize(
    "name",
    [
        "get_weather<|channel|>commentary",
        "functions.get_weather",
        "commentary to=functions.get_weather<|constrain|>json",
    ],
)
def test_name_with_the_marks_of_gpt_oss_is_the_tools(
    openai_server: OpenAIServer, name: str
) -> None:
    found = answered(openai_server, piece("{}", 0, id="a", name=name), ENDED)
    assert inputs(found) == [("get_weather", {})]


def test_whole_answer_to_a_stream_is_the_answer(openai_server: OpenAIServer) -> None:
    call = {"id": "a", "function": {"name": "get_weather", "arguments": '{"city": "Rome"}'}}
    message = {"role": "assistant", "content": "I look.", "tool_calls": [call]}
    usage = {"prompt_tokens": 3, "completion_tokens": 2}
    choice = {"index": 0, "message": message, "finish_reason": "tool_calls"}
    body = json.dumps({"choices": [choice], "usage": usage}).encode()
    openai_server.then(lambda exchange: exchange.whole(200, "application/json", body, {}))
    model = load_model("openai:x", {**openai_server.settings(), "retries": 0})
    found = asked(model)
    assert said(found) == "I look." and inputs(found) == [("get_weather", {"city": "Rome"})]
    assert reply_of(found).usage.output_tokens == 2


@pytest.mark.parametrize(
    ("pieces", "thought", "text"),
    [
        (["<think>Hm.</think>\n\nFine."], "Hm.", "Fine."),
        (["<th", "ink>", "H", "m.</thi", "nk>", "Fi", "ne."], "Hm.", "Fine."),
        (["[THINK]Hm.[/THINK]Fine."], "Hm.", "Fine."),
        (["<think></think>Fine."], "", "Fine."),
        (["Use <think> as a mark.</think>"], "", "Use <think> as a mark.</think>"),
        (["<", "b>bold</b>"], "", "<b>bold</b>"),
        (
            [
                "<|channel|>analysis<|message|>Hm.<|end|><|start|>assistant",
                "<|channel|>final<|message|>Fine.<|return|>",
            ],
            "Hm.",
            "Fine.",
        ),
    ],
)
def test_thoughts_in_the_text_are_thoughts(
    openai_server: OpenAIServer, pieces: list[str], thought: str, text: str
) -> None:
    chunks = [chunk({"content": each}) for each in pieces]
    found = answered(openai_server, *chunks, chunk({}, finish_reason="stop"))
    assert "".join(e.text for e in found if isinstance(e, Thought)) == thought
    assert said(found) == text_of(reply_of(found).turn) == text


def test_model_whose_prompt_opens_its_thought_says_only_what_comes_behind_it(
    openai_server: OpenAIServer,
) -> None:
    for pieces, text in ((["Hm", "m.</think>", "Fine."], "Fine."), (["Fi", "ne."], "Fine.")):
        chunks = [chunk({"content": each}) for each in pieces]
        ended = chunk({}, finish_reason="stop")
        found = answered(openai_server, *chunks, ended, name="deepseek-r1:8b")
        assert said(found) == text_of(reply_of(found).turn) == text


@given(st.text("<think/>|ab \n", max_size=40), st.lists(st.integers(1, 5), max_size=20))
def test_text_is_parted_alike_however_it_is_cut(text: str, sizes: list[int]) -> None:
    def parted(pieces: list[str]) -> tuple[str, str]:
        thinking = Thinking(first=False)
        parts = [part for piece in pieces for part in thinking.feed(piece)]
        parts += thinking.rest()
        thoughts = "".join(text for text, is_thought in parts if is_thought)
        return thoughts, "".join(text for text, is_thought in parts if not is_thought)

    pieces, at = [], 0
    for size in sizes:
        pieces.append(text[at : at + size])
        at += size
    pieces.append(text[at:])
    assert parted([text]) == parted([each for each in pieces if each] or [""])


def test_parts_of_a_thinking_model_of_mistral_are_told_apart(openai_server: OpenAIServer) -> None:
    thinking = {"type": "thinking", "thinking": [{"type": "text", "text": "Hm."}]}
    parts = chunk({"content": [thinking, {"type": "text", "text": "Fine."}]})
    found = answered(openai_server, parts, chunk({}, finish_reason="stop"))
    assert [e.text for e in found if isinstance(e, Thought)] == ["Hm."]
    assert said(found) == "Fine."


def test_lists_and_objects_that_come_as_json_text_are_read(openai_server: OpenAIServer) -> None:
    given = {"points": "[1, 2]", "pen": '{"ink": "blue"}', "title": "[draft]", "any": "[1]"}
    fragment = piece(json.dumps(given), 0, id="a", name="draw")
    found = answered(openai_server, fragment, ENDED, tools=(DRAW,))
    [(_, read)] = inputs(found)
    assert read == {"points": [1, 2], "pen": {"ink": "blue"}, "title": "[draft]", "any": "[1]"}
