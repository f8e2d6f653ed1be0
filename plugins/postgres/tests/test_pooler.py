"""The PostgreSQL store behind a pooler that gives each transaction a session of its own."""

from __future__ import annotations

import asyncio
import select
import socket
import struct
import threading
from collections.abc import Iterator
from contextlib import suppress
from urllib.parse import urlsplit

import psycopg
import pytest

from sayso import Owner
from sayso.ledger.conformance.samples import get, opened, proposal, put
from sayso_postgres.store import PostgresStore

_DISCARD = b"DISCARD ALL\0"


class Pooler:
    """A pooler like PgBouncer in transaction mode: nothing in a session outlives the transaction,
    and the number of the server's process is hidden."""

    def __init__(self, host: str, port: int) -> None:
        self._target = (host, port)
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port = self._listener.getsockname()[1]
        self.left: list[str] = []
        """Prepared statements and settings that transactions have left in their session."""
        threading.Thread(target=self._accept, daemon=True).start()

    def close(self) -> None:
        with suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()

    def _accept(self) -> None:
        with suppress(OSError):
            while True:
                pair = (self._listener.accept()[0], socket.create_connection(self._target))
                threading.Thread(target=self._serve, args=pair, daemon=True).start()

    def _serve(self, client: socket.socket, server: socket.socket) -> None:
        with client, server, suppress(OSError, EOFError):
            while True:
                ready, _, _ = select.select([client, server], [], [])
                if client in ready:
                    if not (data := client.recv(65536)):
                        return
                    server.sendall(data)
                else:
                    self._answer(client, server)

    def _answer(self, client: socket.socket, server: socket.socket) -> None:
        kind, body = _message(server)
        if kind == b"K":
            body = struct.pack("!i", 1) + body[4:]
        if (kind, body) == (b"Z", b"I"):
            self._forget(server)
        client.sendall(kind + struct.pack("!i", len(body) + 4) + body)

    def _forget(self, server: socket.socket) -> None:
        self.left += _asked(
            server,
            b"SELECT name FROM pg_prepared_statements UNION ALL "
            b"SELECT name FROM pg_settings WHERE source = 'session'\0",
        )
        _asked(server, _DISCARD)


def _message(server: socket.socket) -> tuple[bytes, bytes]:
    kind = _exactly(server, 1)
    (length,) = struct.unpack("!i", _exactly(server, 4))
    return kind, _exactly(server, length - 4)


def _exactly(server: socket.socket, count: int) -> bytes:
    data = b""
    while len(data) < count:
        if not (piece := server.recv(count - len(data))):
            raise EOFError
        data += piece
    return data


def _asked(server: socket.socket, sql: bytes) -> list[str]:
    """The only column of the answer to `sql`."""
    server.sendall(b"Q" + struct.pack("!i", len(sql) + 4) + sql)
    rows: list[str] = []
    while (message := _message(server))[0] != b"Z":
        if message[0] == b"D":
            rows.append(message[1][6:].decode())
    return rows


@pytest.fixture
def pooler(postgres_url: str) -> Iterator[tuple[Pooler, str]]:
    """A pooler before the server, and the address of the store by it."""
    parts = urlsplit(postgres_url)
    pooler = Pooler(parts.hostname or "127.0.0.1", parts.port or 5432)
    address = f"{parts.username}@127.0.0.1:{pooler.port}"
    plain = "sslmode=disable&gssencmode=disable"
    yield pooler, f"{parts.scheme}://{address}{parts.path}?{parts.query}&{plain}"
    pooler.close()


def test_a_pooler_between_transactions_is_no_fault(pooler: tuple[Pooler, str]) -> None:
    async def work() -> None:
        async with opened(lambda: PostgresStore(pooler[1])) as store:
            for name in ("a", "b", "c"):
                await put(store, proposal(name))
                assert (await get(store, name)).id == name
            owner = Owner("me", "", 1, 1.0)
            await put(store, proposal("d", state="EXECUTING", owner=owner))
            # One more than psycopg waits for before it prepares a statement by itself.
            for _ in range(6):
                await asyncio.to_thread(store.renew, "me", 60.0, ["d"])
            renewed = (await get(store, "d")).owner
            assert renewed is not None
            assert renewed.lease > 60.0

    asyncio.run(asyncio.wait_for(work(), 120))


def test_nothing_of_the_store_stays_in_a_session_that_a_pooler_gives_others(
    pooler: tuple[Pooler, str],
) -> None:
    async def work() -> None:
        async with opened(lambda: PostgresStore(pooler[1])) as store:
            await put(store, proposal("a"))
            await asyncio.to_thread(store.renew, "me", 60.0, ["a"])

    asyncio.run(asyncio.wait_for(work(), 120))
    assert pooler[0].left == []


def test_the_pooler_of_these_tests_forgets_what_a_session_was_told(
    pooler: tuple[Pooler, str],
) -> None:
    with psycopg.connect(pooler[1], autocommit=True) as raw:
        raw.execute("SET statement_timeout = '7s'")
        raw.execute("PREPARE seven AS SELECT 7")
        assert raw.execute("SHOW statement_timeout").fetchone() != ("7s",)
    assert pooler[0].left == ["statement_timeout", "seven"]
