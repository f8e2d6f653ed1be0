"""Erasure of what a principal, or a tenant, has left in the record and its log.

Rows of the log lose their entries and keep their hashes, so the chains hold; an entry at the end of
each chain accounts for them (`sayso.ledger.log`, `ERASURE`). Calls that may still run stay whole.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Protocol, cast, runtime_checkable

from sayso.errors import ConfigError
from sayso.ledger import ENDED, LogRow, Proposal, Reading, State, Store, Transaction
from sayso.ledger.grants import forget
from sayso.ledger.log import CHECKPOINT, ERASED, ERASURE, SUMMARY, append, erasure, pages
from sayso.ledger.record import Ledger

NOBODY = "(erased)"
"""Stands in place of a person who took part in other people's calls."""
_PAGE = 500
_NAMED = ("principal", "who", "person", "holder", "user")
"""The fields of the log's entries that name people."""
_KEPT = (CHECKPOINT, ERASURE, ERASED, "summary")
_UNSETTLED: tuple[State, ...] = ("PENDING", "APPROVED", "EXECUTING")


@runtime_checkable
class Erasing(Protocol):
    """The further methods of a transaction that can erase."""

    def rewrite_log(self, rows: Sequence[LogRow]) -> None:
        """Replace the entries of these rows, and nothing else of them."""
        ...

    def remove(self, proposals: Sequence[str], turns: Sequence[str]) -> None:
        """Remove the proposals and the suspended turns with these ids."""
        ...


@dataclass(frozen=True, slots=True)
class Subject:
    """A principal by the name that the record has, or a tenant; one of the two."""

    principal: str | None = None
    tenant: str | None = None

    def owns(self, row: Proposal) -> bool:
        """Whether the call was asked for by the principal, or within the tenant."""
        if self.tenant is not None:
            return row.tenant == self.tenant
        return self.principal in (row.principal, row.person, row.user)

    def took_part(self, row: Proposal) -> bool:
        """Whether the principal decided, edited or commented the call."""
        people = [row.decision and row.decision.who, *row.editors]
        for vote in row.votes:
            people += [vote.who, vote.person]
        people += [comment.who for comment in row.comments]
        return self.principal is not None and self.principal in people

    def without(self, row: Proposal) -> Proposal:
        """The call of somebody else without this person."""
        name, decision = self.principal, row.decision
        if decision is not None and decision.who == name:
            decision = replace(decision, who=NOBODY, address=None, reason=None)
        votes = [
            replace(vote, who=NOBODY, person=None, address=None)
            if name in (vote.who, vote.person)
            else vote
            for vote in row.votes
        ]
        return replace(
            row,
            decision=decision,
            votes=votes,
            editors=[NOBODY if who == name else who for who in row.editors],
            comments=[one for one in row.comments if one.who != name],
        )


@dataclass(slots=True)
class Erased:
    """The numbers of removed calls, of other people's calls without the person, of removed grants,
    of erased rows of the log, and of calls that stayed because they may still run."""

    calls: int = 0
    others: int = 0
    grants: int = 0
    rows: int = 0
    left: int = 0


async def erase(ledger: Ledger, subject: Subject, who: str) -> Erased:
    """Erase everything of `subject` but calls that have not ended; may be repeated. Raises
    ConfigError."""
    store, erased = ledger.store, Erased()
    removed, left = set[str](), set[str]()
    await _refuse_unable(store)
    await _settled(ledger)
    for ids in await _ids(store):
        calls = await store.run(partial(_calls, ids=ids, subject=subject))
        removed |= set(calls.removed)
        erased.calls += len(calls.removed)
        erased.others += calls.changed
        left |= set(calls.left)
    if subject.principal is not None:
        erased.grants = await store.run(partial(forget, who=subject.principal, by=who))
    for chain in range(SUMMARY):
        async for page, _ in pages(store, chain, _PAGE):
            meant = [row for row in page if _means(row.entry, subject.principal, removed, left)]
            if meant:
                await store.run(partial(_rows, rows=meant))
                erased.rows += len(meant)
    erased.left = len(left)
    counts = {"calls": erased.calls, "rows": erased.rows}
    await store.run(lambda tx: append(tx, {"event": "erased_subject", "by": who, **counts}))
    return erased


@dataclass(frozen=True, slots=True)
class _Calls:
    removed: list[str]
    left: list[str]
    changed: int


def _calls(tx: Transaction, ids: Sequence[str], subject: Subject) -> _Calls:
    rows = list(tx.proposals(ids).values())
    meant = [row for row in rows if subject.owns(row) or subject.took_part(row)]
    ended = [row for row in meant if row.state in ENDED]
    own = [row for row in ended if subject.owns(row)]
    others = [row for row in ended if not subject.owns(row)]
    for row in others:
        tx.put(subject.without(row))
    removed = [row.id for row in own]
    cast(Erasing, tx).remove(removed, _turns(tx, own))
    left = [row.id for row in meant if row.state not in ENDED]
    return _Calls(removed, left, len(others))


def _turns(tx: Transaction, rows: Collection[Proposal]) -> list[str]:
    """The turns of these calls that no other call keeps."""
    gone = {row.id for row in rows}
    return [t for t in {row.turn for row in rows} if all(r.id in gone for r in tx.find(turn=t))]


def _rows(tx: Transaction, rows: Sequence[LogRow]) -> None:
    erased = [
        replace(row, entry={"event": ERASED, "was": row.entry.get("event"), **_id(row.entry)})
        for row in rows
    ]
    cast(Erasing, tx).rewrite_log(erased)
    erasure(tx, erased)


def _id(entry: dict[str, Any]) -> dict[str, Any]:
    return {"id": entry["id"]} if "id" in entry else {}


def _means(
    entry: dict[str, Any], principal: str | None, removed: Collection[str], left: Collection[str]
) -> bool:
    """Whether the entry is to be erased: it is about a removed call or names the principal."""
    if entry.get("event") in _KEPT or entry.get("id") in left:
        return False
    named = principal is not None and any(entry.get(name) == principal for name in _NAMED)
    return named or entry.get("id") in removed


async def _settled(ledger: Ledger) -> None:
    """Let the record say which calls have ended by time or by a process's death."""
    for state in _UNSETTLED:
        for ids in await _ids(ledger.store, state):
            await ledger.settle(ids)


async def _ids(store: Store, state: State | None = None) -> list[list[str]]:
    """The ids of the calls, in pages. All are read first, since the pages' readers remove rows."""

    def page(tx: Transaction, after: str | None) -> list[str]:
        return [row.id for row in tx.find(state=state, after=after, limit=_PAGE)]

    found: list[list[str]] = []
    while ids := await store.run(
        Reading(partial(page, after=found[-1][-1] if found else None), only=True)
    ):
        found.append(ids)
    return found


async def _refuse_unable(store: Store) -> None:
    def able(tx: Transaction) -> bool:
        return isinstance(tx, Erasing)

    if not await store.run(Reading(able, only=True)):
        raise ConfigError(f"the store {store.url!r} cannot erase; use its database's own tools")
