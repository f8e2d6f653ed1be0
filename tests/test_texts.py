"""A long conversation of texts is read as any other, whatever is made of it when."""

from __future__ import annotations

import copy
import json
import pickle
import warnings
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from sayso import AgentMessage, ChatRequest, Message, Plugin, RequestContext, hookimpl
from sayso.errors import RequestError
from sayso.messages import (
    ToolCall,
    beyond_text,
    platform_of,
    said_in,
)
from sayso.requests import parse_request
from sayso.testing import served, user
from sayso.texts import Texts

roles = st.sampled_from(["user", "assistant"])
stamps = st.sampled_from(["2026-01-05T10:00:00Z", "2026-01-05", "20260105T10", "then", "", None, 7])
strange = st.none() | st.integers() | st.just([]) | st.just({"n": 1}) | st.text(max_size=3)
more = st.fixed_dictionaries(
    {},
    optional={
        "data": st.none() | st.just({"session": {"n": 1}}) | strange,
        "platform_context": st.just({"platform_token": "a secret"}) | strange,
        "user": st.just({"name": "Ann", "id": "u1"}) | strange,
        "agent": st.just({"name": "Bo"}) | strange,
        "mood": strange,
        "role": strange,
        "content": strange,
    },
)
said = st.builds(
    lambda role, content, stamp, more: {
        "role": role,
        "content": content + "x" * 1000,
        **({"timestamp": stamp} if stamp != "" else {}),
        **more,
    },
    roles,
    st.text(max_size=20),
    stamps,
    st.just({}) | st.just({}) | st.just({}) | more,
)
wholes = st.fixed_dictionaries(
    {"messages": st.lists(said, min_size=4, max_size=7)},
    optional={"source": st.just("team-chat") | strange, "tenant": strange},
)


def outcome(body: bytes, *, lazily: bool) -> Any:
    """What reading the body gives: its refusal, or all that a request tells of itself."""
    try:
        request = parse_request(body, messages=6, lazily=lazily)
    except RequestError as error:
        return type(error), getattr(error, "items", None)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        dumps = [request.model_dump(), request.model_dump_json(), repr(request)]
    fields = [(sorted(m.model_fields_set), m.model_extra) for m in request.messages]
    return request, dumps, fields, sorted(request.model_fields_set), request.request_fields


@settings(max_examples=400, suppress_health_check=[HealthCheck.too_slow])
@given(wholes)
def test_a_body_is_read_the_same_lazily_or_not(whole: dict[str, Any]) -> None:
    body = json.dumps(whole).encode()
    assert outcome(body, lazily=True) == outcome(body, lazily=False)


@pytest.mark.parametrize(
    "change",
    [
        lambda body: body[:-1],
        lambda body: body + b"x",
        lambda body: body.replace(b"hello", b"\xff\xfe"),
        lambda body: body.replace(b"hello", b"\\ud800"),
        lambda body: body.replace(b'"hello', b'"hel\x00'),
        lambda body: body.replace(b'"content"', b'"content": "first", "content"', 1),
        lambda body: body.replace(b'"messages"', b'"n": NaN, "messages"'),
        lambda body: body.replace(b'"messages"', b'"messages": [], "messages"'),
        lambda body: b"[" * 5000,
    ],
)
def test_a_broken_body_is_told_the_same_lazily_or_not(change: Callable[[bytes], bytes]) -> None:
    body = change(json.dumps({"messages": [user("hello" + "x" * 2500)] * 3}).encode())
    assert outcome(body, lazily=True) == outcome(body, lazily=False)


def conversation(count: int = 5) -> bytes:
    said = [
        {"role": "user" if n % 2 == 0 else "assistant", "content": f"{n} " + "x" * 1000}
        for n in range(count)
    ]
    said[1]["timestamp"] = "2026-01-05T10:00:00Z"
    return json.dumps({"messages": said}).encode()


def both() -> tuple[list[Message], list[Message]]:
    """The same messages twice: as Texts and as a plain list."""
    lazily = parse_request(conversation(), lazily=True).messages
    plainly = parse_request(conversation()).messages
    assert type(lazily) is Texts and type(plainly) is list
    return lazily, plainly


EXTRA = Message(role="user", content="more")


def changed(do: Callable[[list[Message]], object]) -> Callable[[list[Message]], Any]:
    def work(messages: list[Message]) -> Any:
        do(messages)
        return list(messages)

    return work


def assigned(messages: list[Message]) -> Any:
    messages[1:3] = [EXTRA]
    messages[0] = EXTRA
    del messages[-1]
    messages += [EXTRA]
    return list(messages)


def filled(messages: list[Message]) -> Any:
    other = [EXTRA]
    other += messages
    other.extend(messages)
    other[0:0] = messages
    return other


WORKS: list[Callable[[list[Message]], Any]] = [
    len,
    bool,
    lambda m: m[0],
    lambda m: m[-1],
    lambda m: m[1:3],
    lambda m: m[::-1],
    lambda m: list(m),
    lambda m: tuple(m),
    lambda m: [*m],
    lambda m: [EXTRA, *m],
    lambda m: m + [EXTRA],
    lambda m: [EXTRA] + m,
    lambda m: m * 2,
    lambda m: 2 * m,
    lambda m: list(reversed(m)),
    lambda m: list(map(id, m)) == list(map(id, m)),
    lambda m: m == list(m),
    lambda m: list(m) == m,
    lambda m: m != [EXTRA],
    lambda m: m < [],
    lambda m: m[2] in m and EXTRA not in m,
    lambda m: m.index(m[2]),
    lambda m: m.count(m[2]),
    lambda m: m.pop(),
    lambda m: sorted(m, key=lambda one: one.content),
    lambda m: repr(m),
    lambda m: list(m.copy()),
    lambda m: copy.copy(m) == m.copy(),
    lambda m: copy.deepcopy(m),
    lambda m: pickle.loads(pickle.dumps(m)),
    lambda m: next(iter(m)),
    lambda m: json.dumps(m, default=lambda one: one.content),
    lambda m: ChatRequest(messages=m),
    lambda m: ChatRequest(messages=m).model_dump_json(),
    changed(lambda m: m.append(EXTRA)),
    changed(lambda m: m.insert(0, EXTRA)),
    changed(lambda m: m.extend([EXTRA])),
    changed(lambda m: m.remove(m[1])),
    changed(lambda m: m.reverse()),
    changed(lambda m: m.sort(key=lambda one: one.content)),
    changed(lambda m: m.clear()),
    assigned,
    filled,
]


@pytest.mark.parametrize("work", WORKS)
@pytest.mark.parametrize("looked", [[], [1], [0, -1]])
def test_texts_do_what_a_list_does(work: Callable[[list[Message]], Any], looked: list[int]) -> None:
    lazily, plainly = both()
    for index in looked:
        assert lazily[index] == plainly[index]
    found = work(lazily)
    assert found == work(plainly)
    for item in found if isinstance(found, list) else []:
        assert isinstance(item, Message)


def test_every_method_of_a_list_is_accounted_for() -> None:
    own = {name for name in vars(Texts) if name in vars(list)}
    plainly = {
        "__hash__",
        "__len__",
        "__new__",
        "__getattribute__",
        "__sizeof__",
        "__class_getitem__",
    }
    assert set(vars(list)) - own <= plainly


def test_a_message_is_made_once_and_keeps_what_is_done_to_it() -> None:
    messages, _ = both()
    first = messages[0]
    first.content = "changed"
    assert messages[0] is first
    assert next(iter(messages)) is first
    assert messages.copy()[0] is first
    assert said_in(messages)[0][1].startswith("0 ")


def test_an_index_that_is_not_there_is_an_error() -> None:
    messages, _ = both()
    with pytest.raises(IndexError):
        messages[5]


def test_only_messages_that_somebody_has_seen_can_carry_more_than_text() -> None:
    request = parse_request(conversation(), lazily=True)
    assert beyond_text(request.messages) == []
    call = ToolCall(id="c", name="delete", input={})
    request.messages[2].data = AgentMessage(content="").data.model_copy(
        update={"tool_calls": [call]}
    )
    assert beyond_text(request.messages) == [request.messages[2]]
    assert not platform_of(request.messages).model_fields_set


def last_only(messages: list[Message], context: RequestContext) -> str:
    return messages[-1].content[:2]


async def every(messages: list[Message], context: RequestContext) -> str:
    messages[0].content = "changed"
    return " ".join(m.content.split()[0] for m in [*messages, messages[-1]])


@pytest.mark.parametrize("agent", [last_only, every])
def test_a_callable_gets_messages_of_a_long_conversation(agent: Any) -> None:
    sent = json.loads(conversation())
    with served(agent) as service:
        once = service.chat(*sent["messages"])["content"]
    assert once == ("4 " if agent is last_only else "changed 1 2 3 4 4")


def test_a_call_proposed_in_a_long_conversation_is_approved_in_it() -> None:
    ran: list[str] = []

    async def agent(messages: list[Message], context: RequestContext) -> Any:
        messages[0].content = "changed"
        if context.decisions:
            ran.extend(d.name for d in context.decisions if d.approved)
            return "done"
        call = {"id": "c1", "name": "delete", "input": {"name": "a"}}
        return {"content": "may I?", "data": {"tool_calls": [call]}}

    with served(agent) as service:
        said = json.loads(conversation())["messages"]
        talk = service.conversation(*said[:-1])
        talk.say(said[-1]["content"])
        assert [call["name"] for call in talk.pending] == ["delete"]
        assert talk.approve()["content"] == "done"
    assert ran == ["delete"]


class Shortens(Plugin):
    """Changes the conversation in place."""

    @hookimpl
    def intercept_request(self, request: ChatRequest) -> None:
        for message in request.messages:
            message.content = message.content.split()[0]
        request.messages.insert(0, Message(role="user", content="first"))


def test_an_interceptor_changes_a_long_conversation_in_place() -> None:
    async def agent(messages: list[Message], context: RequestContext) -> str:
        return " ".join(m.content for m in messages)

    with served(agent, [Shortens()]) as service:
        assert service.chat(*json.loads(conversation())["messages"])["content"] == "first 0 1 2 3 4"
