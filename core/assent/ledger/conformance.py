"""What every store must do, as checks that any test suite can run.

    import asyncio, pytest
    from assent.ledger.conformance import CHECKS

    @pytest.mark.parametrize("check", CHECKS, ids=lambda check: check.__name__)
    def test_my_store_conforms(check, make_empty_database):
        asyncio.run(check(lambda: MyStore(make_empty_database)))

A check gets a factory of stores over one storage, empty when the check begins. Each call of the
factory gives a store that is not opened; a store that is not `shared` is made once only.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any

from assent.errors import LedgerUnavailable
from assent.ledger import (
    Decision,
    LogRow,
    Owner,
    Proposal,
    Reading,
    Store,
    SuspendedTurn,
    Transaction,
    log,
)

Factory = Callable[[], Store]
Check = Callable[[Factory], Awaitable[None]]

STRANGE = "NUL \0, pile \U0001f4a9, lone \ud800, line \u2028, quote \"'\\ %s ? $1 :x {} \r\n\t"
"""Text that has broken stores before."""

NESTED: dict[str, Any] = {
    STRANGE: [STRANGE, {"": None}, [[[]]], {"a": {"b": {"c": [1, 2.5, True, False, None]}}}],
    "huge": [2**53 + 1, -(2**64), 10**300, 0, -1],
    "floats": [0.1, 1e-300, 1.7976931348623157e308, -0.5],
    "empty": {"list": [], "object": {}, "text": ""},
}


def proposal(name: str, **values: Any) -> Proposal:
    """A proposal whose id is `name`, created at 1,000 and expiring at 2,000."""
    given: dict[str, Any] = {
        "id": name,
        "kind": "tool_call",
        "name": "delete_pod",
        "input": {"name": name},
        "turn": "turn",
        "index": 0,
        "call_id": f"call-{name}",
        "created": 1_000.0,
        "expires": 2_000.0,
    }
    return Proposal(**given | values)


def turn(name: str, **values: Any) -> SuspendedTurn:
    """A suspended turn whose id is `name`, created at 1,000."""
    given: dict[str, Any] = {"id": name, "created": 1_000.0}
    return SuspendedTurn(**given | values)


@asynccontextmanager
async def opened(factory: Factory) -> AsyncIterator[Store]:
    """A store of `factory`, open within the block."""
    store = factory()
    await store.open()
    try:
        yield store
    finally:
        await store.close()


async def put(store: Store, *rows: Proposal | SuspendedTurn) -> None:
    """Write `rows` in one transaction."""

    def work(tx: Transaction) -> None:
        for row in rows:
            if isinstance(row, Proposal):
                tx.put(row)
            else:
                tx.put_turn(row)

    await store.run(work)


async def get(store: Store, name: str) -> Proposal | None:
    """The proposal `name`."""
    return await store.run(lambda tx: tx.proposals([name]).get(name))


async def found(store: Store, **values: Any) -> list[str]:
    """The ids that `find` gives."""
    return await store.run(lambda tx: [p.id for p in tx.find(**values)])


async def rows_come_back_as_they_were(factory: Factory) -> None:
    """Each field of each row, whatever JSON value it holds."""
    decision = Decision(True, 1_001.5, "me", True, STRANGE, "::1", STRANGE, True)
    owner = Owner("owner", "boot", 7, 1_500.25)
    full = proposal(
        "full",
        kind="command",
        input=NESTED,
        conversation=STRANGE,
        reference=STRANGE,
        turn=STRANGE,
        description=STRANGE,
        input_description=NESTED,
        intent=STRANGE,
        principal=STRANGE,
        tenant=STRANGE,
        user=STRANGE,
        protocol="v2",
        address="127.0.0.1",
        client=STRANGE,
        state="EXECUTING",
        idempotent=True,
        decision=decision,
        edited=NESTED,
        owner=owner,
        fence=7,
        finished=1_600.125,
        duration=0.1,
        output=STRANGE,
        session=NESTED,
        index=3,
    )
    waiting = turn(
        STRANGE,
        conversation=STRANGE,
        reference=STRANGE,
        principal=STRANGE,
        tenant=STRANGE,
        user=STRANGE,
        transcript=[NESTED, {}],
        prefix=STRANGE,
        calls=[STRANGE, "b"],
        from_callable=True,
        state="RESUMING",
        request=STRANGE,
        reply=NESTED,
        owner=owner,
        fence=9,
        ended=1_700.5,
    )
    async with opened(factory) as store:
        await put(store, full, waiting, proposal("bare"), turn("bare"))
        assert await get(store, "full") == full
        assert await get(store, "bare") == proposal("bare")
        turns = await store.run(lambda tx: tx.turns([STRANGE, "bare", "unknown"]))
        assert turns == {STRANGE: waiting, "bare": turn("bare")}
        assert await found(store, conversation=STRANGE, turn=STRANGE, owner="owner") == ["full"]
        unknown = [STRANGE, "", "x" * 10_000, "%", "' OR 1=1"]
        assert await store.run(lambda tx: tx.proposals(unknown)) == {}


async def long_texts_come_back(factory: Factory) -> None:
    """A megabyte of output, and identifiers far longer than an index likes."""
    long = proposal(
        "long",
        kind="command",
        conversation="c" * 100_000,
        output="x\0\u20ac" * 350_000,
        reference="r" * 100_000,
    )
    near = proposal("near", conversation="c" * 100_001)
    async with opened(factory) as store:
        await put(store, long, near)
        assert await get(store, "long") == long
        assert await found(store, conversation="c" * 100_000) == ["long"]


async def rows_are_copies(factory: Factory) -> None:
    """Changing what was put or read changes nothing that is stored."""
    async with opened(factory) as store:
        given = proposal("a", input={"list": [1]})
        await put(store, given)
        given.input["list"].append(2)
        read = await get(store, "a")
        assert read is not None
        read.input["list"].append(3)
        read.state = "DONE"
        assert await get(store, "a") == proposal("a", input={"list": [1]})


async def a_transaction_sees_its_own_writes(factory: Factory) -> None:
    """Puts show in reads of the same transaction."""

    def work(tx: Transaction) -> None:
        tx.put(proposal("a"))
        tx.put(proposal("a", state="APPROVED"))
        tx.put_turn(turn("t"))
        row = log.append(tx, {"event": "x"})
        assert tx.proposals(["a"])["a"].state == "APPROVED"
        assert [p.id for p in tx.find(state="APPROVED")] == ["a"]
        assert tx.find(state="PENDING") == []
        assert list(tx.turns(["t"])) == ["t"]
        assert tx.last_log() == row
        assert tx.log() == [row]

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
        assert await store.run(lambda tx: (tx.last_log(), tx.log())) == (None, [])


async def one_that_raises_undoes_no_other(factory: Factory) -> None:
    """Of works that run at once, those that raise are undone and the others stay."""

    def work(number: int) -> Callable[[Transaction], int]:
        def run(tx: Transaction) -> int:
            tx.put(proposal(f"p{number:02}"))
            if number % 3 == 0:
                raise ValueError(number)
            log.append(tx, {"number": number})
            return number

        return run

    async with opened(factory) as store:
        works = [store.run(work(n)) for n in range(30)]
        results = await asyncio.gather(*works, return_exceptions=True)
        for number, result in enumerate(results):
            assert isinstance(result, ValueError) if number % 3 == 0 else result == number
        kept = [n for n in range(30) if n % 3]
        assert sorted(await found(store)) == [f"p{n:02}" for n in kept]
        rows = await store.run(lambda tx: tx.log())
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
                    log.append(tx, {"event": "claimed"})
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


async def rows_outlive_the_store(factory: Factory) -> None:
    """Closed and opened again, a shared store still has them; a closed one refuses to run."""
    store = factory()
    await store.open()
    await put(store, proposal("a"))
    await store.close()
    await store.close()
    try:
        await store.run(lambda tx: tx.find())
    except LedgerUnavailable:
        pass
    else:
        raise AssertionError("a closed store ran a work")
    if store.shared:
        async with opened(factory) as again:
            assert await get(again, "a") == proposal("a")


async def find_takes_every_filter(factory: Factory) -> None:
    """Each filter alone, all of them together, and values that are empty."""
    owner = Owner("owner-1", "boot", 1, 5.0)
    async with opened(factory) as store:
        await put(
            store,
            proposal("a", kind="command", turn="t1", conversation="c1", reference="r1"),
            proposal(
                "b",
                kind="command",
                turn="t1",
                conversation="c1",
                reference="r2",
                index=1,
                state="DONE",
            ),
            proposal(
                "c",
                kind="command",
                turn="t2",
                conversation="c2",
                reference="r1",
                state="EXECUTING",
                owner=owner,
                created=1_001.0,
            ),
        )
        assert await found(store) == ["a", "b", "c"]
        assert await found(store, turn="t1") == ["a", "b"]
        assert await found(store, conversation="c2") == ["c"]
        assert await found(store, reference="r1") == ["a", "c"]
        assert await found(store, state="DONE") == ["b"]
        assert await found(store, owner="owner-1") == ["c"]
        assert await found(store, turn="t1", conversation="c1", reference="r2", state="DONE") == [
            "b"
        ]
        assert await found(store, reference="r1", state="DONE") == []
        assert await found(store, conversation="") == []


async def find_pages_in_order(factory: Factory) -> None:
    """By `created`, then `index`, or the other way round; each row on exactly one page."""
    rows = [proposal(f"p{n:02}", created=1_000.0 + n // 4, index=3 - n % 4) for n in range(24)]
    order = [p.id for p in sorted(rows, key=lambda p: p.order)]
    async with opened(factory) as store:
        await put(store, *reversed(rows))
        for given in ({}, {"state": "PENDING"}, {"turn": "turn"}):
            for newest in (False, True):
                pages: list[str] = []
                way = {"newest": newest, "limit": 7, **given}
                while page := await found(store, after=pages[-1] if pages else None, **way):
                    assert len(page) <= 7
                    pages += page
                assert pages == (order[::-1] if newest else order)


async def a_renewal_extends_held_rows_only(factory: Factory) -> None:
    """Leases of EXECUTING proposals and RESUMING turns of that owner, from another thread."""

    def held(name: str) -> Owner:
        return Owner(name, "boot", 1, 5.0)

    async with opened(factory) as store:
        await put(
            store,
            proposal("mine", state="EXECUTING", owner=held("me")),
            proposal("done", state="DONE", owner=held("me")),
            proposal("other", state="EXECUTING", owner=held("you")),
            turn("mine", state="RESUMING", owner=held("me")),
            turn("ended", state="ENDED", owner=held("me"), ended=9.0),
        )
        store.hold("me")
        await asyncio.to_thread(store.renew, "me", 100.0)

        def leases(tx: Transaction) -> list[float]:
            rows = tx.proposals(["mine", "done", "other"])
            turns = tx.turns(["mine", "ended"])
            owners = [
                rows["mine"].owner,
                turns["mine"].owner,
                rows["done"].owner,
                rows["other"].owner,
                turns["ended"].owner,
            ]
            return [
                owner.lease - tx.now if owner.lease > 10 else owner.lease
                for owner in owners
                if owner
            ]

        first, second, *rest = await store.run(leases)
        assert 50 < first <= 100
        assert 50 < second <= 100
        assert rest == [5.0, 5.0, 5.0]


async def a_renewal_waits_for_a_running_transaction(factory: Factory) -> None:
    """A row that a transaction read and writes back does not lose a renewal made meanwhile."""
    threads: list[threading.Thread] = []

    async with opened(factory) as store:

        def work(tx: Transaction) -> None:
            row = tx.proposals(["a"])["a"]
            thread = threading.Thread(target=store.renew, args=("me", 100.0))
            thread.start()
            threads.append(thread)
            thread.join(0.2)
            tx.put(row)

        owner = Owner("me", "boot", 1, 5.0)
        await put(store, proposal("a", state="EXECUTING", owner=owner))
        await store.run(work)
        for thread in threads:
            await asyncio.to_thread(thread.join)
        row = await get(store, "a")
        assert row is not None
        assert row.owner is not None
        assert row.owner.lease > 1_000


async def nobody_living_is_dead(factory: Factory) -> None:
    """An owner that this process holds, and one of another boot, are not called dead."""
    async with opened(factory) as store:
        store.hold("me")
        store.hold("me")
        assert not store.dead(Owner("me", "", 1, 0.0))
        if store.shared:
            assert not store.dead(Owner("other", "another-boot", 1, 0.0))
            assert not store.dead(Owner("other", "", 1, 0.0))


async def the_clock_is_the_stores(factory: Factory) -> None:
    """`now` is in seconds since the epoch and does not go back from one work to the next."""
    async with opened(factory) as store:
        first = await store.run(lambda tx: tx.now)
        second = await store.run(lambda tx: tx.now)
        assert 1_700_000_000 < first <= second < first + 60


async def purge_forgets_old_contents(factory: Factory) -> None:
    """Contents of ended proposals go, oldest first and bounded; everything else stays."""
    decision = Decision(False, 1.0, "me", reason="no")
    contents: dict[str, Any] = {
        "input": {"a": 1},
        "edited": {"a": 2},
        "output": "out",
        "session": {"s": 1},
        "intent": "why",
        "decision": decision,
    }
    async with opened(factory) as store:
        await put(
            store,
            *(proposal(f"p{n}", state="DONE", finished=10.0 + n, **contents) for n in range(5)),
            proposal("late", state="DONE", finished=100.0, **contents),
            proposal("runs", state="EXECUTING", expires=1.0, **contents),
            proposal("waits", expires=100.0, **contents),
            proposal("lapsed", expires=20.0, **contents),
        )

        async def purge(limit: int) -> tuple[int, int, int]:
            return await store.run(
                lambda tx: tx.purge(contents_before=50.0, turns_before=None, limit=limit)
            )

        assert await purge(3) == (3, 0, 0)
        rows = await store.run(lambda tx: tx.proposals([f"p{n}" for n in range(5)]))
        assert [rows[f"p{n}"].output for n in range(5)] == [None, None, None, "out", "out"]
        assert await purge(100) == (3, 0, 0)
        assert await purge(100) == (0, 0, 0)
        gone = await get(store, "p0")
        assert gone == proposal(
            "p0", state="DONE", finished=10.0, input={}, decision=Decision(False, 1.0, "me")
        )
        for name in ("late", "runs", "waits"):
            row = await get(store, name)
            assert row is not None
            assert row.output == "out"
        await put(store, gone)
        assert await purge(100) == (0, 0, 0)
        assert await get(store, "p0") == gone


async def purge_forgets_old_turns(factory: Factory) -> None:
    """Turns that ended before go; so do those that nobody continued once no call waits."""
    dead = Owner("dead", "boot", 1, 40.0)
    async with opened(factory) as store:
        await put(
            store,
            turn("old", state="ENDED", created=1.0, ended=10.0),
            turn("new", state="ENDED", created=1.0, ended=100.0),
            turn("waits", created=1.0),
            proposal("a", turn="waits", expires=100.0),
            turn("runs", created=1.0),
            proposal("b", turn="runs", state="EXECUTING"),
            turn("left", created=2.0),
            proposal("c", turn="left", expires=20.0),
            turn("crashed", created=3.0, state="RESUMING", owner=dead),
        )

        async def purge(limit: int) -> tuple[int, int, int]:
            return await store.run(
                lambda tx: tx.purge(contents_before=None, turns_before=50.0, limit=limit)
            )

        assert await purge(2) == (0, 2, 0)
        assert await purge(100) == (0, 1, 0)
        every = ["old", "new", "waits", "runs", "left", "crashed"]
        left = await store.run(lambda tx: sorted(tx.turns(every)))
        assert left == ["new", "runs", "waits"]
        assert len(await found(store)) == 3


async def the_log_is_a_chain(factory: Factory) -> None:
    """Rows come in order and by page, the newest last, and verify."""
    entries = [{"event": STRANGE, "n": n, "nested": NESTED} for n in range(5)]
    async with opened(factory) as store:
        written = [await store.run(lambda tx, e=e: log.append(tx, e)) for e in entries]  # type: ignore[misc]
        rows: list[LogRow] = await store.run(lambda tx: tx.log())
        assert rows == written
        assert [row.seq for row in rows] == [1, 2, 3, 4, 5]
        assert [row.entry for row in rows] == entries
        assert await store.run(lambda tx: tx.log(after=2, limit=2)) == rows[2:4]
        assert await store.run(lambda tx: tx.last_log()) == rows[-1]
        assert await log.verify_store(store, page=2) is None


async def a_purged_log_still_verifies(factory: Factory) -> None:
    """A purge of log rows leaves a checkpoint that accounts for them, again and again."""

    def purge(tx: Transaction) -> tuple[int, int, int]:
        return tx.purge(contents_before=None, turns_before=None, log_before=tx.now + 60, limit=4)

    async with opened(factory) as store:
        for number in range(6):
            await store.run(lambda tx, n=number: log.append(tx, {"n": n}))  # type: ignore[misc]
        before = await store.run(lambda tx: tx.log())
        assert await store.run(purge) == (0, 0, 4)
        rows = await store.run(lambda tx: tx.log())
        assert [row.seq for row in rows] == [5, 6, 7]
        assert rows[-1].entry == {"event": log.CHECKPOINT, "seq": 4, "hash": before[3].hash}
        assert await log.verify_store(store, page=1) is None
        assert await store.run(purge) == (0, 0, 3)
        assert [row.seq for row in await store.run(lambda tx: tx.log())] == [8]
        assert await log.verify_store(store) is None
        nothing = await store.run(
            lambda tx: tx.purge(contents_before=None, turns_before=None, log_before=1.0)
        )
        assert nothing == (0, 0, 0)


async def a_log_row_out_of_turn_is_refused(factory: Factory) -> None:
    """`append_log` takes only the next number."""
    async with opened(factory) as store:
        row = await store.run(lambda tx: log.append(tx, {"event": "first"}))
        try:
            await store.run(lambda tx: tx.append_log(row))
        except ValueError:
            assert len(await store.run(lambda tx: tx.log())) == 1
        else:
            raise AssertionError("a second row 1 was taken")


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
    rows_come_back_as_they_were,
    long_texts_come_back,
    rows_are_copies,
    a_transaction_sees_its_own_writes,
    what_raises_changes_nothing,
    one_that_raises_undoes_no_other,
    concurrent_increments_all_count,
    rows_named_ahead_are_current,
    two_stores_see_one_another,
    rows_outlive_the_store,
    find_takes_every_filter,
    find_pages_in_order,
    a_renewal_extends_held_rows_only,
    a_renewal_waits_for_a_running_transaction,
    nobody_living_is_dead,
    the_clock_is_the_stores,
    purge_forgets_old_contents,
    purge_forgets_old_turns,
    the_log_is_a_chain,
    a_purged_log_still_verifies,
    a_log_row_out_of_turn_is_refused,
    a_cancelled_caller_breaks_nothing,
)
