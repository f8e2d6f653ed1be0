"""The figures as pictures, if matplotlib is installed (benchmarks/requirements.txt)."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from benchmarks.report import Report

COLOURS = {"sayso": "#1b6ca8", "plain": "#c2571a", "limit": "#7a7a7a"}
OTHER = "#b9a44c"


def draw(folder: Path, report: Report) -> list[Path]:
    """Write `ratios.png` and `growth.png` for the available figures; none without matplotlib."""
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

    shown = [r for r in report.turns.values() if "sayso" in r.rounds and len(r.rounds) > 1]
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
    widest = max(result.ratio(name) for result in shown for name in result.rounds)
    for axis, result in zip(axes[:, 0], shown, strict=True):
        names = list(result.rounds)
        ratios = [result.ratio(name) for name in names]
        # Cheaper servers than Sayso are to the left of 1, dearer ones to the right.
        axis.barh(
            names,
            [ratio - 1 for ratio in ratios],
            left=1,
            color=[COLOURS.get(name.split()[0], OTHER) for name in names],
        )
        for row, ratio in enumerate(ratios):
            axis.text(max(ratio, 1) * 1.05, row, f"{ratio:.2f}", va="center", fontsize=7)
        axis.axvline(1.0, color="black", linewidth=0.8)
        axis.set_title(result.scenario, fontsize=8, loc="left")
        axis.set_xscale("log")
        axis.set_xlim(0.2, 2 * max(widest, 2))
        axis.xaxis.set_major_formatter("{x:g}")
        axis.tick_params(labelsize=7)
        axis.invert_yaxis()
    figure.supxlabel("CPU time of the server a turn, as multiple of Sayso's", fontsize=8)
    return figure


def _growth(report: Report) -> Any:
    from matplotlib import pyplot

    panels = list(_panels(report))
    if not panels:
        return None
    figure, axes = pyplot.subplots(
        1, len(panels), figsize=(3.4 * len(panels), 3.0), squeeze=False, layout="constrained"
    )
    for axis, (name, unit, curves) in zip(axes[0], panels, strict=True):
        for label, values in curves.items():
            axis.plot(list(values), list(values.values()), marker="o", markersize=4, label=label)
        axis.set_title(name, fontsize=9)
        axis.set_ylabel(unit, fontsize=8)
        if name == "messages":
            axis.loglog()
        else:
            axis.set_ylim(0, 1.2 * max(max(values.values()) for values in curves.values()))
        if name == "ledger rows":
            axis.set_xscale("log")
        axis.tick_params(labelsize=7)
        if len(curves) > 1:
            axis.legend(fontsize=7, loc="lower right")
    return figure


def _panels(report: Report) -> Iterator[tuple[str, str, dict[str, dict[int, float]]]]:
    """Name, unit and curves of each panel of the growth."""
    for name, found in report.others.items():
        if not name.startswith("growth of "):
            continue
        for ending, unit in (("µs", "CPU time a turn, µs"), ("p50 ms", "p50, ms")):
            curves = {
                label.removesuffix(ending).rstrip(", "): {int(n): y for n, y in values.items()}
                for label, values in found.items()
                if label.endswith(ending)
            }
            if curves:
                yield name.removeprefix("growth of "), unit, curves
