"""The append-only log: a hash chain over who proposed, decided, claimed and finished what.

Each row's hash covers the hash before it, its number, its time and its entry, so a row that is
changed, removed or inserted breaks the chain at its place. Entries hold digests of contents, never
contents (design, section 6). Whoever can rewrite the whole log can forge it: keep an exported
head elsewhere if that matters to you.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterable, Mapping, Sequence
from dataclasses import dataclass
from hashlib import sha256
from typing import Any

from sayso.ledger import LogRow, Proposal, Store, Transaction
from sayso.wire.canonical import canonical

GENESIS = "0" * 64
"""What stands as `previous` in row 1."""

CHECKPOINT = "checkpoint"
"""The `event` of the entry that a purge leaves: `{"event", "seq", "hash"}` of the last row gone."""


def digest(value: object) -> str:
    """The SHA-256 of the canonical JSON of `value`, as 64 hex digits."""
    return sha256(canonical(value)).hexdigest()


def append(tx: Transaction, entry: dict[str, Any]) -> LogRow:
    """Append `entry` to the log at the store's time; returns the row."""
    last = tx.last_log()
    seq, previous = (last.seq + 1, last.hash) if last else (1, GENESIS)
    row = LogRow(seq, tx.now, entry, previous, _hash(previous, seq, tx.now, entry))
    tx.append_log(row)
    return row


def log(tx: Transaction, event: str, row: Proposal) -> None:
    """Append to the log what became of the row: who and when, and digests of its contents."""
    entry: dict[str, Any] = {
        "event": event,
        "id": row.id,
        "kind": row.kind,
        "name": row.name,
        "input": digest(row.input),
        "fence": row.fence,
    }
    if event in ("proposed", "unissued"):
        entry |= {"principal": row.principal, "protocol": row.protocol, "address": row.address}
        entry |= {"client": row.client} if row.client else {}
    if event in ("approved", "rejected") and row.decision:
        given = row.decision
        entry |= {
            "who": given.who,
            "claimed": given.claimed,
            "protocol": given.protocol,
            "address": given.address,
        }
    if row.edited is not None:
        entry["edited"] = digest(row.edited)
    if row.output is not None:
        entry["output"] = digest(row.output)
    append(tx, entry)


def log_unstarted(tx: Transaction, unstarted: Mapping[str, str]) -> None:
    """Append to the log which decided calls were not started, and the type of each error."""
    for id_, row in tx.proposals([*unstarted]).items():
        append(tx, {"event": "not_started", "id": id_, "name": row.name, "why": unstarted[id_]})


def checkpoint(tx: Transaction, purged: Sequence[LogRow]) -> LogRow:
    """Append the entry that accounts for `purged`, the oldest rows, in order and not empty.

    A store calls it from `purge` after it has deleted them.
    """
    last = purged[-1]
    return append(tx, {"event": CHECKPOINT, "seq": last.seq, "hash": last.hash})


def _hash(previous: str, seq: int, at: float, entry: Mapping[str, Any]) -> str:
    return digest([previous, seq, at, entry])


@dataclass(frozen=True, slots=True)
class Problem:
    """The first place at which the log is not what was written: row number and what is wrong."""

    seq: int
    text: str

    def __str__(self) -> str:
        return f"log row {self.seq}: {self.text}"


class Chain:
    """A check of the log page by page: `feed` each page in order, then `end`.

    `start` is the row before the first page, None to begin with the oldest row there is.
    """

    def __init__(self, start: LogRow | None = None) -> None:
        self._seq = start.seq if start else 0
        self._hash = start.hash if start else GENESIS
        self._first = start is None
        self._purged: tuple[int, str] | None = None

    def feed(self, rows: Iterable[LogRow]) -> Problem | None:
        """The first problem of these rows, or None."""
        for row in rows:
            if problem := self._step(row):
                return problem
        return None

    def end(self, head: LogRow | None = None) -> Problem | None:
        """What is wrong with the log as a whole; `head` is the store's `last_log()`."""
        if self._purged:
            gone = _missing(1, self._purged[0])
            return Problem(1, f"{gone} and no checkpoint accounts for that")
        if head is None or (head.seq, head.hash) == (self._seq, self._hash):
            return None
        if head.seq > self._seq:
            return Problem(self._seq + 1, _missing(self._seq + 1, head.seq))
        return Problem(head.seq, "the newest row is not the one that was written last")

    def _step(self, row: LogRow) -> Problem | None:
        if self._first and row.seq > 1:
            self._purged = (row.seq - 1, row.previous)
        elif problem := self._misplaced(row):
            return problem
        if row.hash != _hash(row.previous, row.seq, row.at, row.entry):
            return Problem(row.seq, "was changed")
        if self._purged and _accounts(row.entry, self._purged):
            self._purged = None
        self._first, self._seq, self._hash = False, row.seq, row.hash
        return None

    def _misplaced(self, row: LogRow) -> Problem | None:
        due = self._seq + 1
        if row.seq > due:
            return Problem(due, _missing(due, row.seq - 1))
        if row.seq < due:
            return Problem(row.seq, "was inserted")
        if row.previous != self._hash:
            return Problem(row.seq, "does not follow the row before it")
        return None


def _missing(first: int, last: int) -> str:
    return f"row {first} is missing" if first == last else f"rows {first} to {last} are missing"


def _accounts(entry: Mapping[str, Any], purged: tuple[int, str]) -> bool:
    return entry.get("event") == CHECKPOINT and (entry.get("seq"), entry.get("hash")) == purged


async def pages(
    store: Store, page: int = 1_000
) -> AsyncIterator[tuple[list[LogRow], LogRow | None]]:
    """The rows of the log, `page` rows a transaction, each page with the newest row at its time."""
    after = 0
    while True:

        def read(tx: Transaction, after: int = after) -> tuple[list[LogRow], LogRow | None]:
            return tx.log(after=after, limit=page), tx.last_log()

        rows, head = await store.run(read)
        yield rows, head
        if len(rows) < page:
            return
        after = rows[-1].seq


async def verify_store(store: Store, page: int = 1_000) -> Problem | None:
    """The first problem of the log in `store`, or None."""
    chain, newest = Chain(), None
    async for rows, head in pages(store, page):
        newest = head
        if problem := chain.feed(rows):
            return problem
    return chain.end(newest)
