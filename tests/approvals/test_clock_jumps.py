"""The store's clock is set while calls run: nobody who lives is taken for dead, nor for ever alive
who is dead."""

from __future__ import annotations

import pytest
from stages import Staged, World, approve, call, decide, run, turn_of

from sayso.ledger import Proposal
from sayso.ledger.memory import MemoryStore
from sayso.ledger.record import Ledger

LEASE = 15.0
GONE = 1.2 * LEASE + 1.0
HOUR = 3_600.0


class Processes:
    """Two processes over one store; the first runs a call."""

    def __init__(self) -> None:
        self.world = World()
        memory = MemoryStore()
        self.one, self.other = (Ledger(Staged(memory, self.world), lease=LEASE) for _ in range(2))
        self.row = call("t")

    async def begin(self) -> None:
        for ledger in (self.one, self.other):
            await ledger.open()
        await self.one.propose(turn_of(self.row), [self.row])
        assert (await decide(self.one, approve(self.row))).grants

    async def seen(self) -> str:
        """The state as the other process sees it."""
        return (await self.other.settle([self.row.id]))[self.row.id].state

    async def renew(self) -> None:
        """The first process does this three times in its lease."""

        def work(tx: object) -> None:
            rows: dict[str, Proposal] = tx.proposals([self.row.id])  # type: ignore[attr-defined]
            row = rows[self.row.id]
            assert row.owner is not None
            row.owner.lease = tx.now + LEASE  # type: ignore[attr-defined]
            tx.put(row)  # type: ignore[attr-defined]

        await self.one.store.run(work)


@pytest.mark.parametrize("looked", [True, False], ids=["looked", "new"])
@pytest.mark.parametrize("jump", [HOUR, -HOUR])
def test_nobody_who_lives_is_dead_because_the_clock_was_set(jump: float, looked: bool) -> None:
    async def work() -> None:
        two = Processes()
        await two.begin()
        if looked:
            assert await two.seen() == "EXECUTING"
        two.world.jump = jump
        assert await two.seen() == "EXECUTING"
        for _ in range(6):
            two.world.late += LEASE / 3
            await two.renew()
            assert await two.seen() == "EXECUTING"

    run(work())


def test_who_dies_as_the_clock_is_set_ahead_is_dead_after_a_lease() -> None:
    async def work() -> None:
        two = Processes()
        await two.begin()
        two.world.jump = HOUR
        assert await two.seen() == "EXECUTING"
        two.world.late += GONE
        assert await two.seen() == "INDETERMINATE"

    run(work())


def test_who_dies_as_the_clock_is_set_back_is_not_alive_for_an_hour() -> None:
    async def work() -> None:
        two = Processes()
        await two.begin()
        two.world.jump = -HOUR
        assert await two.seen() == "EXECUTING"
        two.world.late += GONE
        assert await two.seen() == "EXECUTING", "it may have been given by the new clock"
        two.world.late += 4 * LEASE + 1.0
        assert await two.seen() == "INDETERMINATE"

    run(work())


def test_small_steps_of_a_clock_that_is_kept_right_change_nothing() -> None:
    async def work() -> None:
        two = Processes()
        await two.begin()
        two.world.jump = 0.5
        assert await two.seen() == "EXECUTING"
        two.world.late += GONE
        assert await two.seen() == "INDETERMINATE"

    run(work())
