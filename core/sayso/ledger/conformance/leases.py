"""Checks of leases, owners and the clock of a store."""

from __future__ import annotations

import asyncio
import threading
from typing import Any

from sayso.ledger import Owner, Transaction
from sayso.ledger.conformance.samples import Check, Factory, get, opened, proposal, put, turn


async def a_renewal_extends_held_rows_only(factory: Factory) -> None:
    """Leases of EXECUTING proposals and RESUMING turns of that owner, of those that are named, from
    another thread."""

    def held(name: str) -> Owner:
        return Owner(name, "boot", 1, 5.0)

    async with opened(factory) as store:
        await put(
            store,
            proposal("mine", state="EXECUTING", owner=held("me")),
            proposal("lost", state="EXECUTING", owner=held("me")),
            proposal("done", state="DONE", owner=held("me")),
            proposal("other", state="EXECUTING", owner=held("you")),
            turn("mine", state="RESUMING", owner=held("me")),
            turn("lost", state="RESUMING", owner=held("me")),
            turn("ended", state="ENDED", owner=held("me"), ended=9.0),
        )
        store.hold("me")
        named = ["mine", "done", "other", "ended", "unknown"]
        await asyncio.to_thread(store.renew, "me", 100.0, named)

        def leases(tx: Transaction) -> list[float]:
            rows: dict[str, Any] = dict(tx.proposals(["mine", "lost", "done", "other"]))
            turns: dict[str, Any] = dict(tx.turns(["mine", "lost", "ended"]))
            found = [rows["mine"], turns["mine"], rows["lost"], turns["lost"]]
            found += [rows["done"], rows["other"], turns["ended"]]
            ends = [row.owner.lease for row in found if row.owner]
            return [end - tx.now if end > 10 else end for end in ends]

        first, second, *rest = await store.run(leases)
        assert 50 < first <= 100
        assert 50 < second <= 100
        assert rest == [5.0, 5.0, 5.0, 5.0, 5.0]


async def a_renewal_waits_for_a_running_transaction(factory: Factory) -> None:
    """A row that a transaction reads and writes back keeps a renewal made meanwhile."""
    threads: list[threading.Thread] = []

    async with opened(factory) as store:

        def work(tx: Transaction) -> None:
            row = tx.proposals(["a"])["a"]
            thread = threading.Thread(target=store.renew, args=("me", 100.0, ["a"]))
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
    """An owner held by this process, and one of another boot, do not count as dead."""
    async with opened(factory) as store:
        store.hold("me")
        store.hold("me")
        assert not store.dead(Owner("me", "", 1, 0.0))
        if store.shared:
            assert not store.dead(Owner("other", "another-boot", 1, 0.0))
            assert not store.dead(Owner("other", "", 1, 0.0))


async def the_clock_is_the_stores(factory: Factory) -> None:
    """`now` is in seconds since the epoch and never decreases from one transaction to the next."""
    async with opened(factory) as store:
        first = await store.run(lambda tx: tx.now)
        second = await store.run(lambda tx: tx.now)
        assert 1_700_000_000 < first <= second < first + 60


CHECKS: tuple[Check, ...] = (
    a_renewal_extends_held_rows_only,
    a_renewal_waits_for_a_running_transaction,
    nobody_living_is_dead,
    the_clock_is_the_stores,
)
