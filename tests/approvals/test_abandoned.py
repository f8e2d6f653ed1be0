"""Abandoned calls, and starts that were refused (design, section 6, "Beginning")."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
from agents import scripted
from serving import Json, Serve, Service, approved, said, until, user
from stages import ALICE, Staged, World, approve, call, run, turn_of

from sayso import (
    AgentMessage,
    Caller,
    Config,
    Message,
    RequestContext,
    ServiceHost,
    Session,
    Tool,
    engine,
    tool,
)
from sayso.errors import StillRunning
from sayso.ledger import Proposal
from sayso.ledger.choices import Choice, Conversation, Decided
from sayso.ledger.claims import CallNotStarted, Grant
from sayso.ledger.memory import MemoryStore
from sayso.ledger.record import Ledger
from sayso.models import Call, Result
from sayso.wire.events import AgentEvent

SOMEBODY = Caller("test")
SHORT: dict[str, Any] = {
    "limits__turn_time": 1.5,
    "approvals__lease": 1.0,
    "approvals__ledger": "sqlite:///a.db",
    "server__threads": 1,
}


class Hanging:
    """A gated tool without a timeout whose calls end when `free` is set."""

    def __init__(self, *, is_async: bool = False) -> None:
        self.free = threading.Event()
        self.runs = 0
        self.events: list[AgentEvent] = []
        hang = self.hang_on_the_loop if is_async else self.hang
        self.tool: Tool = tool(hang, name="hang", requires_approval=True)

    def hang(self, name: str) -> str:
        """Never end."""
        self.runs += 1
        assert self.free.wait(120)
        return f"at last {name}"

    async def hang_on_the_loop(self, name: str) -> str:
        """Never end, and hold up the loop."""
        return self.hang(name)


def deciding(reply: Json) -> list[Json]:
    calls = [approved(c) for c in reply["data"]["tool_calls"]]
    return [user("go"), said(reply), user("", data={"tool_calls": calls})]


def row(service: Service) -> Proposal:
    """The one call of the store, as it stands."""
    ledger = service.app.host.ledger

    async def found() -> Proposal:
        states = ("PENDING", "APPROVED", "EXECUTING", "DONE", "FAILED", "INDETERMINATE")
        rows = await ledger.store.run(lambda tx: [r for s in states for r in tx.find(state=s)])
        return (await ledger.settle([rows[0].id]))[rows[0].id]

    return asyncio.run(found())


@pytest.fixture(params=[False, True], ids=["thread", "loop"])
def hanging(request: pytest.FixtureRequest) -> Iterator[Hanging]:
    made = Hanging(is_async=request.param)
    yield made
    made.free.set()


def test_approved_call_that_outlives_its_turn_holds_no_place_and_keeps_no_lease(
    served: Serve, hanging: Hanging, caplog: pytest.LogCaptureFixture
) -> None:
    @tool
    def look() -> str:
        """Look."""
        return "seen"

    def answer(ask: Any) -> Any:
        last = ask.turns[-1].blocks[-1]
        if isinstance(last, Result):
            return last.output
        return [Call("c", "look", {}) if last.text == "look" else Call("c", "hang", {"name": "a"})]

    agent, _ = scripted(answer, [hanging.tool, look], on_event=hanging.events.append)
    service = served(agent, **SHORT)
    messages = deciding(service.chat(user("go")))
    assert service.ask(*messages).json()["code"] in ("TURN_TIMEOUT", "STILL_RUNNING")
    abandoned = service.app.host.code.abandoned
    until(lambda: abandoned.total == 1, "the call to be given up")
    assert "tool hang: a call goes on that nobody waits for" in caplog.text
    # Its thread no longer counts towards the limit, and its loop delays nobody else.
    assert service.chat(user("look"))["content"] == "seen"
    until(lambda: row(service).state == "INDETERMINATE", "the end of its lease")
    why = "it did not end within the time limit of its turn and may still be running"
    assert (row(service).output or "").startswith(f"Outcome unknown: {why}.")
    reported = service.chat(*messages)["data"]["executed_tool_calls"][0]["output"]
    assert reported == row(service).output
    hanging.free.set()
    until(lambda: row(service).state == "DONE", "its real end")
    assert (row(service).output, hanging.runs) == ("at last a", 1)
    # The recorded reply was written before the outcome was known.
    known = service.chat(*messages)
    assert known["data"]["executed_tool_calls"][0]["output"] == "at last a"
    assert known["content"].startswith(reported)
    assert "Since this was written it has become known how hang ended" in known["content"]
    until(lambda: abandoned.total == 0, "the end of the call")
    until(lambda: "ToolExecuted" in [e.event_type for e in hanging.events], "the event of its end")


def test_end_of_the_service_does_not_wait_for_an_approved_call_that_was_abandoned(
    tmp_path: Path, hanging: Hanging
) -> None:
    async def work() -> float:
        agent, _ = scripted([], [hanging.tool])
        sections = {"plugins": [], "server": {"state_dir": tmp_path, "drain_timeout": 20}}
        host = ServiceHost.create(agent, Config.model_validate(sections))
        async with host.life():
            proposed = await host.calls.propose("hang", {"name": "a"}, SOMEBODY)
            with pytest.raises(StillRunning):
                await host.calls.decide(proposed.id, SOMEBODY, approved=True, wait=0.5)
            started = time.monotonic()
            await host.drain(20)
        return time.monotonic() - started

    try:
        assert run(work()) < 8
    finally:
        hanging.free.set()


def test_callable_that_outlives_its_turn_keeps_no_lease_either(served: Serve) -> None:
    free = threading.Event()

    def act(messages: Sequence[Message], context: Any) -> AgentMessage:
        if context.decisions:
            assert free.wait(120)
            return AgentMessage(content="at last")
        call_ = {"id": "c", "name": "wipe", "input": {"name": "a"}}
        return AgentMessage.model_validate({"data": {"tool_calls": [call_]}})

    service = served(act, **SHORT)
    try:
        messages = deciding(service.chat(user("go")))
        assert service.ask(*messages).json()["code"] == "TURN_TIMEOUT"
        until(lambda: row(service).state == "INDETERMINATE", "the end of its lease")
        assert service.app.host.code.abandoned.total == 1
        # The only thread is still available.
        assert service.chat(user("go"))["data"]["tool_calls"]
    finally:
        free.set()
    until(lambda: service.app.host.code.abandoned.total == 0, "the end of the call")


def test_ready_counts_the_loops_that_are_blocked_by_what_nobody_waits_for(served: Serve) -> None:
    free = threading.Event()

    async def block(messages: Sequence[Message], context: Any) -> str:
        assert messages[-1].content != "block" or free.wait(120)
        return "done"

    service = served(block, limits__turn_time=0.5, server__ready=True)
    workers, host = service.app.host.workers, service.app.host
    try:
        assert service.ask(user("block")).json()["code"] == "TURN_TIMEOUT"
        until(lambda: workers.blocked == 1, "the blocked loop to be counted")
        assert service.request("GET", "/ready").status == 200
        with pytest.raises(Exception, match="64 abandoned calls go on"):
            host.code.abandoned.check(256, workers.blocked + 63)
    finally:
        free.set()
    until(lambda: workers.blocked == 0, "the end of the call")


# Refused starts.


def test_call_without_a_thread_that_can_be_started_has_not_begun(
    served: Serve, monkeypatch: pytest.MonkeyPatch
) -> None:
    runs: list[str] = []

    @tool(requires_approval=True)
    def wipe(name: str) -> str:
        """Wipe a thing."""
        runs.append(name)
        return "wiped"

    agent, _ = scripted([[Call("c", "wipe", {"name": "a"})], *["done"] * 3], [wipe])
    service = served(agent, **{**SHORT, "limits__turn_time": 10})
    messages = deciding(service.chat(user("go")))
    threads, begin = service.app.host.workers.threads, threading.Thread.start

    def refuse(thread: threading.Thread) -> None:
        if thread.name == "sayso-thread":
            raise RuntimeError("can't start new thread")
        begin(thread)

    monkeypatch.setattr(threads, "_threads", set())
    monkeypatch.setattr(threading.Thread, "start", refuse)
    reply = service.chat(*messages)
    assert "wipe was approved and has not begun: no thread was free" in reply["content"]
    assert (row(service).state, runs) == ("APPROVED", [])
    monkeypatch.undo()
    service.chat(*messages)
    assert (row(service).state, runs) == ("DONE", ["a"])


class NeverThere:
    """A place on a loop that blocks before the call begins in it."""

    async def comes(self, until: float) -> bool:
        return True

    async def run(self, fn: Callable[..., Any], *args: Any) -> Any:
        await asyncio.sleep(600)

    def leave(self) -> None:
        """Nothing to release."""


@pytest.mark.parametrize("timeout", [None, 0.1])
def test_call_whose_place_blocks_before_it_begins_is_withdrawn_for_good(
    tmp_path: Path, timeout: float | None
) -> None:
    @tool(requires_approval=True, timeout=timeout)
    async def wipe(name: str) -> str:
        """Wipe a thing."""
        return "wiped"

    async def work() -> None:
        agent, _ = scripted([], [wipe])
        sections = {"plugins": [], "server": {"state_dir": tmp_path}}
        host = ServiceHost.create(agent, Config.model_validate(sections))
        async with host.life():
            proposed = await host.calls.propose("wipe", {"name": "a"}, SOMEBODY)
            choice = Choice(proposed.id, "tool_call", True, ("id",), True, input=proposed.input)
            who = ALICE._replace(principal=None, tenant=None)
            (grant,) = (await host.ledger.decide([choice], [], who, Conversation())).grants
            began = time.monotonic()
            with pytest.raises(CallNotStarted):
                await host.gate.run(
                    wipe,
                    proposed.input,
                    Session(),
                    RequestContext(),
                    grant,
                    place=NeverThere(),
                    until=began + 0.4,
                )
            assert 0.3 < time.monotonic() - began < 5
            with pytest.raises(CallNotStarted):
                grant.begin()
            await host.ledger.give_back([grant], refused=True)
            stands = (await host.ledger.settle([proposed.id]))[proposed.id]
            assert (stands.state, stands.refusals) == ("APPROVED", 1)

    run(work())


def test_grant_runs_no_other_input_than_was_approved(tmp_path: Path) -> None:
    runs: list[str] = []

    @tool(requires_approval=True)
    async def wipe(name: str) -> str:
        """Wipe a thing."""
        runs.append(name)
        return "wiped"

    async def work() -> None:
        agent, _ = scripted([], [wipe])
        sections = {"plugins": [], "server": {"state_dir": tmp_path}}
        host = ServiceHost.create(agent, Config.model_validate(sections))
        async with host.life():
            proposed = await host.calls.propose("wipe", {"name": "a"}, SOMEBODY)
            choice = Choice(proposed.id, "tool_call", True, ("id",), True, input=proposed.input)
            who = ALICE._replace(principal=None, tenant=None)
            (grant,) = (await host.ledger.decide([choice], [], who, Conversation())).grants
            given = (Session(), RequestContext(), grant)
            with pytest.raises(RuntimeError, match="the grant is for another call"):
                await host.gate.run(wipe, {"name": "b"}, *given, place=NeverThere())
            assert (grant.spent, runs) == (False, [])

    run(work())


class TestRest:
    """A refused start is delayed, and the stored delay applies to every process."""

    def processes(self, world: World) -> tuple[Ledger, Ledger]:
        store = MemoryStore()
        one, other = (Ledger(Staged(store, world), lease=5.0) for _ in range(2))
        return one, other

    async def approved(self, ledger: Ledger, **fields: Any) -> tuple[Choice, Decided, Proposal]:
        await ledger.open()
        one = call("t", **fields)
        await ledger.propose(turn_of(one), [one])
        choice = approve(one)
        found = await ledger.decide([choice], [], ALICE, Conversation(), claim=False)
        return choice, found, one

    def test_start_that_came_to_nothing_rests_in_every_process(self) -> None:
        async def work() -> None:
            world = World()
            one, other = self.processes(world)
            choice, found, row = await self.approved(one)
            for refusals in range(1, 9):
                grant = await one.claim(choice, found, row.id, ALICE)
                assert isinstance(grant, Grant), refusals
                await one.give_back([grant], refused=True)
                for ledger in (one, other):
                    now = Decided(found.rows)
                    assert await ledger.claim(choice, now, row.id, ALICE) is None
                    # Twice as long each time, up to five seconds, with a random part.
                    pause = min(5.0, 0.05 * 2 ** (refusals - 1))
                    assert pause * 0.4 < now.resting[row.id] <= pause * 1.5
                assert (await other.settle([row.id]))[row.id].refusals == refusals
                world.late += 10

        run(work())

    def test_request_that_decides_again_waits_for_the_rest_of_the_call(self) -> None:
        async def work() -> None:
            one, _ = self.processes(World())
            choice, found, row = await self.approved(one)
            grant = await one.claim(choice, found, row.id, ALICE)
            assert grant is not None
            await one.give_back([grant], refused=True)
            again = await one.decide([choice], [], ALICE, Conversation(), alone=True)
            assert ([*again.resting], again.grants) == ([row.id], [])

        run(work())

    def test_callable_is_given_nothing_while_one_of_its_calls_rests(self) -> None:
        async def work() -> None:
            world = World()
            one, _ = self.processes(world)
            choice, found, row = await self.approved(one)
            grant = await one.claim(choice, found, row.id, ALICE)
            assert grant is not None
            await one.give_back([grant], refused=True)
            found = Decided()
            assert await one.claim_for_callable("t", found) > 0
            assert found.grants == []
            world.late += 10
            assert await one.claim_for_callable("t", found) == 0
            assert [g.proposal.id for g in found.grants] == [row.id]

        run(work())


# Abandoned code that is no tool.


class Blocking:
    """Functions of each kind that block for good, until `free` is set."""

    def __init__(self) -> None:
        self.free = threading.Event()

    def wait(self, *_: Any) -> None:
        """Block."""
        assert self.free.wait(120)

    async def wait_beside(self, *_: Any) -> None:
        """Block a thread that the loop's own executor has."""
        await asyncio.to_thread(self.wait)

    def say(self, messages: Sequence[Message], context: Any) -> str:
        """Answer never."""
        self.wait()
        return "at last"

    def stream(self, messages: Sequence[Message], context: Any) -> Iterator[str]:
        """Stop in the middle of an answer."""
        yield "at "
        self.wait()
        yield "last"


@pytest.mark.parametrize(
    ("kind", "named"),
    [
        ("request", "Blocking.wait"),
        ("response", "Blocking.wait"),
        ("beside", "Blocking.wait"),
        ("callable", "Blocking.say"),
        ("generator", "Blocking.stream"),
    ],
)
def test_code_that_is_no_tool_and_blocks_for_good_counts_as_abandoned(
    served: Serve, caplog: pytest.LogCaptureFixture, kind: str, named: str
) -> None:
    blocking = Blocking()
    functions: dict[str, Any] = {"callable": blocking.say, "generator": blocking.stream}
    options: dict[str, Any] = {
        "request": {"request_interceptors": blocking.wait},
        "response": {"response_interceptors": blocking.wait},
        "beside": {"request_interceptors": blocking.wait_beside},
    }
    if (agent := functions.get(kind)) is None:
        agent, _ = scripted(["done"] * 4, [], **options[kind])
    service = served(agent, limits__turn_time=0.5, server__ready=True, server__threads=2)
    host = service.app.host
    try:
        for n in (1, 2, 3):
            # More calls than there are threads: an abandoned one holds none.
            assert service.ask(user("go")).json()["code"] == "TURN_TIMEOUT"
            until(lambda n=n: host.code.abandoned.total == n, "the call to be counted")
        assert f"{named}: a call goes on that nobody waits for any more; 3 of" in caplog.text
        assert service.request("GET", "/ready").status == 200
        if kind != "beside":
            (what,) = host.code.abandoned._counts
            host.code.abandoned.change(what, False, 29)
            refused = service.ask(user("go"))
            assert (refused.status, refused.json()["code"]) == (503, "EXHAUSTED")
            assert "32 abandoned calls go on" in refused.json()["detail"]
            host.code.abandoned.change(what, False, 32)
            until(lambda: service.request("GET", "/ready").status == 503, "/ready to say no")
            host.code.abandoned.change(what, False, -61)
    finally:
        blocking.free.set()
    until(lambda: host.code.abandoned.total == 0, "the end of the calls")


def test_event_handler_that_blocks_for_good_counts_as_abandoned(
    served: Serve, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    blocking = Blocking()
    monkeypatch.setattr(engine, "_HANDLER_SECONDS", 0.2)
    agent, _ = scripted(["done"], [], on_event=blocking.wait)
    service = served(agent)
    try:
        assert service.chat(user("go"))["content"] == "done"
        until(lambda: service.app.host.code.abandoned.total > 0, "the call to be counted")
        assert "Blocking.wait: a call goes on that nobody waits for" in caplog.text
    finally:
        blocking.free.set()
    until(lambda: service.app.host.code.abandoned.total == 0, "the end of the calls")
