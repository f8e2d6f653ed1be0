"""The cost of a turn, beside plain FastAPI, the bare limit and other servers for agents.

python -m benchmarks                      the turns and all that takes no minutes of its own: within
                                          ten minutes
python -m benchmarks --all                also what takes minutes of its own, such as a ledger of a
                                          million rows
python -m benchmarks --body FILE          turns of a body of yours alone: JSON, as a client sends it
python -m benchmarks --list               the names of all measurements
python -m benchmarks --only "small turn"  those whose name holds these words; may be repeated
python -m benchmarks --quick              short rounds, for a look; no figures to quote
python -m benchmarks --peers FOLDER       also agno, pydantic-ai, google-adk and langserve, each
                                          installed into an environment of its own under FOLDER
python -m benchmarks --report             write the figures of the last run into
                                          docs/performance.md, and draw them again

Progress goes to the error output, the tables to the output, the three worst ratios first.
results.json and, with matplotlib (pip install -r benchmarks/requirements.txt), ratios.png and
growth.png lie in the folder --out. The server runs on the first core and the load on the last:
quote figures of an idle machine only.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import sys
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

from benchmarks import goals, peers, plots, report
from benchmarks.catalogue import LONG, OTHERS, attempt
from benchmarks.measure import Result, measure
from benchmarks.process import LOAD_CORES
from benchmarks.report import Report
from benchmarks.scenarios import SCENARIOS, Scenario, own


def main() -> None:
    """Run the measurements that the command line asks for."""
    options = arguments()
    folder = Path(options.out)
    if options.list:
        print("\n".join(_names(options)))
    elif options.report:
        kept = report.load(folder)
        report.write_page(page(kept))
        plots.draw(folder, kept)
    else:
        found = measured(options)
        found.save(folder)
        print(page(found))
        for path in [folder / "results.json", *plots.draw(folder, found)]:
            say(f"wrote {path}")


def arguments() -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    add = parser.add_argument
    add("--only", action="append", default=[], metavar="WORDS", help="see above")
    add("--servers", default="", metavar="NAMES", help="of turns, with commas: sayso,plain,limit")
    add("--rounds", type=int, default=5, help="of turns under load; default: %(default)s")
    add("--quick", action="store_true", help="a quarter of the time a round, smaller counts")
    add("--peers", metavar="FOLDER", help="see above")
    add("--all", action="store_true", help="see above")
    add("--body", type=_body, metavar="FILE", help="see above")
    add("--out", default="benchmarks/results", metavar="FOLDER", help="default: %(default)s")
    add("--list", action="store_true", help="measure nothing")
    add("--report", action="store_true", help="measure nothing")
    options = parser.parse_args()
    names = [name for name in _names(options) if chosen(name, options.only)]
    if not options.list and not options.report and not names:
        parser.error("no measurement has such a name; try: --list")
    return options


def _body(path: str) -> bytes:
    try:
        return json.dumps(json.loads(Path(path).read_bytes())).encode()
    except (OSError, ValueError) as error:
        raise argparse.ArgumentTypeError(f"{path!r} is no file of JSON: {error}") from None


def _scenarios(options: argparse.Namespace) -> list[Scenario]:
    return SCENARIOS if options.body is None else own(options.body)


def _names(options: argparse.Namespace) -> list[str]:
    return [*(s.name for s in _scenarios(options)), *(OTHERS if options.body is None else ())]


def measured(options: argparse.Namespace) -> Report:
    """All measurements that were asked for."""
    os.sched_setaffinity(0, LOAD_CORES)
    began = time.monotonic()
    with asyncio.Runner(loop_factory=_loop) as runner:
        pythons = peers.install(options.peers, say) if options.peers else {}
        about = report.about(peers.versions(pythons), options.rounds, options.quick)
        found = Report(about, turns(options, pythons, runner))
        for name, measurement in OTHERS.items():
            left_out = name in LONG and not (options.all or options.only)
            if name in _names(options) and chosen(name, options.only) and not left_out:
                figures = attempt(name, measurement, runner.run, options.quick, say)
                found.others |= {} if figures is None else {name: figures}
    say(f"took {(time.monotonic() - began) / 60:.1f} minutes")
    return found


def page(found: Report) -> str:
    """The figures in the form of docs/performance.md."""
    parts = [report.worst(list(found.turns.values())), report.heading(found)]
    if found.turns:
        parts.append(report.turns(list(found.turns.values())))
    parts += [report.others(found.others), "**Goals**", goals.table(found)]
    return "\n\n".join(part for part in parts if part)


def turns(
    options: argparse.Namespace, pythons: dict[str, str], runner: asyncio.Runner
) -> dict[str, Result]:
    """The scenarios of turns under load."""
    results = {}
    for given in _scenarios(options):
        if not chosen(given.name, options.only):
            continue
        scenario = peers.added(given, pythons)
        if options.servers:
            wanted = options.servers.split(",")
            kept = {k: v for k, v in scenario.targets.items() if k in wanted}
            scenario = replace(scenario, targets=kept)
        say(scenario.name)
        results[scenario.name] = _measured(scenario, pythons, options, runner)
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
        ratio = f"{result.ratio(server):6.2f} ×" if "sayso" in result.rounds else ""
        say(f"  {server:12} {cpu:8.0f} µs {ratio}  p99 {p99 / 1000:.2f} ms")
    return result


def chosen(name: str, only: list[str]) -> bool:
    """Whether the command line asks for it."""
    return not only or any(words.lower() in name.lower() for words in only)


def say(text: str) -> None:
    """Print the progress."""
    print(text, file=sys.stderr, flush=True)


def _loop() -> Any:
    try:
        import uvloop
    except ImportError:
        return asyncio.new_event_loop()
    return uvloop.new_event_loop()


if __name__ == "__main__":
    main()
