"""The figures as a table, as JSON and as a plot."""

from __future__ import annotations

import json
import platform
import sys
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

from benchmarks.measure import Result

PACKAGES = (
    "assent",
    "fastapi",
    "starlette",
    "uvicorn",
    "uvloop",
    "httptools",
    "pydantic",
    "pydantic-core",
    "websockets",
)


def versions() -> dict[str, str]:
    """Python and the packages that the servers have in common."""
    found = {"python": platform.python_version(), "machine": platform.machine()}
    for name in PACKAGES:
        try:
            found[name] = version(name)
        except PackageNotFoundError:
            continue
    return found


def table(results: Sequence[Result]) -> str:
    """One line a server and scenario."""
    lines = [
        "| scenario | server | CPU µs/turn | × assent | p50 ms | p99 ms | first ms (p50, p99) "
        "| at least |",
        "|---|---|---|---|---|---|---|---|",
    ]
    for result in results:
        for server in result.rounds:
            lines.append(_line(result, server))
    return "\n".join(lines)


def _line(result: Result, server: str) -> str:
    def ms(name: str) -> str:
        return f"{result.middle(server, name) / 1000:.2f}"

    ratio = f"{result.ratio(server):.2f}" if "assent" in result.rounds else ""
    least = result.least.get(server)
    wanted = "" if least is None else f"{least:g}"
    return (
        f"| {result.scenario} | {server} | {result.middle(server, 'cpu'):.0f} | {ratio} "
        f"| {ms('p50')} | {ms('p99')} | {ms('first_p50')}, {ms('first_p99')} | {wanted} |"
    )


def save(
    folder: Path, results: Sequence[Result], others: Mapping[str, Any], about: Mapping[str, Any]
) -> None:
    """Write `results.json` and, with matplotlib, `results.png` into the folder."""
    folder.mkdir(parents=True, exist_ok=True)
    content = {
        "versions": versions(),
        "arguments": sys.argv[1:],
        **about,
        "turns": [asdict(result) for result in results],
        **others,
    }
    (folder / "results.json").write_text(json.dumps(content, indent=1))
    plot(folder / "results.png", results)


def plot(path: Path, results: Sequence[Result]) -> None:
    """The servers' CPU time a turn as bars, by scenario; nothing without matplotlib."""
    try:
        import matplotlib
    except ImportError:
        return
    matplotlib.use("Agg")
    from matplotlib import pyplot

    shown = [result for result in results if "assent" in result.rounds]
    if not shown:
        return
    figure, axes = pyplot.subplots(len(shown), 1, figsize=(8, 1.4 * len(shown) + 1))
    for axis, result in zip(axes if len(shown) > 1 else [axes], shown, strict=True):
        names = list(result.rounds)
        axis.barh(names, [result.middle(name, "cpu") for name in names], color="#4c72b0")
        axis.set_title(result.scenario, fontsize=8, loc="left")
        axis.tick_params(labelsize=7)
        axis.invert_yaxis()
    figure.supxlabel("CPU time of the server a turn, µs", fontsize=8)
    figure.tight_layout()
    figure.savefig(path, dpi=110)
