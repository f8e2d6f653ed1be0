"""Blocking user code stalls nobody (design, section 9); disconnects (section 6, "Client gone")."""

from __future__ import annotations

import asyncio
import http.client
import json
import socket
import struct
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from threading import Event
from typing import Any

import pytest
from agents import Counted, delete, scripted
from serving import DEADLINE, Json, Serve, Service, approved, said, until, user

from gates import Gate
from sayso import Agent, Call, Reply, Text, TextDelta, Turn, tool
from sayso.testing.script import Scripted

TURNS = 64


def sync_callable(gate: Gate) -> Any:
    def agent(messages: Any, context: Any) -> str:
        gate.block()
        return "ok"

    return agent


def async_callable(gate: Gate) -> Any:
    async def agent(messages: Any, context: Any) -> str:
        gate.block()
        return "ok"

    return agent


def callable_that_blocks_as_it_comes_on(gate: Gate) -> Any:
    async def agent(messages: Any, context: Any) -> str:
        await asyncio.sleep(0)
        gate.block()
        return "ok"

    return agent


def generator_callable(gate: Gate) -> Any:
    def agent(messages: Any, context: Any) -> Any:
        gate.block()
        yield "ok"

    return agent


def _with_tool(block: Any) -> Agent:
    def step(ask: Any) -> Any:
        return [Call("w", "block", {})] if len(ask.turns) == 1 else "ok"

    return Agent(model=Scripted(step), tools=[block])


def sync_tool(gate: Gate) -> Any:
    @tool
    def block() -> str:
        """Block."""
        gate.block()
        return "done"

    return _with_tool(block)


def async_tool(gate: Gate) -> Any:
    @tool
    async def block() -> str:
        """Block."""
        gate.block()
        return "done"

    return _with_tool(block)


def text_of_a_result(gate: Gate) -> Any:
    class Lazy:
        def __str__(self) -> str:
            return gate.block()

    @tool
    def block() -> Any:
        """Give what takes its time to be shown."""
        return Lazy()

    return _with_tool(block)


def sync_interceptor(gate: Gate) -> Any:
    def wait(request: Any, context: Any) -> None:
        gate.block()

    return Agent(model=Scripted(lambda ask: "ok"), request_interceptors=wait)


def async_interceptor(gate: Gate) -> Any:
    async def wait(request: Any, context: Any) -> None:
        gate.block()

    return Agent(model=Scripted(lambda ask: "ok"), request_interceptors=wait)


def response_interceptor(gate: Gate) -> Any:
    async def wait(response: Any, context: Any) -> None:
        gate.block()

    return Agent(model=Scripted(lambda ask: "ok"), response_interceptors=wait)


def async_context(gate: Gate) -> Any:
    async def compute(context: Any) -> str:
        gate.block()
        return "now"

    return Agent(model=Scripted(lambda ask: "ok"), system_context=compute)


def model_step(gate: Gate, **options: Any) -> Any:
    class Blocking:
        provider = "own"
        name = "own"

        async def stream(self, ask: Any) -> Any:
            gate.block()
            yield TextDelta("ok")
            yield Reply(Turn("assistant", [Text("ok")]), "end_turn")

    return Agent(model=Blocking(), **options)


def model_step_behind_plain_hooks(gate: Gate) -> Any:
    def pass_by(*given: Any) -> None:
        """Do nothing, on a thread."""

    return model_step(gate, request_interceptors=pass_by, on_event=pass_by, system_context=pass_by)


def model_step_after_a_plain_tool(gate: Gate) -> Any:
    @tool
    def look() -> str:
        """Look."""
        return "seen"

    class Calling:
        provider = "own"
        name = "own"

        async def stream(self, ask: Any) -> Any:
            if len(ask.turns) == 1:
                yield Reply(Turn("assistant", [Call("c", "look", {})]), "tool_use")
                return
            gate.block()
            yield Reply(Turn("assistant", [Text("ok")]), "end_turn")

    return Agent(model=Calling(), tools=[look])


def model_that_answers_whole_after_a_plain_tool(gate: Gate) -> Any:
    @tool
    def look() -> str:
        """Look."""
        return "seen"

    class Whole:
        provider = "own"
        name = "own"

        def stream(self, ask: Any) -> Any:
            if len(ask.turns) == 1:
                return [Reply(Turn("assistant", [Call("c", "look", {})]), "tool_use")]
            gate.block()
            return [Reply(Turn("assistant", [Text("ok")]), "end_turn")]

    return Agent(model=Whole(), tools=[look])


def response_interceptor_after_a_plain_one(gate: Gate) -> Any:
    def pass_by(response: Any, context: Any) -> None:
        """Do nothing, on a thread."""

    async def wait(response: Any, context: Any) -> None:
        gate.block()

    class Saying:
        provider = "own"
        name = "own"

        async def stream(self, ask: Any) -> Any:
            yield Reply(Turn("assistant", [Text("ok")]), "end_turn")

    return Agent(model=Saying(), response_interceptors=[pass_by, wait])


BLOCKING: list[Callable[[Gate], Any]] = [
    sync_callable,
    async_callable,
    callable_that_blocks_as_it_comes_on,
    generator_callable,
    sync_tool,
    async_tool,
    text_of_a_result,
    sync_interceptor,
    async_interceptor,
    response_interceptor,
    async_context,
    model_step,
    model_step_behind_plain_hooks,
    model_step_after_a_plain_tool,
    model_that_answers_whole_after_a_plain_tool,
    response_interceptor_after_a_plain_one,
]


@pytest.mark.parametrize("made", BLOCKING, ids=lambda f: f.__name__)
def test_health_answers_while_sixty_four_turns_block(
    served: Serve, made: Callable[[Gate], Any]
) -> None:
    gate = Gate()
    service = served(made(gate))
    with ThreadPoolExecutor(TURNS) as pool:
        try:
            turns = [pool.submit(service.chat, user(f"n{n}")) for n in range(TURNS)]
            until(lambda: gate.count == TURNS, "all turns are blocked side by side")
            for _ in range(20):
                assert service.request("GET", "/health").status == 200
            assert not any(turn.done() for turn in turns)
        finally:
            gate.open()
        assert {turn.result()["content"] for turn in turns} == {"ok"}


class Waiting:
    """A model that streams one word, then waits; it records a cancellation."""

    provider = "waiting"
    name = "waiting"

    def __init__(self) -> None:
        self.started = threading.Event()
        self.cancelled = threading.Event()

    async def stream(self, ask: Any) -> Any:
        yield TextDelta("one ")
        self.started.set()
        try:
            await asyncio.sleep(600)
        except asyncio.CancelledError:
            self.cancelled.set()
            raise


def leave(service: Service, path: str, messages: list[Json], read: bool = True) -> None:
    """Ask, read the first line if there is one, and disconnect."""
    connection = http.client.HTTPConnection("127.0.0.1", service.port, timeout=DEADLINE)
    body = json.dumps({"messages": messages})
    connection.request("POST", path, body, {"Content-Type": "application/json"})
    if read:
        got = connection.getresponse()
        got.readline()
        # A closed half could be that of a client that still reads, which takes 15 s to find out.
        connection.sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        got.close()
    connection.close()


@pytest.mark.parametrize("path", ["/api/chat-stream", "/api/sendMessageStream"])
def test_leaving_client_cancels_the_model_call(served: Serve, path: str) -> None:
    model = Waiting()
    service = served(Agent(model=model))
    leave(service, path, [user("x")])
    assert model.cancelled.wait(DEADLINE)
    assert until(lambda: service.app.host.turns_running == 0)


def test_leaving_synchronous_client_cancels_the_model_call(served: Serve) -> None:
    model = Waiting()
    service = served(Agent(model=model))
    connection = http.client.HTTPConnection("127.0.0.1", service.port, timeout=DEADLINE)
    body = json.dumps({"messages": [user("x")]})
    connection.request("POST", "/api/chat", body, {"Content-Type": "application/json"})
    assert model.started.wait(DEADLINE)
    connection.close()
    assert model.cancelled.wait(DEADLINE)


def test_leaving_websocket_cancels_the_model_call(served: Serve) -> None:
    model = Waiting()
    service = served(Agent(model=model))
    with service.ws() as ws:
        ws.send({"messages": [user("x")]})
        assert model.started.wait(DEADLINE)
    assert model.cancelled.wait(DEADLINE)


class Unpausing:
    """Sends words without end, and never awaits; as an agent's callable or as its model."""

    provider = "unpausing"
    name = "unpausing"

    def __init__(self) -> None:
        self.started, self.closed, self.stop = Event(), Event(), Event()

    async def stream(self, ask: Any) -> Any:
        async for word in self.words():
            yield TextDelta(word)

    async def agent(self, messages: Any, context: Any) -> Any:
        async for word in self.words():
            yield word

    async def words(self) -> Any:
        try:
            while not self.stop.is_set():
                yield "word "
                self.started.set()
                time.sleep(0.001)  # noqa: ASYNC251
        finally:
            self.closed.set()


def passes(request: Any, context: Any) -> None:
    """An interceptor that lets everything pass."""


@pytest.mark.parametrize("path", ["/api/chat", "/api/chat-stream"])
@pytest.mark.parametrize("kind", ["callable", "model", "model behind an interceptor"])
def test_leaving_client_ends_what_yields_without_ever_awaiting(
    served: Serve, kind: str, path: str
) -> None:
    words = Unpausing()
    behind = [passes] if "interceptor" in kind else []
    agent = Agent(model=words, request_interceptors=behind) if "model" in kind else words.agent
    service = served(agent)
    connection = http.client.HTTPConnection("127.0.0.1", service.port, timeout=DEADLINE)
    body = json.dumps({"messages": [user("x")]})
    connection.request("POST", path, body, {"Content-Type": "application/json"})
    try:
        assert words.started.wait(DEADLINE)
        connection.close()
        assert words.closed.wait(DEADLINE)
    finally:
        words.stop.set()


def test_on_disconnect_continue_finishes_the_turn(served: Serve) -> None:
    ended = threading.Event()
    go = threading.Event()

    def agent(messages: Any, context: Any) -> Any:
        yield "one"
        go.wait(DEADLINE)
        ended.set()
        yield "two"

    service = served(agent, server__on_disconnect="continue")
    leave(service, "/api/chat-stream", [user("x")])
    go.set()
    assert ended.wait(DEADLINE)


@pytest.mark.parametrize("kind", ["sync", "async"])
@pytest.mark.parametrize("path", ["/api/chat", "/api/chat-stream"])
def test_leaving_client_never_cancels_a_claimed_tool(served: Serve, kind: str, path: str) -> None:
    running, go = threading.Event(), threading.Event()
    ended: list[str] = []

    if kind == "sync":

        @tool(requires_approval=True, name="delete")
        def slow(name: str) -> str:
            """Delete."""
            running.set()
            go.wait(DEADLINE)
            ended.append(name)
            return f"deleted {name}"
    else:

        @tool(requires_approval=True, name="delete")
        async def slow(name: str) -> str:
            """Delete."""
            running.set()
            while not go.is_set():  # noqa: ASYNC110
                await asyncio.sleep(0.01)
            ended.append(name)
            return f"deleted {name}"

    agent, model = scripted([[delete("a")], "It is gone."], [slow])
    service = served(agent)
    reply = service.chat(user("delete a"))
    data = {"tool_calls": [approved(reply["data"]["tool_calls"][0])]}
    messages = [user("delete a"), said(reply), user("", data=data)]
    connection = http.client.HTTPConnection("127.0.0.1", service.port, timeout=DEADLINE)
    body = json.dumps({"messages": messages})
    connection.request("POST", path, body, {"Content-Type": "application/json"})
    assert running.wait(DEADLINE)
    connection.close()
    until(lambda: service.app.host.turns_running == 0)
    go.set()
    until(lambda: ended)
    got = service.chat(*messages)
    assert [e["output"] for e in got["data"]["executed_tool_calls"]] == ["deleted a"]
    assert got["content"] == "It is gone."
    assert ended == ["a"]
    assert len(model.asks) == 2


def test_resending_while_the_tool_runs_waits_for_its_outcome(served: Serve) -> None:
    running, go = threading.Event(), threading.Event()
    runs: list[str] = []

    @tool(requires_approval=True, name="delete")
    def slow(name: str) -> str:
        """Delete."""
        runs.append(name)
        running.set()
        go.wait(DEADLINE)
        return "deleted"

    agent, _ = scripted([[delete("a")], "It is gone."], [slow])
    service = served(agent)
    reply = service.chat(user("delete a"))
    data = {"tool_calls": [approved(reply["data"]["tool_calls"][0])]}
    messages = [user("delete a"), said(reply), user("", data=data)]
    leave(service, "/api/chat", messages, read=False)
    assert running.wait(DEADLINE)
    with ThreadPoolExecutor(1) as pool:
        waiting = pool.submit(service.chat, *messages)
        go.set()
        got = waiting.result(DEADLINE)
    assert [e["output"] for e in got["data"]["executed_tool_calls"]] == ["deleted"]
    assert runs == ["a"]


def test_waiting_requests_hold_no_turn_slot(served: Serve) -> None:
    running, go = threading.Event(), threading.Event()

    @tool(requires_approval=True, name="delete")
    def slow(name: str) -> str:
        """Delete."""
        running.set()
        go.wait(DEADLINE)
        return "deleted"

    agent, _ = scripted([[delete("a")], "other", "gone"], [slow])
    service = served(agent, limits__turns=3)
    reply = service.chat(user("delete a"))
    data = {"tool_calls": [approved(reply["data"]["tool_calls"][0])]}
    messages = [user("delete a"), said(reply), user("", data=data)]
    with ThreadPoolExecutor(10) as pool:
        waiting = [pool.submit(service.chat, *messages) for _ in range(8)]
        assert running.wait(DEADLINE)
        assert service.chat(user("other"))["content"] == "other"
        go.set()
        assert {w.result(DEADLINE)["content"] for w in waiting} == {"gone"}


def test_waiting_request_of_a_callable_that_is_left_keeps_no_turn_slot(served: Serve) -> None:
    running, go = threading.Event(), threading.Event()

    def act(messages: Any, context: Any) -> Any:
        if not context.decisions:
            call = {"id": "own", "name": "delete", "input": {}, "execute": False}
            return {"content": "may I?", "data": {"tool_calls": [call]}}
        running.set()
        go.wait(DEADLINE)
        return "gone"

    service = served(act)
    host = service.app.host
    reply = service.chat(user("delete a"))
    data = {"tool_calls": [approved(reply["data"]["tool_calls"][0])]}
    messages = [user("delete a"), said(reply), user("", data=data)]
    with ThreadPoolExecutor(1) as pool:
        first = pool.submit(service.chat, *messages)
        assert running.wait(DEADLINE)
        leave(service, "/api/chat", messages, read=False)
        until(lambda: len(host.engine.background) > 1)
        until(lambda: len(host._turns.started) == 1)
        go.set()
        assert first.result(DEADLINE)["content"] == "gone"
    until(lambda: not host.engine.background)
    until(lambda: host.turns_running == 0)


def test_too_many_turns_wait_and_then_run(served: Serve) -> None:
    service = served(lambda messages, context: time.sleep(0.05) or "ok", limits__turns=2)
    with ThreadPoolExecutor(12) as pool:
        answers = list(pool.map(lambda n: service.ask(user("x")).status, range(12)))
    assert set(answers) == {200}


def test_cancelled_turn_after_its_tool_can_be_sent_again(served: Serve) -> None:
    tools = Counted()
    started = threading.Event()

    async def hang(ask: Any) -> str:
        started.set()
        await asyncio.sleep(600)
        return "never"

    agent, model = scripted([[delete("a")], hang, "It is gone."], tools.tools)
    service = served(agent)
    reply = service.chat(user("delete a"))
    data = {"tool_calls": [approved(reply["data"]["tool_calls"][0])]}
    messages = [user("delete a"), said(reply), user("", data=data)]
    connection = http.client.HTTPConnection("127.0.0.1", service.port, timeout=DEADLINE)
    body = json.dumps({"messages": messages})
    connection.request("POST", "/api/chat", body, {"Content-Type": "application/json"})
    assert started.wait(DEADLINE)
    connection.close()
    got = service.chat(*messages)
    assert got["content"] == "It is gone."
    assert [e["output"] for e in got["data"]["executed_tool_calls"]] == ["deleted a"]
    assert tools.names == ["a"]
    assert len(model.asks) == 3
