"""Many approvals of one call at once: one run, one continuation, one reply for all (section 6)."""

from __future__ import annotations

import asyncio
import json
import resource
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from agents import Counted, delete, scripted, whole
from processes import CONFIG, Nursery, Process, commanded, events_logged, lines, lost
from serving import Json, Serve, Service, approved, rejected, said, until, user

from sayso import Call, engine, tool
from sayso.ledger.record import Ledger
from sayso.models import Result


def deciding(reply: Json, first: str = "wipe") -> list[Json]:
    calls = [approved(call) for call in reply["data"]["tool_calls"]]
    return [user(first), said(reply), user("", data={"tool_calls": calls})]


def all_at_once(services: list[Service], count: int, *messages: Json) -> list[Any]:
    """The answers to `count` equal requests sent at the same time."""
    together = threading.Barrier(count)

    def one(number: int) -> Any:
        together.wait(120)
        return services[number % len(services)].ask(*messages)

    with ThreadPoolExecutor(count) as pool:
        return list(pool.map(one, range(count)))


def same_reply(answers: list[Any]) -> Json:
    assert {answer.status for answer in answers} == {200}, [a.raw for a in answers][:3]
    replies = [answer.json() for answer in answers]
    assert all(reply == replies[0] for reply in replies), replies[:3]
    return replies[0]


@pytest.fixture
def sockets() -> Iterator[None]:
    """Room for a thousand connections with both ends in this process."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = 4_096 if hard == resource.RLIM_INFINITY else min(4_096, hard)
    if soft != resource.RLIM_INFINITY:
        resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, wanted), hard))
    yield
    resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


@pytest.mark.usefixtures("sockets")
@pytest.mark.parametrize("count", [2, 32, 1_000])
@pytest.mark.parametrize("ledger", ["memory://", "sqlite:///approvals.db"])
def test_concurrent_approvals_run_once(
    served: Serve, count: int, ledger: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    # A thousand requests may wait long for a slot on a slow machine.
    monkeypatch.setattr(engine, "PATIENCE", 300.0)
    tools = Counted()
    script = [[delete("a")], [delete("b", "p2")]]
    agent, model = scripted(script, tools.tools)
    service = served(agent, approvals__ledger=ledger, limits__turns=4)
    reply = service.chat(user("wipe"))
    last = same_reply(all_at_once([service], count, *deciding(reply)))
    assert tools.names == ["a"]
    assert len(model.asks) == 2, "one continuation"
    (second,) = last["data"]["tool_calls"]
    assert second["input"] == whole("b")
    assert [e["output"] for e in last["data"]["executed_tool_calls"]] == ["deleted a"]


def test_waiting_requests_hold_no_place(served: Serve) -> None:
    started, go = threading.Event(), threading.Event()
    tools = Counted()

    async def slow() -> str:
        started.set()
        assert await asyncio.to_thread(go.wait, 120)
        return "gone"

    def script(ask: Any) -> Any:
        if len(ask.turns) > 1:
            return slow()
        return "hello" if ask.turns[0].blocks[0].text == "hi" else [delete("a")]

    agent, _ = scripted(script, tools.tools)
    service = served(agent, limits__turns=2)
    messages = deciding(service.chat(user("wipe")))
    with ThreadPoolExecutor(8) as pool:
        waiting = [pool.submit(service.ask, *messages) for _ in range(8)]
        try:
            assert started.wait(60)
            # Seven wait for the continuation of one; there is still a slot.
            assert service.chat(user("hi"))["content"] == "hello"
            until(lambda: service.app.host.turns_running == 1)
        finally:
            go.set()
        assert same_reply([w.result() for w in waiting])["content"] == "gone"
    assert tools.names == ["a"]


def test_who_waits_to_its_limit_is_told_so_and_nothing_is_made_up(served: Serve) -> None:
    go = threading.Event()
    runs: list[str] = []

    @tool(requires_approval=True)
    def delete(name: str) -> str:
        """Delete a thing."""
        runs.append(name)
        assert go.wait(120)
        return f"deleted {name}"

    agent, _ = scripted([[Call("p", "delete", {"name": "a"})], "gone"], [delete])
    ledger = "sqlite:///approvals.db"
    messages = deciding(served(agent, approvals__ledger=ledger).chat(user("wipe")))
    service = served(agent, limits__turn_time=3.0, approvals__ledger=ledger)
    with ThreadPoolExecutor(2) as pool:
        answers = [pool.submit(service.ask, *messages) for _ in range(2)]
        codes = {a.result().json()["code"] for a in answers}
    assert codes <= {"STILL_RUNNING", "TURN_TIMEOUT"}
    assert "STILL_RUNNING" in codes
    go.set()
    reply = until(lambda: _fine(service, messages), "the recorded outcome")
    assert reply["content"] == "gone"
    assert runs == ["a"]


def _fine(service: Service, messages: list[Json]) -> Json | None:
    answer = service.ask(*messages)
    return answer.json() if answer.status == 200 else None


def test_turns_go_on_when_the_calls_of_both_tabs_have_ended(served: Serve) -> None:
    """One tab approves one call, another tab the other; the model gets both outcomes."""
    started, go = threading.Event(), threading.Event()

    @tool(requires_approval=True)
    def delete(name: str) -> str:
        """Delete a thing."""
        if name == "slow":
            started.set()
            assert go.wait(120)
        return f"deleted {name}"

    calls = [Call("p1", "delete", {"name": "slow"}), Call("p2", "delete", {"name": "fast"})]
    agent, model = scripted([calls, "both are gone"], [delete])
    service = served(agent)
    reply = service.chat(user("wipe"))
    slow, fast = reply["data"]["tool_calls"]

    def one(call: Json) -> Json:
        last = user("", data={"tool_calls": [approved(call)]})
        return service.chat(user("wipe"), said(reply), last)

    with ThreadPoolExecutor(2) as pool:
        first = pool.submit(one, slow)
        assert started.wait(60)
        second = pool.submit(one, fast)
        ledger = service.app.host.ledger
        ended = fast["id"]
        until(lambda: asyncio.run(ledger.settle([ended]))[ended].state == "DONE")
        with pytest.raises(TimeoutError):
            second.result(0.3)
        assert len(model.asks) == 1, "the model is asked when both have ended"
        go.set()
        assert second.result()["content"] == "both are gone"
        assert [c["id"] for c in first.result()["data"]["tool_calls"]] == [fast["id"]]
    results = [b.output for t in model.asks[-1].turns for b in t.blocks if hasattr(b, "call_id")]
    assert results == ["deleted slow", "deleted fast"]
    assert one(fast)["content"] == "both are gone"
    assert len(model.asks) == 2


def test_four_workers_run_a_call_once(nursery: Nursery, tmp_path: Path) -> None:
    plan = {"PLAN": json.dumps([["a"], ["b"]]), "OPTIONS": json.dumps({"workers": 4})}
    with commanded(tmp_path, CONFIG, **plan) as process:
        service = process.client
        reply = service.chat(user("wipe"))
        last = same_reply(all_at_once([service], 32, *deciding(reply)))
        assert [c["input"] for c in last["data"]["tool_calls"]] == [{"name": "b"}]
        assert lines(tmp_path, "runs") == ["a"]
        assert len(lines(tmp_path, "asks")) == 2
        end = same_reply(all_at_once([service], 8, *deciding(reply), said(last), *_next(last)))
        assert end["content"] == "ended: wiped a | wiped b"
    assert lines(tmp_path, "runs") == ["a", "b"]
    assert sum(e["event"] == "claimed" for e in events_logged(tmp_path)) == 2


def _next(reply: Json) -> list[Json]:
    return [deciding(reply)[-1]]


def two_hosts(nursery: Nursery, folder: Path, url: str, **environ: str) -> list[Process]:
    config = CONFIG.replace("sqlite:///approvals.db", url)
    return [nursery.start(folder / name, config, **environ) for name in ("one", "two")]


@pytest.mark.parametrize("count", [2, 32, 100])
def test_two_hosts_on_one_database_run_a_call_once(
    nursery: Nursery, tmp_path: Path, postgres_url: str, count: int
) -> None:
    plan = {"PLAN": json.dumps([["a"], ["b"]])}
    hosts = two_hosts(nursery, tmp_path, postgres_url, **plan)
    services = [host.client for host in hosts]
    reply = services[0].chat(user("wipe"))
    last = same_reply(all_at_once(services, count, *deciding(reply)))
    assert [c["input"] for c in last["data"]["tool_calls"]] == [{"name": "b"}]
    ran = [lines(tmp_path / name, "runs") for name in ("one", "two")]
    assert sorted(ran) == [[], ["a"]]
    asked = sum(len(lines(tmp_path / name, "asks")) for name in ("one", "two"))
    assert asked == 2
    again = services[1].chat(*deciding(reply))
    assert again == last


def test_the_other_host_takes_over_when_the_lease_has_run_out(
    nursery: Nursery, tmp_path: Path, postgres_url: str
) -> None:
    config = CONFIG.replace("sqlite:///approvals.db", postgres_url) + "lease = 1\n"
    one = nursery.start(tmp_path / "one", config, HOLD="tool")
    two = nursery.start(tmp_path / "two", config)
    reply = one.client.chat(user("wipe"))
    messages = deciding(reply)
    with ThreadPoolExecutor(2) as pool:
        lost_one = pool.submit(lost, one.client, *messages)
        until(lambda: lines(tmp_path / "one", "held"), "the run")
        other = pool.submit(two.client.chat, *messages)
        one.kill()
        assert lost_one.result() is None
        (done,) = other.result()["data"]["executed_tool_calls"]
    assert done["output"].startswith("Outcome unknown:")
    assert lines(tmp_path / "two", "runs") == []


def test_who_waits_for_a_dead_host_runs_its_idempotent_call_again(
    nursery: Nursery, tmp_path: Path, postgres_url: str
) -> None:
    config = CONFIG.replace("sqlite:///approvals.db", postgres_url) + "lease = 1\n"
    again = json.dumps({"idempotent": True})
    one = nursery.start(tmp_path / "one", config, TOOL=again, DIE="tool:after")
    two = nursery.start(tmp_path / "two", config, TOOL=again)
    messages = deciding(one.client.chat(user("wipe")))
    assert lost(one.client, *messages) is None
    services = [two.client]
    (done,) = same_reply(all_at_once(services, 3, *messages))["data"]["executed_tool_calls"]
    assert done["output"].startswith("(Run again:")
    assert lines(tmp_path / "two", "runs") == ["a"]


def test_the_outcome_of_a_callable_whose_host_died_is_told_by_the_other(
    nursery: Nursery, tmp_path: Path, postgres_url: str
) -> None:
    config = CONFIG.replace("sqlite:///approvals.db", postgres_url) + "lease = 1\n"
    one = nursery.start(tmp_path / "one", config, CALLABLE="1", DIE="tool:after")
    two = nursery.start(tmp_path / "two", config, CALLABLE="1")
    messages = deciding(one.client.chat(user("wipe")))
    assert lost(one.client, *messages) is None
    (done,) = two.client.chat(*messages)["data"]["executed_tool_calls"]
    assert done["output"].startswith("Outcome unknown:")
    assert lines(tmp_path / "two", "runs") == []


@pytest.mark.parametrize(
    ("decision", "reported"),
    [(approved, "deleted a"), (rejected, "Rejected by the user: too risky")],
)
def test_model_hears_what_another_decided_just_before_a_new_message_superseded_it(
    served: Serve, monkeypatch: pytest.MonkeyPatch, decision: Any, reported: str
) -> None:
    tools = Counted()
    agent, model = scripted([[delete("a")], "as decided", "a joke"], tools.tools)
    service = served(agent, approvals__on_new_message="supersede")
    reply = service.chat(user("wipe"))
    (call,) = reply["data"]["tool_calls"]
    talk = [user("wipe"), said(reply)]
    reject = Ledger.reject

    async def too_late(ledger: Ledger, *args: Any) -> Any:
        data = {"tool_calls": [decision(call)]}
        await asyncio.to_thread(service.chat, *talk, user("", data=data))
        return await reject(ledger, *args)

    monkeypatch.setattr(Ledger, "reject", too_late)
    assert service.chat(*talk, user("leave it, tell a joke"))["content"] == "a joke"
    outputs = [b.output for t in model.asks[-1].turns for b in t.blocks if isinstance(b, Result)]
    assert outputs == [reported]
