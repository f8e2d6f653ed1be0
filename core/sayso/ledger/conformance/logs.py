"""Checks of the log of a store."""

from __future__ import annotations

from sayso.ledger import (
    LogRow,
    Transaction,
    log,
)
from sayso.ledger.conformance.samples import (
    NESTED,
    STRANGE,
    Check,
    Factory,
    opened,
)


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


CHECKS: tuple[Check, ...] = (
    the_log_is_a_chain,
    a_purged_log_still_verifies,
    a_log_row_out_of_turn_is_refused,
)
