"""Calls posted from one event loop's thread to another's, with one wake-up for all waiting ones."""

from __future__ import annotations

import asyncio
import inspect
import logging
import os
import threading
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from contextvars import Context
from typing import Any, TypeVar, cast
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


def wake_waiter(future: asyncio.Future[None]) -> None:
    """Wake the waiter of `future`; called on its loop."""
    if not future.done():
        future.set_result(None)


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
