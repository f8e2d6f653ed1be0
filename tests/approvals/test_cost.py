"""The cost of approvals for services without any, and the cost of a full store."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from agents import Counted, delete, look, scripted
from serving import Serve, Service, approved, assistant, said, user
from stages import approve, call, command, decide, reject, turn_of

from sayso import Caller, cli
from sayso.decisions import elsewhere, replicas, waiting
from sayso.ledger import choices, sweeping
from sayso.ledger.choices import Conversation
from sayso.ledger.memory import MemoryStore
from sayso.ledger.record import Ledger
from sayso.ledger.rows import SqlTransaction
from sayso.ledger.sqlite import SqliteStore


def counted(service: Service) -> list[bool]:
    """Whether each transaction waits for the disk, in a list that grows with each."""
    store = service.app.host.ledger.store
    runs: list[bool] = []
    real: Callable[..., Any] = store.run

    def run(work: Any) -> Any:
        runs.append(getattr(work, "flushed", True))
        return real(work)

    store.run = run
    return runs


@pytest.fixture(autouse=True)
def quiet(monkeypatch: pytest.MonkeyPatch) -> None:
    """The service does not look for calls or services of its own accord: that would be counted."""

    async def nothing_due(ledger: Ledger) -> sweeping._Look:
        return sweeping._Look([], 0.0)

    monkeypatch.setattr(sweeping, "_look_for_due", nothing_due)

    async def no_look(self: elsewhere.Elsewhere | replicas.Replicas) -> None:
        pass

    monkeypatch.setattr(elsewhere.Elsewhere, "_look", no_look)
    monkeypatch.setattr(replicas.Replicas, "look", no_look)


@pytest.mark.parametrize("ledger", ["memory://", "sqlite:///approvals.db"])
def test_an_ordinary_turn_touches_no_store(served: Serve, ledger: str) -> None:
    tools = Counted()
    agent, _ = scripted([[look("x")], "seen", "hello", "hello", "hello"], tools.tools)
    service = served(agent, approvals__ledger=ledger)
    runs = counted(service)
    assert service.chat(user("look at x"))["content"] == "seen"
    service.chat(user("hi"), assistant("hello"), user("again"))
    service.stream(user("hi"))
    with service.ws() as ws:
        ws.turn({"messages": [user("hi")]})
    assert tools.looks == ["x"]
    assert runs == []


def test_a_round_of_approval_takes_few_transactions(served: Serve) -> None:
    agent, _ = scripted([[delete("a")], "gone"], Counted().tools)
    # The service would look now and then for what was approved elsewhere.
    service = served(agent, approvals__run="caller")
    runs = counted(service)
    reply = service.chat(user("wipe"))
    assert runs == [False], "the proposal, without which an approval is refused"
    calls = [approved(reply["data"]["tool_calls"][0])]
    messages = [user("wipe"), said(reply), user("", data={"tool_calls": calls})]
    service.chat(*messages)
    assert runs[1:] == [True, True, False], (
        "the claim, the outcome with the continuation, its reply, which can be had again"
    )
    service.chat(*messages)
    assert len(runs) == 6


@pytest.mark.slow
def test_fifty_thousand_rows_do_not_slow_a_claim(tmp_path: Path) -> None:
    steps = 0

    def step() -> None:
        nonlocal steps
        steps += 1

    async def rounds(ledger: Ledger, name: str) -> int:
        """The number of instructions of SQLite's machine for a few rounds; independent of time."""
        before = steps
        for number in range(5):
            row = call(f"{name}{number}")
            await ledger.propose(turn_of(row), [row])
            (grant,) = (await decide(ledger, approve(row))).grants
            await ledger.finish(grant, "DONE", "done")
        return steps - before

    async def work() -> tuple[int, int]:
        store = SqliteStore(tmp_path / "approvals.db")
        ledger = Ledger(store)
        await ledger.open()
        assert store._db is not None
        store._db.raw.set_progress_handler(step, 1)
        few = await rounds(ledger, "few")
        store._db.raw.set_progress_handler(None, 0)

        def fill(start: int) -> Callable[[Any], None]:
            def put(tx: Any) -> None:
                for n in range(start, start + 5_000):
                    row = call(f"t{n}", conversation=f"k{n % 100}", reference=f"r{n}")
                    row.state = ("PENDING", "DONE", "EXPIRED", "REJECTED")[n % 4]  # type: ignore[assignment]
                    row.created, row.expires = tx.now, tx.now + 86_400
                    tx.put(row)
                    if n % 5 == 0:
                        tx.put_turn(turn_of(row))

            return put

        for start in range(0, 50_000, 5_000):
            await store.run(fill(start))
        store._db.raw.set_progress_handler(step, 1)
        many = await rounds(ledger, "many")
        await ledger.close()
        return few, many

    few, many = asyncio.run(work())
    assert 0 < few and many < 1.5 * few, (few, many)


@pytest.mark.parametrize("each", [False, True], ids=["in one message", "in a message each"])
@pytest.mark.parametrize(("key", "most"), [("", 210), ("k1", 10)])
def test_many_commands_after_many_messages_are_looked_up_once(
    key: str, most: int, each: bool
) -> None:
    # All of that is one transaction, which everybody else waits for.
    asked: list[str] = []

    async def work() -> None:
        store = MemoryStore()
        ledger = Ledger(store)
        await ledger.open()
        row = command("t", "ls", conversation=key, reference="r3")
        await ledger.propose(turn_of(row), [row])
        conversation = Conversation(key, [f"r{n}" for n in range(200)])
        many = [
            reject(row, id=None, input={"command": f"ls {n}"}, message=n + 1 if each else 200)
            for n in range(200)
        ]
        assert store._db is not None
        store._db.raw.set_trace_callback(asked.append)
        wanted = reject(row, id=None, message=200)
        found = await decide(ledger, *many, wanted, conversation=conversation)
        assert [chosen.id for _, chosen in found.chosen] == [row.id]
        await ledger.close()

    asyncio.run(work())
    assert 0 < sum("SELECT" in statement for statement in asked) <= most


def test_a_decision_stated_many_times_is_not_compared_with_each_of_them(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    stated = {"name": "a"}
    compared: list[object] = []
    canonical = choices.canonical

    def counting(value: object) -> bytes:
        compared.append(value)
        return canonical(value)

    async def work() -> None:
        ledger = Ledger(MemoryStore())
        await ledger.open()
        row = call("t")
        await ledger.propose(turn_of(row), [row])
        monkeypatch.setattr(choices, "canonical", counting)
        found = await decide(ledger, *[approve(row, input=stated)] * 200)
        assert [grant.proposal.id for grant in found.grants] == [row.id]
        await ledger.close()

    asyncio.run(work())
    assert 0 < len(compared) <= 201
    # The recorded value may be large.
    assert sum(value is not stated for value in compared) <= 2


def rows_read(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The number of proposals in each answer of the store, in a list that grows with each."""
    read: list[int] = []
    load = SqlTransaction._load

    def counted(self: SqlTransaction, rows: Any) -> Iterator[Any]:
        read.append(len(rows))
        return load(self, rows)

    monkeypatch.setattr(SqlTransaction, "_load", counted)
    return read


def test_to_list_what_waits_looks_through_all_of_it_in_parts_and_not_each_time(
    served: Serve, monkeypatch: pytest.MonkeyPatch
) -> None:
    agent, _ = scripted([], Counted().tools)
    host = served(agent, approvals__ledger="memory://").app.host
    rows = [call("turn", n, id=f"id{n:03}", principal=None, tenant=None) for n in range(300)]
    asyncio.run(host.ledger.propose(None, rows))
    read = rows_read(monkeypatch)
    # However fast the machine is, the second list comes soon after the first.
    monkeypatch.setattr(waiting, "_PAUSE", 1e6)
    shown = asyncio.run(host.calls.pending(Caller("test"), 5))
    assert [row.id for row in shown.calls] == [f"id{n:03}" for n in range(5)]
    assert max(read) <= 200
    read.clear()
    further = asyncio.run(host.calls.pending(Caller("test"), 5, after=shown.after))
    assert [row.id for row in further.calls] == [f"id{n:03}" for n in range(5, 10)]
    assert sum(read) <= 5 + 2 * 8


def test_to_list_the_newest_on_the_command_line_reads_few_of_the_rest(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    async def fill() -> None:
        ledger = Ledger(SqliteStore(tmp_path / "approvals.db"))
        await ledger.open()
        rows = [call("turn", n, id=f"id{n:04}") for n in range(3000)]
        for start in range(0, len(rows), 100):
            await ledger.propose(None, rows[start : start + 100])
        await decide(ledger, *map(approve, [*rows[40:60], *rows[2990:2992]]), claim=False)
        await ledger.close()

    asyncio.run(fill())
    (tmp_path / "sayso.toml").write_text('[approvals]\nledger = "sqlite:///approvals.db"\n')
    monkeypatch.chdir(tmp_path)
    read = rows_read(monkeypatch)

    def listed(*options: str) -> list[str]:
        read.clear()
        assert cli.run(["approvals", "list", "--json", *options]) == 0
        return [row["id"] for row in json.loads(capsys.readouterr().out)]

    assert listed("--limit", "5") == [f"id{n}" for n in range(2995, 3000)]
    assert sum(read) < 200
    assert listed("--limit", "5", "--state", "PENDING") == [f"id{n}" for n in range(2995, 3000)]
    assert sum(read) < 200
    approved_ones = [*(f"id{n:04}" for n in range(57, 60)), "id2990", "id2991"]
    assert listed("--limit", "5", "--state", "APPROVED") == approved_ones
    assert sum(read) < 200
    assert len(listed("--limit", "4000")) == 3000
    assert listed("--state", "DONE") == []


def test_to_list_one_that_waits_where_all_have_expired_takes_few_steps(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    async def fill() -> None:
        ledger = Ledger(SqliteStore(tmp_path / "approvals.db"), ttl=0)
        await ledger.open()
        await ledger.propose(None, [call("turn", n, id=f"id{n}") for n in range(300)])
        await ledger.close()

    asyncio.run(fill())
    (tmp_path / "sayso.toml").write_text('[approvals]\nledger = "sqlite:///approvals.db"\n')
    monkeypatch.chdir(tmp_path)
    read = rows_read(monkeypatch)
    assert cli.run(["approvals", "list", "--limit", "1", "--state", "PENDING"]) == 0
    assert capsys.readouterr().out == "no call is PENDING\n"
    assert len(read) < 10
