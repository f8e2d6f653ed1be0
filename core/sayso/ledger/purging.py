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
"""Seconds that a batch should take: less than half of what others may wait for it."""


async def purged(
    store: Store, retention: float, ttl: float, log_retention: float | None
) -> tuple[int, int, int]:
    """Purge until nothing is left that is so many seconds old, and summarise the log; gives the
    sums of what was removed.

    A batch that took long makes the next one smaller. Between two of them others have as much time
    as the last one took.
    """

    # One time for all batches: each leaves a checkpoint in the log, which would itself be old
    # enough for the next batch of a purge that keeps nothing.
    now = await store.run(lambda tx: tx.now)

    def batch(tx: Transaction, limit: int) -> tuple[int, int, int]:
        return tx.purge(
            contents_before=now - retention,
            # A recorded reply has the outputs in it, too.
            turns_before=now - min(ttl, retention),
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
