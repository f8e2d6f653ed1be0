"""Conversations longer than a model can read: outputs by head and tail, old talk left out."""

from __future__ import annotations

import json
import re
import time
from collections.abc import Sequence
from typing import Any

import pytest
from asking import assistant, user
from hypothesis import given
from hypothesis import strategies as st
from providers import OpenAIServer, Request, stream

from sayso import Agent, tool
from sayso.conversation.window import READ_OUTPUT, Window, tokens_of
from sayso.models import Block, Call, Result, Text, Turn, load_model
from sayso.testing import served
from sayso.testing import user as said_by_user

MIB = 2**20


class Narrow(OpenAIServer):
    """A server whose model reads so many characters and refuses more."""

    reads = 60_000

    def refuse(self, request: Request) -> str | None:
        size = len(json.dumps(request.body["messages"]))
        if size > self.reads:
            window = self.reads // 3
            return f"This model's maximum context length is {window} tokens, you sent {size // 3}"
        return super().refuse(request)


def agent_of(server: OpenAIServer, *tools: Any, window: int | None = None) -> Agent:
    model = load_model("openai:m", {**server.settings(), "retries": 0})
    model.context_window = window  # type: ignore[attr-defined]
    return Agent(name="narrow", model=model, tools=tools)


@tool
def log_of(name: str) -> str:
    """Get a log."""
    return "first line\n" + "x" * (MIB - 100) + "\nlast line"


@tool(requires_approval=True)
def dump(name: str) -> str:
    """Dump it."""
    return "begin of dump\n" + "y" * (MIB - 100) + "\nend of dump"


@pytest.mark.parametrize("window", [20_000, None])
def test_output_too_long_to_read_is_shown_by_head_and_tail_and_read_on_demand(
    window: int | None,
) -> None:
    with Narrow() as server:
        server.then(
            stream(server.message("", [("c1", "log_of", '{"name": "web"}')])),
            stream(
                server.message("", [("c2", "read_output", '{"id": "c1", "start": 0, "end": 5}')])
            ),
            stream(server.message("Fine.")),
        )
        with served(agent_of(server, log_of, window=window)) as service:
            assert service.chat(said_by_user("the log of web?"))["content"] == "Fine."
        bodies = [request.body for request in server.requests if len(server.refusals) < 9]
    shown = next(b for b in bodies[::-1] if b["messages"][-1]["role"] == "tool")["messages"]
    outputs = [message["content"] for message in shown if message["role"] == "tool"]
    assert outputs[0].startswith("first line") and outputs[0].endswith("last line")
    assert "characters are left out here" in outputs[0] and outputs[1] == "first"
    assert "read_output" in [tool["function"]["name"] for tool in bodies[-1]["tools"]]
    assert "read_output" not in [tool["function"]["name"] for tool in bodies[0]["tools"]]
    assert len(server.refusals) == (0 if window else 1)


def test_window_is_read_from_the_list_of_a_server_that_states_it() -> None:
    with Narrow() as server:
        server.listed["/models"] = {
            "object": "list",
            "data": [{"id": "other", "max_model_len": 9}, {"id": "m", "max_model_len": 20_000}],
        }
        model = load_model("vllm:m", {**server.settings(), "retries": 0})
        server.then(
            stream(server.message("Hello.")),
            stream(server.message("", [("c1", "log_of", '{"name": "web"}')])),
            stream(server.message("Fine.")),
        )
        agent = Agent(name="narrow", model=model, tools=[log_of])
        config = 'plugins = ["v2", "openai_api"]\n'
        with served(agent, config=config) as service:
            assert "context_window" not in service.get("/v1/models").json()["data"][0]
            assert service.chat(said_by_user("hello"))["content"] == "Hello."
            deadline = time.monotonic() + 20
            while getattr(model, "context_window", None) is None:
                assert time.monotonic() < deadline, "the list was not read"
                time.sleep(0.01)
            assert service.get("/v1/models").json()["data"][0]["context_window"] == 20_000
            assert service.chat(said_by_user("the log of web?"))["content"] == "Fine."
        # The output was cut before it was sent, so nothing had to be learned from a refusal.
        assert server.refusals == []


def test_conversation_goes_on_after_an_approved_call_with_a_long_output() -> None:
    with Narrow() as server:
        server.then(
            stream(server.message("", [("c1", "dump", '{"name": "db"}')])),
            *[stream(server.message("Fine."))] * 3,
        )
        with served(agent_of(server, dump, window=20_000)) as service:
            talk = service.conversation()
            talk.say("dump db")
            assert talk.approve()["content"] == "Fine."
            for _ in range(2):
                assert talk.say("and now?")["content"] == "Fine."
        assert server.refusals == []
        last = json.dumps(server.requests[-1].body["messages"])
        assert "begin of dump" in last and "end of dump" in last


def test_oldest_talk_is_left_out_and_said_to_be() -> None:
    with Narrow() as server:
        server.then(stream(server.message("Fine.")))
        history = []
        for n in range(40):
            history.append({"role": "user", "content": f"question {n} " + "w" * 4_000})
            history.append({"role": "assistant", "content": f"answer {n}"})
        with served(agent_of(server, window=20_000)) as service:
            assert service.chat(*history, said_by_user("the last one"))["content"] == "Fine."
        assert server.refusals == []
        sent = [message["content"] for message in server.requests[0].body["messages"]]
        assert re.search(r"\d+ earlier messages are left out", sent[0])
        assert sent[-1] == "the last one" and "question 39" in sent[-3]
        assert not any("question 0 " in text for text in sent)


def test_talk_is_shortened_for_a_small_model_after_its_refusal() -> None:
    with Narrow() as server:
        server.reads = 6_000
        server.then(stream(server.message("Fine.")))
        history = []
        for n in range(8):
            history.append({"role": "user", "content": f"question {n} " + "w" * 1_000})
            history.append({"role": "assistant", "content": f"answer {n}"})
        with served(agent_of(server)) as service:
            assert service.chat(*history, said_by_user("the last one"))["content"] == "Fine."
        assert len(server.refusals) == 1


def test_window_of_the_only_model_is_read_whatever_its_name() -> None:
    with Narrow() as server:
        entry = {"id": "tiny.gguf", "meta": {"n_ctx": 4_096, "n_ctx_train": 131_072}}
        server.listed["/models"] = {"object": "list", "data": [entry]}
        server.then(stream(server.message("Fine.")))
        model = load_model("llamacpp:any", {**server.settings(), "retries": 0})
        with served(Agent(name="narrow", model=model)) as service:
            assert service.chat(said_by_user("hello"))["content"] == "Fine."
            deadline = time.monotonic() + 20
            while getattr(model, "context_window", None) is None:
                assert time.monotonic() < deadline, "the list was not read"
                time.sleep(0.01)
        assert getattr(model, "context_window", None) == 4_096


def test_own_tool_of_that_name_stays_the_agents() -> None:
    @tool
    def read_output(id: str) -> str:
        """The agent's own."""
        return "own"

    window = Window(1_000, ("", ""), [read_output.definition])
    window.fitted([user("go"), assistant(Call("a", "x", {})), user(Result("a", "z" * 99_999))])
    assert [tool.name for tool in window.tools] == ["read_output"]
    calls = [Call("b", "read_output", {"id": "a"})]
    assert window.parted(calls) == ([], calls)


@pytest.mark.parametrize(
    "asked",
    [{}, {"id": "no", "start": 0, "end": 1}, {"id": "a", "start": 5, "end": 2}, {"id": "a"}],
)
def test_wrong_reading_is_answered_with_an_error(asked: dict[str, Any]) -> None:
    window = Window(1_000, ("", ""), ())
    window.fitted([user("go"), assistant(Call("a", "x", {})), user(Result("a", "z" * 99_999))])
    assert window.read(Call("b", "read_output", asked)).is_error
    assert READ_OUTPUT.name == "read_output"


def test_cut_of_an_output_stays_as_the_model_has_read_it() -> None:
    window = Window(10_000, ("", ""), ())
    turns = [user("go"), assistant(Call("a", "x", {})), user(Result("a", "z" * 99_999))]
    first = window.fitted(turns)[2]
    later = window.fitted([*turns, assistant("more " * 900), user("go on")])[2]
    assert first == later and "left out" in str(later.blocks[0])


def test_blocks_bound_to_what_was_changed_go_and_those_before_it_stay() -> None:
    raw = {"anthropic@m": [{"type": "thinking"}], "gemini:m": ["sig"]}
    turns = [
        user("go"),
        Turn("assistant", (Call("a", "x", {}),), raw),
        user(Result("a", "z" * 99_999)),
        Turn("assistant", (Call("b", "x", {}),), raw),
        user(Result("b", "short")),
    ]
    shown = Window(10_000, ("", ""), ()).fitted(turns)
    assert shown[1].raw == raw and shown[3].raw == {"gemini:m": ["sig"]}


TALK: st.SearchStrategy[Block] = st.integers(0, 30_000).map(lambda n: Text("word " * (n // 5 + 1)))


@st.composite
def conversations(draw: st.DrawFn) -> Sequence[Turn]:
    turns: list[Turn] = []
    for n in range(draw(st.integers(1, 8))):
        turns.append(Turn("user", (draw(TALK),)))
        if draw(st.booleans()):
            call = Call(f"c{n}", "delete", {"name": str(n)})
            output = f"begin {n} " + "z" * draw(st.integers(0, 40_000)) + f" end {n}"
            turns += [Turn("assistant", (call,)), Turn("user", (Result(f"c{n}", output),))]
        turns.append(Turn("assistant", (draw(TALK),)))
    return [*turns, Turn("user", (Text("the last words"),))]


@given(conversations(), st.integers(4_000, 60_000))
def test_no_call_and_no_outcome_is_ever_left_out(turns: Sequence[Turn], tokens: int) -> None:
    shown = Window(tokens, ("system", ""), ()).fitted(turns)
    blocks = [block for turn in shown for block in turn.blocks]
    before = [block for turn in turns for block in turn.blocks]
    assert [b for b in blocks if isinstance(b, Call)] == [b for b in before if isinstance(b, Call)]
    outputs = {b.call_id: b.output for b in blocks if isinstance(b, Result)}
    for block in before:
        if isinstance(block, Result):
            number = block.call_id[1:]
            assert outputs[block.call_id].startswith(f"begin {number} ")
            assert outputs[block.call_id].endswith(f" end {number}")
    assert blocks[-1] == Text("the last words")


@given(conversations())
def test_conversation_that_fits_stays_as_it_is(turns: Sequence[Turn]) -> None:
    size = sum(tokens_of(str(block)) for turn in turns for block in turn.blocks)
    assert Window(size * 12 + 1_000, ("", ""), ()).fitted(turns) is turns
    assert Window(None, ("", ""), ()).fitted(turns) is turns
