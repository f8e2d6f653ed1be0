"""From one event loop's thread to another: calls posted with one wake-up for all waiting ones, and
queues of items with a limit."""

from __future__ import annotations

import asyncio
import inspect
import logging
import os
import threading
from collections import deque
from collections.abc import AsyncIterator, Callable
from contextlib import suppress
from contextvars import Context
from functools import partial
from typing import Any, Generic, TypeVar, cast
from weakref import WeakKeyDictionary, finalize, ref

T = TypeVar("T")

logger = logging.getLogger("sayso.workers")

_boxes: WeakKeyDictionary[asyncio.AbstractEventLoop, Mailbox] = WeakKeyDictionary()
_last = threading.local()
_lock = threading.Lock()
_BELLS = hasattr(os, "eventfd")


class Mailbox:
    """Calls that other threads want made on `loop`, and the objects that belong to it and end with
    it."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self.loop = ref(loop)
        self._calls: deque[Callable[[], object]] = deque()
        self._woken = False
        self._bell: int | None = None
        # Posted calls must not run in, or keep alive, the context of the poster.
        self._context = Context()
        self.objects: dict[object, Any] = {}

    def post(self, call: Callable[[], object], *, last: bool = False) -> None:
        """Have `call` run on the loop; from any thread. Does nothing if the loop is closed.

        `last` says that the caller has nothing more to do for now, so the other thread should
        continue at once.
        """
        self._calls.append(call)
        self.ring(last=last)

    def add(self, call: Callable[[], object]) -> None:
        """Have `call` run at the next ring or post; from any thread."""
        self._calls.append(call)

    def ring(self, *, last: bool = False) -> None:
        """Have the waiting calls run, if there are any; from any thread. `last` as in `post`."""
        if self._woken or not self._calls:
            return
        self._woken = True
        loop = self.loop()
        if loop is None or loop.is_closed():
            self._woken = False
            self._calls.clear()
        elif not last:
            self._wake(loop, self._run)
        elif self._bell is None:
            self._wake(loop, self._hang_bell if _BELLS else self._run)
        else:
            # This releases the interpreter's lock. A thread woken while its waker holds the lock
            # only wakes to wait again, which costs two context switches.
            os.eventfd_write(self._bell, 1)

    def _wake(self, loop: asyncio.AbstractEventLoop, call: Callable[[], None]) -> None:
        try:
            loop.call_soon_threadsafe(call, context=self._context)
        except RuntimeError:
            self._woken = False
            self._calls.clear()

    def _hang_bell(self) -> None:
        # Without a free descriptor the loop is woken in asyncio's own way.
        with suppress(OSError):
            if self._bell is None and (loop := self.loop()) is not None:
                bell = os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC)
                taken_down = finalize(self, os.close, bell)
                try:
                    self._context.copy().run(loop.add_reader, bell, self._rung, bell)
                except OSError:
                    taken_down()
                    raise
                self._bell = bell
        self._run()

    def _rung(self, bell: int) -> None:
        try:
            os.eventfd_read(bell)
        except OSError:
            return
        self._run()

    def _run(self) -> None:
        self._woken = False
        calls = self._calls
        for _ in range(len(calls)):
            try:
                calls.popleft()()
            except Exception:
                logger.exception("a call handed from one loop to another failed")

    async def close_objects(self, seconds: float) -> None:
        """Close the objects that `per_loop` made here, newest first, within this many seconds;
        errors are logged."""
        try:
            async with asyncio.timeout(seconds):
                while self.objects:
                    await _close(self.objects.popitem()[1])
        except TimeoutError:
            logger.warning("objects of a loop did not close within %g seconds", seconds)


async def _close(made: Any) -> None:
    close = getattr(made, "aclose", None) or getattr(made, "close", None)
    if close is None:
        return
    try:
        result = close()
        if inspect.isawaitable(result):
            await result
    except (Exception, asyncio.CancelledError) as error:
        # A CancelledError may also come out of the object's own tasks.
        if (task := asyncio.current_task()) and task.cancelling():
            # Its error is dropped: no time is left for the other objects.
            raise asyncio.CancelledError from error
        logger.exception("closing a %s with its loop failed", type(made).__name__)


def mailbox(loop: asyncio.AbstractEventLoop | None = None) -> Mailbox:
    """The mailbox of `loop`, by default of the running one."""
    if loop is None:
        # A thread asks for its own loop's, several times a turn, and runs one loop at a time. The
        # weak table is slow, and so is get_running_loop, which asks the kernel for the process id.
        last: Mailbox | None = getattr(_last, "box", None)
        if last is not None and (known := last.loop()) is not None and known.is_running():
            return last
        _last.box = mailbox(asyncio.get_running_loop())
        return cast("Mailbox", _last.box)
    box = _boxes.get(loop)
    if box is None:
        with _lock:
            box = _boxes.get(loop)
            if box is None:
                _forget_closed()
                box = _boxes[loop] = Mailbox(loop)
    return box


def wake_waiter(future: asyncio.Future[Any], value: Any = None) -> None:
    """Wake the waiter of `future`, with this value; called on its loop."""
    if not future.done():
        future.set_result(value)


def _forget_closed() -> None:
    """Drop closed loops with their objects, which would keep each other alive."""
    for loop in [loop for loop in _boxes if loop.is_closed()]:
        del _boxes[loop]


def per_loop(factory: Callable[[], T]) -> Callable[[], T]:
    """Return a function that returns one object for each event loop, made by `factory` on first
    use.

    The object is closed with its loop, by `aclose()` or else `close()` if it has one: a client or
    pool bound to an event loop is made once a loop and never in a request. On a loop that is not
    the service's own the object lives as long as the loop (design, section 9). Raises TypeError for
    an async factory; the function raises RuntimeError if no loop runs.
    """
    if not callable(factory) or inspect.iscoroutinefunction(factory):
        raise TypeError(
            f"per_loop takes a plain function that makes the object, not {factory!r}; what has to "
            "be awaited is awaited where it is used"
        )
    key = object()

    def get() -> T:
        try:
            objects = mailbox().objects
        except RuntimeError:
            raise RuntimeError(
                "what per_loop makes belongs to an event loop, and none runs here; use it in "
                "async code, such as a tool that is an 'async def'"
            ) from None
        if key not in objects:
            objects[key] = factory()
        found: T = objects[key]
        return found

    return get


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
