"""The PostgreSQL store under faults: a server that is lost, silent, or gone during a commit."""

from __future__ import annotations

import asyncio
import logging
import socket
import threading
import time
import traceback
from collections.abc import Awaitable, Callable, Iterator
from contextlib import suppress
from typing import Any, TypeVar
from urllib.parse import urlsplit

import psycopg
import pytest

from ports import quiet_port
from sayso import ConfigError, LedgerUnavailable, Owner, Reading, Store, Transaction
from sayso.ledger import log
from sayso.ledger.conformance.samples import get, opened, proposal, put, turn
from sayso_postgres import store as postgres
from sayso_postgres.store import PostgresStore, _group

T = TypeVar("T")


def run(work: Callable[[], Awaitable[T]]) -> T:
    async def bounded() -> T:
        return await asyncio.wait_for(work(), 120)

    return asyncio.run(bounded())


async def refused(store: Store) -> LedgerUnavailable:
    with pytest.raises(LedgerUnavailable) as caught:
        await put(store, proposal("refused"))
    return caught.value


def test_ten_stores_make_the_tables_at_once(postgres_url: str) -> None:
    async def work() -> None:
        stores = [PostgresStore(postgres_url) for _ in range(10)]
        await asyncio.gather(*(store.open() for store in stores))
        await asyncio.gather(*(put(s, proposal(f"p{n}")) for n, s in enumerate(stores)))
        assert len(await stores[0].run(lambda tx: tx.find())) == 10
        await asyncio.gather(*(store.close() for store in stores))

    run(work)


def test_a_newer_schema_in_postgres_stops_the_start(postgres_url: str) -> None:
    async def work() -> None:
        store = PostgresStore(postgres_url)
        await store.open()
        await store.close()
        with psycopg.connect(postgres_url) as db:
            db.execute("UPDATE sayso_meta SET value = '99' WHERE key = 'schema'")
        with pytest.raises(ConfigError, match="schema 99"):
            await store.open()

    run(work)


@pytest.mark.parametrize(
    "url",
    [
        "postgresql://user:hunter2@127.0.0.1:1/db?sslpassword=hunter2",
        "postgresql://user@127.0.0.1:1/db?password=hunter2",
        "postgresql://user:hunter2/x@127.0.0.1:1/db",
        "postgresql://user:hunter2#x@127.0.0.1:1/db",
        "postgresql://user:hunter2?x@127.0.0.1:1/db",
        "postgresql://user:x@hunter2@127.0.0.1:1/db",
        "postgresql://user:hunter2@[::1/db",
    ],
)
def test_no_text_shows_the_password(url: str, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)
    with pytest.raises(ConfigError) as caught:
        store = PostgresStore(url)
        assert "hunter2" not in store.url + repr(store)
        run(store.open)
    assert "hunter2" not in "".join(traceback.format_exception(caught.value))
    assert "hunter2" not in caplog.text


class Proxy:
    """A TCP proxy in front of the server that can be cut, frozen, or lose everything after a
    COMMIT.

    It freezes by itself when a client sends `last_words`.
    """

    def __init__(self, host: str, port: int) -> None:
        self._target = (host, port)
        self._sockets: list[socket.socket] = []
        self.flowing = threading.Event()
        self.flowing.set()
        self.loses_commits = False
        self.last_words = b""
        self.port = quiet_port()
        self.back()

    def back(self) -> None:
        self._listener = socket.create_server(("127.0.0.1", self.port))
        threading.Thread(target=self._accept, args=(self._listener,), daemon=True).start()

    def strand(self) -> None:
        """Pass nothing more on existing connections; new ones work."""
        self.flowing.clear()
        self.flowing = threading.Event()
        self.flowing.set()

    def cut(self) -> None:
        with suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        for connection in self._sockets:
            with suppress(OSError):
                connection.shutdown(socket.SHUT_RDWR)
            connection.close()
        self._sockets.clear()

    def _accept(self, listener: socket.socket) -> None:
        with suppress(OSError):
            while True:
                client, _ = listener.accept()
                server = socket.create_connection(self._target)
                self._sockets += [client, server]
                for pair in ((client, server), (server, client)):
                    threading.Thread(target=self._pump, args=pair, daemon=True).start()

    def _pump(self, source: socket.socket, sink: socket.socket) -> None:
        flowing = self.flowing
        with suppress(OSError):
            while data := source.recv(65536):
                if self.last_words and self.last_words in data:
                    flowing.clear()
                flowing.wait(120)
                # A new connection sends "READ COMMITTED", which is no commit.
                if self.loses_commits and b"COMMIT\0" in data:
                    self.loses_commits = False
                    # Before the server can answer: its reply must not overtake the loss.
                    source.shutdown(socket.SHUT_RDWR)
                sink.sendall(data)
        for connection in (source, sink):
            with suppress(OSError):
                connection.shutdown(socket.SHUT_RDWR)


@pytest.fixture
def proxy(postgres_url: str) -> Iterator[tuple[Proxy, str]]:
    """A proxy before the test's server, and the URL through it."""
    parts = urlsplit(postgres_url)
    proxy = Proxy(parts.hostname or "127.0.0.1", parts.port or 5432)
    user = f"{parts.username}@" if parts.username else ""
    yield proxy, parts._replace(netloc=f"{user}127.0.0.1:{proxy.port}").geturl()
    proxy.flowing.set()
    proxy.cut()


def test_a_lost_server_refuses_works_until_it_is_back(proxy: tuple[Proxy, str]) -> None:
    between, url = proxy

    async def work() -> None:
        # With such a long patience, only an error that comes by itself comes in time.
        async with opened(lambda: PostgresStore(url, patience=600)) as store:
            await put(store, proposal("a"))
            between.cut()
            errors = await asyncio.gather(*(refused(store) for _ in range(20)))
            assert len(errors) == 20
            with pytest.raises(LedgerUnavailable):
                store.renew("me", 10, ["a"])
            between.back()
            await put(store, proposal("b"))
            store.renew("me", 10, ["a"])
            assert await get(store, "a") == proposal("a")
            assert await get(store, "refused") is None

    run(work)


def test_a_restart_while_idle_is_not_noticed(postgres_url: str) -> None:
    async def work() -> None:
        async with opened(lambda: PostgresStore(postgres_url)) as store:
            assert isinstance(store, PostgresStore)
            await put(store, proposal("a"))
            store.renew("me", 10, ["a"])
            with psycopg.connect(postgres_url) as db:
                for connection in (store._lanes[0], store._renewer):
                    assert connection._raw
                    pid = connection._raw.info.backend_pid
                    db.execute("SELECT pg_terminate_backend(%s, 60000)", (pid,))
            await put(store, proposal("b"))
            store.renew("me", 10, ["a"])

    run(work)


def test_a_connection_that_stays_read_only_is_given_up(postgres_url: str) -> None:
    """The situation after a failover, when the former primary continues as a standby."""

    async def work() -> None:
        async with opened(lambda: PostgresStore(postgres_url)) as store:
            assert isinstance(store, PostgresStore)
            await put(store, proposal("a"))
            pipeline = store._lanes[0]._pipeline
            assert pipeline
            pipeline.send("SET default_transaction_read_only = on")
            pipeline.answers()
            await put(store, proposal("b"))
            assert await get(store, "b") == proposal("b")

    run(work)


def test_a_server_that_takes_no_writes_is_passed_over(postgres_url: str) -> None:
    read_only = f"{postgres_url}%20-cdefault_transaction_read_only%3Don"

    async def work() -> None:
        with pytest.raises(ConfigError, match="session is read-only"):
            await PostgresStore(read_only).open()

    run(work)


def test_a_server_that_does_not_answer_gives_an_error_in_time(proxy: tuple[Proxy, str]) -> None:
    between, url = proxy

    async def work() -> None:
        async with opened(lambda: PostgresStore(url, patience=3)) as store:
            await put(store, proposal("a"))
            between.flowing.clear()
            assert "in time" in str(await refused(store))
            between.flowing.set()
            await settled(store)

    run(work)


def test_a_lease_is_renewed_past_a_connection_that_never_answers(
    proxy: tuple[Proxy, str],
) -> None:
    between, url = proxy

    async def work() -> None:
        async with opened(lambda: PostgresStore(url, patience=2)) as store:
            await put(store, proposal("a", state="EXECUTING", owner=Owner("me", "boot", 1, 5.0)))
            await asyncio.to_thread(store.renew, "me", 1.0, ["a"])
            between.strand()
            await asyncio.wait_for(asyncio.to_thread(store.renew, "me", 3600.0, ["a"]), 60)
            await settled(store)
            row = await get(store, "a")
            assert row
            assert row.owner
            assert row.owner.lease > time.time() + 3000

    run(work)


@pytest.mark.parametrize("last_words", [b"SET SESSION", b"UPDATE"])
def test_a_server_that_never_answers_holds_up_no_close(
    proxy: tuple[Proxy, str], last_words: bytes
) -> None:
    between, url = proxy
    url = url.replace("connect_timeout=60", "connect_timeout=3")

    async def work() -> None:
        store = PostgresStore(url)
        await store.open()
        between.last_words = last_words
        renewing = asyncio.create_task(asyncio.to_thread(store.renew, "me", 3600.0, ["a"]))
        while between.flowing.is_set():  # noqa: ASYNC110
            await asyncio.sleep(0.01)
        await asyncio.wait_for(store.close(), 30)
        # The answer to an UPDATE contains that word, too.
        between.last_words = b""
        between.flowing.set()
        with suppress(LedgerUnavailable):
            await renewing

    run(work)


def test_a_server_that_is_silent_on_a_new_connection_holds_up_no_work_for_good(
    proxy: tuple[Proxy, str],
) -> None:
    between, url = proxy
    url = url.replace("connect_timeout=60", "connect_timeout=3")

    async def work() -> None:
        async with opened(lambda: PostgresStore(url, patience=600)) as store:
            between.last_words = b"SET SESSION"
            between.cut()
            between.back()
            await asyncio.wait_for(refused(store), 60)
            with pytest.raises(LedgerUnavailable):
                await asyncio.wait_for(asyncio.to_thread(store.renew, "me", 3600.0, ["a"]), 60)
            between.last_words = b""
            between.strand()
            await settled(store)
            store.renew("me", 10, ["a"])

    run(work)


def test_a_machine_that_vanishes_in_mid_batch_keeps_no_lock_for_hours(postgres_url: str) -> None:
    """The server asks its operating system: it shows the settings of its socket."""

    async def work() -> None:
        async with opened(lambda: PostgresStore(postgres_url)) as store:
            assert isinstance(store, PostgresStore)
            await put(store, proposal("a"))
            pipeline = store._lanes[0]._pipeline
            assert pipeline
            for name in ("keepalives_idle", "keepalives_interval", "keepalives_count"):
                pipeline.send(f"SHOW tcp_{name}")
            pipeline.send("SHOW tcp_user_timeout")
            assert [row[0] for [row] in pipeline.answers()] == ["5", "2", "3", "5000"]

    run(work)


@pytest.mark.parametrize("last_words", [b"advisory", b"CREATE TABLE", b"UPDATE"])
def test_a_server_that_falls_silent_during_a_start_holds_it_up_no_longer_than_a_while(
    proxy: tuple[Proxy, str], last_words: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    between, url = proxy
    between.last_words = last_words
    monkeypatch.setattr(postgres, "OPENING", 3.0)

    async def work() -> None:
        with pytest.raises(ConfigError, match="check that the server runs"):
            await asyncio.wait_for(PostgresStore(url).open(), 60)

    run(work)


async def settled(store: Store) -> None:
    """Wait until the store accepts works again."""
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline:
        with suppress(LedgerUnavailable):
            return await put(store, proposal("settled"))
        await asyncio.sleep(0.05)
    raise AssertionError("the store did not recover")


def test_a_commit_of_unknown_outcome_is_no_success(proxy: tuple[Proxy, str]) -> None:
    between, url = proxy

    async def work() -> None:
        async with opened(lambda: PostgresStore(url)) as store:
            await put(store, proposal("counter"))
            between.loses_commits = True
            with pytest.raises(LedgerUnavailable, match="during a commit"):
                await store.run(increment)
            assert await store.run(increment) in (1, 2)
            assert await log.verify_store(store) is None

    run(work)


def increment(tx: Transaction) -> int:
    row = tx.proposals(["counter"])["counter"]
    row.fence += 1
    tx.put(row)
    log.append(tx, {"event": "increment", "to": row.fence})
    return row.fence


def test_a_deadlock_is_tried_again(postgres_url: str) -> None:
    tries: list[int] = []

    def work(tx: Transaction) -> int:
        tries.append(1)
        tx.put(proposal(f"try{len(tries)}"))
        if len(tries) < 3:
            raise psycopg.errors.DeadlockDetected
        return len(tx.find())

    async def main() -> None:
        async with opened(lambda: PostgresStore(postgres_url)) as store:
            assert await store.run(work) == 1

    run(main)
    assert len(tries) == 3


def test_calls_found_by_a_search_are_locked_after_their_turn(postgres_url: str) -> None:
    """In one order with calls that are read by their ids, or the two would wait for each other."""

    def work(tx: Transaction) -> None:
        assert len(tx.find(turn="t")) == 1
        with psycopg.connect(postgres_url) as other, pytest.raises(psycopg.errors.LockNotAvailable):
            other.execute("SELECT id FROM sayso_turns FOR UPDATE NOWAIT")

    async def main() -> None:
        async with opened(lambda: PostgresStore(postgres_url)) as store:
            await put(store, turn("t"), proposal("a", turn="t"))
            await store.run(work)

    run(main)


def test_a_refused_statement_spares_the_other_works(postgres_url: str) -> None:
    def broken(tx: Any) -> None:
        tx.put(proposal("lost"))
        tx._db.read("SELECT 1 / 0")

    async def work() -> None:
        async with opened(lambda: PostgresStore(postgres_url)) as store:
            results = await asyncio.gather(
                put(store, proposal("a")),
                store.run(broken),
                put(store, turn("t")),
                store.run(broken),
                return_exceptions=True,
            )
            assert [type(r) for r in results] == [
                type(None),
                LedgerUnavailable,
                type(None),
                LedgerUnavailable,
            ]
            assert await get(store, "a") == proposal("a")
            assert await get(store, "lost") is None

    run(work)


def test_a_reading_waits_for_no_lock(postgres_url: str) -> None:
    async def work() -> None:
        async with opened(lambda: PostgresStore(postgres_url)) as store:
            await put(store, turn("t"), proposal("a", turn="t"))
            with psycopg.connect(postgres_url) as other:
                for table in ("proposals", "turns", "chains"):
                    other.execute(f"SELECT * FROM sayso_{table} FOR UPDATE".encode())

                def look(tx: Transaction) -> list[object]:
                    return [*tx.proposals(["a"]), *tx.turns(["t"]), len(tx.find()), tx.heads()]

                reading = Reading(look, proposals=["a"], turns=["t"], only=True)
                assert await asyncio.wait_for(store.run(reading), 5) == ["a", "t", 1, {}]

    run(work)


def test_works_on_other_calls_do_not_wait_for_one_that_is_held_up(postgres_url: str) -> None:
    async def work() -> None:
        async with opened(lambda: PostgresStore(postgres_url)) as store:
            await put(store, proposal("a"), proposal("b"))
            with psycopg.connect(postgres_url) as other:
                other.execute("SELECT * FROM sayso_proposals WHERE id = 'a' FOR UPDATE")
                held_up = asyncio.ensure_future(store.run(lambda tx: tx.proposals(["a"])))
                with psycopg.connect(postgres_url, autocommit=True) as looking:
                    deadline = time.monotonic() + 60
                    asked = "SELECT 1 FROM pg_stat_activity WHERE wait_event_type = 'Lock'"
                    while not looking.execute(asked).fetchall():
                        assert time.monotonic() < deadline
                        await asyncio.sleep(0.01)
                row = await asyncio.wait_for(store.run(lambda tx: tx.proposals(["b"])), 5)
                assert list(row) == ["b"]
                assert not held_up.done()
            assert list(await held_up) == ["a"]

    run(work)


def test_process_that_stands_still_in_a_transaction_holds_others_up_for_three_seconds(
    postgres_url: str,
) -> None:
    stopped, goes_on = threading.Event(), threading.Event()

    def stand_still(tx: Transaction) -> None:
        tx.proposals(["a"])
        stopped.set()
        goes_on.wait(120)
        tx.put(proposal("a", output="late"))

    async def work() -> None:
        async with (
            opened(lambda: PostgresStore(postgres_url, patience=60)) as frozen,
            opened(lambda: PostgresStore(postgres_url)) as other,
        ):
            await put(other, proposal("a"))
            standing = asyncio.create_task(frozen.run(stand_still))
            await asyncio.to_thread(stopped.wait)
            began = time.monotonic()
            assert list(await other.run(lambda tx: tx.proposals(["a"]))) == ["a"]
            assert time.monotonic() - began < 5
            goes_on.set()
            with pytest.raises(LedgerUnavailable):
                await standing
            row = await get(other, "a")
            assert row is not None
            assert row.output is None, "it was undone when its session ended"

    run(work)


def test_works_that_start_together_ask_together(postgres_url: str) -> None:
    """One round trip for everything that they read, and one for everything that they write."""
    names = [f"p{number}" for number in range(20)]

    def work(name: str) -> Reading[None]:
        def step(tx: Transaction) -> None:
            row = tx.proposals([name])[name]
            assert list(tx.turns([row.turn])) == ["t"]
            row.fence += 1
            tx.put(row)
            log.append(tx, {"id": name})

        return Reading(step, proposals=[name])

    async def main() -> None:
        async with opened(lambda: PostgresStore(postgres_url)) as store:
            assert isinstance(store, PostgresStore)
            await put(store, turn("t"), *(proposal(name, turn="t") for name in names))
            db = store._lanes[0]
            assert db._pipeline
            trips: list[int] = []
            answers = db._pipeline.answers

            def counted() -> list[list[Any]]:
                trips.append(1)
                return answers()

            db._pipeline.answers = counted  # type: ignore[method-assign]
            outcomes = _group(db, [work(name) for name in names])
            assert [outcome.error for outcome in outcomes] == [None] * 20
            assert len(trips) == 2

    run(main)


def test_strange_keys_are_values_of_an_array(postgres_url: str) -> None:
    names = ['"', "\\", ",", "{}", "NULL", "", "a b", "\\u0041", "é"]

    async def work() -> None:
        async with opened(lambda: PostgresStore(postgres_url)) as store:
            await put(store, *(proposal(name) for name in names))
            assert set(await store.run(lambda tx: tx.proposals(names))) == set(names)

    run(work)
