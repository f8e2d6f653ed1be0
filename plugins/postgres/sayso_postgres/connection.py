"""A connection to PostgreSQL, whose statements go out in a pipeline."""

from __future__ import annotations

import contextlib
import os
import socket
import threading
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import psycopg
from psycopg import errors, pq

from sayso import LedgerUnavailable, LogRow
from sayso.ledger.sql import SET_META, Row, Statement, dump_log, load_log, unavailable
from sayso_postgres.pipeline import PREPARED, Pipeline

# The clock is read after the lock is there, not when the wait for it begins.
_HEAD = """
WITH head AS MATERIALIZED (SELECT value FROM sayso_meta WHERE key = 'head' FOR UPDATE)
SELECT value, extract(epoch FROM clock_timestamp())::float8 FROM head
"""
SETTINGS = """
SELECT set_config('synchronous_commit', 'on', true), set_config('lock_timeout', '8s', true),
    set_config('statement_timeout', '8s', true),
    set_config('idle_in_transaction_session_timeout', '10s', true)
"""
"""The settings of one transaction."""


class Raw(psycopg.Connection[Any]):
    """A connection of psycopg."""

    pooled = False
    """Whether a pooler stands before the server: it gives numbers of its own to processes."""


class PostgresConnection:
    """`Connection` over psycopg, connected when first needed and again after a loss.

    Statements go out in a pipeline: those that answer nothing wait for one that does. Behind a
    pooler such as PgBouncer each transaction may have another session of the server: then nothing
    is left in one for the next, neither settings nor prepared statements.
    """

    lock = " FOR UPDATE OF p"
    errors: tuple[type[Exception], ...] = (psycopg.Error,)
    distant = True

    def __init__(
        self,
        connect: Callable[[], Raw],
        explained: Callable[[Exception], str],
    ) -> None:
        self._connect = connect
        self.explained = explained
        self._raw: Raw | None = None
        self._pipeline: Pipeline | None = None

    def read(self, sql: str, values: Sequence[object] = ()) -> list[Row]:
        return self.read_all([(sql, tuple(values))])[0]

    def read_all(self, asked: Sequence[Statement]) -> list[list[Row]]:
        pipeline = self._live()
        for sql, values in asked:
            pipeline.send(sql, values)
        return pipeline.answers()[-len(asked) :]

    def write(self, sql: str, values: Sequence[object] = ()) -> None:
        self._live().send(sql, values)

    def begin(
        self, asked: Sequence[Statement] = ()
    ) -> tuple[float, LogRow | None, list[list[Row]]]:
        known = self._raw is not None
        try:
            return self._begin(asked)
        except psycopg.Error as error:
            if isinstance(error, errors.ReadOnlySqlTransaction):
                # What was the primary may be a standby for good.
                self.cut()
            self.rollback()
            if known and self._raw is None:
                # The server restarted while the connection was idle; nothing was begun on it.
                return self.begin(asked)
            raise unavailable(error, self.explained(error)) from error

    def commit(self, head: LogRow | None) -> None:
        if head:
            self.write(SET_META, ("head", dump_log(head)))
        pipeline = self._live()
        # Behind the last writes, in one round trip with them.
        pipeline.send("COMMIT")
        try:
            pipeline.answers()
        except psycopg.Error as error:
            if self._raw is not None and not self._raw.closed:
                # The server answered, so nothing is committed: one of the writes failed.
                raise
            self.cut()
            raise LedgerUnavailable(
                "the approvals store was lost during a commit; send the same request again"
            ) from error
        if pipeline.status != "COMMIT":
            raise LedgerUnavailable("the approvals store refused a commit")

    def rollback(self) -> None:
        """End without effect; a connection that cannot even do that is given up."""
        raw, pipeline = self._raw, self._pipeline
        if raw is None or pipeline is None:
            return
        pipeline.forget()
        try:
            if raw.closed:
                raise psycopg.OperationalError("closed")
            if raw.info.transaction_status != pq.TransactionStatus.IDLE:
                pipeline.send("ROLLBACK")
                pipeline.answers()
        except psycopg.Error:
            self.cut()

    def retryable(self, error: Exception) -> bool:
        return isinstance(error, errors.DeadlockDetected | errors.SerializationFailure)

    def live(self) -> Raw:
        """The connection, made anew after a loss. Raises psycopg.Error."""
        if self._raw is None or self._raw.closed:
            self._raw, self._pipeline = self._connect(), None
        return self._raw

    def abort(self) -> None:
        """Wake a thread that waits for a server that does not answer; from any thread."""
        if self._raw is not None:
            _abort(self._raw)

    def cut(self) -> None:
        """Close; the next transaction connects anew."""
        raw, self._raw, self._pipeline = self._raw, None, None
        if raw is not None:
            raw.close()

    def _live(self) -> Pipeline:
        if self._pipeline is None:
            raise psycopg.OperationalError("the connection is lost")
        return self._pipeline

    def _begin(self, asked: Sequence[Statement]) -> tuple[float, LogRow | None, list[list[Row]]]:
        raw = self.live()
        if self._pipeline is None:
            self._pipeline = Pipeline(raw, prepared=0 if raw.pooled else PREPARED)
        if raw.pooled:
            self._pipeline.send("BEGIN ISOLATION LEVEL READ COMMITTED")
            self._pipeline.send(SETTINGS)
        else:
            self._pipeline.send("BEGIN")
        # What follows sees what was committed before the lock on the head was there.
        rows, *answers = self.read_all([(_HEAD, ()), *asked])
        if not rows:
            raise LedgerUnavailable("the approvals store has lost its log")
        head, now = rows[0]
        return now, load_log(head) if head else None, answers


def _abort(raw: Raw) -> None:
    with contextlib.suppress(psycopg.Error, OSError):
        if not raw.closed:
            with socket.socket(fileno=os.dup(raw.fileno())) as connection:
                connection.shutdown(socket.SHUT_RDWR)


@contextlib.contextmanager
def answered(raw: Raw, seconds: float) -> Iterator[None]:
    """Close the connection if the server does not answer in time, so that whoever waits for it
    fails."""
    alarm = threading.Timer(seconds, _abort, (raw,))
    with contextlib.suppress(RuntimeError):
        alarm.start()
    try:
        yield
    finally:
        alarm.cancel()
