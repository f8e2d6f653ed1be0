"""Reading the log from a cursor, on every store."""

from __future__ import annotations

import asyncio
import errno
import os
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any, TypeVar

import pytest

from sayso.errors import LedgerUnavailable
from sayso.ledger import Head, Reading, Store, Transaction, log
from sayso.ledger.conformance.samples import Factory, opened
from sayso.ledger.outbox import LogPage, newest, read
from sayso.ledger.sqlite import SqliteStore
from slow import few

T = TypeVar("T")


def run(work: Callable[[], Awaitable[T]]) -> T:
    async def bounded() -> T:
        return await asyncio.wait_for(work(), 120)

    return asyncio.run(bounded())


async def write(store: Store, *ids: str, **entry: Any) -> None:
    for id_ in ids:
        await store.run(lambda tx, id_=id_: log.append(tx, {"id": id_, **entry}))  # type: ignore[misc]


async def whole(store: Store, cursor: str | None = None, limit: int = 100) -> LogPage:
    """All pages after the cursor as one."""
    page = await read(store, cursor, limit)
    events, gap = page.events, page.gap
    while page.more:
        page = await read(store, page.cursor, limit)
        events, gap = [*events, *page.events], gap + page.gap
    return LogPage(events, page.cursor, gap, False)


def names(page: LogPage) -> list[str]:
    return sorted(event.row.entry["id"] for event in page.events)


def purge(tx: Transaction) -> None:
    tx.purge(contents_before=None, turns_before=None, log_before=tx.now + 60)


IDS = [f"p{number:03}" for number in range(100)]


def test_each_row_is_read_once_and_no_page_is_too_long(factory: Factory) -> None:
    async def work() -> None:
        async with opened(factory) as store:
            assert (await read(store)).events == []
            await write(store, *IDS)
            for limit in (1, 7, 40, 1_000):
                page = await read(store, None, limit)
                assert 0 < len(page.events) <= limit
                assert names(await whole(store, None, limit)) == IDS
            last = await whole(store)
            assert (await read(store, last.cursor)).events == []
            await write(store, "new")
            assert names(await read(store, last.cursor)) == ["new"]
            assert len({event.id for event in last.events}) == len(IDS)
            again = await whole(store, None, 3)
            assert {event.id for event in last.events} < {event.id for event in again.events}

    run(work)


def test_the_rows_of_one_call_come_in_their_order(factory: Factory) -> None:
    async def work() -> None:
        async with opened(factory) as store:
            for number in range(30):
                await write(store, "a", "b", "c", n=number)
            found = [event.row.entry for event in (await whole(store, None, 5)).events]
            for id_ in "abc":
                assert [e["n"] for e in found if e["id"] == id_] == list(range(30))

    run(work)


def test_a_reader_that_begins_now_gets_what_comes_later(factory: Factory) -> None:
    async def work() -> None:
        async with opened(factory) as store:
            for _ in range(2):
                await write(store, *IDS)
                cursor = await newest(store)
                assert (await read(store, cursor)).events == []
            await write(store, "x", "y")
            assert names(await read(store, cursor)) == ["x", "y"]

    run(work)


def test_nothing_is_lost_or_read_twice_beside_writers(factory: Factory) -> None:
    async def work() -> None:
        async with opened(factory) as store, opened(factory) as second:
            stores = [store, second] if store.shared else [store]
            writing = [
                asyncio.ensure_future(write(each, *(f"{n}-{w}-{i}" for i in range(40))))
                for n, each in enumerate(stores)
                for w in range(4)
            ]
            seen: list[str] = []
            cursor = None
            while True:
                ended = all(task.done() for task in writing)
                page = await read(store, cursor, 16)
                assert page.gap == 0
                seen += [event.row.entry["id"] for event in page.events]
                cursor = page.cursor
                if ended and not page.events:
                    break
                await asyncio.sleep(0)
            await asyncio.gather(*writing)
            wanted = {
                f"{n}-{w}-{i}" for n in range(len(stores)) for w in range(4) for i in range(40)
            }
            assert len(seen) == len(set(seen))
            assert set(seen) == wanted

    run(work)


def test_a_purge_that_passed_the_reader_is_told_as_a_gap(factory: Factory) -> None:
    async def work() -> None:
        async with opened(factory) as store:
            await write(store, "a", "a", "b")
            first = await whole(store)
            await store.run(purge)
            read_all = await whole(store, first.cursor)
            assert read_all.gap == 0, "all that is gone was read"
            assert {e.row.entry["event"] for e in read_all.events} == {log.CHECKPOINT}
            await write(store, "a", "a", "b")
            await store.run(purge)
            missed = await whole(store, read_all.cursor)
            assert missed.gap == 3
            assert (await whole(store, missed.cursor)).gap == 0
            late = await whole(store, first.cursor)
            assert late.gap == 5, "the checkpoints of the first purge are gone, too"
            assert (await whole(store)).gap == 0, "who begins has missed nothing"

    run(work)


async def restore(store: Store, heads: dict[int, Head]) -> None:
    """Restore the log to its state when these were the newest rows."""

    def work(tx: Any) -> None:
        for chain in range(log.CHAINS):
            seq, digest = heads.get(chain) or Head(0, log.genesis(chain))
            tx._write("DELETE FROM sayso_log WHERE chain = ? AND seq > ?", (chain, seq))
            tx._write(
                "UPDATE sayso_chains SET seq = ?, hash = ? WHERE chain = ?", (seq, digest, chain)
            )

    await store.run(work)


@pytest.mark.parametrize("lost", few([1, 5, 40, 70, 200], 1, 70))
def test_after_an_older_database_was_restored_nothing_new_is_missed(
    factory: Factory, lost: int
) -> None:
    async def work() -> None:
        async with opened(factory) as store:
            await write(store, *["a"] * 200, n="before")
            kept = await whole(store)
            older = await store.run(lambda tx: tx.heads())
            await write(store, *["a"] * lost, n="lost")
            cursor = (await whole(store, kept.cursor)).cursor
            await restore(store, older)
            assert {e.id for e in (await whole(store, cursor)).events} <= {
                e.id for e in kept.events
            }, "what is read again has the ids that it had"
            await write(store, *["a"] * 3, n="new")
            again = await whole(store, cursor)
            assert [e.row.entry["n"] for e in again.events].count("new") == 3
            assert again.gap == 0
            assert len(again.events) <= 3 + 32 * (1 + lost // 32) + (lost > 32) * 200
            assert (await whole(store, again.cursor)).events == []

    run(work)


def test_a_database_restored_from_before_the_reader_began_is_read_from_its_beginning(
    factory: Factory,
) -> None:
    async def work() -> None:
        async with opened(factory) as store:
            await write(store, *["a"] * 10)
            cursor = await newest(store)
            await restore(store, {})
            await write(store, "b", "a")
            assert names(await whole(store, cursor)) == ["a", "b"]

    run(work)


@pytest.mark.parametrize("text", ["", "x", "é", "AQ", "A" * 1025, "Ag" + "A" * 1024])
def test_what_is_no_cursor_is_an_error(text: str, factory: Factory) -> None:
    async def work() -> None:
        async with opened(factory) as store:
            with pytest.raises(ValueError, match="no cursor"):
                await read(store, text)

    run(work)


def test_rows_leave_only_when_they_are_on_the_disk(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another process may have committed them without waiting for the disk."""

    def full(_: int) -> None:
        raise OSError(errno.EIO, "the disk is gone")

    async def work() -> None:
        async with (
            opened(lambda: SqliteStore(path)) as store,
            opened(lambda: SqliteStore(path)) as second,
        ):
            await second.run(Reading(lambda tx: log.append(tx, {"id": "a"}), flushed=False))
            monkeypatch.setattr(os, "fdatasync", full)
            with pytest.raises(LedgerUnavailable, match="flushed"):
                await read(store)
            monkeypatch.undo()

    run(work)
