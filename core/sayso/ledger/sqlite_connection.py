"""A connection to an SQLite database, the lock by which processes take turns on its file, and the
health of that file: room on its disk, and pages that are whole."""

from __future__ import annotations

import fcntl
import logging
import os
import sqlite3
import tempfile
import threading
import time
from collections.abc import Iterable, Sequence
from contextlib import closing
from pathlib import Path
from typing import Any

from sayso.errors import ConfigError, LedgerUnavailable
from sayso.ledger import locks, migrations
from sayso.ledger.database import SELECT, Entry, Known, Row, append_entries, fetched, first_heads
from sayso.ledger.tables import OPENED, SCHEMA, TABLES
from sayso.ledger.writer import Outcome, unavailable

logger = logging.getLogger("sayso.ledger")

APPLICATION = 0x41535354
"""The mark of an approvals store in its file."""
WAYS_OUT = {
    "NOTADB": "is no approvals store; move it away or set 'approvals.ledger' to another file",
    "CORRUPT": "is damaged; restore it from a backup, or move it away to begin a new one",
    "READONLY": "cannot be written; check the permissions of the file and its folder",
    "CANTOPEN": "cannot be opened; check the permissions of the file and its folder",
    "PERM": "cannot be opened; check the permissions of the file and its folder",
    "FULL": "cannot grow, the disk is full; free some space",
    "IOERR": "cannot be read or written; check the disk and its free space",
    "BUSY": "is locked by another process; end that process, a backup tool perhaps",
}
"""The explanation for each of SQLite's errors, with the way out."""
UNFLUSHED = "cannot be flushed to disk; check the disk, restart the service"
_ROOM = 2**20
"""Bytes that must be free: what is written at once may be as large."""
_CHECKED_WHOLE = 64 * 2**20
"""Bytes of a file up to which it is looked through."""
_EVERY = 60.0
_SHARE = 0.01
"""The part of the time that looking through the file may take."""
_QUICK_CHECK = "PRAGMA quick_check(1)"
_WHOLE = [("ok",)]


class Gate:
    """A lock on a file, held by one transaction at a time among all processes.

    SQLite makes waiting writers poll, up to 100 ms apart and in no order; this lock wakes the next
    one at once. Correctness depends on SQLite's own locks alone.
    """

    def __init__(self, path: Path) -> None:
        self._descriptor = locks.opened(path)

    def wait(self, seconds: float) -> None:
        """Enter within `seconds`; LedgerUnavailable if another process, possibly a stopped one,
        keeps it."""
        end = time.monotonic() + seconds
        while not locks.taken(self._descriptor):
            if time.monotonic() > end:
                raise LedgerUnavailable(WAYS_OUT["BUSY"])
            time.sleep(0.01)

    def enter(self) -> None:
        fcntl.flock(self._descriptor, fcntl.LOCK_EX)

    def leave(self) -> None:
        fcntl.flock(self._descriptor, fcntl.LOCK_UN)

    def close(self) -> None:
        locks.closed(self._descriptor)


class SqliteConnection:
    """`Connection` over sqlite3; with a `gate` and the `path` of its file, or in memory.

    `flushed` says whether commits from now on return only when they are on disk.
    """

    skip = ""
    reading = False
    flushed = True
    _flushes = True
    """SQLite's current setting for `flushed`."""
    _behind = False
    """Whether some commits may not be on disk yet."""
    _settling = False
    """Whether the next commit also flushes the commits of others."""
    _ended = ""
    """Why the connection refuses everything."""
    _log: int | None = None
    errors: tuple[type[Exception], ...] = (sqlite3.Error,)

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

    def append(self, entries: Sequence[Entry]) -> None:
        append_entries(self, entries)

    def settle(self) -> None:
        self._settling = True

    def fetch(self, turns: Sequence[str], proposals: Sequence[str]) -> Known:
        return fetched(self, turns, proposals)

    def find(self, where: str, values: Sequence[object]) -> list[Row]:
        return self.read(f"{SELECT}{where}", values)

    def begin(
        self, turns: Sequence[str] = (), proposals: Sequence[str] = ()
    ) -> tuple[float, Known]:
        try:
            self.enter()
            [(version,)] = self.read("PRAGMA user_version")
            if version != SCHEMA:
                raise LedgerUnavailable(migrations.changed(version))
            return time.time(), Known()
        except sqlite3.Error as error:
            raise unavailable(error, self.explained(error)) from error

    def wait(self, seconds: float) -> None:
        """Let others leave the store first; LedgerUnavailable if that takes longer."""
        if self._gate:
            self._gate.wait(seconds)

    def enter(self) -> None:
        """Begin, on a file that may have no tables yet."""
        if self._gate:
            self._gate.enter()
        if self._ended:
            raise LedgerUnavailable(f"the approvals store {self._ended}")
        self._check_file()
        if self._flushes != self.flushed:
            self.raw.execute(f"PRAGMA synchronous = {'FULL' if self.flushed else 'NORMAL'}")
            self._flushes = self.flushed
        self.raw.execute("BEGIN IMMEDIATE")

    def commit(self) -> None:
        self.raw.execute("COMMIT")
        self._behind = not self.flushed
        if self._gate:
            self._gate.leave()
        if self._settling:
            # The commits of another process may not be on disk yet.
            self._behind, self._settling = True, False
            self.flush()
            if self._ended:
                raise LedgerUnavailable(f"the approvals store {self._ended}")

    def open_log(self) -> None:
        """Open the write-ahead log for `flush` in advance, so that no descriptor can be lacking
        later."""
        # SQLite creates the log at its first read, beside the file that a link points to.
        self.read(OPENED)
        file = os.path.realpath(self._path or "")
        self._log = os.open(f"{file}-wal", os.O_RDONLY)
        self._inodes |= {path: os.stat(path).st_ino for path in (f"{file}-wal", f"{file}-shm")}

    def flush(self) -> None:
        """Write all commits to disk; call `open_log` first."""
        if not self._behind or self._log is None:
            return
        self._behind = False
        try:
            getattr(os, "fdatasync", os.fsync)(self._log)
        except OSError:
            # It is unknown what is on disk; closed, the store refuses everything that would build
            # on it.
            logger.exception("the approvals store %s", UNFLUSHED)
            self._end(UNFLUSHED)

    def rollback(self) -> None:
        self._settling = False
        try:
            if self.raw.in_transaction:
                self.raw.execute("ROLLBACK")
        except sqlite3.Error:
            # After a failed ROLLBACK the connection cannot be trusted; closed, it refuses
            # everything.
            self._end("cannot take back a change; check the disk, restart the service")
        finally:
            if self._gate:
                self._gate.leave()

    def retryable(self, error: Exception) -> bool:
        return False

    def explained(self, error: Exception) -> str:
        return f"the approvals store {str(self._path or 'memory://')!r} {way_out(error)}"

    def close(self) -> None:
        self.raw.close()
        if self._gate:
            self._gate.close()
        if self._log is not None:
            os.close(self._log)

    def _end(self, why: str) -> None:
        self._ended = self._ended or why
        self.raw.close()

    def _check_file(self) -> None:
        """Commits to a removed file, or with a removed log, would never be seen again."""
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
    for statement in TABLES.format(text="TEXT").split(";"):
        db.raw.execute(statement)
    db.raw.execute(first_heads())
    db.raw.execute(f"PRAGMA application_id = {APPLICATION}")
    db.raw.execute(f"PRAGMA user_version = {SCHEMA}")


def migrate(db: SqliteConnection, version: int) -> None:
    """Migrate a store of `version` to today's, in the running transaction."""
    for step in migrations.steps(version):
        for statement in migrations.statements(step.sqlite):
            db.raw.execute(statement)
    db.raw.execute(f"PRAGMA user_version = {SCHEMA}")


def way_out(error: Exception) -> str:
    """The explanation of an error, with the way out."""
    name = getattr(error, "sqlite_errorname", "").removeprefix("SQLITE_")
    return WAYS_OUT.get(name.split("_")[0], f"failed: {error}")


class Health:
    """The known state of the file at `path`; several threads use it."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._name = f"the approvals store {str(path)!r}"
        self._damaged = False
        self._lock = threading.Lock()
        self._next = 0.0

    def check_at_start(self, db: SqliteConnection) -> None:
        """Raise ConfigError for a damaged file, unless it is too large to be looked through."""
        if self._checked_whole() and db.read(_QUICK_CHECK) != _WHOLE:
            raise ConfigError(f"{self._name} {WAYS_OUT['CORRUPT']}")
        self._next = time.monotonic() + _EVERY

    def note(self, outcomes: Iterable[Outcome]) -> None:
        """Remember that a work has met damage: other pages may be whole, and it does not heal."""
        for outcome in outcomes:
            cause = outcome.error and outcome.error.__cause__
            if isinstance(cause, sqlite3.Error) and way_out(cause) == WAYS_OUT["CORRUPT"]:
                self._damaged = True

    def check_space(self) -> None:
        """Raise LedgerUnavailable if the disk, or the user's share of it, is full."""
        if not hasattr(os, "posix_fallocate"):
            return
        try:
            with tempfile.TemporaryFile(dir=self._path.parent) as file:
                os.posix_fallocate(file.fileno(), 0, _ROOM)
        except OSError as error:
            raise self._unavailable(f"cannot grow: {error.strerror}; free some space") from error

    def check_pages(self) -> None:
        """Raise LedgerUnavailable for a damaged file; it is looked through now and then."""
        with self._lock:
            if not self._damaged and time.monotonic() > self._next and self._checked_whole():
                began = time.monotonic()
                self._damaged = not self._is_whole()
                ended = time.monotonic()
                self._next = ended + max(_EVERY, (ended - began) / _SHARE)
        if self._damaged:
            raise self._unavailable(WAYS_OUT["CORRUPT"])

    def _is_whole(self) -> bool:
        # Use a new connection: the others would use pages that they have read before.
        try:
            with closing(sqlite3.connect(f"{self._path.as_uri()}?mode=ro", uri=True)) as db:
                return db.execute(_QUICK_CHECK).fetchall() == _WHOLE
        except sqlite3.DatabaseError as error:
            return way_out(error) != WAYS_OUT["CORRUPT"]

    def _checked_whole(self) -> bool:
        return self._path.stat().st_size < _CHECKED_WHOLE

    def _unavailable(self, why: str) -> LedgerUnavailable:
        error = LedgerUnavailable(f"the approvals store {why}")
        error.add_note(f"it is {str(self._path)!r}")
        return error
