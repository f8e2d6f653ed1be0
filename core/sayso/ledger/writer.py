"""Group commit: one thread runs all works that wait in one transaction, for one flush to disk.

A work that raises does not undo the others. Results leave only after the commit, with one wake-up
for each event loop that waits.
"""

from __future__ import annotations

import asyncio
import logging
import queue
import threading
import time
from asyncio import AbstractEventLoop, Future
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Protocol, TypeVar

from sayso.errors import LedgerUnavailable
from sayso.ledger import Reading, Transaction
from sayso.ledger.chains import Entry
from sayso.ledger.rows import Database, Row, SqlTransaction, Statement, questions
from sayso.workers.mailbox import mailbox

T = TypeVar("T")
Work = Callable[[Transaction], Any]
_LARGEST_GROUP = 256
_logger = logging.getLogger("sayso.ledger")


@dataclass(frozen=True, slots=True)
class Outcome:
    """What a work returned, or raised."""

    value: Any = None
    error: BaseException | None = None


class Connection(Database, Protocol):
    """A Database that begins and ends transactions."""

    errors: tuple[type[Exception], ...]
    """What its statements raise; the transaction is then lost."""
    distant: bool
    """Whether each answer takes a journey, so that questions are better asked together."""

    def begin(self, asked: Sequence[Statement] = ()) -> tuple[float, list[list[Row]]]:
        """Begin; returns the time and the answers to what is `asked`, which only a distant one
        is. Raises LedgerUnavailable.

        Whatever `begin` or `commit` raise, `rollback` follows.
        """
        ...

    def read_all(self, asked: Sequence[Statement]) -> list[list[Row]]:
        """The answers to all these statements, from a distant one."""
        ...

    def commit(self) -> None:
        """Commit. Raises LedgerUnavailable."""
        ...

    def rollback(self) -> None:
        """End without effect; never raises."""
        ...

    def retryable(self, error: Exception) -> bool:
        """Whether `error` asks to run the transaction again (a deadlock)."""
        ...

    def explained(self, error: Exception) -> str:
        """For the log: the store, what `error` says of it, and the way out."""
        ...


def run_group(db: Connection, works: Sequence[Work], retries: int = 5) -> list[Outcome]:
    """Run `works` in one transaction and commit it; one outcome for each.

    A statement that fails loses the whole transaction: then each work gets one of its own. Raises
    LedgerUnavailable when nothing can be begun, or it is unknown whether the commit happened.
    """
    try:
        return _together(db, works)
    except db.errors as error:
        if len(works) > 1:
            return _apart(db, works)
        if retries and db.retryable(error):
            return run_group(db, works, retries - 1)
        return [Outcome(error=unavailable(error, db.explained(error)))]


def unavailable(cause: BaseException, explained: str = "") -> LedgerUnavailable:
    """The error for callers, with the store's own error as its cause and a note for the log."""
    error = LedgerUnavailable()
    error.__cause__ = cause
    if explained:
        error.add_note(explained)
    return error


def _all(error: LedgerUnavailable, count: int) -> list[Outcome]:
    # One object raised in several tasks would gather all their tracebacks.
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
        # Rare: what refuses does so before it writes. So savepoints wait until one needs them.
        return _transaction(db, works, savepoints=True)


def _transaction(db: Connection, works: Sequence[Work], *, savepoints: bool) -> list[Outcome]:
    outcomes: list[Outcome] = []
    entries: list[Entry] = []
    try:
        asked = _asked(db, works[0])
        now, answers = db.begin(asked)
        for number, work in enumerate(works):
            if number:
                asked = _asked(db, work)
                answers = db.read_all(asked) if asked else []
            if savepoints and entries:
                # A work that is undone must not take the entries of others with it.
                db.append(entries)
                entries.clear()
            known = dict(zip(asked, answers, strict=True))
            tx = SqlTransaction(db, now, entries, known)
            outcome = _one(db, tx, work, savepoints=savepoints)
            if outcome.error and tx.wrote and len(works) == 1:
                db.rollback()
                return [outcome]
            if outcome.error and tx.wrote and not savepoints:
                raise _Tainted
            if outcome.error is None:
                entries += tx.entries
            outcomes.append(outcome)
        if entries:
            db.append(entries)
        db.commit()
    except BaseException:
        db.rollback()
        raise
    return outcomes


def _asked(db: Connection, work: Work) -> list[Statement]:
    return questions(work, db.lock) if db.distant else []


def _one(db: Connection, tx: SqlTransaction, work: Work, *, savepoints: bool) -> Outcome:
    if savepoints:
        db.write("SAVEPOINT work")
    try:
        value = work(tx)
    except db.errors:
        raise
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


@dataclass(frozen=True, slots=True, eq=False)
class _Job:
    work: Work
    future: Future[Any]
    loop: AbstractEventLoop

    def as_work(self) -> Work:
        """The work, unless nobody waits for it any more when its turn comes."""
        if isinstance(self.work, Reading):
            return replace(self.work, work=self._run)
        return self._run

    def _run(self, tx: Transaction) -> Any:
        if self.future.done():
            raise LedgerUnavailable("the caller of this work has gone")
        return self.work(tx)


class Writer:
    """The thread that runs works for one store of this process.

    `group` is given what waits and returns an outcome for each; what it raises is the outcome of
    all; `after` is called when they have left. A work that has no outcome within `patience` seconds
    raises LedgerUnavailable for its caller, and `stalled` is called, which may cut the connection.
    """

    def __init__(
        self,
        group: Callable[[Sequence[Work]], list[Outcome]],
        *,
        patience: float,
        stalled: Callable[[], None] = lambda: None,
        after: Callable[[], None] = lambda: None,
    ) -> None:
        self._group = group
        self._after = after
        self._patience = patience
        self._stalled = stalled
        self._jobs: queue.SimpleQueue[_Job | None] = queue.SimpleQueue()
        self._since = 0.0
        self._closed = False
        self._closing = threading.Lock()
        self._thread = threading.Thread(target=self._serve, name="sayso-ledger", daemon=True)
        self._thread.start()

    async def run(self, work: Callable[[Transaction], T]) -> T:
        """`work`'s result once it is committed; a cancelled work that has not begun never does."""
        loop = asyncio.get_running_loop()
        future: Future[T] = loop.create_future()
        with self._closing:
            if self._closed:
                raise LedgerUnavailable("the approvals store is closed")
            self._jobs.put(_Job(work, future, loop))
        timer = loop.call_later(self._patience, self._give_up, future)
        try:
            return await future
        finally:
            timer.cancel()

    def close(self, seconds: float = 10.0) -> None:
        """Run what waits, then end the thread; idempotent."""
        with self._closing:
            if not self._closed:
                self._jobs.put(None)
            self._closed = True
        self._thread.join(seconds)
        if self._thread.is_alive():
            self._stalled()
            self._thread.join(1)

    def _give_up(self, future: Future[Any]) -> None:
        if not future.done():
            future.set_exception(LedgerUnavailable("the approvals store did not answer in time"))
            # Not a group that began only lately, on a connection that works again.
            if self._since and time.monotonic() - self._since > self._patience / 2:
                self._stalled()

    def _serve(self) -> None:
        going = True
        while going:
            going, jobs = self._next()
            jobs = [job for job in jobs if not job.future.done()]
            if jobs:
                _deliver(jobs, self._outcomes(jobs))
                self._after()

    def _next(self) -> tuple[bool, list[_Job]]:
        job = self._jobs.get()
        jobs: list[_Job] = []
        while job is not None:
            jobs.append(job)
            if len(jobs) == _LARGEST_GROUP or self._jobs.empty():
                return True, jobs
            job = self._jobs.get()
        return False, jobs

    def _outcomes(self, jobs: Sequence[_Job]) -> list[Outcome]:
        self._since = time.monotonic()
        try:
            return self._group([job.as_work() for job in jobs])
        except LedgerUnavailable as error:
            return _all(error, len(jobs))
        except BaseException as error:
            _logger.exception("the approvals store failed")
            return _all(unavailable(error), len(jobs))
        finally:
            self._since = 0.0


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
