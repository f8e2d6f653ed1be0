"""Erasure of the tasks of a principal or a tenant (`sayso erase`)."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Protocol

from sayso import KeptBeside, Removed, Subject
from sayso_a2a.owners import Owned, belongs_to
from sayso_a2a.rows import Rows
from sayso_a2a.settings import TASK_FILE, Settings


class _Store(Protocol):
    async def open(self) -> None: ...
    async def close(self) -> None: ...
    async def erase(self, owned: Owned) -> tuple[int, int]: ...


async def erased(subject: Subject, kept: KeptBeside, settings: Settings) -> Removed:
    """The number of deleted tasks, and of those that a service runs now."""
    removed = left = 0
    for store in _stores(kept, settings):
        await store.open()
        try:
            here, stays = await store.erase(belongs_to(subject))
        finally:
            await store.close()
        removed, left = removed + here, left + stays
    return Removed("A2A task", removed, left)


def _stores(kept: KeptBeside, settings: Settings) -> Iterator[_Store]:
    """The stores in which an adapter may have tasks: files, the ledger's database, and
    `plugin.a2a.database`."""
    bounds: dict[str, Any] = {"ttl": settings.task_ttl, "most": settings.max_tasks}
    for folder in kept.folders:
        if (file := folder / TASK_FILE).exists():
            yield Rows("", file, **bounds)
    ledger = kept.config.approvals.ledger or ""
    if ledger.startswith("postgresql:"):
        from sayso_a2a.postgres_rows import PostgresRows

        yield PostgresRows("", ledger, **bounds)
    if settings.database is not None:
        from sayso_a2a.official.database import DatabaseTasks

        yield DatabaseTasks(settings.database, **bounds)
