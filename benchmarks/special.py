"""What is no turn under load: start, memory, `/health` while turns block, approvals."""

from __future__ import annotations

import asyncio
import json
import os
import re
import time
from collections.abc import Sequence
from itertools import repeat
from statistics import median

from benchmarks.load import HOST, Client, Idle, LoadError, Timings, Whole, drive, open_clients, post
from benchmarks.measure import Found, Run, percentile
from benchmarks.process import Process, running
from benchmarks.scenarios import SMALL, Target

CHAT = "/api/chat"


async def ask(port: int, body: bytes | None, path: str = CHAT) -> tuple[float, bytes]:
    """One request on a connection of its own: seconds, and the body of the answer."""
    began = time.perf_counter()
    reader, writer = await asyncio.open_connection(HOST, port)
    if body is None:
        writer.write(f"GET {path} HTTP/1.1\r\nHost: {HOST}\r\nConnection: close\r\n\r\n".encode())
    else:
        writer.write(post(path, body).replace(b"\r\n", b"\r\nConnection: close\r\n", 1))
    answer = await reader.read()
    writer.close()
    if not answer.startswith(b"HTTP/1.1 200"):
        raise LoadError(repr(answer[:300]))
    return time.perf_counter() - began, answer.split(b"\r\n\r\n", 1)[1]


def health_while_blocked(run: Run, quick: bool) -> Found:
    """`/health` during 64 turns that block two seconds; milliseconds and seconds."""
    found = {}
    for name, target in {
        "sync callable": Target("assent_server", ("block",)),
        "async def callable": Target("assent_server", ("block_async",)),
        "tool": Target("assent_server", ("block_tool",)),
        "interceptor": Target("assent_server", ("block_interceptor",)),
        "plain FastAPI, async def, 8 turns": Target("plain_server", (), "/block_async"),
    }.items():
        if quick and "plain" in name:
            continue
        with running(name, target.script, target.arguments) as server:
            found[name] = run(_blocked(server, target.path, 8 if "plain" in name else 64))
    return found


async def _blocked(server: Process, path: str, count: int) -> Found:
    await ask(server.port, None, "/health")
    began = time.perf_counter()
    turns = asyncio.gather(*(ask(server.port, SMALL, path) for _ in range(count)))
    waits = []
    while not turns.done():
        took, _ = await ask(server.port, None, "/health")
        waits.append(took)
        await asyncio.sleep(0.002)
    await turns
    whole = time.perf_counter() - began
    return {
        "p99 ms": round(percentile(waits, 0.99) * 1000, 2),
        "max ms": round(max(waits) * 1000, 2),
        "answers": len(waits),
        "all done s": round(whole, 2),
    }


def start(run: Run, quick: bool) -> Found:
    """Seconds to the first `/health`, and resident MB after it; the servers in turn."""
    servers = {
        "assent, V1 and V2": ("assent_server", ("reply",)),
        "plain FastAPI": ("plain_server", ()),
    }
    times: dict[str, list[float]] = {name: [] for name in servers}
    sizes: dict[str, list[float]] = {name: [] for name in servers}
    for number in range(4 if quick else 10):
        for name in servers if number % 2 else reversed(servers):
            with running(name, *servers[name]) as server:
                # `running` has waited for the first answer; the first start fills the caches.
                if number:
                    times[name].append(server.took)
                    sizes[name].append(server.memory())
    ours, plain = times.values()
    return {
        **{
            name: {
                "start s": round(median(times[name]), 3),
                "idle MB": round(median(sizes[name]), 1),
            }
            for name in servers
        },
        "start, × plain": round(median(a / b for a, b in zip(ours, plain, strict=True)), 2),
    }


def idle_sockets(run: Run, quick: bool) -> Found:
    """Memory of an open WebSocket that says nothing, and turns beside them."""
    count, rounds = (500, 1) if quick else (2000, 5)
    found = {}
    for name, (script, arguments) in {
        "assent": ("assent_server", ("deltas",)),
        "plain FastAPI": ("plain_server", ()),
    }.items():
        with running(name, script, arguments) as server:
            found[name] = run(_idle(server, count, rounds))
    return found


async def _idle(server: Process, count: int, rounds: int) -> Found:
    request = post(CHAT, SMALL)
    await drive(Whole, server.port, request, 8, 0.5)
    before = server.memory()
    ratios: list[float] = []
    each = 0.0
    for _ in range(rounds):
        alone = await _cost(server, request)
        # Held while nothing else goes on; the first opening is the one whose memory is new.
        clients = await open_clients(Idle, server.port, repeat(b""), count, Timings(), _nothing)
        await _upgraded(clients)
        each = each or (server.memory() - before) * 1024 / count
        ratios.append(alone / await _cost(server, request))
        for client in clients:
            client.transport.close()
        await asyncio.sleep(0.5)
    return {
        "connections": count,
        "KB each": round(each, 1),
        "turns alone / beside": round(median(ratios), 2),
        "rounds": [round(ratio, 2) for ratio in ratios],
    }


def _nothing() -> None:
    pass


async def _upgraded(clients: Sequence[Client]) -> None:
    deadline = time.perf_counter() + 60
    while any(client.running for client in clients):
        if time.perf_counter() > deadline:
            raise LoadError("not all WebSockets opened within a minute")
        await asyncio.sleep(0.05)
    errors = [client.error for client in clients if client.error]
    if errors:
        raise LoadError(errors[0])


async def _cost(server: Process, request: bytes) -> float:
    before = server.cpu()
    timings = await drive(Whole, server.port, request, 8, 1.5)
    return (server.cpu() - before) / len(timings.whole)


def approvals(run: Run, quick: bool) -> Found:
    """Propose, approve, run, reply: milliseconds of each request, one at a time and at once.

    On PostgreSQL too where ASSENT_BENCH_POSTGRES names a database.
    """
    found = {}
    stores = {"memory": "memory://", "sqlite": "sqlite:///approvals.db"}
    if url := os.environ.get("ASSENT_BENCH_POSTGRES"):
        stores["postgresql"] = url
    for name, url in stores.items():
        option = f"ledger={json.dumps(url)}"
        with running(name, "assent_server", ("approval", option)) as server:
            found[name] = run(approved(server, 50 if quick else 300))
    return found


async def approved(server: Process, count: int) -> Found:
    connections = [await Connection.to(server.port) for _ in range(32)]
    await asyncio.gather(*(_round_trips(each, 2) for each in connections))
    one = await _round_trips(connections[0], count)
    cpu, began = server.cpu(), time.perf_counter()
    at_once = await asyncio.gather(*(_round_trips(each, count // 8) for each in connections))
    took = time.perf_counter() - began
    for each in connections:
        each.close()
    ran = sum(len(trips) for trips in at_once)
    return {
        "propose p50 ms": round(median(p for p, _ in one) * 1000, 2),
        "approve p50 ms": round(median(a for _, a in one) * 1000, 2),
        "approvals a second": round(ran / took),
        "CPU µs": round((server.cpu() - cpu) / ran * 1e6),
    }


async def _round_trips(connection: Connection, count: int) -> list[tuple[float, float]]:
    return [await _round_trip(connection) for _ in range(count)]


async def _round_trip(connection: Connection) -> tuple[float, float]:
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
