"""Owners of a call that are dead, paused, restarted or merely slow (section 6, "End unknown")."""

from __future__ import annotations

import asyncio
import json
import signal
import socket
import subprocess
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from agents import scripted
from processes import CONFIG, Nursery, Process, commanded, database, lines, lost, states
from serving import Json, Serve, Service, approved, said, until, user

from sayso import Call, tool
from sayso.ledger import Owner
from sayso.ledger.owners import boot_id
from sayso.ledger.sqlite import SqliteStore


def deciding(reply: Json) -> list[Json]:
    calls = [approved(call) for call in reply["data"]["tool_calls"]]
    return [user("wipe"), said(reply), user("", data={"tool_calls": calls})]


def pair(nursery: Nursery, folder: Path, lease: str, **environ: str) -> tuple[Process, Process]:
    """Two processes on one volume; only the first has `environ`."""
    config = CONFIG + f'lease = "{lease}"\n'
    return nursery.start(folder, config, **environ), nursery.start(folder, config)


def lease(folder: Path) -> float:
    """When the lease of the run ends according to the store."""
    with database(folder) as db:
        ((ends,),) = db.execute("SELECT lease FROM sayso_proposals WHERE state = 'EXECUTING'")
    return float(ends)


def state(folder: Path) -> str:
    (found,) = states(folder).values()
    return found


def test_a_killed_owner_is_dead_at_once(nursery: Nursery, tmp_path: Path) -> None:
    one, two = pair(nursery, tmp_path, "10m", HOLD="tool")
    messages = deciding(one.client.chat(user("wipe")))
    with ThreadPoolExecutor(2) as pool:
        first = pool.submit(lost, one.client, *messages)
        until(lambda: lines(tmp_path, "held"), "the run")
        second = pool.submit(two.client.chat, *messages)
        one.kill()
        assert first.result() is None
        reply = second.result()
    (done,) = reply["data"]["executed_tool_calls"]
    assert done["output"].startswith("Outcome unknown: the process that ran it has ended")
    assert lines(tmp_path, "runs") == ["a"]
    assert state(tmp_path) == "INDETERMINATE"
    reported = (
        f"call {done['id']} of wipe: the process that ran it has ended, its outcome is unknown"
    )
    assert two.said.count(reported) == 1


def test_a_living_owner_is_waited_for(nursery: Nursery, tmp_path: Path) -> None:
    one, two = pair(nursery, tmp_path, "5s", HOLD="tool")
    messages = deciding(one.client.chat(user("wipe")))
    with ThreadPoolExecutor(2) as pool:
        first = pool.submit(one.client.chat, *messages)
        until(lambda: lines(tmp_path, "held"), "the run")
        ends = lease(tmp_path)
        second = pool.submit(two.client.chat, *messages)
        until(lambda: time.time() > ends, "the end of the first lease")
        assert lease(tmp_path) > ends, "it is renewed"
        assert not second.done()
        (tmp_path / "go").touch()
        assert first.result() == second.result()
    assert lines(tmp_path, "runs") == ["a"]
    assert len(lines(tmp_path, "asks")) == 2


def test_the_late_end_of_a_paused_owner_is_recorded(nursery: Nursery, tmp_path: Path) -> None:
    one, two = pair(nursery, tmp_path, "600ms", HOLD="tool")
    messages = deciding(one.client.chat(user("wipe")))
    with ThreadPoolExecutor(1) as pool:
        first = pool.submit(one.client.ask, *messages)
        until(lambda: lines(tmp_path, "held"), "the run")
        one.signal(signal.SIGSTOP)
        (done,) = two.client.chat(*messages)["data"]["executed_tool_calls"]
        assert done["output"].startswith("Outcome unknown:")
        assert state(tmp_path) == "INDETERMINATE"
        (tmp_path / "go").touch()
        one.signal(signal.SIGCONT)
        assert first.result().status == 200
    assert state(tmp_path) == "DONE"
    (done,) = two.client.chat(*messages)["data"]["executed_tool_calls"]
    assert done["output"] == "wiped a"
    assert lines(tmp_path, "runs") == ["a"]


def test_a_paused_continuation_does_not_overwrite_the_other(
    nursery: Nursery, tmp_path: Path
) -> None:
    one, two = pair(nursery, tmp_path, "600ms", HOLD="model")
    messages = deciding(one.client.chat(user("wipe")))
    with ThreadPoolExecutor(1) as pool:
        first = pool.submit(one.client.ask, *messages)
        until(lambda: lines(tmp_path, "held"), "the continuation")
        one.signal(signal.SIGSTOP)
        reply = two.client.chat(*messages)
        (tmp_path / "go").touch()
        one.signal(signal.SIGCONT)
        answer = first.result()
    assert (answer.status, answer.json()["code"]) == (503, "STILL_RUNNING")
    assert one.client.chat(*messages) == reply
    assert lines(tmp_path, "runs") == ["a"]


def test_an_idempotent_call_of_a_paused_owner_ends_with_the_second_run(
    nursery: Nursery, tmp_path: Path
) -> None:
    config = CONFIG + 'lease = "600ms"\n'
    again = json.dumps({"idempotent": True})
    one = nursery.start(tmp_path, config, HOLD="tool", TOOL=again)
    two = nursery.start(tmp_path, config, TOOL=again)
    messages = deciding(one.client.chat(user("wipe")))
    with ThreadPoolExecutor(1) as pool:
        first = pool.submit(one.client.ask, *messages)
        until(lambda: lines(tmp_path, "held"), "the run")
        one.signal(signal.SIGSTOP)
        (done,) = two.client.chat(*messages)["data"]["executed_tool_calls"]
        assert done["output"].startswith("(Run again:")
        (tmp_path / "go").touch()
        one.signal(signal.SIGCONT)
        (late,) = first.result().json()["data"]["executed_tool_calls"]
    assert late["output"] == done["output"], "the first run's end no longer counts"
    assert lines(tmp_path, "runs") == ["a", "a"]


def test_a_restarted_container_with_the_same_process_id_owns_nothing(tmp_path: Path) -> None:
    container = ("unshare", "--pid", "--fork", "--kill-child")
    if subprocess.run([*container, "true"], capture_output=True).returncode:
        pytest.skip("this user cannot make process id namespaces")
    with commanded(tmp_path, CONFIG, container, HOLD="tool") as process:
        client = process.client
        messages = deciding(client.chat(user("wipe")))
        with ThreadPoolExecutor(1) as pool:
            first = pool.submit(lost, client, *messages)
            until(lambda: lines(tmp_path, "held"), "the run")
            process.kill()
            assert first.result() is None
    with commanded(tmp_path, CONFIG, container) as process:
        (done,) = process.client.chat(*messages)["data"]["executed_tool_calls"]
        process.kill()
    assert done["output"].startswith("Outcome unknown:")
    assert lines(tmp_path, "pids") == ["1", "1"]
    assert lines(tmp_path, "runs") == ["a"]


def test_an_owner_under_another_kernel_is_judged_by_its_lease_alone(tmp_path: Path) -> None:
    async def work() -> None:
        store = SqliteStore(tmp_path / "approvals.db")
        await store.open()
        gone = "0" * 32
        assert store.dead(Owner(gone, boot_id(), 1, 0.0))
        assert not store.dead(Owner(gone, "another boot", 1, 0.0))
        assert not store.dead(Owner(gone, "", 1, 0.0))
        store.hold(gone)
        assert not store.dead(Owner(gone, boot_id(), 1, 0.0))
        await store.close()

    asyncio.run(work())


class Slow:
    """A gated tool that takes until `go`, longer than its timeout."""

    def __init__(self, *, asynchronous: bool) -> None:
        self.go = threading.Event()
        self.runs: list[str] = []

        @tool(requires_approval=True, timeout=0.2)
        def slow(name: str) -> str:
            """Take long."""
            self.runs.append(name)
            assert self.go.wait(120)
            return f"slowly {name}"

        @tool(requires_approval=True, timeout=0.2, name="slow")
        async def stubborn(name: str) -> str:
            """Take long, and not be cancelled."""
            self.runs.append(name)
            waiting = asyncio.ensure_future(asyncio.to_thread(self.go.wait, 120))
            while not waiting.done():
                try:
                    await asyncio.shield(waiting)
                except asyncio.CancelledError:
                    continue
            return f"slowly {name}"

        self.tool: Any = stubborn if asynchronous else slow


@pytest.mark.parametrize("asynchronous", [False, True])
def test_the_real_end_after_a_timeout_is_recorded(served: Serve, asynchronous: bool) -> None:
    slow = Slow(asynchronous=asynchronous)
    agent, _ = scripted([[Call("p", "slow", {"name": "a"})], "hm"], [slow.tool])
    service = served(agent)
    messages = deciding(service.chat(user("wipe")))
    (done,) = service.chat(*messages)["data"]["executed_tool_calls"]
    assert done["output"] == (
        "Outcome unknown: the tool did not end within its timeout of 0.2 s. "
        "It may or may not have taken effect; it is not run again."
    )
    slow.go.set()

    def ended() -> bool:
        (done,) = service.chat(*messages)["data"]["executed_tool_calls"]
        return bool(done["output"] == "slowly a")

    until(ended, "the late end")
    assert slow.runs == ["a"]


def test_a_failed_second_run_says_that_it_ran_again_behind_its_error(served: Serve) -> None:
    runs: list[str] = []

    @tool(requires_approval=True, timeout=0.2, idempotent=True)
    async def slow(name: str) -> str:
        """Take long, then fail."""
        runs.append(name)
        if len(runs) > 1:
            raise ValueError("too late")
        await asyncio.sleep(600)
        return name

    agent, _ = scripted([[Call("p", "slow", {"name": "a"})], "hm", "hm"], [slow])
    service = served(agent)
    messages = deciding(service.chat(user("wipe")))
    service.chat(*messages)
    (again,) = service.chat(*messages)["data"]["executed_tool_calls"]
    assert again["output"] == (
        "Error: too late\n(Run again: the outcome of an earlier run is unknown.)"
    )
    assert runs == ["a", "a"]


@pytest.mark.parametrize("why", ["a rule", "no tool", "the input"])
def test_a_call_of_unknown_end_that_may_not_run_again_stays_unknown(
    served: Serve, why: str
) -> None:
    runs: list[str] = []

    @tool(requires_approval=True, timeout=0.2, idempotent=True)
    async def slow(name: str) -> str:
        """Take long the first time."""
        runs.append(name)
        await asyncio.sleep(600 * (len(runs) == 1))
        return name

    @tool(name="slow", requires_approval=True, idempotent=True)
    async def stricter(name: int) -> None:
        """Take a number, as of a newer version."""
        runs.append("number")

    store = {"approvals__ledger": "sqlite:///approvals.db"}
    script = [[Call("p", "slow", {"name": "a"})], *["hm"] * 4]
    messages = deciding(served(scripted(script, [slow])[0], **store).chat(user("wipe")))
    service = served(scripted(script[1:], [slow])[0], **store)
    service.chat(*messages)
    tools = {"a rule": [slow], "no tool": [], "the input": [stricter]}[why]
    rules = [{"tool": "slow", "action": "deny"}] if why == "a rule" else []
    newer = served(scripted(script[1:], tools)[0], **store, approvals__rules=rules)
    for _ in range(2):
        if why != "a rule":
            assert newer.ask(*messages).types == {"approval_tool_changed"}
            continue
        (reported,) = newer.chat(*messages)["data"]["executed_tool_calls"]
        first, second = reported["output"].splitlines()
        assert first.startswith("Outcome unknown: the tool did not end within its timeout of 0.2 s")
        assert second.startswith("Not run again: ")
    assert runs == ["a"]
    (done,) = service.chat(*messages)["data"]["executed_tool_calls"]
    assert done["output"].endswith("\na")
    assert runs == ["a", "a"]


@pytest.mark.parametrize("idempotent", [False, True])
def test_an_async_tool_that_its_timeout_cancelled_has_no_known_end(
    served: Serve, idempotent: bool
) -> None:
    runs: list[str] = []
    cancelled = threading.Event()

    @tool(requires_approval=True, timeout=0.2, idempotent=idempotent)
    async def slow(name: str) -> str:
        """Take long, and let itself be cancelled."""
        runs.append(name)
        try:
            await asyncio.sleep(600)
            return name
        finally:
            cancelled.set()

    calls = [[Call(name, "slow", {"name": name})] for name in ("a", "b")]
    agent, _ = scripted([calls[0], "hm", calls[1], "hm", "hm"], [slow])
    service = served(agent)
    messages = deciding(service.chat(user("wipe")))
    (reported,) = service.chat(*messages)["data"]["executed_tool_calls"]
    assert cancelled.wait(120)
    # After another complete run, all messages about the first one's end were sent.
    service.chat(*deciding(service.chat(user("wipe"))))
    (again,) = service.chat(*messages)["data"]["executed_tool_calls"]
    assert reported["output"].startswith("Outcome unknown:")
    if idempotent:
        assert again["output"].startswith("Outcome unknown:")
        assert "(Run again:" in again["output"]
        assert runs == ["a", "b", "a"]
    else:
        assert again == reported
        assert runs == ["a", "b"]


def leave(service: Service, path: str, messages: list[Json], when: Any) -> None:
    """Send a request and disconnect once `when` holds."""
    body = json.dumps({"messages": messages}).encode()
    with socket.create_connection(("127.0.0.1", service.port)) as raw:
        raw.sendall(
            f"POST {path} HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
            f"Content-Length: {len(body)}\r\n\r\n".encode()
            + body
        )
        until(when, "the run")


@pytest.mark.parametrize("path", ["/api/chat", "/api/chat-stream", "/api/sendMessage", "ws"])
def test_a_claimed_tool_finishes_without_its_client(
    nursery: Nursery, tmp_path: Path, path: str
) -> None:
    process = nursery.start(tmp_path, HOLD="tool")
    client = process.client
    messages = deciding(client.chat(user("wipe")))
    if path == "ws":
        with client.ws() as ws:
            ws.send({"messages": messages})
            until(lambda: lines(tmp_path, "held"), "the run")
    else:
        leave(client, path, messages, lambda: lines(tmp_path, "held"))
    (tmp_path / "go").touch()
    until(lambda: state(tmp_path) == "DONE", "the record")
    reply = client.chat(*messages)
    assert reply["content"] == "ended: wiped a"
    assert lines(tmp_path, "runs") == ["a"]


def test_an_outcome_that_no_reply_has_told_is_told_wherever_the_approval_sat(
    nursery: Nursery, tmp_path: Path
) -> None:
    client = nursery.start(tmp_path, HOLD="model").client
    messages = deciding(client.chat(user("wipe")))
    messages[1]["data"], messages[2]["data"] = messages[2]["data"], {}
    leave(client, "/api/chat", messages, lambda: lines(tmp_path, "held"))
    # The model of the abandoned request is cancelled; only the second one may answer.
    with ThreadPoolExecutor(1) as pool:
        again = pool.submit(client.chat, *messages)
        until(lambda: len(lines(tmp_path, "held")) == 2, "the second continuation")
        (tmp_path / "go").touch()
        reply = again.result()
    assert [e["output"] for e in reply["data"]["executed_tool_calls"]] == ["wiped a"]
    assert client.chat(*messages) == reply
    later = client.chat(*messages[:2], user("and now?"))
    assert later["data"]["executed_tool_calls"] == []


@pytest.mark.parametrize("path", ["/api/chat", "/api/chat-stream", "/api/sendMessageStream"])
def test_on_disconnect_continue_finishes_the_turn(
    nursery: Nursery, tmp_path: Path, path: str
) -> None:
    config = CONFIG.replace("port = 0", 'port = 0\non_disconnect = "continue"')
    client = nursery.start(tmp_path, config, HOLD="model").client
    messages = deciding(client.chat(user("wipe")))
    leave(client, path, messages, lambda: lines(tmp_path, "held"))
    with ThreadPoolExecutor(1) as pool:
        again = pool.submit(client.chat, *messages)
        (tmp_path / "go").touch()
        assert again.result()["content"] == "ended: wiped a"
    assert len(lines(tmp_path, "asks")) == 2, "the turn was finished, not made again"


def test_a_claimed_tool_finishes_when_the_service_stops(nursery: Nursery, tmp_path: Path) -> None:
    process = nursery.start(tmp_path, HOLD="tool")
    messages = deciding(process.client.chat(user("wipe")))
    with ThreadPoolExecutor(1) as pool:
        first = pool.submit(lost, process.client, *messages)
        until(lambda: lines(tmp_path, "held"), "the run")
        process.signal(signal.SIGTERM)
        # `drain_timeout` is a second; after it the client gets its answer, and the tool goes on.
        answer = first.result()
        assert answer is None or answer.status == 503
        (tmp_path / "go").touch()
        process.wait()
    assert state(tmp_path) == "DONE"
    reply = nursery.start(tmp_path).client.chat(*messages)
    assert reply["content"] == "ended: wiped a"
    assert lines(tmp_path, "runs") == ["a"]
