"""A single call decided while another request has claimed it (section 6)."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path
from time import monotonic
from types import SimpleNamespace
from typing import Annotated, Any

import pytest
from agents import Counted, scripted
from pydantic import AfterValidator
from stages import approve, run

from sayso import Caller, Config, PlatformContext, RequestContext, ServiceHost, Session, tool
from sayso.errors import InvalidRequest, LedgerUnavailable, StillRunning, ToolInputError
from sayso.ledger import Owner, writes
from sayso.ledger.choices import Conversation, Requester
from sayso.ledger.claims import Grant
from sayso.ledger.owners import boot_id
from sayso.wire.events import AgentEvent, ToolCallApproved
from sayso.workers import Workers

SOMEBODY = Caller("test")


@asynccontextmanager
async def hosting(
    folder: Path, tools: Any, rules: Sequence[Any] = (), **fields: Any
) -> AsyncIterator[ServiceHost]:
    sections: dict[str, Any] = {
        "plugins": [],
        "server": {"state_dir": folder},
        "approvals": {"ledger": f"sqlite:///{folder / 'approvals.db'}", "rules": rules},
    }
    agent, _ = scripted([], tools.tools, **fields)
    host = ServiceHost.create(agent, Config.model_validate(sections))
    async with host.life():
        yield host


async def claimed_elsewhere(host: ServiceHost) -> Grant:
    """The grant that another request holds for a call that was proposed and approved."""
    row = await host.calls.propose("delete", {"name": "a"}, SOMEBODY)
    who = Requester(SOMEBODY.principal, protocol="test")
    found = await host.ledger.decide([approve(row)], [], who, Conversation())
    (grant,) = found.grants
    return grant


def received(host: ServiceHost, monkeypatch: pytest.MonkeyPatch) -> asyncio.Event:
    """Set when a request begins to wait for the outcome of a call."""
    loop, started, outcomes = asyncio.get_running_loop(), asyncio.Event(), host.ledger.outcomes

    async def waiting(*arguments: Any) -> Any:
        loop.call_soon_threadsafe(started.set)
        return await outcomes(*arguments)

    monkeypatch.setattr(host.ledger, "outcomes", waiting)
    return started


@pytest.mark.parametrize("gated", [True, False])
def test_slow_validator_holds_up_no_loop(tmp_path: Path, gated: bool) -> None:
    started, go_on = threading.Event(), threading.Event()

    def checked(name: str) -> str:
        started.set()
        assert go_on.wait(30), "the loop did not go on"
        return name

    @tool(requires_approval=gated)
    def wipe(name: Annotated[str, AfterValidator(checked)]) -> str:
        """Wipe a thing."""
        return f"wiped {name}"

    async def meanwhile() -> None:
        await asyncio.to_thread(started.wait, 30)
        go_on.set()

    async def work() -> None:
        async with hosting(tmp_path, SimpleNamespace(tools=[wipe])) as host:
            call = host.calls.propose if gated else host.calls.run
            more = {} if gated else {"session": Session()}
            asked = call("wipe", {"name": "a"}, SOMEBODY, **more)
            ended, _ = await asyncio.gather(asked, meanwhile())
            assert gated or ended.output == "wiped a"

    run(work())


def test_who_waits_for_a_claim_that_is_given_back_runs_the_call(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def work() -> None:
        tools = Counted()
        async with hosting(tmp_path, tools) as host:
            grant = await claimed_elsewhere(host)
            started = received(host, monkeypatch)
            deciding = asyncio.ensure_future(
                host.calls.decide(grant.proposal.id, SOMEBODY, approved=True)
            )
            await started.wait()
            assert tools.names == []
            await host.ledger.give_back([grant])
            ended = await deciding
        assert (ended.state, ended.output) == ("DONE", "deleted a")
        assert tools.names == ["a"]

    run(work())


@pytest.mark.parametrize("idempotent", [True, False])
def test_who_waits_for_a_claim_whose_process_died_runs_the_call_only_if_it_is_idempotent(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, idempotent: bool
) -> None:
    async def work() -> None:
        tools = Counted(idempotent=idempotent)
        async with hosting(tmp_path, tools) as host:
            grant = await claimed_elsewhere(host)
            started = received(host, monkeypatch)
            row = grant.proposal
            deciding = asyncio.ensure_future(host.calls.decide(row.id, SOMEBODY, approved=True))
            await started.wait()
            gone = Owner("0" * 32, boot_id(), row.fence, 0.0)
            await host.ledger.store.run(lambda tx: tx.put(replace(row, owner=gone)))
            ended = await deciding
        assert ended.state == ("DONE" if idempotent else "INDETERMINATE")
        assert tools.names == ["a"] * idempotent

    run(work())


def test_who_waits_for_a_call_of_its_own_process_that_times_out_is_told_so(
    tmp_path: Path,
) -> None:
    began, go_on, runs = threading.Event(), threading.Event(), list[str]()

    @tool(requires_approval=True, idempotent=True, timeout=0.5)
    def delete(name: str) -> str:
        """Delete a thing, slowly."""
        runs.append(name)
        began.set()
        assert go_on.wait(30)
        return name

    async def work() -> None:
        async with hosting(tmp_path, SimpleNamespace(tools=[delete])) as host:
            row = await host.calls.propose("delete", {"name": "a"}, SOMEBODY)
            decide = partial(host.calls.decide, row.id, SOMEBODY, approved=True)
            one = asyncio.ensure_future(decide())
            await asyncio.to_thread(began.wait, 30)
            ended = await asyncio.gather(one, decide())
            go_on.set()
        assert [end.state for end in ended] == ["INDETERMINATE", "INDETERMINATE"]
        assert runs == ["a"]

    run(work())


def test_who_only_records_an_approval_does_not_run_what_is_given_back(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def work() -> None:
        tools = Counted()
        async with hosting(tmp_path, tools) as host:
            grant = await claimed_elsewhere(host)
            started = received(host, monkeypatch)
            id_ = grant.proposal.id
            deciding = asyncio.ensure_future(
                host.calls.decide(id_, SOMEBODY, approved=True, run=False)
            )
            await started.wait()
            await host.ledger.give_back([grant])
            assert (await deciding).state == "APPROVED"
        assert tools.names == []

    run(work())


def test_who_waits_for_an_outcome_that_the_store_does_not_take_is_told_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(writes, "_PATIENCE", 0.0)
    full = threading.Event()

    @tool(requires_approval=True)
    def wipe(name: str) -> str:
        """Wipe a thing."""
        full.set()
        return f"wiped {name}"

    async def work() -> None:
        async with hosting(tmp_path, SimpleNamespace(tools=[wipe])) as host:
            row = await host.calls.propose("wipe", {"name": "a"}, SOMEBODY)
            taken = host.ledger.store.run

            async def refusing(work: Any) -> Any:
                if full.is_set():
                    raise LedgerUnavailable
                return await taken(work)

            monkeypatch.setattr(host.ledger.store, "run", refusing)
            with pytest.raises(LedgerUnavailable, match="the outcome of what has run"):
                await host.calls.decide(row.id, SOMEBODY, approved=True)
            full.clear()
            ended = row
            while ended.state in ("PENDING", "EXECUTING"):
                await asyncio.sleep(0.01)
                ended = await host.calls.look(row.id, SOMEBODY) or row
        assert (ended.state, ended.output) == ("DONE", "wiped a")

    run(work())


def test_a_call_whose_caller_has_gone_has_the_whole_drain_to_end(tmp_path: Path) -> None:
    started, go_on = threading.Event(), threading.Event()

    @tool(requires_approval=True)
    def wipe(name: str) -> str:
        """Wipe a thing."""
        started.set()
        go_on.wait(120)
        return f"wiped {name}"

    async def work() -> None:
        async with hosting(tmp_path, SimpleNamespace(tools=[wipe])) as host:
            row = await host.calls.propose("wipe", {"name": "a"}, SOMEBODY)
            deciding = asyncio.ensure_future(host.calls.decide(row.id, SOMEBODY, approved=True))
            await asyncio.to_thread(started.wait, 120)
            deciding.cancel()
            draining = asyncio.ensure_future(host.drain(120))
            await asyncio.wait({draining}, timeout=0.5)
            assert not draining.done()
            go_on.set()
            await draining
            ended = await host.calls.look(row.id, SOMEBODY)
        assert ended is not None
        assert (ended.state, ended.output) == ("DONE", "wiped a")

    run(work())


def test_all_that_waits_for_a_call_after_the_drain_shares_one_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    waits: list[float] = []
    passed = 0.0

    async def finish(self: ServiceHost, seconds: float) -> None:
        waits.append(seconds)

    async def close(self: Workers, seconds: float) -> None:
        waits.append(seconds)
        await closed(self, seconds)

    closed = Workers.close
    monkeypatch.setattr(ServiceHost, "_finish_background", finish)
    monkeypatch.setattr(Workers, "close", close)
    monkeypatch.setattr("sayso.host.monotonic", lambda: monotonic() + passed)

    async def work() -> None:
        nonlocal passed
        async with hosting(tmp_path, Counted()) as host:
            await host.drain(0.0)
            assert 0.0 < host.time_to_record() <= 5.0
            # The time of a plugin's shutdown that waits for the call.
            passed = 60.0

    run(work())
    assert waits == [0.0, 1.0, 1.0]


def test_a_call_that_needs_no_approval_has_the_whole_drain_to_end(tmp_path: Path) -> None:
    started, go_on = threading.Event(), threading.Event()

    @tool
    def look(name: str) -> str:
        """Look at a thing."""
        started.set()
        go_on.wait(120)
        return f"saw {name}"

    async def work() -> None:
        async with hosting(tmp_path, SimpleNamespace(tools=[look])) as host:
            call = host.calls.run("look", {"name": "a"}, SOMEBODY, session=Session())
            running = asyncio.ensure_future(call)
            await asyncio.to_thread(started.wait, 120)
            draining = asyncio.ensure_future(host.drain(120))
            await asyncio.wait({draining}, timeout=0.5)
            assert not draining.done()
            go_on.set()
            await draining
            assert (await running).output == "saw a"

    run(work())


def test_who_waits_for_a_claim_to_the_limit_is_told_so(tmp_path: Path) -> None:
    async def work() -> None:
        tools = Counted()
        async with hosting(tmp_path, tools) as host:
            grant = await claimed_elsewhere(host)
            with pytest.raises(StillRunning):
                await host.calls.decide(grant.proposal.id, SOMEBODY, approved=True, wait=0.2)
            await host.ledger.give_back([grant])
        assert tools.names == []

    run(work())


def test_a_call_that_was_claimed_runs_although_its_caller_leaves_while_the_handlers_hear(
    tmp_path: Path,
) -> None:
    async def work() -> None:
        tools = Counted()
        loop, reported, goes_on = asyncio.get_running_loop(), asyncio.Event(), threading.Event()

        def handler(event: AgentEvent) -> None:
            if isinstance(event, ToolCallApproved):
                loop.call_soon_threadsafe(reported.set)
                assert goes_on.wait(60)

        async with hosting(tmp_path, tools, on_event=handler) as host:
            row = await host.calls.propose("delete", {"name": "a"}, SOMEBODY)
            deciding = asyncio.ensure_future(host.calls.decide(row.id, SOMEBODY, approved=True))
            await reported.wait()
            deciding.cancel()
            with pytest.raises(asyncio.CancelledError):
                await deciding
            goes_on.set()
            # The same decision again waits for the first one's run.
            ended = await host.calls.decide(row.id, SOMEBODY, approved=True, wait=30)
        assert (ended.state, ended.output) == ("DONE", "deleted a")
        assert tools.names == ["a"]

    run(work())


def test_input_of_a_call_proposed_elsewhere_is_changed_where_its_tool_says_so(
    tmp_path: Path,
) -> None:
    ran: list[Any] = []

    @tool(requires_approval=True, editable=["hours"])
    def book(hours: int, pet: str) -> str:
        """Book a walk."""
        ran.append((hours, pet))
        return "booked"

    async def work() -> None:
        async with hosting(tmp_path, SimpleNamespace(tools=[book])) as host:
            decide, asked = host.calls.decide, {"hours": 1, "pet": "Rex"}
            row = await host.calls.propose("book", asked, SOMEBODY)
            wrong: list[dict[str, Any]] = [
                {"edited": {"hours": 2, "pet": "Ben"}},
                {"edited": {"hours": "soon", "pet": "Rex"}},
                {"edited": {"hours": 2}},
                {"input": {"hours": 2, "pet": "Rex"}},
            ]
            for given in wrong:
                with pytest.raises(InvalidRequest) as caught:
                    await decide(row.id, SOMEBODY, approved=True, **given)
                assert caught.value.items[0]["type"] == "approval_changed"
            edited = {"hours": 2, "pet": "Rex"}
            ended = await decide(row.id, SOMEBODY, approved=True, edited=edited, run=False)
            assert (ended.state, ended.edited, ran) == ("APPROVED", edited, [])
            # An approver who still sees the proposed input has not approved the changed one.
            with pytest.raises(InvalidRequest) as caught:
                await decide(row.id, SOMEBODY, approved=True, input=asked)
            assert (caught.value.items[0]["type"], ran) == ("approval_changed", [])
            ended = await decide(row.id, SOMEBODY, approved=True, input=edited)
            assert (ended.state, ended.input, ended.edited) == ("DONE", asked, edited)
            row = await host.calls.propose("book", asked, SOMEBODY)
            ended = await decide(row.id, SOMEBODY, approved=False, edited=edited)
            assert (ended.state, ended.edited) == ("REJECTED", None)
        assert ran == [(2, "Rex")]

    run(work())


def test_call_that_a_rule_forbids_is_not_proposed(tmp_path: Path) -> None:
    async def work() -> None:
        tools = Counted()
        rule = {"tool": "delete", "arguments": {"name": "prod*"}, "action": "deny"}
        async with hosting(tmp_path, tools, rules=[rule]) as host:
            with pytest.raises(ToolInputError, match="a rule of this service forbids"):
                await host.calls.propose("delete", {"name": "prod-1"}, SOMEBODY)
            assert (await host.calls.pending(SOMEBODY)).calls == []
            await host.calls.propose("delete", {"name": "test"}, SOMEBODY)
            assert len((await host.calls.pending(SOMEBODY)).calls) == 1

    run(work())


def test_caller_finds_just_its_own_single_calls_that_have_not_run(tmp_path: Path) -> None:
    async def work() -> None:
        tools = Counted()
        async with hosting(tmp_path, tools) as host:
            propose, decide = host.calls.propose, host.calls.decide
            rows = [await propose("delete", {"name": name}, SOMEBODY) for name in "abcd"]
            for other in (Caller("test", "ann"), Caller("test", client="x"), Caller("mcp")):
                await propose("delete", {"name": "a"}, other)
            await decide(rows[0].id, SOMEBODY, approved=True, run=False)
            await decide(rows[1].id, SOMEBODY, approved=True)
            await decide(rows[2].id, SOMEBODY, approved=False)
            found = await host.calls.proposed(SOMEBODY)
        assert [(row.id, row.state) for row in found] == [
            (rows[3].id, "PENDING"),
            (rows[0].id, "APPROVED"),
        ]

    run(work())


def test_the_reason_of_a_single_decision_is_recorded_without_a_secret_of_the_platform(
    tmp_path: Path,
) -> None:
    async def work() -> None:
        async with hosting(tmp_path, Counted()) as host:
            row = await host.calls.propose("delete", {"name": "a"}, SOMEBODY)
            platform = PlatformContext.model_validate({"platform_token": "tell-nobody"})
            more: Any = {"reason": "not with tell-nobody", "platform": platform}
            await host.calls.decide(row.id, SOMEBODY, approved=False, **more)
            found = await host.calls.look(row.id, SOMEBODY)
        assert found is not None and found.decision is not None
        assert found.decision.reason == "not with [secret]"

    run(work())


@pytest.mark.parametrize("gated", [False, True])
def test_status_lines_of_a_single_call_hold_no_secret_of_the_platform(
    tmp_path: Path, gated: bool
) -> None:
    @tool(requires_approval=gated)
    def log_in(context: RequestContext) -> str:
        """Log in."""
        secret = context.platform.platform_token
        context.update(f"with {secret and secret.get_secret_value()}", {"token": "tell-nobody"})
        return "done"

    async def work() -> None:
        async with hosting(tmp_path, SimpleNamespace(tools=[log_in])) as host:
            said: list[Any] = []
            more: Any = {
                "platform": PlatformContext.model_validate({"platform_token": "tell-nobody"}),
                "session": Session(),
                "update": said.append,
            }
            if gated:
                row = await host.calls.propose("log_in", {}, SOMEBODY, platform=more["platform"])
                await host.calls.decide(row.id, SOMEBODY, approved=True, **more)
            else:
                await host.calls.run("log_in", {}, SOMEBODY, **more)
        assert [(e.text, e.content) for e in said] == [("with [secret]", {"token": "[secret]"})]

    run(work())


@pytest.mark.parametrize("edited", [{"name": "b"}, {"name": "a"}])
def test_an_edit_of_another_call_than_the_decider_was_shown_is_refused(
    tmp_path: Path, edited: dict[str, str]
) -> None:
    ran: list[str] = []

    @tool(requires_approval=True, editable=True)
    def wipe(name: str) -> str:
        """Wipe a thing."""
        ran.append(name)
        return f"wiped {name}"

    async def work() -> None:
        async with hosting(tmp_path, SimpleNamespace(tools=[wipe])) as host:
            row = await host.calls.propose("wipe", {"name": "a"}, SOMEBODY)
            decide = partial(host.calls.decide, row.id, SOMEBODY, approved=True, edited=edited)
            with pytest.raises(InvalidRequest) as refused:
                await decide(input={"name": "c"})
            assert refused.value.items[0]["type"] == "approval_changed"
            assert ran == []
            for _ in range(2):
                row = await decide(input={"name": "a"})
                assert row.output == f"wiped {edited['name']}"
        assert ran == [edited["name"]]

    run(work())


def test_a_single_call_is_recorded_with_texts_that_can_be_sent(tmp_path: Path) -> None:
    @tool(requires_approval=True, description="Delete bad\udcff.")
    def wipe(name: str) -> str:
        return name

    async def work() -> None:
        async with hosting(tmp_path, SimpleNamespace(tools=[wipe])) as host:
            await host.calls.propose("wipe", {"name": "a"}, SOMEBODY, intent="as \udcff wants")
            (row,) = (await host.calls.pending(SOMEBODY)).calls
        assert (row.description, row.intent) == ("Delete bad?.", "as ? wants")

    run(work())
