"""A store loses ends and claims, such as a standby that takes over or a restored database."""

from __future__ import annotations

import time
from collections.abc import Callable, Collection
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from stages import ALICE, Staged, World, approve, call, decide, run, turn_of

from sayso.ledger import Proposal, SuspendedTurn
from sayso.ledger.claims import Continuation, Lease
from sayso.ledger.memory import MemoryStore
from sayso.ledger.record import Ledger
from sayso.ledger.sqlite import SqliteStore

Make = Callable[..., Ledger]
LEASE = 500.0
LATER = 2 * LEASE
LOST = (
    "Outcome unknown: this process ran it, and the approvals store has lost what became of it. "
    "It may or may not have taken effect; it is not run again."
)


@pytest.fixture(params=["memory", "sqlite"])
def make(request: pytest.FixtureRequest, tmp_path: Path) -> Make:
    """Makes the ledger of one process more over the same storage."""
    world, memory = World(), MemoryStore()

    def one() -> Ledger:
        sqlite = request.param == "sqlite"
        store = SqliteStore(tmp_path / "approvals.db") if sqlite else memory
        return Ledger(Staged(store, world), lease=LEASE)

    return one


async def opened(*ledgers: Ledger) -> Ledger:
    for ledger in ledgers:
        await ledger.open()
    return ledgers[0]


async def row_of(ledger: Ledger, id_: str) -> Proposal:
    return await ledger.store.run(lambda tx: tx.proposals([id_])[id_])


async def turn_as_stored(ledger: Ledger, id_: str) -> SuspendedTurn:
    return await ledger.store.run(lambda tx: tx.turns([id_])[id_])


async def restored(ledger: Ledger, *rows: Proposal | SuspendedTurn) -> None:
    """The store has forgotten all that became of these since."""

    def work(tx: Any) -> None:
        for row in rows:
            (tx.put if isinstance(row, Proposal) else tx.put_turn)(row)

    await ledger.store.run(work)


def test_a_call_whose_end_the_store_lost_is_unknown_at_once_to_the_process_that_ran_it(
    make: Make, caplog: pytest.LogCaptureFixture
) -> None:
    async def work() -> None:
        ledger, row = await opened(make()), call("t")
        await ledger.propose(turn_of(row), [row])
        (grant,) = (await decide(ledger, approve(row))).grants
        running = await row_of(ledger, row.id)
        assert (await ledger.settle([row.id]))[row.id].state == "EXECUTING", "it runs"
        assert await ledger.finish(grant, "DONE", "wiped")
        await restored(ledger, running)
        rows = await ledger.outcomes([row.id], time.monotonic() + 5)
        assert (rows[row.id].state, rows[row.id].output) == ("INDETERMINATE", LOST)
        await ledger.close()

    run(work())
    assert any("the approvals store has lost what became of it" in line for line in caplog.messages)


def test_a_turn_whose_end_the_store_lost_is_continued_again(make: Make) -> None:
    async def work() -> None:
        ledger, row = await opened(make()), call("t")
        await ledger.propose(turn_of(row), [row])
        until = time.monotonic() + 5
        first = await ledger.continue_turns(["t"], "m", decided=None, until=until)
        assert isinstance(first, Continuation)
        going_on = await turn_as_stored(ledger, "t")
        await ledger.propose(None, [], first, {"text": "said"})
        await restored(ledger, going_on)
        again = await ledger.continue_turns(["t"], "m", decided=None, until=until)
        assert isinstance(again, Continuation)
        await ledger.release(again)
        await ledger.close()

    run(work())


def test_the_end_of_the_turn_is_doubted_as_that_of_its_call(make: Make) -> None:
    """The end of a call and the claim of its continuation, which are one transaction."""

    async def work() -> None:
        ledger, row = await opened(make()), call("t")
        await ledger.propose(turn_of(row), [row])
        (grant,) = (await decide(ledger, approve(row))).grants
        running = await row_of(ledger, row.id)
        written, continuing = await ledger.finish_last(grant, "DONE", "wiped", "m")
        assert written and continuing is not None
        going_on = await turn_as_stored(ledger, "t")
        await ledger.propose(None, [], continuing, {"text": "said"})
        await restored(ledger, running, going_on)
        assert (await ledger.settle([row.id]))[row.id].output == LOST
        until = time.monotonic() + 5
        again = await ledger.continue_turns(["t"], "m", decided=None, until=until)
        assert isinstance(again, Continuation)
        await ledger.close()

    run(work())


class _Renewals:
    """A store that notes what it is asked to renew."""

    shared = True

    def __init__(self) -> None:
        self.renewed: list[Collection[str]] = []

    def hold(self, owner: str) -> None:
        """Nothing to hold."""

    def renew(self, owner: str, seconds: float, ids: Collection[str]) -> None:
        self.renewed.append(list(ids))


def test_only_what_runs_is_renewed() -> None:
    store, held = _Renewals(), [["a"], [], ["b"], []]
    lease = Lease(store, "me", 0.003, lambda: held.pop(0) if held else [])  # type: ignore[arg-type]
    lease.hold()
    deadline = time.monotonic() + 30
    while held:
        assert time.monotonic() < deadline
        time.sleep(0.001)
    lease.stop()
    assert store.renewed == [["a"], ["b"]]


def test_what_is_held_is_what_was_granted_and_has_not_ended(make: Make) -> None:
    async def work() -> None:
        ledger, first, second = await opened(make()), call("t"), call("t", 1)
        held = ledger._claiming.held
        await ledger.propose(turn_of(first, second), [first, second])
        found = await decide(ledger, approve(first), approve(second))
        assert sorted(held.ids()) == sorted([first.id, second.id])
        one, other = found.grants
        assert await ledger.finish(one, "DONE", "wiped")
        assert held.ids() == [other.proposal.id]
        await ledger.give_back([other])
        assert held.ids() == []
        until = time.monotonic() + 5
        going_on = await ledger.continue_turns(["t"], "m", decided=None, until=until)
        assert isinstance(going_on, Continuation)
        assert held.ids() == ["t"]
        await ledger.release(going_on)
        assert held.ids() == []
        await ledger.close()

    run(work())


def test_others_take_a_call_whose_end_the_store_lost_for_dead_after_its_lease(make: Make) -> None:
    async def work() -> None:
        ledger, other, row = make(), make(), call("t")
        await opened(ledger, other)
        await ledger.propose(turn_of(row), [row])
        (grant,) = (await decide(ledger, approve(row))).grants
        running = await row_of(ledger, row.id)
        assert await ledger.finish(grant, "DONE", "wiped")
        await restored(ledger, running)
        assert (await other.settle([row.id]))[row.id].state == "EXECUTING"
        assert isinstance(other.store, Staged)
        other.store.world.late = LATER
        assert (await other.settle([row.id]))[row.id].state == "INDETERMINATE"
        for each in (ledger, other):
            await each.close()

    run(work())


@pytest.mark.parametrize("lost", ["the claim", "the decision"])
def test_a_call_whose_start_the_store_lost_takes_its_outcome(make: Make, lost: str) -> None:
    async def work() -> None:
        ledger, other, row = make(), make(), call("t")
        await opened(ledger, other)
        await ledger.propose(turn_of(row), [row])
        if lost == "the claim":
            await decide(ledger, approve(row), claim=False)
        before = await row_of(ledger, row.id)
        (grant,) = (await decide(ledger, approve(row))).grants
        grant.begin()
        await restored(ledger, before)
        assert await ledger.finish(grant, "DONE", "wiped")
        found = await decide(other, approve(row))
        assert found.grants == []
        done = found.rows[row.id]
        assert (done.state, done.output, done.fence) == ("DONE", "wiped", grant.fence)
        assert done.decision is not None and done.decision.who == ALICE.principal
        for each in (ledger, other):
            await each.close()

    run(work())


def test_a_call_that_another_process_claims_after_the_loss_is_not_finished_by_the_first(
    make: Make,
) -> None:
    async def work() -> None:
        ledger, other, row = make(), make(), call("t")
        await opened(ledger, other)
        await ledger.propose(turn_of(row), [row])
        await decide(ledger, approve(row), claim=False)
        before = await row_of(ledger, row.id)
        (grant,) = (await decide(ledger, approve(row))).grants
        await restored(ledger, replace(before))
        (second,) = (await decide(other, approve(row))).grants
        assert second.fence == grant.fence, "the fence alone does not tell the two apart"
        assert not await ledger.finish(grant, "DONE", "by the first")
        assert await other.finish(second, "DONE", "by the second")
        assert (await ledger.settle([row.id]))[row.id].output == "by the second"
        for each in (ledger, other):
            await each.close()

    run(work())


def test_what_a_claim_under_way_claims_is_not_doubted(make: Make) -> None:
    """The store has it, and its answer is on the way."""

    async def work() -> None:
        ledger, row = await opened(make()), call("t")
        await ledger.propose(turn_of(row), [row])
        seen: list[str] = []
        staged = ledger.store
        assert isinstance(staged, Staged)
        answer = staged.run

        async def slow(work_: Any) -> Any:
            value = await answer(work_)
            if not seen:
                seen.append("")
                seen[0] = (await ledger.settle([row.id]))[row.id].state
            return value

        staged.run = slow  # type: ignore[method-assign]
        assert (await decide(ledger, approve(row))).grants
        assert seen == ["EXECUTING"]
        await ledger.close()

    run(work())
