"""Stores of earlier schemas, of newer ones, and rows that a newer Sayso wrote."""

from __future__ import annotations

import asyncio
import json
import re
import sqlite3
from collections.abc import Awaitable, Callable
from contextlib import closing
from pathlib import Path
from typing import Any, TypeVar

import psycopg
import pytest

from sayso.conversation.calls import LOST, outcome_text
from sayso.errors import ConfigError, LedgerUnavailable
from sayso.ledger import Store, log
from sayso.ledger.conformance.samples import ALL, get, opened, proposal, put, turn
from sayso.ledger.migrations import STEPS
from sayso.ledger.outbox import read
from sayso.ledger.sqlite import SqliteStore
from sayso.ledger.tables import SCHEMA
from sayso_postgres.store import PostgresStore

T = TypeVar("T")
DUMPS = sorted((Path(__file__).parent / "dumps").glob("*-*.sql"))


def run(work: Callable[[], Awaitable[T]]) -> T:
    async def bounded() -> T:
        return await asyncio.wait_for(work(), 120)

    return asyncio.run(bounded())


class Storage:
    """A file or schema, for statements that bypass the store, and the store over it."""

    def __init__(self, kind: str, place: Any) -> None:
        self.kind = kind
        self._place = place

    def store(self) -> Store:
        return PostgresStore(self._place) if self.kind == "postgres" else SqliteStore(self._place)

    def load(self, dump: Path) -> None:
        if self.kind == "postgres":
            self.do(dump.read_text())
            return
        self._place.parent.mkdir()
        with closing(sqlite3.connect(self._place)) as db:
            db.executescript(dump.read_text())

    def do(self, statement: str) -> list[Any]:
        if self.kind == "postgres":
            with psycopg.connect(self._place) as server:
                done = server.execute(statement.encode())
                return done.fetchall() if done.description else []
        with closing(sqlite3.connect(self._place, isolation_level=None)) as file:
            return file.execute(statement).fetchall()

    def set_schema(self, version: int) -> None:
        if self.kind == "postgres":
            self.do(f"UPDATE sayso_meta SET value = '{version}' WHERE key = 'schema'")
        else:
            self.do(f"PRAGMA user_version = {version}")

    def indexes(self) -> set[str]:
        if self.kind == "postgres":
            sql = "SELECT indexname FROM pg_indexes WHERE schemaname = current_schema()"
        else:
            sql = "SELECT name FROM sqlite_master WHERE type = 'index' AND sql IS NOT NULL"
        return {name for (name,) in self.do(sql)}

    def columns(self) -> dict[str, set[str]]:
        tables = ("meta", "proposals", "contents", "turns", "log", "chains")
        if self.kind == "postgres":
            sql = (
                "SELECT column_name FROM information_schema.columns "
                "WHERE table_schema = current_schema() AND table_name = 'sayso_{}'"
            )
        else:
            sql = "SELECT name FROM pragma_table_info('sayso_{}')"
        return {table: {name for (name,) in self.do(sql.format(table))} for table in tables}


@pytest.fixture(params=["sqlite", "postgres"])
def storage(request: pytest.FixtureRequest, path: Path) -> Storage:
    """An empty storage."""
    if request.param == "sqlite":
        return Storage("sqlite", path)
    return Storage("postgres", request.getfixturevalue("postgres_url"))


def versions(storage: Storage) -> list[int]:
    found = [re.fullmatch(rf"{storage.kind}-(\d+)", dump.stem) for dump in DUMPS]
    return [int(match[1]) for match in found if match]


def dump_of(storage: Storage, version: int) -> Path:
    return Path(__file__).parent / "dumps" / f"{storage.kind}-{version}.sql"


def test_there_is_a_dump_and_a_step_for_each_version(storage: Storage) -> None:
    assert versions(storage) == list(range(1, SCHEMA + 1))
    assert [step.version for step in STEPS] == list(range(2, SCHEMA + 1))


@pytest.mark.parametrize("version", range(1, SCHEMA + 1))
def test_a_store_of_an_earlier_version_opens_with_all_that_it_holds(
    storage: Storage, version: int
) -> None:
    storage.load(dump_of(storage, version))

    async def work() -> None:
        async with opened(storage.store) as store:
            rows = await store.run(lambda tx: {row.id: row for row in tx.find()})
            assert {name: row.state for name, row in rows.items()} == {
                "call0": "PENDING",
                "call1": "PENDING",
                "call2": "APPROVED",
                "call3": "EXECUTING",
                "call4": "DONE",
                "call5": "DONE",
                "call6": "FAILED",
                "call7": "REJECTED",
            }
            assert rows["call4"].output == "it is DONE"
            assert rows["call0"].input == {"name": "call0", "é": "☃"}
            turns = await store.run(lambda tx: tx.turns([f"turn-{name}" for name in rows]))
            assert len(turns) == 8
            assert await log.verify_store(store) is None
            before = await store.run(lambda tx: tx.log(ALL))
            assert len(before) == 19
            for number in range(20):
                id_ = f"new{number}"
                await store.run(lambda tx, id_=id_: log.append(tx, {"id": id_}))  # type: ignore[misc]
            await store.run(log.summarise)
            assert await log.verify_store(store) is None
            page = await read(store, None, 1_000)
            assert len(page.events) == 39
        async with opened(storage.store) as store:
            assert await get(store, "call4") == rows["call4"]

    run(work)


def test_a_migrated_store_has_the_tables_of_a_new_one(storage: Storage, tmp_path: Path) -> None:
    async def make() -> None:
        async with opened(storage.store):
            pass

    storage.load(dump_of(storage, 1))
    run(make)
    migrated, indexes = storage.columns(), storage.indexes()
    if storage.kind == "postgres":
        storage.do("DROP TABLE " + ", ".join(f"sayso_{table}" for table in migrated))
    else:
        storage = Storage("sqlite", tmp_path / "new" / "ledger.db")
    run(make)
    assert storage.columns() == migrated
    assert storage.indexes() == indexes


def test_several_processes_migrate_a_store_at_once_and_all_go_on(storage: Storage) -> None:
    storage.load(dump_of(storage, 1))

    async def one(number: int) -> None:
        async with opened(storage.store) as store:
            for each in range(20):
                id_ = f"{number}-{each}"
                await store.run(lambda tx, id_=id_: log.append(tx, {"id": id_}))  # type: ignore[misc]

    async def work() -> None:
        await asyncio.gather(*(one(number) for number in range(4)))
        async with opened(storage.store) as store:
            assert await log.verify_store(store) is None
            assert len(await store.run(lambda tx: tx.log(ALL))) == 19 + 80

    run(work)


def test_a_process_of_version_1_appends_nothing_to_a_migrated_store(storage: Storage) -> None:
    """It has the store open while another process migrates it."""
    storage.load(dump_of(storage, 1))

    async def work() -> None:
        async with opened(storage.store) as store:
            old = "INSERT INTO sayso_log (seq, at, previous, hash, entry) VALUES (1, 1, '', '', '')"
            with pytest.raises((sqlite3.IntegrityError, psycopg.errors.NotNullViolation)):
                storage.do(old)
            assert await log.verify_store(store) is None

    run(work)


def test_a_store_that_is_migrated_while_it_is_open_takes_no_work(storage: Storage) -> None:
    async def work() -> None:
        async with opened(storage.store) as store:
            await put(store, proposal("a"))
            writing = [asyncio.ensure_future(put(store, proposal(f"p{n}"))) for n in range(20)]
            await asyncio.to_thread(storage.set_schema, SCHEMA + 1)
            await asyncio.gather(*writing, return_exceptions=True)
            with pytest.raises(LedgerUnavailable, match="restart it with the newer version"):
                await put(store, proposal("late"))
            storage.set_schema(SCHEMA)
            assert await get(store, "late") is None
            assert await get(store, "a") == proposal("a")

    run(work)


def test_a_store_of_a_newer_version_stops_the_start(storage: Storage) -> None:
    async def work() -> None:
        async with opened(storage.store):
            pass
        storage.set_schema(SCHEMA + 1)
        with pytest.raises(ConfigError, match=f"has schema {SCHEMA + 1}, and this Sayso knows"):
            await storage.store().open()

    run(work)


def test_what_a_newer_sayso_added_to_rows_does_no_harm(storage: Storage) -> None:
    """Fields, also of the owner and the decision, further contents, and states."""

    async def work() -> None:
        async with opened(storage.store) as store:
            await put(store, proposal("a", output="out"), turn("t"))
        for table, id_ in (("proposals", "a"), ("turns", "t")):
            [(text,)] = storage.do(f"SELECT doc FROM sayso_{table} WHERE id = '{id_}'")
            doc = json.loads(text) | {"flavour": [1], "state": "POSTPONED"}
            doc["owner"] = {"id": "o", "boot": "", "fence": 1, "lease": 1.0, "rank": 7}
            if id_ == "a":
                doc["decision"] = {"approved": True, "at": 1.0, "votes": ["me"]}
            doc_text = json.dumps(doc)
            storage.do(f"UPDATE sayso_{table} SET doc = '{doc_text}' WHERE id = '{id_}'")
        [(contents,)] = storage.do("SELECT doc FROM sayso_contents")
        more = json.dumps([*json.loads(contents), "more"])
        storage.do(f"UPDATE sayso_contents SET doc = '{more}'")
        async with opened(storage.store) as store:
            row = await get(store, "a")
            assert row is not None
            assert (row.output, row.state) == ("out", "POSTPONED")
            assert row.decision is not None
            assert row.decision.approved
            assert outcome_text(row) == (LOST, True)
            assert list(await store.run(lambda tx: tx.turns(["t"]))) == ["t"]
            assert [r.id for r in await store.run(lambda tx: tx.find())] == ["a"]

    run(work)
