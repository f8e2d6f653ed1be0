"""A task on a worker loop, as its caller sees it, and the places where calls of user code start."""

from __future__ import annotations

import asyncio
import os
import threading
from asyncio import AbstractEventLoop
from collections.abc import Callable, Coroutine, Generator
from contextvars import Context, copy_context
from functools import partial
from time import monotonic
from typing import TYPE_CHECKING, Any, Generic, Protocol, TypeVar, cast

from sayso.workers.mailbox import mailbox, wake_waiter

if TYPE_CHECKING:
    from sayso.workers.loop import WorkerLoop
    from sayso.workers.workers import Workers

T = TypeVar("T")

GRACE = 2.0
"""Seconds for a turn that exceeded its time to clean up."""
PATIENCE = 0.05
"""Seconds that a canceller waits for a loop that may be blocked in user code."""


# A process forked by user code ends when that code returns to the service. It shares the
# descriptors that its parent's loops wait on: as a second service it would take its parent's
# wake-ups, and might do its work a second time.
_here = threading.local()
_forked = False


def own_forks(loop: AbstractEventLoop | None = None) -> None:
    """Declare that this thread, on which `loop` runs, calls user code for as long as it lives."""
    _here.user_code = True
    _here.loop = loop


def leave_fork(error: BaseException | None = None) -> None:
    """End this process, with the status for `error`, if user code forked it."""
    if _forked:
        status = error.code or 0 if isinstance(error, SystemExit) else int(error is not None)
        os._exit(status if isinstance(status, int) else 1)


def _in_child() -> None:
    global _forked
    if not getattr(_here, "user_code", False):
        return
    _forked = True
    if _here.loop is not None:
        # Async code that awaits returns to its loop.
        _here.loop.call_soon(leave_fork)


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_in_child)


class Running(Generic[T]):
    """One task on a worker loop; await it, on the loop that started it, for the result.

    Cancelling the awaiting task cancels the work. The work's exception is raised here. If it is no
    Exception, or a CancelledError although nobody cancelled the work, it is raised as RuntimeError.
    """

    def __init__(self, work: Callable[[], Coroutine[Any, Any, T]]) -> None:
        self._work: Callable[[], Coroutine[Any, Any, T]] | None = work
        self._context: Context | None = copy_context()
        self._caller = mailbox()
        self.task: asyncio.Task[None] | None = None
        self._place: WorkerLoop | None = None
        self.pulled = False
        self._started = False
        self._cancelled = False
        self._reached = False
        self._result: T | None = None
        self._error: BaseException | None = None
        self._known = False
        self._then: tuple[Callable[[], object], ...] = ()
        self.since = monotonic()

    def __await__(self) -> Generator[Any, None, T]:
        if not self._known:
            end: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            self._then += (partial(wake_waiter, end),)
            try:
                yield from end
            except asyncio.CancelledError:
                self.cancel()
                raise
        if self._error is None:
            return cast("T", self._result)
        try:
            raise self._error
        finally:
            # Otherwise the error would keep this frame alive, and the frame the error.
            del self

    def done(self) -> bool:
        """Whether the caller knows the result, exception or cancellation."""
        return self._known

    def cancel(self) -> None:
        """Cancel the work from its own loop; from any thread, any number of times.

        The awaiting task gets CancelledError when the work has ended. If user code blocks the
        work's loop, it gets it a moment later, while the blocked code is left to finish.
        """
        if self._cancelled:
            return
        self._cancelled = True
        if (place := self._place) is not None:
            place.to_cancel.add(self)
            place.post(partial(self._cancel_here, place))
        self._caller.post(self._expect_end)

    def abandon(self) -> None:
        """Give the waiter of the cancelled work its CancelledError, whatever the work still does;
        from any thread."""
        self._caller.post(partial(self._settle, None, asyncio.CancelledError()))

    def on_end(self, call: Callable[[], object]) -> None:
        """Have `call` run on the caller's loop when the end is known; `failure` says how it ended.

        Call it on that loop, before the end is known.
        """
        self._then += (call,)

    def failure(self) -> BaseException | None:
        """The exception of the ended work, CancelledError for cancelled work; None for a result."""
        return self._error

    def begin(self, place: WorkerLoop, *, pulled: bool = False) -> None:
        """Start the work on the loop of `place` and run its first step; called on that loop.

        `pulled` says that it comes from the queue of waiting turns, from which other loops take the
        rest if that step blocks.
        """
        self._place = place
        work, context = self._work, self._context
        self._work = self._context = None
        if self._cancelled or work is None:
            return
        assert context is not None
        self.pulled = pulled
        place.came(self)
        place.in_first_step = pulled
        try:
            self.task, step = _task(place.loop, self._run(place, work), context)
            if step is not None:
                context.run(step)
                # If this step forked the process, the loop must not run in the child: libuv aborts
                # both processes when both change the descriptors that they wait on.
                leave_fork()
        except Exception as error:
            # The user's task factory refused.
            self._end(place, None, error)
        finally:
            place.in_first_step = False

    async def _run(self, place: WorkerLoop, work: Callable[[], Coroutine[Any, Any, T]]) -> None:
        """Do the work so that none of its exceptions can end the loop that it runs on.

        It reports its end itself: a callback of the task would run one round of the loop later.
        """
        self._started = True
        try:
            result = await work()
            leave_fork()
        except Exception as error:
            leave_fork(error)
            self._end(place, None, error)
        except BaseException as error:
            cancelled = self._cancelled or place.stopping
            passes = cancelled and isinstance(error, asyncio.CancelledError)
            self._end(place, None, error if passes else contained(error))
        else:
            self._end(place, result, None)
        finally:
            # To avoid a reference cycle, as in `__await__`.
            del self

    def _end(self, place: WorkerLoop, result: T | None, failure: BaseException | None) -> None:
        place.left(self)
        settle = partial(self._settle, result, failure)
        if place.box is self._caller:
            place.loop.call_soon(settle, context=place.context)
        elif place.rings_later and self._caller is place.server:
            self._caller.add(settle)
        else:
            self._caller.post(settle, last=place.last)

    def _cancel_here(self, place: WorkerLoop) -> None:
        self._reached = True
        place.to_cancel.discard(self)
        if self.task is None:
            return
        self.task.cancel()
        if not self._started:
            # It will never start now, so nothing else would report its end.
            self._started = True
            self._end(place, None, asyncio.CancelledError())

    def _expect_end(self) -> None:
        if self._place is None:
            self._settle(None, asyncio.CancelledError())
        elif not self._known:
            asyncio.get_running_loop().call_later(PATIENCE, self._give_up)

    def _give_up(self) -> None:
        if not self._reached or self.task is None:
            self._settle(None, asyncio.CancelledError())

    def _settle(self, result: T | None, failure: BaseException | None) -> None:
        if self._known:
            return
        self._known = True
        self._result, self._error = result, failure
        then, self._then = self._then, ()
        for call in then:
            call()


class StartedTurn:
    """A started turn; `overdue` says that it was cancelled for taking too long."""

    __slots__ = ("overdue", "running", "until")

    def __init__(self, running: Running[None], until: float) -> None:
        self.running = running
        self.until = until
        self.overdue = False

    def check(self, now: float) -> None:
        """Cancel the turn if its time is over, wherever its code blocks; if it catches that and
        continues, it is abandoned."""
        if now > self.until and not self.overdue:
            self.overdue = True
            self.running.cancel()
        elif self.overdue and now > self.until + GRACE:
            self.running.abandon()


def _task(
    loop: asyncio.AbstractEventLoop, work: Coroutine[Any, Any, None], own: Context
) -> tuple[asyncio.Task[None], Callable[[], object] | None]:
    """A task, and its first step for the caller to run in the context `own`.

    The loop would run it one round later, and a round costs a quarter of a small turn.
    """
    call_soon, step = loop.call_soon, None

    def catch(call: Callable[..., object], *args: Any, context: Context | None = None) -> Any:
        # A new task schedules its first step itself, in this way and in its own context. Other code
        # may schedule calls meanwhile: generators ended by the garbage collector, an eager task
        # factory.
        nonlocal step
        if context is not own or args:
            return call_soon(call, *args, context=context)
        step = call
        return None

    loop.call_soon = catch  # type: ignore[assignment, method-assign]
    try:
        task = loop.create_task(work, context=own)
    except Exception:
        work.close()
        raise
    finally:
        del loop.call_soon
    return task, step


def contained(error: BaseException) -> Exception:
    """The exception that replaces one that would end a process or a loop."""
    leave_fork(error)
    failure = RuntimeError(f"the code raised {type(error).__name__}")
    failure.__cause__ = error
    return failure


class Place(Protocol):
    """A place where one call may start; each is either released, or runs its call, once."""

    async def comes(self, until: float) -> bool:
        """Whether the place has arrived, at the latest at `until` (monotonic seconds)."""
        ...

    async def run(self, fn: Callable[..., Any], *args: Any) -> Any:
        """The result of `fn(*args)`, which starts at once: a plain function on a thread, an async
        one on a loop."""
        ...

    def leave(self) -> None:
        """Release the place; no effect once it runs its call."""
        ...


class Arrival:
    """The arrival of a place, announced to the loop that waits for it."""

    def __init__(self) -> None:
        self.here = False
        self._box = mailbox()
        self._arrived: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    def announce(self) -> None:
        self.here = True
        self._box.post(partial(wake_waiter, self._arrived), last=True)

    async def within(self, until: float) -> bool:
        left = until - monotonic()
        if not self.here and left > 0:
            await asyncio.wait({self._arrived}, timeout=left)
        return self.here


class LoopPlace:
    """A worker loop that has arrived for this call; it may be blocked again before the call
    starts."""

    def __init__(self, workers: Workers) -> None:
        self._arrival = Arrival()
        self._go: asyncio.Future[Callable[[], Coroutine[Any, Any, Any]]]
        self._started = False
        self.comes = self._arrival.within
        self._running = workers.spawn(self._live)

    async def _live(self) -> Any:
        self._go = asyncio.get_running_loop().create_future()
        self._box = mailbox()
        self._arrival.announce()
        work = await self._go
        return await work()

    async def run(self, fn: Callable[..., Any], *args: Any) -> Any:
        return await self.spawn(partial(fn, *args))

    def spawn(self, work: Callable[[], Coroutine[Any, Any, Any]]) -> Running[Any]:
        """Run `work()`, as `Workers.spawn` does."""
        self._started = True
        self._box.post(partial(wake_waiter, self._go, work), last=True)
        return self._running

    def leave(self) -> None:
        if not self._started:
            self._running.cancel()
