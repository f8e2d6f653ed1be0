"""Measuring a scenario: servers in turn, round by round, the order reversed every other one."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Callable, Coroutine, Mapping
from contextlib import ExitStack
from dataclasses import dataclass, field
from statistics import median
from typing import Any

from benchmarks.load import LoadError, Timings, drive, once
from benchmarks.process import Process, running
from benchmarks.scenarios import Scenario

Say = Callable[[str], None]


@dataclass(slots=True)
class Round:
    """What one server needed in one round; times in microseconds, CPU time a turn."""

    turns: int
    cpu: float
    p50: float
    p99: float
    first_p50: float
    first_p99: float


@dataclass(slots=True)
class Result:
    """A scenario's rounds, by server."""

    scenario: str
    rounds: dict[str, list[Round]] = field(default_factory=dict)
    least: dict[str, float] = field(default_factory=dict)
    failed: dict[str, str] = field(default_factory=dict)

    def middle(self, server: str, name: str) -> float:
        """The median over the rounds of one figure."""
        return float(median(getattr(r, name) for r in self.rounds[server]))

    def ratio(self, server: str, to: str = "assent") -> float:
        """How many times the CPU time of `to` the server needs: the median of the rounds."""
        pairs = zip(self.rounds[server], self.rounds[to], strict=True)
        return median(theirs.cpu / ours.cpu for theirs, ours in pairs)


def percentile(values: list[float], part: float) -> float:
    """The value below which `part` of them lie."""
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(len(ordered) * part))]


def summary(timings: Timings, cpu: float) -> Round:
    """One round in figures."""
    micro = 1e6
    return Round(
        len(timings.whole),
        cpu * micro / len(timings.whole),
        percentile(timings.whole, 0.5) * micro,
        percentile(timings.whole, 0.99) * micro,
        percentile(timings.first, 0.5) * micro,
        percentile(timings.first, 0.99) * micro,
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
    result = Result(scenario.name, least=scenario.least)
    with ExitStack() as stack:
        servers: dict[str, Process] = {}
        for name, target in scenario.targets.items():
            python = pythons.get(name, sys.executable)
            try:
                servers[name] = stack.enter_context(
                    running(name, target.script, target.arguments, python=python)
                )
                run(once(scenario.kind, servers[name].port, scenario.request(target)))
            except (RuntimeError, LoadError) as error:
                result.failed[name] = str(error)[-500:]
                servers.pop(name, None)
                say(f"  {name} is left out: {str(error)[-300:]}")
        for name in servers:
            run(_one(scenario, name, servers[name], min(0.5, scenario.seconds * scale)))
        for number in range(rounds):
            order = list(servers) if number % 2 == 0 else list(reversed(servers))
            for name in order:
                seconds = scenario.seconds * scale
                result.rounds.setdefault(name, []).append(
                    run(_one(scenario, name, servers[name], seconds))
                )
    return result


async def _one(scenario: Scenario, name: str, server: Process, seconds: float) -> Round:
    request = scenario.request(scenario.targets[name])
    before = server.cpu()
    timings = await drive(scenario.kind, server.port, request, scenario.connections, seconds)
    # What is left of the last turns (tasks that end, logs) belongs to them.
    await asyncio.sleep(0.05)
    return summary(timings, server.cpu() - before)
