"""Erasure of tasks in each of their stores, and whose tasks are whose."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from a2a.types import Task, TaskPushNotificationConfig, TaskState

from databases import empty_schema
from sayso import Caller, Principal, Subject
from sayso_a2a.official.callers import context_of
from sayso_a2a.official.stores import KeptTasks
from sayso_a2a.owners import belongs_to, owner_of, principal_of
from sayso_a2a.postgres_rows import PostgresRows
from sayso_a2a.rows import Row, Rows

ANN = Subject(principal="ann")


@pytest.mark.parametrize(
    ("name", "tenant"),
    [
        ("ann", None),
        ("ann", "acme"),
        ("ann", "a/c m%e\x1f"),
        ("\x1facme\x1fann", None),
        ("\x1f", "acme"),
        ("\ud800", "\ud800"),
    ],
)
def test_an_owner_is_the_principal_with_its_tenant(name: str, tenant: str | None) -> None:
    found = principal_of(owner_of(Principal(name, tenant=tenant)))
    assert (found, getattr(found, "tenant", None)) == (name, tenant)


def test_owners_without_a_tenant_are_what_they_were() -> None:
    assert owner_of("ann") == owner_of(Principal("ann")) == "ann"
    assert owner_of(None) == "" and principal_of("") is None


def test_a_tenant_s_tasks_are_not_those_of_another_one_s_principal_of_that_name() -> None:
    acme, other = (owner_of(Principal("ann", tenant=name)) for name in ("acme", "other"))
    assert len({acme, other, owner_of("ann")}) == 3
    assert [belongs_to(Subject(tenant="acme"))(one) for one in (acme, other, "ann", "")] == [
        True,
        False,
        False,
        False,
    ]
    assert [belongs_to(ANN)(one) for one in (acme, other, "ann", "bob", "")] == [
        True,
        True,
        True,
        False,
        False,
    ]


@pytest.fixture(params=["memory", "file", "postgres"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Any]:
    bounds = {"ttl": 60.0, "most": 100}
    if request.param == "postgres":
        with empty_schema() as url:
            yield PostgresRows("simple", url, **bounds)
    else:
        file = tmp_path / "tasks.db" if request.param == "file" else None
        yield Rows("simple", file, **bounds)


def test_ended_and_waiting_tasks_go_and_running_ones_stay(store: Any) -> None:
    async def use() -> None:
        await store.open()
        rows = [
            Row("1", "ann", "", "completed", 1, b"x"),
            Row("2", "ann", "", "input-required", 2, b"x"),
            Row("3", "ann", "", "running", 3, b"x", time.time() + 30),
            Row("4", "ann", "", "running", 4, b"x", time.time() - 30),
            Row("5", "bob", "", "completed", 5, b"x"),
        ]
        for row in rows:
            await store.change(row.owner, row.id, lambda _, row=row: row)
        assert await store.erase(belongs_to(ANN)) == (3, 1)
        left = [row.id for row in rows if await store.get(row.owner, row.id) is not None]
        assert left == ["3", "5"]
        await store.lease(["3"], 0.0)
        assert await store.erase(belongs_to(ANN)) == (1, 0)
        assert await store.erase(belongs_to(ANN)) == (0, 0)
        await store.close()

    asyncio.run(use())


def _database(tmp_path: Path) -> Any:
    pytest.importorskip("aiosqlite")
    from sayso_a2a.official.database import DatabaseTasks

    return DatabaseTasks(f"sqlite+aiosqlite:///{tmp_path}/tasks.db", ttl=60.0, most=100)


@pytest.mark.parametrize("kind", ["kept", "database"])
def test_official_tasks_go_with_their_addresses(tmp_path: Path, kind: str) -> None:
    async def use() -> None:
        rows = Rows("a2a", tmp_path / "own.db", ttl=60.0, most=100)
        store = KeptTasks(rows) if kind == "kept" else _database(tmp_path)
        await store.open()
        contexts = {name: context_of(Caller("a2a", name), {}) for name in ("ann", "bob")}
        states = {"done": TaskState.TASK_STATE_COMPLETED, "runs": TaskState.TASK_STATE_WORKING}
        for name, context in contexts.items():
            for id_, state in states.items():
                task = Task(id=f"{name}-{id_}", context_id="c")
                task.status.state = state
                await store.save(task, context)
        addresses = getattr(store, "push_configs", None)
        if addresses is not None:
            config = TaskPushNotificationConfig(id="1", url="https://hooks.example/ann")
            await addresses.set_info("ann-done", config, contexts["ann"])
            assert await addresses.addresses("ann-done")
        erasing = rows if kind == "kept" else store
        assert await erasing.erase(belongs_to(ANN)) == (1, 1)
        assert await store.get("ann-done", contexts["ann"]) is None
        for name in ("ann-runs", "bob-done", "bob-runs"):
            assert await store.get(name, contexts[name[:3]]) is not None
        if addresses is not None:
            assert not await addresses.addresses("ann-done")
        await store.close()

    asyncio.run(use())
