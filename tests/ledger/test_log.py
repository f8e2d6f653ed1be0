"""The hash chain of the log, and the canonical JSON that it is made of."""

from __future__ import annotations

import asyncio
import sqlite3
import time
from collections.abc import Awaitable, Callable, Iterable
from pathlib import Path
from typing import TypeVar

import psycopg
import pytest

from sayso.ledger import Head, LogRow, Store, log
from sayso.ledger.conformance.samples import Factory, opened, proposal
from sayso.ledger.memory import MemoryStore
from sayso.ledger.record import Ledger
from sayso.ledger.sqlite import SqliteStore
from sayso_postgres.store import PostgresStore

T = TypeVar("T")


def run(work: Callable[[], Awaitable[T]]) -> T:
    async def bounded() -> T:
        return await asyncio.wait_for(work(), 120)

    return asyncio.run(bounded())


def verified(rows: Iterable[LogRow], start: LogRow | None = None) -> log.Problem | None:
    chain = log.Chain(start=start)
    return chain.feed(rows) or chain.end()


CHAIN = log.chain_of("")
"""The chain of the ten rows that are tampered with."""
HEAD = (
    "UPDATE sayso_chains SET seq = {seq}, hash = (SELECT hash FROM sayso_log l "
    "WHERE l.chain = sayso_chains.chain AND l.seq = {seq}) WHERE chain = {chain}"
)
FORGED = f"INSERT INTO sayso_log VALUES ({CHAIN}, 11, 5.0, 'x', 'y', '{{}}')"
EMPTY = "UPDATE sayso_chains SET seq = 0, hash = '' WHERE chain = {chain}"
TAMPERED: dict[str, tuple[list[str], int | None]] = {
    "nothing": (["SELECT 1"], None),
    "entry": (['UPDATE sayso_log SET entry = \'{"event": "other"}\' WHERE %s seq = 4'], 4),
    "time": (["UPDATE sayso_log SET at = at + 1 WHERE %s seq = 4"], 4),
    "hash": (["UPDATE sayso_log SET hash = previous WHERE %s seq = 10"], 10),
    "removed": (["DELETE FROM sayso_log WHERE %s seq = 4"], 4),
    "first": (["DELETE FROM sayso_log WHERE %s seq <= 2"], 1),
    "tail": (["DELETE FROM sayso_log WHERE %s seq >= 9"], 9),
    "chain": (["DELETE FROM sayso_log WHERE %s seq >= 1"], 1),
    "tail with its head": (
        ["DELETE FROM sayso_log WHERE %s seq >= 8", HEAD.format(seq=7, chain=CHAIN)],
        8,
    ),
    "chain with its head": (
        ["DELETE FROM sayso_log WHERE %s seq >= 1", EMPTY.format(chain=CHAIN)],
        1,
    ),
    "head": ([EMPTY.format(chain=CHAIN)], 0),
    "everything": (["DELETE FROM sayso_log"], 1),
    "summaries": ([f"DELETE FROM sayso_log WHERE chain = {log.SUMMARY}"], 1),
    "swapped": (
        [
            "UPDATE sayso_log SET entry = (SELECT entry FROM sayso_log WHERE %s seq = 5) "
            "WHERE %s seq = 6"
        ],
        6,
    ),
    "renumbered": (["UPDATE sayso_log SET seq = 40 WHERE %s seq = 4"], 4),
    "inserted": ([FORGED], 11),
}
"""Statements that falsify a log of ten rows, and the row at which it must show."""


@pytest.mark.parametrize("name", TAMPERED)
@pytest.mark.parametrize("kind", ["memory", "sqlite", "postgres"])
def test_tampering_with_the_log_shows_where(
    kind: str, name: str, path: Path, request: pytest.FixtureRequest
) -> None:
    given, seq = TAMPERED[name]
    statements = [each.replace("%s", f"chain = {CHAIN} AND") for each in given]
    url = request.getfixturevalue("postgres_url") if kind == "postgres" else ""
    store: Store = PostgresStore(url) if url else MemoryStore()
    store = SqliteStore(path) if kind == "sqlite" else store

    def tamper() -> None:
        if kind == "postgres":
            with psycopg.connect(url) as db:
                for statement in statements:
                    db.execute(statement.encode())
        elif isinstance(store, SqliteStore):
            with sqlite3.connect(path) as foreign:
                for statement in statements:
                    foreign.execute(statement)
            foreign.close()
        elif isinstance(store, MemoryStore):
            assert store._db
            for statement in statements:
                store._db.write(statement)

    async def work() -> None:
        async with opened(lambda: store):
            for number in range(10):
                await store.run(lambda tx, n=number: log.append(tx, {"n": n}))  # type: ignore[misc]
                await store.run(lambda tx, n=number: log.append(tx, {"id": str(n)}))  # type: ignore[misc]
            rows = await store.run(lambda tx: tx.log({CHAIN: 0}))
            assert [row.seq for row in rows][:10] == list(range(1, 11))
            await store.run(log.summarise)
            tamper()
            problem = await log.verify_store(store, page=3)
            assert (problem and problem.seq) == seq
            if problem is not None:
                where = log.SUMMARY if name in ("everything", "summaries") else CHAIN
                assert problem.chain == where

    run(work)


@pytest.mark.parametrize("name", ["entry", "removed", "tail", "tail with its head", "summaries"])
def test_what_was_tampered_with_shows_also_after_the_log_went_on(path: Path, name: str) -> None:
    statements, seq = TAMPERED[name]

    async def work() -> None:
        async with opened(lambda: SqliteStore(path)) as store:
            for number in range(10):
                await store.run(lambda tx, n=number: log.append(tx, {"n": n}))  # type: ignore[misc]
            await store.run(log.summarise)
            with sqlite3.connect(path) as foreign:
                for statement in statements:
                    foreign.execute(statement.replace("%s", f"chain = {CHAIN} AND"))
            foreign.close()
            for _ in range(5):
                await store.run(lambda tx: log.append(tx, {"event": "goes on"}))
            problem = await log.verify_store(store)
            # A row in the place of a removed tail shows at the row that the summary names.
            assert (problem and problem.seq) == (10 if name == "tail with its head" else seq)

    run(work)


def test_a_summary_is_appended_where_it_says_something_new(factory: Factory) -> None:
    async def work() -> None:
        async with opened(factory) as store:
            await store.run(log.summarise)
            assert await store.run(lambda tx: tx.heads()) == {}
            await store.run(lambda tx: log.append(tx, {"n": 1}))
            for _ in range(3):
                await store.run(log.summarise)
            heads = await store.run(lambda tx: tx.heads())
            assert heads[log.SUMMARY].seq == 1
            (row,) = await store.run(lambda tx: tx.log({log.SUMMARY: 0}))
            assert row.entry["heads"] == {str(CHAIN): [1, heads[CHAIN].hash]}

    run(work)


def test_a_process_summarises_the_log_now_and_then(path: Path) -> None:
    async def work() -> None:
        ledger = Ledger(SqliteStore(path))
        await ledger.open()
        rows = [proposal(f"p{number}") for number in range(300)]
        await ledger.propose(None, rows[:255])
        assert log.SUMMARY not in await ledger.store.run(lambda tx: tx.heads())
        await ledger.propose(None, rows[255:])
        deadline = time.monotonic() + 60
        while log.SUMMARY not in await ledger.store.run(lambda tx: tx.heads()):
            assert time.monotonic() < deadline
            await asyncio.sleep(0.01)
        await ledger.close()

    run(work)


def test_rows_fed_twice_or_backwards_show() -> None:
    head, rows = None, []
    for number in range(3):
        rows.append(row := log.log_row(head, 0, 1.0, {"n": number}))
        head = Head(row.seq, row.hash)
    one, two, three = rows
    assert verified([one, two, three]) is None
    assert verified([two, three], start=one) is None
    assert str(verified([one, one])) == "log row 1 of chain 0: was inserted"
    assert str(verified([one, three])) == "log row 2 of chain 0: row 2 is missing"
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
