"""Regular work on the record: old data is removed, and the expiry of calls is recorded when it
happens, not when somebody next reads the call.

One process on the store sweeps for all: the one that holds the lease, a note that it renews. The
lease only saves work, since two processes that sweep at once record each expiry once.
"""

from __future__ import annotations

import asyncio
import json
import logging
import time
from random import Random
from typing import NamedTuple

from sayso.config.approvals import ApprovalSettings
from sayso.errors import TurnError
from sayso.ledger import Reading, Transaction
from sayso.ledger.record import Ledger

_random = Random()
"""Not the module's own generator, which user code may seed alike in every process."""

logger = logging.getLogger("sayso.ledger")
PAUSE = 1.0
"""Seconds between two looks of the process that sweeps."""
_LEASE = 5.0
"""Seconds after which another process sweeps if this one is silent."""
PURGE_SECONDS = 3600.0
SOON = 60.0
_SHARE = 50
"""A look is followed by a pause of this many times its own time, where that is longer."""
_AT_ONCE = 200
_NOTE = "sweeper"


class _Look(NamedTuple):
    due: list[str]
    until: float
    """Seconds for which another process has the lease; 0 if this one has it."""


async def purge_regularly(ledger: Ledger, kept: ApprovalSettings) -> None:
    """Remove old data from the ledger, after the start and every hour. Data that is kept for less
    than a day is removed at most a twenty-fourth of that time late."""
    pause = min(PURGE_SECONDS, max(SOON, min(kept.retention, kept.ttl) / 24))
    await asyncio.sleep(SOON)
    while True:
        try:
            await ledger.purge(kept.retention, kept.log_retention)
        except Exception:
            logger.warning("the ledger could not be purged", exc_info=True)
        await asyncio.sleep(pause)


async def sweep_regularly(ledger: Ledger) -> None:
    """Record the expiry of each call, and the death of the process that ran one, within about a
    second, until cancelled."""
    while True:
        began = time.monotonic()
        try:
            look = await _look_for_due(ledger)
            if look.due:
                await ledger.settle(look.due)
        except TurnError as error:
            logger.info("expired calls cannot be recorded now: %s", error)
            look = _Look([], 0.0)
        if len(look.due) < _AT_ONCE:
            took = time.monotonic() - began
            await asyncio.sleep(max(PAUSE, _SHARE * took, look.until) * _random.uniform(0.8, 1.2))


async def _look_for_due(ledger: Ledger) -> _Look:
    def work(tx: Transaction) -> _Look:
        ledger.watch(tx)
        if ledger.store.shared and (until := _others(tx, ledger.owner)):
            return _Look([], until)
        return _Look(tx.due(_AT_ONCE), 0.0)

    return await ledger.store.run(Reading(work, only=True))


def _others(tx: Transaction, own: str) -> float:
    """The seconds for which another process has the lease; otherwise this one has it, and renews it
    at half-time."""
    text = tx.notes(_NOTE).get(_NOTE)
    owner, end = json.loads(text) if text else ("", 0.0)
    # A clock that was set back would otherwise keep everybody waiting.
    left = min(end - tx.now, _LEASE)
    if owner != own and left > 0:
        return float(left)
    if left < _LEASE / 2 and not tx.swap(_NOTE, text, json.dumps([own, tx.now + _LEASE])):
        return _LEASE / 2
    return 0.0
