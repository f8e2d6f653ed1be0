"""Proposals, suspended turns and the log as rows of an SQL database.

Columns have the values that `find`, `renew` and `purge` search by. Everything else is JSON text in
`doc`; contents are in a table of their own (see `database`). The statements are common to SQLite
and PostgreSQL, with `?` for values.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from itertools import takewhile
from typing import Any

from sayso.ledger import Head, LogRow, Pending, Proposal, State, SuspendedTurn, log
from sayso.ledger.database import (
    NO_CONTENTS,
    SELECT,
    Connection,
    Entry,
    Known,
    MustWrite,
    Row,
    dump_proposal,
    dump_turn,
    dumps,
    key,
    load_proposal,
    load_terms,
    load_turn,
    loads,
    log_rows,
    newest_rows,
)
from sayso.ledger.old_rows import OldRows
from sayso.ledger.tables import SET_META


def _column(value: str | float) -> str | float | None:
    if not isinstance(value, str):
        return value
    return key(value) if value else None


def _upsert(table: str, columns: Sequence[str]) -> str:
    sets = ", ".join(f"{name} = excluded.{name}" for name in columns[1:])
    return f"{_insert(table, columns)} ON CONFLICT ({columns[0]}) DO UPDATE SET {sets}"


def _insert(table: str, columns: Sequence[str]) -> str:
    marks = ", ".join("?" for _ in columns)
    return f"INSERT INTO {table} ({', '.join(columns)}) VALUES ({marks})"


class _Table:
    """The statements that write rows whose `fixed` columns never change.

    Updating only the other columns leaves most indexes unchanged; indexes are the main cost of a
    write.
    """

    def __init__(self, name: str, fixed: Sequence[str], others: Sequence[str]) -> None:
        self.insert = _insert(name, ("id", *fixed, *others))
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
_NEWEST = f"{SELECT}1 = 1 ORDER BY p.created DESC, p.position DESC, p.id DESC LIMIT 1"
_DUE = " UNION ALL ".join(
    f"SELECT doc FROM sayso_proposals WHERE state = '{state}' AND {until} <= ?"
    for state, until in (("PENDING", "ended"), ("APPROVED", "ended"), ("EXECUTING", "lease"))
)
_DUE = f"{_DUE} LIMIT ?"
_NEW_NOTE = (
    "INSERT INTO sayso_meta (key, value) VALUES (?, ?) ON CONFLICT (key) DO NOTHING RETURNING key"
)
_DROP_NOTE = "DELETE FROM sayso_meta WHERE key = ? AND value = ? RETURNING key"
_SWAP_NOTE = "UPDATE sayso_meta SET value = ? WHERE key = ? AND value = ? RETURNING key"
_PUT_CONTENTS = _upsert("sayso_contents", ("id", "doc"))


def _fixed(proposal: Proposal) -> tuple[Any, ...]:
    # Only commands are looked up by conversation and reference.
    named = (proposal.conversation, proposal.reference) if proposal.kind == "command" else ("", "")
    return (proposal.turn, *named, proposal.created, proposal.index)


class SqlTransaction:
    """`Transaction` over a Connection.

    `entries` will be appended to the log when the transaction ends; `earlier` are those of the
    previous works in the same transaction. `wrote` says whether anything was written. `known` are
    rows of the transaction, `own` those of them that this work has read or written.
    """

    def __init__(self, db: Connection, now: float, earlier: list[Entry], known: Known) -> None:
        self.now = now
        self.entries: list[Entry] = []
        self.own = Known()
        self.wrote = False
        self._earlier = earlier
        self._db = db
        self._known = known
        # The values of the fixed columns as they are in the database.
        self._fixed: dict[tuple[_Table, str], tuple[Any, ...]] = {}

    def proposals(self, ids: Sequence[str]) -> dict[str, Proposal]:
        keys = sorted({key(id_) for id_ in ids})
        self._fetch([], keys)
        found = self._load(list(filter(None, map(self.own.proposals.get, keys))))
        return {p.id: p for p in sorted(found, key=lambda p: (*p.order, p.id))}

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
        # To save the sort, a planner might walk an index in its order and read all rows of a state;
        # expressions in ORDER BY make it use the selective column.
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
        condition = f"{' AND '.join(where) or '1 = 1'} ORDER BY {order} LIMIT ?"
        rows = self._db.find(condition, [*values, limit])
        self.own.proposals |= {row[0]: row for row in rows}
        return list(self._load(rows))

    def pending(self, after: tuple[float, int, str] | None, limit: int) -> list[Pending]:
        values: list[object] = []
        where = ""
        if after is not None:
            where = "AND (p.created, p.position, p.id) < (?, ?, ?)"
            values = [after[0], after[1], key(after[2])]
        sql = (
            "SELECT p.created, p.position, p.ended, p.doc "
            f"FROM sayso_proposals p WHERE p.state = 'PENDING' {where} "
            "ORDER BY p.created DESC, p.position DESC, p.id DESC LIMIT ?"
        )
        return [
            Pending(
                row["id"],
                created,
                position,
                ended,
                row.get("agent", ""),
                row.get("principal"),
                row.get("tenant"),
                row.get("address"),
                load_terms(row.get("terms")),
            )
            for created, position, ended, doc in self._db.read(sql, [*values, limit])
            for row in [loads(doc)]
        ]

    def due(self, limit: int = 1_000) -> list[str]:
        found = self._db.read(_DUE, [self.now, self.now, self.now, limit])
        return [loads(doc)["id"] for (doc,) in found]

    def put(self, proposal: Proposal) -> None:
        doc, contents = dump_proposal(proposal)
        owner = proposal.owner
        row = key(proposal.id)
        kept = contents != NO_CONTENTS
        before = self.own.proposals.get(row, ())
        stored = before[3] if before else None
        self._put(
            _PROPOSALS,
            row,
            before is None,
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
        if kept and stored != contents:
            self._write(_PUT_CONTENTS, (row, contents))
        elif not kept and (stored is not None or before == ()):
            self._write("DELETE FROM sayso_contents WHERE id = ?", (row,))
        self.own.proposals[row] = (row, owner and owner.lease, doc, contents if kept else None)

    def turns(self, ids: Sequence[str]) -> dict[str, SuspendedTurn]:
        keys = sorted({key(id_) for id_ in ids})
        self._fetch(keys, [])
        found = self._load_turns(filter(None, map(self.own.turns.get, keys)))
        return {turn.id: turn for turn in sorted(found, key=lambda turn: (turn.created, turn.id))}

    def put_turn(self, turn: SuspendedTurn) -> None:
        owner = turn.owner
        row = key(turn.id)
        doc = dump_turn(turn)
        self._put(
            _TURNS,
            row,
            self.own.turns.get(row, ()) is None,
            (turn.created,),
            (turn.state, owner and key(owner.id), owner and owner.lease, turn.ended, doc),
        )
        self.own.turns[row] = (row, owner and owner.lease, doc)

    def notes(self, prefix: str) -> dict[str, str]:
        sql = "SELECT key, value FROM sayso_meta WHERE key >= ? AND key < ?"
        return dict(self._db.read(sql, (prefix, f"{prefix}\x7f")))

    def note(self, name: str, text: str | None) -> None:
        if text is None:
            self._write("DELETE FROM sayso_meta WHERE key = ?", (name,))
        else:
            self._write(SET_META, (name, text))

    def swap(self, name: str, old: str | None, new: str | None) -> bool:
        if self._db.reading:
            raise MustWrite
        self.wrote = True
        match old, new:
            case None, str():
                found = self._db.read(_NEW_NOTE, (name, new))
            case str(), None:
                found = self._db.read(_DROP_NOTE, (name, old))
            case _:
                found = self._db.read(_SWAP_NOTE, (new, name, old))
        return bool(found)

    def append_log(self, chain: int, entry: dict[str, Any]) -> None:
        if self._db.reading:
            raise MustWrite
        self.entries.append(Entry(chain, self.now, entry))

    def heads(self) -> dict[int, Head]:
        self._append()
        return newest_rows(self._db)

    def log(self, after: Mapping[int, int], limit: int = 1_000) -> list[LogRow]:
        self._append()
        rows = log_rows(self._db, after, limit)
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
        old = self._old_rows(limit)
        return (
            _given(old.contents, contents_before),
            _given(old.turns, turns_before),
            _given(partial(self._purge_log, limit=limit), log_before)
            + _given(old.proposals, log_before),
        )

    def rewrite_log(self, rows: Sequence[LogRow]) -> None:
        """Replace the entries of these rows and leave their hashes; see `log.ERASED`."""
        sql = "UPDATE sayso_log SET entry = ? WHERE chain = ? AND seq = ?"
        for row in rows:
            self._write(sql, (dumps(row.entry), row.chain, row.seq))

    def remove(self, proposals: Sequence[str], turns: Sequence[str]) -> None:
        """Remove these proposals with their contents, and these turns."""
        self._old_rows(0).these([key(id_) for id_ in proposals], [key(id_) for id_ in turns])

    def touch(self) -> None:
        """Write something that says nothing, and read what was written last."""
        self._write(SET_META, ("checked", repr(self.now)))
        self._db.read(_NEWEST)

    def _old_rows(self, limit: int) -> OldRows:
        """Prepare to remove rows: the rows read before are forgotten."""
        self._known.clear()
        self.own.clear()
        self._fixed.clear()
        return OldRows(self._db, self._write, limit)

    def _fetch(self, turns: Sequence[str], proposals: Sequence[str]) -> None:
        """Load these rows into `own`."""
        for own, known, keys in (
            (self.own.turns, self._known.turns, turns),
            (self.own.proposals, self._known.proposals, proposals),
        ):
            own |= {k: known[k] for k in keys if k not in own and k in known}
        turns = [k for k in turns if k not in self.own.turns]
        proposals = [k for k in proposals if k not in self.own.proposals]
        if turns or proposals:
            fresh = self._db.fetch(turns, proposals)
            for own, rows in (
                (self.own.turns, fresh.turns),
                (self.own.proposals, fresh.proposals),
            ):
                own |= {k: row for k, row in rows.items() if k not in own}

    def _put(
        self,
        table: _Table,
        row: str,
        absent: bool,
        fixed: tuple[Any, ...],
        others: tuple[object, ...],
    ) -> None:
        values = (row, *map(_column, fixed), *others)
        if self._fixed.get((table, row)) == fixed:
            self._write(table.update, (*others, row))
        else:
            # If the row was absent, use INSERT: it must not overwrite a row that another
            # transaction has inserted meanwhile.
            self._write(table.insert if absent else table.put, values)
            self._fixed[table, row] = fixed

    def _write(self, sql: str, values: Sequence[object]) -> None:
        if self._db.reading:
            raise MustWrite
        self.wrote = True
        self._db.write(sql, values)

    def _load(self, rows: Iterable[Row]) -> Iterator[Proposal]:
        for row, lease, doc, contents in rows:
            proposal = load_proposal(doc, contents, lease)
            self._fixed[_PROPOSALS, row] = _fixed(proposal)
            yield proposal

    def _load_turns(self, rows: Iterable[Row]) -> Iterator[SuspendedTurn]:
        for row, lease, doc in rows:
            turn = load_turn(doc, lease)
            self._fixed[_TURNS, row] = (turn.created,)
            yield turn

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


def _given(purge: Callable[[float], int], before: float | None) -> int:
    return 0 if before is None else purge(before)
