"""One worker loop: a thread with an event loop that takes turns from a shared queue."""

from __future__ import annotations

import asyncio
import logging
import sys
import threading
from collections.abc import AsyncGenerator, Callable, Set
from contextlib import suppress
from contextvars import Context
from typing import TYPE_CHECKING, Any
from weakref import ref

from sayso.workers.mailbox import Mailbox, mailbox
from sayso.workers.running import own_forks
from sayso.workers.threads import Executor, Threads

if TYPE_CHECKING:
    from sayso.workers.running import Running
    from sayso.workers.workers import Workers

logger = logging.getLogger("sayso.workers")


class _Here(threading.local):
    worker: WorkerLoop | None = None


_here = _Here()

_RESTS = 60
"""How often an idle loop rests while tasks are left on it: ten minutes. Tasks of a pool or of a
client that `per_loop` made never end, and would keep the loop, and themselves, for ever."""
AT_A_TIME = 16
"""Turns that a loop takes before it attends to its other work."""


def current_worker() -> WorkerLoop | None:
    """The worker loop of this thread; None on every other thread."""
    return _here.worker


def may_block_here() -> bool:
    """Whether user code may run in the calling task itself.

    It may in the first step of a turn on a worker loop: if that step blocks, other loops take the
    waiting turns, as if the code had been spawned. A hand-over costs more than most of this code.
    """
    worker = _here.worker
    return worker is not None and worker.in_first_step


def cancelled_here() -> Set[Running[Any]]:
    """The turns on this thread's loop that were cancelled and did not receive it yet; a live
    set."""
    worker = current_worker()
    return frozenset() if worker is None else worker.to_cancel


async def let_cancel(cancelled: Set[Running[Any]]) -> None:
    """Let those turns, the caller's too, receive their cancellation; for code that may never
    await."""
    while cancelled:  # noqa: ASYNC110
        await asyncio.sleep(0)


def new_event_loop() -> asyncio.AbstractEventLoop:
    """An event loop of uvloop if it is installed, else asyncio's own."""
    try:
        import uvloop
    except ImportError:
        return asyncio.new_event_loop()
    return uvloop.new_event_loop()


class WorkerLoop:
    """A thread, its event loop, and how busy it is.

    - `woken`: true from the moment it was notified of waiting turns until it looks. While it stays
      true the loop is blocked, or about to look.
    - `in_first_step`: true while a turn from the queue runs that was not suspended yet. If it
      blocks the loop, others take the waiting turns.
    - `last`: true while the last turn of the queue is in its first step.
    - `turns`: the turns under way on this loop; `taken` of them came from the queue, the others are
      bound to it.
    - `to_cancel`: its turns that were cancelled and did not receive it yet.

    `asyncio.to_thread` on it takes one of `threads`.
    """

    def __init__(self, workers: Workers, name: str, threads: Threads) -> None:
        self._workers = workers
        self._threads = threads
        self.context = Context()
        self.stopping = False
        self._idle: asyncio.TimerHandle | None = None
        self._rests = 0
        self.in_first_step = False
        self.last = False
        # If nobody looks for waiting turns, notify the server of each end at once.
        self.server = workers.server if workers.looks else None
        self.turns: set[Running[Any]] = set()
        self.taken = 0
        self.to_cancel: set[Running[Any]] = set()
        self._generators: set[ref[AsyncGenerator[Any, Any]]] = set()
        self.woken = True
        self._asked = self._answered = self._missed = 0
        self.loop: asyncio.AbstractEventLoop
        self.box: Mailbox | None = None
        self._thread = threading.Thread(target=self._live, name=name, daemon=True)

    def start(self, then: Callable[[], object]) -> None:
        """Make the event loop and start its thread; `then` is called on the loop once it runs.

        Raises OSError or RuntimeError if no descriptor or no thread can be had.
        """
        self._then = then
        self.loop = new_event_loop()
        try:
            self.loop.set_default_executor(Executor(self._threads, self._workers.abandoned))
            self.box = mailbox(self.loop)
            self._thread.start()
        except RuntimeError:
            self.box = None
            self.loop.close()
            raise

    def post(self, call: Callable[[], object]) -> None:
        """Have `call` run on the loop; from any thread. A loop not made yet has nothing to do."""
        if self.box is not None:
            self.box.post(call)

    def wake(self, *, last: bool = False) -> None:
        """Notify the loop of waiting turns; from any thread. `last` as for `Mailbox.post`."""
        if not self.woken:
            self.woken = True
            if self.box is not None:
                self.box.post(self._pull, last=last)

    @property
    def rings_later(self) -> bool:
        """Whether the notice of the running turn's end may wait for the turns taken with it.

        The server would only wait for the interpreter's lock. It is notified once this loop takes
        no more, or finds out when it looks for waiting turns.
        """
        return self.in_first_step and not self.last

    @property
    def takes(self) -> bool:
        """Whether a turn may be placed here; a turn that already waits here might block the loop
        later."""
        return not self.taken or self._workers.shares(self)

    def ask(self) -> int:
        """Ask the loop for a sign that nothing blocks it; called on the server's loop.

        Returns how often it was asked in vain since its last sign.
        """
        if self._answered == self._asked:
            self._asked += 1
            self._missed = 0
            self.post(self._answer)
        else:
            self._missed += 1
        return self._missed

    def came(self, turn: Running[Any]) -> None:
        """Count a turn that begins; called on the loop."""
        self.turns.add(turn)
        self.taken += turn.pulled

    def left(self, turn: Running[Any]) -> None:
        """Count a turn that has ended; called on the loop."""
        self.turns.discard(turn)
        self.taken -= turn.pulled
        self._rests = 0
        if turn.pulled and self._workers.waiting:
            self.wake()
        if self is not self._workers.home and not self.turns and self._idle is None:
            self._rest()

    def end(self, seconds: float) -> None:
        """Cancel its tasks, close its objects, end the thread; called on the loop."""
        if not self.stopping:
            self.stopping = True
            self._ending = self.loop.create_task(self._end(seconds), context=self.context)

    def _begin(self) -> None:
        self._counted = sys.get_asyncgen_hooks().firstiter or (lambda _: None)
        sys.set_asyncgen_hooks(firstiter=self._iterated)
        self._then()
        if self._workers.closed:
            self.end(1.0)
            return
        self._rest()
        self._pull()

    def _iterated(self, generator: AsyncGenerator[Any, Any]) -> None:
        """Record the async generators that the end of the loop has to close.

        The loop's own record of them costs more than a small model's reply.
        """
        self._generators.add(ref(generator, self._generators.discard))

    def _answer(self) -> None:
        self._answered = self._asked

    def _pull(self) -> None:
        """Take turns, after the loop was notified of them."""
        if self.taken:
            # The notice may arrive before a turn that has just suspended.
            self.loop.call_soon(self._take, context=self.context)
        else:
            self._take()

    def _take(self) -> None:
        """Take turns and run their first steps; if one blocks, other loops take the rest.

        Suspended turns continue before another is taken, since they may block now.
        """
        waiting = self._workers.waiting
        held = self.taken
        for _ in range(AT_A_TIME):
            if self.stopping or not waiting or not self.takes:
                break
            try:
                turn = waiting.popleft()
            except IndexError:
                break
            self._workers.pulls += 1
            self.last = not waiting
            turn.begin(self, pulled=True)
            self.last = False
            if self.taken > held:
                self._workers.watch()
                break
        self.woken = False
        # Also turns that arrived without a wake-up because the loop was awake.
        goes_on = waiting and not (self.stopping or self.woken)
        if goes_on and self.takes:
            self.woken = True
            self.loop.call_soon(self._take, context=self.context)
            return
        if self.server is not None:
            self.server.ring()
        if goes_on and (other := self._workers.other()):
            other.wake()

    def _rest(self) -> None:
        seconds = self._workers.idle_seconds
        if not self.stopping and self not in (self._workers.home, self._workers.engine_loop):
            self._idle = self.loop.call_later(seconds, self._rested, context=self.context)

    def _rested(self) -> None:
        self._idle = None
        if self.turns:
            return
        self._rests += 1
        # A task left behind by a turn counts as under way, as it does at home, where it stays.
        wait = self._rests < _RESTS and asyncio.all_tasks(self.loop)
        if not wait and self._workers.release(self):
            self.end(1.0)
        else:
            self._rest()

    async def _end(self, seconds: float) -> None:
        # Objects of the loop have tasks of their own, which they end when they close.
        await _cancelled({turn.task for turn in self.turns if turn.task}, seconds)
        await mailbox().close_objects(seconds)
        await _cancelled(asyncio.all_tasks() - {asyncio.current_task()}, seconds)
        for generator in [found for one in self._generators.copy() if (found := one())]:
            self._counted(generator)
        with suppress(TimeoutError):
            await asyncio.wait_for(self.loop.shutdown_asyncgens(), seconds)
        self.loop.stop()

    def _live(self) -> None:
        _here.worker = self
        own_forks(self.loop)
        self.loop.call_soon(self._begin, context=self.context)
        try:
            while True:
                try:
                    self.loop.run_forever()
                except (KeyboardInterrupt, SystemExit) as error:
                    # It came from a task of the user's own; other turns run on this loop too.
                    logger.error("%s was raised on a worker loop", type(error).__name__)
                if self.stopping:
                    break
        finally:
            self.loop.close()
            self._workers.ended(self)


async def _cancelled(tasks: Set[asyncio.Task[Any]], seconds: float) -> None:
    """Cancel `tasks` and wait until they have ended, at most this many seconds."""
    for task in tasks:
        task.cancel()
    if tasks:
        await asyncio.wait(tasks, timeout=seconds)
