"""The ledger in PostgreSQL, shared by many machines: `postgresql://…`, extra `postgres`.

A transaction locks the rows that it reads, turns first, and sees their state at the time of the
lock; a read-only one locks nothing. The heads of the log's chains are locked last, by statements
sent together with the commit. Several groups of works run at a time.
"""

from __future__ import annotations

import asyncio
import secrets
import threading
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any, TypeVar
from urllib.parse import quote

import psycopg
from psycopg.conninfo import conninfo_to_dict

from sayso import ConfigError, LedgerUnavailable, Owner, Transaction
from sayso.ledger.sql import (
    SCHEMA,
    SET_META,
    TABLES,
    Lane,
    MustWrite,
    Outcome,
    SqlTransaction,
    Work,
    Writer,
    first_heads,
    key,
    newer,
    run_group,
    steps,
    unavailable,
)
from sayso_postgres import keeping
from sayso_postgres.connection import SETTINGS, PostgresConnection, Raw, answered
from sayso_postgres.waking import Waking

T = TypeVar("T")
LANES = 4
"""Groups of works that run at a time; each has a connection, made when it is first needed."""
_MIGRATION = 0x736179736F
_TABLES = f"""{TABLES.format(text='TEXT COLLATE "C"')}{first_heads()}"""
_FIND = "SELECT to_regclass('sayso_meta')::text"
_RENEW = tuple(
    f"UPDATE {table} SET lease = extract(epoch FROM clock_timestamp())::float8 + %s WHERE id IN "
    f"(SELECT id FROM {table} WHERE owner = %s AND state = '{state}' AND id = ANY(%s) "
    "ORDER BY id FOR UPDATE)"
    for table, state in (("sayso_turns", "RESUMING"), ("sayso_proposals", "EXECUTING"))
)
"""Locks rows in the same order as works, so that no two wait for each other."""
_SESSION = """
SET SESSION CHARACTERISTICS AS TRANSACTION ISOLATION LEVEL READ COMMITTED;
SET synchronous_commit = on;
SET lock_timeout = '5s';
SET statement_timeout = '6s';
SET idle_in_transaction_session_timeout = '3s';
SET tcp_keepalives_idle = 5;
SET tcp_keepalives_interval = 2;
SET tcp_keepalives_count = 3;
SELECT set_config(name, '5000', false) FROM pg_settings WHERE name = 'tcp_user_timeout';
"""
"""A process that stands still inside a transaction has its session ended before those that wait for
its locks time out. A machine that vanishes in the middle of a batch would keep the lock on the head
for hours: while the server waits for the rest of the batch, none of its other limits applies.
Version 11 has no `tcp_user_timeout`."""
SETTLING = 5.0
"""Seconds for the server's answers to the first statements on a connection."""
OPENING = 20.0
"""Seconds for the further statements of a start."""
_SECRET_KEYS = frozenset({"password", "sslpassword"})
_CONNECT_DEFAULTS = {
    "connect_timeout": "3",
    "tcp_user_timeout": "5000",
    "keepalives_idle": "5",
    "keepalives_interval": "2",
    "keepalives_count": "3",
    "application_name": "sayso",
    # If the URL has several servers, the current primary.
    "target_session_attrs": "read-write",
}


class PostgresStore:
    """A `Store` in the database at `url`; `patience` is a caller's wait for a result in seconds.

    Its tables are named `sayso_…` and are in the first schema of the search path.
    """

    shared = True

    def __init__(self, url: str, *, patience: float = 10.0) -> None:
        self._parameters = _parameters(url)
        self.url = _shown(self._parameters)
        self._patience = patience
        number = secrets.randbits(63)
        self._lanes = [
            PostgresConnection(self._connect, self._explained, number) for _ in range(LANES)
        ]
        self._writer: Writer | None = None
        self._renewing = threading.Lock()
        self._renewer = PostgresConnection(self._connect, self._explained, number)
        self._waking = Waking(self._connect)

    async def exists(self) -> bool:
        """Whether a service has made its tables. Raises ConfigError."""
        return await asyncio.to_thread(self._exists)

    def save(self, file: Path) -> None:
        """Implements `Keepable`: see `sayso_postgres.keeping`."""
        with self._keeping() as connection:
            keeping.save(connection, file, f"the approvals store {self.url!r}")

    def fill(self, file: Path) -> None:
        """Implements `Keepable`: see `sayso_postgres.keeping`."""
        with self._keeping() as connection:
            keeping.fill(connection, file, f"the approvals store {self.url!r}", self._make)

    @contextmanager
    def _keeping(self) -> Iterator[Raw]:
        try:
            with self._connect() as connection:
                yield connection
        except psycopg.Error as error:
            raise ConfigError(self._explained(error)) from None

    async def open(self) -> None:
        if self._writer is None:
            await asyncio.to_thread(self._open)

    async def close(self) -> None:
        await asyncio.to_thread(self._close)

    async def woken(self, seconds: float) -> None:
        """Return when another process has decided something, or after this number of seconds."""
        await asyncio.to_thread(self._waking.wait, seconds)

    async def wake(self) -> None:
        """Let `woken` return in the other processes."""
        await asyncio.to_thread(self._waking.notify)

    async def run(self, work: Callable[[Transaction], T]) -> T:
        if self._writer is None:
            raise LedgerUnavailable("the approvals store is closed")
        return await self._writer.run(work)

    async def check(self) -> None:
        await self.run(SqlTransaction.touch)  # type: ignore[arg-type]

    def renew(self, owner: str, seconds: float, ids: Collection[str]) -> None:
        with self._renewing:
            if self._writer is None:
                raise LedgerUnavailable("the approvals store is closed")
            try:
                self._renew(owner, seconds, ids)
            except psycopg.Error:
                self._renewer.cut()
                try:
                    self._renew(owner, seconds, ids)
                except psycopg.Error as error:
                    self._renewer.cut()
                    raise unavailable(error, self._explained(error)) from error
            if self._writer is None:
                # `close` did not wait for this renewal.
                self._renewer.cut()

    def hold(self, owner: str) -> None:
        """Do nothing: a lock on one machine says nothing to the others."""

    def dead(self, owner: Owner) -> bool:
        """False: only an expired lease shows it."""
        return False

    def _renew(self, owner: str, seconds: float, ids: Collection[str]) -> None:
        raw = self._renewer.live()
        keys = sorted(map(key, ids))
        with answered(raw, min(self._patience, seconds / 3)):
            for sql in _RENEW:
                raw.execute(sql.encode(), (seconds, key(owner), keys))

    def _connect(self) -> Raw:
        connection = Raw.connect(autocommit=True, prepare_threshold=None, **self._parameters)
        try:
            with answered(connection, SETTLING):
                [(process,)] = connection.execute("SELECT pg_backend_pid()").fetchall()
                connection.pooled = process != connection.info.backend_pid
                if not connection.pooled:
                    connection.execute(_SESSION)
        except BaseException:
            connection.close()
            raise
        return connection

    def _exists(self) -> bool:
        try:
            with self._connect() as raw, answered(raw, SETTLING):
                return bool(raw.execute(_FIND).fetchall()[0][0])
        except psycopg.Error as error:
            raise ConfigError(self._explained(error)) from None

    def _open(self) -> None:
        try:
            with self._connect() as raw, answered(raw, OPENING), raw.transaction():
                raw.execute(SETTINGS)
                self._make(raw)
        except psycopg.Error as error:
            raise ConfigError(self._explained(error)) from None
        lanes = [Lane(partial(_group, db), stalled=db.abort) for db in self._lanes]
        self._writer = Writer(lanes, patience=self._patience)
        self._waking = Waking(self._connect)

    def _make(self, raw: psycopg.Connection[Any]) -> None:
        """Make or migrate the tables, in the running transaction."""
        raw.execute("SELECT pg_advisory_xact_lock(%s)", (_MIGRATION,))
        self._migrate(raw)

    def _migrate(self, raw: psycopg.Connection[Any]) -> None:
        [(table,)] = raw.execute(_FIND).fetchall()
        if table is None:
            raw.execute(_TABLES.encode())
            set_meta = SET_META.replace("?", "%s").encode()
            raw.execute(set_meta, ("schema", str(SCHEMA)))
        found = raw.execute("SELECT value FROM sayso_meta WHERE key = 'schema'").fetchall()
        version = int(found[0][0]) if found else SCHEMA + 1
        if version > SCHEMA:
            name = f"the approvals store {self.url!r}"
            raise ConfigError(newer(name, version, "database"))
        if version < SCHEMA:
            # Waits for all transactions, since each reads the version, and excludes new ones.
            raw.execute("LOCK TABLE sayso_meta IN ACCESS EXCLUSIVE MODE")
            for step in steps(version):
                raw.execute(step.postgres.encode())
            raw.execute("UPDATE sayso_meta SET value = %s WHERE key = 'schema'", (str(SCHEMA),))
        # Proves that the database accepts a write before anyone depends on it.
        raw.execute("UPDATE sayso_meta SET value = value WHERE key = 'schema'")

    def _explained(self, error: Exception) -> str:
        text = " ".join(str(error).split())
        for name in _SECRET_KEYS:
            if secret := self._parameters.get(name):
                text = text.replace(secret, "***")
        return (
            f"the approvals store {self.url!r} cannot be used: {text}; "
            "check that the server runs, the address, and the rights to create tables"
        )

    def _close(self) -> None:
        writer, self._writer = self._writer, None
        if writer is not None:
            writer.close()
        for db in self._lanes:
            db.cut()
        self._waking.close()
        # A renewal that waits for a silent server must not delay the shutdown.
        self._renewer.abort()
        if self._renewing.acquire(timeout=1):
            self._renewer.cut()
            self._renewing.release()


def _group(db: PostgresConnection, works: Sequence[Work]) -> list[Outcome]:
    """Run the read-only works by themselves, and those of them that turn out to write together with
    the others."""
    outcomes: dict[int, Outcome] = {}
    for reading in (True, False):
        chosen = [
            number
            for number, work in enumerate(works)
            if number not in outcomes and (not reading or getattr(work, "only", False))
        ]
        if chosen:
            db.reading = reading
            db.alone = not reading and any(getattr(works[n], "alone", False) for n in chosen)
            ran = run_group(db, [works[number] for number in chosen])
            outcomes |= {
                number: outcome
                for number, outcome in zip(chosen, ran, strict=True)
                if not isinstance(outcome.error, MustWrite)
            }
    return [outcomes[number] for number in range(len(works))]


def _parameters(url: str) -> dict[str, Any]:
    try:
        given = conninfo_to_dict(url)
    except psycopg.Error:
        given = {}
    # If a special character in a password is not written as %XX, the password's end is taken for
    # the host, the port or the database, and libpq's messages would repeat it.
    ports = str(given.get("port") or "5432").replace(",", "")
    path = url.partition("://")[2].partition("/")[2].partition("?")[0]
    suspect = "@" in f"{given.get('host')}{path}" or not ports.isdecimal()
    if suspect or not given:
        raise ConfigError(
            "'approvals.ledger' is no PostgreSQL URL; try: "
            "postgresql://user:password@host:5432/database, special characters as %XX"
        )
    return {**_CONNECT_DEFAULTS, **given}


def _shown(parameters: dict[str, Any]) -> str:
    user = f"{quote(str(parameters['user']))}@" if "user" in parameters else ""
    port = f":{parameters['port']}" if "port" in parameters else ""
    host, name = parameters.get("host", ""), quote(str(parameters.get("dbname", "")))
    return f"postgresql://{user}{host}{port}/{name}"
