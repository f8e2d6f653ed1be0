"""Threads for blocking user code: as many as are needed at once, up to a limit. One may be reserved
for a call."""

from __future__ import annotations

import asyncio
import logging
import threading
from collections.abc import Callable
from concurrent import futures
from concurrent.futures import ThreadPoolExecutor
from contextvars import copy_context
from functools import partial
from queue import Empty, SimpleQueue
from typing import Any, ParamSpec, TypeVar

from sayso.workers.abandoned import SECOND, Abandoned, Watched, described
from sayso.workers.mailbox import mailbox, wake_waiter
from sayso.workers.running import Arrival, contained, leave_fork, own_forks

P = ParamSpec("P")
T = TypeVar("T")

logger = logging.getLogger("sayso.workers")

WAY_OUT = "raise the service's limits of tasks and open files (ulimit -u, ulimit -n)"


class Threads:
    """A pool that starts a thread when all others are busy; idle ones end after a while."""

    def __init__(
        self, limit: int, idle_seconds: float, on_end: Callable[[], None] = lambda: None
    ) -> None:
        self._limit = limit
        self._on_end = on_end
        self._idle_seconds = idle_seconds
        self._jobs: SimpleQueue[Callable[[], None] | None] = SimpleQueue()
        self._lock = threading.Lock()
        self._wanted = 0
        self._lent = 0
        self._threads: set[threading.Thread] = set()
        self._closed = False

    async def run(self, fn: Callable[..., T], *args: Any) -> T:
        """The result of `fn(*args)`, run in a copy of the caller's context variables.

        After a cancellation, a started call finishes on its thread and its result is dropped.
        """
        job, result = call_of(fn, *args)
        self.submit(job)
        return await result

    def close(self) -> None:
        """Accept no more calls and let every idle thread end."""
        with self._lock:
            self._closed = True
            for _ in self._threads:
                self._jobs.put(None)

    @property
    def alive(self) -> bool:
        """Whether any thread still runs, not counting those of abandoned calls."""
        return len(self._threads) > self._lent

    @property
    def count(self) -> int:
        """The number of threads."""
        return len(self._threads)

    def lend(self, by: int) -> None:
        """Allow one thread more, or no longer, in place of one whose call was abandoned."""
        with self._lock:
            self._lent += by
            self._limit += by
            if by > 0 and not self._closed and self._wanted > len(self._threads) < self._limit:
                self._grow()
        if by > 0:
            self._on_end()

    def submit(self, job: Callable[[], None]) -> None:
        """Run `job`, which must not raise, on the next free thread; from any thread."""
        with self._lock:
            if self._closed:
                raise RuntimeError("the service is stopping")
            self._wanted += 1
            if self._wanted > len(self._threads) < self._limit:
                self._grow()
        self._jobs.put(job)

    def _grow(self) -> None:
        thread = threading.Thread(target=self._work, name="sayso-thread", daemon=True)
        try:
            thread.start()
        except RuntimeError as error:
            if not self._threads:
                self._wanted -= 1
                raise
            # Like at the limit, the job waits until one of the others is free.
            logger.warning("calls of user code wait for a thread: %s; %s", error, WAY_OUT)
        else:
            self._threads.add(thread)

    def _work(self) -> None:
        own_forks()
        while True:
            try:
                job = self._jobs.get(timeout=self._idle_seconds)
            except Empty:
                if self._leave():
                    return
                continue
            if job is None:
                self._leave()
                return
            job()
            leave_fork()
            # A waiting thread must not keep the arguments and result of its last call alive.
            del job
            with self._lock:
                self._wanted -= 1

    def _leave(self) -> bool:
        with self._lock:
            if not self._closed and self._wanted >= len(self._threads):
                return False
            self._threads.discard(threading.current_thread())
        self._on_end()
        return True


class ThreadPlace:
    """One of `threads`, reserved for its call. Raises RuntimeError if none can be had."""

    def __init__(self, threads: Threads) -> None:
        self._arrival = Arrival()
        self._jobs: SimpleQueue[Callable[[], None] | None] = SimpleQueue()
        self.comes = self._arrival.within
        threads.submit(self._live)

    def _live(self) -> None:
        self._arrival.announce()
        if (job := self._jobs.get()) is not None:
            job()

    async def run(self, fn: Callable[..., Any], *args: Any) -> Any:
        job, result = call_of(fn, *args)
        self.submit(job)
        return await result

    def submit(self, job: Callable[[], None]) -> None:
        """Run `job`, which must not raise."""
        self._jobs.put(job)

    def leave(self) -> None:
        # After a job it is never read.
        self._jobs.put(None)


class Executor(ThreadPoolExecutor):
    """These threads as the default executor of a loop, for `asyncio.to_thread` in user code.

    The standard one has few threads, and the end of the process waits for them.
    """

    def __init__(self, threads: Threads, abandoned: Abandoned) -> None:
        super().__init__(1)
        self._pool = threads
        self._abandoned = abandoned

    def submit(self, fn: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> futures.Future[T]:
        """A future of `fn(*args, **kwargs)`."""
        watched = Watched(self._abandoned, partial(described, fn, args), False, patience=SECOND)
        future = _WatchedFuture[T](watched)

        def job() -> None:
            if not future.set_running_or_notify_cancel():
                return
            try:
                result = watched.run(fn, *args, **kwargs)
            except BaseException as error:
                future.set_exception(_settable(error))
            else:
                future.set_result(result)

        self._pool.submit(job)
        return future

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:
        """Do nothing: the threads outlive the loop."""


class _WatchedFuture(futures.Future[T]):
    """The future of a call of user code; the call is abandoned if it is cancelled too late."""

    def __init__(self, watched: Watched) -> None:
        super().__init__()
        self._watched = watched

    def cancel(self) -> bool:
        """Cancel the call if it has not begun, else abandon it."""
        cancelled = super().cancel()
        if not cancelled:
            self._watched.abandon()
        return cancelled


def call_of(fn: Callable[..., T], *args: Any) -> tuple[Callable[[], None], asyncio.Future[T]]:
    """A job that calls `fn(*args)` in a copy of this context, and the future of its result."""
    box, context = mailbox(), copy_context()
    future: asyncio.Future[T] = asyncio.get_running_loop().create_future()

    def job() -> None:
        if future.cancelled():
            return
        try:
            result = context.run(fn, *args)
        except BaseException as error:
            box.post(partial(_fail, future, _settable(error)))
        else:
            box.post(partial(wake_waiter, future, result))

    return job, future


def _fail(future: asyncio.Future[T], error: Exception) -> None:
    if not future.done():
        future.set_exception(error)


def _settable(error: BaseException) -> Exception:
    """An exception that a future accepts: neither one that ends a process nor StopIteration."""
    leave_fork(error)
    if isinstance(error, Exception) and not isinstance(error, StopIteration):
        return error
    return contained(error)
