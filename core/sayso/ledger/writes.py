"""Writes that must reach the store: retried, and announced to the requests that wait for them."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from typing import TypeVar

from sayso.errors import LedgerUnavailable, StillRunning
from sayso.ledger import Store, Transaction
from sayso.ledger.log import summarise

T = TypeVar("T")
Work = Callable[[Transaction], None]
Then = Callable[[], None]


def _nothing() -> None:
    """Nothing follows."""


LOOK = 0.25
"""Seconds between two looks at a row that another process may change."""
_PATIENCE = 10.0
_SUMMARISED = 256
"""A process appends a summary of the log's chains after this many proposals."""
_UNRECORDED = (
    "the approvals store does not take the outcome of what has run; it is kept until it does: "
    "send the same request again"
)


async def accepted(
    write: Callable[[], Awaitable[T]], refused: Callable[[LedgerUnavailable], None]
) -> T:
    """The result of `write`, which is called until the store accepts it. `refused` gets the error
    of each failed attempt, and may raise it to end the attempts."""
    pause = 0.05
    while True:
        try:
            return await write()
        except LedgerUnavailable as error:
            refused(error)
        await asyncio.sleep(pause)
        pause = min(2 * pause, 5.0)


class Writes:
    """The writes of this process to rows that requests may wait for; used from several loops."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._stopped = False
        self._background: set[asyncio.Task[None]] = set()
        self._lock = threading.Lock()
        # The requests that wait for rows to change, on several loops.
        self._waiting: dict[str, list[tuple[asyncio.AbstractEventLoop, asyncio.Event]]] = {}
        self._not_summarised = 0
        # Since when the store has been refusing to record the outcomes of these calls and turns.
        self._refused: dict[str, float] = {}

    def stop(self) -> None:
        """Abandon the writes still outstanding."""
        self._stopped = True
        for task in self._background:
            task.get_loop().call_soon_threadsafe(task.cancel)

    async def notifying(self, ids: Sequence[str], writing: Awaitable[T]) -> T:
        """The result of `writing`; then requests that wait for these rows are notified."""
        try:
            written = await writing
        except LedgerUnavailable:
            for id_ in ids:
                self._refused.setdefault(id_, time.monotonic())
            raise
        for id_ in ids:
            self._refused.pop(id_, None)
        self.notify(ids)
        return written

    async def now_or_later(self, work: Work, ids: Sequence[str], then: Then = _nothing) -> None:
        """Run `work`; if the store is unavailable, run it `later`. Call `then` when it has run."""
        try:
            await self.notifying(ids, self._store.run(work))
        except LedgerUnavailable:
            self.later(work, ids, then)
        else:
            then()

    def later(self, work: Work, ids: Sequence[str], then: Then = _nothing) -> None:
        """Run `work` in the background as soon as the store accepts it, until `stop`; call `then`
        when it has run."""
        task = asyncio.ensure_future(self._retried(work, ids, then))
        self._background.add(task)
        task.add_done_callback(self._background.discard)

    async def _retried(self, work: Work, ids: Sequence[str], then: Then) -> None:
        def refused(error: LedgerUnavailable) -> None:
            if self._stopped:
                raise error

        if not self._stopped:
            with suppress(LedgerUnavailable):
                await accepted(lambda: self.notifying(ids, self._store.run(work)), refused)
                then()

    def summarise(self, proposed: int) -> None:
        """Append a summary to the log, in the background, if there were enough proposals since the
        last one."""
        self._not_summarised += proposed
        if self._not_summarised >= _SUMMARISED:
            self._not_summarised = 0
            self.later(summarise, [])

    def notify(self, ids: Sequence[str]) -> None:
        """Wake the requests of this process that wait for these rows."""
        for id_ in ids:
            with self._lock:
                entries = self._waiting.pop(id_, [])
            for loop, event in entries:
                if not loop.is_closed():
                    loop.call_soon_threadsafe(event.set)

    async def changed(self, id_: str, until: float, pause: float = LOOK) -> None:
        """Return when the row may have changed: after a notice in this process, or after `pause`
        seconds. Raises StillRunning after `until`, and the error of `check`."""
        self.check(id_)
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

    def check(self, id_: str) -> None:
        """Raise LedgerUnavailable if the store has been refusing this row for long."""
        since = self._refused.get(id_)
        if since is not None and time.monotonic() - since > _PATIENCE:
            raise LedgerUnavailable(_UNRECORDED)
