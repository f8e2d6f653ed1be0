"""The ledger in one JSON file: `approvals.ledger = "file:///var/lib/sayso/approvals.json"`.

Every transaction reads the file and, if it changed something, replaces it, under a lock that all
processes of the machine share. Suitable for hundreds of approvals, not for millions.
"""

from __future__ import annotations

import asyncio
import fcntl
import json
import operator
import os
import threading
import time
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict
from itertools import takewhile
from pathlib import Path
from typing import Any, TypeVar

from sayso import (
    Comment,
    ConfigError,
    Decision,
    Head,
    LedgerUnavailable,
    LogRow,
    Owner,
    Pending,
    Proposal,
    SuspendedTurn,
    Terms,
    Transaction,
    Vote,
    checkpoint,
    log_row,
)

T = TypeVar("T")
_EMPTY: dict[str, Any] = {"proposals": {}, "turns": {}, "log": [], "heads": {}, "notes": {}}


class FileStore:
    """A `Store`; relative paths (`file://approvals.json`) are relative to the working folder."""

    shared = True

    def __init__(self, url: str) -> None:
        self.url = url
        self._path = Path(url.partition("://")[2]).absolute()
        self._lock = threading.Lock()
        self._opened = False

    async def open(self) -> None:
        """Create the file, or check that it can be read."""
        try:
            self._path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            self._opened = True
            await self.run(lambda tx: None)
        except (LedgerUnavailable, OSError) as error:
            self._opened = False
            raise ConfigError(f"the ledger {str(self._path)!r} cannot be used: {error}") from None

    async def close(self) -> None:
        """Refuse all later calls."""
        self._opened = False

    async def run(self, work: Callable[[Transaction], T]) -> T:
        """Run `work` in a thread of its own, since it waits for the lock."""
        return await asyncio.to_thread(self._run, work)

    async def check(self) -> None:
        """Read the file, which fails where nothing could be written to it either."""
        await self.run(lambda tx: None)

    def renew(self, owner: str, seconds: float, ids: Collection[str]) -> None:
        """Extend the leases of `owner` on these calls and turns."""
        self._run(lambda tx: tx.renew(owner, seconds, ids))

    def hold(self, owner: str) -> None:
        """Do nothing: leases show which processes are alive."""

    def dead(self, owner: Owner) -> bool:
        """False: nothing shows it sooner than the lease."""
        return False

    def _run(self, work: Callable[[Any], T]) -> T:
        with self._locked():
            tx = _Transaction(self._read())
            result = work(tx)
            if tx.changed:
                self._write(tx.rows)
            return result

    @contextmanager
    def _locked(self) -> Iterator[None]:
        with self._lock:
            if not self._opened:
                raise LedgerUnavailable("the approvals store is closed")
            try:
                lock = self._path.with_suffix(".lock").open("w")
            except OSError as error:
                raise LedgerUnavailable(f"it cannot be locked: {error.strerror}") from None
            with lock:
                fcntl.flock(lock, fcntl.LOCK_EX)
                yield

    def _read(self) -> dict[str, Any]:
        try:
            rows: dict[str, Any] = json.loads(self._path.read_text(encoding="ascii"))
        except FileNotFoundError:
            rows = {}
        except (OSError, ValueError) as error:
            raise LedgerUnavailable(f"it cannot be read ({type(error).__name__})") from None
        empty: dict[str, Any] = json.loads(json.dumps(_EMPTY))
        return empty | rows

    def _write(self, rows: dict[str, Any]) -> None:
        draft = self._path.with_suffix(".draft")
        try:
            with open(os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "w") as file:
                json.dump(rows, file)
                file.flush()
                os.fsync(file.fileno())
            draft.replace(self._path)
        except OSError as error:
            raise LedgerUnavailable(f"it cannot be written: {error.strerror}") from None


class _Transaction:
    """A `Transaction` over the rows as JSON values; its changes are dropped if it raises."""

    def __init__(self, rows: dict[str, Any]) -> None:
        self.now = time.time()
        self.rows = rows
        self.changed = False

    def proposals(self, ids: Sequence[str]) -> dict[str, Proposal]:
        known = self.rows["proposals"]
        return {id_: _proposal(known[id_]) for id_ in ids if id_ in known}

    def find(
        self,
        *,
        after: str | None = None,
        limit: int = 10_000,
        newest: bool = False,
        **wanted: str | None,
    ) -> list[Proposal]:
        found = [
            row for row in map(_proposal, self.rows["proposals"].values()) if _fits(row, wanted)
        ]
        found.sort(key=_place, reverse=newest)
        if after is not None:
            last = _place(_proposal(self.rows["proposals"][after]))
            beyond = operator.lt if newest else operator.gt
            found = [row for row in found if beyond(_place(row), last)]
        return found[:limit]

    def pending(self, after: tuple[float, int, str] | None, limit: int) -> list[Pending]:
        found = self.find(state="PENDING", newest=True)
        rows = [row for row in found if after is None or _place(row) < after]
        return [
            Pending(
                row.id,
                row.created,
                row.index,
                row.expires,
                row.agent,
                row.principal,
                row.tenant,
                row.address,
                row.terms,
            )
            for row in rows[:limit]
        ]

    def due(self, limit: int = 1_000) -> list[str]:
        open_ = (row for row in self.find() if row.state in ("PENDING", "APPROVED"))
        running = self.find(state="EXECUTING")
        late = [row.id for row in open_ if row.expires <= self.now]
        late += [row.id for row in running if row.owner and row.owner.lease <= self.now]
        return late[:limit]

    def put(self, proposal: Proposal) -> None:
        self.rows["proposals"][proposal.id] = asdict(proposal)
        self.changed = True

    def turns(self, ids: Sequence[str]) -> dict[str, SuspendedTurn]:
        known = self.rows["turns"]
        return {id_: _turn(known[id_]) for id_ in ids if id_ in known}

    def put_turn(self, turn: SuspendedTurn) -> None:
        self.rows["turns"][turn.id] = asdict(turn)
        self.changed = True

    def notes(self, prefix: str) -> dict[str, str]:
        notes: dict[str, str] = self.rows["notes"]
        return {name: text for name, text in notes.items() if name.startswith(prefix)}

    def note(self, name: str, text: str | None) -> None:
        self.rows["notes"].pop(name, None)
        if text is not None:
            self.rows["notes"][name] = text
        self.changed = True

    def swap(self, name: str, old: str | None, new: str | None) -> bool:
        known = self.rows["notes"].get(name) == old
        if known:
            self.note(name, new)
        return known

    def append_log(self, chain: int, entry: dict[str, Any]) -> None:
        row = log_row(self.heads().get(chain), chain, self.now, entry)
        self.rows["log"].append(asdict(row))
        self.rows["heads"][str(chain)] = [row.seq, row.hash]
        self.changed = True

    def heads(self) -> dict[int, Head]:
        return {int(chain): Head(*head) for chain, head in self.rows["heads"].items()}

    def log(self, after: Mapping[int, int], limit: int = 1_000) -> list[LogRow]:
        found: list[LogRow] = []
        for chain, seq in sorted(after.items()):
            rows = [row for row in self.rows["log"] if row["chain"] == chain and row["seq"] > seq]
            found += [LogRow(**row) for row in rows[:limit]]
        return found

    def purge(
        self,
        *,
        contents_before: float | None,
        turns_before: float | None,
        log_before: float | None = None,
        limit: int = 1_000,
    ) -> tuple[int, int, int]:
        return (
            self._purge_contents(contents_before, limit),
            self._purge_turns(turns_before, limit),
            self._purge_log(log_before, limit) + self._purge_rows(log_before, limit),
        )

    def renew(self, owner: str, seconds: float, ids: Collection[str]) -> None:
        """Extend the leases of what `owner` runs."""
        for row in (*self.rows["proposals"].values(), *self.rows["turns"].values()):
            held = row["state"] in ("EXECUTING", "RESUMING") and row["owner"]
            if held and held["id"] == owner and row["id"] in ids:
                held["lease"] = self.now + seconds
                self.changed = True

    def _purge_contents(self, before: float | None, limit: int) -> int:
        full = [row for row in self.find() if row != row.without_contents()]
        gone = _oldest(((row.ended, row) for row in full), before, limit)
        for row in gone:
            self.put(row.without_contents())
        return len(gone)

    def _purge_turns(self, before: float | None, limit: int) -> int:
        open_calls = {row.turn for row in self.find() if not _before(row.ended, before)}
        turns = [_turn(row) for row in self.rows["turns"].values()]
        gone = _oldest(
            ((_turn_ended(turn, before, open_calls), turn) for turn in turns), before, limit
        )
        for turn in gone:
            del self.rows["turns"][turn.id]
        self.changed = self.changed or bool(gone)
        return len(gone)

    def _purge_rows(self, before: float | None, limit: int) -> int:
        empty = [row for row in self.find() if row == row.without_contents()]
        gone = _oldest(((row.ended, row) for row in empty), before, limit)
        for row in gone:
            del self.rows["proposals"][row.id]
        self.changed = self.changed or bool(gone)
        return len(gone)

    def _purge_log(self, before: float | None, limit: int) -> int:
        count = 0
        for chain in self.heads():
            rows = self.log({chain: 0}, limit - count)
            gone = list(takewhile(lambda row: _before(row.at, before), rows))
            if gone:
                last = gone[-1].seq
                rest = (r for r in self.rows["log"] if r["chain"] != chain or r["seq"] > last)
                self.rows["log"] = list(rest)
                checkpoint(self, gone)
                count += len(gone)
        return count


def _turn_ended(turn: SuspendedTurn, before: float | None, open_calls: set[str]) -> float | None:
    """When the turn ended, or was abandoned: nobody continues it and none of its calls is
    pending."""
    if turn.ended is not None:
        return turn.ended
    runs = turn.state != "SUSPENDED" and turn.owner and not _before(turn.owner.lease, before)
    return None if runs or turn.id in open_calls else turn.created


def _before(at: float | None, before: float | None) -> bool:
    return at is not None and before is not None and at < before


def _oldest(timed: Iterator[tuple[float | None, T]], before: float | None, limit: int) -> list[T]:
    old = [(at, row) for at, row in timed if at is not None and _before(at, before)]
    return [row for _, row in sorted(old, key=lambda one: one[0])][:limit]


def _fits(row: Proposal, wanted: dict[str, str | None]) -> bool:
    def value(name: str) -> object:
        return (row.owner and row.owner.id) if name == "owner" else getattr(row, name)

    return all(given is None or value(name) == given for name, given in wanted.items())


def _place(row: Proposal) -> tuple[float, int, str]:
    return (row.created, row.index, row.id)


def _proposal(row: dict[str, Any]) -> Proposal:
    proposal = Proposal(**json.loads(json.dumps(row)))
    if row["decision"]:
        proposal.decision = Decision(**row["decision"])
    if row["terms"]:
        proposal.terms = Terms(**row["terms"])
    proposal.votes = [Vote(**vote) for vote in row["votes"]]
    proposal.comments = [Comment(**comment) for comment in row["comments"]]
    proposal.owner = _owner(row)
    return proposal


def _turn(row: dict[str, Any]) -> SuspendedTurn:
    turn = SuspendedTurn(**json.loads(json.dumps(row)))
    turn.owner = _owner(row)
    return turn


def _owner(row: dict[str, Any]) -> Owner | None:
    return Owner(**row["owner"]) if row["owner"] else None
