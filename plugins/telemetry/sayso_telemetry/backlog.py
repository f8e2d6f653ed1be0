"""The calls that wait, read from the ledger from time to time."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from sayso import Backlog, Host

log = logging.getLogger("sayso.telemetry")
PAUSE = 15.0
"""Seconds between two readings."""


class Backlogs:
    """The latest numbers of calls that wait."""

    def __init__(self) -> None:
        self._latest = Backlog(0, 0, 0.0)

    def latest(self) -> Backlog:
        """The numbers of the latest reading."""
        return self._latest

    @asynccontextmanager
    async def reading(self, host: Host) -> AsyncIterator[None]:
        """Read them every few seconds for as long as the block lasts."""
        task = asyncio.ensure_future(self._read(host))
        try:
            yield
        finally:
            task.cancel()

    async def _read(self, host: Host) -> None:
        while True:
            try:
                self._latest = await host.record.backlog()
            except Exception as error:
                log.debug("the calls that wait could not be counted: %r", error)
            await asyncio.sleep(PAUSE)
