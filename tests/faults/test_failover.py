"""A failover to a standby that has not received everything (asynchronous replication)."""

from __future__ import annotations

import tempfile
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import psycopg
import pytest
from clusters import Server, programs, usable_by_server
from processes import Nursery, lines
from serving import Json, said, until, user

BIN = programs()
CONFIG = """
plugins = ["v2"]
[server]
state_dir = "state"
port = 0
drain_timeout = 1
[limits]
turn_time = 120
[approvals]
lease = "2s"
ledger = "{ledger}"
"""

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(BIN is None, reason="needs the programs of a PostgreSQL server"),
]


@pytest.fixture
def servers() -> Iterator[tuple[Server, Server]]:
    """A primary and its standby, both running."""
    assert BIN is not None
    # Not the test's own folder, whose path may be too long for a socket's.
    with tempfile.TemporaryDirectory(prefix="sayso-") as name:
        folder = Path(name)
        usable_by_server(folder)
        primary, standby = Server(BIN, folder / "primary"), Server(BIN, folder / "standby")
        try:
            primary.make()
            primary.start()
            standby.copy(primary)
            standby.start()
            yield primary, standby
        finally:
            for server in (primary, standby):
                server.stop()


def caught_up(primary: Server, standby: Server) -> bool:
    """Whether the standby has all that the primary has written."""
    with psycopg.connect(f"postgresql://postgres@127.0.0.1:{primary.port}/postgres") as db:
        written = db.execute("SELECT pg_current_wal_lsn()").fetchone()
    with psycopg.connect(f"postgresql://postgres@127.0.0.1:{standby.port}/postgres") as db:
        had = db.execute("SELECT pg_last_wal_replay_lsn() >= %s::pg_lsn", written).fetchone()
    return bool(had and had[0])


def test_end_of_a_call_that_a_failover_lost_holds_nobody_up(
    nursery: Nursery, tmp_path: Path, servers: tuple[Server, Server]
) -> None:
    primary, standby = servers
    hosts = f"127.0.0.1:{primary.port},127.0.0.1:{standby.port}"
    config = CONFIG.format(ledger=f"postgresql://postgres@{hosts}/postgres")
    one = nursery.start(tmp_path, config, HOLD="tool")
    first = user("wipe")
    reply = one.client.chat(first)
    calls = [{**call, "execute": True} for call in reply["data"]["tool_calls"]]
    messages = [first, said(reply), user("", data={"tool_calls": calls})]
    with ThreadPoolExecutor(1) as pool:
        running = pool.submit(one.client.chat, *messages)
        until(lambda: lines(tmp_path, "held"), "the run")
        until(lambda: caught_up(primary, standby), "the standby")
        # The standby receives nothing from here on: neither the call's outcome nor the turn's end.
        standby.stop("fast")
        (tmp_path / "go").touch()
        assert running.result()["content"] == "ended: wiped a"
    primary.stop()
    standby.start()
    standby.promote()
    began = time.monotonic()
    answer = insisted(one.client, messages)
    assert "Outcome unknown: this process ran it" in answer["content"]
    assert time.monotonic() - began < 60, "it waited for a call that had ended"
    assert lines(tmp_path, "runs") == ["a"]
    other = nursery.start(tmp_path, config)
    assert "Outcome unknown:" in insisted(other.client, messages)["content"]
    assert lines(tmp_path, "runs") == ["a"]
    nursery.clear()


def insisted(client: object, messages: list[Json]) -> Json:
    """The reply, as soon as the service has found the new primary."""

    def answer() -> Json | None:
        got = client.ask(*messages)  # type: ignore[attr-defined]
        assert got.status in (200, 503), got.json()
        return got.json() if got.status == 200 else None  # type: ignore[no-any-return]

    reply: Json = until(answer, "an answer")
    return reply
