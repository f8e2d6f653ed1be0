"""Tasks beside a ledger in PostgreSQL: all services that share the ledger have the same tasks."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, TypeVar
from urllib.parse import quote, unquote_to_bytes

import psycopg
from psycopg.rows import TupleRow

from sayso import LedgerUnavailable, PluginError
from sayso_a2a.rows import Row

T = TypeVar("T")
Connection = psycopg.Connection[TupleRow]
_CONNECTIONS = 2
_PRUNE_EVERY = 64
_VERSION = 1
_LOCK = 0x736179736F613261
# No setting is left in the session: behind a pooler the next transaction may have another one.
_BEGIN = """
SELECT extract(epoch FROM clock_timestamp())::float8, set_config('lock_timeout', '5s', true),
    set_config('statement_timeout', '6s', true),
    set_config('idle_in_transaction_session_timeout', '3s', true)
"""
_TABLES = (
    "CREATE TABLE IF NOT EXISTS sayso_a2a_version (version INTEGER NOT NULL)",
    "CREATE TABLE IF NOT EXISTS sayso_a2a_rows (adapter TEXT NOT NULL, owner TEXT NOT NULL, "
    "id TEXT NOT NULL, context TEXT NOT NULL, state TEXT NOT NULL, updated BIGINT NOT NULL, "
    "expires DOUBLE PRECISION NOT NULL, lease DOUBLE PRECISION NOT NULL, body BYTEA NOT NULL, "
    "PRIMARY KEY (adapter, owner, id))",
    "CREATE INDEX IF NOT EXISTS sayso_a2a_rows_time ON sayso_a2a_rows (adapter, updated)",
)
_GET = (
    "SELECT context, state, updated, body, lease FROM sayso_a2a_rows "
    "WHERE adapter = %s AND owner = %s AND id = %s AND expires > %s"
)
_SILENT = (
    "SELECT owner, id, context, state, updated, body, lease FROM sayso_a2a_rows "
    "WHERE adapter = %s AND state = ANY(%s) AND lease < %s AND expires > %s "
    "AND updated >= %s "
    "ORDER BY updated DESC LIMIT 1000"
)
_PUT = (
    "INSERT INTO sayso_a2a_rows "
    "(adapter, owner, id, context, state, updated, expires, lease, body) "
    "VALUES (%s, %s, %s, %s, %s, %s, %s, %s, %s) ON CONFLICT (adapter, owner, id) DO UPDATE SET "
    "context = excluded.context, state = excluded.state, updated = excluded.updated, "
    "expires = excluded.expires, lease = excluded.lease, body = excluded.body"
)
_DELETE = "DELETE FROM sayso_a2a_rows WHERE adapter = %s AND owner = %s AND id = %s"
_ERASE = "DELETE FROM sayso_a2a_rows WHERE owner = ANY(%s) AND lease <= %s"
_COUNT = "SELECT count(*) FROM sayso_a2a_rows WHERE owner = ANY(%s)"
_LEASE = "UPDATE sayso_a2a_rows SET lease = %s WHERE adapter = %s AND id = ANY(%s) AND lease <> 0"
_EXPIRED = "DELETE FROM sayso_a2a_rows WHERE adapter = %s AND expires <= %s"
_TOO_MANY = (
    "DELETE FROM sayso_a2a_rows WHERE adapter = %s AND updated < coalesce((SELECT updated FROM "
    "sayso_a2a_rows WHERE adapter = %s ORDER BY updated DESC LIMIT 1 OFFSET %s), 0)"
)


class PostgresRows:
    """`Rows` in the database at `url`; times of its clock are shown as times of this machine's.

    Each of its threads has a connection, made when it is first needed.
    """

    def __init__(self, adapter: str, url: str, *, ttl: float, most: int) -> None:
        self._adapter = adapter
        self._url = url
        self._ttl = ttl
        self._most = most
        self._writes = 0
        self._threads: ThreadPoolExecutor | None = None
        self._own = threading.local()
        self._open: list[Connection] = []

    async def open(self) -> None:
        """Make the tables; raises PluginError for a database that cannot be used, or a newer one's
        tables."""
        self._threads = ThreadPoolExecutor(_CONNECTIONS, f"a2a-{self._adapter}")
        try:
            await self._run(self._make_tables)
        except LedgerUnavailable as error:
            raise PluginError(
                f"the A2A tasks cannot be kept beside the ledger: {error.__cause__}"
            ) from None
        except PluginError:
            await self.close()
            raise

    async def close(self) -> None:
        """Close the connections after what was asked of them is done."""
        if self._threads is not None:
            await asyncio.to_thread(self._threads.shutdown)
            self._threads = None
        for connection in self._open:
            connection.close()
        self._open.clear()

    async def get(self, owner: str, id: str) -> Row | None:
        """The task `id` of `owner`."""
        return await self._run(lambda db, now: self._get(db, now, owner, id))

    async def change(self, owner: str, id: str, change: Callable[[Row | None], Row | None]) -> None:
        """Replace the row by the result of `change`, in one step; None leaves it unchanged.

        An error of `change` is raised, and nothing is written.
        """

        def work(db: Connection, now: float) -> None:
            row = change(self._get(db, now, owner, id, " FOR UPDATE"))
            if row is not None:
                self._put(db, now, row)

        await self._run(work)

    async def delete(self, owner: str, id: str) -> None:
        """Forget the task `id` of `owner`."""
        values = (self._adapter, _key(owner), _key(id))
        await self._run(lambda db, now: db.execute(_DELETE, values))

    async def lease(self, ids: Sequence[str], seconds: float) -> None:
        """Prolong the leases of the tasks `ids` that have one; 0 seconds end them."""
        keys = sorted(map(_key, ids))

        def work(db: Connection, now: float) -> None:
            db.execute(_LEASE, (now + seconds if seconds else 0.0, self._adapter, keys))

        await self._run(work)

    async def silent(self, states: Sequence[str], since: int = 0) -> list[Row]:
        """The newest thousand tasks in these states that no process has leased, and that were
        changed at `since` or later."""

        def work(db: Connection, now: float) -> list[Row]:
            found = db.execute(_SILENT, (self._adapter, list(states), now, now, since)).fetchall()
            return [_row(_text(owner), _text(id), rest, now) for owner, id, *rest in found]

        return await self._run(work)

    async def erase(self, owned: Callable[[str], bool]) -> tuple[int, int]:
        """Delete the tasks of these owners, of all adapters; returns their number, and that of the
        tasks that a process runs, which stay."""

        def work(db: Connection, now: float) -> tuple[int, int]:
            found = db.execute("SELECT DISTINCT owner FROM sayso_a2a_rows").fetchall()
            owners = [owner for (owner,) in found if owned(_text(owner))]
            erased = db.execute(_ERASE, (owners, now)).rowcount
            left = db.execute(_COUNT, (owners,)).fetchone()
            assert left is not None
            return erased, left[0]

        return await self._run(work)

    async def _run(self, work: Callable[[Connection, float], T]) -> T:
        if self._threads is None:
            raise RuntimeError("the task store is not open")
        return await asyncio.get_running_loop().run_in_executor(self._threads, self._in_one, work)

    def _in_one(self, work: Callable[[Connection, float], T]) -> T:
        """The result of `work`, in one transaction. Raises LedgerUnavailable."""
        try:
            known: Connection | None = getattr(self._own, "db", None)
            if known is not None and not known.closed:
                try:
                    return _transaction(known, work)
                except _NotStarted:
                    # The server restarted while the connection was idle.
                    known.close()
            return _transaction(self._connect(), work)
        except (psycopg.Error, _NotStarted) as error:
            cause = error.__cause__ if isinstance(error, _NotStarted) else error
            raise LedgerUnavailable("the store of the A2A tasks is not available") from cause

    def _connect(self) -> Connection:
        db = psycopg.connect(
            self._url,
            autocommit=True,
            prepare_threshold=None,
            connect_timeout=3,
            tcp_user_timeout=5000,
            application_name="sayso-a2a",
        )
        lost: Connection | None = getattr(self._own, "db", None)
        if lost is not None:
            self._open.remove(lost)
        self._own.db = db
        # Several threads connect at once: each changes the list in one step of its own.
        self._open.append(db)
        return db

    def _make_tables(self, db: Connection, now: float) -> None:
        db.execute("SELECT pg_advisory_xact_lock(%s)", (_LOCK,))
        for statement in _TABLES:
            db.execute(statement.encode())
        found = db.execute("SELECT version FROM sayso_a2a_version").fetchone()
        if found is None:
            db.execute("INSERT INTO sayso_a2a_version VALUES (%s)", (_VERSION,))
        elif found[0] > _VERSION:
            raise PluginError(
                f"the A2A tasks beside the ledger have schema {found[0]}, and this sayso-a2a knows "
                f"{_VERSION}; upgrade sayso-a2a"
            )

    def _get(self, db: Connection, now: float, owner: str, id: str, lock: str = "") -> Row | None:
        values = (self._adapter, _key(owner), _key(id), now)
        found = db.execute(f"{_GET}{lock}".encode(), values).fetchone()
        return None if found is None else _row(owner, id, found, now)

    def _put(self, db: Connection, now: float, row: Row) -> None:
        lease = row.lease and now + (row.lease - time.time())
        names: tuple[Any, ...] = (self._adapter, _key(row.owner), _key(row.id), row.context)
        db.execute(_PUT, (*names, row.state, row.updated, now + self._ttl, lease, row.body))
        self._writes += 1
        if self._writes % _PRUNE_EVERY == 0:
            db.execute(_EXPIRED, (self._adapter, now))
            db.execute(_TOO_MANY, (self._adapter, self._adapter, self._most - 1))


class _NotStarted(Exception):
    """The connection was lost before anything was asked on it."""


def _transaction(db: Connection, work: Callable[[Connection, float], T]) -> T:
    entered = False
    try:
        with db.transaction():
            first = db.execute(_BEGIN).fetchone()
            assert first is not None
            entered = True
            return work(db, first[0])
    except psycopg.OperationalError as error:
        if entered:
            raise
        raise _NotStarted from error


def _row(owner: str, id: str, found: Sequence[Any], now: float) -> Row:
    context, state, updated, body, lease = found
    here = lease and time.time() + (lease - now)
    return Row(id, owner, context, state, updated, bytes(body), here)


def _key(text: str) -> str:
    """The text in ASCII: callers name their tasks, and the database takes no zero byte."""
    return quote(text, safe=" !$&'()*+,/:;=?@", errors="surrogatepass")


def _text(key: str) -> str:
    return unquote_to_bytes(key).decode("utf-8", "surrogatepass")
