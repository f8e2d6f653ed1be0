"""The append-only log: hash chains over all proposals, decisions, claims and outcomes.

Each row's hash covers the hash before it in its chain, its number, its time and its entry, so a row
that is changed, removed or inserted breaks the chain at its place. Entries have digests of
contents, never contents (design, section 6). Somebody who can rewrite the whole log can forge it:
keep an exported head elsewhere if that matters to you.

There are `CHAINS` chains, so that transactions on different proposals need not wait for one
another; all rows of a proposal are in the chain that its id determines. One further chain has
summaries, each with the newest row of every other chain: if the end of a chain, or all of it, was
removed, it disagrees with the newest summary.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterable, Mapping, Sequence
from dataclasses import dataclass
from hashlib import sha256
from typing import Any

from sayso.ledger import Head, LogRow, Proposal, Reading, Store, Transaction
from sayso.trees import canonical

CHAINS = 16
"""The number of chains. No store can change it later: it determines a proposal's chain."""
SUMMARY = CHAINS
"""The number of the chain of summaries; the others are numbered from 0."""
CHECKPOINT = "checkpoint"
"""The `event` of a purge's entry: `{"event", "seq", "hash"}` of the last removed row."""

ERASED = "erased"
"""The `event` of a row whose entry was erased: `{"event", "was", "id"}`; `was` is its event before.
Its `hash` stays that of the entry it had, so that the chain holds."""
ERASURE = "erasure"
"""The `event` of the entry that accounts for erased rows of its chain: `{"event", "rows"}`, with
`[seq, hash]` of each."""


def genesis(chain: int) -> str:
    """The `previous` of row 1 of a chain."""
    return f"{chain:064x}"


def chain_of(id_: str) -> int:
    """The chain of the proposal with this id."""
    return sha256(id_.encode("utf-8", "surrogatepass")).digest()[0] % CHAINS


def digest(value: object) -> str:
    """The SHA-256 of the canonical JSON of `value`, as 64 hex digits."""
    return sha256(canonical(value)).hexdigest()


def log_row(head: Head | None, chain: int, at: float, entry: dict[str, Any]) -> LogRow:
    """The row for `entry` after `head`, the newest row of the chain, if it has any."""
    seq, previous = (head.seq + 1, head.hash) if head else (1, genesis(chain))
    return LogRow(seq, at, entry, previous, _hash(previous, seq, at, entry), chain)


def hashed_tail(at: float, entry: Mapping[str, Any]) -> bytes:
    """The part of a row's hashed text after `["`, its `previous`, `",`, its `seq` and `,`."""
    return canonical([at, entry])[1:]


def append(tx: Transaction, entry: dict[str, Any]) -> None:
    """Append `entry`, at the store's time, to the chain of the proposal that it names."""
    tx.append_log(chain_of(str(entry.get("id", ""))), entry)


def log(tx: Transaction, event: str, row: Proposal) -> None:
    """Append to the log a change of the row: by whom and when, and digests of its contents."""
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
        entry |= {"grant": given.grant} if given.grant else {}
    if row.edited is not None:
        entry["edited"] = digest(row.edited)
    if row.output is not None:
        entry["output"] = digest(row.output)
    append(tx, entry)


def log_unstarted(tx: Transaction, unstarted: Mapping[str, str]) -> None:
    """Append to the log the decided calls that were not started, with the type of each error."""
    for id_, row in tx.proposals([*unstarted]).items():
        append(tx, {"event": "not_started", "id": id_, "name": row.name, "why": unstarted[id_]})


def checkpoint(tx: Transaction, purged: Sequence[LogRow]) -> None:
    """Append the entry that accounts for `purged`: the oldest rows of one chain, in order and not
    empty.

    A store calls it from `purge` after deleting them.
    """
    last = purged[-1]
    tx.append_log(last.chain, {"event": CHECKPOINT, "seq": last.seq, "hash": last.hash})


def erasure(tx: Transaction, erased: Sequence[LogRow]) -> None:
    """Append the entry that accounts for rows of one chain whose entries were erased, not empty."""
    rows = [[row.seq, row.hash] for row in erased]
    tx.append_log(erased[0].chain, {"event": ERASURE, "rows": rows})


def summarise(tx: Transaction) -> None:
    """Append a summary: the newest row of each chain, as `{"heads": {chain: [seq, hash]}}`.

    It locks no other chain. A summary equal to the newest one is left out.
    """
    newest = tx.heads()
    last = newest.pop(SUMMARY, None)
    heads = {str(chain): list(head) for chain, head in newest.items()}
    written = tx.log({SUMMARY: last.seq - 1}, 1) if last else []
    if heads and not any(row.entry.get("heads") == heads for row in written):
        tx.append_log(SUMMARY, {"event": "summary", "heads": heads})


def _hash(previous: str, seq: int, at: float, entry: Mapping[str, Any]) -> str:
    return digest([previous, seq, at, entry])


@dataclass(frozen=True, slots=True)
class Problem:
    """The first inconsistency of a chain: the row's number and what is wrong."""

    seq: int
    text: str
    chain: int = 0

    def __str__(self) -> str:
        name = "the summaries" if self.chain == SUMMARY else f"chain {self.chain}"
        return f"log row {self.seq} of {name}: {self.text}"


class Chain:
    """A check of one chain page by page: `feed` each page in order, then `end`.

    `start` is the row before the first page; None begins with the oldest row there is. `named` is
    what a summary says of the chain.
    """

    def __init__(
        self, number: int = 0, start: LogRow | None = None, named: Head | None = None
    ) -> None:
        self._number = number
        self._seq = start.seq if start else 0
        self._hash = start.hash if start else genesis(number)
        self._first = start is None
        self._named = named
        self._purged: Head | None = None
        self._erased: set[Head] = set()

    def feed(self, rows: Iterable[LogRow]) -> Problem | None:
        """The first problem of these rows, or None."""
        for row in rows:
            if problem := self._step(row):
                return problem
        return None

    def end(self, head: Head | None = None) -> Problem | None:
        """The problem of the chain as a whole, or None; `head` is its newest row according to the
        store."""
        if self._purged:
            gone = _missing(1, self._purged.seq)
            return self._problem(1, f"{gone} and no checkpoint accounts for that")
        if self._erased:
            seq = min(self._erased).seq
            return self._problem(seq, "was erased, and no erasure accounts for that")
        for newest in filter(None, (head, self._named)):
            if newest.seq > self._seq:
                return self._problem(self._seq + 1, _missing(self._seq + 1, newest.seq))
        if head is None or head == (self._seq, self._hash):
            return None
        return self._problem(head.seq, "the newest row is not the one that was written last")

    def _step(self, row: LogRow) -> Problem | None:
        if self._first and row.seq > 1:
            self._purged = Head(row.seq - 1, row.previous)
        elif problem := self._misplaced(row):
            return problem
        if row.hash != _hash(row.previous, row.seq, row.at, row.entry):
            if row.entry.get("event") != ERASED:
                return self._problem(row.seq, "was changed")
            self._erased.add(Head(row.seq, row.hash))
        if self._erased and row.entry.get("event") == ERASURE:
            self._erased -= {Head(*named) for named in row.entry.get("rows", ())}
        if self._named and row.seq == self._named.seq and row.hash != self._named.hash:
            return self._problem(row.seq, "is not the row that the newest summary names")
        if self._purged and _accounts(row.entry, self._purged):
            self._purged = None
        self._first, self._seq, self._hash = False, row.seq, row.hash
        return None

    def _misplaced(self, row: LogRow) -> Problem | None:
        due = self._seq + 1
        if row.seq > due:
            return self._problem(due, _missing(due, row.seq - 1))
        if row.seq < due:
            return self._problem(row.seq, "was inserted")
        if row.previous != self._hash:
            return self._problem(row.seq, "does not follow the row before it")
        return None

    def _problem(self, seq: int, text: str) -> Problem:
        return Problem(seq, text, self._number)


def _missing(first: int, last: int) -> str:
    return f"row {first} is missing" if first == last else f"rows {first} to {last} are missing"


def _accounts(entry: Mapping[str, Any], purged: Head) -> bool:
    return entry.get("event") == CHECKPOINT and (entry.get("seq"), entry.get("hash")) == purged


async def pages(
    store: Store, chain: int, page: int = 1_000
) -> AsyncIterator[tuple[list[LogRow], Head | None]]:
    """The rows of a chain, `page` rows a transaction, each page with the newest row at its time."""
    after = 0
    while True:

        def read(tx: Transaction, after: int = after) -> tuple[list[LogRow], Head | None]:
            return tx.log({chain: after}, page), tx.heads().get(chain)

        rows, head = await store.run(Reading(read, only=True))
        yield rows, head
        if len(rows) < page:
            return
        after = rows[-1].seq


async def verify_store(store: Store, page: int = 1_000) -> Problem | None:
    """The first problem of the log in `store`, or None."""
    return (await verified(store, page))[0]


async def verified(store: Store, page: int = 1_000) -> tuple[Problem | None, int]:
    """The first problem of the log in `store`, or None, and the number of rows checked."""
    total = 0
    named: dict[str, Any] = {}
    # Read the summaries first: the rows they name were written before the chains are read.
    for number in (SUMMARY, *range(CHAINS)):
        last = named.get(str(number))
        chain, newest = Chain(number, named=Head(*last) if last else None), None
        async for rows, head in pages(store, number, page):
            total, newest = total + len(rows), head
            if problem := chain.feed(rows):
                return problem, total
            if number == SUMMARY:
                sums = [row.entry for row in rows if row.entry.get("event") == "summary"]
                named = sums[-1].get("heads", {}) if sums else named
        if problem := chain.end(newest or Head(0, genesis(number))):
            return problem, total
    return None, total
