"""`python -m benchmarks`: measure, print the table, write results.json.

python -m benchmarks                     all scenarios, three rounds, some minutes
python -m benchmarks --only small        the scenarios whose name holds "small"
python -m benchmarks --quick             short rounds, for a look
python -m benchmarks --peers FOLDER      also agno, pydantic-ai and langserve,
                                         each in a virtual environment under FOLDER
"""

from __future__ import annotations

import argparse
import asyncio
import os
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

from benchmarks import peers, special
from benchmarks.measure import Result, measure
from benchmarks.process import LOAD_CORES
from benchmarks.report import save, table, versions
from benchmarks.scenarios import SCENARIOS, Scenario


def main() -> None:
    """Measure what the command line asks for."""
    options = arguments()
    os.sched_setaffinity(0, LOAD_CORES)
    runner = asyncio.Runner(loop_factory=_loop)
    with runner:
        pythons = peers.install(options.peers, say) if options.peers else {}
        results = turns(options, pythons, runner)
        others = {
            name: found
            for name, function in special.ALL.items()
            if chosen(name, options.only)
            and (found := special.attempt(name, function, runner.run, options.quick, say))
        }
    print(f"\n{', '.join(f'{k} {v}' for k, v in versions().items())}\n")
    if results:
        print(table(results))
    print(special.table(others))
    save(Path(options.out), results, others, {"peers": peers.versions(pythons)})


def arguments() -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--only", action="append", default=[], metavar="WORDS")
    parser.add_argument("--servers", default="", help="comma separated; default: all")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--peers", metavar="FOLDER")
    parser.add_argument("--out", default="benchmarks/results")
    return parser.parse_args()


def turns(
    options: argparse.Namespace, pythons: dict[str, str], runner: asyncio.Runner
) -> list[Result]:
    """The scenarios of turns under load."""
    results = []
    for given in SCENARIOS:
        if not chosen(given.name, options.only):
            continue
        scenario = peers.added(given, pythons)
        if options.servers:
            wanted = options.servers.split(",")
            kept = {k: v for k, v in scenario.targets.items() if k in wanted}
            scenario = replace(scenario, targets=kept)
        say(scenario.name)
        results.append(_measured(scenario, pythons, options, runner))
    return results


def _measured(
    scenario: Scenario, pythons: dict[str, str], options: argparse.Namespace, runner: asyncio.Runner
) -> Result:
    result = measure(
        scenario,
        pythons,
        rounds=options.rounds,
        scale=0.25 if options.quick else 1.0,
        say=say,
        run=runner.run,
    )
    for server in result.rounds:
        cpu, p99 = result.middle(server, "cpu"), result.middle(server, "p99")
        ratio = f"{result.ratio(server):6.2f} ×" if "assent" in result.rounds else ""
        say(f"  {server:12} {cpu:8.0f} µs {ratio}  p99 {p99 / 1000:.2f} ms")
    return result


def chosen(name: str, only: list[str]) -> bool:
    """Whether the command line asks for it."""
    return not only or any(words in name for words in only)


def say(text: str) -> None:
    """Tell how far it is."""
    print(text, file=sys.stderr, flush=True)


def _loop() -> Any:
    try:
        import uvloop
    except ImportError:
        return asyncio.new_event_loop()
    return uvloop.new_event_loop()


if __name__ == "__main__":
    main()
