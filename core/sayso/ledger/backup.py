"""A backup of an SQL store as JSON lines, which another store of either kind takes.

The first line says what it is, each further one has a table and a row, the last one the number of
rows. Tables are read in an order in which the log covers every change of a proposal that is in the
backup, although the service goes on meanwhile.
"""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Iterable, Iterator, Sequence
from functools import partial
from typing import Any, NamedTuple

from sayso.errors import ConfigError
from sayso.ledger import Proposal, Reading, Store, Transaction
from sayso.ledger.log import append, log
from sayso.ledger.rows import SqlTransaction
from sayso.ledger.tables import SCHEMA, SET_META

FORMAT = 1
_PAGE = 500


class _Table(NamedTuple):
    name: str
    key: tuple[str, ...]
    others: tuple[str, ...]

    @property
    def columns(self) -> tuple[str, ...]:
        return (*self.key, *self.others)


_OWNED = ("owner", "lease", "created", "ended", "doc")
_TABLES = (
    _Table("sayso_meta", ("key",), ("value",)),
    _Table(
        "sayso_proposals",
        ("id",),
        ("turn", "conversation", "reference", "state", "position", "kept", *_OWNED),
    ),
    _Table("sayso_contents", ("id",), ("doc",)),
    _Table("sayso_turns", ("id",), ("state", *_OWNED)),
    _Table("sayso_chains", ("chain",), ("seq", "previous", "hash")),
    _Table("sayso_log", ("chain", "seq"), ("at", "previous", "hash", "entry")),
)
_BY_NAME = {table.name: table for table in _TABLES}
_ABOUT_THE_STORE = {"schema", "opened", "checked"}
"""Values of `sayso_meta` that say something of the store itself."""


class Restored(NamedTuple):
    """The number of rows, and of calls that had been open and have expired, or whose outcome is
    unknown."""

    rows: int
    expired: int
    unknown: int


async def backed_up(store: Store) -> AsyncIterator[str]:
    """The lines of a backup. Raises ConfigError for a store that has none."""
    yield json.dumps({"sayso_backup": FORMAT, "schema": SCHEMA, "store": store.url})
    total = 0
    heads: dict[int, int] = {}
    for table in _TABLES:
        async for row in _rows(store, table):
            if table.name == "sayso_meta" and row[0] in _ABOUT_THE_STORE:
                continue
            if table.name == "sayso_chains":
                heads[row[0]] = row[1]
            if table.name == "sayso_log" and row[1] > heads.get(row[0], 0):
                # Written after the heads were read.
                continue
            total += 1
            yield json.dumps([table.name, row])
    yield json.dumps({"rows": total})


async def _rows(store: Store, table: _Table) -> AsyncIterator[list[Any]]:
    after: Sequence[Any] | None = None
    key = ", ".join(table.key)
    while True:
        where, values = "", ()
        if after is not None:
            where, values = f"WHERE ({key}) > ({_marks(table.key)})", tuple(after)
        sql = f"SELECT {', '.join(table.columns)} FROM {table.name} {where} ORDER BY {key} LIMIT ?"

        def read(
            tx: Transaction, sql: str = sql, values: Sequence[Any] = values
        ) -> list[tuple[Any, ...]]:
            return _sql(tx).select(sql, (*values, _PAGE))

        found = await store.run(Reading(read, only=True))
        for row in found:
            yield list(row)
        if len(found) < _PAGE:
            return
        after = found[-1][: len(table.key)]


async def restored(store: Store, lines: Iterable[str]) -> Restored:
    """Put a backup into `store`, which has to be empty.

    Calls that were open in it have expired, and those that ran have an unknown outcome: what
    happened to them after the backup is not known, and none may run twice. Raises ConfigError.
    """
    await store.run(Reading(_check_empty, only=True))
    parsed = _parsed(lines)
    total = 0
    while page := [row for _, row in zip(range(_PAGE), parsed, strict=False)]:
        await store.run(Reading(partial(_insert, page=page)))
        total += len(page)
    expired, unknown = await store.run(Reading(_closed))
    return Restored(total, expired, unknown)


def _check_empty(tx: Transaction) -> None:
    if tx.find(limit=1) or any(head.seq for head in tx.heads().values()):
        raise ConfigError(
            "the approvals store is not empty; restore into a new one: another file or database "
            "in 'approvals.ledger'"
        )


def _parsed(lines: Iterable[str]) -> Iterator[tuple[_Table, list[Any]]]:
    """The rows of a backup; raises ConfigError for one that is none, is newer, or breaks off."""
    count, first = 0, True
    for line in lines:
        try:
            said = json.loads(line)
        except ValueError:
            raise ConfigError("the backup is damaged: a line of it is no JSON") from None
        if first:
            _check_head(said)
            first = False
        elif isinstance(said, dict):
            if said.get("rows") != count:
                raise ConfigError(f"the backup is damaged: it has {count} rows, not {said}")
            return
        else:
            name, row = said
            count += 1
            yield _BY_NAME[name], row
    raise ConfigError("the backup breaks off before its last line; use a whole one")


def _check_head(said: Any) -> None:
    if not isinstance(said, dict) or said.get("sayso_backup") != FORMAT:
        raise ConfigError("this is no backup of Sayso; make one with: sayso backup FILE")
    if said.get("schema") != SCHEMA:
        raise ConfigError(
            f"the backup has schema {said.get('schema')}, and this Sayso knows {SCHEMA}; restore "
            "it with the version that made it, and upgrade then"
        )


def _insert(tx: Transaction, page: Sequence[tuple[_Table, list[Any]]]) -> None:
    sql_tx = _sql(tx)
    for table, row in page:
        if table.name == "sayso_meta":
            sql_tx.execute(SET_META, row)
        elif table.name == "sayso_chains":
            sql = "UPDATE sayso_chains SET seq = ?, previous = ?, hash = ? WHERE chain = ?"
            sql_tx.execute(sql, (*row[1:], row[0]))
        else:
            columns = ", ".join(table.columns)
            sql_tx.execute(f"INSERT INTO {table.name} ({columns}) VALUES ({_marks(row)})", row)


def _closed(tx: Transaction) -> tuple[int, int]:
    """Close the calls that were open; returns how many have expired, and how many are unknown."""
    expired = [*tx.find(state="PENDING"), *tx.find(state="APPROVED")]
    unknown = tx.find(state="EXECUTING")
    for row in expired:
        row.state, row.finished = "EXPIRED", tx.now
        _put(tx, row)
    for row in unknown:
        row.state, row.finished, row.owner = "INDETERMINATE", tx.now, None
        row.output = "Outcome unknown: the approvals store was restored from a backup"
        _put(tx, row)
    append(tx, {"event": "restored", "expired": len(expired), "unknown": len(unknown)})
    return len(expired), len(unknown)


def _put(tx: Transaction, row: Proposal) -> None:
    tx.put(row)
    log(tx, row.state.lower(), row)


def _sql(tx: Transaction) -> SqlTransaction:
    if not isinstance(tx, SqlTransaction):
        raise ConfigError("a store of this kind has no backup here; save what it is kept in")
    return tx


def _marks(values: Sequence[Any]) -> str:
    return ", ".join("?" for _ in values)
