"""Waiting for a row that another request, in this or another process, is about to change."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Iterable

from sayso.errors import StillRunning

LOOK = 0.25
"""Seconds between two looks at a row that another process may change."""


class Waiting:
    """The requests that wait for rows to change; used from several loops."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._waiting: dict[str, list[tuple[asyncio.AbstractEventLoop, asyncio.Event]]] = {}

    async def changed(self, id_: str, until: float, pause: float = LOOK) -> None:
        """Return when the row may have changed: after a notice in this process, or after `pause`
        seconds. Raises StillRunning after `until`.
        """
        left = until - time.monotonic()
        if left <= 0:
            raise StillRunning
        entry = (asyncio.get_running_loop(), asyncio.Event())
        with self._lock:
            self._waiting.setdefault(id_, []).append(entry)
        try:
            # Other processes send no notice, so the row is read again this often.
            async with asyncio.timeout(min(left, pause)):
                await entry[1].wait()
        except TimeoutError:
            pass
        finally:
            with self._lock:
                waiting = self._waiting.get(id_, [])
                if entry in waiting:
                    waiting.remove(entry)
                if not waiting:
                    self._waiting.pop(id_, None)

    def notify(self, ids: Iterable[str]) -> None:
        """Wake the requests of this process that wait for these rows."""
        for id_ in ids:
            with self._lock:
                entries = self._waiting.pop(id_, [])
            for loop, event in entries:
                if not loop.is_closed():
                    loop.call_soon_threadsafe(event.set)
