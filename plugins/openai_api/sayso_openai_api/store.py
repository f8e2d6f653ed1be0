"""The storage between requests: responses by their ids, and conversations by their header.

One SQLite file in the state folder, which the processes of a machine share.
"""

import asyncio
import sqlite3
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TypeVar

from pydantic_core import from_json, to_json

from sayso import Host
from sayso_openai_api.answers import Json

T = TypeVar("T")
_SCHEMA = """
create table if not exists kept (
    owner text not null, id text not null, until real not null, body blob not null,
    primary key (owner, id)
) without rowid;
create index if not exists kept_by_time on kept (until);
"""
FILE = "openai_api.db"
_MOST = 10_000
"""Most entries kept at once; the oldest is dropped first."""


def file_of(host: Host) -> Path | None:
    """The file of the entries; None, in memory, if the ledger is in memory."""
    if (host.config.approvals.ledger or "").startswith("memory:"):
        return None
    return host.state_dir / FILE


class Store:
    """JSON objects by owner and id, each for `keep` seconds after it was put."""

    def __init__(self, path: Path | None, keep: float) -> None:
        self._path = path
        self._keep = keep
        self._thread: ThreadPoolExecutor | None = None
        self._database: sqlite3.Connection | None = None

    async def open(self) -> None:
        """Open the file, which is this user's alone; raises OSError or sqlite3.Error."""
        self._thread = ThreadPoolExecutor(1, "openai-api-store")
        await self._run(self._open)

    async def close(self) -> None:
        """Close it after its pending operations."""
        if self._thread is not None:
            await self._run(lambda: self._connection.close())
            self._thread.shutdown()
            self._thread = None

    async def get(self, owner: str, id: str) -> Json | None:
        """The object that this owner put under `id`, while it is kept."""
        query = "select body from kept where owner = ? and id = ? and until > ?"

        def work() -> Json | None:
            row = self._connection.execute(query, (owner, id, time.time())).fetchone()
            return None if row is None else from_json(row[0])

        return await self._run(work)

    async def put(self, owner: str, id: str, body: Json) -> None:
        """Store `body` in place of an earlier one; expired entries are removed."""
        now = time.time()
        until = now + self._keep
        raw = to_json(body)

        def work() -> None:
            with self._connection as database:
                database.execute("delete from kept where until <= ?", (now,))
                database.execute(
                    "insert or replace into kept values (?, ?, ?, ?)", (owner, id, until, raw)
                )
                database.execute(
                    "delete from kept where until <= coalesce((select until from kept "
                    "order by until desc limit 1 offset ?), 0)",
                    (_MOST,),
                )

        await self._run(work)

    async def delete(self, owner: str, id: str) -> bool:
        """Forget it; false if there was nothing."""

        def work() -> bool:
            with self._connection as database:
                gone = "delete from kept where owner = ? and id = ?"
                return database.execute(gone, (owner, id)).rowcount > 0

        return await self._run(work)

    async def erase(self, owner: str) -> int:
        """Forget all of this owner's; returns their number."""

        def work() -> int:
            with self._connection as database:
                return database.execute("delete from kept where owner = ?", (owner,)).rowcount

        return await self._run(work)

    @property
    def _connection(self) -> sqlite3.Connection:
        assert self._database is not None
        return self._database

    def _open(self) -> None:
        if self._path is not None:
            self._path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            self._path.touch(mode=0o600)
        self._database = sqlite3.connect(self._path or ":memory:", timeout=30)
        self._database.execute("pragma journal_mode = wal")
        self._database.executescript(_SCHEMA)

    async def _run(self, work: Callable[[], T]) -> T:
        return await asyncio.get_running_loop().run_in_executor(self._thread, work)
