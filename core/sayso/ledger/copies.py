"""Files of backups: SQLite databases with the tables of an approvals store.

The backup of every store is such a file, so that it can be restored into every other one, and
`sayso approvals` can read it where it lies. The functions block.
"""

from __future__ import annotations

import errno
import os
import sqlite3
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any, NamedTuple

from sayso.errors import ConfigError
from sayso.ledger import migrations
from sayso.ledger.sqlite_connection import APPLICATION, SqliteConnection, make_tables, way_out
from sayso.ledger.tables import SCHEMA

__all__ = ["OWN_NOTES", "Table", "check", "copy", "place", "read", "tables", "unserved", "write"]

OWN_NOTES = frozenset({"schema", "opened", "checked"})
"""The notes about a database itself, which say nothing of another one with the same rows."""
_NO_ROOM = frozenset({"SQLITE_FULL", "SQLITE_IOERR_WRITE"})


class Table(NamedTuple):
    """A table of a store with its columns; `sayso_meta` is the first one."""

    name: str
    columns: tuple[str, ...]


def tables() -> list[Table]:
    """The tables of a store of the current schema."""
    with closing(sqlite3.connect(":memory:", isolation_level=None)) as db:
        make_tables(SqliteConnection(db))
        names = db.execute("SELECT name FROM sqlite_master WHERE type = 'table' ORDER BY rowid")
        return [Table(name, _columns(db, name)) for (name,) in names.fetchall()]


def write(file: Path, rows: Callable[[Table], Iterable[Sequence[Any]]]) -> None:
    """Make `file` from the rows of each table."""
    _create(file)
    with _room(file), closing(sqlite3.connect(file, isolation_level=None)) as db:
        db.execute("BEGIN")
        make_tables(SqliteConnection(db))
        db.execute("DELETE FROM sayso_chains")
        for table in tables():
            marks = ", ".join("?" for _ in table.columns)
            names = ", ".join(table.columns)
            db.executemany(f"INSERT INTO {table.name} ({names}) VALUES ({marks})", rows(table))
        db.execute("COMMIT")


def read(file: Path) -> Iterator[tuple[Table, Iterator[tuple[Any, ...]]]]:
    """The rows of each table of a file that has the current schema."""
    with closing(sqlite3.connect(_uri(file), uri=True)) as db:
        for table in tables():
            yield table, db.execute(f"SELECT {', '.join(table.columns)} FROM {table.name}")


def proposals(file: Path) -> int:
    """The number of proposals in a file."""
    with closing(sqlite3.connect(_uri(file), uri=True)) as db:
        [(count,)] = db.execute("SELECT count(*) FROM sayso_proposals")
    return int(count)


def copy(source: Path, target: Path) -> None:
    """Copy the state of one moment of a database that others may be writing.

    Writers of a store with a write-ahead log do not wait for it. The target has no such log, so
    that it is one file.
    """
    _create(target)
    with (
        _room(target),
        closing(sqlite3.connect(f"{source.absolute().as_uri()}?mode=rw", uri=True)) as old,
        closing(sqlite3.connect(target)) as new,
    ):
        old.backup(new)
        new.execute("PRAGMA journal_mode = DELETE")


def check(file: Path) -> int:
    """The schema of an approvals store or a backup. Raises ConfigError for any other file, a
    damaged one, and one that a newer Sayso made."""
    name = f"{str(file)!r}"
    if not file.is_file():
        raise ConfigError(f"there is no file {name}")
    try:
        with closing(sqlite3.connect(_uri(file), uri=True)) as db:
            [(application,)] = db.execute("PRAGMA application_id").fetchall()
            [(version,)] = db.execute("PRAGMA user_version").fetchall()
            found = db.execute("PRAGMA quick_check(1)").fetchall()
    except sqlite3.Error as error:
        raise ConfigError(f"{name} cannot be read as a backup: {way_out(error)}") from error
    if application != APPLICATION:
        raise ConfigError(f"{name} is no backup of an approvals store")
    if found != [("ok",)]:
        raise ConfigError(f"{name} is damaged: {found[0][0]}; take an older backup")
    if version > SCHEMA:
        raise ConfigError(migrations.newer(name, version, "backup"))
    return int(version)


def check_served(file: Path, name: str) -> None:
    """Raise ConfigError unless the file is an approvals store of the current schema."""
    if (version := check(file)) < SCHEMA:
        raise ConfigError(unserved(name, version))


def unserved(name: str, version: int) -> str:
    """The error for a store of an older schema."""
    return (
        f"{name} has schema {version}, and this Sayso knows {SCHEMA}; back it up with the version "
        "that serves it"
    )


def place(made: Path, target: Path) -> None:
    """Move a file to its name, on disk, unless there is a file of that name. Raises
    FileExistsError."""
    with made.open("rb") as content:
        os.fsync(content.fileno())
    try:
        os.link(made, target)
    except FileExistsError:
        raise
    except OSError:
        # Not every file system has hard links.
        os.close(os.open(target, os.O_CREAT | os.O_EXCL, 0o600))
        os.replace(made, target)
    else:
        made.unlink()
    folder = os.open(target.parent, os.O_RDONLY)
    try:
        os.fsync(folder)
    finally:
        os.close(folder)


def _columns(db: sqlite3.Connection, table: str) -> tuple[str, ...]:
    return tuple(row[1] for row in db.execute(f"PRAGMA table_info({table})"))


@contextmanager
def _room(file: Path) -> Iterator[None]:
    """Raises OSError, with the name of the file, if its disk is full; SQLite names neither."""
    try:
        yield
    except sqlite3.OperationalError as error:
        if error.sqlite_errorname not in _NO_ROOM:
            raise
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(file)) from error


def _create(file: Path) -> None:
    os.close(os.open(file, os.O_CREAT | os.O_EXCL | os.O_RDWR, 0o600))


def _uri(file: Path) -> str:
    return f"{file.absolute().as_uri()}?mode=rw"
