"""The requirements for a connection to an SQL database, within a transaction."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

from sayso.ledger import Reading
from sayso.ledger.chains import Entry
from sayso.ledger.texts import key

SELECT = (
    "SELECT p.id, p.lease, p.doc, c.doc FROM sayso_proposals p "
    "LEFT JOIN sayso_contents c ON c.id = p.id WHERE "
)
SELECT_TURNS = "SELECT p.id, p.lease, p.doc FROM sayso_turns p WHERE "
_CHUNK = 500
Row = tuple[Any, ...]


class MustWrite(Exception):
    """A work announced as reading only is about to write, so it must run again with locks."""


@dataclass(slots=True)
class Known:
    """Rows by key as the transaction sees them; None for missing ones."""

    proposals: dict[str, Row | None] = field(default_factory=dict)
    turns: dict[str, Row | None] = field(default_factory=dict)

    def add(self, other: Known) -> None:
        """Take over newer rows."""
        self.proposals |= other.proposals
        self.turns |= other.turns

    def clear(self) -> None:
        """Forget all rows."""
        self.proposals.clear()
        self.turns.clear()


def named(works: Iterable[object]) -> tuple[list[str], list[str]]:
    """The keys of the turns and proposals that these works read first."""
    readings = [work for work in works if isinstance(work, Reading)]
    turns = {key(id_) for work in readings for id_ in work.turns}
    return sorted(turns), sorted({key(id_) for work in readings for id_ in work.proposals})


def fetched(db: Database, turns: Sequence[str], proposals: Sequence[str]) -> Known:
    """Implements `Database.fetch` for a database whose reads lock nothing."""
    known = Known(dict.fromkeys(proposals), dict.fromkeys(turns))
    for rows, select, keys in (
        (known.turns, SELECT_TURNS, turns),
        (known.proposals, SELECT, proposals),
    ):
        for start in range(0, len(keys), _CHUNK):
            chunk = keys[start : start + _CHUNK]
            marks = ", ".join("?" for _ in chunk)
            rows |= {row[0]: row for row in db.read(f"{select}p.id IN ({marks})", chunk)}
    return known


class Database(Protocol):
    """A connection within a transaction, with `?` for values.

    In a transaction that may write, rows read by `fetch` and `find` are locked until its end.
    """

    skip: str
    """The end of a SELECT that locks the rows of `p` and skips those that others have locked."""
    reading: bool
    """Whether the transaction only reads."""

    def fetch(self, turns: Sequence[str], proposals: Sequence[str]) -> Known:
        """These rows, and possibly the turns of the proposals."""
        ...

    def find(self, where: str, values: Sequence[object]) -> list[Row]:
        """The rows of proposals that `SELECT` returns with this condition, order and limit."""
        ...

    def read(self, sql: str, values: Sequence[object] = ()) -> list[tuple[Any, ...]]:
        """All rows of the answer."""
        ...

    def write(self, sql: str, values: Sequence[object] = ()) -> None:
        """Execute; an error may appear only with a later statement."""
        ...

    def append(self, entries: Sequence[Entry]) -> None:
        """Append to the log; an error may appear only with a later statement."""
        ...

    def settle(self) -> None:
        """Make the commit return only when everything that was read is on disk."""
        ...
