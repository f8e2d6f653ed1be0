"""The figures as pictures, where matplotlib is installed (benchmarks/requirements.txt)."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from benchmarks.report import Report

COLOURS = {"assent": "#1b6ca8", "plain": "#c2571a", "limit": "#7a7a7a"}
OTHER = "#b9a44c"


def draw(folder: Path, report: Report) -> list[Path]:
    """Write `ratios.png` and `growth.png`, as far as there are figures; none without matplotlib."""
    try:
        import matplotlib
    except ImportError:
        return []
    matplotlib.use("Agg")
    drawn = []
    for name, figure in (("ratios", _ratios(report)), ("growth", _growth(report))):
        if figure is not None:
            path = folder / f"{name}.png"
            figure.savefig(path, dpi=80)
            drawn.append(path)
    return drawn


def _ratios(report: Report) -> Any:
    from matplotlib import pyplot

    shown = [r for r in report.turns.values() if "assent" in r.rounds and len(r.rounds) > 1]
    if not shown:
        return None
    rows = [len(result.rounds) for result in shown]
    figure, axes = pyplot.subplots(
        len(shown),
        1,
        figsize=(8, 0.24 * sum(rows) + 0.55 * len(rows) + 0.6),
        sharex=True,
        squeeze=False,
        gridspec_kw={"height_ratios": rows},
        layout="constrained",
    )
    for axis, result in zip(axes[:, 0], shown, strict=True):
        names = list(result.rounds)
        ratios = [result.ratio(name) for name in names]
        bars = axis.barh(names, ratios, color=[COLOURS.get(n.split()[0], OTHER) for n in names])
        axis.bar_label(bars, [f"{ratio:.3g}" for ratio in ratios], padding=3, fontsize=7)
        axis.axvline(1.0, color="black", linewidth=0.8)
        axis.set_title(result.scenario, fontsize=8, loc="left")
        axis.set_xscale("log")
        axis.set_xlim(0.2, 2.5 * max(max(r.ratio(n) for n in r.rounds) for r in shown))
        axis.tick_params(labelsize=7)
        axis.invert_yaxis()
    figure.supxlabel("CPU time of the server a turn, as multiple of Assent's", fontsize=8)
    return figure


def _growth(report: Report) -> Any:
    from matplotlib import pyplot

    panels = {
        name.removeprefix("growth of "): found
        for name, found in report.others.items()
        if name.startswith("growth of ")
    }
    if not panels:
        return None
    figure, axes = pyplot.subplots(
        1, len(panels), figsize=(3.6 * len(panels), 3.2), squeeze=False, layout="constrained"
    )
    for axis, (name, found) in zip(axes[0], panels.items(), strict=True):
        for label, values in _curves(found).items():
            axis.plot(list(values), list(values.values()), marker="o", markersize=4, label=label)
        axis.set_title(name, fontsize=9)
        # From 0 interceptors on there is no logarithm.
        axis.set_xscale("symlog" if name == "interceptors" else "log")
        if name == "messages":
            axis.set_yscale("log")
        else:
            axis.set_ylim(bottom=0)
        axis.tick_params(labelsize=7)
        axis.legend(fontsize=7)
    axes[0][0].set_ylabel("CPU time a turn, µs", fontsize=8)
    return figure


def _curves(found: Mapping[str, Mapping[Any, float]]) -> dict[str, dict[int, float]]:
    wanted = {
        label: {int(n): value for n, value in values.items()}
        for label, values in found.items()
        if label.endswith(("µs", "p50 ms"))
    }
    return wanted
