"""Checks of a store's transactions."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable

from sayso.ledger import Reading, Store, Transaction, log
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
    """A transaction reads its own writes."""

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
    """If the work raises, its transaction is rolled back whole, and the error is passed on
    unchanged."""
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
    """Of concurrent works, only those that raise are undone."""

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
    """A work that names its rows in advance reads them as earlier works left them."""
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
    """Two stores on one storage, as in two processes; each claim has one winner."""
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
    """A caller cancelled while its work waits or runs leaves the store consistent and usable."""
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


async def a_row_that_was_not_there_is_inserted_once(factory: Factory) -> None:
    """Of works that find no row and insert one, one inserts it and the others find it."""

    def claim(tx: Transaction) -> bool:
        if tx.proposals(["new"]):
            return False
        tx.put(proposal("new", state="EXECUTING"))
        tx.put_turn(turn("t"))
        log.append(tx, {"event": "claimed", "id": "new"})
        return True

    async with opened(factory) as store, opened(factory) as second:
        stores = [store, second] if store.shared else [store]
        works = (claim, Reading(claim, proposals=["new"]))
        won = await asyncio.gather(*(s.run(w) for _ in range(8) for s in stores for w in works))
        assert sum(won) == 1
        assert await log.verify_store(store) is None
        assert len(await store.run(lambda tx: tx.log(ALL))) == 1


async def what_is_read_stands_until_the_end(factory: Factory) -> None:
    """Calls of one turn, read by id, by a search or with their turn, and written back with contents
    by several stores at once: nothing is lost, and nobody waits for ever."""
    names = [f"p{number}" for number in range(6)]

    def step(name: str, found: str) -> Callable[[Transaction], None]:
        def work(tx: Transaction) -> None:
            rows = tx.find(turn="t") if found == "find" else tx.proposals([name]).values()
            (row,) = (row for row in rows if row.id == name)
            (held,) = tx.turns(["t"]).values()
            others = {row.id: row for row in tx.find(turn="t")}
            assert others[name].output == row.output
            row.output = f"{int(row.output or 0) + 1}"
            held.fence += 1
            tx.put(row)
            tx.put_turn(held)

        return work

    async with opened(factory) as store, opened(factory) as second:
        stores = [store, second] if store.shared else [store]
        await put(store, turn("t"), *(proposal(name, turn="t") for name in names))
        works = [
            each.run(Reading(step(name, how), proposals=[name] if how == "named" else []))
            for name in names
            for how in ("named", "find", "ids")
            for each in stores
        ]
        await asyncio.gather(*works)
        rows = await store.run(lambda tx: tx.proposals(names))
        assert {row.output for row in rows.values()} == {str(3 * len(stores))}
        assert (await store.run(lambda tx: tx.turns(["t"])))["t"].fence == len(works)


async def a_reading_that_writes_all_the_same_is_atomic(factory: Factory) -> None:
    """Works that announce that they only read, and then write, are all counted."""

    async with opened(factory) as store, opened(factory) as second:
        stores = [store, second] if store.shared else [store]
        await put(store, proposal("counter"))
        reading = Reading(_increment, proposals=["counter"], only=True)
        await asyncio.gather(*(each.run(reading) for _ in range(10) for each in stores))
        look = Reading(lambda tx: tx.proposals(["counter"])["counter"], only=True)
        assert (await store.run(look)).fence == 10 * len(stores)


async def a_note_is_swapped_by_one_of_many(factory: Factory) -> None:
    """Of works that replace the note that all of them have read, one does, and the others are told
    that they did not."""

    def count(tx: Transaction) -> bool:
        old = tx.notes("count")["count"]
        return tx.swap("count", old, str(int(old) + 1))

    def swaps(old: str | None, new: str | None) -> Callable[[Transaction], bool]:
        return lambda tx: tx.swap("one", old, new)

    async with opened(factory) as store, opened(factory) as second:
        stores = [store, second] if store.shared else [store]
        made = await asyncio.gather(*(s.run(swaps(None, "a")) for _ in range(4) for s in stores))
        assert sum(made) == 1
        assert not await store.run(swaps("b", "c"))
        assert await store.run(swaps("a", "b"))
        assert not await store.run(swaps("a", None))
        assert await store.run(swaps("b", None))
        assert await store.run(lambda tx: tx.notes("one")) == {}
        await store.run(lambda tx: tx.note("count", "0"))
        counted = await asyncio.gather(*(s.run(count) for _ in range(12) for s in stores))
        total = await store.run(lambda tx: tx.notes("count"))
        assert 1 <= sum(counted) == int(total["count"])
        assert await store.run(Reading(swaps(None, "x"), only=True))


async def a_work_alone_comes_after_all_started_works(factory: Factory) -> None:
    """Also after a work whose caller was cancelled."""
    started, free = threading.Event(), threading.Event()

    def slow(tx: Transaction) -> None:
        started.set()
        free.wait(60)
        tx.put(proposal("claimed", state="EXECUTING"))

    async with opened(factory) as store:
        if not store.shared:
            return
        waiting = asyncio.ensure_future(store.run(slow))
        await asyncio.to_thread(started.wait, 60)
        waiting.cancel()
        look = Reading(lambda tx: [row.id for row in tx.find(state="EXECUTING")], alone=True)
        looking = asyncio.ensure_future(store.run(look))
        await asyncio.sleep(0.05)
        assert not looking.done()
        free.set()
        assert await looking == ["claimed"]


CHECKS: tuple[Check, ...] = (
    a_transaction_sees_its_own_writes,
    what_raises_changes_nothing,
    one_that_raises_undoes_no_other,
    concurrent_increments_all_count,
    rows_named_ahead_are_current,
    two_stores_see_one_another,
    a_cancelled_caller_breaks_nothing,
    a_row_that_was_not_there_is_inserted_once,
    what_is_read_stands_until_the_end,
    a_reading_that_writes_all_the_same_is_atomic,
    a_note_is_swapped_by_one_of_many,
    a_work_alone_comes_after_all_started_works,
)
