"""Measurements other than turns under load: start, memory, `/health` while turns block."""

from __future__ import annotations

import asyncio
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
        "sync callable": Target("sayso_server", ("block",)),
        "async def callable": Target("sayso_server", ("block_async",)),
        "tool": Target("sayso_server", ("block_tool",)),
        "interceptor": Target("sayso_server", ("block_interceptor",)),
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
    """Seconds to the first `/health`, and resident MB after it; the servers in turn.

    `own` is the part of the memory that no other process shares, such as the load generator, which
    runs the same interpreter.
    """
    servers = {
        "sayso, V1 and V2": ("sayso_server", ("reply",)),
        "plain FastAPI": ("plain_server", ()),
    }
    times: dict[str, list[float]] = {name: [] for name in servers}
    sizes: dict[str, list[float]] = {name: [] for name in servers}
    own: dict[str, list[float]] = {name: [] for name in servers}
    for number in range(4 if quick else 10):
        for name in servers if number % 2 else reversed(servers):
            with running(name, *servers[name]) as server:
                # `running` has waited for the first answer; the first start fills the caches.
                if number:
                    times[name].append(server.took)
                    sizes[name].append(server.memory())
                    own[name].append(server.private())
    return {
        **{
            name: {
                "start s": round(median(times[name]), 3),
                "idle MB": round(median(sizes[name]), 1),
                "own MB": round(median(own[name]), 1),
            }
            for name in servers
        },
        "start, × plain": _ratio(*times.values()),
        "idle MB, × plain": _ratio(*sizes.values()),
    }


def _ratio(ours: list[float], theirs: list[float]) -> float:
    return round(median(a / b for a, b in zip(ours, theirs, strict=True)), 2)


def idle_sockets(run: Run, quick: bool) -> Found:
    """Memory of an open but silent WebSocket, and turns beside such ones."""
    count, rounds = (500, 1) if quick else (2000, 3)
    found = {}
    for name, (script, arguments) in {
        "sayso": ("sayso_server", ("deltas",)),
        "plain FastAPI": ("plain_server", ()),
    }.items():
        with running(name, script, arguments) as server:
            found[name] = run(_idle(server, count, rounds))
    return found


async def _idle(server: Process, count: int, rounds: int) -> Found:
    request = post(CHAT, SMALL)
    await drive(Whole, server.port, request, 8, 0.5)
    ratios: list[float] = []
    each = 0.0
    for _ in range(rounds):
        alone = await _cost(server, request)
        before = server.memory()
        # Held while nothing else happens; only memory of the first opening is new.
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
