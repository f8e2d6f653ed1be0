"""A piece of work under way on a worker loop, as its caller holds it."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Generator
from contextvars import Context, copy_context
from time import monotonic
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from assent.workers.mailbox import mailbox

if TYPE_CHECKING:
    from assent.workers.loop import WorkerLoop

T = TypeVar("T")

PATIENCE = 0.05
"""Seconds that a canceller waits for a loop that may be blocked in user code."""


class Running(Generic[T]):
    """One task on a worker loop; await it, on the loop that started it, for the result.

    Cancelling the awaiting task cancels the work. What the work raises comes out here;
    `KeyboardInterrupt` and `SystemExit` come as RuntimeError.
    """

    def __init__(self, work: Callable[[], Coroutine[Any, Any, T]]) -> None:
        self._work: Callable[[], Coroutine[Any, Any, T]] | None = work
        self._context: Context | None = copy_context()
        self._caller = mailbox()
        loop = self._caller.loop()
        assert loop is not None
        self._loop = loop
        self._future: asyncio.Future[T] = loop.create_future()
        self._task: asyncio.Task[T] | None = None
        self._place: WorkerLoop | None = None
        self._cancelled = False
        self._reached = False
        self.since = monotonic()

    def __await__(self) -> Generator[Any, None, T]:
        try:
            return (yield from self._future.__await__())
        except asyncio.CancelledError:
            self.cancel()
            raise

    def done(self) -> bool:
        """Whether the result, exception or cancellation is known to the caller."""
        return self._future.done()

    def cancel(self) -> None:
        """Cancel the work from its own loop; from any thread, any number of times.

        Whoever awaits gets CancelledError: when the work has ended, or, when user code blocks its
        loop, a moment later while the blocked code is left to finish.
        """
        if self._cancelled:
            return
        self._cancelled = True
        if self._place is not None:
            self._place.post(self._cancel_here)
        self._caller.post(self._expect_end)

    def on_end(self, call: Callable[[], object]) -> None:
        """Have `call` run on the caller's loop when the end is known; `failure` says how."""
        self._future.add_done_callback(lambda _: call())

    def failure(self) -> BaseException | None:
        """What the ended work raised, CancelledError for cancelled work; None for a result."""
        return asyncio.CancelledError() if self._future.cancelled() else self._future.exception()

    def begin(self, place: WorkerLoop, *, pulled: bool = False) -> None:
        """Start the work on the loop of `place`; called on that loop.

        `pulled` says that others take the turns that wait if the work's first step blocks.
        """
        self._place = place
        work, context = self._work, self._context
        self._work = self._context = None
        if self._cancelled or work is None:
            return
        place.turns.add(self)
        contained = _first(place, work) if pulled else _contained(work)
        self._task = place.loop.create_task(contained, context=context)
        if pulled:
            place.loop.call_soon(place.first_step_over, context=place.context)
        self._task.add_done_callback(self._ended)

    def _cancel_here(self) -> None:
        self._reached = True
        if self._task is not None:
            self._task.cancel()

    def _expect_end(self) -> None:
        if self._place is None:
            self._future.cancel()
        elif not self._future.done():
            self._loop.call_later(PATIENCE, self._give_up)

    def _give_up(self) -> None:
        if not self._reached or self._task is None:
            self._future.cancel()

    def _ended(self, task: asyncio.Task[T]) -> None:
        assert self._place is not None
        self._place.left(self)
        if self._place.box is self._caller:
            self._settle()
        else:
            self._caller.post(self._settle)

    def _settle(self) -> None:
        task, future = self._task, self._future
        assert task is not None
        if task.cancelled():
            future.cancel()
            return
        error = task.exception()
        if future.done():
            return
        if error is not None:
            future.set_exception(error)
        else:
            future.set_result(task.result())


async def _first(place: WorkerLoop, work: Callable[[], Coroutine[Any, Any, T]]) -> T:
    place.in_first_step = True
    return await _contained(work)


async def _contained(work: Callable[[], Coroutine[Any, Any, T]]) -> T:
    """Run `work` so that nothing it raises can end the loop it runs on."""
    try:
        return await work()
    except (Exception, asyncio.CancelledError, GeneratorExit):
        raise
    except BaseException as error:
        raise contained(error) from error


def contained(error: BaseException) -> Exception:
    """What stands in the result for an exception that would end a process or a loop."""
    return RuntimeError(f"the code raised {type(error).__name__}")
