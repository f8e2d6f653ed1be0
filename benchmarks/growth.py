"""The cost of a turn with a growing number of messages, tools, interceptors, ledger rows."""

from __future__ import annotations

import tempfile
import time
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from itertools import pairwise
from pathlib import Path
from statistics import median

from benchmarks.load import Whole, drive, post
from benchmarks.measure import Found, Run
from benchmarks.process import Process, running
from benchmarks.scenarios import SMALL, conversation
from benchmarks.special import CHAT
from benchmarks.stores import PATIENT, approved
from sayso.ledger import Decision, Proposal, Transaction, log
from sayso.ledger.sqlite import SqliteStore

AT_ONCE = 20_000
"""Rows written in one transaction."""
ROUTED = SMALL[:-1] + b', "source": "team-chat"}'


def messages(run: Run, quick: bool) -> Found:
    """CPU time a turn, in microseconds, by the number of messages."""
    counts = (1, 10, 100, 1000, 10_000)
    with running("messages", "sayso_server", ("reply",)) as server:
        points = {n: (server, post(CHAT, conversation(n))) for n in counts}
        return {"µs": in_turn(run, points, quick)}


def tools(run: Run, quick: bool) -> Found:
    """CPU time of a tool turn, by the number of tools of the agent."""
    return {"µs": _agents(run, quick, "tools", (1, 10, 100, 500))}


def interceptors(run: Run, quick: bool) -> Found:
    """CPU time of a tool turn by the number of interceptors: of requests alone, of replies too, and
    with a channel router in front."""
    counts, both = (0, 1, 5, 20), ("responses=true",)
    return {
        "request, µs": _agents(run, quick, "intercepted", counts),
        "request and response, µs": _agents(run, quick, "intercepted", counts, both),
        "with a router too, µs": _agents(
            run, quick, "intercepted", counts, (*both, "router=true"), ROUTED
        ),
    }


def ledger_rows(run: Run, quick: bool) -> Found:
    """An approved call on SQLite, and the start, by the number of calls already in the ledger."""
    counts = (1, 100, 10_000) if quick else (1, 100, 10_000, 1_000_000)
    found: dict[str, dict[int, float]] = {}
    with tempfile.TemporaryDirectory(prefix="bench-") as folder:
        path = Path(folder) / "approvals.db"
        for before, count in pairwise((0, *counts)):
            run(fill(path, before, count))
            arguments = ("approval", f'ledger="sqlite:///{path}"', *PATIENT)
            with running("rows", "sayso_server", arguments) as server:
                one = run(approved(server, 30 if quick else 150))
                one["start s"] = round(server.took, 3)
            for key, value in one.items():
                found.setdefault(key, {})[count] = value
    return dict(found)


async def fill(path: Path, start: int, end: int) -> None:
    """Write calls `start` to `end`, done an hour ago, and a log row for each."""
    store = SqliteStore(path, patience=600)
    await store.open()
    for first in range(start, end, AT_ONCE):
        await store.run(_rows(first, min(first + AT_ONCE, end)))
    await store.close()


def _rows(first: int, last: int) -> Callable[[Transaction], None]:
    now = time.time()
    decision = Decision(True, now - 3500, "me", True, "v2", "127.0.0.1")

    def work(tx: Transaction) -> None:
        for n in range(first, last):
            row = Proposal(
                f"filled-{n:08d}",
                "tool_call",
                "delete",
                {"name": "web"},
                turn=f"turn-{n:08d}",
                index=0,
                call_id="call-1",
                created=now - 3600,
                expires=now,
                conversation=f"conversation-{n // 4:08d}",
                reference=f"reference-{n:08d}",
                protocol="v2",
                state="DONE",
                decision=decision,
                finished=now - 3500,
                duration=0.1,
                output="web is gone",
            )
            tx.put(row)
            log.append(tx, {"event": "filled", "id": row.id})

    return work


def _agents(
    run: Run,
    quick: bool,
    agent: str,
    counts: tuple[int, ...],
    options: tuple[str, ...] = (),
    body: bytes = SMALL,
) -> dict[int, float]:
    with ExitStack() as stack:
        points = {}
        for n in counts:
            arguments = (agent, f"count={n}", *options)
            server = stack.enter_context(running(agent, "sayso_server", arguments))
            points[n] = (server, post(CHAT, body))
        return in_turn(run, points, quick)


def in_turn(run: Run, points: Mapping[int, tuple[Process, bytes]], quick: bool) -> dict[int, float]:
    """CPU time a turn at each point: the median of three rounds, every other one reversed."""
    costs: dict[int, list[float]] = {n: [] for n in points}
    for server, request in points.values():
        run(drive(Whole, server.port, request, 8, 0.2))
    for number in range(1 if quick else 3):
        order = list(points) if number % 2 == 0 else list(points)[::-1]
        for n in order:
            costs[n].append(run(_cost(*points[n], 0.25 if quick else 0.5)))
    return {n: round(median(found), 1) for n, found in costs.items()}


async def _cost(server: Process, request: bytes, seconds: float) -> float:
    before = server.cpu()
    timings = await drive(Whole, server.port, request, 8, seconds)
    return (server.cpu() - before) / len(timings.whole) * 1e6
