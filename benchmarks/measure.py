"""Measuring a scenario: servers in turn, round by round, the order reversed every other one."""

from __future__ import annotations

import asyncio
import sys
import time
from collections.abc import Callable, Coroutine, Iterator, Mapping
from contextlib import ExitStack
from dataclasses import dataclass, field
from statistics import median
from typing import Any

from benchmarks.load import LoadError, Timings, drive
from benchmarks.process import Process, running
from benchmarks.scenarios import Scenario

Run = Callable[[Coroutine[Any, Any, Any]], Any]
Found = dict[str, Any]
Say = Callable[[str], None]


@dataclass(slots=True)
class Round:
    """The measurements of one server in one round; times in microseconds, CPU time a turn.

    `load` is the fraction of a core that the load generator used: near 1 it is the bottleneck, and
    the server is given less than it could do.
    """

    turns: int
    cpu: float
    p50: float
    p99: float
    first_p50: float
    first_p99: float
    load: float


@dataclass(slots=True)
class Result:
    """A scenario's rounds, by server."""

    scenario: str
    rounds: dict[str, list[Round]] = field(default_factory=dict)
    failed: dict[str, str] = field(default_factory=dict)

    def middle(self, server: str, name: str) -> float:
        """The median over the rounds of one figure."""
        return float(median(getattr(r, name) for r in self.rounds[server]))

    def ratio(self, server: str, to: str = "sayso") -> float:
        """How many times the CPU time of `to` the server needs: the median of the rounds."""
        return float(median(self.ratios(server, to)))

    def ratios(self, server: str, to: str = "sayso") -> list[float]:
        """The same, round by round."""
        pairs = zip(self.rounds[server], self.rounds[to], strict=True)
        return [theirs.cpu / ours.cpu for theirs, ours in pairs]


def percentile(values: list[float], part: float) -> float:
    """The value below which `part` of them lie."""
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(len(ordered) * part))]


def summary(timings: Timings, cpu: float, load: float) -> Round:
    """One round in figures."""
    micro = 1e6
    return Round(
        len(timings.whole),
        cpu * micro / len(timings.whole),
        percentile(timings.whole, 0.5) * micro,
        percentile(timings.whole, 0.99) * micro,
        percentile(timings.first, 0.5) * micro,
        percentile(timings.first, 0.99) * micro,
        load,
    )


def measure(
    scenario: Scenario,
    pythons: Mapping[str, str],
    *,
    rounds: int,
    scale: float,
    say: Say,
    run: Callable[[Coroutine[Any, Any, Any]], Any],
) -> Result:
    """All rounds of a scenario; `pythons` are the interpreters of servers with their own."""
    result = Result(scenario.name)
    servers: dict[str, Visited] = {}

    def leave_out(name: str, error: Exception) -> None:
        servers.pop(name, None)
        result.rounds.pop(name, None)
        result.failed[name] = str(error)[-500:]
        say(f"  {name} is left out: {str(error)[-300:]}")

    with ExitStack() as stack:
        for name, target in scenario.targets.items():
            python = pythons.get(name, sys.executable)
            try:
                process = stack.enter_context(
                    running(name, target.script, target.arguments, python=python)
                )
                visited = Visited(process, scenario.requests(target))
                run(visited.warm_up(scenario, min(0.5, scenario.seconds * scale)))
            except (RuntimeError, LoadError) as error:
                leave_out(name, error)
            else:
                servers[name] = visited
        for number in range(rounds * scenario.repeat):
            order = list(servers) if number % 2 == 0 else list(reversed(servers))
            for name in order:
                try:
                    found = run(servers[name].round(scenario, scenario.seconds * scale))
                except LoadError as error:
                    leave_out(name, error)
                else:
                    result.rounds.setdefault(name, []).append(found)
    return result


@dataclass(slots=True)
class Visited:
    """A server of a scenario, and its remaining turns."""

    process: Process
    requests: Iterator[bytes]

    async def warm_up(self, scenario: Scenario, seconds: float) -> None:
        """Turns that do not count; the last reply must be valid."""
        timings = await self._drive(scenario, seconds)
        if scenario.expects not in timings.last_body:
            raise LoadError(f"not the reply that was expected: {timings.last_body[-300:]!r}")

    async def round(self, scenario: Scenario, seconds: float) -> Round:
        """Turns that count."""
        before, load, began = self.process.cpu(), time.process_time(), time.perf_counter()
        timings = await self._drive(scenario, seconds)
        share = (time.process_time() - load) / (time.perf_counter() - began)
        # Remaining work of the last turns (tasks that end, logs) belongs to them.
        await asyncio.sleep(0.05)
        return summary(timings, self.process.cpu() - before, share)

    async def _drive(self, scenario: Scenario, seconds: float) -> Timings:
        port, count = self.process.port, scenario.connections
        return await drive(scenario.kind, port, self.requests, count, seconds)
