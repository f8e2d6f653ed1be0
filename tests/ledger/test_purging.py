"""A purge leaves time for others."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

from sayso.ledger.conformance.samples import proposal, put
from sayso.ledger.memory import MemoryStore
from sayso.ledger.record import Ledger


class SlowStore(MemoryStore):
    """A store that takes two milliseconds for each row that a purge removes."""

    def __init__(self) -> None:
        super().__init__()
        self.batches: list[int] = []

    async def run(self, work: Callable[[Any], Any]) -> Any:
        counts = await super().run(work)
        if isinstance(counts, tuple):
            self.batches.append(sum(counts))
            await asyncio.sleep(0.002 * sum(counts))
        return counts


def test_batches_of_a_purge_are_no_larger_than_the_store_can_bear() -> None:
    async def work() -> None:
        store = SlowStore()
        ledger = Ledger(store)
        await ledger.open()
        rows = [proposal(f"p{n}", state="DONE", finished=1.0, output="x") for n in range(400)]
        await put(store, *rows)
        assert await ledger.purge(1.0) == (400, 0, 0)
        await ledger.close()
        first, *others, none = store.batches
        assert (first, none) == (100, 0)
        assert others
        assert max(others) * 0.002 <= 0.1

    asyncio.run(work())


def test_old_calls_are_forgotten_with_their_log_only_where_that_is_asked_for() -> None:
    async def work() -> None:
        store = MemoryStore()
        ledger = Ledger(store)
        await ledger.open()
        await put(store, *(proposal(f"p{n}", state="DONE", finished=1.0) for n in range(3)))
        assert await ledger.purge(1.0) == (3, 0, 0)
        assert len(await store.run(lambda tx: tx.find())) == 3
        assert await ledger.purge(1.0, 2.0) == (0, 0, 3)
        assert await store.run(lambda tx: tx.find()) == []
        await ledger.close()

    asyncio.run(work())
