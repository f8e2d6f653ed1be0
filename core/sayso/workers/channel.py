"""A bounded queue from one event loop, and its threads, to a consumer on another."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from functools import partial
from typing import Generic, TypeVar

from sayso.workers.mailbox import Mailbox, mailbox, wake_waiter

T = TypeVar("T")
_AT_ONCE = 4096
"""Most items returned at once. Only producers that never pause queue more, such as a tool that
sends status lines without end; the code that forwards them must also serve others."""


class Channel(Generic[T]):
    """A queue of items from a turn to the code that forwards them.

    Made on the consumer's loop. `limit` is how much may wait before `put` pauses: items, or the sum
    of `size(item)` (bytes, say) if `size` is given. One item more than the limit fits.

    There is no lock, since a turn may put a thousand items. Producers first append, then look for a
    waiter; the consumer first says that it waits, then looks again for items.
    """

    def __init__(self, limit: int = 256, *, size: Callable[[T], int] | None = None) -> None:
        self._limit = limit
        self._size = size
        self._items: list[T] = []
        # The amounts put and taken; each is written by one side only.
        self._put = 0
        self._taken = 0
        self._closed = False
        self._left = False
        self._error: BaseException | None = None
        self._consumer = mailbox()
        self._waiter: Callable[[], object] | None = None
        self._producer: Mailbox | None = None
        self._space: asyncio.Future[None] | None = None
        self.cancelled = False
        self.on_space: Callable[[], object] | None = None

    @property
    def full(self) -> bool:
        """Whether more than the limit waits; `on_space`, if set, is called when that has
        changed."""
        return self._put - self._taken > self._limit and not self.cancelled

    async def put(self, item: T) -> None:
        """Queue `item`; pauses while more than `limit` waits for a slow consumer.

        Items are dropped once the consumer has cancelled. Call it from one task at a time.
        """
        if self.put_nowait(item):
            await self.space()

    def put_nowait(self, item: T) -> bool:
        """Queue `item` without a pause; True says that more than the limit waits.

        From any thread. Raises RuntimeError if closed.
        """
        if self._closed:
            raise RuntimeError("the channel is closed")
        if self.cancelled:
            return False
        self._put += 1 if self._size is None else self._size(item)
        self._items.append(item)
        if self._waiter is not None:
            self._wake()
        return self._put - self._taken > self._limit

    async def space(self) -> None:
        """Return when no more than the limit waits; on the producer's loop."""
        while self.full:
            self._producer = mailbox()
            space = self._space = asyncio.get_running_loop().create_future()
            try:
                if self.full:
                    await space
            finally:
                self._space = None

    def close(self, error: BaseException | None = None) -> None:
        """End the queue; the consumer gets the waiting items, then the end, or `error` raised."""
        if not self._closed:
            self._error = error
            self._closed = True
            if self._waiter is not None:
                self._wake()

    async def ready(self) -> list[T]:
        """All waiting items, up to thousands, at least one; an empty list at the end."""
        if self._left:
            await asyncio.sleep(0)
        while (items := self.take()) is None:
            waiter = asyncio.get_running_loop().create_future()
            self._waiter = partial(wake_waiter, waiter)
            if not (self._items or self._closed or self.cancelled):
                await waiter
            self._waiter = None
        if not items and self._error is not None and not self.cancelled:
            raise self._error
        return items

    def take(self) -> list[T] | None:
        """All waiting items, up to thousands; None if there are none, an empty list at the end."""
        if not (self._items or self._closed or self.cancelled):
            return None
        # At the end, take also items put just before it.
        return self._take()

    def when_ready(self, call: Callable[[], object]) -> None:
        """Have `call` run once on the consumer's loop when an item waits, or at the end.

        For a consumer without a task; it may find that nothing waits.
        """
        self._waiter = call
        if self._items or self._closed or self.cancelled:
            self._wake()

    async def __aiter__(self) -> AsyncIterator[T]:
        while items := await self.ready():
            for item in items:
                yield item

    def cancel(self) -> None:
        """Take no more: waiting and later items are dropped, and `put` no longer pauses."""
        self.cancelled = True
        self._items.clear()
        self._make_space()
        self._wake()

    def _take(self) -> list[T]:
        if self.cancelled or not self._items:
            return []
        # Each statement is atomic for other threads; items put between the two stay.
        waiting = self._items
        items = waiting[:_AT_ONCE]
        del waiting[: len(items)]
        self._left = bool(waiting)
        if self._left:
            return items
        self._taken = self._put
        if self._space is not None or self.on_space is not None:
            self._make_space()
        return items

    def _make_space(self) -> None:
        if (space := self._space) is not None and self._producer is not None:
            self._producer.post(partial(wake_waiter, space))
        if self.on_space is not None:
            self.on_space()

    def _wake(self) -> None:
        waiter, self._waiter = self._waiter, None
        if waiter is not None:
            self._consumer.post(waiter)
