"""The worker loops and threads of one process, and how turns are placed on them."""

from __future__ import annotations

import asyncio
import logging
import threading
from collections import deque
from collections.abc import Callable, Coroutine, Sequence
from contextlib import suppress
from functools import partial
from time import monotonic, process_time
from types import TracebackType
from typing import Any, Self, TypeVar

from sayso.workers.abandoned import Abandoned
from sayso.workers.loop import WorkerLoop, current_worker
from sayso.workers.mailbox import Mailbox, mailbox, wake_waiter
from sayso.workers.running import Running
from sayso.workers.threads import WAY_OUT, Threads

T = TypeVar("T")

logger = logging.getLogger("sayso.workers")

LOOK = 0.01
"""Seconds between two looks for waiting turns; a loop that took none meanwhile is blocked."""

BLOCKED = 0.05
"""Seconds after which, if no turn was taken meanwhile, code is blocking, rather than the machine
slow."""

SHORT = 1.0
"""Seconds to pause after an attempt that found no thread or descriptor."""

ASK = 0.2
"""Seconds between two looks at loops with suspended turns."""

APART = 60.0
"""Seconds for which each turn gets a loop of its own, after code has blocked one."""

COMPUTING = 0.8
"""Fraction of a core: above it the process is computing, and further loops would only compete."""

MAX_LOOPS = 96


class Workers:
    """The loops and threads for user code, apart from the server's loop (design, section 9).

    The first worker loop, home, takes all spawned work. Further loops start only while it is
    blocked, at most `loops` in all, and end after `idle_seconds` without work. Once code has
    blocked a loop, each turn has a loop of its own for a while, since a turn that waits on a
    blocked loop could not be moved to another. `loops=1` keeps everything at home. Blocking
    functions run on threads, at most `threads`. The engine loop is for code that never blocks and
    has threads of its own: no user code delays it.
    """

    def __init__(
        self, *, loops: int | None = None, threads: int = 256, idle_seconds: float = 10.0
    ) -> None:
        self._limit = MAX_LOOPS if loops is None else loops
        self.looks = self._limit > 1
        """Whether to look for waiting turns from time to time, in case a loop is blocked."""
        self.threads = Threads(threads, idle_seconds, self._one_ended)
        self._engine_threads = Threads(threads, idle_seconds)
        self.abandoned = Abandoned(self.lend)
        self._lock = threading.Lock()
        self._loops: list[WorkerLoop] = []
        self.server: Mailbox | None = None
        self._armed = False
        self._seen = 0
        self._asked = 0
        self._step = 1
        self._blocked_until = 0.0
        self._apart_until = 0.0
        self._watching = False
        self._asked_at = self._used = 0.0
        self.computing = False
        self._widens_from = 0.0
        self._due = 0.0
        self._waking = False
        self._came = 0
        self._together = 1
        self._ends = asyncio.Event()
        self.closed = False
        self.idle_seconds = idle_seconds
        self.waiting: deque[Running[Any]] = deque()
        self.pulls = 0
        self.home: WorkerLoop | None = None
        self.engine_loop: WorkerLoop | None = None

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self.close()

    @property
    def loops(self) -> int:
        """The number of running worker loops."""
        return len(self._loops)

    async def start(self) -> None:
        """Start home; called on the server's loop, once."""
        server = self.server = mailbox()
        ready: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        home = self.home = WorkerLoop(self, "sayso-home", self.threads)
        self._loops.append(home)
        home.start(lambda: server.post(partial(wake_waiter, ready)))
        await ready

    async def close(self, seconds: float = 5.0) -> None:
        """Cancel all work, close the objects of the loops, end the threads.

        Takes at most about `seconds`; code that still blocks after that is left on its thread.
        """
        if self.closed:
            return
        with self._lock:
            self.closed = True
            loops = [*self._loops, *([self.engine_loop] if self.engine_loop else [])]
        # A loop may take the last one first.
        with suppress(IndexError):
            while True:
                self.waiting.popleft().cancel()
        for worker in loops:
            for turn in list(worker.turns):
                turn.cancel()
            worker.post(partial(worker.end, seconds / 2))
        self.threads.close()
        self._engine_threads.close()
        self._check_ends()
        with suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self._ends.wait()
        if self.server is not None:
            await self.server.close_objects(seconds / 2)

    def spawn(self, work: Callable[[], Coroutine[Any, Any, T]]) -> Running[T]:
        """Run `work()` as one task on a worker loop, in a copy of the caller's context variables.

        From any loop. It runs at home, or on a further loop while home is blocked; from a worker
        loop it stays on that loop unless something blocks it first.
        """
        home = self._open()
        running = Running(work)
        self.waiting.append(running)
        self._wake_one(home)
        if self.waiting and not self._armed and self.looks:
            self._arm_from_here()
        return running

    def lend(self, is_async: bool, by: int) -> None:
        """Allow one thread or loop more, or no longer, in place of one whose call was abandoned."""
        if not is_async:
            self.threads.lend(by)
        elif self.looks:
            with self._lock:
                self._limit += by

    @property
    def blocked(self) -> int:
        """The number of loops blocked by code that nobody waits for: a turn of theirs was
        cancelled, and cannot receive that."""
        return sum(bool(worker.to_cancel) for worker in list(self._loops))

    @property
    def calm(self) -> bool:
        """Whether nothing has blocked home lately, so that work placed there will start soon."""
        return self.looks and monotonic() > self._blocked_until

    def shares(self, worker: WorkerLoop) -> bool:
        """Whether `worker` takes further turns beside a suspended one.

        If no further loop can be started, the loops with the fewest turns do.
        """
        now = monotonic()
        if now >= self._apart_until or self.computing:
            return True
        if len(self._loops) < self._limit and now >= self._widens_from:
            return False
        return all(one.taken >= worker.taken or one.woken for one in self._loops)

    def other(self) -> WorkerLoop | None:
        """An idle loop that takes turns, in place of one that does not."""
        return next((one for one in self._loops if not one.woken and one.takes), None)

    def watch(self) -> None:
        """Make sure that code which blocks a loop with several turns is noticed.

        Called on a worker loop when a turn has suspended there.
        """
        if not self._watching and self.looks and self.server is not None:
            self.server.post(self._ask_soon)

    def on_engine_loop(self, work: Callable[[], Coroutine[Any, Any, T]]) -> Running[T]:
        """Run `work()` as one task on the engine loop, which runs no user code.

        For turns, which reach user code by `spawn` and on `threads`: if a turn awaited it at home,
        it would stand still while another turn's code blocks home.
        """
        self._open()
        running = Running(work)
        loop = self.engine_loop or self._start_engine_loop()
        loop.post(partial(running.begin, loop))
        return running

    async def at_home(self, work: Callable[[], Coroutine[Any, Any, T]]) -> T:
        """Run `work()` on the home loop and return its result; cancelling cancels it.

        For objects bound to home: clients and pools from the hook `resources`.
        """
        home = self._open()
        if mailbox() is home.box:
            return await work()
        running = Running(work)
        home.post(partial(running.begin, home))
        return await running

    def release(self, worker: WorkerLoop) -> bool:
        """Remove the idle loop `worker` if it may end; then no turn is placed on it."""
        with self._lock:
            if worker.woken or self.closed or worker not in self._loops:
                return False
            self._loops.remove(worker)
            return True

    def ended(self, worker: WorkerLoop) -> None:
        """Note that the thread of `worker` has ended; called from it."""
        with self._lock:
            if worker in self._loops:
                self._loops.remove(worker)
            if worker is self.engine_loop:
                self.engine_loop = None
        self._one_ended()

    def _open(self) -> WorkerLoop:
        """The home loop. Raises RuntimeError before the start and after the end."""
        if self.closed or self.home is None:
            raise RuntimeError("the service is stopping" if self.closed else "not started")
        return self.home

    def _one_ended(self) -> None:
        if self.closed and self.server is not None:
            self.server.post(self._check_ends)

    def _check_ends(self) -> None:
        if not (self._loops or self.engine_loop or self.threads.alive):
            self._ends.set()

    def _start_engine_loop(self) -> WorkerLoop:
        with self._lock:
            if self.engine_loop is None:
                loop = WorkerLoop(self, "sayso-engine", self._engine_threads)
                loop.start(lambda: None)
                self.engine_loop = loop
            return self.engine_loop

    def _wake_one(self, home: WorkerLoop) -> None:
        here = current_worker()
        place = home if here is None or here is self.engine_loop else here
        if not place.takes:
            place = self.other() or place
        if here is not None or place is not home:
            place.wake()
            return
        self._came += 1
        if home.woken or self._waking:
            return
        if self._together == 1 or mailbox() is not self.server:
            self._wake_home()
        else:
            # Requests arrive several at a time: wake after the last of them, since a wake-up would
            # take the interpreter's lock between any two of them.
            self._waking = True
            asyncio.get_running_loop().call_soon(self._wake_home)

    def _wake_home(self) -> None:
        self._together, self._came = self._came, 0
        self._waking = False
        if self.home is not None:
            self.home.wake(last=self._together == 1)

    def _arm_from_here(self) -> None:
        # Use the timer of a loop that user code cannot block, if possible the caller's own.
        here, server, loop = mailbox(), self.server, self.engine_loop
        if here is server or (loop is not None and here is loop.box):
            self._arm()
        elif server is not None:
            server.post(self._arm)

    def _arm(self) -> None:
        if not self._armed and self.waiting and not self.closed:
            self._armed = True
            self._seen, self._asked, self._step = self.pulls, 0, 1
            self._look_later()

    def _look(self) -> None:
        self._armed = False
        if self.server is not None:
            # A loop may delay the notice of an end (`rings_later`), and then be blocked.
            self.server.ring()
        if not self.waiting or self.closed:
            return
        self._armed = True
        now, waited = monotonic(), self._oldest()
        # If this look is late, the machine is busy, and so may the loops be.
        patience = LOOK * 0.8 if now < self._due + LOOK / 2 else BLOCKED
        # Loops notified at the last look took one turn each and no second, so they are blocked as
        # well. While turns share no loop, short turns make no room for waiting ones.
        blocked = now < self._apart_until or self.pulls - self._seen <= self._asked
        if blocked and waited >= patience:
            if waited >= BLOCKED:
                self._blocked_until = max(self._blocked_until, now + self.idle_seconds)
            self._asked = self._widen(self._step)
            self._step *= 2
        else:
            self._asked = 0
        self._seen = self.pulls
        self._look_later()

    def _ask_soon(self) -> None:
        if not self._watching:
            self._watching = True
            self._ask_later()

    def _ask_later(self) -> None:
        self._asked_at, self._used = monotonic(), process_time()
        asyncio.get_running_loop().call_later(ASK, self._ask)

    def _ask(self) -> None:
        """Look for blocked loops: their turns cannot be moved, but the next ones go elsewhere."""
        # Reset before the look: a turn that suspends after it schedules the next one itself.
        self._watching = False
        busy = [worker for worker in self._loops if worker.taken]
        now = monotonic()
        self.computing = process_time() - self._used > COMPUTING * (now - self._asked_at)
        if not busy or self.closed:
            return
        self._watching = True
        # Twice in vain: after a single time, the machine, or this process, may just have been
        # suspended.
        if max([worker.ask() for worker in busy]) > 1 and not self.computing:
            self._apart_until = now + APART
            self._blocked_until = max(self._blocked_until, self._apart_until)
        self._ask_later()

    def _look_later(self) -> None:
        self._due = monotonic() + LOOK
        asyncio.get_running_loop().call_later(LOOK, self._look)

    def _oldest(self) -> float:
        try:
            return monotonic() - self.waiting[0].since
        except IndexError:
            return 0.0

    def _widen(self, count: int) -> int:
        with self._lock:
            asleep = [worker for worker in self._loops if not worker.woken and worker.takes]
            for worker in asleep:
                worker.wake()
            asked = sum(not worker.taken for worker in asleep)
            room = self._limit - len(self._loops) if monotonic() >= self._widens_from else 0
            fresh = max(0, min(count - asked, room, len(self.waiting)))
            made = [WorkerLoop(self, "sayso-loop", self.threads) for _ in range(fresh)]
            self._loops += made
        self._start(made)
        return asked + fresh

    def _start(self, made: Sequence[WorkerLoop]) -> None:
        """Start loops as a tree: each starts two others, the calling loop only one."""
        if not made:
            return
        half = len(made) // 2 + 1

        def others() -> None:
            self._start(made[1:half])
            self._start(made[half:])

        try:
            made[0].start(others)
        except (OSError, RuntimeError) as error:
            with self._lock:
                self._widens_from = monotonic() + SHORT
                for worker in made:
                    self._loops.remove(worker)
            self._one_ended()
            logger.warning("turns wait for a worker loop that blocks: %s; %s", error, WAY_OUT)
