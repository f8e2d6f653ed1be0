"""The ledger of one process, lost when it ends: `memory://`, for tests and trials."""

from __future__ import annotations

import sqlite3
import threading
import time
from collections.abc import Callable, Collection
from itertools import product
from typing import TypeVar

from sayso.errors import LedgerUnavailable
from sayso.ledger import Owner, Transaction
from sayso.ledger.database import key
from sayso.ledger.sqlite_connection import SqliteConnection, make_tables
from sayso.ledger.tables import RENEW
from sayso.ledger.writer import run_group

T = TypeVar("T")


class MemoryStore:
    """A `Store` in memory: works run at once, under a lock, on the caller's thread."""

    url = "memory://"
    shared = False

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._db: SqliteConnection | None = None

    async def open(self) -> None:
        with self._lock:
            if self._db is None:
                self._db = SqliteConnection(
                    sqlite3.connect(":memory:", isolation_level=None, check_same_thread=False)
                )
                make_tables(self._db)

    async def close(self) -> None:
        with self._lock:
            if self._db is not None:
                self._db.close()
            self._db = None

    async def run(self, work: Callable[[Transaction], T]) -> T:
        with self._lock:
            outcome = run_group(self._connection(), [work])[0]
        if outcome.error is not None:
            raise outcome.error
        value: T = outcome.value
        return value

    async def check(self) -> None:
        await self.run(lambda tx: None)

    def renew(self, owner: str, seconds: float, ids: Collection[str]) -> None:
        with self._lock:
            for sql, id_ in product(RENEW, ids):
                self._connection().write(sql, (time.time() + seconds, key(owner), key(id_)))

    def hold(self, owner: str) -> None:
        """There is nothing to hold: the rows die with the process."""

    def dead(self, owner: Owner) -> bool:
        """False: every owner of a row here is this process."""
        return False

    def _connection(self) -> SqliteConnection:
        if self._db is None:
            raise LedgerUnavailable("the approvals store is closed")
        return self._db
