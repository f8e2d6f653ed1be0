"""A connection to PostgreSQL that sends its statements in a pipeline."""

from __future__ import annotations

import contextlib
import os
import socket
import threading
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import psycopg
from psycopg import errors, pq

from sayso import LedgerUnavailable
from sayso.ledger.sql import (
    SCHEMA,
    SELECT,
    SELECT_TURNS,
    Entry,
    Known,
    Row,
    changed,
    dumps,
    hashed_tail,
    ordered,
    unavailable,
)
from sayso_postgres.pipeline import PREPARED, Pipeline

Statement = tuple[str, tuple[object, ...]]
_CLOCK = "extract(epoch FROM clock_timestamp())::float8"
# A migration of the tables locks this one. The lock also represents the transaction: a work that is
# to run alone waits for the locks of all transactions that its store has begun.
_BEGIN = (
    "SELECT value, pg_advisory_xact_lock{}(?::bigint), " + _CLOCK + " "
    "FROM sayso_meta WHERE key = 'schema'"
)
_READ = f"SELECT value, NULL, {_CLOCK} FROM sayso_meta WHERE key = 'schema'"
# Turns before proposals, each in the order of their keys, so that no two transactions wait for each
# other. Separate statements then read the locked rows, so that they see the latest committed state.
_OF_BOTH = (
    'IN (SELECT unnest(?::text[]) COLLATE "C" UNION ALL '
    "SELECT q.turn FROM sayso_proposals q WHERE q.id = ANY(?::text[]))"
)
_LOCK_TURNS = f"SELECT t.id FROM sayso_turns t WHERE t.id {_OF_BOTH} ORDER BY t.id FOR UPDATE OF t"
_LOCK = (
    "SELECT p.id FROM sayso_proposals p WHERE p.id = ANY(?::text[]) ORDER BY p.id FOR UPDATE OF p"
)
_LOCK_FOUND = (
    "SELECT p.id FROM sayso_proposals p WHERE p.id IN "
    "(SELECT p.id FROM sayso_proposals p WHERE {}) ORDER BY p.id FOR UPDATE OF p"
)
_LOCK_TURNS_FOUND = (
    "SELECT t.id FROM sayso_turns t WHERE t.id IN "
    "(SELECT p.turn FROM sayso_proposals p WHERE {}) ORDER BY t.id FOR UPDATE OF t"
)
# The server itself computes the hash, so that the lock on a chain's head is never held during a
# round trip. If the head is missing, `seq` is NULL, which the log does not accept.
_APPEND = """
WITH head AS (
    UPDATE sayso_chains SET seq = seq + 1, previous = hash, hash = encode(sha256(
        convert_to('["' || hash || '",' || (seq + 1)::text || ',', 'UTF8') || decode(?, 'hex')
    ), 'hex') WHERE chain = ? RETURNING chain, seq, previous, hash)
INSERT INTO sayso_log (chain, seq, at, previous, hash, entry)
SELECT head.chain, head.seq, ?::float8, head.previous, head.hash, ?
FROM (SELECT 1) AS one LEFT JOIN head ON true
"""
SETTINGS = """
SELECT set_config('synchronous_commit', 'on', true), set_config('lock_timeout', '5s', true),
    set_config('statement_timeout', '6s', true),
    set_config('idle_in_transaction_session_timeout', '3s', true)
"""
"""The settings of one transaction."""


class Raw(psycopg.Connection[Any]):
    """A connection of psycopg."""

    pooled = False
    """Whether a pooler is in front of the server: it gives processes numbers of its own."""


class PostgresConnection:
    """`Connection` over psycopg, connected when first needed and again after a loss.

    Statements are sent in a pipeline: those without an answer wait for one that has one. Behind a
    pooler such as PgBouncer each transaction may use another session of the server, so nothing is
    left in a session for the next one, neither settings nor prepared statements.
    """

    skip = " FOR UPDATE OF p SKIP LOCKED"
    errors: tuple[type[Exception], ...] = (psycopg.Error,)
    reading = False
    alone = False
    """Whether the next transaction waits for all others with this connection's `number`."""

    def __init__(
        self,
        connect: Callable[[], Raw],
        explained: Callable[[Exception], str],
        number: int,
    ) -> None:
        self._number = number
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

    def fetch(self, turns: Sequence[str], proposals: Sequence[str]) -> Known:
        known = None
        while known is None:
            known = _known(self.read_all(self._asked(turns, proposals)), turns, proposals)
        return known

    def find(self, where: str, values: Sequence[object]) -> list[Row]:
        given = tuple(values)
        if self.reading:
            return self.read(f"{SELECT}{where}", given)
        while True:
            locks = (_LOCK_TURNS_FOUND, _LOCK_FOUND)
            _, locked, rows = self.read_all(
                [*((lock.format(where), given) for lock in locks), (f"{SELECT}{where}", given)]
            )
            # A row that matches only since the lock is read again, with a lock.
            if {row[0] for row in rows} <= {id_ for (id_,) in locked}:
                return rows

    def _asked(self, turns: Sequence[str], proposals: Sequence[str]) -> list[Statement]:
        both, ids = (_array(turns), _array(proposals)), (_array(proposals),)
        reads: list[Statement] = [
            (f"{SELECT_TURNS}p.id {_OF_BOTH}", both),
            (f"{SELECT}p.id = ANY(?::text[])", ids),
        ]
        return reads if self.reading else [(_LOCK_TURNS, both), (_LOCK, ids), *reads]

    def write(self, sql: str, values: Sequence[object] = ()) -> None:
        self._live().send(sql, values)

    def append(self, entries: Sequence[Entry]) -> None:
        for chain, at, entry in ordered(entries):
            self.write(_APPEND, (hashed_tail(at, entry).hex(), chain, at, dumps(entry)))

    def settle(self) -> None:
        """Do nothing: rows that others can read here are on disk."""

    def begin(
        self, turns: Sequence[str] = (), proposals: Sequence[str] = ()
    ) -> tuple[float, Known]:
        known = self._raw is not None
        try:
            return self._begin(turns, proposals)
        except psycopg.Error as error:
            if self.retryable(error):
                raise
            self.rollback()
            if known and self._raw is None:
                # The server restarted while the connection was idle; no transaction had begun on
                # it.
                return self.begin(turns, proposals)
            raise unavailable(error, self.explained(error)) from error

    def commit(self) -> None:
        pipeline = self._live()
        # Sent after the last writes, in one round trip with them.
        pipeline.send("COMMIT")
        try:
            pipeline.answers()
        except psycopg.Error as error:
            if self._raw is not None and not self._raw.closed:
                # The server answered, so the transaction is not committed: one of the writes
                # failed.
                raise
            self.cut()
            raise LedgerUnavailable(
                "the approvals store was lost during a commit; send the same request again"
            ) from error
        if pipeline.status != "COMMIT":
            raise LedgerUnavailable("the approvals store refused a commit")

    def rollback(self) -> None:
        """End without effect; if even that fails, the connection is closed."""
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
        if isinstance(error, errors.ReadOnlySqlTransaction):
            # The former primary may be a standby for good, so connect again.
            self.cut()
            return True
        # A missing row may have been inserted meanwhile.
        again = errors.DeadlockDetected | errors.SerializationFailure | errors.UniqueViolation
        return isinstance(error, again)

    def live(self) -> Raw:
        """The connection, made again after a loss. Raises psycopg.Error."""
        if self._raw is None or self._raw.closed:
            self._raw, self._pipeline = self._connect(), None
        return self._raw

    def abort(self) -> None:
        """Wake a thread that waits for a server that does not answer; from any thread."""
        if self._raw is not None:
            _abort(self._raw)

    def cut(self) -> None:
        """Close; the next transaction connects again."""
        raw, self._raw, self._pipeline = self._raw, None, None
        if raw is not None:
            raw.close()

    def _live(self) -> Pipeline:
        if self._pipeline is None:
            raise psycopg.OperationalError("the connection is lost")
        return self._pipeline

    def _begin(self, turns: Sequence[str], proposals: Sequence[str]) -> tuple[float, Known]:
        raw = self.live()
        if self._pipeline is None:
            self._pipeline = Pipeline(raw, prepared=0 if raw.pooled else PREPARED)
        if self.reading:
            self._pipeline.send("BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY")
        else:
            # The session's own level is the same, if there is a session.
            self._pipeline.send("BEGIN ISOLATION LEVEL READ COMMITTED" if raw.pooled else "BEGIN")
        if raw.pooled:
            self._pipeline.send(SETTINGS)
        asked = self._asked(turns, proposals) if turns or proposals else []
        # The clock is read once the locks are held, not when the wait for them begins.
        clock: list[Statement] = [(f"SELECT {_CLOCK}", ())] if asked else []
        rows, *answers = self.read_all([self._first(), *asked, *clock])
        version, _, now = rows[0] if rows else ("none", None, 0.0)
        if version != str(SCHEMA):
            raise LedgerUnavailable(changed(version))
        if not asked:
            return now, Known()
        [(now,)] = answers[-1]
        known = _known(answers[:-1], turns, proposals)
        return now, self.fetch(turns, proposals) if known is None else known

    def _first(self) -> Statement:
        if self.reading:
            return _READ, ()
        return _BEGIN.format("" if self.alone else "_shared"), (self._number,)


def _known(
    answers: Sequence[list[Row]], turns: Sequence[str], proposals: Sequence[str]
) -> Known | None:
    """The rows from the answers to `_asked`; None if a row was inserted between locking and
    reading."""
    *locked, found_turns, found = answers
    for locks, rows in zip(locked, (found_turns, found), strict=False):
        if not {row[0] for row in rows} <= {id_ for (id_,) in locks}:
            return None
    known = Known(dict.fromkeys(proposals), dict.fromkeys(turns))
    known.turns |= {row[0]: row for row in found_turns}
    known.proposals |= {row[0]: row for row in found}
    return known


def _abort(raw: Raw) -> None:
    with contextlib.suppress(psycopg.Error, OSError):
        if not raw.closed:
            with socket.socket(fileno=os.dup(raw.fileno())) as connection:
                connection.shutdown(socket.SHUT_RDWR)


def _array(keys: Sequence[str]) -> str:
    """The keys as a value for `text[]`."""
    quoted = (key.replace("\\", "\\\\").replace('"', '\\"') for key in keys)
    return "{" + ",".join(f'"{key}"' for key in quoted) + "}"


@contextlib.contextmanager
def answered(raw: Raw, seconds: float) -> Iterator[None]:
    """Close the connection if the server does not answer in time, so that everything waiting for it
    fails."""
    alarm = threading.Timer(seconds, _abort, (raw,))
    with contextlib.suppress(RuntimeError):
        alarm.start()
    try:
        yield
    finally:
        alarm.cancel()
