"""A purge in batches, so that nobody waits long for one of them."""

from __future__ import annotations

import asyncio
import time
from functools import partial

from sayso.ledger import Store, Transaction
from sayso.ledger.log import summarise

_FIRST = 100
_LEAST, _MOST = 10, 1_000
_WANTED = 0.04
"""Seconds that a batch should take: less than half of the time others may wait for it."""


async def purged(
    store: Store, retention: float, ttl: float, log_retention: float | None
) -> tuple[int, int, int]:
    """Purge everything older than these seconds, and summarise the log; returns the sums of the
    removed rows.

    After a slow batch the next one is smaller. Between two batches, others get as much time as the
    last one took.
    """

    # One time for all batches. Each leaves a checkpoint in the log; with a later time, the next
    # batch of a purge that keeps nothing would find that checkpoint old enough to remove.
    now = await store.run(lambda tx: tx.now)

    def batch(tx: Transaction, limit: int) -> tuple[int, int, int]:
        return tx.purge(
            contents_before=now - retention,
            # A recorded reply states outputs, too.
            turns_before=now - min(retention, ttl),
            log_before=None if log_retention is None else now - log_retention,
            limit=limit,
        )

    total, limit = (0, 0, 0), _FIRST
    while True:
        began = time.monotonic()
        counts = await store.run(partial(batch, limit=limit))
        took = time.monotonic() - began
        if not any(counts):
            await store.run(summarise)
            return total
        total = (total[0] + counts[0], total[1] + counts[1], total[2] + counts[2])
        limit = max(_LEAST, min(_MOST, int(limit * _WANTED / max(took, 0.001))))
        await asyncio.sleep(min(took, 1.0))
