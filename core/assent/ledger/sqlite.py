"""The ledger in an SQLite file, shared by all processes of a machine: `sqlite:///name.db`.

A commit is on the disk before its result leaves (`synchronous=FULL`), so neither a killed process
nor a power loss undoes a claim; works that need not wait for the disk are there directly after. The
folder must be on a local disk: locks and the write-ahead log do not work over a network.
"""

from __future__ import annotations

import asyncio
import errno
import fcntl
import logging
import os
import sqlite3
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, TypeVar

from assent.errors import ConfigError, LedgerUnavailable
from assent.ledger import LogRow, Owner, Transaction, locks
from assent.ledger.owners import Owners
from assent.ledger.rows import Row, Statement
from assent.ledger.tables import HEAD, RENEW, SCHEMA, SET_META, TABLES
from assent.ledger.texts import dump_log, key, load_log
from assent.ledger.writer import Outcome, Work, Writer, run_group, unavailable

logger = logging.getLogger("assent.ledger")

T = TypeVar("T")
_APPLICATION = 0x41535354
_CHECKED_AT_START = 64 * 2**20
_WAYS_OUT = {
    "NOTADB": "is no approvals store; move it away or set 'approvals.ledger' to another file",
    "CORRUPT": "is damaged; restore it from a backup, or move it away to begin a new one",
    "READONLY": "cannot be written; check the permissions of the file and its folder",
    "CANTOPEN": "cannot be opened; check the permissions of the file and its folder",
    "PERM": "cannot be opened; check the permissions of the file and its folder",
    "FULL": "cannot grow, the disk is full; free some space",
    "IOERR": "cannot be read or written; check the disk and its free space",
    "BUSY": "is locked by another process; end that process, a backup tool perhaps",
}
_ANOTHER = "choose another (server.state_dir, or approvals.ledger)"
_FILE = f"a file stands where its folder should be; {_ANOTHER}"
_CAUSES = {
    errno.EMFILE: "raise the limit of open files (ulimit -n)",
    errno.ENOSPC: "free some space",
    errno.EEXIST: _FILE,
    errno.ENOTDIR: _FILE,
}


class Gate:
    """A lock on a file, taken by one transaction of all processes at a time.

    SQLite lets waiting writers poll, up to 100 ms apart and in no order; this lock wakes the next
    one at once. Correctness rests on SQLite's own locks alone.
    """

    def __init__(self, path: Path) -> None:
        self._descriptor = locks.opened(path)

    def wait(self, seconds: float) -> None:
        """Enter within `seconds`; LedgerUnavailable where another process, stopped perhaps, does
        not leave."""
        end = time.monotonic() + seconds
        while not locks.taken(self._descriptor):
            if time.monotonic() > end:
                raise LedgerUnavailable(_WAYS_OUT["BUSY"])
            time.sleep(0.01)

    def enter(self) -> None:
        fcntl.flock(self._descriptor, fcntl.LOCK_EX)

    def leave(self) -> None:
        fcntl.flock(self._descriptor, fcntl.LOCK_UN)

    def close(self) -> None:
        locks.closed(self._descriptor)


class SqliteConnection:
    """`Connection` over sqlite3; with a `gate` and the `path` of its file, or in memory.

    `flushed` is whether commits from now on return only when they are on the disk.
    """

    lock = ""
    flushed = True
    _flushes = True
    """As `flushed`, for SQLite."""
    _behind = False
    """Whether commits may not be on the disk yet."""
    _log: int | None = None
    errors: tuple[type[Exception], ...] = (sqlite3.Error,)
    distant = False

    def __init__(
        self, raw: sqlite3.Connection, gate: Gate | None = None, path: Path | None = None
    ) -> None:
        self.raw = raw
        self._gate = gate
        self._path = path
        self._inodes: dict[str | Path, int] = {path: path.stat().st_ino} if path else {}

    def read(self, sql: str, values: Sequence[object] = ()) -> list[tuple[Any, ...]]:
        return self.raw.execute(sql, values).fetchall()

    def write(self, sql: str, values: Sequence[object] = ()) -> None:
        self.raw.execute(sql, values)

    def begin(
        self, asked: Sequence[Statement] = ()
    ) -> tuple[float, LogRow | None, list[list[Row]]]:
        try:
            self.enter()
            rows = self.read(HEAD)
            return time.time(), load_log(rows[0][0]) if rows else None, self.read_all(asked)
        except sqlite3.Error as error:
            raise unavailable(error, self.explained(error)) from error

    def read_all(self, asked: Sequence[Statement]) -> list[list[Row]]:
        return [self.read(sql, values) for sql, values in asked]

    def wait(self, seconds: float) -> None:
        """Let others leave the store first; LedgerUnavailable where that takes longer."""
        if self._gate:
            self._gate.wait(seconds)

    def enter(self) -> None:
        """Begin, on a file that may have no tables yet."""
        if self._gate:
            self._gate.enter()
        self._check_file()
        if self._flushes != self.flushed:
            self.raw.execute(f"PRAGMA synchronous = {'FULL' if self.flushed else 'NORMAL'}")
            self._flushes = self.flushed
        self.raw.execute("BEGIN IMMEDIATE")

    def commit(self, head: LogRow | None) -> None:
        if head:
            self.write(SET_META, ("head", dump_log(head)))
        self.raw.execute("COMMIT")
        self._behind = not self.flushed
        if self._gate:
            self._gate.leave()

    def open_log(self) -> None:
        """Open the write-ahead log for `flush`, which must not come to want a descriptor."""
        # SQLite makes the log when it first reads, beside the file that a link stands for.
        self.read(HEAD)
        file = os.path.realpath(self._path or "")
        self._log = os.open(f"{file}-wal", os.O_RDONLY)
        self._inodes |= {path: os.stat(path).st_ino for path in (f"{file}-wal", f"{file}-shm")}

    def flush(self) -> None:
        """Have all commits on the disk; after `open_log`."""
        if not self._behind or self._log is None:
            return
        self._behind = False
        try:
            getattr(os, "fdatasync", os.fsync)(self._log)
        except OSError:
            # Nothing says what of it is on the disk; closed, it refuses all that would build on it.
            logger.exception(
                "the approvals store cannot be flushed to disk; check the disk, restart the service"
            )
            self.raw.close()

    def rollback(self) -> None:
        try:
            if self.raw.in_transaction:
                self.raw.execute("ROLLBACK")
        except sqlite3.Error:
            # A failed ROLLBACK leaves no way to trust the connection; closed, it refuses all.
            self.raw.close()
        finally:
            if self._gate:
                self._gate.leave()

    def retryable(self, error: Exception) -> bool:
        return False

    def explained(self, error: Exception) -> str:
        return f"the approvals store {str(self._path or 'memory://')!r} {_way_out(error)}"

    def close(self) -> None:
        self.raw.close()
        if self._gate:
            self._gate.close()
        if self._log is not None:
            os.close(self._log)

    def _check_file(self) -> None:
        """A removed file, also of the log, would take commits that nobody ever sees again."""
        try:
            if all(os.stat(path).st_ino == inode for path, inode in self._inodes.items()):
                return
        except OSError:
            pass
        gone = LedgerUnavailable("the approvals store was moved or removed; restart the service")
        gone.add_note(f"it was {str(self._path)!r}")
        raise gone


def make_tables(db: SqliteConnection) -> None:
    """Create the tables of the current schema in an empty database, in the running transaction."""
    for statement in TABLES.format(text="TEXT", serial="INTEGER").split(";"):
        db.raw.execute(statement)
    db.raw.execute(f"PRAGMA application_id = {_APPLICATION}")
    db.raw.execute(f"PRAGMA user_version = {SCHEMA}")


class SqliteStore:
    """A `Store` in the file at `path`; `busy` and `patience` are in seconds.

    `busy` bounds the wait for another program's lock on the file, `patience` the wait of a caller
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

    async def open(self) -> None:
        if self._writer is None:
            await asyncio.to_thread(self._open)

    async def close(self) -> None:
        await asyncio.to_thread(self._close)

    async def run(self, work: Callable[[Transaction], T]) -> T:
        if self._writer is None:
            raise LedgerUnavailable("the approvals store is closed")
        return await self._writer.run(work)

    def renew(self, owner: str, seconds: float) -> None:
        with self._renewing:
            try:
                self._renew(owner, seconds)
            except (OSError, sqlite3.Error) as error:
                raise unavailable(error, f"{self._name} {_way_out(error)}") from error

    def hold(self, owner: str) -> None:
        try:
            self._owners.hold(owner)
        except OSError as error:
            raise unavailable(error, f"{self._name} {_way_out(error)}") from error

    def dead(self, owner: Owner) -> bool:
        return self._owners.dead(owner)

    def _group(self, works: Sequence[Work]) -> list[Outcome]:
        assert self._db is not None
        self._db.flushed = any(getattr(work, "flushed", True) for work in works)
        return run_group(self._db, works)

    def _renew(self, owner: str, seconds: float) -> None:
        if self._writer is None:
            raise LedgerUnavailable("the approvals store is closed")
        if self._renewer is None:
            self._renewer = self._connect()
            # A lease need not outlive a power loss: no owner does.
            self._renewer.flushed = False
        try:
            now, *_ = self._renewer.begin()
            for sql in RENEW:
                self._renewer.write(sql, (now + seconds, key(owner)))
            self._renewer.commit(None)
        except BaseException:
            self._renewer.rollback()
            raise

    def _open(self) -> None:
        with self._explained():
            self.path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            self._owners.folder.mkdir(mode=0o700, exist_ok=True)
            # The file must never be opened besides SQLite while in use: POSIX drops a process's
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
        self._writer = Writer(self._group, patience=self._patience, after=db.flush)

    def _create(self) -> None:
        # A link may stand for a file that is not there yet.
        file = os.path.realpath(self.path)
        with suppress(FileExistsError):
            os.close(os.open(file, os.O_CREAT | os.O_EXCL | os.O_RDWR, 0o600))

    def _share(self) -> None:
        """Give files that root made beside the store to the store's owner, as SQLite does with its
        log: after `assent approvals` run by root the service would be locked out."""
        if os.geteuid() == 0:
            store = self.path.stat()
            for path in (self._gate, self._owners.folder):
                with suppress(PermissionError):
                    os.chown(path, store.st_uid, store.st_gid)

    def _connect(self) -> SqliteConnection:
        # Where the file is gone SQLite would make an empty one, and for that drop the log.
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
        if self.path.stat().st_size < _CHECKED_AT_START:
            self._check(db)
        try:
            db.wait(self._busy)
            db.enter()
            self._migrate(db)
            # Proves that the file takes a write before anyone depends on it.
            db.write(SET_META, ("opened", str(time.time())))
            db.commit(None)
        except BaseException:
            db.rollback()
            raise
        # Only now, so that the file of another program is left as it is.
        if db.read("PRAGMA journal_mode = WAL") != [("wal",)]:
            raise ConfigError(
                f"{self._name} cannot use a write-ahead log here; "
                "set 'approvals.ledger' to a file on a local disk"
            )

    def _check(self, db: SqliteConnection) -> None:
        if db.read("PRAGMA quick_check(1)") != [("ok",)]:
            raise ConfigError(f"{self._name} {_WAYS_OUT['CORRUPT']}")

    def _migrate(self, db: SqliteConnection) -> None:
        [(version,)] = db.read("PRAGMA user_version")
        [(application,)] = db.read("PRAGMA application_id")
        [(tables,)] = db.read("SELECT count(*) FROM sqlite_master")
        if tables and application != _APPLICATION:
            raise ConfigError(f"{self._name} {_WAYS_OUT['NOTADB']}")
        if version > SCHEMA:
            raise ConfigError(
                f"{self._name} has schema {version}, and this Assent "
                f"knows {SCHEMA}; upgrade Assent or set 'approvals.ledger' to another file"
            )
        if not tables:
            make_tables(db)

    def _close(self) -> None:
        writer, self._writer = self._writer, None
        if writer is not None:
            writer.close()
        # A renewal that another process keeps out of the store must not hold up the end.
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
            raise ConfigError(f"{self._name} {_way_out(error)}") from error
        except LedgerUnavailable as error:
            cause = error.__cause__
            text = _way_out(cause) if isinstance(cause, sqlite3.Error) else str(error)
            raise ConfigError(f"{self._name} {text}") from error
        except OSError as error:
            permissions = f"check the permissions of its folder, or {_ANOTHER}"
            way_out = _CAUSES.get(error.errno or 0, permissions)
            raise ConfigError(
                f"{self._name} cannot be made: {error.strerror}; {way_out}"
            ) from error


def _way_out(error: Exception) -> str:
    name = getattr(error, "sqlite_errorname", "").removeprefix("SQLITE_")
    return _WAYS_OUT.get(name.split("_")[0], f"failed: {error}")
