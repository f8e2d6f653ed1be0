"""The ledger in an SQLite file, shared by all processes of a machine: `sqlite:///name.db`.

A commit is on disk before its result is returned (`synchronous=FULL`), so neither a killed process
nor a power loss undoes a claim. Works that need not wait for the disk are flushed directly after.
The folder must be on a local disk: locks and the write-ahead log do not work over a network.
"""

from __future__ import annotations

import asyncio
import errno
import os
import sqlite3
import threading
import time
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import contextmanager, suppress
from itertools import product
from pathlib import Path
from typing import TypeVar

from sayso.config.files import no_file, refuse_open
from sayso.errors import ConfigError, LedgerUnavailable
from sayso.ledger import Owner, Transaction, copies, migrations
from sayso.ledger.database import key
from sayso.ledger.owners import Owners
from sayso.ledger.rows import SqlTransaction
from sayso.ledger.sqlite_connection import (
    APPLICATION,
    WAYS_OUT,
    Gate,
    Health,
    SqliteConnection,
    make_tables,
    migrate,
    way_out,
)
from sayso.ledger.tables import RENEW, SCHEMA, SET_META
from sayso.ledger.writer import Lane, Outcome, Work, Writer, run_group, unavailable

T = TypeVar("T")
_ANOTHER = "choose another (server.state_dir, or approvals.ledger)"
_FILE = f"a file stands where its folder should be; {_ANOTHER}"
_LOGS = ("-wal", "-shm")
_CAUSES = {
    errno.EMFILE: "raise the limit of open files (ulimit -n)",
    errno.ENOSPC: "free some space",
    errno.EEXIST: _FILE,
    errno.ENOTDIR: _FILE,
}


class SqliteStore:
    """A `Store` in the file at `path`; `busy` and `patience` are in seconds.

    `busy` limits the wait for another program's lock on the file, `patience` the wait of a caller
    for its result.
    """

    shared = True

    def __init__(self, path: Path, *, busy: float = 5.0, patience: float = 10.0) -> None:
        self.path = path.absolute()
        self.url = f"sqlite:///{self.path}"
        self._name = f"the approvals store {str(self.path)!r}"
        self._busy = busy
        self._patience = patience
        self._gate = self.path.with_name(self.path.name + ".lock")
        self._owners = Owners(self.path.with_name(self.path.name + ".owners"))
        self._db: SqliteConnection | None = None
        self._writer: Writer | None = None
        self._renewing = threading.Lock()
        self._renewer: SqliteConnection | None = None
        self._health = Health(self.path)

    async def exists(self) -> bool:
        """Whether the file exists."""
        return await asyncio.to_thread(self.path.exists)

    def save(self, file: Path) -> None:
        """Implements `keeping.Keepable`."""
        copies.check_served(self.path, self._name)
        try:
            copies.copy(self.path, file)
        except sqlite3.Error as error:
            raise ConfigError(f"{self._name} {way_out(error)}") from error

    def fill(self, file: Path) -> None:
        """Implements `keeping.Keepable`: the file must not exist, not even without rows."""
        for path in (self.path, *(self.path.with_name(self.path.name + s) for s in _LOGS)):
            if os.path.lexists(path):
                raise ConfigError(
                    f"the file {str(path)!r} exists; stop the service and move it away, with those "
                    "beside it that end in -wal and -shm"
                )
        with self._explained():
            self.path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            made = self.path.with_name(f".{self.path.name}.restored")
            made.unlink(missing_ok=True)
            copies.copy(file, made)
            copies.place(made, self.path)

    async def open(self) -> None:
        if self._writer is None:
            await asyncio.to_thread(self._open)

    async def close(self) -> None:
        await asyncio.to_thread(self._close)

    async def run(self, work: Callable[[Transaction], T]) -> T:
        if self._writer is None:
            raise LedgerUnavailable("the approvals store is closed")
        return await self._writer.run(work)

    async def check(self) -> None:
        await asyncio.to_thread(self._health.check_space)
        await self.run(SqlTransaction.touch)  # type: ignore[arg-type]
        await asyncio.to_thread(self._health.check_pages)

    def renew(self, owner: str, seconds: float, ids: Collection[str]) -> None:
        with self._renewing:
            try:
                self._renew(owner, seconds, ids)
            except (OSError, sqlite3.Error) as error:
                raise unavailable(error, f"{self._name} {way_out(error)}") from error

    def hold(self, owner: str) -> None:
        try:
            self._owners.hold(owner)
        except OSError as error:
            raise unavailable(error, f"{self._name} {way_out(error)}") from error

    def dead(self, owner: Owner) -> bool:
        return self._owners.dead(owner)

    def _group(self, works: Sequence[Work]) -> list[Outcome]:
        assert self._db is not None
        self._db.flushed = any(getattr(work, "flushed", True) for work in works)
        outcomes = run_group(self._db, works)
        self._health.note(outcomes)
        return outcomes

    def _renew(self, owner: str, seconds: float, ids: Collection[str]) -> None:
        if self._writer is None:
            raise LedgerUnavailable("the approvals store is closed")
        if self._renewer is None:
            self._renewer = self._connect()
            # A lease need not survive a power loss: no owner does.
            self._renewer.flushed = False
        try:
            now, *_ = self._renewer.begin()
            for sql, id_ in product(RENEW, ids):
                self._renewer.write(sql, (now + seconds, key(owner), key(id_)))
            self._renewer.commit()
        except BaseException:
            self._renewer.rollback()
            raise

    def _open(self) -> None:
        if (kind := no_file(self.path)) is not None:
            raise ConfigError(f"{self._name} is {kind}, no file; {_ANOTHER}")
        refuse_open(self.path, "the approvals store", _ANOTHER)
        refuse_open(self.path.parent, "the approvals store's folder", _ANOTHER, group=False)
        with self._explained():
            self.path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            self._owners.folder.mkdir(mode=0o700, exist_ok=True)
            # While in use, the file must never be opened except by SQLite: POSIX drops a process's
            # locks when any descriptor of the file is closed.
            if not self.path.exists():
                self._create()
            db = self._connect()
            try:
                self._share()
                self._prepare(db)
                db.open_log()
            except BaseException:
                db.close()
                raise
        self._db = db
        self._writer = Writer([Lane(self._group, after=db.flush)], patience=self._patience)

    def _create(self) -> None:
        # A link may point to a file that does not exist yet.
        file = os.path.realpath(self.path)
        with suppress(FileExistsError):
            os.close(os.open(file, os.O_CREAT | os.O_EXCL | os.O_RDWR, 0o600))

    def _share(self) -> None:
        """Give files that root created beside the store to the store's owner, as SQLite does with
        its log. Otherwise `sayso approvals`, run by root, would lock out the service."""
        if os.geteuid() == 0:
            store = self.path.stat()
            for path in (self._gate, self._owners.folder):
                with suppress(PermissionError):
                    os.chown(path, store.st_uid, store.st_gid)

    def _connect(self) -> SqliteConnection:
        # If the file is gone SQLite would create an empty one, and drop the log.
        raw = sqlite3.connect(
            f"{self.path.as_uri()}?mode=rw",
            uri=True,
            timeout=self._busy,
            isolation_level=None,
            check_same_thread=False,
            cached_statements=256,
        )
        try:
            raw.execute("PRAGMA synchronous = FULL")
            return SqliteConnection(raw, Gate(self._gate), self.path)
        except BaseException:
            raw.close()
            raise

    def _prepare(self, db: SqliteConnection) -> None:
        self._health.check_at_start(db)
        try:
            db.wait(self._busy)
            db.enter()
            self._migrate(db)
            # Proves that the file accepts a write before anyone depends on it.
            db.write(SET_META, ("opened", str(time.time())))
            db.commit()
        except BaseException:
            db.rollback()
            raise
        # Done only now, so that the file of another program is left unchanged.
        if db.read("PRAGMA journal_mode = WAL") != [("wal",)]:
            raise ConfigError(
                f"{self._name} cannot use a write-ahead log here; "
                "set 'approvals.ledger' to a file on a local disk"
            )

    def _migrate(self, db: SqliteConnection) -> None:
        [(version,)] = db.read("PRAGMA user_version")
        [(application,)] = db.read("PRAGMA application_id")
        [(tables,)] = db.read("SELECT count(*) FROM sqlite_master")
        if tables and application != APPLICATION:
            raise ConfigError(f"{self._name} {WAYS_OUT['NOTADB']}")
        if version > SCHEMA:
            raise ConfigError(migrations.newer(self._name, version, "file"))
        if tables:
            migrate(db, version)
        else:
            make_tables(db)

    def _close(self) -> None:
        writer, self._writer = self._writer, None
        if writer is not None:
            writer.close()
        # If another process keeps a renewal from the store, that must not delay the shutdown.
        if self._renewing.acquire(timeout=1):
            for db in (self._db, self._renewer):
                if db is not None:
                    db.close()
            self._db = self._renewer = None
            self._renewing.release()
        self._owners.release()

    @contextmanager
    def _explained(self) -> Iterator[None]:
        try:
            yield
        except sqlite3.Error as error:
            raise ConfigError(f"{self._name} {way_out(error)}") from error
        except LedgerUnavailable as error:
            cause = error.__cause__
            text = way_out(cause) if isinstance(cause, sqlite3.Error) else str(error)
            raise ConfigError(f"{self._name} {text}") from error
        except OSError as error:
            permissions = f"check the permissions of its folder, or {_ANOTHER}"
            remedy = _CAUSES.get(error.errno or 0, permissions)
            raise ConfigError(f"{self._name} cannot be made: {error.strerror}; {remedy}") from error
