"""The ledger in an SQL database: its rows as JSON texts, the chains of its log, and what is
required of a connection.

The texts are pure ASCII, so no database has to store NUL or lone surrogates. `sayso_chains` has a
row for each chain of the log, with the number and hash of its newest row.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields
from functools import cache
from hashlib import sha256
from itertools import groupby
from operator import attrgetter, itemgetter
from typing import Any, NamedTuple, Protocol, TypeVar

from pydantic_core import from_json, to_json

from sayso.errors import LedgerUnavailable
from sayso.ledger import Decision, Head, LogRow, Owner, Proposal, Reading, SuspendedTurn
from sayso.ledger.log import SUMMARY, genesis, log_row
from sayso.ledger.people import Comment, Terms, Vote

T = TypeVar("T")
_CONTENTS = ("input", "edited", "output", "session", "intent")
_LATER = ("sent", "comments", "preview")
"""Fields that few proposals have; they follow the reason of the decision."""
_DOC = tuple(f.name for f in fields(Proposal) if f.name not in (*_CONTENTS, *_LATER))
_TURN_DOC = tuple(f.name for f in fields(SuspendedTurn))
_OWNER = tuple(f.name for f in fields(Owner))
_DECISION = tuple(f.name for f in fields(Decision) if f.name != "reason")
_doc_of = attrgetter(*_DOC)
_turn_doc_of = attrgetter(*_TURN_DOC)
_owner_of = attrgetter(*_OWNER)
_decision_of = attrgetter(*_DECISION)
_contents_of = attrgetter(*_CONTENTS)
_LONGEST_KEY = 400


def dumps(value: object) -> str:
    """`value` as compact JSON text in ASCII."""
    try:
        # Four times as fast, but fails on lone surrogates.
        return to_json(value, ensure_ascii=True, inf_nan_mode="constants").decode()
    except ValueError:
        return json.dumps(value, separators=(",", ":"), default=asdict)


def loads(text: str) -> Any:
    """The inverse of `dumps`."""
    try:
        return from_json(text)
    except ValueError:
        return json.loads(text)


def key(text: str) -> str:
    """`text` in the form of an indexed column: printable ASCII of bounded length, one to one."""
    if len(text) <= _LONGEST_KEY and text.isascii() and text.isprintable() and "\\" not in text:
        # Nearly all ids are Sayso's own or a provider's, and need no change.
        return text
    if len(text) > _LONGEST_KEY:
        return "\\#" + sha256(text.encode("utf-8", "surrogatepass")).hexdigest()
    return text.encode("unicode_escape").decode("ascii")


def dump_proposal(proposal: Proposal) -> tuple[str, str]:
    """The JSON texts of the row and of its contents."""
    doc = dict(zip(_DOC, _doc_of(proposal), strict=True))
    decision = proposal.decision
    doc["owner"] = _dump_owner(proposal.owner)
    doc["decision"] = decision and dict(zip(_DECISION, _decision_of(decision), strict=True))
    contents = [*_contents_of(proposal), decision.reason if decision else None]
    later = [proposal.sent, proposal.comments or None, proposal.preview]
    while later and later[-1] is None:
        later.pop()
    contents += later
    return dumps(doc), dumps(contents)


NO_CONTENTS = dumps([{}, None, None, None, None, None])
"""The contents of a proposal that has none, or whose contents were purged."""


def load_proposal(doc: str, contents: str | None, lease: float | None) -> Proposal:
    """The inverse of `dump_proposal`; `contents` is None after a purge, `lease` is the column."""
    row: dict[str, Any] = loads(doc)
    # A newer Sayso may have written more fields, here and in other rows.
    found = [*loads(contents or NO_CONTENTS), None, None, None]
    *values, reason, sent, comments, preview = found[: len(_CONTENTS) + 4]
    row["owner"] = _load_owner(row["owner"], lease)
    if row["decision"]:
        row["decision"] = _made(Decision, {**row["decision"], "reason": reason})
    row |= zip(_CONTENTS, values, strict=True)
    row["terms"] = load_terms(row.get("terms"))
    if votes := row.get("votes"):
        row["votes"] = [_made(Vote, vote) for vote in votes]
    row["comments"] = [_made(Comment, comment) for comment in comments or ()]
    row["sent"], row["preview"] = sent, preview
    return _made(Proposal, row)


def load_terms(value: dict[str, Any] | None) -> Terms | None:
    """The terms in a proposal's document."""
    return _made(Terms, value) if value else None


def dump_turn(turn: SuspendedTurn) -> str:
    """The JSON text of the row."""
    doc = dict(zip(_TURN_DOC, _turn_doc_of(turn), strict=True))
    doc["owner"] = _dump_owner(turn.owner)
    return dumps(doc)


def load_turn(doc: str, lease: float | None) -> SuspendedTurn:
    """The inverse of `dump_turn`; `lease` is the column, which a renewal changes alone."""
    row: dict[str, Any] = loads(doc)
    row["owner"] = _load_owner(row["owner"], lease)
    return _made(SuspendedTurn, row)


def _dump_owner(owner: Owner | None) -> dict[str, Any] | None:
    return dict(zip(_OWNER, _owner_of(owner), strict=True)) if owner else None


def _load_owner(value: dict[str, Any] | None, lease: float | None) -> Owner | None:
    return _made(Owner, {**value, "lease": lease}) if value else None


def _made(kind: type[T], values: dict[str, Any]) -> T:
    """The object with those of the values that it has fields for."""
    names = _names(kind)  # type: ignore[arg-type]  # a type is hashable
    return kind(**{names[name]: value for name, value in values.items() if name in names})


@cache
def _names(kind: type[Any]) -> dict[str, str]:
    """The names of the fields, each as the very object that the class has.

    A call with other, equal strings compares each with all parameters: 10 µs for a proposal.
    """
    return {f.name: f.name for f in fields(kind)}


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


def fetched(db: Connection, turns: Sequence[str], proposals: Sequence[str]) -> Known:
    """Implements `Connection.fetch` for a database whose reads lock nothing."""
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


class Connection(Protocol):
    """A connection that begins and ends transactions, and runs statements with `?` for values.

    In a transaction that may write, rows read by `fetch` and `find` are locked until its end.
    """

    skip: str
    """The end of a SELECT that locks the rows of `p` and skips those that others have locked."""
    reading: bool
    """Whether the transaction only reads."""
    errors: tuple[type[Exception], ...]
    """The exceptions of its statements, after which the transaction is lost."""

    def begin(
        self, turns: Sequence[str] = (), proposals: Sequence[str] = ()
    ) -> tuple[float, Known]:
        """Begin; returns the time, and these rows if the connection fetches them in advance, which
        it should do if each query is a round trip. Raises LedgerUnavailable, or an error that is
        `retryable`.

        After any exception of `begin` or `commit`, `rollback` is called.
        """
        ...

    def commit(self) -> None:
        """Commit. Raises LedgerUnavailable."""
        ...

    def rollback(self) -> None:
        """End without effect; never raises."""
        ...

    def retryable(self, error: Exception) -> bool:
        """Whether to run the transaction again after `error` (a deadlock)."""
        ...

    def explained(self, error: Exception) -> str:
        """A line for the log: the store, the meaning of `error`, and the way out."""
        ...

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


def first_heads() -> str:
    """The statement that creates the heads of chains without rows."""
    rows = ", ".join(f"({chain}, 0, '', '{genesis(chain)}')" for chain in range(SUMMARY + 1))
    return f"INSERT INTO sayso_chains (chain, seq, previous, hash) VALUES {rows}"


def ordered(entries: Sequence[Entry]) -> list[Entry]:
    """The entries in the order of their chains. Every transaction locks the heads in this order, so
    that no two wait for each other."""
    return sorted(entries, key=attrgetter("chain"))


def append_entries(db: Connection, entries: Sequence[Entry]) -> None:
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


def newest_rows(db: Connection) -> dict[int, Head]:
    """Implements `Transaction.heads`."""
    return {chain: Head(seq, digest) for chain, seq, digest in db.read(_HEADS)}


def log_rows(db: Connection, after: Mapping[int, int], limit: int) -> list[LogRow]:
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
