"""Random sequences of all operations on proposals, against a small model of section 6.

`SAYSO_TEST_EXAMPLES` is the number of sequences for each store (default 25, of which a store over a
wire gets a fifth).
"""

from __future__ import annotations

import asyncio
import os
import shutil
import tempfile
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)
from stages import ALICE, Staged, World, approve, call, decide, refused, turn_of

from sayso.errors import InvalidRequest, StillRunning
from sayso.ledger import Proposal, Store
from sayso.ledger.choices import Choice
from sayso.ledger.claims import Continuation, Grant, margin
from sayso.ledger.log import verify_store
from sayso.ledger.memory import MemoryStore
from sayso.ledger.record import Ledger
from sayso.ledger.sqlite import SqliteStore

# Chosen so long that the seconds of a real run make no difference.
TTL, LEASE = 1_000_000.0, 10_000.0
GONE = LEASE + margin(LEASE) + 1.0
"""Seconds of silence after which others consider a process dead."""
EXAMPLES = int(os.environ.get("SAYSO_TEST_EXAMPLES", "25"))
TAKEN = ("DONE", "FAILED", "INDETERMINATE", "EXECUTING", "APPROVED")


@dataclass
class Known:
    """The model's data about one call."""

    row: Proposal
    expires: float
    state: str = "PENDING"
    edited: dict[str, Any] | None = None
    fence: int = 0
    owner: str | None = None
    runs: int = 0
    unknown: int = 0


@dataclass
class Turn:
    """The model's data about one suspended turn."""

    id: str
    calls: list[str]
    state: str = "SUSPENDED"
    owner: str | None = None
    replies: dict[str, str] = field(default_factory=dict)
    continuations: int = 0


def edit(row: Proposal, stated: dict[str, Any]) -> dict[str, Any] | None:
    """Half of the calls are editable, to names that begin with an `e`."""
    editable = row.input["name"] in ("b", "d")
    return stated if editable and str(stated.get("name", "")).startswith("e") else None


class Section6(RuleBasedStateMachine):
    """Processes that share a store, callers that decide, and everything that goes wrong."""

    store_kind = "memory"
    url = ""

    def __init__(self) -> None:
        super().__init__()
        self.loop = asyncio.new_event_loop()
        self.world = World()
        self.folder = Path(tempfile.mkdtemp(prefix="sayso-rules-"))
        self.memory = MemoryStore()
        self.calls: dict[str, Known] = {}
        self.turns: dict[str, Turn] = {}
        self.grants: list[tuple[Ledger, Grant]] = []
        self.held: list[tuple[Ledger, Continuation]] = []
        self.paused: set[str] = set()
        self.count = 0
        if self.store_kind == "postgres":
            empty(self.url)
        self.observer = self.born()
        self.processes = [self.born(), self.born()]

    def do(self, work: Any) -> Any:
        return self.loop.run_until_complete(asyncio.wait_for(work, 120))

    def born(self) -> Ledger:
        store: Store = self.memory
        if self.store_kind == "sqlite":
            store = SqliteStore(self.folder / "approvals.db")
        elif self.store_kind == "postgres":
            from sayso_postgres.store import PostgresStore

            store = PostgresStore(self.url)
        ledger = Ledger(Staged(store, self.world), ttl=TTL, lease=LEASE)
        self.do(ledger.open())
        return ledger

    def teardown(self) -> None:
        assert self.do(verify_store(self.observer.store)) is None
        for ledger in [self.observer, *self.processes]:
            self.do(ledger.close())
        self.loop.close()
        shutil.rmtree(self.folder)

    @property
    def awake(self) -> list[Ledger]:
        return [ledger for ledger in self.processes if ledger.owner not in self.paused]

    @property
    def now(self) -> float:
        """The time of the store's clock."""
        return float(self.do(self.observer.store.run(lambda tx: tx.now)))

    @initialize(again=st.booleans())
    def begin(self, again: bool) -> None:
        self.propose([("a", again), ("b", True)])

    @precondition(lambda self: len(self.turns) < 3)
    @rule(names=st.lists(st.tuples(st.sampled_from("abcd"), st.booleans()), min_size=1, max_size=3))
    def propose(self, names: list[tuple[str, bool]]) -> None:
        self.count += 1
        id_ = f"t{self.count}"
        rows = [call(id_, n, name, idempotent=again) for n, (name, again) in enumerate(names)]
        ledger = (self.awake or [self.observer])[0]
        now = self.now
        self.do(ledger.propose(turn_of(*rows), rows))
        self.turns[id_] = Turn(id_, [row.id for row in rows])
        self.calls |= {row.id: Known(row, now + TTL) for row in rows}

    @rule(data=st.data())
    @precondition(lambda self: self.awake)
    def decide(self, data: st.DataObject) -> None:
        ledger = data.draw(st.sampled_from(self.awake), "process")
        ids = data.draw(st.sampled_from([t.calls for t in self.turns.values()]), "turn")
        chosen = data.draw(st.sets(st.sampled_from(ids), min_size=1), "calls")
        choices = [self.choice(data, self.calls[id_]) for id_ in ids if id_ in chosen]
        expected = self.refusals(choices)
        try:
            found = self.do(decide(ledger, *choices, edit=edit))
        except InvalidRequest as error:
            assert {item["type"] for item in error.items} == expected
            return
        assert not expected, expected
        claimed = self.take(ledger, choices)
        assert {g.proposal.id for g in found.grants} == claimed
        for grant in found.grants:
            known = self.calls[grant.proposal.id]
            assert grant.proposal.runs == (known.edited or known.row.input)
            assert grant.again == (known.unknown > 0)
            self.grants.append((ledger, grant))

    def choice(self, data: st.DataObject, known: Known) -> Choice:
        approved = data.draw(st.sampled_from([True, True, True, False]), "approved")
        row = known.row
        where = data.draw(st.sampled_from(["newest", "newest", "before", "copy"]), "where")
        if where == "copy":
            return approve(row, copy=True, newest=False, name=None, input=None)
        stated: Any = data.draw(
            st.sampled_from([row.input] * 4 + [None, {"name": "e1"}, {"name": "x"}]), "input"
        )
        reason = None if approved else "no"
        if approved and data.draw(st.integers(0, 9), "both") == 0:
            reason = "and no"
        return approve(
            row, approved=approved, reason=reason, newest=where == "newest", input=stated
        )

    def refusals(self, choices: list[Choice]) -> set[str]:
        types: set[str] = set()
        for one in choices:
            known = self.calls[one.id or ""]
            if one.copy:
                continue
            if one.approved and one.reason is not None:
                types.add("approval_conflict")
            elif known.state == "EXPIRED":
                if one.approved and one.newest:
                    types.add("approval_expired")
            elif one.approved and known.state == "REJECTED":
                types.add("approval_conflict")
            elif not one.approved and known.state in TAKEN:
                types.add("approval_conflict")
            if types & {"approval_conflict", "approval_expired"} and self.contradicted(one, known):
                continue
            if one.approved and not self.names_what_runs(one, known, choices):
                types.add("approval_changed")
        return types

    def names_what_runs(self, one: Choice, known: Known, choices: list[Choice]) -> bool:
        again = known.state == "INDETERMINATE" and known.row.idempotent
        waits = known.state in ("PENDING", "APPROVED") or again
        if one.input is None:
            beside = [c for c in choices if c.id == one.id and not c.copy and c.input is not None]
            return not (waits and known.edited) or bool(beside)
        inputs = [known.edited or known.row.input] if waits else [known.row.input, known.edited]
        allowed = known.state == "PENDING" and edit(known.row, one.input) is not None
        return one.input in inputs or allowed

    def contradicted(self, one: Choice, known: Known) -> bool:
        if one.approved:
            late = known.state == "EXPIRED" and one.newest
            return one.reason is not None or known.state == "REJECTED" or late
        return known.state in TAKEN

    def take(self, ledger: Ledger, choices: list[Choice]) -> set[str]:
        for one in choices:
            known = self.calls[one.id or ""]
            if one.copy or known.state != "PENDING":
                continue
            if one.approved and one.input is not None and one.input != known.row.input:
                known.edited = one.input
            known.state = "APPROVED" if one.approved else "REJECTED"
        claimed = set()
        for one in choices:
            known = self.calls[one.id or ""]
            again = known.state == "INDETERMINATE" and known.row.idempotent and not one.copy
            if one.approved and (known.state == "APPROVED" or again):
                known.state, known.owner = "EXECUTING", ledger.owner
                known.fence += 1
                known.unknown += again
                claimed.add(known.row.id)
                turn = self.turns[known.row.turn]
                if again and turn.state == "ENDED":
                    # The reply about the unknown outcome is no answer to the new one.
                    turn.state = "SUSPENDED"
                    turn.replies.clear()
        return claimed

    @rule(data=st.data(), state=st.sampled_from(["DONE", "FAILED", "INDETERMINATE"]))
    @precondition(lambda self: any(led.owner not in self.paused for led, _ in self.grants))
    def end(self, data: st.DataObject, state: Any) -> None:
        able = [pair for pair in self.grants if pair[0].owner not in self.paused]
        ledger, grant = data.draw(st.sampled_from(able), "grant")
        known = self.calls[grant.proposal.id]
        if not grant.spent:
            grant.spend()
            known.runs += 1
        current = known.fence == grant.fence and known.state in ("EXECUTING", "INDETERMINATE")
        assert self.do(ledger.finish(grant, state, "output")) == current
        if current:
            known.state, known.owner = state, None
        if state != "INDETERMINATE":
            self.grants.remove((ledger, grant))

    @rule(data=st.data())
    @precondition(lambda self: any(not g.spent for _, g in self.grants))
    def give_back(self, data: st.DataObject) -> None:
        able = [pair for pair in self.grants if not pair[1].spent]
        ledger, grant = data.draw(st.sampled_from(able), "grant")
        self.grants.remove((ledger, grant))
        if ledger.owner in self.paused:
            return
        known = self.calls[grant.proposal.id]
        self.do(ledger.give_back([grant]))
        if known.state == "EXECUTING" and known.fence == grant.fence:
            known.state = "INDETERMINATE" if known.unknown else "APPROVED"
            known.owner = None
            if known.state == "APPROVED" and self.now >= known.expires:
                known.state = "EXPIRED"
        elif known.state == "INDETERMINATE" and known.fence == grant.fence:
            # Somebody has reported it as unknown; it only stays so because of an earlier run.
            known.state = "INDETERMINATE" if grant.again else "FAILED"
            known.owner = None

    @rule(data=st.data())
    @precondition(lambda self: self.awake)
    def forge(self, data: st.DataObject) -> None:
        ledger = data.draw(st.sampled_from(self.awake), "process")
        known = data.draw(st.sampled_from([*self.calls.values()]), "true")
        true = known.row
        forged = approve(true, id="f" * 32)
        assert self.do(refused(ledger, forged)) == {"approval_not_issued"}
        assert "approval_not_issued" in self.do(refused(ledger, approve(true), forged))
        stranger = ALICE._replace(principal="mallory")
        assert self.do(refused(ledger, approve(true), who=stranger)) == {"approval_not_issued"}
        other = ALICE._replace(tenant="other")
        assert self.do(refused(ledger, approve(true), who=other)) == {"approval_not_issued"}
        assert self.do(refused(ledger, approve(true, kind="command"))) == {"approval_not_issued"}
        types = self.do(refused(ledger, approve(true, name="other")))
        ended = {"EXPIRED": "approval_expired", "REJECTED": "approval_conflict"}
        assert types == {ended.get(known.state, "approval_changed")}

    @rule(data=st.data())
    def crash(self, data: st.DataObject) -> None:
        ledger = data.draw(st.sampled_from(self.processes), "process")
        self.processes.remove(ledger)
        self.paused.discard(ledger.owner)
        self.world.dead.add(ledger.owner)
        self.grants = [pair for pair in self.grants if pair[0] is not ledger]
        self.held = [pair for pair in self.held if pair[0] is not ledger]
        if self.store_kind != "memory":
            self.do(ledger.close())
        self.lose(ledger.owner)
        self.processes.append(self.born())

    def lose(self, owner: str) -> None:
        for known in self.calls.values():
            if known.state == "EXECUTING" and known.owner == owner:
                known.state = "INDETERMINATE"
        for turn in self.turns.values():
            if turn.state == "RESUMING" and turn.owner == owner:
                turn.state, turn.owner = ("ENDED" if turn.replies else "SUSPENDED"), None

    @rule(data=st.data())
    @precondition(lambda self: len(self.awake) > 1)
    def pause(self, data: st.DataObject) -> None:
        self.paused.add(data.draw(st.sampled_from(self.awake), "process").owner)

    @rule(data=st.data())
    @precondition(lambda self: self.paused)
    def wake(self, data: st.DataObject) -> None:
        self.paused.discard(data.draw(st.sampled_from(sorted(self.paused)), "process"))

    @rule(seconds=st.sampled_from([1.0, 0.9 * LEASE, 1.1 * LEASE, GONE, GONE, TTL / 2]))
    def pass_time(self, seconds: float) -> None:
        """Let time pass; running processes renew their leases before anybody looks."""
        self.world.late += seconds
        awake = {ledger.owner for ledger in self.awake}

        def renew(tx: Any) -> float:
            for row in tx.find(state="EXECUTING"):
                if row.owner.id in awake:
                    row.owner.lease = tx.now + LEASE
                    tx.put(row)
            for turn in tx.turns(list(self.turns)).values():
                if turn.owner is not None and turn.owner.id in awake:
                    turn.owner.lease = tx.now + LEASE
                    tx.put_turn(turn)
            return float(tx.now)

        now = self.do(self.observer.store.run(renew))
        for known in self.calls.values():
            if known.state in ("PENDING", "APPROVED") and now >= known.expires:
                known.state = "EXPIRED"
        self.leases = dict.fromkeys(self.paused, 0.0)
        rows = self.do(self.observer.settle(list(self.calls)))
        for owner in self.paused:
            mine = [k for k in self.calls.values() if k.owner == owner and k.state == "EXECUTING"]
            if seconds >= GONE:
                assert all(rows[k.row.id].state == "INDETERMINATE" for k in mine)
            for known in mine:
                known.state = rows[known.row.id].state  # type: ignore[assignment]
        turns = self.do(self.observer.store.run(lambda tx: tx.turns(list(self.turns))))
        for turn in self.turns.values():
            held = turns[turn.id].owner
            if turn.owner in self.paused and held is not None and held.lease + margin(LEASE) < now:
                # Somebody else continues it, and abandons it.
                work = self.observer.continue_turns(
                    [turn.id], "other", decided=None, until=time.monotonic()
                )
                self.do(self.observer.release(self.do(work)))
                turn.state, turn.owner = ("ENDED" if turn.replies else "SUSPENDED"), None

    @rule(data=st.data())
    @precondition(lambda self: self.grants and len(self.awake) > 1)
    def be_overtaken(self, data: st.DataObject) -> None:
        """A process sleeps through its lease, another runs its idempotent call, and it wakes."""
        owner, grant = data.draw(st.sampled_from(self.grants), "sleeper")
        others = [ledger for ledger in self.awake if ledger is not owner]
        known = self.calls[grant.proposal.id]
        self.paused.add(owner.owner)
        self.pass_time(GONE)
        if known.state == "INDETERMINATE" and known.row.idempotent and others:
            again = approve(known.row, input=known.edited or known.row.input)
            (second,) = self.do(decide(others[0], again)).grants
            self.take(others[0], [again])
            self.grants.append((others[0], second))
        self.paused.discard(owner.owner)

    @rule(data=st.data(), digest=st.sampled_from(["d1", "d2"]), blank=st.booleans())
    @precondition(lambda self: self.awake)
    def resume(self, data: st.DataObject, digest: str, blank: bool) -> None:
        ledger = data.draw(st.sampled_from(self.awake), "process")
        turn = data.draw(st.sampled_from([*self.turns.values()]), "turn")
        work = ledger.continue_turns(
            [turn.id], digest, decided=() if blank else None, until=time.monotonic()
        )
        if digest in turn.replies:
            assert self.do(work) == {"reply": turn.replies[digest]}
        elif turn.state == "RESUMING":
            with pytest.raises(StillRunning):
                self.do(work)
        elif turn.replies and blank:
            assert self.do(work) == {"reply": [*turn.replies.values()][-1]}
        else:
            got = self.do(work)
            assert isinstance(got, Continuation)
            turn.state, turn.owner = "RESUMING", ledger.owner
            self.held.append((ledger, got))

    @rule(data=st.data(), good=st.booleans())
    @precondition(lambda self: any(led.owner not in self.paused for led, _ in self.held))
    def end_resume(self, data: st.DataObject, good: bool) -> None:
        able = [pair for pair in self.held if pair[0].owner not in self.paused]
        ledger, held = data.draw(st.sampled_from(able), "continuation")
        self.held.remove((ledger, held))
        ((id_, fence),) = held.turns
        turn = self.turns[id_]
        row = self.do(ledger.store.run(lambda tx: tx.turns([id_])))[id_]
        current = row.fence == fence and turn.owner == ledger.owner
        reply = f"{id_} {fence}"
        if not good:
            self.do(ledger.release(held))
            if current:
                turn.state, turn.owner = ("ENDED" if turn.replies else "SUSPENDED"), None
        elif row.fence == fence:
            self.do(ledger.propose(None, [], held, {"reply": reply}))
            turn.replies[held.request] = reply
            turn.state, turn.owner = "ENDED", None
        else:
            with pytest.raises(StillRunning):
                self.do(ledger.propose(None, [], held, {"reply": reply}))

    @invariant()
    def the_store_agrees(self) -> None:
        if not self.calls:
            return
        rows = self.do(self.observer.settle(list(self.calls)))
        assert {i: r.state for i, r in rows.items()} == {i: k.state for i, k in self.calls.items()}
        for id_, known in self.calls.items():
            assert rows[id_].edited == known.edited
            assert rows[id_].fence == known.fence
            assert known.runs <= 1 + (known.unknown if known.row.idempotent else 0)


def empty(url: str) -> None:
    """Drop the tables of the last sequence."""
    import psycopg

    with psycopg.connect(url, autocommit=True) as db:
        [(schema,)] = db.execute("SELECT current_schema()").fetchall()
        db.execute(f"DROP SCHEMA {schema} CASCADE; CREATE SCHEMA {schema}".encode())


@pytest.mark.parametrize("kind", ["memory", "sqlite", "postgres"])
def test_any_sequence_keeps_to_section_6(kind: str, request: pytest.FixtureRequest) -> None:
    distant = kind == "postgres"
    url = request.getfixturevalue("postgres_url") if distant else ""
    machine = type(f"Section6On{kind.title()}", (Section6,), {"store_kind": kind, "url": url})
    run_state_machine_as_test(
        machine,
        settings=settings(
            max_examples=max(1, EXAMPLES // 5) if distant else EXAMPLES,
            stateful_step_count=50,
            deadline=None,
            database=None,
            suppress_health_check=list(HealthCheck),
        ),
    )
