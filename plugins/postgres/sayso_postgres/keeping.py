"""The rows of the tables, written into a backup's file and filled from one.

Both use one transaction of a connection of their own. A repeatable-read transaction sees the
database at one moment and keeps nobody waiting, and unlike pg_dump it needs no program of the
server's version where Sayso runs; the file is one that every store understands.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import psycopg

from sayso import ConfigError
from sayso.ledger.copies import OWN_NOTES, Table, read, unserved, write
from sayso.ledger.sql import SCHEMA
from sayso_postgres.connection import Raw

Make = Callable[[psycopg.Connection[Any]], None]
_PATIENT = """
SET LOCAL statement_timeout = 0;
SET LOCAL idle_in_transaction_session_timeout = '60s';
SET LOCAL synchronous_commit = on;
"""
_AT_A_TIME = 500
_SAVE = "SET TRANSACTION ISOLATION LEVEL REPEATABLE READ READ ONLY"
_VERSION = "SELECT value FROM sayso_meta WHERE key = 'schema'"
_USED = (
    "SELECT EXISTS (SELECT 1 FROM sayso_proposals) OR EXISTS (SELECT 1 FROM sayso_turns) "
    "OR EXISTS (SELECT 1 FROM sayso_log)"
)


def save(connection: Raw, file: Path, name: str) -> None:
    """Implements `Keepable.save`; `name` is the store's for messages."""
    with connection.transaction():
        connection.execute(_SAVE)
        connection.execute(_PATIENT)
        found = connection.execute(_VERSION).fetchall()
        version = int(found[0][0]) if found else 0
        if version != SCHEMA:
            raise ConfigError(unserved(name, version))
        write(file, lambda table: _rows(connection, table))


def fill(
    connection: Raw, file: Path, name: str, make: Callable[[psycopg.Connection[Any]], None]
) -> None:
    """Implements `Keepable.fill`; `make` makes the tables unless they are there."""
    with connection.transaction():
        connection.execute(_PATIENT)
        make(connection)
        # A service that has started on the empty store waits, and then finds its rows.
        connection.execute("LOCK TABLE sayso_meta IN ACCESS EXCLUSIVE MODE")
        if connection.execute(_USED).fetchall()[0][0]:
            raise ConfigError(
                f"{name} is not empty; restore into another database or schema, "
                "or drop its tables sayso_... first"
            )
        connection.execute("DELETE FROM sayso_chains")
        connection.execute("DELETE FROM sayso_meta WHERE key <> 'schema'")
        for table, rows in read(file):
            columns = ", ".join(table.columns)
            statement = f"COPY {table.name} ({columns}) FROM STDIN"
            with connection.cursor().copy(statement.encode()) as copy:
                for row in rows:
                    if table.name != "sayso_meta" or row[0] not in OWN_NOTES:
                        copy.write_row(row)


def _rows(connection: Raw, table: Table) -> Iterator[tuple[Any, ...]]:
    columns = ", ".join(table.columns)
    with connection.cursor(name="sayso_rows") as cursor:
        cursor.itersize = _AT_A_TIME
        cursor.execute(f"SELECT {columns} FROM {table.name}".encode())
        for row in cursor:
            if table.name != "sayso_meta" or row[0] not in OWN_NOTES:
                yield row
