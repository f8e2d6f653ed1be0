"""The simple adapter's tasks beside a ledger in PostgreSQL: every machine has them."""

from __future__ import annotations

import asyncio
import gc
import time
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path

import psycopg
import pytest
from a2a_services import Cluster, Serve, Service, configured, running

from databases import empty_schema
from sayso import LedgerUnavailable, PluginError
from sayso_a2a.postgres_rows import PostgresRows
from sayso_a2a.rows import Row


@pytest.fixture
def url() -> Iterator[str]:
    """The URL of an empty PostgreSQL schema."""
    with empty_schema() as found:
        yield found


def test_task_is_approved_on_another_machine(tmp_path: Path, url: str, cluster: Cluster) -> None:
    with (
        running(cluster.agent, configured(tmp_path / "one", ledger=url)) as one,
        running(cluster.agent, configured(tmp_path / "other", ledger=url)) as other,
    ):
        task = one.send("delete web")
        assert task["status"] == "input-required"
        (call,) = task["metadata"]["tool_calls"]
        approved = {"tool_calls": [{**call, "execute": True}]}
        done = other.send("", id=task["task_id"], data=approved)
        assert (done["status"], done["text"]) == ("completed", "The tool says: deleted web")
        assert shown(one, task["task_id"]) == done
        assert cluster.deleted == ["web"]
        second = other.send("delete db")
        canceled = one.http.post(f"/a2a/tasks/{second['task_id']}/cancel").json()
        assert canceled["status"] == shown(other, second["task_id"])["status"] == "canceled"


def shown(service: Service, task: str) -> dict[str, object]:
    found: dict[str, object] = service.http.get(f"/a2a/tasks/{task}").json()
    return found


def test_database_of_the_other_adapter_is_not_ignored(serve: Serve, cluster: Cluster) -> None:
    with pytest.raises(PluginError, match="where the ledger is"):
        serve(cluster.agent, database="postgresql+asyncpg://db/sayso")


def used(url: str, work: Callable[[PostgresRows], Awaitable[None]], **options: float) -> None:
    async def use() -> None:
        rows = PostgresRows("test", url, ttl=options.get("ttl", 60.0), most=100)
        await rows.open()
        try:
            await work(rows)
        finally:
            await rows.close()

    asyncio.run(use())


async def put(rows: PostgresRows, row: Row) -> None:
    await rows.change(row.owner, row.id, lambda _: row)


def test_row_is_its_owners_whatever_it_is_called(url: str) -> None:
    async def work(rows: PostgresRows) -> None:
        for name in ("a", "a b/ü%", "zero\0byte", "\ud800"):
            made = Row(name, "ann", "", "completed", 1, b"\0body")
            await put(rows, made)
            assert await rows.get("ann", name) == made
            assert await rows.get("bob", name) is None
            await rows.delete("bob", name)
            assert await rows.get("ann", name) is not None
            await rows.delete("ann", name)
            assert await rows.get("ann", name) is None

    used(url, work)


def test_leases_are_prolonged_and_end_and_rows_expire(url: str) -> None:
    async def work(rows: PostgresRows) -> None:
        leased = Row("a", "ann", "", "running", 1, b"", time.time() + 15.0)
        await put(rows, leased)
        await put(rows, Row("b", "ann", "", "completed", 2, b""))
        await rows.lease(["a", "b"], 500.0)
        found = await rows.get("ann", "a")
        assert found is not None
        assert 400 < found.lease - time.time() < 510
        other = await rows.get("ann", "b")
        assert other is not None
        assert other.lease == 0
        await rows.lease(["a"], 0)
        ended = await rows.get("ann", "a")
        assert ended is not None
        assert ended.lease == 0

    used(url, work)

    async def late(rows: PostgresRows) -> None:
        await put(rows, Row("c", "ann", "", "completed", 3, b""))
        assert await rows.get("ann", "c") is None

    used(url, late, ttl=0.0)


def test_changes_are_one_step_and_what_they_raise_leaves_the_row(url: str) -> None:
    async def work(rows: PostgresRows) -> None:
        await put(rows, Row("a", "ann", "", "running", 0, b""))

        def count(row: Row | None) -> Row:
            assert row is not None
            return Row("a", "ann", "", "running", row.updated + 1, b"")

        await asyncio.gather(*(rows.change("ann", "a", count) for _ in range(20)))
        found = await rows.get("ann", "a")
        assert found is not None
        assert found.updated == 20

        def refuse(row: Row | None) -> Row:
            raise LookupError

        with pytest.raises(LookupError):
            await rows.change("ann", "a", refuse)

    used(url, work)


def test_restart_of_the_server_is_not_noticed(url: str) -> None:
    async def work(rows: PostgresRows) -> None:
        await put(rows, Row("a", "ann", "", "completed", 1, b""))
        with psycopg.connect(url, autocommit=True) as admin:
            admin.execute(
                "SELECT pg_terminate_backend(pid) FROM pg_stat_activity "
                "WHERE application_name = 'sayso-a2a' AND pid <> pg_backend_pid()"
            )
        assert await rows.get("ann", "a") is not None

    used(url, work)


def test_tables_of_a_newer_version_stop_the_start(url: str) -> None:
    async def work(rows: PostgresRows) -> None:
        with psycopg.connect(url, autocommit=True) as admin:
            admin.execute("UPDATE sayso_a2a_version SET version = 99")

    used(url, work)
    with pytest.raises(PluginError, match="have schema 99"):
        used(url, work)
    # A connection that was left open warns when it is collected.
    gc.collect()


def test_server_that_is_away_is_the_ledger_being_away(url: str) -> None:
    async def work() -> None:
        rows = PostgresRows("test", "postgresql://nobody@127.0.0.1:1/x", ttl=60, most=100)
        with pytest.raises(PluginError, match="cannot be kept beside the ledger"):
            await rows.open()
        with pytest.raises(LedgerUnavailable):
            await rows.get("ann", "a")
        await rows.close()

    asyncio.run(work())
