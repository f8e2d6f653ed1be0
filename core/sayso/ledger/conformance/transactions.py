"""Checks of a store's transactions."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable

from sayso.ledger import (
    Reading,
    Store,
    Transaction,
    log,
)
from sayso.ledger.conformance.samples import (
    ALL,
    Check,
    Factory,
    found,
    get,
    opened,
    proposal,
    put,
    turn,
)


async def a_transaction_sees_its_own_writes(factory: Factory) -> None:
    """Puts show in reads of the same transaction."""

    def work(tx: Transaction) -> None:
        tx.put(proposal("a"))
        tx.put(proposal("a", state="APPROVED"))
        tx.put_turn(turn("t"))
        log.append(tx, {"event": "x", "id": "a"})
        assert tx.proposals(["a"])["a"].state == "APPROVED"
        assert [p.id for p in tx.find(state="APPROVED")] == ["a"]
        assert tx.find(state="PENDING") == []
        assert list(tx.turns(["t"])) == ["t"]
        (row,) = tx.log({log.chain_of("a"): 0})
        assert (row.seq, row.at, row.entry) == (1, tx.now, {"event": "x", "id": "a"})
        assert tx.heads() == {row.chain: (1, row.hash)}

    async with opened(factory) as store:
        await store.run(work)


async def what_raises_changes_nothing(factory: Factory) -> None:
    """A work that raises is rolled back whole, and its error passes as it is."""
    raised = KeyError("mine")

    def work(tx: Transaction) -> None:
        tx.put(proposal("a", state="APPROVED"))
        tx.put(proposal("b"))
        tx.put_turn(turn("t"))
        log.append(tx, {"event": "lost"})
        raise raised

    async with opened(factory) as store:
        await put(store, proposal("a"))
        try:
            await store.run(work)
        except KeyError as error:
            assert error is raised
        else:
            raise AssertionError("the error of the work was lost")
        assert await get(store, "a") == proposal("a")
        assert await get(store, "b") is None
        assert await store.run(lambda tx: tx.turns(["t"])) == {}
        assert await store.run(lambda tx: (tx.heads(), tx.log(ALL))) == ({}, [])


async def one_that_raises_undoes_no_other(factory: Factory) -> None:
    """Of works that run at once, those that raise are undone and the others stay."""

    def work(number: int) -> Callable[[Transaction], int]:
        def run(tx: Transaction) -> int:
            tx.put(proposal(f"p{number:02}"))
            if number % 3 == 0:
                raise ValueError(number)
            log.append(tx, {"number": number, "id": f"p{number:02}"})
            return number

        return run

    async with opened(factory) as store:
        works = [store.run(work(n)) for n in range(30)]
        results = await asyncio.gather(*works, return_exceptions=True)
        for number, result in enumerate(results):
            assert isinstance(result, ValueError) if number % 3 == 0 else result == number
        kept = [n for n in range(30) if n % 3]
        assert sorted(await found(store)) == [f"p{n:02}" for n in kept]
        rows = await store.run(lambda tx: tx.log(ALL))
        assert sorted(row.entry["number"] for row in rows) == kept
        assert await log.verify_store(store) is None


def _increment(tx: Transaction) -> None:
    row = tx.proposals(["counter"])["counter"]
    row.fence += 1
    tx.put(row)


async def concurrent_increments_all_count(factory: Factory) -> None:
    """32 transactions that read and write one row, from several event loops."""

    def elsewhere(store: Store) -> None:
        async def eight() -> None:
            await asyncio.gather(*(store.run(_increment) for _ in range(8)))

        asyncio.run(eight())

    async with opened(factory) as store:
        await put(store, proposal("counter"))
        threads = [threading.Thread(target=elsewhere, args=(store,)) for _ in range(3)]
        for thread in threads:
            thread.start()
        await asyncio.gather(*(store.run(_increment) for _ in range(8)))
        for thread in threads:
            await asyncio.to_thread(thread.join)
        counter = await get(store, "counter")
        assert counter is not None
        assert counter.fence == 32


async def rows_named_ahead_are_current(factory: Factory) -> None:
    """Works that say what they read first read what the works before them have left."""
    ids = ["a", "missing"]

    def step(tx: Transaction) -> tuple[int, int]:
        row, held = tx.proposals(ids)["a"], tx.turns(["t"])["t"]
        row.fence += 1
        held.fence += 1
        tx.put(row)
        tx.put_turn(held)
        assert tx.proposals(ids)["a"].fence == row.fence
        assert tx.turns(["t"])["t"].fence == held.fence
        return row.fence, held.fence

    def other_rows(tx: Transaction) -> list[str]:
        return [*tx.proposals(["b"]), *tx.turns(["t", "u"]), *tx.turns(["missing"])]

    async with opened(factory) as store:
        await put(store, turn("t"), turn("u"), proposal("a", turn="t"), proposal("b", turn="u"))
        works = [Reading(step, proposals=ids), Reading(step, turns=["t"])] * 10
        fences = await asyncio.gather(*(store.run(work) for work in works))
        assert sorted(fences) == [(n, n) for n in range(1, 21)]
        for work in (Reading(other_rows, proposals=ids), Reading(other_rows, turns=["u", "t"])):
            assert await store.run(work) == ["b", "t", "u"]
        many = [str(number) for number in range(1_000)]
        assert await store.run(Reading(other_rows, proposals=many)) == ["b", "t", "u"]


async def two_stores_see_one_another(factory: Factory) -> None:
    """Two stores on one storage, as two processes have them, and one winner of each claim."""
    async with opened(factory) as first:
        if not first.shared:
            return
        async with opened(factory) as second:
            await put(first, *(proposal(f"p{n}") for n in range(10)), proposal("counter"))
            assert await get(second, "counter") == proposal("counter")

            def claim(name: str) -> Callable[[Transaction], bool]:
                def run(tx: Transaction) -> bool:
                    row = tx.proposals([name])[name]
                    if row.state != "PENDING":
                        return False
                    row.state = "EXECUTING"
                    tx.put(row)
                    log.append(tx, {"event": "claimed", "id": name})
                    return True

                return run

            stores = (first, second, first, second)
            claims = [store.run(claim(f"p{n}")) for n in range(10) for store in stores]
            assert sum(await asyncio.gather(*claims)) == 10
            await asyncio.gather(*(store.run(_increment) for store in stores * 4))
            counter = await get(first, "counter")
            assert counter is not None
            assert counter.fence == 16
            assert await log.verify_store(second) is None


async def a_cancelled_caller_breaks_nothing(factory: Factory) -> None:
    """Cancelled while its work waits or runs, a caller leaves the store whole and usable."""
    async with opened(factory) as store:
        await put(store, proposal("counter"))
        tasks = [asyncio.create_task(store.run(_increment)) for _ in range(20)]
        await asyncio.sleep(0)
        for task in tasks[::2]:
            task.cancel()
        results = await asyncio.gather(*tasks, return_exceptions=True)
        kept = sum(result is None for result in results)
        counter = await get(store, "counter")
        assert counter is not None
        assert 10 <= kept <= counter.fence <= 20


CHECKS: tuple[Check, ...] = (
    a_transaction_sees_its_own_writes,
    what_raises_changes_nothing,
    one_that_raises_undoes_no_other,
    concurrent_increments_all_count,
    rows_named_ahead_are_current,
    two_stores_see_one_another,
    a_cancelled_caller_breaks_nothing,
)
