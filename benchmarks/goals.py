"""The goals for Sayso, figure by figure, and a run's findings."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

from benchmarks.report import Report

PEERS = ("agno", "pydantic-ai", "google-adk")


@dataclass(frozen=True, slots=True)
class Goal:
    """One figure; `wanted` and `stretch` are the least, or the most if `most` is set."""

    where: str
    what: str
    wanted: float | None
    stretch: float | None
    value: Callable[[Report], float]
    most: bool = False

    def said(self, value: float | None) -> str:
        """A figure as people write it, with its bound."""
        return "" if value is None else f"{'≤' if self.most else '≥'} {value:g}"

    def verdict(self, found: float) -> str:
        """Whether it is reached."""
        if self._holds(found, self.stretch):
            return "stretch"
        if self.wanted is None:
            return ""
        return "reached" if self._holds(found, self.wanted) else "**missed**"

    def _holds(self, found: float, bound: float | None) -> bool:
        return bound is not None and (found <= bound if self.most else found >= bound)


def table(report: Report) -> str:
    """Every goal that the run measured."""
    lines = ["| scenario | figure | wanted | stretch | found | |", "|---|---|---|---|---|---|"]
    for goal in goals():
        try:
            found = goal.value(report)
        except (KeyError, IndexError):
            continue
        lines.append(
            f"| {goal.where} | {goal.what} | {goal.said(goal.wanted)} | {goal.said(goal.stretch)} "
            f"| {found:.3g} | {goal.verdict(found)} |"
        )
    return "\n".join(lines)


def goals() -> Iterator[Goal]:
    """All of them."""
    yield from _as_sent()
    yield from _turns()
    yield from _health()
    yield from _rest()


def _against(where: str, server: str, wanted: float | None, stretch: float | None = None) -> Goal:
    return Goal(where, f"CPU: × {server}", wanted, stretch, lambda r: r.turns[where].ratio(server))


def _as_sent() -> Iterator[Goal]:
    for where, wanted, stretch in (
        ("small turn as sent, 1 connection", 1.4, 2.0),
        ("small turn as sent, 32 connections", 2.5, 3.2),
        ("small turn as sent, Agent, 1 connection", 1.4, 2.0),
        ("small turn as sent, Agent, 32 connections", 2.5, 3.2),
        ("62 KB with outcomes, 32 connections", 1.3, 1.8),
        ("62 KB with outcomes, Agent, 32 connections", 1.0, 1.5),
        ("100 deltas as sent, 1 connection", 4.5, 6),
        ("100 deltas as sent, 32 connections", 9, 12),
        ("tool turn as sent, 32 connections", 2.5, None),
    ):
        yield _against(where, "plain", wanted, stretch)
        # At most twice what bare validation needs.
        yield _against(where, "limit", 0.5)


def _turns() -> Iterator[Goal]:
    small, many = "small turn, 32 connections", "small turn, 256 connections"
    yield _against(small, "plain", 2.0, 3.0)
    yield _against(small, "limit", None, 0.6)
    yield _against(small, "langserve", 8)
    yield from (_against(small, peer, 25) for peer in PEERS)
    yield _against("small turn, 1 connection", "plain", 1.25, 1.6)
    yield _against(many, "plain", 2.0, 3.0)
    yield Goal(many, "p99: part of plain's", 0.45, None, lambda r: _p99(r, many), most=True)
    # Bare validation ("limit") is 1.6 times as cheap as plain if the agent reads its messages.
    yield _against("62 KB history, 32 connections", "plain", 1.4, 1.6)
    deltas, alone = "100 deltas, 32 connections", "100 deltas, 1 connection"
    yield _against(deltas, "plain", 9, 12)
    yield _against(deltas, "limit", None, 3)
    yield from (_against(deltas, peer, 50) for peer in ("langserve", *PEERS))
    yield _against(alone, "plain", 6, 8)
    yield Goal(alone, "first event, p50 ms", 0.4, None, lambda r: _first(r, alone, "p50"), True)
    paced = "96 streams paced at 10 ms an event"
    yield Goal(
        paced,
        "CPU: times the same loop's (limit)",
        1.25,
        1.15,
        lambda r: r.turns[paced].ratio("sayso", "limit"),
        most=True,
    )
    yield Goal(paced, "first event, p99 ms", 20, None, lambda r: _first(r, paced, "p99"), True)
    yield _against("WebSocket turns of 100 deltas, 32 connections", "plain", 3, 4)
    yield _against("tool turn, 32 connections", "plain", 2.0)
    yield from (_against("tool turn, 32 connections", peer, 30, 50) for peer in PEERS)


def _p99(report: Report, where: str) -> float:
    result = report.turns[where]
    return result.middle("sayso", "p99") / result.middle("plain", "p99")


def _first(report: Report, where: str, part: str) -> float:
    return report.turns[where].middle("sayso", f"first_{part}") / 1000


def _health() -> Iterator[Goal]:
    where = "health while 64 turns block"
    for kind in ("sync callable", "async def callable", "tool", "interceptor"):
        for figure, wanted, stretch in (
            ("p99 ms", 10, 3),
            ("max ms", 50, None),
            ("all done s", 2.5, 2.2),
        ):
            yield Goal(
                where,
                f"{kind}: {figure}",
                wanted,
                stretch,
                lambda r, kind=kind, figure=figure: r.others[where][kind][figure],  # type: ignore[misc]
                most=True,
            )


def _rest() -> Iterator[Goal]:
    def most(where: str, what: str, wanted: float, stretch: float | None, *keys: str) -> Goal:
        return Goal(where, what, wanted, stretch, lambda r: r.figure(where, *keys), most=True)

    def least(where: str, what: str, wanted: float, stretch: float | None, *keys: str) -> Goal:
        return Goal(where, what, wanted, stretch, lambda r: r.figure(where, *keys))

    ours = "sayso, V1 and V2"
    yield most("idle WebSockets", "KB each", 20, 18, "sayso", "KB each")
    yield least("idle WebSockets", "turns beside them", 0.95, None, "sayso", "turns alone / beside")
    yield most("start", "first /health: × plain", 1.1, 0.95, "start, × plain")
    yield most("start", "idle MB", 45, None, ours, "idle MB")
    # 45 MB is 1.1 times the 41 MB of plain FastAPI.
    yield most("start", "idle MB: × plain", 1.1, None, "idle MB, × plain")
    yield most("installed", "distributions", 22, None, "sayso[v1,v2]", "distributions")
    yield most("installed", "MB", 35, None, "sayso[v1,v2]", "MB")
    yield most("approvals", "SQLite adds, p50 ms", 2, None, "sqlite", "store adds p50 ms")
    yield most("approvals", "PostgreSQL adds, p50 ms", 5, None, "postgresql", "store adds p50 ms")
    yield least("approvals", "a second on SQLite", 500, 1000, "sqlite", "approvals a second")
    both = "two workers against one"
    for figure in ("turns a second", "capacity"):
        yield least("worker processes", f"{both}: {figure}", 1.8, 1.95, both, figure)
