"""Observers see turns, model calls, tools, approvals and the ledger, and change none of them."""

from __future__ import annotations

import asyncio
import json
import logging
import threading
import time
from collections.abc import Callable
from contextvars import ContextVar
from pathlib import Path
from typing import Any

import pytest

from sayso import (
    Agent,
    ApprovalChange,
    Call,
    Host,
    LedgerOperation,
    LocalShell,
    ModelCallBegan,
    ModelCallEnded,
    ModelError,
    Observer,
    Plugin,
    PluginError,
    Reply,
    SlotAwaited,
    ToolCallBegan,
    ToolCallEnded,
    Turn,
    TurnBegan,
    TurnEnded,
    Usage,
    hookimpl,
    tool,
)
from sayso.testing import Served, scripted

inside: ContextVar[str] = ContextVar("inside", default="")
DEADLINE = 20.0
TRACE = f"00-{32 * 'a'}-{16 * 'b'}-01"


class Notes(Observer):
    """Notes all that it sees, and sets a context variable for the length of each part."""

    def __init__(self) -> None:
        self.seen: list[Any] = []

    def all(self, kind: type) -> list[Any]:
        return [value for value in self.seen if isinstance(value, kind)]

    def _begin(self, began: Any) -> Callable[[Any], None]:
        self.seen.append(began)
        token = inside.set(f"{inside.get()}/{type(began).__name__}")

        def ended(value: Any) -> None:
            inside.reset(token)
            self.seen.append(value)

        return ended

    def turn(self, began: TurnBegan) -> Callable[[TurnEnded], None]:
        return self._begin(began)

    def model_call(self, began: ModelCallBegan) -> Callable[[ModelCallEnded], None]:
        return self._begin(began)

    def tool_call(self, began: ToolCallBegan) -> Callable[[ToolCallEnded], None]:
        return self._begin(began)

    def approval(self, change: ApprovalChange) -> None:
        self.seen.append(change)

    def ledger(self, operation: LedgerOperation) -> None:
        self.seen.append(operation)

    def slot(self, awaited: SlotAwaited) -> None:
        self.seen.append(awaited)

    def trace(self) -> str:
        return TRACE if inside.get() else ""


def observing(*observers: Observer) -> list[Plugin]:
    """A plugin for each observer."""

    def plugin(number: int, observer: Observer) -> Plugin:
        def observe(self: Plugin, host: Host) -> Observer:
            return observer

        hooks = {"name": f"observing{number}", "observe": hookimpl(observe)}
        made: Plugin = type("Observing", (Plugin,), hooks)()
        return made

    return [plugin(number, observer) for number, observer in enumerate(observers)]


@tool
async def where() -> str:
    """Say in which parts the tool runs."""
    return inside.get()


@tool
def where_on_a_thread() -> str:
    """Say in which parts the tool runs."""
    return inside.get()


@tool(requires_approval=True)
def delete(name: str) -> str:
    """Delete something."""
    return f"{name} is gone"


@tool(requires_approval=True)
def fail() -> str:
    """Fail."""
    raise ValueError("broken")


def eventually(condition: Callable[[], object]) -> None:
    """Wait for the condition."""
    deadline = time.monotonic() + DEADLINE
    while not condition():
        assert time.monotonic() < deadline, "it did not happen in time"
        time.sleep(0.01)


def test_a_turn_with_a_tool_is_seen_from_its_begin_to_its_end(sayso_served: Served) -> None:
    notes = Notes()
    counted = Reply(Turn("assistant", [Call("c1", "where", {})]), "tool_use", Usage(7, 3, 2, 1))
    agent = Agent(name="kube", model=scripted(counted, "fine"), tools=[where])
    service = sayso_served(agent, observing(notes))
    service.chat("where are you?")
    kinds = [type(v).__name__ for v in notes.seen if not isinstance(v, LedgerOperation)]
    assert kinds == [
        "TurnBegan",
        "ModelCallBegan",
        "ModelCallEnded",
        "ToolCallBegan",
        "ToolCallEnded",
        "ModelCallBegan",
        "ModelCallEnded",
        "TurnEnded",
    ]
    began, ended = notes.all(TurnBegan)[0], notes.all(TurnEnded)[0]
    assert (began.agent, began.caller.protocol) == ("kube", "v2")
    assert began.request.messages[-1].content == "where are you?"
    assert (ended.stop, ended.error, ended.failure) == ("end_turn", "", None)
    assert (ended.model_calls, ended.tool_calls, ended.proposals) == (2, 1, 0)
    assert ended.usage == Usage(7, 3, 2, 1)
    assert "".join(ended.said) == "fine"
    assert 0 < ended.first <= ended.duration < DEADLINE
    assert {value.turn for value in notes.all(ModelCallBegan)} == {began.id}
    call, outcome = notes.all(ToolCallBegan)[0], notes.all(ToolCallEnded)[0]
    assert (call.turn, call.call_id, call.name, call.proposal) == (began.id, "c1", "where", None)
    assert (outcome.state, outcome.error) == ("DONE", "")


@pytest.mark.parametrize("named", [where, where_on_a_thread], ids=["async", "plain"])
def test_what_an_observer_sets_is_seen_where_the_tool_runs(
    sayso_served: Served, named: Any
) -> None:
    notes = Notes()
    agent = Agent(model=scripted([Call("c1", named.name, {})], "fine"), tools=[named])
    service = sayso_served(agent, observing(notes))
    service.stream("where are you?")
    assert notes.all(ToolCallEnded)[0].output == "/TurnBegan/ToolCallBegan"


def test_an_approval_is_seen_from_its_proposal_to_its_end(sayso_served: Served) -> None:
    notes = Notes()
    steps = [[Call("c1", "delete", {"name": "web"})], "done"]
    service = sayso_served(Agent(model=scripted(*steps), tools=[delete]), observing(notes))
    talk = service.conversation()
    talk.say("delete web")
    assert notes.all(TurnEnded)[0].stop == "approval_required"
    assert notes.all(TurnEnded)[0].proposals == 1
    talk.approve()
    eventually(lambda: len(notes.all(TurnEnded)) == 2)
    changes = notes.all(ApprovalChange)
    assert [change.event for change in changes] == ["proposed", "approved", "claimed", "done"]
    first, second = (began.id for began in notes.all(TurnBegan))
    assert [change.turn for change in changes] == [first, second, second, second]
    assert {change.row.name for change in changes} == {"delete"}
    assert [change.row.state for change in changes][-1] == "DONE"
    assert changes[1].waited >= 0
    run = notes.all(ToolCallBegan)[0]
    assert run.proposal.id == run.call_id == changes[0].row.id
    operations = {each.name for each in notes.all(LedgerOperation)}
    assert {"propose", "decide", "finish_last"} <= operations
    assert not any(each.error for each in notes.all(LedgerOperation))


@pytest.mark.parametrize("store", ["memory", "sqlite"])
def test_the_traces_of_proposal_and_decision_are_kept(
    sayso_served: Served, store: str, tmp_path: Path
) -> None:
    url = "memory://" if store == "memory" else f"sqlite:///{tmp_path / 'approvals.db'}"
    steps = [[Call("c1", "delete", {"name": "web"})], "done"]
    notes = Notes()
    service = sayso_served(
        Agent(model=scripted(*steps), tools=[delete]),
        observing(notes),
        config=f'[approvals]\nledger = "{url}"\n',
    )
    talk = service.conversation()
    talk.say("delete web")
    talk.approve()
    row = notes.all(ToolCallBegan)[0].proposal
    assert row.trace == row.decision.trace == TRACE


def test_a_rejected_and_a_failed_call_are_seen(sayso_served: Served) -> None:
    notes = Notes()
    steps = [[Call("c1", "delete", {"name": "web"})], "well", [Call("c2", "fail", {})], "oh"]
    service = sayso_served(Agent(model=scripted(*steps), tools=[delete, fail]), observing(notes))
    talk = service.conversation()
    talk.say("delete web")
    talk.reject("no")
    talk.say("fail")
    talk.approve()
    events = [change.event for change in notes.all(ApprovalChange)]
    assert events == ["proposed", "rejected", "proposed", "approved", "claimed", "failed"]
    assert [ended.error for ended in notes.all(ToolCallEnded)] == ["tool_error"]


def test_an_approved_command_is_seen(sayso_served: Served) -> None:
    notes = Notes()
    suggestion = {"commands": [{"command": "echo hello"}]}
    steps = [[Call("c1", "suggest_commands", suggestion)], "done"]
    shell = LocalShell()
    service = sayso_served(Agent(model=scripted(*steps), commands=shell), observing(notes))
    talk = service.conversation()
    talk.say("say hello")
    talk.approve()
    call, ended = notes.all(ToolCallBegan)[0], notes.all(ToolCallEnded)[0]
    assert (call.kind, call.input["command"], ended.state) == ("command", "echo hello", "DONE")


def test_a_failed_turn_says_why(sayso_served: Served) -> None:
    notes = Notes()
    failure = ModelError("overloaded", "the model is overloaded")
    service = sayso_served(Agent(model=scripted(failure)), observing(notes))
    assert service.ask("hello").status == 503
    ended = notes.all(TurnEnded)[0]
    assert (ended.stop, ended.error) == (None, "MODEL_OVERLOADED")
    assert ended.failure is failure
    assert notes.all(ModelCallEnded)[0].error == "overloaded"


def test_an_observer_that_fails_is_logged_once_and_changes_nothing(
    sayso_served: Served, caplog: pytest.LogCaptureFixture
) -> None:
    class Broken(Observer):
        def turn(self, began: TurnBegan) -> Callable[[TurnEnded], None]:
            def ended(value: TurnEnded) -> None:
                raise RuntimeError("broken at the end")

            return ended

        def model_call(self, began: ModelCallBegan) -> None:
            raise RuntimeError("broken at once")

    notes = Notes()
    agent = Agent(model=scripted("one", "two"))
    service = sayso_served(agent, observing(Broken(), notes))
    assert service.chat("hello")["content"] == "one"
    assert service.chat("hello")["content"] == "two"
    assert len(notes.all(TurnEnded)) == 2
    said = [r.getMessage() for r in caplog.records if r.name == "sayso.observers"]
    assert len(said) == 2
    assert all("observing0" in text and __file__ in text for text in said)


def test_nothing_is_wrapped_without_an_observer(
    sayso_served: Served, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.WARNING, "sayso")
    host = sayso_served(Agent(model=scripted("fine"))).host
    observers = host.observers
    assert (observers.turn, observers.model_call, observers.tool_call) == (None, None, None)
    assert (observers.approval, observers.ledger, observers.slot) == (None, None, None)
    assert type(host.gate).__name__ == "Gate"
    assert type(host.ledger.store).__name__ == "MemoryStore"


def test_an_observer_of_approvals_costs_turns_nothing(
    sayso_served: Served, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.WARNING, "sayso")

    class Approvals(Observer):
        def approval(self, change: ApprovalChange) -> None:
            """See nothing of it."""

    host = sayso_served(Agent(model=scripted("fine")), observing(Approvals())).host
    assert host.observers.turn is None
    assert host.observers.approval is not None


def test_something_else_than_an_observer_stops_the_start(sayso_served: Served) -> None:
    def observe(self: Plugin) -> Any:
        return print

    plugin: Plugin = type("Odd", (Plugin,), {"name": "odd", "observe": hookimpl(observe)})()
    with pytest.raises(PluginError, match=r"odd.*return an instance of a subclass of sayso.Obs"):
        sayso_served(Agent(model=scripted("fine")), [plugin])


def test_a_turn_that_waits_for_its_place_is_seen(sayso_served: Served) -> None:
    notes, entered, release = Notes(), threading.Event(), threading.Event()

    @tool
    async def hold() -> str:
        """Hold the place."""
        entered.set()
        await asyncio.to_thread(release.wait)
        return "held"

    agent = Agent(model=scripted([Call("c1", "hold", {})], "one", "two"), tools=[hold])
    service = sayso_served(agent, observing(notes), config="[limits]\nturns = 1\n")
    first = threading.Thread(target=service.chat, args=("hold",))
    second = threading.Thread(target=service.chat, args=("hello",))
    first.start()
    assert entered.wait(DEADLINE)
    second.start()
    eventually(lambda: service.host.engine.slots.waiting == 1)
    release.set()
    first.join()
    second.join()
    (awaited,) = notes.all(SlotAwaited)
    assert (awaited.refused, awaited.duration > 0) == (False, True)


def lines(caplog: pytest.LogCaptureFixture, event: str) -> list[dict[str, Any]]:
    return [vars(record) for record in caplog.records if record.getMessage() == event]


def test_the_log_has_a_line_for_a_turn_a_decision_and_a_run(
    sayso_served: Served, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "sayso")
    counted = Reply(
        Turn("assistant", [Call("c1", "delete", {"name": "web"})]), "tool_use", Usage(7, 3, 2, 1)
    )
    config = '[auth]\nscheme = "bearer"\n[auth.tokens]\nana = "t0ken-of-ana-that-is-long"\n'
    agent = Agent(model=scripted(counted, "done"), tools=[delete])
    service = sayso_served(agent, config=config)
    talk = service.conversation(token="t0ken-of-ana-that-is-long", headers={"X-Request-ID": "r-1"})
    talk.say("delete web")
    talk.approve()
    eventually(lambda: len(lines(caplog, "turn ended")) == 2)
    first, second = lines(caplog, "turn ended")
    assert (first["protocol"], first["principal"], first["stop"]) == (
        "v2",
        "ana",
        "approval_required",
    )
    assert (first["tokens_in"], first["tokens_out"], first["proposals"]) == (10, 3, 1)
    assert second["tool_calls"] == 1
    (decided,) = lines(caplog, "call approved")
    assert (decided["who"], decided["tool"], decided["turn"]) == ("ana", "delete", second["turn"])
    (ended,) = lines(caplog, "call ended")
    assert (ended["state"], ended["call"]) == ("DONE", decided["call"])
    said = json.dumps([vars(r) for r in caplog.records], default=str)
    assert "is gone" not in said
    assert "t0ken" not in said
