"""The store of tasks."""

from __future__ import annotations

import asyncio
import sqlite3
import time
from collections.abc import Awaitable, Callable
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import pytest

from sayso import PluginError
from sayso_a2a.rows import Row, Rows


async def put(rows: Rows, row: Row) -> None:
    await rows.change(row.owner, row.id, lambda _: row)


def row(id: str, updated: int, owner: str = "ann", state: str = "completed") -> Row:
    return Row(id, owner, "context", state, updated, id.encode())


@pytest.fixture(params=["file", "memory"])
def path(request: pytest.FixtureRequest, tmp_path: Path) -> Path | None:
    """The path of the database."""
    return tmp_path / "state" / "tasks.db" if request.param == "file" else None


def used(
    path: Path | None, work: Callable[[Rows], Awaitable[None]], ttl: float = 60, most: int = 100
) -> None:
    async def use() -> None:
        rows = Rows("test", path, ttl=ttl, most=most)
        await rows.open()
        try:
            await work(rows)
        finally:
            await rows.close()

    asyncio.run(use())


def test_row_is_its_owners(path: Path | None) -> None:
    async def work(rows: Rows) -> None:
        await put(rows, row("a", 1))
        assert await rows.get("ann", "a") == row("a", 1)
        assert await rows.get("bob", "a") is None
        await rows.delete("bob", "a")
        assert await rows.get("ann", "a") is not None
        await rows.delete("ann", "a")
        assert await rows.get("ann", "a") is None

    used(path, work)


def test_row_that_is_forgotten_leaves_no_lease_behind(tmp_path: Path) -> None:
    path = tmp_path / "tasks.db"

    def leases() -> list[str]:
        with closing(sqlite3.connect(path)) as database:
            return [id for (id,) in database.execute("select id from leases")]

    async def work(rows: Rows) -> None:
        await put(rows, replace(row("a", 1), lease=time.time() + 60))
        await rows.delete("bob", "a")
        assert leases() == ["a"]
        await rows.delete("ann", "a")
        assert leases() == []

    used(path, work)


def test_oldest_rows_go_when_there_are_too_many(path: Path | None) -> None:
    async def work(rows: Rows) -> None:
        for number in range(128):
            await put(rows, row(f"t{number}", number + 1))
        _, total = await rows.page("ann", limit=1)
        assert total == 10
        assert await rows.get("ann", "t127") is not None

    used(path, work, most=10)


def test_row_expires(path: Path | None) -> None:
    async def work(rows: Rows) -> None:
        await put(rows, row("a", 1))
        deadline = time.monotonic() + 60
        while await rows.get("ann", "a") is not None:
            assert time.monotonic() < deadline
            await asyncio.sleep(0.01)
        assert await rows.page("ann", limit=5) == ([], 0)

    used(path, work, ttl=0.05)


def test_page_is_filtered_and_goes_on_after_a_row(path: Path | None) -> None:
    async def work(rows: Rows) -> None:
        for number in range(1, 6):
            await put(rows, row(f"t{number}", number, state="open" if number % 2 else "closed"))
        await put(rows, row("other", 9, owner="bob"))
        found, total = await rows.page("ann", state="open", limit=2)
        assert ([r.id for r in found], total) == (["t5", "t3"], 3)
        found, total = await rows.page("ann", state="open", after=(3, "t3"), limit=2)
        assert ([r.id for r in found], total) == (["t1"], 3)
        found, total = await rows.page("ann", since=4, limit=9)
        assert [r.id for r in found] == ["t5", "t4"]

    used(path, work)


def test_refused_change_writes_nothing(path: Path | None) -> None:
    def refuse(found: Row | None) -> Row:
        raise LookupError("no")

    async def work(rows: Rows) -> None:
        await put(rows, row("a", 1))
        with pytest.raises(LookupError):
            await rows.change("ann", "a", refuse)
        assert await rows.get("ann", "a") == row("a", 1)
        await put(rows, row("a", 2))

    used(path, work)


def test_two_processes_share_a_file(tmp_path: Path) -> None:
    async def use() -> None:
        stores = [Rows("test", tmp_path / "t.db", ttl=60, most=100) for _ in range(2)]
        for rows in stores:
            await rows.open()

        def count(found: Row | None) -> Row:
            return row("n", (found.updated if found else 0) + 1)

        await asyncio.gather(*(rows.change("ann", "n", count) for rows in stores * 20))
        found = await stores[0].get("ann", "n")
        assert found is not None
        assert found.updated == 40
        for rows in stores:
            await rows.close()

    asyncio.run(use())


def test_file_of_a_newer_version_is_refused_and_one_without_a_version_is_taken(
    tmp_path: Path,
) -> None:
    path = tmp_path / "t.db"

    async def work(rows: Rows) -> None:
        await put(rows, row("a", 1))

    used(path, work)
    with closing(sqlite3.connect(path)) as database:
        assert database.execute("pragma user_version").fetchone() == (1,)
        database.execute("pragma user_version = 0")
    used(path, work)
    with closing(sqlite3.connect(path)) as database:
        database.execute("pragma user_version = 2")
    with pytest.raises(PluginError, match="have schema 2"):
        used(path, work)
