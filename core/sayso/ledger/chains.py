"""The chains of the log as rows of an SQL database.

`sayso_chains` has a row for each chain, with the number and hash of its newest row.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from functools import cache
from itertools import groupby
from operator import attrgetter, itemgetter
from typing import Any, NamedTuple, Protocol

from sayso.errors import LedgerUnavailable
from sayso.ledger import Head, LogRow
from sayso.ledger.log import SUMMARY, genesis, log_row
from sayso.ledger.texts import dumps, loads

LOST = "the approvals store has lost its log"
_COLUMNS = "chain, seq, at, entry, previous, hash"
_HEADS = "SELECT chain, seq, hash FROM sayso_chains WHERE seq > 0 ORDER BY chain"
_HEAD = "SELECT seq, hash FROM sayso_chains WHERE chain = ?"
_SET_HEAD = "UPDATE sayso_chains SET seq = ?, previous = ?, hash = ? WHERE chain = ?"
_PUT = f"INSERT INTO sayso_log ({_COLUMNS}) VALUES (?, ?, ?, ?, ?, ?)"


class Entry(NamedTuple):
    """An entry to append to a chain."""

    chain: int
    at: float
    entry: dict[str, Any]


class Database(Protocol):
    """The operations needed of a connection within a transaction."""

    def read(self, sql: str, values: Sequence[object] = ()) -> list[tuple[Any, ...]]: ...

    def write(self, sql: str, values: Sequence[object] = ()) -> None: ...


def first_heads(chains: Iterable[int] = range(SUMMARY + 1)) -> str:
    """The statement that creates the heads of chains without rows."""
    rows = ", ".join(f"({chain}, 0, '', '{genesis(chain)}')" for chain in chains)
    return f"INSERT INTO sayso_chains (chain, seq, previous, hash) VALUES {rows}"


def ordered(entries: Sequence[Entry]) -> list[Entry]:
    """The entries in the order of their chains. Every transaction locks the heads in this order, so
    that no two wait for each other."""
    return sorted(entries, key=attrgetter("chain"))


def append(db: Database, entries: Sequence[Entry]) -> None:
    """Append the entries, in a transaction that runs beside no other."""
    for chain, several in groupby(ordered(entries), itemgetter(0)):
        found = db.read(_HEAD, (chain,))
        if not found:
            raise LedgerUnavailable(LOST)
        head = Head(*found[0])
        previous = ""
        for _, at, entry in several:
            row = log_row(head, chain, at, entry)
            db.write(_PUT, (chain, row.seq, at, dumps(entry), row.previous, row.hash))
            head, previous = Head(row.seq, row.hash), row.previous
        db.write(_SET_HEAD, (head.seq, previous, head.hash, chain))


def heads(db: Database) -> dict[int, Head]:
    """Implements `Transaction.heads`."""
    return {chain: Head(seq, digest) for chain, seq, digest in db.read(_HEADS)}


def rows(db: Database, after: Mapping[int, int], limit: int) -> list[LogRow]:
    """Implements `Transaction.log`."""
    if not after:
        return []
    values = [value for chain, seq in after.items() for value in (chain, seq, limit)]
    found = sorted(db.read(_pages(len(after)), values), key=itemgetter(0, 1))
    return [
        LogRow(seq, at, loads(entry), previous, digest, chain)
        for chain, seq, at, entry, previous, digest in found
    ]


@cache
def _pages(count: int) -> str:
    page = f"SELECT {_COLUMNS} FROM sayso_log WHERE chain = ? AND seq > ? ORDER BY seq LIMIT ?"
    return " UNION ALL ".join([f"SELECT * FROM ({page}) AS page"] * count)
