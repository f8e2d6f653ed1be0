"""The approvals store as its observers see it: its transactions, and the changes that they make."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from time import perf_counter
from typing import Any, TypeVar

from sayso.ledger import Proposal, Reading, Store, Transaction
from sayso.observing import ApprovalChange, LedgerOperation
from sayso.observing.observers import Observers, turn_id

T = TypeVar("T")
Work = Callable[[Transaction], T]


def store_of(observers: Observers) -> Callable[[Store], Any] | None:
    """The way to make a store one that these observers see; None if none of them does."""
    return partial(ObservedStore, observers=observers) if observers.record else None


class ObservedStore:
    """A store whose transactions are observed; everything else is that of the store itself."""

    def __init__(self, store: Store, observers: Observers) -> None:
        self._store = store
        self._observers = observers

    def __getattr__(self, name: str) -> Any:
        return getattr(self._store, name)

    async def run(self, work: Work[T]) -> T:
        """Run `work` as the store does."""
        observers, changes = self._observers, _Changes(self._observers.trace())
        watched = partial(changes.of, work)
        start, error = perf_counter(), ""
        if isinstance(work, Reading):
            watched = partial(changes.of, work.work)
            run: Any = replace(work, work=watched)
        else:
            run = watched
        try:
            result: T = await self._store.run(run)
        except BaseException as raised:
            error = type(raised).__name__
            raise
        finally:
            if observers.ledger is not None:
                took = perf_counter() - start
                observers.ledger(LedgerOperation(name_of(work), took, error))
        if observers.approval is not None:
            for change in changes.made(turn_id()):
                observers.approval(change)
        return result


class _Changes:
    """The changes of one transaction; a store may run its work again."""

    def __init__(self, trace: str) -> None:
        self._trace = trace
        self._tx: _Watching | None = None

    def of(self, work: Work[T], tx: Transaction) -> T:
        """The result of `work`."""
        self._tx = watching = _Watching(tx, self._trace)
        result = work(watching)
        watching.keep()
        return result

    def made(self, turn: str) -> Sequence[ApprovalChange]:
        """The changes of the transaction that was committed."""
        watching = self._tx
        if watching is None:
            return ()
        return [
            ApprovalChange(str(entry["event"]), row, watching.now, entry, turn)
            for entry in watching.entries
            if (row := watching.rows.get(str(entry.get("id", "")))) is not None
        ]


class _Watching:
    """A transaction that remembers its log entries and their rows, and puts `trace` into those rows
    that it proposes or decides."""

    def __init__(self, tx: Transaction, trace: str) -> None:
        self._tx = tx
        self._trace = trace
        self.now = tx.now
        self.entries: list[dict[str, Any]] = []
        self.rows: dict[str, Proposal] = {}

    def __getattr__(self, name: str) -> Any:
        return getattr(self._tx, name)

    def proposals(self, ids: Sequence[str]) -> dict[str, Proposal]:
        found = self._tx.proposals(ids)
        self.rows.update(found)
        return found

    def find(self, **how: Any) -> list[Proposal]:
        found = self._tx.find(**how)
        self.rows.update((row.id, row) for row in found)
        return found

    def put(self, row: Proposal) -> None:
        if self._trace:
            if row.state == "PENDING" and row.created == self.now:
                row.trace = row.trace or self._trace
            if (decision := row.decision) is not None and decision.at == self.now:
                decision.trace = decision.trace or self._trace
        self.rows[row.id] = row
        self._tx.put(row)

    def append_log(self, chain: int, entry: dict[str, Any]) -> None:
        self.entries.append(entry)
        self._tx.append_log(chain, entry)

    def keep(self) -> None:
        """Copy the rows as they are now: their owner may change them later."""
        named = {entry.get("id") for entry in self.entries}
        self.rows = {id_: replace(row) for id_, row in self.rows.items() if id_ in named}


def name_of(work: Work[Any]) -> str:
    """The name of a transaction: that of the function which it was written in."""
    inner: Any = work.work if isinstance(work, Reading) else work
    while isinstance(inner, partial):
        inner = inner.func
    whole = getattr(inner, "__qualname__", type(inner).__name__)
    return str(whole.partition(".<locals>")[0].rpartition(".")[2].strip("_")) or "other"
