"""Backups of a store, and their return.

A backup knows nothing of what happened after it. A call that it shows as undecided, approved or
executing may have run since, so a restored store never starts it (docs/approvals.md, "Backups").
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Protocol, runtime_checkable

from sayso.errors import ConfigError
from sayso.ledger import Decision, Proposal, State, Store, Transaction, copies
from sayso.ledger.choices import unknown_outcome
from sayso.ledger.grants import revoke_all
from sayso.ledger.log import Problem, append, log, verified
from sayso.ledger.sqlite import SqliteStore

_PAGE = 500
_OPEN: tuple[State, ...] = ("PENDING", "APPROVED", "EXECUTING", "INDETERMINATE")
_WHY = "the approvals store was restored from a backup, and the call may have run since"


@runtime_checkable
class Keepable(Protocol):
    """A store that can be saved into a file and filled from one; both block, and need no open
    store."""

    url: str

    async def exists(self) -> bool:
        """Whether there is such a store yet."""
        ...

    def save(self, file: Path) -> None:
        """Write the state of one moment, while services use the store, into a new file as `copies`
        describes it. Raises ConfigError."""
        ...

    def fill(self, file: Path) -> None:
        """Take over all rows of a file that has the current schema, or none of them. Raises
        ConfigError unless the store is empty."""
        ...


@dataclass(frozen=True, slots=True)
class Kept:
    """The contents of a backup: the numbers of proposals and rows of the log, and the first problem
    of the log, if it has one."""

    proposals: int
    rows: int
    problem: Problem | None


@dataclass(frozen=True, slots=True)
class Restored:
    """The contents of a restored store, and the number of the calls that it does not start any
    more, by the state in which the backup has them; and of the grants that were revoked."""

    kept: Kept
    ended: dict[str, int]
    grants: int


def keepable(store: Store) -> Keepable:
    """The store, if it can be backed up. Raises ConfigError."""
    if not isinstance(store, Keepable):
        raise ConfigError(
            f"the store {store.url!r} has no backup of Sayso's; use its database's own tools"
        )
    return store


async def backup(store: Keepable, file: Path) -> Kept:
    """Write a backup into `file`, which must not exist, and check its log. Raises ConfigError."""
    if not await store.exists():
        raise ConfigError(f"there is no approvals store {store.url!r} to back up")
    with _explained(file), TemporaryDirectory(prefix=".sayso-", dir=file.parent) as folder:
        made = Path(folder) / "backup.db"
        await asyncio.to_thread(store.save, made)
        # Opening a store changes its file, so a copy of the copy is checked.
        checked = Path(folder) / "checked" / "backup.db"
        checked.parent.mkdir(0o700)
        await asyncio.to_thread(copies.copy, made, checked)
        kept = await _looked(SqliteStore(checked))
        await asyncio.to_thread(copies.place, made, file)
    return kept


async def restore(store: Keepable, file: Path, who: str) -> Restored:
    """Fill the empty store from the backup `file`, which stays as it is. Raises ConfigError."""
    await asyncio.to_thread(copies.check, file)
    with TemporaryDirectory(prefix="sayso-") as folder:
        made = Path(folder) / "restored" / "backup.db"
        made.parent.mkdir(0o700)
        await asyncio.to_thread(copies.copy, file, made)
        restored = await _forgotten(SqliteStore(made), who)
        await asyncio.to_thread(store.fill, made)
    return restored


async def _looked(store: SqliteStore) -> Kept:
    await store.open()
    try:
        return await _kept(store)
    finally:
        await store.close()


async def _kept(store: SqliteStore) -> Kept:
    problem, rows = await verified(store)
    return Kept(await asyncio.to_thread(copies.proposals, store.path), rows, problem)


async def _forgotten(store: SqliteStore, who: str) -> Restored:
    """Let the store forget everything that could start something a second time."""
    await store.open()
    try:
        ended = {state: await _ended(store, state, who) for state in _OPEN}
        grants = await store.run(partial(revoke_all, who=who))
        entry = {"event": "restored", "who": who, "grants": grants, "ended": sum(ended.values())}
        await store.run(lambda tx: append(tx, entry))
        return Restored(await _kept(store), {k: n for k, n in ended.items() if n}, grants)
    finally:
        await store.close()


async def _ended(store: Store, state: State, who: str) -> int:
    def work(tx: Transaction, after: str | None) -> tuple[str | None, int]:
        rows = tx.find(state=state, after=after, limit=_PAGE)
        meant = [row for row in rows if state != "INDETERMINATE" or row.idempotent]
        for row in meant:
            _end(tx, row, who)
        return (rows[-1].id if len(rows) == _PAGE else None), len(meant)

    after, count, more = None, 0, True
    while more:
        after, ended = await store.run(partial(work, after=after))
        count, more = count + ended, after is not None
    return count


def _end(tx: Transaction, row: Proposal, who: str) -> None:
    """End the call so that no later approval starts it, not even an idempotent one."""
    if row.state == "PENDING":
        row.state, row.output = "REJECTED", f"Rejected: {_WHY}"
        row.decision = Decision(False, tx.now, who, True, "restore", None, _WHY)
    else:
        row.state, row.output = "INDETERMINATE", unknown_outcome(_WHY, idempotent=False)
    row.owner, row.finished, row.idempotent = None, tx.now, False
    tx.put(row)
    log(tx, row.state.lower(), row)


@contextmanager
def _explained(file: Path) -> Iterator[None]:
    if os.path.lexists(file):
        raise ConfigError(f"the file {str(file)!r} exists; choose another name for the backup")
    try:
        yield
    except OSError as error:
        raise ConfigError(
            f"the backup {str(file)!r} cannot be written: {error.strerror or error}; "
            "check the folder, its permissions and its free space"
        ) from error
