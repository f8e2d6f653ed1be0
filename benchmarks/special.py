"""What is no turn under load: start, memory, `/health` while turns block, approvals, growth."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Callable, Coroutine, Mapping
from statistics import median
from typing import Any

from benchmarks.load import HOST, Idle, LoadError, Timings, Whole, drive, open_clients, post
from benchmarks.measure import percentile
from benchmarks.process import CORES, Process, running
from benchmarks.scenarios import SMALL, Target, conversation

Run = Callable[[Coroutine[Any, Any, Any]], Any]
Found = dict[str, Any]
Say = Callable[[str], None]
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
    """Seconds to the first `/health`, and resident MB after it; the median of the starts."""
    found = {}
    for name, (script, arguments) in {
        "assent, V1 and V2": ("assent_server", ("reply",)),
        "plain FastAPI": ("plain_server", ()),
    }.items():
        times, sizes = [], []
        for _ in range(3 if quick else 7):
            with running(name, script, arguments) as server:
                # `running` has waited for the first answer already.
                times.append(server.took)
                sizes.append(server.memory())
        found[name] = {"start s": round(median(times), 3), "idle MB": round(median(sizes), 1)}
    return found


def idle_sockets(run: Run, quick: bool) -> Found:
    """Memory of an open WebSocket that says nothing, and turns beside them."""
    count = 500 if quick else 2000
    found = {}
    for name, (script, arguments) in {
        "assent": ("assent_server", ("deltas",)),
        "plain FastAPI": ("plain_server", ()),
    }.items():
        with running(name, script, arguments) as server:
            found[name] = run(_idle(server, count))
    return found


async def _idle(server: Process, count: int) -> Found:
    request = post(CHAT, SMALL)
    await drive(Whole, server.port, request, 8, 0.5)
    alone = await _cost(server, request)
    before = server.memory()
    clients = await open_clients(Idle, server.port, b"", count, Timings(), lambda: None)
    await asyncio.sleep(1.0)
    each = (server.memory() - before) * 1024 / count
    beside = await _cost(server, request)
    for client in clients:
        client.transport.close()
    return {
        "connections": count,
        "KB each": round(each, 1),
        "turns alone / beside": round(alone / beside, 2),
    }


async def _cost(server: Process, request: bytes) -> float:
    before = server.cpu()
    timings = await drive(Whole, server.port, request, 8, 1.5)
    return (server.cpu() - before) / len(timings.whole)


def approvals(run: Run, quick: bool) -> Found:
    """Propose, approve, run, reply: milliseconds of each request, one at a time and at once."""
    found = {}
    for name, url in {"memory": "memory://", "sqlite": "sqlite:///approvals.db"}.items():
        option = f"ledger={json.dumps(url)}"
        with running(name, "assent_server", ("approval", option)) as server:
            found[name] = run(_approved(server, 50 if quick else 300))
    return found


async def _approved(server: Process, count: int) -> Found:
    await asyncio.gather(*(_round_trip(server.port) for _ in range(8)))
    one = [await _round_trip(server.port) for _ in range(count)]
    began = time.perf_counter()
    limit = asyncio.Semaphore(32)

    async def bounded() -> None:
        async with limit:
            await _round_trip(server.port)

    await asyncio.gather(*(bounded() for _ in range(count * 2)))
    rate = count * 2 / (time.perf_counter() - began)
    return {
        "propose p50 ms": round(median(p for p, _ in one) * 1000, 2),
        "approve p50 ms": round(median(a for _, a in one) * 1000, 2),
        "approvals a second": round(rate),
    }


async def _round_trip(port: int) -> tuple[float, float]:
    asked = {"role": "user", "content": "delete web"}
    proposing, body = await ask(port, json.dumps({"messages": [asked]}).encode())
    (call,) = json.loads(body)["data"]["tool_calls"]
    deciding = {"role": "user", "content": "", "data": {"tool_calls": [{**call, "execute": True}]}}
    replied = {"role": "assistant", "content": "", "data": {"tool_calls": [call]}}
    approving, body = await ask(port, json.dumps({"messages": [asked, replied, deciding]}).encode())
    if json.loads(body)["data"]["executed_tool_calls"][0]["output"] != "web is gone":
        raise LoadError(repr(body[:300]))
    return proposing, approving


def growth(run: Run, quick: bool) -> Found:
    """CPU time a turn, in microseconds, as messages, tools and interceptors become more."""
    found: Found = {"messages": {}, "tools": {}, "interceptors": {}}
    with running("messages", "assent_server", ("reply",)) as server:
        for count in (1, 10, 100, 1000, 10_000):
            body = post(CHAT, conversation(count))
            found["messages"][count] = run(_growing(server, body))
    for count in (1, 10, 100, 500):
        with running("tools", "assent_server", ("tools", f"count={count}")) as server:
            found["tools"][count] = run(_growing(server, post(CHAT, SMALL)))
    for count in (0, 1, 5, 20):
        with running("interceptors", "assent_server", ("intercepted", f"count={count}")) as server:
            found["interceptors"][count] = run(_growing(server, post(CHAT, SMALL)))
    return found


async def _growing(server: Process, request: bytes) -> int:
    await drive(Whole, server.port, request, 8, 0.3)
    before = server.cpu()
    timings = await drive(Whole, server.port, request, 8, 1.0)
    return round((server.cpu() - before) / len(timings.whole) * 1e6)


def worker_processes(run: Run, quick: bool) -> Found:
    """Turns a second with one worker process and with two, on all cores."""
    found: Found = {"cores": len(CORES)}
    for count in (1, 2):
        arguments = ("reply", f"workers={count}")
        with running("workers", "assent_server", arguments, cores=set(CORES)) as server:
            run(drive(Whole, server.port, post(CHAT, SMALL), 64, 1.0))
            timings = run(drive(Whole, server.port, post(CHAT, SMALL), 64, 3.0))
            found[f"{count} workers, turns a second"] = round(len(timings.whole) / 3.0)
    return found


ALL: Mapping[str, Callable[[Run, bool], Found]] = {
    "health while 64 turns block": health_while_blocked,
    "start": start,
    "idle WebSockets": idle_sockets,
    "approvals": approvals,
    "growth": growth,
    "worker processes": worker_processes,
}


def attempt(
    name: str, function: Callable[[Run, bool], Found], run: Run, quick: bool, say: Say
) -> Found | None:
    """What was found; None, and said, when a server or a request failed."""
    say(name)
    try:
        found = function(run, quick)
    except (RuntimeError, LoadError, OSError) as error:
        say(f"  failed: {str(error)[-500:]}")
        return None
    for key, value in found.items():
        say(f"  {key}: {value}")
    return found


def table(others: Mapping[str, Found]) -> str:
    """Each finding as a line."""
    lines = []
    for name, found in others.items():
        lines += ["", f"**{name}**", ""]
        lines += [f"- {key}: {_flat(value)}" for key, value in found.items()]
    return "\n".join(lines)


def _flat(value: Any) -> str:
    if isinstance(value, dict):
        return ", ".join(f"{key}: {part}" for key, part in value.items())
    return str(value)
