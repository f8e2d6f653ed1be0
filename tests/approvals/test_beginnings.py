"""A call has either begun or not (design, section 6, "Beginning")."""

from __future__ import annotations

import asyncio
import json
import secrets
import signal
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from agents import scripted, suggest
from processes import CONFIG, Nursery, Process, lines, lost
from serving import Json, Serve, Service, approved, said, until, user
from stages import run

from sayso import Caller, Config, LocalShell, RequestContext, ServiceHost, Session, Tool, tool
from sayso.ledger import Proposal
from sayso.ledger.claims import Claim, Grant
from sayso.ledger.rules import Rules
from sayso.models import Call, Result
from sayso.wire.messages import AgentMessage

SOMEBODY = Caller("test")


def deciding(reply: Json) -> list[Json]:
    data = reply["data"]
    calls = {name: [approved(c) for c in data[name]] for name in ("tool_calls", "cmds")}
    return [user("wipe"), said(reply), user("", data=calls)]


def outputs(reply: Json) -> dict[str, str]:
    return {done["input"]["name"]: done["output"] for done in reply["data"]["executed_tool_calls"]}


def rows(service: Service) -> dict[str, Proposal]:
    """The calls in the store, by the name in their input."""
    ledger = service.app.host.ledger

    def work(tx: Any) -> list[Proposal]:
        states = ("PENDING", "APPROVED", "EXECUTING", "DONE", "FAILED", "INDETERMINATE")
        return [row for state in states for row in tx.find(state=state)]

    found = asyncio.run(ledger.store.run(work))
    return {row.input.get("name") or row.input["command"]: row for row in found}


# One thread for all plain tools, in this process.


class OneThread:
    """A service whose only thread is held until `free` is set."""

    def __init__(self, served: Serve, timeout: float | None = None, **settings: Any) -> None:
        self.runs: list[str] = []
        self.free = threading.Event()

        @tool(requires_approval=True, timeout=timeout)
        def delete(name: str) -> str:
            """Delete a thing."""
            self.runs.append(name)
            return f"deleted {name}"

        calls = [Call("c1", "delete", {"name": "a"})]
        agent, _ = scripted([calls, *["it is done"] * 5], [delete])
        settings = {"server__threads": 1, "approvals__ledger": "sqlite:///a.db", **settings}
        self.service = served(agent, **settings)

    def hold(self) -> None:
        held = threading.Event()

        def work() -> None:
            held.set()
            assert self.free.wait(120)

        self.service.app.host.workers.threads.submit(work)
        assert held.wait(60)


@pytest.fixture
def pool() -> Iterator[ThreadPoolExecutor]:
    with ThreadPoolExecutor(4) as made:
        yield made


def _reply(service: Service, messages: list[Json], path: str) -> Json:
    answer = service.ask(*messages, path=path)
    assert answer.status == 200, answer.raw
    reply: Json = answer.json()
    return reply


@pytest.mark.parametrize("path", ["v1", "v2"])
def test_a_call_that_found_no_thread_has_not_begun_and_its_approval_starts_it_later(
    served: Serve, path: str
) -> None:
    one = OneThread(served, timeout=0.2, limits__turn_time=4)
    messages = deciding(one.service.chat(user("wipe"), path=path))
    one.hold()
    try:
        reply = _reply(one.service, messages, path)
        assert "delete was approved and has not begun: no thread was free" in reply["content"]
        (again,) = reply["data"]["tool_calls"]
        assert (again["name"], again["execute"]) == ("delete", False)
        assert reply["data"]["executed_tool_calls"] == []
        assert rows(one.service)["a"].state == "APPROVED"
    finally:
        one.free.set()
    assert outputs(_reply(one.service, messages, path)) == {"a": "deleted a"}
    assert one.runs == ["a"]


def test_the_time_of_a_call_begins_where_it_begins(served: Serve, pool: ThreadPoolExecutor) -> None:
    one = OneThread(served, timeout=0.2)
    messages = deciding(one.service.chat(user("wipe")))
    one.hold()
    started = time.monotonic()
    asking = pool.submit(one.service.chat, *messages)
    until(lambda: rows(one.service)["a"].state == "APPROVED", "the decision")
    until(lambda: time.monotonic() > started + 1, "more than the time of the call")
    one.free.set()
    assert outputs(asking.result(60)) == {"a": "deleted a"}


def test_a_single_call_that_found_no_thread_stays_approved(
    tmp_path: Path, pool: ThreadPoolExecutor
) -> None:
    held, free = threading.Event(), threading.Event()
    runs: list[str] = []

    @tool(requires_approval=True, timeout=0.2)
    def delete(name: str) -> str:
        """Delete a thing."""
        runs.append(name)
        return f"deleted {name}"

    def hold() -> None:
        held.set()
        assert free.wait(120)

    async def work() -> None:
        sections: dict[str, Any] = {
            "plugins": [],
            "server": {"state_dir": tmp_path, "threads": 1},
            "approvals": {"ledger": f"sqlite:///{tmp_path / 'approvals.db'}"},
        }
        agent, _ = scripted([], [delete])
        host = ServiceHost.create(agent, Config.model_validate(sections))
        async with host.life():
            row = await host.calls.propose("delete", {"name": "a"}, SOMEBODY)
            host.workers.threads.submit(hold)
            await asyncio.to_thread(held.wait, 60)
            try:
                stands = await host.calls.decide(row.id, SOMEBODY, approved=True, wait=2.5)
            finally:
                free.set()
            assert (stands.state, runs) == ("APPROVED", [])
            ended = await host.calls.decide(row.id, SOMEBODY, approved=True)
            assert (ended.state, ended.output, runs) == ("DONE", "deleted a", ["a"])

    run(work())


@pytest.mark.parametrize("generates", [False, True])
def test_a_callable_that_found_no_thread_carries_out_what_was_approved_later(
    served: Serve, generates: bool
) -> None:
    runs: list[str] = []
    free, held = threading.Event(), threading.Event()

    def answer(messages: list[Any], context: RequestContext) -> Any:
        if not context.decisions:
            call = {"id": "own", "name": "wipe", "input": {"name": "a"}, "execute": False}
            return {"content": "may I?", "data": {"tool_calls": [call]}}
        runs.extend(f"{d.name} {d.fence}" for d in context.decisions)
        return {"content": "carried out"}

    def generate(messages: list[Any], context: RequestContext) -> Any:
        yield AgentMessage.model_validate(answer(messages, context))

    def hold() -> None:
        held.set()
        assert free.wait(120)

    settings = {"server__threads": 1, "limits__turn_time": 3}
    service = served(generate if generates else answer, **settings)
    messages = deciding(service.chat(user("wipe")))
    service.app.host.workers.threads.submit(hold)
    assert held.wait(60)
    try:
        refused = service.ask(*messages)
        assert (refused.status, refused.json()["code"]) == (503, "BUSY")
        assert "has not begun" in refused.json()["detail"]
        assert rows(service)["a"].state == "APPROVED"
    finally:
        free.set()
    assert service.chat(*messages)["content"] == "carried out"
    assert runs == ["wipe 1"]


def test_commands_of_one_message_are_claimed_one_after_another(
    served: Serve, tmp_path: Path, pool: ThreadPoolExecutor
) -> None:
    go = tmp_path / "go"
    first = f"while [ ! -e {go} ]; do sleep 0.02; done; echo one"
    said_so = [
        Call("c1", "suggest_commands", {"commands": [{"command": first}, {"command": "ls"}]})
    ]
    agent, _ = scripted([said_so, "done"], [], commands=LocalShell(tmp_path))
    service = served(agent)
    messages = deciding(service.chat(user("run them")))
    asking = pool.submit(service.chat, *messages)
    try:
        until(lambda: rows(service)[first].state == "EXECUTING", "the first command")
        assert rows(service)["ls"].state == "APPROVED"
    finally:
        go.touch()
    assert len(asking.result(60)["data"]["executed_cmds"]) == 2


# Two services on one store; the first one is stopped or dies.


@pytest.fixture(params=["sqlite", "postgresql"])
def ledger(request: pytest.FixtureRequest) -> str:
    if request.param == "sqlite":
        return "sqlite:///approvals.db"
    url: str = request.getfixturevalue("postgres_url")
    return url


def pair(
    nursery: Nursery, folder: Path, ledger: str, lease: str, threads: int = 1, **environ: str
) -> tuple[Process, Process]:
    """Two services with one thread for tools each; only the first has `environ`."""
    config = CONFIG.replace("sqlite:///approvals.db", ledger) + f'lease = "{lease}"\n'
    config = config.replace("port = 0\n", f"port = 0\nthreads = {threads}\n")
    plan = {"PLAN": environ.pop("PLAN", '[["a"]]')}
    if "CALLABLE" in environ:
        plan["CALLABLE"] = environ.pop("CALLABLE")
    one = nursery.start(folder, config, **plan, **environ)
    return one, nursery.start(folder, config, **plan)


def test_calls_that_wait_while_their_process_stands_still_run_elsewhere_once(
    nursery: Nursery, tmp_path: Path, ledger: str, pool: ThreadPoolExecutor
) -> None:
    plan = json.dumps([["a", "b", "c", "d", "e"]])
    one, two = pair(nursery, tmp_path, ledger, "1s", HOLD="tool", PLAN=plan)
    messages = deciding(one.client.chat(user("wipe")))
    first = pool.submit(one.client.ask, *messages)
    until(lambda: lines(tmp_path, "held"), "the first run")
    one.signal(signal.SIGSTOP)
    reported = outputs(two.client.chat(*messages))
    (tmp_path / "go").touch()
    one.signal(signal.SIGCONT)
    assert first.result(120).status == 200
    entered = lines(tmp_path, "held")[0]
    assert reported.pop(entered).startswith(
        "Outcome unknown: the process that ran it has given no sign"
    )
    assert reported == {name: f"wiped {name}" for name in "abcde" if name != entered}
    assert sorted(lines(tmp_path, "runs")) == ["a", "b", "c", "d", "e"]


def test_calls_that_wait_when_their_process_is_killed_run_elsewhere_once(
    nursery: Nursery, tmp_path: Path, pool: ThreadPoolExecutor
) -> None:
    plan = json.dumps([["a", "b", "c"]])
    store = "sqlite:///approvals.db"
    one, two = pair(nursery, tmp_path, store, "10m", HOLD="tool", PLAN=plan)
    messages = deciding(one.client.chat(user("wipe")))
    first = pool.submit(lost, one.client, *messages)
    until(lambda: lines(tmp_path, "held"), "the first run")
    one.kill()
    assert first.result(120) is None
    reported = outputs(two.client.chat(*messages))
    entered = lines(tmp_path, "held")[0]
    assert reported.pop(entered).startswith("Outcome unknown: the process that ran it has ended")
    assert reported == {name: f"wiped {name}" for name in "abc" if name != entered}
    assert sorted(lines(tmp_path, "runs")) == ["a", "b", "c"]


@pytest.mark.parametrize("kind", ["plain", "async", "callable"])
def test_a_call_that_was_reported_unknown_before_it_began_never_runs(
    nursery: Nursery, tmp_path: Path, ledger: str, pool: ThreadPoolExecutor, kind: str
) -> None:
    more = {"plain": {}, "async": {"ASYNC": "1"}, "callable": {"CALLABLE": "1"}}[kind]
    one, two = pair(nursery, tmp_path, ledger, "1s", 8, DIE="claimed:committed", FREEZE="1", **more)
    messages = deciding(one.client.chat(user("wipe")))
    asking = pool.submit(one.client.ask, *messages)
    until(lambda: stopped(one), "the freeze between the claim and the call")
    data = two.client.chat(*messages)["data"]
    (done,) = data["executed_tool_calls"]
    assert done["output"].startswith("Outcome unknown: the process that ran it has given no sign")
    one.signal(signal.SIGCONT)
    asking.result(120)
    (done,) = two.client.chat(*messages)["data"]["executed_tool_calls"]
    assert done["output"].startswith("Error: not run: it had not begun")
    assert one.client.chat(*messages)["data"]["executed_tool_calls"][0]["output"] == done["output"]
    assert lines(tmp_path, "runs") == []


def test_a_call_whose_process_stood_still_unnoticed_before_it_began_runs_once(
    nursery: Nursery, tmp_path: Path, ledger: str, pool: ThreadPoolExecutor
) -> None:
    one, two = pair(nursery, tmp_path, ledger, "1s", DIE="claimed:committed", FREEZE="1")
    # Any other service that looks for the dead within the freeze would notice.
    two.close()
    messages = deciding(one.client.chat(user("wipe")))
    asking = pool.submit(one.client.chat, *messages)
    until(lambda: stopped(one), "the freeze between the claim and the call")
    frozen = time.monotonic()
    until(lambda: time.monotonic() > frozen + 1.5, "the end of the lease")
    one.signal(signal.SIGCONT)
    assert outputs(asking.result(120)) == {"a": "wiped a"}
    assert lines(tmp_path, "runs") == ["a"]


def stopped(process: Process) -> bool:
    """Whether the process is stopped."""
    status = Path(f"/proc/{process.pid}/stat").read_text()
    return status.rpartition(")")[2].split()[0] == "T"


# A tool's information about its call.


@pytest.mark.parametrize("is_async", [False, True])
def test_a_tool_knows_its_call_and_its_claim(served: Serve, is_async: bool) -> None:
    known: list[tuple[str, int]] = []

    def note(context: RequestContext) -> str:
        known.append((context.call_id, context.fence))
        return "done"

    async def note_async(context: RequestContext) -> str:
        return note(context)

    used = note_async if is_async else note
    gated = Tool(used, name="gated", requires_approval=True, idempotent=True, timeout=60)
    plain = Tool(used, name="plain")
    script = [[Call("m1", "plain", {}), Call("m2", "gated", {})], "done"]
    agent, _ = scripted(script, [gated, plain])
    service = served(agent)
    reply = service.chat(user("go"))
    assert known == [("m1", 0)]
    calls = [approved(call) for call in reply["data"]["tool_calls"]]
    service.chat(user("go"), said(reply), user("", data={"tool_calls": calls}))
    assert known[1:] == [(calls[0]["id"], 1)]


def test_a_single_call_without_approval_has_a_random_id(tmp_path: Path) -> None:
    known: list[tuple[str, int]] = []

    @tool
    def note(context: RequestContext) -> str:
        """Note the call."""
        known.append((context.call_id, context.fence))
        return "done"

    async def work() -> None:
        agent, _ = scripted([], [note])
        sections = {"plugins": [], "server": {"state_dir": tmp_path}}
        host = ServiceHost.create(agent, Config.model_validate(sections))
        async with host.life():
            for _ in range(2):
                await host.calls.run("note", {}, SOMEBODY, session=Session())

    run(work())
    assert len({id_ for id_, _ in known}) == 2
    assert all(id_ and fence == 0 for id_, fence in known)


# Calls that never end.


def test_a_tool_whose_calls_do_not_end_is_not_called_without_end_and_takes_no_place(
    served: Serve, caplog: pytest.LogCaptureFixture
) -> None:
    free = threading.Event()

    @tool(timeout=0.05)
    def hang() -> str:
        """Never end."""
        assert free.wait(120)
        return "at last"

    @tool
    def look() -> str:
        """Look."""
        return "seen"

    def answer(ask: Any) -> Any:
        last = ask.turns[-1].blocks[-1]
        if isinstance(last, Result):
            return last.output
        return [Call(f"c{n}", last.text, {}) for n in range(11 if last.text == "hang" else 1)]

    agent, _ = scripted(answer, [hang, look])
    service = served(agent, server__threads=2, server__ready=True)
    try:
        for _ in range(3):
            assert service.chat(user("hang"))["content"].startswith("Outcome unknown:")
        assert service.app.host.code.abandoned.total in range(32, 34)
        assert service.chat(user("hang"))["content"] == (
            "Error: not run: 32 earlier calls have not ended"
        )
        assert "tool hang: a call goes on that nobody waits for" in caplog.text
        assert service.chat(user("look"))["content"] == "seen"
        assert service.request("GET", "/ready").status == 200
        for _ in range(70):
            service.app.host.code.abandoned.change("others", True, 1)
        # An answer is repeated for half a second.
        until(lambda: service.request("GET", "/ready").status == 503, "the refusal of /ready")
        assert "abandoned calls" in service.request("GET", "/ready").raw.decode()
        for _ in range(70):
            service.app.host.code.abandoned.change("others", True, -1)
    finally:
        free.set()
    until(lambda: service.app.host.code.abandoned.total == 0, "the end of the calls")


def test_timeout_of_a_call_that_waits_for_a_thread_counts_from_its_beginning(
    served: Serve,
) -> None:
    began = threading.Event()

    @tool
    def first() -> str:
        """Hold the only thread for a while."""
        began.set()
        time.sleep(3.0)
        return "first"

    @tool(timeout=2.0)
    def second() -> str:
        """Take a part of the time that it has, which is over long after it was asked for."""
        assert began.is_set()
        time.sleep(1.2)
        return "second"

    calls = [Call("a", "first", {}), Call("b", "second", {})]
    agent, model = scripted([calls, "done"], [first, second])
    service = served(agent, server__threads=1)
    assert service.chat(user("go"))["content"] == "done"
    results = [block.output for block in model.asks[-1].turns[-1].blocks]
    assert results == ["first", "second"]


def test_an_end_does_not_wait_for_calls_that_were_abandoned(tmp_path: Path) -> None:
    free = threading.Event()

    @tool(timeout=0.05)
    def hang() -> str:
        """Never end."""
        assert free.wait(120)
        return "at last"

    async def work() -> float:
        agent, _ = scripted([], [hang])
        sections = {"plugins": [], "server": {"state_dir": tmp_path}}
        host = ServiceHost.create(agent, Config.model_validate(sections))
        async with host.life():
            outcome = await host.calls.run("hang", {}, SOMEBODY, session=Session())
            assert outcome.state == "INDETERMINATE"
            started = time.monotonic()
        return time.monotonic() - started

    try:
        assert run(work()) < 4
    finally:
        free.set()


def test_a_command_whose_claim_is_too_old_to_begin_stays_approved(
    served: Serve, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    agent, _ = scripted(
        [[suggest(f"echo ran >> {tmp_path}/ran")], *["done"] * 3], [], commands=LocalShell(tmp_path)
    )
    service = served(agent, limits__turn_time=2.0)
    reply = service.chat(user("go"))
    (command,) = reply["data"]["cmds"]
    messages = [user("go"), said(reply), user("", data={"cmds": [{**command, "execute": True}]})]
    granted: list[Grant] = []
    begin = Grant.begin

    def noted(grant: Grant) -> None:
        begin(grant)
        granted.append(grant)

    monkeypatch.setattr(Grant, "begin", noted)
    with monkeypatch.context() as late:
        late.setattr(Rules, "new_claim", lambda self: Claim(secrets.token_hex(8), 0.0))
        assert "approved and has not begun" in service.chat(*messages)["content"]
    assert not (tmp_path / "ran").exists()
    assert granted == []
    # It rests for some seconds after these refused starts.
    executed = until(lambda: service.chat(*messages)["data"]["executed_cmds"], "its start")
    assert len(executed) == 1 and (tmp_path / "ran").read_text() == "ran\n"
    # The right to run it is used up.
    (grant,) = granted
    with pytest.raises(RuntimeError, match="spent"):
        grant.spend()
