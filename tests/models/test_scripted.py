"""The model of tests, and the streaming of a reply that is known at once."""

from __future__ import annotations

from typing import Any

import pytest
from asking import asked, reply_of, said
from hypothesis import given
from hypothesis import strategies as st

from sayso.models import Ask, Call, ModelError, Reply, Text, TextDelta, Turn
from sayso.models.whole import pieces
from sayso.testing.script import Scripted
from sayso.wire.messages import ToolCall


@given(st.text())
def test_pieces_add_up(text: str) -> None:
    assert "".join(pieces(text)) == text


def test_long_text_is_not_streamed_word_by_word() -> None:
    found = asked(Scripted(["word " * 100_000]))
    deltas = [event for event in found if isinstance(event, TextDelta)]
    assert 800 < len(deltas) < 2000


def test_script_is_followed_step_by_step() -> None:
    call = Call("1", "delete_file", {"path": "a"})

    async def later(ask: Ask) -> str:
        return f"saw {len(ask.turns)}"

    scripted = Scripted(
        [
            "text",
            [call],
            ["words", call],
            lambda ask: f"{ask.system}!",
            later,
            Reply(Turn("assistant", (Text("whole"),)), "refusal"),
            ModelError("overloaded", "busy"),
        ]
    )
    assert said(asked(scripted)) == "text"
    assert reply_of(asked(scripted)) == Reply(Turn("assistant", (call,)), "tool_use")
    assert reply_of(asked(scripted)).turn.blocks == (Text("words"), call)
    assert said(asked(scripted, system="S")) == "S!"
    assert said(asked(scripted)) == "saw 1"
    assert reply_of(asked(scripted)).stop == "refusal"
    with pytest.raises(ModelError, match="busy"):
        asked(scripted)
    with pytest.raises(ModelError, match="no step 8"):
        asked(scripted)
    assert [ask.system for ask in scripted.asks] == ["", "", "", "S", "", "", "", ""]


@pytest.mark.parametrize("step", [ToolCall(id="1", name="delete_file", input={}), [7], 7, None])
def test_step_that_says_nothing_is_named(step: Any) -> None:
    with pytest.raises(ModelError, match="a model's reply holds .*; give Call, Text"):
        asked(Scripted([step]))
