"""The hash chain of the log, and the canonical JSON that it is made of."""

from __future__ import annotations

import asyncio
import sqlite3
from collections.abc import Awaitable, Callable, Iterable
from pathlib import Path
from typing import TypeVar

import psycopg
import pytest

from sayso.ledger import LogRow, Store, Transaction, log
from sayso.ledger.conformance.samples import opened
from sayso.ledger.memory import MemoryStore
from sayso.ledger.sqlite import SqliteStore
from sayso_postgres.store import PostgresStore

T = TypeVar("T")


def run(work: Callable[[], Awaitable[T]]) -> T:
    async def bounded() -> T:
        return await asyncio.wait_for(work(), 120)

    return asyncio.run(bounded())


def verified(rows: Iterable[LogRow], start: LogRow | None = None) -> log.Problem | None:
    chain = log.Chain(start)
    return chain.feed(rows) or chain.end()


def tampered(name: str) -> tuple[str, int | None]:
    """A statement that falsifies a log of ten rows, and the row at which it must show."""
    forged = "INSERT INTO sayso_log VALUES (11, 5.0, 'x', 'y', '{}')"
    return {
        "nothing": ("SELECT 1", None),
        "entry": ('UPDATE sayso_log SET entry = \'{"event": "other"}\' WHERE seq = 4', 4),
        "time": ("UPDATE sayso_log SET at = at + 1 WHERE seq = 4", 4),
        "hash": ("UPDATE sayso_log SET hash = previous WHERE seq = 10", 10),
        "removed": ("DELETE FROM sayso_log WHERE seq = 4", 4),
        "first": ("DELETE FROM sayso_log WHERE seq <= 2", 1),
        "last": ("DELETE FROM sayso_log WHERE seq >= 9", 9),
        "all": ("DELETE FROM sayso_log", 1),
        "swapped": (
            "UPDATE sayso_log SET entry = (SELECT entry FROM sayso_log WHERE seq = 5) "
            "WHERE seq = 6",
            6,
        ),
        "renumbered": ("UPDATE sayso_log SET seq = 40 WHERE seq = 4", 4),
        "inserted": (forged, 11),
    }[name]


@pytest.mark.parametrize(
    "name",
    [
        "nothing",
        "entry",
        "time",
        "hash",
        "removed",
        "first",
        "last",
        "all",
        "swapped",
        "renumbered",
        "inserted",
    ],
)
@pytest.mark.parametrize("kind", ["memory", "sqlite", "postgres"])
def test_tampering_with_the_log_shows_where(
    kind: str, name: str, path: Path, request: pytest.FixtureRequest
) -> None:
    statement, seq = tampered(name)
    store: Store
    if kind == "postgres":
        url = request.getfixturevalue("postgres_url")
        store = PostgresStore(url)
    else:
        store = MemoryStore() if kind == "memory" else SqliteStore(path)

    async def work() -> None:
        async with opened(lambda: store):
            for number in range(10):
                await store.run(lambda tx, n=number: log.append(tx, {"n": n}))  # type: ignore[misc]
            if kind == "postgres":
                with psycopg.connect(url) as db:
                    db.execute(statement.encode())
            elif isinstance(store, SqliteStore):
                with sqlite3.connect(path) as foreign:
                    foreign.execute(statement)
                foreign.close()
            elif isinstance(store, MemoryStore):
                assert store._db
                store._db.write(statement)
            problem = await log.verify_store(store, page=3)
            assert (problem and problem.seq) == seq
            if name not in ("renumbered", "inserted"):
                await store.run(lambda tx: log.append(tx, {"event": "goes on"}))
                problem = await log.verify_store(store)
                assert (problem and problem.seq) == seq

    run(work)


def test_rows_fed_twice_or_backwards_show() -> None:
    def work(tx: Transaction) -> list[LogRow]:
        return [log.append(tx, {"n": n}) for n in range(3)]

    async def main() -> list[LogRow]:
        async with opened(MemoryStore) as store:
            return await store.run(work)

    one, two, three = run(main)
    assert verified([one, two, three]) is None
    assert verified([two, three], start=one) is None
    assert str(verified([one, one])) == "log row 1: was inserted"
    assert str(verified([one, three])) == "log row 2: row 2 is missing"
    assert verified([two, three]) == log.Problem(
        1, "row 1 is missing and no checkpoint accounts for that"
    )


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (0, "0"),
        (-0.0, "0"),
        (1, "1"),
        (1.0, "1"),
        (1e21, "1e+21"),
        (1e20, "100000000000000000000"),
        (333333333.33333329, "333333333.3333333"),
        (4.50, "4.5"),
        (2e-3, "0.002"),
        (1e-7, "1e-7"),
        (1.5e-7, "1.5e-7"),
        (0.000001, "0.000001"),
        (5e-324, "5e-324"),
        (1.7976931348623157e308, "1.7976931348623157e+308"),
        (-1.5, "-1.5"),
        (9007199254740993, "9007199254740992"),
        (123456789012345683968, "123456789012345680000"),
        (10**400, "1" + "0" * 400),
        (float("inf"), "inf"),
        (True, "true"),
        (None, "null"),
        ('\u20ac$\u000f\nA\'B"\\\\"/', '"\u20ac$\\u000f\\nA\'B\\"\\\\\\\\\\"/"'),
        (
            {"\ufb33": 1, "\U0001f600": 2, "1": [], "\r": {}},
            '{"\\r":{},"1":[],"\U0001f600":2,"\ufb33":1}',
        ),
    ],
)
def test_canonical_json_follows_rfc_8785(value: object, text: str) -> None:
    assert log.canonical(value).decode() == text


def test_what_is_no_json_has_no_digest() -> None:
    for value in (object(), {1: 2}, {"a": {1, 2}}, b"bytes"):
        with pytest.raises(TypeError):
            log.digest(value)


def test_equal_inputs_have_equal_digests() -> None:
    assert log.digest({"a": 1, "b": 2.0}) == log.digest({"b": 2, "a": 1.0})
    assert log.digest({"a": 1}) != log.digest({"a": "1"})
    assert len(log.digest("\ud800")) == 64
