"""One reader of the log for all requests of this process that follow it."""

import asyncio
import logging
from collections import deque
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field

from sayso import Host, LogPage
from sayso_approvals.refusals import TooManyWait

logger = logging.getLogger("sayso.approvals")
PAUSE = 1.0
"""Seconds between two looks at the log."""
READ = 200
"""Rows that are read at once."""
_KEPT = 50
"""The largest number of pages that a follower may lag behind before it has to start again from its
own cursor."""


@dataclass(eq=False)
class Follower:
    """A reader that gets each page of the log; `lost` is set when it took them too slowly."""

    pages: deque[LogPage] = field(default_factory=deque)
    came: asyncio.Event = field(default_factory=asyncio.Event)
    lost: bool = False


class Feed:
    """The one reader of the log in this process; it reads only while a request waits."""

    def __init__(self, host: Host) -> None:
        self._host = host
        self._followers: set[Follower] = set()
        self._reader: asyncio.Task[None] | None = None
        self._reading = asyncio.Event()
        self._soon = asyncio.Event()

    @asynccontextmanager
    async def following(self) -> AsyncIterator[Follower]:
        """Follow the log from now on: a row that the caller reads or changes inside is either seen
        there or arrives with a page. Raises TooManyWait."""
        if len(self._followers) >= self._host.config.limits.waiters:
            raise TooManyWait
        follower = Follower()
        self._followers.add(follower)
        if self._reader is None or self._reader.done():
            self._reading.clear()
            self._reader = asyncio.create_task(self._read())
        try:
            await self._reading.wait()
            yield follower
        finally:
            self._followers.discard(follower)

    def look(self) -> None:
        """Look at the log now, since this process has written to it."""
        self._soon.set()

    async def _read(self) -> None:
        cursor: str | None = None
        while self._followers and not self._host.stopping:
            more = False
            try:
                cursor = cursor or await self._host.record.log_end()
                self._reading.set()
                page = await self._host.record.log(cursor, READ)
            except Exception:
                # The store may be unavailable for a while; the rows that it has meanwhile are read
                # later.
                logger.warning("the log of approvals cannot be read now", exc_info=True)
            else:
                cursor, more = page.cursor, page.more
                self._pass_on(page)
            if not more:
                self._soon.clear()
                with suppress(TimeoutError):
                    await asyncio.wait_for(self._soon.wait(), PAUSE)
        self._reading.set()
        for follower in self._followers:
            follower.came.set()

    def _pass_on(self, page: LogPage) -> None:
        if not (page.events or page.gap):
            return
        for follower in self._followers:
            if len(follower.pages) >= _KEPT:
                follower.lost = True
            else:
                follower.pages.append(page)
            follower.came.set()
