"""Claims whose answer is lost, that are cancelled, or that others observe (section 6)."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from stages import (
    ALICE,
    Staged,
    World,
    approve,
    call,
    command,
    decide,
    refused,
    reject,
    run,
    turn_of,
)

from sayso.errors import LedgerUnavailable, StillRunning
from sayso.ledger import Owner, Proposal, claiming, claims
from sayso.ledger.choices import Conversation, Decided, Requester
from sayso.ledger.claims import CallNotStarted, Continuation, LeaseClock, begin_all
from sayso.ledger.conformance.samples import ALL
from sayso.ledger.memory import MemoryStore
from sayso.ledger.record import Ledger
from sayso.ledger.sqlite import SqliteStore

Make = Callable[..., Ledger]


@pytest.fixture(params=["memory", "sqlite"])
def make(request: pytest.FixtureRequest, tmp_path: Path) -> Make:
    """Makes another process's ledger over the same storage."""
    world, memory = World(), MemoryStore()

    def one(**options: Any) -> Ledger:
        sqlite = request.param == "sqlite"
        store = SqliteStore(tmp_path / "approvals.db") if sqlite else memory
        return Ledger(Staged(store, world), **options)

    return one


def staged(ledger: Ledger) -> Staged:
    assert isinstance(ledger.store, Staged)
    return ledger.store


async def proposed(ledger: Ledger, *rows: Proposal, **turn: Any) -> None:
    await ledger.open()
    await ledger.propose(turn_of(*rows, **turn), rows)


async def comes(holds: Callable[[], Any]) -> Any:
    """The result of the coroutine that `holds` makes, once it is true."""
    deadline = time.monotonic() + 60
    while not (value := await holds()):
        assert time.monotonic() < deadline, "the condition did not come true in time"
        await asyncio.sleep(0.01)
    return value


def test_a_claim_of_which_the_answer_was_lost_is_given_back(make: Make) -> None:
    async def work() -> None:
        ledger, row = make(), call("t")
        await proposed(ledger, row)
        staged(ledger).loses = 1
        with pytest.raises(LedgerUnavailable):
            await decide(ledger, approve(row))

        async def granted() -> Any:
            return (await decide(ledger, approve(row))).grants

        (grant,) = await comes(granted)
        assert await ledger.finish(grant, "DONE", "wiped")
        assert (await ledger.settle([row.id]))[row.id].output == "wiped"
        await ledger.close()

    run(work())


def test_a_lost_claim_is_given_back_when_the_store_returns(make: Make) -> None:
    async def work() -> None:
        ledger, other, row = make(), make(), call("t")
        await proposed(ledger, row)
        await other.open()
        staged(ledger).loses = 1
        with pytest.raises(LedgerUnavailable):
            await decide(ledger, approve(row))
        staged(ledger).refuses = 3

        async def granted() -> Any:
            return (await decide(other, approve(row))).grants

        assert len(await comes(granted)) == 1
        await ledger.close()
        await other.close()

    run(work())


def test_a_lost_claim_takes_nothing_from_the_one_who_really_claimed(make: Make) -> None:
    async def work() -> None:
        ledger, row = make(), call("t")
        await proposed(ledger, row)
        staged(ledger).refuses = 1
        with pytest.raises(LedgerUnavailable):
            await decide(ledger, approve(row))
        (grant,) = (await decide(ledger, approve(row))).grants
        await asyncio.sleep(0.2)
        assert (await decide(ledger, approve(row))).grants == []
        assert await ledger.finish(grant, "DONE", "wiped")
        await ledger.close()

    run(work())


def test_a_cancelled_claim_is_given_back(make: Make) -> None:
    async def work() -> None:
        ledger, row = make(), call("t")
        await proposed(ledger, row)
        for _ in range(5):
            claiming = asyncio.ensure_future(decide(ledger, approve(row)))
            await asyncio.sleep(0)
            if not claiming.cancel():
                await ledger.give_back((await claiming).grants)
                continue
            with pytest.raises(asyncio.CancelledError):
                await claiming

        async def granted() -> Any:
            return (await decide(ledger, approve(row))).grants

        assert len(await comes(granted)) == 1
        await ledger.close()

    run(work())


def test_a_continuation_of_which_the_answer_was_lost_can_be_claimed(make: Make) -> None:
    async def work() -> None:
        ledger, row = make(), call("t")
        await proposed(ledger, row)
        await decide(ledger, reject(row))
        staged(ledger).loses = 1
        with pytest.raises(LedgerUnavailable):
            await ledger.continue_turns(["t"], "d", decided=None, until=_soon())
        got = await ledger.continue_turns(["t"], "d", decided=None, until=_soon())
        assert isinstance(got, Continuation)
        await ledger.close()

    run(work())


def test_a_continuation_is_released_when_the_store_returns(make: Make) -> None:
    async def work() -> None:
        ledger, row = make(), call("t")
        await proposed(ledger, row)
        await decide(ledger, reject(row))
        got = await ledger.continue_turns(["t"], "d", decided=None, until=_soon())
        assert isinstance(got, Continuation)
        staged(ledger).refuses = 3
        with pytest.raises(LedgerUnavailable):
            await ledger.propose(None, [], got, {"reply": {}})
        await ledger.release(got)
        await comes(lambda: _store_is_back(ledger))
        again = await ledger.continue_turns(["t"], "d", decided=None, until=_soon())
        assert isinstance(again, Continuation)
        await ledger.close()

    run(work())


def test_a_purge_takes_a_turn_that_ended_long_ago_but_not_while_it_goes_on_again(
    make: Make,
) -> None:
    async def work() -> None:
        ledger, row = make(), call("t")
        await proposed(ledger, row)
        await decide(ledger, reject(row))

        async def goes_on(request: str) -> Continuation:
            got = await ledger.continue_turns(["t"], request, decided=None, until=_soon())
            assert isinstance(got, Continuation)
            return got

        await ledger.propose(None, [], await goes_on("a"), {"reply": {}})
        again = await goes_on("b")
        staged(ledger).world.late = ledger.ttl + 1
        assert await ledger.purge(1e9) == (0, 0, 0)
        await ledger.propose(None, [], again, {"reply": {}})
        await ledger.release(await goes_on("c"))
        staged(ledger).world.late += ledger.ttl + 1
        assert await ledger.purge(1e9) == (0, 1, 0)
        await ledger.close()

    run(work())


async def _store_is_back(ledger: Ledger) -> bool:
    return not staged(ledger).refuses


def _soon() -> float:
    return time.monotonic() + 60


def test_a_slow_call_of_this_process_is_not_taken_for_dead(make: Make) -> None:
    async def work() -> None:
        ledger, row = make(lease=0.01), call("t")
        await proposed(ledger, row)
        (grant,) = (await decide(ledger, approve(row))).grants
        staged(ledger).world.late = 60
        found = await decide(ledger, approve(row))
        assert found.rows[row.id].state == "EXECUTING"
        assert found.grants == []
        with pytest.raises(StillRunning):
            await ledger.outcomes([row.id], time.monotonic())
        assert await ledger.finish(grant, "DONE", "wiped")
        await ledger.close()

    run(work())


def test_an_owner_whose_lease_ran_out_is_dead_for_the_others(make: Make) -> None:
    async def work() -> None:
        ledger, other, row = make(lease=500), make(lease=500), call("t")
        await proposed(ledger, row)
        await other.open()
        (grant,) = (await decide(ledger, approve(row))).grants
        staged(ledger).world.late = 400
        assert (await decide(other, approve(row))).rows[row.id].state == "EXECUTING"
        staged(ledger).world.late = 600
        found = await decide(other, approve(row))
        assert found.rows[row.id].state == "INDETERMINATE"
        assert found.grants == []
        assert await ledger.finish(grant, "DONE", "wiped"), "its real end is recorded"
        assert (await other.settle([row.id]))[row.id].output == "wiped"
        await ledger.close()
        await other.close()

    run(work())


def test_a_dead_owner_is_logged_once_though_refused_requests_look_again(
    make: Make, caplog: pytest.LogCaptureFixture
) -> None:
    async def work() -> None:
        ledger, other, row = make(lease=500), make(lease=500), call("t")
        await proposed(ledger, row)
        await other.open()
        await decide(ledger, approve(row))
        staged(ledger).world.late = 600
        for _ in range(3):
            assert await refused(other, approve(row), approve(call("t")))
        await decide(other, approve(row))
        await ledger.close()
        await other.close()

    run(work())
    reported = [line for line in caplog.messages if "its outcome is unknown" in line]
    assert len(reported) == 1


def test_a_late_finish_does_not_count_after_another_claim(make: Make) -> None:
    async def work() -> None:
        ledger, other, row = make(lease=500), make(lease=500), call("t", idempotent=True)
        await proposed(ledger, row)
        await other.open()
        (first,) = (await decide(ledger, approve(row))).grants
        assert not first.again
        staged(ledger).world.late = 600
        (second,) = (await decide(other, approve(row))).grants
        assert second.again
        assert not await ledger.finish(first, "DONE", "first")
        assert await other.finish(second, "DONE", "second")
        assert not await ledger.finish(first, "FAILED", "first")
        assert (await other.settle([row.id]))[row.id].output == "second"
        await ledger.close()
        await other.close()

    run(work())


def test_the_log_says_who_had_an_idempotent_call_run_again(make: Make) -> None:
    async def work() -> None:
        ledger, row = make(deciders="any"), call("t", idempotent=True)
        await proposed(ledger, row)
        (grant,) = (await decide(ledger, approve(row))).grants
        await ledger.finish(grant, "INDETERMINATE", "Outcome unknown: …")
        bob = Requester("bob", "acme", "u2", "a2a", "192.0.2.9")
        (grant,) = (await decide(ledger, approve(row), who=bob)).grants
        await ledger.finish(grant, "DONE", "wiped")
        await decide(ledger, approve(row), who=ALICE)
        reported = await ledger.store.run(lambda tx: tx.log(ALL))
        assert [
            (r.entry["event"], r.entry.get("who"), r.entry.get("protocol")) for r in reported
        ] == [
            ("proposed", None, row.protocol),
            ("approved", "alice", "v2"),
            ("claimed", None, None),
            ("indeterminate", None, None),
            ("approved", "bob", "a2a"),
            ("claimed", None, None),
            ("done", None, None),
        ]
        ended = (await ledger.settle([row.id]))[row.id]
        assert ended.decision is not None and ended.decision.who == "bob"
        await ledger.close()

    run(work())


def test_a_rejection_is_claimed_once_for_its_callable_and_again_when_that_was_given_back(
    make: Make,
) -> None:
    async def claimed(ledger: Ledger, row: Proposal) -> list[Proposal]:
        found = Decided()
        await ledger.claim_for_callable(row.turn, found)
        return found.acknowledged

    async def work() -> None:
        ledger, row = make(), call("t")
        await proposed(ledger, row, from_callable=True)
        await decide(ledger, reject(row))
        staged(ledger).loses = 1
        with pytest.raises(LedgerUnavailable):
            await claimed(ledger, row)
        reported = await comes(lambda: claimed(ledger, row))
        assert [r.id for r in reported] == [row.id]
        assert await claimed(ledger, row) == []
        await ledger.give_back([], reported)
        other = make()
        await other.open()
        assert [r.id for r in await claimed(other, row)] == [row.id]
        await ledger.give_back([], reported)
        assert await claimed(ledger, row) == []
        await ledger.close()
        await other.close()

    run(work())


def test_an_idempotent_call_that_was_given_back_twice_has_not_run(make: Make) -> None:
    async def work() -> None:
        ledger, row = make(), call("t", idempotent=True)
        await proposed(ledger, row)
        for _ in range(2):
            (grant,) = (await decide(ledger, approve(row))).grants
            assert not grant.again
            await ledger.give_back([grant])
            assert (await ledger.settle([row.id]))[row.id].state == "APPROVED"
        (grant,) = (await decide(ledger, approve(row))).grants
        await ledger.finish(grant, "INDETERMINATE", "Outcome unknown: …")
        for _ in range(2):
            (grant,) = (await decide(ledger, approve(row))).grants
            assert grant.again
            await ledger.give_back([grant])
            kept = (await ledger.settle([row.id]))[row.id]
            assert (kept.state, kept.output) == ("INDETERMINATE", "Outcome unknown: …")
        await ledger.close()

    run(work())


def test_an_idempotent_call_that_runs_again_is_answered_anew_though_a_continuation_died(
    make: Make,
) -> None:
    async def work() -> None:
        ledger, other, row = make(), make(), call("t", idempotent=True)

        async def goes_on(on: Ledger, digest: str) -> Any:
            return await on.continue_turns(["t"], digest, decided=None, until=_soon())

        await proposed(ledger, row)
        await other.open()
        [grant] = (await decide(ledger, approve(row))).grants
        await ledger.finish(grant, "INDETERMINATE", "unknown")
        reported = {"reply": "unknown"}
        await ledger.propose(None, [], await goes_on(ledger, "a"), reported)
        assert isinstance(await goes_on(other, "b"), Continuation)
        staged(ledger).world.dead.add(other.owner)
        assert await goes_on(ledger, "a") == reported
        [again] = (await decide(ledger, approve(row))).grants
        await ledger.finish(again, "DONE", "wiped")
        assert isinstance(await goes_on(ledger, "a"), Continuation)
        await other.close()
        await ledger.close()

    run(work())


def test_a_copy_in_the_history_does_not_run_an_idempotent_call_again(make: Make) -> None:
    async def work() -> None:
        ledger, row = make(), call("t", idempotent=True)
        await proposed(ledger, row)
        (grant,) = (await decide(ledger, approve(row))).grants
        await ledger.finish(grant, "INDETERMINATE", "Outcome unknown: …")
        copied = approve(row, copy=True, newest=False, input=None, name=None)
        assert (await decide(ledger, copied)).grants == []
        assert len((await decide(ledger, approve(row))).grants) == 1
        await ledger.close()

    run(work())


def test_a_copy_starts_what_is_approved_and_unclaimed_once(make: Make) -> None:
    async def work() -> None:
        ledger, row = make(), call("t")
        await proposed(ledger, row)
        copied = approve(row, copy=True, newest=False, input=None, name=None)
        assert (await decide(ledger, copied)).grants == []
        await decide(ledger, approve(row), claim=False)
        assert len((await decide(ledger, copied)).grants) == 1
        assert (await decide(ledger, copied)).grants == []
        await ledger.close()

    run(work())


def test_an_approved_call_expires_too(make: Make) -> None:
    async def work() -> None:
        ledger, row = make(ttl=1000), call("t")
        await proposed(ledger, row)
        await decide(ledger, approve(row), claim=False)
        staged(ledger).world.late = 1100
        copied = approve(row, copy=True, newest=False, input=None, name=None)
        found = await decide(ledger, copied)
        assert found.grants == []
        assert found.rows[row.id].state == "EXPIRED"
        assert await refused(ledger, approve(row)) == {"approval_expired"}
        assert await refused(ledger, approve(row, newest=False)) == set()
        assert (await ledger.purge(0))[0] == 1
        assert await refused(ledger, approve(row)) == {"approval_expired"}
        assert await refused(ledger, approve(row, newest=False)) == set()
        await ledger.close()

    run(work())


def test_what_was_refused_as_expired_stays_so_when_the_clock_is_set_back(make: Make) -> None:
    async def work() -> None:
        ledger, row = make(ttl=1000), call("t")
        shell = command("u", "ls", conversation="k")
        choices = [approve(row), approve(shell, id=None)]
        await proposed(ledger, row)
        await proposed(ledger, shell)
        staged(ledger).world.late = 1100
        for choice in choices:
            reported = await refused(ledger, choice, conversation=Conversation("k"))
            assert reported == {"approval_expired"}
        staged(ledger).world.late = 0
        for choice in choices:
            reported = await refused(ledger, choice, conversation=Conversation("k"))
            assert reported == {"approval_expired"}
        log = await ledger.store.run(lambda tx: tx.log(ALL))
        assert [one.entry["event"] for one in log].count("expired") == 2
        await ledger.close()

    run(work())


def test_what_has_expired_is_not_rejected_any_more(make: Make) -> None:
    async def work() -> None:
        ledger, row, decided = make(ttl=1000), call("t"), call("u")
        await proposed(ledger, row)
        await proposed(ledger, decided)
        await decide(ledger, approve(decided), claim=False)
        staged(ledger).world.late = 1100
        ids = [row.id, decided.id]
        assert await ledger.reject(ids, "canceled", ALICE, approved=True) == []
        assert {r.state for r in (await ledger.settle(ids)).values()} == {"EXPIRED"}
        await ledger.close()

    run(work())


def test_another_principal_may_approve_but_not_run_a_callables_call(make: Make) -> None:
    async def work() -> None:
        ledger, row = make(deciders="any"), call("t")
        await proposed(ledger, row, from_callable=True)
        bob = ALICE._replace(principal="bob")
        found = await decide(ledger, approve(row), who=bob)
        assert found.rows[row.id].state == "APPROVED"
        assert found.grants == [], "the callable runs it, in its own continuation"
        assert found.turns == {}
        await ledger.close()

    run(work())


def test_two_carriers_with_two_inputs_are_a_conflict(make: Make) -> None:
    async def work() -> None:
        ledger, row = make(), call("t")
        await proposed(ledger, row)

        def edit(row: Proposal, stated: dict[str, Any]) -> dict[str, Any]:
            return stated

        first = approve(row)
        second = approve(row, input={"name": "b"}, through_approvals=True)
        for both in ([first, second], [second, first]):
            assert await refused(ledger, *both, edit=edit) == {"approval_conflict"}
        third = approve(row, input={"name": "c"})
        assert await refused(ledger, third, second, edit=edit) == {"approval_conflict"}
        assert (await ledger.settle([row.id]))[row.id].state == "PENDING"
        found = await decide(ledger, second, edit=edit)
        assert found.grants[0].proposal.runs == {"name": "b"}
        assert found.grants[0].proposal.input == {"name": "a"}
        await ledger.close()

    run(work())


def test_equal_commands_of_a_trimmed_history_are_told_apart(make: Make) -> None:
    async def work() -> None:
        ledger = make()
        rows = [command("t", "ls", n, conversation="k", reference="r") for n in range(2)]
        await proposed(ledger, *rows, conversation="k", reference="r")
        where = Conversation("k", ["other"])
        first = approve(rows[0], id=None)
        second = replace(first, ordinal=1)
        found = await decide(ledger, first, second, conversation=where)
        assert [g.proposal.id for g in found.grants] == [r.id for r in rows]
        await ledger.close()

    run(work())


@pytest.mark.parametrize("key", ["", "k"], ids=["equal messages", "one conversation"])
def test_newest_command_is_found_whatever_was_proposed_before_it(key: str) -> None:
    async def work() -> None:
        # A monitor that says the same every minute has many such messages after a week.
        ledger = Ledger(MemoryStore())
        await ledger.open()
        old = [command(f"t{n}", "ls", conversation=key, reference="r") for n in range(10_000)]

        def fill(tx: Any) -> None:
            for row in old:
                row.created, row.expires, row.state = 1.0, 2.0, "EXPIRED"
                tx.put(row)

        await ledger.store.run(fill)
        row = command("new", "ls", conversation=key, reference="r")
        await proposed(ledger, row, conversation=key, reference="r")
        found = await decide(ledger, approve(row, id=None), conversation=Conversation(key, ["r"]))
        assert [g.proposal.id for g in found.grants] == [row.id]
        await ledger.close()

    run(work())


def test_thirty_two_claims_give_one_grant(make: Make) -> None:
    async def work() -> None:
        ledgers, row = [make() for _ in range(4)], call("t")
        await proposed(ledgers[0], row)
        for ledger in ledgers[1:]:
            await ledger.open()
        found = await asyncio.gather(*(decide(ledgers[n % 4], approve(row)) for n in range(32)))
        assert sum(len(f.grants) for f in found) == 1
        for ledger in ledgers:
            await ledger.close()

    run(work())


def test_a_lock_that_cannot_be_taken_refuses_the_claim(tmp_path: Path) -> None:
    async def work() -> None:
        ledger, row = Ledger(store := SqliteStore(tmp_path / "approvals.db")), call("t")
        await proposed(ledger, row)
        folder = store.path.with_name("approvals.db.owners")
        folder.rmdir()
        folder.write_text("no folder")
        with pytest.raises(LedgerUnavailable):
            await decide(ledger, approve(row))
        assert (await ledger.settle([row.id]))[row.id].state == "PENDING"
        folder.unlink()
        folder.mkdir()
        assert len((await decide(ledger, approve(row))).grants) == 1
        assert [f.name for f in folder.iterdir()] == [ledger.owner]
        await ledger.close()

    run(work())


def test_an_unknown_requester_sees_nothing(make: Make) -> None:
    async def work() -> None:
        ledger, row = make(), call("t")
        await proposed(ledger, row)
        for who in (
            ALICE._replace(principal="bob"),
            ALICE._replace(principal=None),
            ALICE._replace(tenant="other"),
        ):
            assert await refused(ledger, approve(row), who=who) == {"approval_not_issued"}
            assert (await decide(ledger, shown=[row.id], who=who)).rows == {}
        untold = Requester("alice", None, "u2")
        assert len((await decide(ledger, approve(row), who=untold)).grants) == 1
        await ledger.close()

    run(work())


def test_nothing_is_claimed_that_no_thread_would_keep_alive(
    make: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def work() -> None:
        ledger, row = make(), call("t")
        await proposed(ledger, row)
        start = threading.Thread.start

        def refuse(thread: threading.Thread) -> None:
            if thread.name == "sayso-lease":
                raise RuntimeError("can't start new thread")
            start(thread)

        with monkeypatch.context() as short:
            short.setattr("threading.Thread.start", refuse)
            for _ in range(2):
                with pytest.raises(LedgerUnavailable, match="can't start new thread"):
                    await decide(ledger, approve(row))
        (grant,) = (await decide(ledger, approve(row))).grants
        assert grant.proposal.id == row.id
        await ledger.close()

    run(work())


def test_what_is_handed_back_is_approved_unless_somebody_reported_it_unknown(make: Make) -> None:
    async def work() -> None:
        ledger, other = make(lease=500), make(lease=500)
        rows = [call("t"), call("t", 1)]
        await proposed(ledger, *rows)
        await other.open()
        (early,) = (await decide(ledger, approve(rows[0]))).grants
        await ledger.give_back([early])
        assert (await other.settle([rows[0].id]))[rows[0].id].state == "APPROVED"
        (late,) = (await decide(ledger, approve(rows[1]))).grants
        staged(ledger).world.late = 601
        reported = (await other.settle([rows[1].id]))[rows[1].id]
        assert reported.state == "INDETERMINATE"
        await ledger.give_back([late])
        ended = (await other.settle([rows[1].id]))[rows[1].id]
        assert (ended.state, (ended.output or "")[:14]) == ("FAILED", "Error: not run")
        assert (await decide(other, approve(rows[1]))).grants == []
        for grant in (early, late):
            with pytest.raises(CallNotStarted):
                grant.begin()
        await ledger.close()
        await other.close()

    run(work())


def test_a_lost_claim_that_somebody_reported_unknown_has_failed(make: Make) -> None:
    async def work() -> None:
        ledger, other, row = make(lease=500), make(lease=500), call("t")
        await proposed(ledger, row)
        await other.open()
        staged(ledger).loses = 1
        with pytest.raises(LedgerUnavailable):
            await decide(ledger, approve(row))
        # The claim is undone in the background, at the second attempt.
        staged(ledger).refuses = 1
        staged(ledger).world.late = 601
        assert (await other.settle([row.id]))[row.id].state == "INDETERMINATE"

        async def failed() -> bool:
            return (await other.settle([row.id]))[row.id].state == "FAILED"

        await comes(failed)
        await ledger.close()
        await other.close()

    run(work())


def test_a_call_begins_only_while_its_lease_lasts_less_a_margin(
    make: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    now = 1_000.0
    for module in (claims, claiming):
        monkeypatch.setattr(module, "boottime", lambda: now)

    async def work() -> None:
        nonlocal now
        ledger, rows = make(lease=10), [call("t"), call("t", 1)]
        await proposed(ledger, *rows)
        grants = [(await decide(ledger, approve(row))).grants[0] for row in rows]
        now += 7.9
        grants[0].begin()
        with pytest.raises(CallNotStarted):
            grants[0].begin()
        now += 0.2
        with pytest.raises(CallNotStarted):
            grants[1].begin()
        await ledger.close()

    run(work())


@pytest.mark.parametrize("at_once", [True, False])
def test_lease_of_a_call_counts_from_before_its_claim_was_sent(
    monkeypatch: pytest.MonkeyPatch, at_once: bool
) -> None:
    now = 1_000.0
    for module in (claims, claiming):
        monkeypatch.setattr(module, "boottime", lambda: now)

    class Slow(MemoryStore):
        """A store that takes half the lease for each answer."""

        async def run(self, work: Any) -> Any:
            nonlocal now
            now += 5
            return await super().run(work)

    async def work() -> None:
        nonlocal now
        ledger, row = Ledger(Slow(), lease=10), call("t")
        await ledger.open()
        await proposed(ledger, row)
        found = await decide(ledger, approve(row), claim=at_once)
        grant = found.grants[0] if at_once else None
        grant = grant or await ledger.claim(approve(row), found, row.id, ALICE)
        assert grant is not None
        now += 2.9
        assert grant.in_time
        # Eight seconds after it was sent, and three after it was granted.
        now += 0.2
        with pytest.raises(CallNotStarted):
            grant.begin()
        await ledger.close()

    run(work())


def test_calls_that_begin_in_one_step_begin_all_or_none(monkeypatch: pytest.MonkeyPatch) -> None:
    now = 1_000.0
    for module in (claims, claiming):
        monkeypatch.setattr(module, "boottime", lambda: now)

    async def work() -> None:
        nonlocal now
        ledger, rows = Ledger(MemoryStore(), lease=10), [call("t"), call("t", 1)]
        await proposed(ledger, *rows)
        late = (await decide(ledger, approve(rows[0]))).grants[0]
        now += 5
        early = (await decide(ledger, approve(rows[1]))).grants[0]
        now += 5
        assert (late.in_time, early.in_time) == (False, True)
        with pytest.raises(CallNotStarted):
            begin_all([early, late])
        assert early.withdraw()
        await ledger.close()

    run(work())


def test_others_consider_a_process_dead_only_after_its_lease_and_the_margin(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    here = 500.0
    monkeypatch.setattr(claims, "boottime", lambda: here)
    clock, owner = LeaseClock(10), Owner("another", "", 1, 100.0, "token")
    for now, dead in ((99.9, False), (100.1, False), (101.9, False), (102.1, True)):
        # Its own clock goes as the store's does.
        here = 500.0 + now
        assert clock.has_run_out(owner, now) is dead, now


@pytest.mark.parametrize("forgets", ["the claim", "the approval"])
def test_a_process_runs_nothing_again_that_it_began_though_the_store_forgot_it(
    make: Make, forgets: str
) -> None:
    async def work() -> None:
        ledger, row = make(), call("t")
        await proposed(ledger, row)
        if forgets == "the claim":
            await decide(ledger, approve(row), claim=False)
        before = (await ledger.settle([row.id]))[row.id]
        (grant,) = (await decide(ledger, approve(row))).grants
        grant.begin()
        await ledger.store.run(lambda tx: tx.put(replace(before)))
        found = await decide(ledger, approve(row))
        assert found.grants == []
        assert found.rows[row.id].state == "INDETERMINATE"
        assert (await ledger.settle([row.id]))[row.id].output == (
            "Outcome unknown: this process began it before, and the approvals store has lost what "
            "became of it. It may or may not have taken effect; it is not run again."
        )
        await ledger.close()

    run(work())
