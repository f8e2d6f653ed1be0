"""One worker process and two: capacity, with a load that uses nearly none of the cores."""

from __future__ import annotations

import selectors
import socket
import time
from contextlib import ExitStack
from dataclasses import dataclass
from statistics import median

from benchmarks.load import HOST, LoadError, post
from benchmarks.measure import Found, Run
from benchmarks.process import CORES, Process, running
from benchmarks.scenarios import SMALL

DEPTH = 8
"""Requests in flight on a connection."""


@dataclass(frozen=True, slots=True)
class Flood:
    """The result of a flood of turns; `load` is the fraction of a core that the client used."""

    turns: int
    seconds: float
    cpu: float
    load: float


def flood(server: Process, request: bytes, connections: int, seconds: float) -> Flood:
    """Keep this number of connections full until the time is over, and wait for the requests then
    under way.

    Replies are counted by their bytes and hardly read: the kernel wakes the client when all replies
    of a connection have arrived (SO_RCVLOWAT).
    """
    batch, expected = request * DEPTH, _size_of_a_reply(server.port, request) * DEPTH
    turns, busy = 0, connections
    with ExitStack() as stack:
        selector = stack.enter_context(selectors.DefaultSelector())
        for _ in range(connections):
            opened = stack.enter_context(socket.create_connection((HOST, server.port), 30))
            opened.setsockopt(socket.SOL_SOCKET, socket.SO_RCVLOWAT, expected)
            selector.register(opened, selectors.EVENT_READ, opened)
        cpu, own, began = server.cpu(), time.process_time(), time.perf_counter()
        for key in selector.get_map().values():
            key.data.sendall(batch)
        while busy:
            ready = selector.select(30.0)
            if not ready:
                raise LoadError("no replies came for half a minute")
            for key, _ in ready:
                connection: socket.socket = key.data
                replies = connection.recv(expected, socket.MSG_WAITALL)
                if replies.count(b"HTTP/1.1 200 OK\r\n") != DEPTH:
                    raise LoadError(repr(replies[:300]))
                turns += DEPTH
                if time.perf_counter() < began + seconds:
                    connection.sendall(batch)
                else:
                    busy -= 1
        took = time.perf_counter() - began
        return Flood(turns, took, server.cpu() - cpu, (time.process_time() - own) / took)


def _size_of_a_reply(port: int, request: bytes) -> int:
    with socket.create_connection((HOST, port), 30) as connection:
        connection.sendall(request)
        reply = b""
        while b"\r\n\r\n" not in reply:
            reply += connection.recv(65536)
        head = reply.split(b"\r\n\r\n")[0]
        if not head.startswith(b"HTTP/1.1 200"):
            raise LoadError(repr(reply[:300]))
        length = next(
            int(line.split(b":")[1])
            for line in head.split(b"\r\n")
            if line.lower().startswith(b"content-length")
        )
        return len(head) + 4 + length


def worker_processes(run: Run, quick: bool) -> Found:
    """One worker and two, visited in turn, on all cores.

    `capacity` is the work of two workers on two cores of their own against one on one: twice the
    turns of a CPU second. Turns a second reach that only on an idle machine.
    """
    rounds: dict[int, list[Flood]] = {1: [], 2: []}
    cores = set(CORES)
    with (
        running("one", "sayso_server", ("reply", "workers=1"), cores=cores) as one,
        running("two", "sayso_server", ("reply", "workers=2"), cores=cores) as two,
    ):
        servers = {1: one, 2: two}
        request = post("/api/chat", SMALL)
        for number in range(2 if quick else 6):
            for count in (1, 2) if number % 2 == 0 else (2, 1):
                flooded = flood(servers[count], request, 32, 0.5 if quick else 2.0)
                if number:
                    rounds[count].append(flooded)
    found: Found = {"cores": len(CORES)}
    for count, several in rounds.items():
        found[f"workers = {count}"] = {
            "turns a second": round(median(f.turns / f.seconds for f in several)),
            "CPU µs a turn": round(median(f.cpu / f.turns for f in several) * 1e6, 1),
            "turns a CPU second": round(median(f.turns / f.cpu for f in several)),
            "cores used": round(median(f.cpu / f.seconds for f in several), 2),
            "load, cores": round(median(f.load for f in several), 2),
        }
    pairs = list(zip(rounds[1], rounds[2], strict=True))
    wall = median(two.turns / two.seconds / (one.turns / one.seconds) for one, two in pairs)
    cpu = median(two.turns / two.cpu / (one.turns / one.cpu) for one, two in pairs)
    return found | {
        "two workers against one": {
            "turns a second": round(wall, 2),
            "capacity": round(2 * cpu, 2),
        }
    }
