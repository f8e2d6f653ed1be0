"""The service runs calls, each once, that were approved elsewhere than by their caller."""

from __future__ import annotations

import asyncio
import json
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from processes import CONFIG, Nursery, lines
from serving import said, user

from databases import empty_schema
from sayso import Agent, Call, Caller, LocalShell, RequestContext, Session, tool
from sayso.cli import run
from sayso.decisions import elsewhere
from sayso.testing import Served, Service, scripted

DEADLINE = 60.0


def until(holds: Callable[[], Any]) -> Any:
    """The result of `holds` as soon as it is true."""
    deadline = time.monotonic() + DEADLINE
    while not (value := holds()):
        assert time.monotonic() < deadline, "it did not come true in time"
        time.sleep(0.02)
    return value


class Kitchen:
    """A service whose agent has gated tools, and a record of their runs."""

    def __init__(self, served: Served, config: str = "", **options: Any) -> None:
        self.ran: list[str] = []
        steps = [[Call("1", options.pop("name", "bake"), {"what": "bread"})], *["done"] * 9]

        @tool(requires_approval=True)
        def bake(what: str) -> str:
            """Bake."""
            self.ran.append(what)
            return f"baked {what}"

        @tool(requires_approval=True)
        def note(what: str, context: RequestContext) -> str:
            """Note."""
            self.ran.append(what)
            return what

        @tool(requires_approval=True)
        def keep(what: str, session: Session) -> str:
            """Keep."""
            self.ran.append(what)
            return what

        @tool(requires_approval=True, unattended=True)
        def send(what: str, context: RequestContext) -> str:
            """Send."""
            self.ran.append(f"{what} of {context.platform.tenant_name}")
            return what

        agent = Agent(model=scripted(*steps), tools=[bake, note, keep, send])
        self.service: Service = served(agent, config=config)

    def propose(self, **fields: Any) -> Any:
        """A conversation in which the call is proposed, and the call."""
        conversation = self.service.conversation()
        conversation.say("go", **fields)
        (call,) = conversation.pending
        return conversation, call["id"]

    def decide(self, id: str, approved: bool = True) -> None:
        """Decide elsewhere: by its id alone, as the inbox and the console do."""
        calls = self.service.host.calls
        asyncio.run(calls.decide(id, Caller("inbox"), approved=approved, run=False))

    def state(self, id: str) -> str:
        row = asyncio.run(self.service.host.record.settle([id]))[id]
        return row.state


def test_call_approved_by_its_id_runs_and_its_caller_gets_the_outcome(sayso_served: Served) -> None:
    kitchen = Kitchen(sayso_served)
    conversation, id_ = kitchen.propose()
    kitchen.decide(id_)
    until(lambda: kitchen.state(id_) == "DONE")
    reply = conversation.approve()
    assert reply["content"] == "done"
    assert reply["data"]["executed_tool_calls"][0]["output"] == "baked bread"
    assert kitchen.ran == ["bread"]


@pytest.mark.parametrize("name", ["note", "keep"])
def test_call_that_needs_its_caller_waits_for_it(
    sayso_served: Served, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(elsewhere, "GRACE", 0.0)
    kitchen = Kitchen(sayso_served, name=name)
    conversation, id_ = kitchen.propose()
    kitchen.decide(id_)
    row = asyncio.run(kitchen.service.host.record.settle([id_]))[id_]
    assert (row.state, row.unattended) == ("APPROVED", False)
    assert conversation.approve()["content"] == "done"
    assert kitchen.ran == ["bread"]


def test_tool_that_says_so_gets_what_was_recorded(sayso_served: Served) -> None:
    kitchen = Kitchen(sayso_served, name="send")
    _, id_ = kitchen.propose(platform_context={"tenant_name": "acme"})
    kitchen.decide(id_)
    until(lambda: kitchen.state(id_) == "DONE")
    assert kitchen.ran == ["bread of acme"]


@pytest.mark.parametrize(
    "fields",
    [{"platform_context": {"platform_token": "t0p-secret-text"}}, {"platform_context": {"x": 1}}],
)
def test_call_of_a_request_that_stated_more_waits(
    sayso_served: Served, fields: dict[str, Any]
) -> None:
    kitchen = Kitchen(sayso_served)
    _, id_ = kitchen.propose(**fields)
    row = asyncio.run(kitchen.service.host.record.settle([id_]))[id_]
    assert not row.unattended


def test_setting_leaves_all_to_the_callers(sayso_served: Served) -> None:
    kitchen = Kitchen(sayso_served, '[approvals]\nrun = "caller"\n')
    conversation, id_ = kitchen.propose()
    kitchen.decide(id_)
    assert kitchen.service.host.engine.on_approved(None) is None  # type: ignore[arg-type]
    assert kitchen.state(id_) == "APPROVED"
    conversation.approve()
    assert kitchen.ran == ["bread"]


def test_rejected_call_does_not_run(sayso_served: Served) -> None:
    kitchen = Kitchen(sayso_served)
    _, id_ = kitchen.propose()
    kitchen.decide(id_, approved=False)
    assert (kitchen.state(id_), kitchen.ran) == ("REJECTED", [])


@pytest.mark.parametrize("text", ["", "how is it going?"])
def test_message_waits_for_the_outcome_of_what_the_service_runs(
    sayso_served: Served, text: str
) -> None:
    started, go = threading.Event(), threading.Event()

    @tool(requires_approval=True)
    def bake(what: str) -> str:
        """Bake."""
        started.set()
        go.wait(DEADLINE)
        return f"baked {what}"

    model = scripted([Call("1", "bake", {"what": "bread"})], "done")
    service = sayso_served(Agent(model=model, tools=[bake]))
    conversation = service.conversation()
    conversation.say("go")
    (call,) = conversation.pending
    decide = service.host.calls.decide
    asyncio.run(decide(call["id"], Caller("inbox"), approved=True, run=False))
    assert started.wait(DEADLINE)
    with ThreadPoolExecutor(1) as pool:
        asked = pool.submit(conversation.say, text)
        with suppress(TimeoutError):
            asked.result(0.5)
            raise AssertionError("the message did not wait")
        go.set()
        reply = asked.result(DEADLINE)
    assert reply["content"] == "done"
    result, *words = model.asks[-1].turns[-1].blocks
    assert (result.output, result.is_error) == ("baked bread", False)  # type: ignore[union-attr]
    assert [one.text for one in words] == [text] * bool(text)  # type: ignore[union-attr]


@pytest.mark.parametrize("attempt", range(6))
def test_service_and_caller_run_it_once_together(sayso_served: Served, attempt: int) -> None:
    kitchen = Kitchen(sayso_served)
    conversation, id_ = kitchen.propose()
    barrier = threading.Barrier(2)

    def approve() -> Any:
        barrier.wait()
        return conversation.approve()

    def decide() -> None:
        barrier.wait()
        kitchen.decide(id_)

    with ThreadPoolExecutor(2) as pool:
        reply, decided = pool.submit(approve), pool.submit(decide)
        decided.result(DEADLINE)
        outcome = reply.result(DEADLINE)["data"]["executed_tool_calls"][0]["output"]
    assert (outcome, kitchen.ran) == ("baked bread", ["bread"])


@pytest.fixture(params=["sqlite", "postgresql"])
def ledger(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[str]:
    if request.param == "sqlite":
        yield f"sqlite:///{tmp_path}/calls.db"
        return
    with empty_schema() as url:
        yield url


def test_decision_on_the_command_line_wakes_the_service(
    sayso_served: Served, ledger: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    config = f'[approvals]\nledger = "{ledger}"\n'
    file = tmp_path / "command.toml"
    file.write_text(config, "utf-8")
    kitchen = Kitchen(sayso_served, config)
    _, id_ = kitchen.propose()
    started = time.monotonic()
    assert run(["approvals", "approve", id_, "--config", str(file)]) == 0
    assert "the service starts it" in capsys.readouterr().out
    until(lambda: kitchen.state(id_) == "DONE")
    assert time.monotonic() - started < 30
    assert kitchen.ran == ["bread"]


ENDS = {
    "claimed:written": ("DONE", 1),
    "claimed:committed": ("INDETERMINATE", 0),
    "tool:before": ("INDETERMINATE", 0),
    "tool:after": ("INDETERMINATE", 1),
    "done:written": ("INDETERMINATE", 1),
    "done:committed": ("DONE", 1),
}
"""The end of a call whose service is killed at this point, and the number of its runs."""


@pytest.mark.parametrize("point", ["", *ENDS])
def test_service_that_dies_at_any_step_runs_it_once_or_not_at_all(
    nursery: Nursery, tmp_path: Path, point: str
) -> None:
    folder = tmp_path / "service"
    given = {"TOOL": json.dumps({"unattended": True}), "PLAN": '[["a"]]'}
    dying = {"DIE": point, "DIE_ONCE": "1"} if point else {}
    process = nursery.start(folder, CONFIG, **given, **dying)
    first = process.client.ask(user("wipe it"))
    reply = first.json()
    (call,) = reply["data"]["tool_calls"]
    if not point:
        # No service is running when the call is approved.
        process.kill()
    assert run(["approvals", "approve", call["id"], "--config", str(folder / "sayso.toml")]) == 0
    process.wait()
    process = nursery.start(folder, CONFIG, **given)
    state, runs = ENDS.get(point, ("DONE", 1))
    if state == "DONE":
        until(lambda: len(lines(folder, "runs")) == runs)
    data = {"tool_calls": [{**call, "execute": True}]}
    answer = process.client.ask(user("wipe it"), said(reply), user("", data=data)).json()
    (outcome,) = answer["data"]["executed_tool_calls"]
    known = "wiped a" if state == "DONE" else "Outcome unknown:"
    assert outcome["output"].startswith(known)
    assert lines(folder, "runs") == ["a"] * runs


class Shop:
    """A service whose agent suggests commands, in folders of `workdir`."""

    def __init__(
        self, served: Served, workdir: Path, *commands: str, config: str = "", **shell: Any
    ) -> None:
        suggested = {"commands": [{"command": command} for command in commands]}
        model = scripted([Call("1", "suggest_commands", suggested)], "done")
        agent = Agent(name="shop", model=model, commands=LocalShell(workdir, **shell))
        self.service: Service = served(agent, config=config)

    def propose(self) -> list[str]:
        conversation = self.service.conversation()
        reply = conversation.say("go")
        return [one["id"] for one in reply["data"]["cmds"]]

    def decide(self, id: str) -> None:
        """Approve elsewhere, by the id alone."""
        calls = self.service.host.calls
        asyncio.run(calls.decide(id, Caller("inbox"), approved=True, kind="command", run=False))

    def row(self, id: str) -> Any:
        return asyncio.run(self.service.host.record.settle([id]))[id]


def test_commands_approved_by_their_ids_run_one_after_another(
    sayso_served: Served, tmp_path: Path
) -> None:
    shop = Shop(sayso_served, tmp_path / "work", "sleep 0.5; echo one > a", "cat a", "cat a; ls")
    first, second, third = shop.propose()
    shop.decide(third)
    until(lambda: shop.row(third).state == "DONE")
    assert "No such file" in shop.row(third).output, "the undecided ones keep nothing back"
    shop.decide(first)
    shop.decide(second)
    until(lambda: shop.row(second).state == "DONE")
    assert shop.row(second).output.strip() == "one"


def test_command_whose_environment_reads_the_request_waits_for_its_caller(
    sayso_served: Served, tmp_path: Path
) -> None:
    shop = Shop(sayso_served, tmp_path / "work", "true", env=lambda context: {})
    (id_,) = shop.propose()
    assert shop.row(id_).unattended is False


def test_command_of_another_folder_is_refused_once_and_left_for_its_machine(
    sayso_served: Served, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(elsewhere, "PAUSE", 0.1)
    config = f'[approvals]\nledger = "sqlite:///{tmp_path}/calls.db"\n'
    first = Served()
    shop = Shop(first, tmp_path / "one", "echo here", config=config)
    (id_,) = shop.propose()
    first.close()
    other = Shop(sayso_served, tmp_path / "two", config=config)
    other.decide(id_)

    def refusals() -> list[Any]:
        page = asyncio.run(other.service.host.record.log(None, 1_000))
        return [e.row.entry for e in page.events if e.row.entry["event"] == "not_started"]

    until(refusals)
    time.sleep(1.0)
    assert [one["why"] for one in refusals()] == ["approval_tool_changed"]
    assert other.row(id_).state == "APPROVED"
    home = Shop(sayso_served, tmp_path / "one", config=config)
    until(lambda: home.row(id_).state == "DONE")
    assert home.row(id_).output.strip() == "here"
