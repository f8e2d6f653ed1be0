"""Places for calls: a thread or a worker loop that has arrived and is reserved for one call, which
starts there at once."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from functools import partial
from queue import SimpleQueue
from time import monotonic
from typing import Any, Protocol

from sayso.workers.mailbox import mailbox, wake_waiter
from sayso.workers.running import Running
from sayso.workers.threads import Threads, call_of
from sayso.workers.workers import Workers


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


class _Arrival:
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


class ThreadPlace:
    """One of `threads`, reserved for its call. Raises RuntimeError if none can be had."""

    def __init__(self, threads: Threads) -> None:
        self._arrival = _Arrival()
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


class LoopPlace:
    """A worker loop that has arrived for this call; it may be blocked again before the call
    starts."""

    def __init__(self, workers: Workers) -> None:
        self._arrival = _Arrival()
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
        self._box.post(partial(_give, self._go, work), last=True)
        return self._running

    def leave(self) -> None:
        if not self._started:
            self._running.cancel()


def _give(future: asyncio.Future[Any], value: Any) -> None:
    if not future.done():
        future.set_result(value)
