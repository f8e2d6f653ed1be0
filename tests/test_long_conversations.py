"""User code gets a long conversation in the same form as a short one: a plain list of messages."""

from __future__ import annotations

import copy
import json
import pickle
from collections.abc import Callable
from typing import Any

import pytest
from pydantic import BaseModel, TypeAdapter

from sayso import ChatRequest, Message, Plugin, RequestContext, hookimpl
from sayso.testing import served


class State(BaseModel):
    """The state of an agent that keeps its messages in a model."""

    messages: list[Message]


class Saying(BaseModel):
    """A message in an agent's own model."""

    model_config = {"from_attributes": True}
    role: str
    content: str


class OwnState(BaseModel):
    """The same, with its own model of a message."""

    messages: list[Saying]


def conversation(count: int = 5, letters: int = 1000) -> list[dict[str, Any]]:
    said: list[dict[str, Any]] = [
        {"role": "user" if n % 2 == 0 else "assistant", "content": f"{n} " + "x" * letters}
        for n in range(count)
    ]
    said[1]["timestamp"] = "2026-01-05T10:00:00Z"
    return said


def firsts(messages: Any) -> str:
    return " ".join(m.content.split()[0] for m in messages)


READERS: dict[str, Callable[[list[Message]], Any]] = {
    "a pydantic state": lambda m: State(messages=m).messages,
    "a pydantic state from a dict": lambda m: State.model_validate({"messages": m}).messages,
    "a pydantic state as JSON": lambda m: (
        State.model_validate_json(State(messages=m).model_dump_json()).messages
    ),
    "a pydantic state of its own messages": lambda m: (
        OwnState.model_validate({"messages": m}).messages
    ),
    "JSON by pydantic": lambda m: TypeAdapter(list[Message]).validate_json(
        TypeAdapter(list[Message]).dump_json(m)
    ),
    "a request": lambda m: ChatRequest(messages=m).messages,
    "a constructed request as JSON": lambda m: (
        ChatRequest.model_validate_json(
            ChatRequest.model_construct(messages=m).model_dump_json()
        ).messages
    ),
    "a list": list,
    "a tuple": tuple,
    "a sorted list": lambda m: sorted(m, key=lambda one: one.content),
    "a slice": lambda m: m[:],
    "a copy": copy.copy,
    "its own copy": lambda m: m.copy(),
    "a deep copy": copy.deepcopy,
    "a pickle": lambda m: pickle.loads(pickle.dumps(m)),
    "another list that unpacks it": lambda m: [*m],
    "JSON by the standard library": lambda m: [
        Message(**one) for one in json.loads(json.dumps(m, default=Message.model_dump))
    ],
}


@pytest.mark.parametrize("reader", READERS)
@pytest.mark.parametrize("letters", [1, 1000, 4000])
def test_a_callable_reads_its_messages_in_any_way(reader: str, letters: int) -> None:
    async def agent(messages: list[Message], context: RequestContext) -> str:
        assert type(messages) is list
        return firsts(READERS[reader](messages))

    with served(agent) as service:
        assert service.chat(*conversation(letters=letters))["content"] == "0 1 2 3 4"


def test_a_plain_function_validates_a_long_conversation_into_its_state() -> None:
    def agent(messages: list[Message], context: RequestContext) -> str:
        return firsts(State(messages=messages).messages)

    with served(agent) as service:
        assert service.chat(*conversation())["content"] == "0 1 2 3 4"


class Validates(Plugin):
    """Reads the request's messages into its own state, and changes them in place."""

    @hookimpl
    def intercept_request(self, request: ChatRequest) -> None:
        assert len(State(messages=request.messages).messages) == 5
        for message in request.messages:
            message.content = message.content.split()[0]
        request.messages.insert(0, Message(role="user", content="first"))


def test_an_interceptor_changes_a_long_conversation_in_place() -> None:
    async def agent(messages: list[Message], context: RequestContext) -> str:
        return firsts(messages)

    with served(agent, [Validates()]) as service:
        assert service.chat(*conversation())["content"] == "first 0 1 2 3 4"


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
        *before, last = conversation()
        talk = service.conversation(*before)
        talk.say(last["content"])
        assert [call["name"] for call in talk.pending] == ["delete"]
        assert talk.approve()["content"] == "done"
    assert ran == ["delete"]
