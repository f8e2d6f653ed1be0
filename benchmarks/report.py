"""The figures as tables, as JSON and in docs/performance.md."""

from __future__ import annotations

import json
import platform
import sys
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from datetime import date
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

from benchmarks.measure import Found, Result, Round
from benchmarks.process import CORES, ROOT

PAGE = ROOT / "docs" / "performance.md"
BEGIN, END = "<!-- figures: written by python -m benchmarks --report -->", "<!-- end of figures -->"
PACKAGES = (
    "sayso",
    "fastapi",
    "starlette",
    "uvicorn",
    "uvloop",
    "httptools",
    "pydantic",
    "pydantic-core",
    "websockets",
)


@dataclass(slots=True)
class Report:
    """All findings of one run."""

    about: Found = field(default_factory=dict)
    turns: dict[str, Result] = field(default_factory=dict)
    others: dict[str, Found] = field(default_factory=dict)

    def figure(self, where: str, *keys: str) -> float:
        """One figure of the others; KeyError if it was not measured."""
        value: Any = self.others[where]
        for key in keys:
            if not isinstance(value, dict):
                raise KeyError(key)
            value = value[key]
        if not isinstance(value, int | float):
            raise KeyError(keys)
        return float(value)

    def save(self, folder: Path) -> None:
        """Write `results.json` into the folder."""
        folder.mkdir(parents=True, exist_ok=True)
        content = {
            **self.about,
            "turns": [asdict(result) for result in self.turns.values()],
            "others": self.others,
        }
        (folder / "results.json").write_text(json.dumps(content, indent=1))


def load(folder: Path) -> Report:
    """The report that `save` wrote."""
    about = json.loads((folder / "results.json").read_text())
    turns, others = about.pop("turns"), about.pop("others")
    results = {}
    for turn in turns:
        rounds = {name: [Round(**r) for r in given] for name, given in turn["rounds"].items()}
        results[turn["scenario"]] = Result(turn["scenario"], rounds, turn["failed"])
    return Report(about, results, others)


def about(peers: Mapping[str, Mapping[str, str]], rounds: int, quick: bool) -> Found:
    """The subject, place and time of the measurement."""
    versions = {"python": platform.python_version(), "machine": platform.machine()}
    for name in PACKAGES:
        try:
            versions[name] = version(name)
        except PackageNotFoundError:
            continue
    return {
        "date": date.today().isoformat(),
        "arguments": sys.argv[1:],
        "cores": len(CORES),
        "rounds": rounds,
        "quick": quick,
        "versions": versions,
        "peers": peers,
    }


def heading(report: Report) -> str:
    """Versions and circumstances."""
    known = report.about
    rounds = f"{known['rounds']} {'short ' if known['quick'] else ''}rounds"
    lines = [
        f"{rounds} on {known['cores']} cores, {known['date']}.",
        f"Versions: {_listed(known['versions'])}.",
    ]
    for name, versions in known["peers"].items():
        differing = {k: v for k, v in versions.items() if known["versions"].get(k) != v}
        lines.append(f"Peer {name}: {_listed(differing)}.")
    return "\n".join(lines)


def _listed(versions: Mapping[str, str]) -> str:
    return ", ".join(f"{name} {number}" for name, number in versions.items())


def worst(results: Sequence[Result], count: int = 3) -> str:
    """The scenarios in which Sayso is the furthest behind plain FastAPI, the worst first."""
    known = [result for result in results if {"sayso", "plain"} <= result.rounds.keys()]
    known.sort(key=lambda result: result.ratio("plain"))
    lines = []
    for result in known[:count]:
        against = {name: result.ratio(name) for name in ("plain", "limit") if name in result.rounds}
        ratios = ", ".join(f"{ratio:.2f} × {name}" for name, ratio in against.items())
        lines.append(f"- {result.scenario}: {ratios}")
    return "\n".join(["**Worst ratios**", "", *lines]) if lines else ""


def turns(results: Sequence[Result]) -> str:
    """One line a server and scenario."""
    lines = [
        "| scenario | server | CPU µs/turn | × sayso | p50 ms | p99 ms | first ms (p50, p99) "
        "| load |",
        "|---|---|---|---|---|---|---|---|",
    ]
    for result in results:
        lines += [_line(result, server) for server in result.rounds]
        lines += [f"| {result.scenario} | {name} | failed | | | | | |" for name in result.failed]
    return "\n".join(lines)


def _line(result: Result, server: str) -> str:
    def ms(name: str) -> str:
        return f"{result.middle(server, name) / 1000:.2f}"

    ratio = ""
    if "sayso" in result.rounds:
        ratio = f"{result.ratio(server):.2f}"
        several = result.ratios(server)
        if server != "sayso" and len(several) > 1:
            ratio += f" ({min(several):.2f} to {max(several):.2f})"
    return (
        f"| {result.scenario} | {server} | {result.middle(server, 'cpu'):.0f} | {ratio} "
        f"| {ms('p50')} | {ms('p99')} | {ms('first_p50')}, {ms('first_p99')} "
        f"| {result.middle(server, 'load'):.2f} |"
    )


def others(found: Mapping[str, Found]) -> str:
    """Each finding as a line."""
    lines = []
    for name, figures in found.items():
        lines += ["", f"**{name}**", ""]
        lines += [f"- {key}: {flat(value)}" for key, value in figures.items()]
    return "\n".join(lines).strip()


def flat(value: Any) -> str:
    """A finding in one line."""
    if isinstance(value, dict):
        return ", ".join(f"{key}: {flat(part)}" for key, part in value.items())
    if isinstance(value, list):
        return " ".join(map(str, value))
    return str(value)


def write_page(text: str, page: Path = PAGE) -> None:
    """Put `text` between the marks of the page."""
    before, _, rest = page.read_text("utf-8").partition(BEGIN)
    _, end, after = rest.partition(END)
    if not end:
        raise ValueError(f"{page.name} has no {BEGIN!r} and {END!r}")
    page.write_text(f"{before}{BEGIN}\n\n{text}\n\n{END}{after}", "utf-8")
