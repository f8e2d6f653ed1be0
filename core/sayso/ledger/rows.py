"""Proposals, suspended turns and the log as rows of an SQL database.

Columns hold what `find`, `renew` and `purge` look for; the rest is JSON text in `doc`, contents in
a table of their own (see `texts`). The statements are common to SQLite and PostgreSQL, with `?`
for values.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import takewhile
from typing import Any, Protocol

from sayso.ledger import Head, LogRow, Proposal, Reading, State, SuspendedTurn, chains, log
from sayso.ledger.chains import Entry
from sayso.ledger.texts import (
    NO_CONTENTS,
    dump_proposal,
    dump_turn,
    key,
    load_proposal,
    load_turn,
)

_SELECT = (
    "SELECT p.lease, p.doc, c.doc FROM sayso_proposals p "
    "LEFT JOIN sayso_contents c ON c.id = p.id WHERE "
)
_SELECT_TURNS = "SELECT p.id, p.lease, p.doc FROM sayso_turns p WHERE "
_CHUNK = 500
Row = tuple[Any, ...]
Statement = tuple[str, tuple[object, ...]]


def _column(value: str | float) -> str | float | None:
    if not isinstance(value, str):
        return value
    return key(value) if value else None


def _upsert(table: str, columns: Sequence[str]) -> str:
    sets = ", ".join(f"{name} = excluded.{name}" for name in columns[1:])
    marks = ", ".join("?" for _ in columns)
    return (
        f"INSERT INTO {table} ({', '.join(columns)}) VALUES ({marks}) "
        f"ON CONFLICT ({columns[0]}) DO UPDATE SET {sets}"
    )


class _Table:
    """The statements that write rows whose `fixed` columns never change.

    Updating the other columns leaves most indexes alone, which are what a write costs.
    """

    def __init__(self, name: str, fixed: Sequence[str], others: Sequence[str]) -> None:
        self.put = _upsert(name, ("id", *fixed, *others))
        self.update = (
            f"UPDATE {name} SET {', '.join(f'{column} = ?' for column in others)} WHERE id = ?"
        )


_PROPOSALS = _Table(
    "sayso_proposals",
    ("turn", "conversation", "reference", "created", "position"),
    ("state", "owner", "lease", "ended", "kept", "doc"),
)
_TURNS = _Table(
    "sayso_turns",
    ("created",),
    ("state", "owner", "lease", "ended", "doc"),
)
_PUT_CONTENTS = _upsert("sayso_contents", ("id", "doc"))


def questions(work: object, lock: str) -> list[Statement]:
    """The queries for what a `Reading` reads first, so that a SqlTransaction has the answers in
    advance."""
    if not isinstance(work, Reading) or max(len(work.proposals), len(work.turns)) > _CHUNK:
        return []
    asked: list[Statement] = []
    for marks, ids in _chunks(work.turns):
        asked.append((_turns(marks) + lock, tuple(ids)))
    for marks, ids in _chunks(work.proposals):
        theirs = f"SELECT q.turn FROM sayso_proposals q WHERE q.id IN ({marks})"
        asked.append((_proposals(marks) + lock, tuple(ids)))
        asked.append((_turns(theirs) + lock, tuple(ids)))
    return asked


def _proposals(ids: str) -> str:
    return f"{_SELECT}p.id IN ({ids}) ORDER BY p.created, p.position, p.id"


def _turns(ids: str) -> str:
    return f"{_SELECT_TURNS}p.id IN ({ids}) ORDER BY p.created, p.id"


def _fixed(proposal: Proposal) -> tuple[Any, ...]:
    # By conversation and reference only commands are looked up.
    named = (proposal.conversation, proposal.reference) if proposal.kind == "command" else ("", "")
    return (proposal.turn, *named, proposal.created, proposal.index)


class Database(Protocol):
    """A connection within a transaction, with `?` for values."""

    lock: str
    """What a SELECT ends with to lock the rows of `p` until the transaction ends."""

    def read(self, sql: str, values: Sequence[object] = ()) -> list[tuple[Any, ...]]:
        """All rows of the answer."""
        ...

    def write(self, sql: str, values: Sequence[object] = ()) -> None:
        """Execute; an error may show only at a later statement."""
        ...

    def append(self, entries: Sequence[Entry]) -> None:
        """Append to the log; an error may show only at a later statement."""
        ...

    def settle(self) -> None:
        """Have the commit return only when all that was read is on the disk."""
        ...


class SqlTransaction:
    """`Transaction` over a Database.

    `entries` are to be appended to the log when the transaction ends, and `earlier` those of the
    works before it in the same one. `wrote` is whether anything was written. `known` are the
    answers to `questions`, asked in this transaction directly before.
    """

    def __init__(
        self,
        db: Database,
        now: float,
        earlier: list[Entry],
        known: Mapping[Statement, list[Row]],
    ) -> None:
        self.now = now
        self.entries: list[Entry] = []
        self.wrote = False
        self._earlier = earlier
        self._db = db
        self._known = dict(known)
        self._known_turns = {
            row[0]: row
            for (sql, _), rows in self._known.items()
            if sql.startswith(_SELECT_TURNS)
            for row in rows
        }
        self._seen: dict[str, str | None] = {}
        # The values of the fixed columns as they stand in the database.
        self._fixed: dict[tuple[_Table, str], tuple[Any, ...]] = {}

    def proposals(self, ids: Sequence[str]) -> dict[str, Proposal]:
        found: dict[str, Proposal] = {}
        for marks, values in _chunks(ids):
            sql = _proposals(marks) + self._db.lock
            rows = self._known.pop((sql, tuple(values)), None)
            if rows is None:
                rows = self._db.read(sql, values)
            found |= {p.id: p for p in self._load(rows)}
        return found

    def find(
        self,
        *,
        turn: str | None = None,
        conversation: str | None = None,
        reference: str | None = None,
        state: State | None = None,
        owner: str | None = None,
        after: str | None = None,
        limit: int = 10_000,
        newest: bool = False,
    ) -> list[Proposal]:
        where, values = _conditions(
            {"turn": turn, "conversation": conversation, "reference": reference, "owner": owner}
        )
        # A planner that walks an index in its order to save the sort would read all of a state's
        # rows; expressions keep it to the selective column.
        narrow = bool(values)
        if state is not None:
            where.append("p.state || '' = ?" if narrow else "p.state = ?")
            values.append(state)
        if after is not None:
            where.append(
                f"(p.created, p.position, p.id) {'<' if newest else '>'} "
                "(SELECT created, position, id FROM sayso_proposals WHERE id = ?)"
            )
            values.append(key(after))
        first = "p.created + 0" if narrow else "p.created"
        way = "DESC" if newest else "ASC"
        order = f"{first} {way}, p.position {way}, p.id {way}"
        sql = f"{_SELECT} {' AND '.join(where) or '1 = 1'} ORDER BY {order} LIMIT ?"
        return list(self._load(self._db.read(sql + self._db.lock, [*values, limit])))

    def put(self, proposal: Proposal) -> None:
        doc, contents = dump_proposal(proposal)
        owner = proposal.owner
        row = key(proposal.id)
        self._known.clear()
        kept = contents != NO_CONTENTS
        self._put(
            _PROPOSALS,
            row,
            _fixed(proposal),
            (
                proposal.state,
                owner and key(owner.id),
                owner and owner.lease,
                proposal.ended,
                int(kept),
                doc,
            ),
        )
        if kept and self._seen.get(row) != contents:
            self._write(_PUT_CONTENTS, (row, contents))
        elif not kept and self._seen.get(row, "") is not None:
            self._write("DELETE FROM sayso_contents WHERE id = ?", (row,))
        self._seen[row] = contents if kept else None

    def turns(self, ids: Sequence[str]) -> dict[str, SuspendedTurn]:
        found: dict[str, SuspendedTurn] = {}
        for marks, values in _chunks(ids):
            if self._known_turns.keys() >= set(values):
                rows = [self._known_turns.pop(id_) for id_ in values]
            else:
                rows = self._db.read(_turns(marks) + self._db.lock, values)
            turns = sorted(self._load_turns(rows), key=lambda turn: (turn.created, turn.id))
            found |= {turn.id: turn for turn in turns}
        return found

    def put_turn(self, turn: SuspendedTurn) -> None:
        owner = turn.owner
        row = key(turn.id)
        self._known_turns.pop(row, None)
        self._put(
            _TURNS,
            row,
            (turn.created,),
            (
                turn.state,
                owner and key(owner.id),
                owner and owner.lease,
                turn.ended,
                dump_turn(turn),
            ),
        )

    def append_log(self, chain: int, entry: dict[str, Any]) -> None:
        self.entries.append(Entry(chain, self.now, entry))

    def heads(self) -> dict[int, Head]:
        self._append()
        return chains.heads(self._db)

    def log(self, after: Mapping[int, int], limit: int = 1_000) -> list[LogRow]:
        self._append()
        rows = chains.rows(self._db, after, limit)
        if rows:
            self._db.settle()
        return rows

    def purge(
        self,
        *,
        contents_before: float | None,
        turns_before: float | None,
        log_before: float | None = None,
        limit: int = 1_000,
    ) -> tuple[int, int, int]:
        self._known.clear()
        self._known_turns.clear()
        return (
            _given(self._purge_contents, contents_before, limit),
            _given(self._purge_turns, turns_before, limit),
            _given(self._purge_log, log_before, limit),
        )

    def _put(
        self, table: _Table, row: str, fixed: tuple[Any, ...], others: tuple[object, ...]
    ) -> None:
        if self._fixed.get((table, row)) == fixed:
            self._write(table.update, (*others, row))
        else:
            self._write(table.put, (row, *map(_column, fixed), *others))
            self._fixed[table, row] = fixed

    def _write(self, sql: str, values: Sequence[object]) -> None:
        self.wrote = True
        self._db.write(sql, values)

    def _load(self, rows: Iterable[Row]) -> Iterator[Proposal]:
        for lease, doc, contents in rows:
            proposal = load_proposal(doc, contents, lease)
            row = key(proposal.id)
            self._seen[row] = contents
            self._fixed[_PROPOSALS, row] = _fixed(proposal)
            yield proposal

    def _load_turns(self, rows: Iterable[Row]) -> Iterator[SuspendedTurn]:
        for row, lease, doc in rows:
            turn = load_turn(doc, lease)
            self._fixed[_TURNS, row] = (turn.created,)
            yield turn

    def _purge_contents(self, before: float, limit: int) -> int:
        ids = self._ids(
            "SELECT p.id FROM sayso_proposals p WHERE p.kept = 1 AND p.ended < ? "
            "ORDER BY p.ended LIMIT ?",
            before,
            limit,
        )
        self._each("DELETE FROM sayso_contents WHERE id IN", ids)
        self._each("UPDATE sayso_proposals SET kept = 0 WHERE id IN", ids)
        self._seen.clear()
        return len(ids)

    def _purge_turns(self, before: float, limit: int) -> int:
        ids = self._ids(
            "SELECT p.id FROM sayso_turns p WHERE p.ended < ? ORDER BY p.ended LIMIT ?",
            before,
            limit,
        )
        if len(ids) < limit:
            ids += self._forsaken(before, limit - len(ids))
        self._each("DELETE FROM sayso_turns WHERE id IN", ids)
        self._fixed.clear()
        return len(ids)

    def _forsaken(self, before: float, limit: int) -> list[str]:
        """Turns that nobody continued, or whose continuation died, and that no call keeps open."""
        return self._ids(
            "SELECT p.id FROM sayso_turns p WHERE p.ended IS NULL AND p.created < ? "
            "AND (p.state = 'SUSPENDED' OR p.lease < ?) AND NOT EXISTS (SELECT 1 "
            "FROM sayso_proposals q WHERE q.turn = p.id AND (q.ended IS NULL OR q.ended >= ?)) "
            "ORDER BY p.created LIMIT ?",
            before,
            before,
            before,
            limit,
        )

    def _purge_log(self, before: float, limit: int) -> int:
        gone = 0
        for oldest in self.log(dict.fromkeys(range(log.SUMMARY + 1), 0), 1):
            if oldest.at < before and gone < limit:
                gone += self._purge_chain(oldest.chain, before, limit - gone)
        return gone

    def _purge_chain(self, chain: int, before: float, limit: int) -> int:
        rows = self.log({chain: 0}, limit)
        old = list(takewhile(lambda row: row.at < before, rows))
        self._write("DELETE FROM sayso_log WHERE chain = ? AND seq <= ?", (chain, old[-1].seq))
        log.checkpoint(self, old)
        return len(old)

    def _append(self) -> None:
        entries = [*self._earlier, *self.entries]
        if entries:
            self.wrote = True
            self._db.append(entries)
            self._earlier.clear()
            self.entries.clear()

    def _ids(self, sql: str, *values: object) -> list[str]:
        return [row[0] for row in self._db.read(sql + self._db.lock, values)]

    def _each(self, sql: str, ids: Sequence[str]) -> None:
        for start in range(0, len(ids), _CHUNK):
            chunk = ids[start : start + _CHUNK]
            self._write(f"{sql} ({', '.join('?' for _ in chunk)})", chunk)


def _conditions(given: dict[str, str | None]) -> tuple[list[str], list[object]]:
    where: list[str] = []
    values: list[object] = []
    for name, value in given.items():
        if value:
            where.append(f"p.{name} = ?")
            values.append(key(value))
        elif value is not None:
            where.append(f"p.{name} IS NULL")
    return where, values


def _chunks(ids: Sequence[str]) -> Iterator[tuple[str, list[str]]]:
    keys = [key(ids[0])] if len(ids) == 1 else sorted({key(i) for i in ids})
    for start in range(0, len(keys), _CHUNK):
        chunk = keys[start : start + _CHUNK]
        yield ", ".join("?" for _ in chunk), chunk


def _given(purge: Callable[[float, int], int], before: float | None, limit: int) -> int:
    return 0 if before is None else purge(before, limit)
