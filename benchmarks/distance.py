"""Approvals on a PostgreSQL server at some distance: `python -m benchmarks.distance HOST PORT MS`.

Run as a program, it is a proxy on a port of its own, which it prints: the server's answers arrive
this many milliseconds later. Round trips are the cost of a distant store; nothing else is added.
"""

from __future__ import annotations

import asyncio
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from statistics import median
from urllib.parse import urlsplit

from benchmarks.load import HOST
from benchmarks.measure import Found, Run
from benchmarks.process import ROOT, Process, running
from benchmarks.stores import PATIENT, Connection, NoServer, postgres, round_trip

ADDED = (0, 1, 2, 5, 10, 20)
CLIENTS = 32


def far_approvals(run: Run, quick: bool) -> Found:
    """Approvals a second and CPU µs each, on 32 connections a service, by the milliseconds added
    to each round trip to the server; two services at the largest distance, too."""
    seconds = 1.0 if quick else 5.0
    found: Found = {}
    for added in ADDED[::2] if quick else ADDED:
        try:
            found[f"{added} ms"] = _measured(run, added, 1, seconds)
        except NoServer as error:
            return {"postgresql": f"left out: {error}"}
    farthest = max(ADDED)
    two = found[f"{farthest} ms, two services"] = _measured(run, farthest, 2, seconds)
    if (one := found.get(f"{farthest} ms")) is None:
        one = _measured(run, farthest, 1, seconds)
    rate = "approvals a second"
    found["two services against one"] = round(two[rate] / one[rate], 2)
    return found


def _measured(run: Run, added: int, services: int, seconds: float) -> Found:
    with ExitStack() as stack:
        url = stack.enter_context(postgres())
        parts = urlsplit(url)
        port = stack.enter_context(_proxy(parts.hostname or HOST, parts.port or 5432, added))
        user = f"{parts.username}@" if parts.username else ""
        far = parts._replace(netloc=f"{user}{HOST}:{port}").geturl()
        arguments = ("approval", f'ledger="{far}"', *PATIENT)
        servers = [
            stack.enter_context(running(f"service {n}", "sayso_server", arguments))
            for n in range(services)
        ]
        trip = _trip(far)
        return {"round trip ms": round(trip * 1000, 2)} | run(_driven(servers, seconds))


def _trip(url: str) -> float:
    import psycopg

    def one(db: psycopg.Connection) -> float:
        began = time.perf_counter()
        db.execute("SELECT 1")
        return time.perf_counter() - began

    with psycopg.connect(url, autocommit=True) as db:
        return median(one(db) for _ in range(50))


async def _driven(servers: Sequence[Process], seconds: float) -> Found:
    connections = [await Connection.to(each.port) for each in servers for _ in range(CLIENTS)]
    await asyncio.gather(*(round_trip(each) for each in connections))
    cpu, own = sum(each.cpu() for each in servers), time.process_time()
    began = time.perf_counter()
    counts = await asyncio.gather(*(_until(each, began + seconds) for each in connections))
    took = time.perf_counter() - began
    ran = sum(counts)
    for each in connections:
        each.close()
    return {
        "approvals a second": round(ran / took),
        "CPU µs": round((sum(each.cpu() for each in servers) - cpu) / ran * 1e6),
        "load": round((time.process_time() - own) / took, 2),
    }


async def _until(connection: Connection, end: float) -> int:
    count = 0
    while time.perf_counter() < end:
        await round_trip(connection)
        count += 1
    return count


@contextmanager
def _proxy(host: str, port: int, added: int) -> Iterator[int]:
    """The port of a proxy before the server; the server's own if nothing is added."""
    if not added:
        yield port
        return
    command = [sys.executable, "-m", "benchmarks.distance", host, str(port), str(added)]
    with subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, text=True) as proxy:
        assert proxy.stdout is not None
        try:
            yield int(proxy.stdout.readline())
        finally:
            proxy.terminate()


class _Pipe(asyncio.Protocol):
    """One direction of a connection: what arrives is written to `sink` after `delay` seconds."""

    def __init__(self, delay: float) -> None:
        self._loop = asyncio.get_running_loop()
        self._delay = delay
        self.sink: asyncio.WriteTransport | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = transport

    def data_received(self, data: bytes) -> None:
        assert self.sink is not None
        if self._delay:
            self._loop.call_later(self._delay, self.sink.write, data)
        else:
            self.sink.write(data)

    def connection_lost(self, exc: Exception | None) -> None:
        if self.sink is not None:
            self._loop.call_later(self._delay, self.sink.close)


async def _serve(host: str, port: int, delay: float) -> None:
    loop = asyncio.get_running_loop()

    async def join(client: _Pipe) -> None:
        _, server = await loop.create_connection(lambda: _Pipe(delay), host, port)
        client.sink, server.sink = server.transport, client.transport  # type: ignore[assignment]
        client.transport.resume_reading()  # type: ignore[attr-defined]

    joining = set()

    class Client(_Pipe):
        def connection_made(self, transport: asyncio.BaseTransport) -> None:
            super().connection_made(transport)
            transport.pause_reading()  # type: ignore[attr-defined]
            task = loop.create_task(join(self))
            joining.add(task)
            task.add_done_callback(joining.discard)

    listening = await loop.create_server(lambda: Client(0.0), HOST, 0)
    print(listening.sockets[0].getsockname()[1], flush=True)
    await listening.serve_forever()


if __name__ == "__main__":
    asyncio.run(_serve(sys.argv[1], int(sys.argv[2]), float(sys.argv[3]) / 1000))
