"""An approved call on each store of the ledger: propose, approve, run, reply."""

from __future__ import annotations

import asyncio
import json
import os
import re
import secrets
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from statistics import median

from benchmarks.load import HOST, LoadError, post
from benchmarks.measure import Found, Run
from benchmarks.process import Process, running
from benchmarks.special import CHAT

POSTGRES = "SAYSO_BENCH_POSTGRES"
"""The variable that names a PostgreSQL database in which schemas may be made."""
USUAL = "postgresql://postgres@127.0.0.1:5432/test"
PATIENT = ("timeout_keep_alive=600",)
"""Connections wait while others are measured."""
P50 = ("propose p50 ms", "approve p50 ms")


class NoServer(Exception):
    """PostgreSQL cannot be measured here; says why."""


def approvals(run: Run, quick: bool) -> Found:
    """Milliseconds of each request and approvals a second; the stores in turn, like the turns."""
    found: Found = {}
    urls = {"memory": "memory://", "sqlite": "sqlite:///approvals.db"}
    with ExitStack() as stack:
        try:
            urls["postgresql"] = stack.enter_context(postgres())
        except NoServer as error:
            found["postgresql"] = f"left out: {error}"
        servers = {}
        for name, url in urls.items():
            arguments = ("approval", f'ledger="{url}"', *PATIENT)
            servers[name] = stack.enter_context(running(name, "sayso_server", arguments))
        rounds: dict[str, list[Found]] = {name: [] for name in servers}
        for number in range(2 if quick else 6):
            for name in servers if number % 2 else reversed(servers):
                figures = run(approved(servers[name], 16 if quick else 100))
                # The first round fills caches and creates tables.
                if number:
                    rounds[name].append(figures)
    for name, several in rounds.items():
        found[name] = {key: round(median(one[key] for one in several), 2) for key in several[0]}
        if name != "memory":
            found[name] |= _added(several, rounds["memory"])
    return found


def _added(several: list[Found], memory: list[Found]) -> Found:
    """The cost that a store adds to the requests, as the median of the rounds."""
    pairs = list(zip(several, memory, strict=True))
    added = {key: median(one[key] - base[key] for one, base in pairs) for key in P50}
    both = median(sum(one[key] - base[key] for key in P50) for one, base in pairs)
    return {
        "store adds p50 ms": round(both, 2),
        **{f"to {key.split()[0]}": round(value, 2) for key, value in added.items()},
    }


@contextmanager
def postgres() -> Iterator[str]:
    """The URL of a new schema, dropped at the end; raises NoServer if none can be made."""
    url = os.environ.get(POSTGRES, USUAL)
    try:
        import psycopg

        admin = psycopg.connect(url, autocommit=True, connect_timeout=3)
    except ImportError:
        raise NoServer("psycopg is not installed; try: pip install -e '.[postgres]'") from None
    except psycopg.Error as error:
        raise NoServer(f"set {POSTGRES} to a database: {str(error).splitlines()[0]}") from None
    schema = f"sayso_bench_{secrets.token_hex(6)}"
    with admin:
        admin.execute(f"CREATE SCHEMA {schema}".encode())
        try:
            yield f"{url}{'&' if '?' in url else '?'}options=-csearch_path%3D{schema}"
        finally:
            admin.execute(f"DROP SCHEMA {schema} CASCADE".encode())


async def approved(server: Process, count: int) -> Found:
    """This number of approved calls one at a time, then four times as many on 32 connections."""
    connections = [await Connection.to(server.port) for _ in range(32)]
    await asyncio.gather(*(_round_trips(each, 2) for each in connections))
    one = await _round_trips(connections[0], count)
    cpu, own, began = server.cpu(), time.process_time(), time.perf_counter()
    at_once = await asyncio.gather(*(_round_trips(each, count // 8) for each in connections))
    took = time.perf_counter() - began
    load = (time.process_time() - own) / took
    for each in connections:
        each.close()
    ran = sum(len(trips) for trips in at_once)
    return {
        "propose p50 ms": round(median(p for p, _ in one) * 1000, 2),
        "approve p50 ms": round(median(a for _, a in one) * 1000, 2),
        "approvals a second": round(ran / took),
        "CPU µs": round((server.cpu() - cpu) / ran * 1e6),
        "load": round(load, 2),
    }


async def _round_trips(connection: Connection, count: int) -> list[tuple[float, float]]:
    return [await round_trip(connection) for _ in range(count)]


async def round_trip(connection: Connection) -> tuple[float, float]:
    """Seconds of the request that has a call proposed, and of the one that approves it."""
    asked = {"role": "user", "content": "delete web"}
    proposing, body = await connection.ask(json.dumps({"messages": [asked]}).encode())
    (call,) = json.loads(body)["data"]["tool_calls"]
    deciding = {"role": "user", "content": "", "data": {"tool_calls": [{**call, "execute": True}]}}
    replied = {"role": "assistant", "content": "", "data": {"tool_calls": [call]}}
    said = {"messages": [asked, replied, deciding]}
    approving, body = await connection.ask(json.dumps(said).encode())
    if json.loads(body)["data"]["executed_tool_calls"][0]["output"] != "web is gone":
        raise LoadError(repr(body[:300]))
    return proposing, approving


class Connection:
    """A connection that stays open, for requests one after another."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self._writer = writer

    @classmethod
    async def to(cls, port: int) -> Connection:
        """A new one."""
        return cls(*await asyncio.open_connection(HOST, port))

    async def ask(self, body: bytes) -> tuple[float, bytes]:
        """One request: seconds, and the body of the answer."""
        began = time.perf_counter()
        self._writer.write(post(CHAT, body))
        head = await self._reader.readuntil(b"\r\n\r\n")
        length = re.search(rb"content-length: (\d+)", head, re.IGNORECASE)
        if length is None or not head.startswith(b"HTTP/1.1 200"):
            raise LoadError(repr(head[:300]))
        answer = await self._reader.readexactly(int(length[1]))
        return time.perf_counter() - began, answer

    def close(self) -> None:
        """Close it."""
        self._writer.close()
