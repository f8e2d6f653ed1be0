"""Group commit: a thread runs all waiting works in one transaction, with one flush to disk.

A work that raises does not undo the others. Results are delivered only after the commit, with one
wake-up for each waiting event loop.
"""

from __future__ import annotations

import asyncio
import logging
import queue
import threading
import time
from asyncio import AbstractEventLoop, Future
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any, TypeVar

from sayso.errors import LedgerUnavailable
from sayso.ledger import Reading, Transaction
from sayso.ledger.database import Connection, Entry, MustWrite, named
from sayso.ledger.rows import SqlTransaction
from sayso.workers.mailbox import mailbox

T = TypeVar("T")
Work = Callable[[Transaction], Any]
_LARGEST_GROUP = 256
_APART = 0.001
"""The least number of seconds between the starts of two lanes that run concurrently."""
_logger = logging.getLogger("sayso.ledger")


@dataclass(frozen=True, slots=True)
class Outcome:
    """The result of a work, or its exception."""

    value: Any = None
    error: BaseException | None = None


def run_group(db: Connection, works: Sequence[Work], retries: int = 5) -> list[Outcome]:
    """Run `works` in one transaction and commit it; one outcome for each.

    A failing statement loses the whole transaction; then each work gets one of its own. Raises
    LedgerUnavailable if no transaction can begin, or if it is unknown whether the commit happened.
    """
    try:
        return _together(db, works)
    except db.errors as error:
        if retries and db.retryable(error):
            return run_group(db, works, retries - 1)
        if len(works) > 1:
            return _apart(db, works)
        return [Outcome(error=unavailable(error, db.explained(error)))]


def unavailable(cause: BaseException, explained: str = "") -> LedgerUnavailable:
    """The error for callers, with the store's own error as its cause and a note for the log."""
    error = LedgerUnavailable()
    error.__cause__ = cause
    if explained:
        error.add_note(explained)
    return error


def _all(error: LedgerUnavailable, count: int) -> list[Outcome]:
    # One exception object raised in several tasks would collect all their tracebacks.
    outcomes: list[Outcome] = []
    for _ in range(count):
        copy = LedgerUnavailable(str(error))
        copy.__cause__ = error.__cause__
        for note in getattr(error, "__notes__", ()):
            copy.add_note(note)
        outcomes.append(Outcome(error=copy))
    return outcomes


class _Tainted(Exception):
    """A work raised after it had written, in a transaction without savepoints."""


def _together(db: Connection, works: Sequence[Work]) -> list[Outcome]:
    try:
        return _transaction(db, works, savepoints=False)
    except _Tainted:
        # Rare: works refuse before they write. Use savepoints only once one was needed.
        return _transaction(db, works, savepoints=True)


def _transaction(db: Connection, works: Sequence[Work], *, savepoints: bool) -> list[Outcome]:
    outcomes: list[Outcome] = []
    entries: list[Entry] = []
    try:
        now, known = db.begin(*named(works))
        for work in works:
            if savepoints and entries:
                # Append first: a work that is undone must not take the entries of others with it.
                db.append(entries)
                entries.clear()
            tx = SqlTransaction(db, now, entries, known)
            outcome = _one(db, tx, work, savepoints=savepoints)
            if outcome.error and tx.wrote and len(works) == 1:
                db.rollback()
                return [outcome]
            if outcome.error and tx.wrote and not savepoints:
                raise _Tainted
            if outcome.error is None:
                entries += tx.entries
                known.add(tx.own)
            outcomes.append(outcome)
        if entries:
            db.append(entries)
        db.commit()
    except BaseException:
        db.rollback()
        raise
    return outcomes


def _one(db: Connection, tx: SqlTransaction, work: Work, *, savepoints: bool) -> Outcome:
    if savepoints:
        db.write("SAVEPOINT work")
    try:
        value = work(tx)
    except db.errors:
        raise
    except MustWrite as error:
        return Outcome(error=error)
    except Exception as error:
        if savepoints:
            db.write("ROLLBACK TO SAVEPOINT work")
        return Outcome(error=error)
    if savepoints:
        db.write("RELEASE SAVEPOINT work")
    return Outcome(value)


def _apart(db: Connection, works: Sequence[Work]) -> list[Outcome]:
    outcomes: list[Outcome] = []
    try:
        for work in works:
            outcomes += run_group(db, [work])
    except LedgerUnavailable as error:
        outcomes += _all(error, len(works) - len(outcomes))
    return outcomes


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class _Job(Reading[Any]):
    """A work for a caller; it does nothing if that one was cancelled before its turn."""

    future: Future[Any]
    loop: AbstractEventLoop

    def __call__(self, tx: Transaction) -> Any:
        if self.future.done():
            raise LedgerUnavailable("the caller of this work has gone")
        return self.work(tx)


@dataclass(slots=True, eq=False)
class Lane:
    """A way to the store, with a thread of its own.

    `group` gets the waiting works and returns an outcome for each; its exception is the outcome of
    all. `after` is called when the outcomes were delivered. `stalled` may cut the connection.
    """

    group: Callable[[Sequence[Work]], list[Outcome]]
    stalled: Callable[[], None] = lambda: None
    after: Callable[[], None] = lambda: None
    thread: threading.Thread | None = None
    since: float = 0.0
    """When the running group began; 0.0 if none runs."""
    wakened: queue.SimpleQueue[None] = field(default_factory=queue.SimpleQueue)


class Writer:
    """The threads that run works for one store of this process.

    A lane takes all waiting works as one group. The second lane and the following ones take works
    while the earlier ones are busy, but only at such intervals that the groups do not become
    smaller than the round trip to the store is worth. A work without an outcome within `patience`
    seconds raises LedgerUnavailable for its caller; a lane that takes so long is reported as
    stalled.
    """

    def __init__(self, lanes: Sequence[Lane], *, patience: float) -> None:
        self._lanes = lanes
        self._patience = patience
        self._jobs: deque[_Job] = deque()
        self._idle = list(range(len(lanes)))
        self._pausing = False
        # When the next lane may start beside others, based on how long groups take.
        self._due = self._took = 0.0
        self._closed = False
        self._lock = threading.Lock()

    async def run(self, work: Callable[[Transaction], T]) -> T:
        """`work`'s result once it is committed; a work cancelled before it began never runs."""
        loop = asyncio.get_running_loop()
        future: Future[T] = loop.create_future()
        of = work if isinstance(work, Reading) else Reading(work)
        job = _Job(
            *(of.work, of.proposals, of.turns, of.flushed, of.only, of.alone),
            future=future,
            loop=loop,
        )
        with self._lock:
            if self._closed:
                raise LedgerUnavailable("the approvals store is closed")
            self._jobs.append(job)
            self._wake()
        timer = loop.call_later(self._patience, self._give_up, future)
        try:
            return await future
        finally:
            timer.cancel()

    def close(self, seconds: float = 10.0) -> None:
        """Run the waiting works, then end the threads; may be called repeatedly."""
        with self._lock:
            self._closed = True
            for number in self._idle:
                self._lanes[number].wakened.put(None)
            self._idle.clear()
        end = time.monotonic() + seconds
        for lane in self._lanes:
            if lane.thread is not None:
                lane.thread.join(max(0.0, end - time.monotonic()))
                if lane.thread.is_alive():
                    lane.stalled()
                    lane.thread.join(1)

    def _wake(self) -> None:
        """Have the first idle lane take the waiting works, unless one is about to."""
        if not self._idle or self._pausing:
            return
        number = min(self._idle)
        self._idle.remove(number)
        self._pausing = True
        lane = self._lanes[number]
        if lane.thread is None:
            lane.thread = threading.Thread(
                target=self._serve, args=(number, lane), name="sayso-ledger", daemon=True
            )
            lane.thread.start()
        else:
            lane.wakened.put(None)

    def _give_up(self, future: Future[Any]) -> None:
        if not future.done():
            future.set_exception(LedgerUnavailable("the approvals store did not answer in time"))
            for lane in self._lanes:
                # Not if the group began recently, on a connection that works again.
                if lane.since and time.monotonic() - lane.since > self._patience / 2:
                    lane.stalled()

    def _serve(self, number: int, lane: Lane) -> None:
        while (jobs := self._taken(number, lane)) is not None:
            jobs = [job for job in jobs if not job.future.done()]
            for group in _groups(jobs):
                _deliver(group, self._outcomes(lane, group))
                lane.after()

    def _taken(self, number: int, lane: Lane) -> list[_Job] | None:
        """The works that wait, now or as soon as there are any; None after the end."""
        while True:
            pause = self._due - time.monotonic()
            if number and pause > 0:
                time.sleep(pause)
            with self._lock:
                self._pausing = False
                if self._jobs:
                    return self._take()
                if self._closed:
                    return None
                self._idle.append(number)
            lane.wakened.get()

    def _take(self) -> list[_Job]:
        jobs = [self._jobs.popleft() for _ in range(min(len(self._jobs), _LARGEST_GROUP))]
        self._due = time.monotonic() + max(_APART, self._took / len(self._lanes))
        if self._jobs:
            self._wake()
        return jobs

    def _outcomes(self, lane: Lane, jobs: Sequence[_Job]) -> list[Outcome]:
        began = lane.since = time.monotonic()
        try:
            return lane.group(jobs)
        except LedgerUnavailable as error:
            return _all(error, len(jobs))
        except BaseException as error:
            _logger.exception("the approvals store failed")
            return _all(unavailable(error), len(jobs))
        finally:
            lane.since = 0.0
            self._took += 0.2 * (time.monotonic() - began - self._took)


def _groups(jobs: Sequence[_Job]) -> list[list[_Job]]:
    """The jobs that run together, and separately each one that must run alone."""
    together = [job for job in jobs if not job.alone]
    return [group for group in (together, *([job] for job in jobs if job.alone)) if group]


def _deliver(jobs: Sequence[_Job], outcomes: Sequence[Outcome]) -> None:
    loops: dict[AbstractEventLoop, list[tuple[Future[Any], Outcome]]] = {}
    for job, outcome in zip(jobs, outcomes, strict=True):
        loops.setdefault(job.loop, []).append((job.future, outcome))
    for loop, results in loops.items():
        mailbox(loop).post(partial(_settle, results), last=True)


def _settle(results: Sequence[tuple[Future[Any], Outcome]]) -> None:
    for future, outcome in results:
        if future.done():
            continue
        if outcome.error is None:
            future.set_result(outcome.value)
        elif isinstance(outcome.error, StopIteration):
            future.set_exception(RuntimeError("a work raised StopIteration"))
        else:
            future.set_exception(outcome.error)
