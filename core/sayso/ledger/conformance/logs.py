"""Checks of the log of a store."""

from __future__ import annotations

import asyncio

from sayso.ledger import Head, LogRow, Store, Transaction, log
from sayso.ledger.conformance.samples import ALL, NESTED, STRANGE, Check, Factory, opened, purged

_IDS = [f"p{number}" for number in range(40)]


async def the_log_is_chained(factory: Factory) -> None:
    """Each chain numbers and links its own rows; they are returned by chain and page, and
    verify."""
    async with opened(factory) as store:
        for number, id_ in enumerate(_IDS):
            entry = {"event": STRANGE, "id": id_, "n": number, "nested": NESTED}
            await store.run(lambda tx, entry=entry: log.append(tx, entry))  # type: ignore[misc]
        rows = await _rows(store)
        assert [(row.chain, row.seq) for row in rows] == sorted((r.chain, r.seq) for r in rows)
        assert sorted(row.entry["n"] for row in rows) == list(range(len(_IDS)))
        heads: dict[int, Head] = {}
        for row in rows:
            assert row.chain == log.chain_of(row.entry["id"])
            assert row == log.log_row(heads.get(row.chain), row.chain, row.at, row.entry)
            heads[row.chain] = Head(row.seq, row.hash)
        assert await store.run(lambda tx: tx.heads()) == heads
        after = {row.chain: 1 for row in rows}
        pages = await store.run(lambda tx: tx.log(after, 1))
        assert pages == [row for row in rows if row.seq == 2]
        assert await store.run(lambda tx: tx.log({})) == []
        assert await log.verify_store(store, page=2) is None


async def a_purged_log_still_verifies(factory: Factory) -> None:
    """A purge of log rows leaves checkpoints that account for them, also repeatedly."""

    def purge(tx: Transaction) -> tuple[int, int, int]:
        return tx.purge(contents_before=None, turns_before=None, log_before=tx.now + 60, limit=4)

    async with opened(factory) as store:
        for number in range(6):
            await store.run(lambda tx, n=number: log.append(tx, {"n": n}))  # type: ignore[misc]
        await store.run(lambda tx: log.append(tx, {"id": _elsewhere()}))
        await store.run(log.summarise)
        before = [row for row in await _rows(store) if row.chain == log.chain_of("")]
        left = 8
        while left > 0:
            _, _, count = await store.run(purge)
            assert 0 < count <= 4
            left -= count
            assert await log.verify_store(store, page=1) is None
        rows = [row for row in await _rows(store) if row.chain == log.chain_of("")]
        checkpoints = [row.entry["seq"] for row in rows]
        assert all(row.entry["event"] == log.CHECKPOINT for row in rows)
        assert checkpoints == sorted(checkpoints)
        assert checkpoints[-1] >= before[3].seq
        assert await log.verify_store(store) is None
        assert await purged(store, log=1.0) == (0, 0, 0)


async def rows_of_many_at_once_are_chained(factory: Factory) -> None:
    """Concurrent transactions that append to all chains, and summaries, leave valid chains."""

    def work(tx: Transaction) -> None:
        for id_ in _IDS:
            log.append(tx, {"id": id_})

    async with opened(factory) as store, opened(factory) as second:
        stores = [store, second] if store.shared else [store]
        works = [each.run(w) for each in stores for w in (work, log.summarise) for _ in range(8)]
        await asyncio.gather(*works)
        rows = [row for row in await _rows(store) if row.chain != log.SUMMARY]
        assert len(rows) == 8 * len(stores) * len(_IDS)
        assert await log.verify_store(store) is None


def _elsewhere() -> str:
    """An id whose chain is not that of the empty id."""
    return next(id_ for id_ in _IDS if log.chain_of(id_) != log.chain_of(""))


async def _rows(store: Store) -> list[LogRow]:
    return await store.run(lambda tx: tx.log(ALL))


CHECKS: tuple[Check, ...] = (
    the_log_is_chained,
    a_purged_log_still_verifies,
    rows_of_many_at_once_are_chained,
)
