"""A purge in batches, so that nobody waits long for one of them."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from functools import partial

from sayso.ledger import Store, Transaction

_FIRST = 100
_LEAST, _MOST = 10, 1_000
_WANTED = 0.04
"""Seconds that a batch should take: less than half of what others may wait for it."""


async def purged(
    store: Store, work: Callable[[Transaction, int], tuple[int, int, int]]
) -> tuple[int, int, int]:
    """The sums of what `work` has removed, called with the size of a batch until nothing is left.

    A batch that took long makes the next one smaller. Between two of them others have as much time
    as the last one took.
    """
    total, limit = (0, 0, 0), _FIRST
    while True:
        began = time.monotonic()
        counts = await store.run(partial(_batch, work=work, limit=limit))
        took = time.monotonic() - began
        if not any(counts):
            return total
        total = (total[0] + counts[0], total[1] + counts[1], total[2] + counts[2])
        limit = max(_LEAST, min(_MOST, int(limit * _WANTED / max(took, 0.001))))
        await asyncio.sleep(min(took, 1.0))


def _batch(
    tx: Transaction, work: Callable[[Transaction, int], tuple[int, int, int]], limit: int
) -> tuple[int, int, int]:
    return work(tx, limit)
