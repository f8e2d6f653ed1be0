"""Requests whose first messages were read before equal those that are read as a whole."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Callable
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sayso import Agent, Call, Reply, Text, TextDelta, Turn, tool
from sayso.conversation.continued import continued_turns
from sayso.conversation.history import model_turns
from sayso.errors import RequestError
from sayso.ledger.choices import Decided
from sayso.models import dump_turns
from sayso.testing import served
from sayso.wire import chat as requests
from sayso.wire import histories as module
from sayso.wire.chat import continued_request
from sayso.wire.histories import Histories
from sayso.wire.messages import ChatRequest, history_of
from test_history import IDS, message

LONG = "the pods of this namespace restart when a probe fails " * 30


@pytest.fixture(autouse=True)
def short_bodies(monkeypatch: pytest.MonkeyPatch) -> None:
    """Beginnings of short bodies are kept, too."""
    monkeypatch.setattr(requests, "LEAST", 0)
    monkeypatch.setattr(module, "_KEY", 8)


@st.composite
def said(draw: st.DrawFn, role: str) -> dict[str, Any]:
    if draw(st.integers(0, 5)) == 0:
        return draw(message(role=role)).model_dump(mode="json")
    sent: dict[str, Any] = {"role": role, "content": draw(st.sampled_from(["a", "b", "ä\n", " "]))}
    if draw(st.booleans()):
        ids = draw(st.lists(IDS, max_size=2))
        ran = [{"id": id_, "name": "tool", "input": {"n": 1}, "output": id_} for id_ in ids]
        sent["data"] = {"executed_tool_calls": ran}
    return sent


@st.composite
def talks(draw: st.DrawFn) -> list[dict[str, Any]]:
    roles = draw(
        st.just(["user", "assistant"] * 4)
        | st.lists(st.sampled_from(["user", "assistant"]), max_size=8)
    )
    return [draw(said(role)) for role in [*roles, "user"]]


@st.composite
def bodies(draw: st.DrawFn) -> list[bytes]:
    """The bodies of a conversation, one of them perhaps of another one with an equal beginning."""
    talk, other = draw(talks()), draw(talks())
    ends = draw(st.lists(st.integers(1, len(talk)), min_size=3, max_size=7))
    sent = []
    for end in sorted(ends) if draw(st.booleans()) else ends:
        messages = talk[:end] + (other if draw(st.integers(0, 3)) == 0 else [])
        body: dict[str, Any] = {"messages": messages}
        if draw(st.booleans()):
            body["source"] = "web"
        if draw(st.integers(0, 4)) == 0:
            body = dict(reversed(body.items()))
        indent = draw(st.sampled_from([None, None, 1]))
        text = json.dumps(body, indent=indent, ensure_ascii=draw(st.booleans()))
        if draw(st.integers(0, 4)) == 0:
            text = text[:-1] + ', "mess\\u0061ges": []}'
        if draw(st.integers(0, 4)) == 0:
            text = text.replace('"name"', '"name": "x", "name"')
        if draw(st.integers(0, 6)) == 0:
            text = text.replace('"n"', '"n": NaN, "m"')
        sent.append(text.encode())
    return sent


def parsed(body: bytes | str, histories: Histories | None, nesting: int = 64) -> ChatRequest:
    return continued_request(body, histories, messages=100, nesting=nesting, values=10_000)


def read(body: bytes | str, histories: Histories | None = None) -> ChatRequest | str:
    """The request, or its refusal."""
    try:
        return parsed(body, histories, 12)
    except RequestError as error:
        return f"{type(error).__name__} {getattr(error, 'items', '')}"


@settings(max_examples=400)
@given(bodies())
def test_a_request_that_continues_a_history_equals_the_request_read_as_a_whole(
    sent: list[bytes],
) -> None:
    histories = Histories()
    for body in sent:
        whole, continued = read(body), read(body, histories)
        if isinstance(whole, str) or isinstance(continued, str):
            assert whole == continued
            continue
        assert continued.model_dump() == whole.model_dump()
        assert continued.request_fields == whole.request_fields
        assert continued.model_fields_set == whole.model_fields_set
        history = history_of(continued)
        turns = continued_turns(continued.messages, history) if history is not None else None
        if turns is not None:
            built = model_turns(whole.messages, Decided(), [], "")
            assert dump_turns(turns) == dump_turns(built)


def grown(*ends: int) -> list[bytes]:
    """Bodies of a conversation with these numbers of messages."""
    talk: list[dict[str, Any]] = [
        {"role": "assistant" if n % 2 else "user", "content": f"{n} {LONG}"} for n in range(99)
    ]
    return [json.dumps({"messages": talk[:end]}).encode() for end in ends]


@pytest.mark.parametrize("sent", [bytes, bytes.decode])
def test_only_the_messages_behind_the_history_are_read(
    sent: Callable[[bytes], bytes | str], monkeypatch: pytest.MonkeyPatch
) -> None:
    histories = Histories()
    for body in grown(5, 7):
        parsed(sent(body), histories)
    monkeypatch.setattr(requests, "_whole", None)
    for end, body in zip((9, 11), grown(9, 11), strict=True):
        request = parsed(sent(body), histories)
        assert len(request.messages) == end
        history = history_of(request)
        assert history is not None
        assert body.startswith(history.raw)
        assert len(history.messages) == end - 1


def test_a_body_that_is_not_continued_leaves_nothing_but_its_first_bytes() -> None:
    histories = Histories()
    parsed(grown(9)[0], histories)
    assert [*histories._kept.values()] == [[]]


def test_histories_keep_to_their_size(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_MOST", 100_000)
    monkeypatch.setattr(module, "_SEEN", 50)
    monkeypatch.setattr(module, "_KEY", 64)
    histories = Histories()
    for number in range(200):
        for body in grown(5, 7, 9):
            parsed(body.replace(b"the pods", b"%d" % number), histories)
    kept = [history for alike in histories._kept.values() for history in alike]
    assert histories._size == sum(len(history.raw) for history in kept) <= 100_000
    assert len(kept) > 3
    assert len(histories._kept) <= 50
    monkeypatch.setattr(module, "_LARGEST", 10_000)
    larger = Histories()
    for body in grown(5, 7, 9):
        parsed(body, larger)
    assert [len(history.messages) for [history] in larger._kept.values()] == [6]


def test_a_decision_behind_a_history_with_a_name_twice_is_refused() -> None:
    histories = Histories()
    first, second, third = grown(5, 7, 9)
    for body in (first, second):
        parsed(body, histories)
    call = '{"id": "a", "name": "t", "input": {}, "execute": true}'
    data = f'"data": {{"tool_calls": [{call}]}}'
    decided = third.decode().removesuffix("}]}") + f", {data}}}]}}"
    request = read(decided.encode(), histories)
    assert isinstance(request, ChatRequest)
    assert history_of(request) is not None
    doubled = decided.replace('"name": "t"', '"name": "u", "name": "t"').encode()
    assert "doubled_name" in str(read(doubled, histories))


class Adds:
    """A model that changes what it is given, although it should not."""

    provider = "stand-in"
    name = "adds"

    def __init__(self) -> None:
        self.got: list[list[str]] = []

    async def stream(self, ask: Any) -> AsyncIterator[Any]:
        self.got.append([b.text for turn in ask.turns for b in turn.blocks if type(b) is Text])
        for turn in ask.turns:
            turn.blocks.append(Text("added"))
            turn.raw = {"stand-in": []}
        yield TextDelta("done")
        yield Reply(Turn("assistant", [Text("done")]), "end_turn")


def test_a_model_that_changes_its_turns_changes_none_of_later_requests() -> None:
    model = Adds()
    with served(Agent(model=model)) as server:
        for body in grown(5, 7, 9, 11):
            server.post("/api/chat", json.loads(body))
    assert [len(got) for got in model.got] == [5, 7, 9, 11]


def test_a_session_and_a_platform_context_that_a_tool_changes_are_as_sent_in_the_next_request() -> (
    None
):
    seen: list[Any] = []

    @tool
    async def change(context: Any) -> str:
        """Change what the request brought."""
        credentials = context.platform.aws_credentials
        seen.append((list(context.session["names"]), dict(credentials)))
        context.session["names"].append("more")
        credentials["key"] = "changed"
        return "done"

    class Changes:
        provider = "stand-in"
        name = "changes"

        async def stream(self, ask: Any) -> AsyncIterator[Any]:
            if type(ask.turns[-1].blocks[-1]) is Text:
                yield Reply(Turn("assistant", [Call("c", "change", {})]), "tool_use")
                return
            yield Reply(Turn("assistant", [Text("done")]), "end_turn")

    with served(Agent(model=Changes(), tools=[change])) as server:
        for body in grown(5, 7, 9, 11):
            request = json.loads(body)
            request["messages"][1]["data"] = {"session": {"names": ["a"]}}
            request["messages"][0]["platform_context"] = {"aws_credentials": {"key": "sent"}}
            server.post("/api/chat", request)
    assert seen == [(["a"], {"key": "sent"})] * 4


def test_a_callable_gets_messages_of_its_own() -> None:
    seen: list[str] = []

    async def answer(messages: Any, context: Any) -> str:
        seen.append(messages[0].content[:7])
        messages[0].content = "changed"
        return "done"

    with served(answer) as server:
        for body in grown(5, 7, 9, 11):
            server.post("/api/chat", json.loads(body))
    assert seen == ["0 the p"] * 4


def test_of_many_conversations_that_begin_alike_few_are_searched_for_their_end(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    searched = 0
    end_of = requests.end_of

    def counted(text: bytes, start: int, count: int) -> int:
        nonlocal searched
        searched += 1
        return end_of(text, start, count)

    monkeypatch.setattr(requests, "end_of", counted)
    histories = Histories()
    for number in range(module._ALIKE + 1 + 10 * module._CROWDED):
        (body,) = grown(9)
        parsed(body.replace(b"the pods", b"%d" % number), histories)
    assert searched == module._ALIKE + 10
