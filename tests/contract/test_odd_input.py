"""Input in an odd form is either read completely or refused."""

from __future__ import annotations

import codecs
import json
import time
from collections.abc import Sequence
from contextvars import ContextVar
from typing import Any

import pytest
from agents import Counted, delete, scripted
from serving import DEADLINE, PATHS, Json, Serve, approved, said, strict, user
from websockets.exceptions import ConnectionClosedError
from websockets.sync.client import connect

from sayso import Call, LocalShell, Session, ToolResult, tool

NUMBER: ContextVar[str] = ContextVar("number", default="none")


class Scalar:
    """A number like NumPy's: neither a Python number nor an array."""

    shape = ()
    dtype = "int64"

    def __init__(self, value: int | float | bool) -> None:
        self.value = value

    def item(self) -> int | float | bool:
        return self.value

    def __str__(self) -> str:
        return f"Scalar({self.value})"


CALL = {"id": "c1", "name": "delete", "input": {"name": "a"}}
SENT: Sequence[Json] = [
    {"type": "intermittent_update", "text": "looking", "content": {"n": 1}},
    {"type": "text_delta", "text": "I would "},
    {"type": "text_delta", "text": "delete it."},
    {"type": "tool_calls", "tool_calls": [CALL]},
    {"type": "done", "stop_reason": "approval_required", "meta_data": {"k": "v"}},
]


@pytest.mark.parametrize("asynchronous", [False, True])
def test_a_callable_may_give_its_events_as_they_are_sent(served: Serve, asynchronous: bool) -> None:
    def plain(messages: Any, context: Any) -> Any:
        yield from SENT

    async def other(messages: Any, context: Any) -> Any:
        for event in SENT:
            yield event

    service = served(other if asynchronous else plain)
    reply = service.chat(user("go"))
    assert reply["content"] == "I would delete it."
    assert [call["name"] for call in reply["data"]["tool_calls"]] == ["delete"]
    assert reply["meta_data"]["k"] == "v"
    events = service.stream(user("go"))
    assert events[0] == SENT[0]
    assert [event["type"] for event in events][-1] == "done"


def test_a_callable_may_return_one_event_as_it_is_sent(served: Serve) -> None:
    service = served(lambda messages, context: {"type": "text_delta", "text": "hello"})
    assert service.chat(user("go"))["content"] == "hello"


@pytest.mark.parametrize("event", [{"type": "text_delta"}, {"type": "tool_calls", "tool_calls": 1}])
def test_an_event_with_wrong_fields_is_the_agents_failure(served: Serve, event: Json) -> None:
    service = served(lambda messages, context: iter([event]))
    assert service.ask(user("go")).status == 500


@pytest.mark.parametrize("asynchronous", [False, True])
def test_a_context_variable_of_an_interceptor_reaches_the_tools(
    served: Serve, asynchronous: bool
) -> None:
    seen: list[str] = []

    def plain(request: Any, context: Any) -> None:
        NUMBER.set(request.messages[-1].content)

    async def other(request: Any, context: Any) -> None:
        NUMBER.set(request.messages[-1].content)

    @tool
    def sync() -> str:
        """Look."""
        seen.append(NUMBER.get())
        return "ok"

    @tool
    async def later() -> str:
        """Look later."""
        seen.append(NUMBER.get())
        return "ok"

    @tool(requires_approval=True)
    def gated() -> str:
        """Look once approved."""
        seen.append(NUMBER.get())
        return "ok"

    calls = [Call("1", "sync", {}), Call("2", "later", {}), Call("3", "gated", {})]
    agent, _ = scripted(
        [calls, "over"],
        [sync, later, gated],
        request_interceptors=other if asynchronous else plain,
    )
    service = served(agent)
    reply = service.chat(user("first"))
    assert seen == ["first", "first"]
    decided = {"tool_calls": [approved(call) for call in reply["data"]["tool_calls"]]}
    service.chat(user("first"), said(reply), user("second", data=decided))
    assert seen == ["first", "first", "second"]
    assert NUMBER.get() == "none"


@pytest.mark.parametrize("text", ["nan", "NaN", "Infinity", "-inf", "inf"])
def test_a_float_parameter_refuses_texts_that_are_no_number(text: str) -> None:
    @tool
    def wait(seconds: float, more: list[float] | None = None) -> str:
        """Wait."""
        return f"{seconds}"

    for given in ({"seconds": text}, {"seconds": 1, "more": [text]}, {"seconds": float("nan")}):
        with pytest.raises(ValueError):
            wait.validate(given)
    assert wait.validate({"seconds": "1.5"})["seconds"] == 1.5


def test_no_input_holds_a_bare_nan() -> None:
    @tool
    def keep(value: Any) -> str:
        """Keep."""
        return "kept"

    with pytest.raises(ValueError, match="NaN"):
        keep.validate({"value": [float("nan")]})
    assert keep.validate({"value": ["NaN", "Infinity"]})["value"] == ["NaN", "Infinity"]


def test_a_bare_nan_never_leaves(served: Serve) -> None:
    @tool
    def measure() -> Any:
        """Measure."""
        return {"value": float("nan"), "most": float("inf"), "more": Scalar(float("nan"))}

    @tool
    def rich() -> Any:
        """Measure richly."""
        return ToolResult(structured=[float("nan")])

    agent, model = scripted(
        [[Call("1", "measure", {}), Call("2", "rich", {})], "ok"], [measure, rich]
    )
    served(agent).chat(user("go"))
    for block in model.asks[-1].turns[-1].blocks:
        assert "null" in block.output
        strict(block.output)


def test_numbers_of_numpy_stay_numbers(served: Serve) -> None:
    @tool
    def count(session: Session) -> Any:
        """Count."""
        return {"count": Scalar(7), "all": [Scalar(1.5), Scalar(True)]}

    def answer(messages: Any, context: Any) -> Any:
        context.update("counted", {"count": Scalar(7), "share": Scalar(0.5)})
        return "ok"

    agent, model = scripted([[Call("1", "count", {})], "ok"], [count])
    served(agent).chat(user("go"))
    [block] = model.asks[-1].turns[-1].blocks
    assert json.loads(block.output) == {"count": 7, "all": [1.5, True]}
    [update] = [e for e in served(answer).stream(user("go")) if e["type"] == "intermittent_update"]
    assert update["content"] == {"count": 7, "share": 0.5}


@pytest.mark.parametrize("path", [path for both in PATHS.values() for path in both])
def test_a_byte_order_mark_before_a_body_is_read_over(served: Serve, path: str) -> None:
    body = codecs.BOM_UTF8 + json.dumps({"messages": [user("go")]}).encode()
    service = served(lambda messages, context: "fine")
    assert service.post(path, body).status == 200


def test_a_byte_order_mark_before_a_frame_is_read_over(served: Serve) -> None:
    body = "\ufeff" + json.dumps({"messages": [user("go")]})
    with served(lambda messages, context: "fine").ws() as socket:
        for frame in (body, body.encode()):
            assert socket.turn(frame)[-1]["type"] == "done"


@pytest.mark.parametrize("size", [2**20, 2**25])
def test_a_frame_beyond_the_limit_gets_its_error_event(served: Serve, size: int) -> None:
    service = served(lambda messages, context: "fine", limits__frame=2**16)
    with connect(
        f"ws://127.0.0.1:{service.port}/api/chat-ws", open_timeout=DEADLINE, max_size=None
    ) as socket:
        socket.send(json.dumps({"messages": [user("x" * size)]}))
        event = strict(socket.recv(timeout=DEADLINE))
        assert (event["type"], event["code"]) == ("error", "TOO_LARGE")
        if size > 2**24:
            with pytest.raises(ConnectionClosedError) as closed:
                socket.recv(timeout=DEADLINE)
            assert closed.value.rcvd is not None and closed.value.rcvd.code == 1009


def test_a_connection_whose_frame_is_refused_takes_only_so_much_more(served: Serve) -> None:
    service = served(lambda messages, context: "fine", limits__frame=2**16)
    with service.ws() as socket:
        socket.send("x" * 2**25)
        assert socket.read()[-1]["type"] == "error"
        start = time.monotonic()
        with pytest.raises(ConnectionClosedError):
            socket.read()
        assert time.monotonic() - start < DEADLINE / 2
    assert service.chat(user("go"))["content"] == "fine"


DOUBLED = {
    "decision": ('"execute": true', '"execute": false, "execute": true'),
    "input": ('"name": "a"', '"name": "b", "name": "a"'),
    "escaped": ('"name": "a"', '"n\\u0061me": "b", "name": "a"'),
    "data": ('"data": {"tool', '"data": {}, "data": {"tool'),
    "message": ('{"messages"', '{"messages": [], "messages"'),
}


@pytest.mark.parametrize("kind", DOUBLED)
@pytest.mark.parametrize("path", PATHS)
def test_a_decision_with_a_name_twice_is_refused(served: Serve, kind: str, path: str) -> None:
    tools = Counted()
    agent, _ = scripted([[delete("a")], "gone"], tools.tools)
    service = served(agent)
    reply = service.chat(user("go"), path=path)
    [call] = reply["data"]["tool_calls"]
    call = {**call, "input": {"name": "a"}, "execute": True}
    last = user("", data={"tool_calls": [call]})
    raw = json.dumps({"messages": [user("go"), {"role": "assistant", "content": ""}, last]})
    old, new = DOUBLED[kind]
    assert old in raw
    answer = service.post(PATHS[path][0], raw.replace(old, new).encode())
    assert answer.types == {"doubled_name"}
    assert tools.runs == []


def test_the_intent_of_a_command_is_bounded(served: Serve, tmp_path: Any) -> None:
    secret = "the-secret-of-the-tenant"
    intent = "y" * 490 + secret + "x" * 100_000
    command = {"command": "echo hi", "intent": intent}
    agent, _ = scripted(
        [[Call("1", "suggest_commands", {"commands": [command]})]], commands=LocalShell(tmp_path)
    )
    reply = served(agent).chat(user("go", platform_context={"platform_token": secret}))
    [shown] = reply["data"]["cmds"]
    assert len(shown["intent"]) <= 500
    assert "the-sec" not in json.dumps(reply)


def test_the_intent_of_a_callables_proposal_is_bounded(served: Serve) -> None:
    proposal = {**CALL, "intent": "x" * 100_000}
    service = served(
        lambda messages, context: {
            "content": "",
            "data": {
                "tool_calls": [proposal],
                "cmds": [{"command": "ls", "intent": "x" * 100_000}],
            },
        }
    )
    data = service.chat(user("go"))["data"]
    assert {len(each["intent"]) for each in (*data["tool_calls"], *data["cmds"])} == {500}
