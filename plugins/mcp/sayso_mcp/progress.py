"""Status lines of running tools, as progress notifications."""

from __future__ import annotations

import asyncio
import logging
import math
from collections import deque
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager
from typing import Any

from sayso import IntermittentUpdate
from sayso_mcp.content import clean
from sayso_mcp.peers import Context

logger = logging.getLogger("sayso.mcp")
KEPT = 256
"""Most status lines queued for a slow client; older ones are dropped."""
LONGEST = 2**16
"""Most characters of a status line: many clients read no event above 1 MiB."""
LAST = 5.0
"""Seconds that a slow client has to take the last status lines."""
ALIVE = 15.0
"""Seconds between the notifications that keep a call alive while a person is asked."""


class Progress:
    """Sends progress that only grows; `update` may be called from any thread.

    Numbers `progress` and `total` in the content of a status line are sent unchanged.
    """

    def __init__(self, context: Context) -> None:
        self._context = context
        self._lines: deque[IntermittentUpdate] = deque(maxlen=KEPT)
        self._loop = asyncio.get_running_loop()
        self._filled = asyncio.Event()
        self._sending = asyncio.Lock()
        self._last: float | None = None

    def update(self, line: IntermittentUpdate) -> None:
        """Queue `line` for sending."""
        wake = not self._lines
        self._lines.append(line)
        if wake and not self._loop.is_closed():
            self._loop.call_soon_threadsafe(self._filled.set)

    async def pump(self) -> None:
        """Send queued lines until cancelled."""
        while True:
            await self._filled.wait()
            self._filled.clear()
            await self.flush()

    async def flush(self) -> None:
        """Send all queued lines, and wait for the one being sent."""
        async with self._sending:
            while self._lines:
                line = self._lines.popleft()
                given = line.content
                await self.report(line.text, given.get("progress"), given.get("total"))

    async def report(self, text: str, progress: object = None, total: object = None) -> None:
        """Send one notification; without a usable number it counts on from the last."""
        at = _number(progress)
        if at is None or (self._last is not None and at <= self._last):
            at = 1.0 if self._last is None else self._last + 1.0
        self._last = at
        await self._context.session.report_progress(at, _number(total), clean(text[:LONGEST]))


def _number(value: object) -> float | None:
    fits = isinstance(value, int | float) and not isinstance(value, bool)
    return float(value) if fits and math.isfinite(value) else None  # type: ignore[arg-type]


def wanted(context: Context) -> bool:
    """Whether the client asked for progress of this request."""
    return (context.meta or {}).get("progress_token") is not None


def progress_of(context: Context) -> Progress | None:
    """The progress sender of one request, shared so that its numbers only grow; None if the client
    wants no progress."""
    return Progress(context) if wanted(context) else None


@asynccontextmanager
async def status_lines(
    sending: Progress | None,
) -> AsyncIterator[Callable[[IntermittentUpdate], None] | None]:
    """A function for the status lines of one call; None if the client wants none."""
    if sending is None:
        yield None
        return
    async with _beside(sending.pump()):
        yield sending.update
        try:
            async with asyncio.timeout(LAST):
                await sending.flush()
        except TimeoutError:
            logger.warning("a client took too long for its progress notifications")


@asynccontextmanager
async def kept_alive(sending: Progress | None, text: str) -> AsyncIterator[None]:
    """Send `text` as progress repeatedly: clients abandon a silent call after a minute, and each
    notification restarts that minute."""
    if sending is None:
        yield
        return

    async def repeat() -> None:
        while True:
            await sending.report(text)
            await asyncio.sleep(ALIVE)

    async with _beside(repeat()):
        yield


@asynccontextmanager
async def _beside(work: Coroutine[Any, Any, None]) -> AsyncIterator[None]:
    """Run `work` until the block ends."""
    task = asyncio.create_task(work)
    try:
        yield
    finally:
        task.cancel()
        await asyncio.wait([task])
        if not task.cancelled() and (error := task.exception()) is not None:
            logger.debug("progress could not be sent", exc_info=error)
