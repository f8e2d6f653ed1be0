"""The store of tasks: one SQLite database, beside the ledger or in memory, used off the loop."""

from __future__ import annotations

import asyncio
import os
import sqlite3
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol, TypeVar

from sayso import PluginError

T = TypeVar("T")
_PRUNE_EVERY = 64
_VERSION = 1
"""The version of the tables; files without a version have the same tables."""
_SCHEMA = """
create table if not exists tasks (
    adapter text not null, owner text not null, id text not null, context text not null,
    state text not null, updated integer not null, expires real not null, body blob not null,
    primary key (adapter, owner, id)
) without rowid;
create index if not exists tasks_by_time on tasks (adapter, updated);
create index if not exists tasks_by_state on tasks (adapter, state, id);
create index if not exists tasks_by_context on tasks (adapter, owner, context, updated);
create table if not exists leases (
    adapter text not null, id text not null, until real not null, primary key (adapter, id)
) without rowid;
"""
_COLUMNS = (
    "id, owner, context, state, updated, body, coalesce((select until from leases "
    "where leases.adapter = tasks.adapter and leases.id = tasks.id), 0.0)"
)
_LEASE_KEPT = 3600.0


@dataclass(frozen=True, slots=True)
class Row:
    """One task; `updated` is in nanoseconds since 1970, `body` belongs to the adapter.

    `lease` is the end of its process's lease, in seconds since 1970.
    """

    id: str
    owner: str
    context: str
    state: str
    updated: int
    body: bytes
    lease: float = 0.0


class TaskStore(Protocol):
    """The operations that the simple adapter needs from its store of tasks."""

    async def open(self) -> None:
        """Open it; raises PluginError for one that cannot be used."""
        ...

    async def close(self) -> None:
        """Close it after what was asked of it is done."""
        ...

    async def get(self, owner: str, id: str) -> Row | None:
        """The task `id` of `owner`."""
        ...

    async def change(self, owner: str, id: str, change: Callable[[Row | None], Row | None]) -> None:
        """Put what `change` makes of the row in its place, as one step; None leaves it."""
        ...

    async def delete(self, owner: str, id: str) -> None:
        """Forget the task `id` of `owner`."""
        ...

    async def lease(self, ids: Sequence[str], seconds: float) -> None:
        """Prolong the leases of the tasks `ids` that have one; 0 seconds end them."""
        ...

    async def silent(self, states: Sequence[str], since: int = 0) -> list[Row]:
        """The newest thousand tasks in these states that no process has leased, and that were
        changed at `since` or later (nanoseconds since 1970)."""
        ...


class Rows:
    """The tasks of one adapter: at most `most`, each for `ttl` seconds after its last change.

    With `path` None they are in memory. Several processes may share a file.
    """

    def __init__(self, adapter: str, path: Path | None, *, ttl: float, most: int) -> None:
        self._adapter = adapter
        self._path = path
        self._ttl = ttl
        self._most = most
        self._writes = 0
        self._database: sqlite3.Connection | None = None
        self._thread: ThreadPoolExecutor | None = None

    async def open(self) -> None:
        """Open the database. Raises OSError, sqlite3.Error, or PluginError if a newer version made
        it."""
        self._thread = ThreadPoolExecutor(1, f"a2a-{self._adapter}")
        await self._run(self._open)

    async def close(self) -> None:
        """Close the database after its pending operations."""
        if self._thread is not None:
            await self._run(self._close)
            self._thread.shutdown()
            self._thread = None

    async def get(self, owner: str, id: str) -> Row | None:
        """The task `id` of `owner`."""
        return await self._run(lambda: self._get(self._connection, owner, id))

    async def change(self, owner: str, id: str, change: Callable[[Row | None], Row | None]) -> None:
        """Replace the row by the result of `change`, in one transaction; None leaves it unchanged.

        An exception of `change` is passed on, and nothing is written.
        """

        def work() -> None:
            with self._connection as database:
                database.execute("begin immediate")
                row = change(self._get(database, owner, id))
                if row is not None:
                    self._put(database, row)

        await self._run(work)

    async def delete(self, owner: str, id: str) -> None:
        """Delete the task `id` of `owner`."""
        mine = (self._adapter, id)

        def work() -> None:
            with self._connection as database:
                database.execute("begin immediate")
                gone = "delete from tasks where adapter = ? and id = ? and owner = ?"
                if database.execute(gone, (*mine, owner)).rowcount:
                    database.execute("delete from leases where adapter = ? and id = ?", mine)

        await self._run(work)

    async def lease(self, ids: Sequence[str], seconds: float) -> None:
        """Renew the leases of those tasks in `ids` that have one; 0 seconds end them."""

        def work() -> None:
            # Count from the time of the write, which may have waited for others.
            until = time.time() + seconds if seconds else 0.0
            values = [(until, self._adapter, id) for id in ids]
            with self._connection as database:
                database.execute("begin immediate")
                database.executemany(
                    "update leases set until = ? where adapter = ? and id = ?", values
                )

        await self._run(work)

    async def silent(self, states: Sequence[str], since: int = 0) -> list[Row]:
        """The newest thousand tasks in these states that no process has leased, and that were
        changed at `since` or later."""
        marks = ", ".join("?" * len(states))

        def work() -> list[Row]:
            found = self._connection.execute(
                f"select {_COLUMNS} as lease from tasks where adapter = ? and state in ({marks}) "
                "and lease < ? and updated >= ? order by updated desc limit 1000",
                (self._adapter, *states, time.time(), since),
            )
            return [Row(*row) for row in found]

        return await self._run(work)

    async def those_in(self, state: str, ids: Sequence[str]) -> list[str]:
        """The ids among `ids` whose tasks are in this state."""
        wanted = "select id from tasks where adapter = ? and state = ? and id = ?"

        def work() -> list[str]:
            found = [self._connection.execute(wanted, (self._adapter, state, id)) for id in ids]
            return [id for rows in found for (id,) in rows]

        return await self._run(work)

    async def page(
        self,
        owner: str,
        *,
        context: str = "",
        state: str = "",
        since: int = 0,
        after: tuple[int, str] | None = None,
        limit: int,
    ) -> tuple[list[Row], int]:
        """The newest matching tasks of `owner`, at most `limit`, and the number of all matching
        ones.

        `after` is the time and id of the last task of the previous page.
        """
        where = "adapter = ? and owner = ? and expires > ?"
        values: list[object] = [self._adapter, owner, time.time()]
        for clause, value in (
            ("context = ?", context),
            ("state = ?", state),
            ("updated >= ?", since),
        ):
            if value:
                where += f" and {clause}"
                values.append(value)

        def work() -> tuple[list[Row], int]:
            database = self._connection
            count = database.execute(f"select count(*) from tasks where {where}", values)
            total: int = count.fetchone()[0]
            narrowed, given = where, list(values)
            if after is not None:
                narrowed += " and (updated, id) < (?, ?)"
                given += after
            found = database.execute(
                f"select {_COLUMNS} from tasks where {narrowed} "
                "order by updated desc, id desc limit ?",
                [*given, limit],
            )
            return [Row(*row) for row in found], total

        return await self._run(work)

    async def erase(self, owned: Callable[[str], bool]) -> tuple[int, int]:
        """Delete the tasks of these owners, of all adapters; returns their number, and that of the
        tasks that a process runs, which stay."""

        def work() -> tuple[int, int]:
            with self._connection as database:
                database.execute("begin immediate")
                found = database.execute("select distinct owner from tasks")
                owners = [(owner,) for (owner,) in found if owned(owner)]
                leases = "select 1 from leases as l where l.adapter = tasks.adapter"
                runs = f"exists ({leases} and l.id = tasks.id and l.until > {time.time()})"
                gone = f"delete from tasks where owner = ? and not {runs}"
                erased = database.executemany(gone, owners).rowcount if owners else 0
                left = sum(
                    database.execute("select count(*) from tasks where owner = ?", one).fetchone()[
                        0
                    ]
                    for one in owners
                )
            return erased, left

        return await self._run(work)

    @property
    def _connection(self) -> sqlite3.Connection:
        if self._database is None:
            raise RuntimeError("the task store is not open")
        return self._database

    async def _run(self, work: Callable[[], T]) -> T:
        if self._thread is None:
            raise RuntimeError("the task store is not open")
        return await asyncio.get_running_loop().run_in_executor(self._thread, work)

    def _open(self) -> None:
        if self._path is not None:
            self._path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            # SQLite would create the file with the umask's permissions; tasks contain
            # conversations.
            os.close(os.open(self._path, os.O_RDWR | os.O_CREAT, 0o600))
        name = ":memory:" if self._path is None else str(self._path)
        self._database = sqlite3.connect(name, timeout=10.0, isolation_level=None)
        if self._path is not None:
            self._database.execute("pragma journal_mode = wal")
            self._database.execute("pragma synchronous = normal")
        [(version,)] = self._database.execute("pragma user_version")
        if version > _VERSION:
            self._close()
            raise PluginError(
                f"the A2A tasks in {name!r} have schema {version}, and this sayso-a2a knows "
                f"{_VERSION}; upgrade sayso-a2a, or move the file away to begin a new one"
            )
        self._database.executescript(f"{_SCHEMA}pragma user_version = {_VERSION};")

    def _close(self) -> None:
        if self._database is not None:
            self._database.close()
            self._database = None

    def _get(self, database: sqlite3.Connection, owner: str, id: str) -> Row | None:
        found = database.execute(
            f"select {_COLUMNS} from tasks where adapter = ? and owner = ? and id = ? "
            "and expires > ?",
            (self._adapter, owner, id, time.time()),
        ).fetchone()
        return Row(*found) if found else None

    def _put(self, database: sqlite3.Connection, row: Row) -> None:
        database.execute(
            "insert or replace into tasks values (?, ?, ?, ?, ?, ?, ?, ?)",
            (
                self._adapter,
                row.owner,
                row.id,
                row.context,
                row.state,
                row.updated,
                time.time() + self._ttl,
                row.body,
            ),
        )
        if row.lease:
            lease = (self._adapter, row.id, row.lease)
            database.execute("insert or replace into leases values (?, ?, ?)", lease)
        else:
            lost = (self._adapter, row.id)
            database.execute("delete from leases where adapter = ? and id = ?", lost)
        self._writes += 1
        if self._writes % _PRUNE_EVERY == 0:
            self._prune(database)

    def _prune(self, database: sqlite3.Connection) -> None:
        now = time.time()
        mine = (self._adapter,)
        database.execute("delete from tasks where adapter = ? and expires <= ?", (*mine, now))
        database.execute(
            "delete from tasks where adapter = ? and updated < coalesce((select updated from "
            "tasks where adapter = ? order by updated desc limit 1 offset ?), 0)",
            (*mine, *mine, self._most - 1),
        )
        late = now - _LEASE_KEPT
        database.execute("delete from leases where adapter = ? and until < ?", (*mine, late))
