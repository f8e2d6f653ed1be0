"""Every measurement that is no scenario of turns under load, by the name that `--only` searches."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from benchmarks import distance, growth, installed, special, stores, workers
from benchmarks.load import LoadError
from benchmarks.measure import Found, Run, Say
from benchmarks.report import flat

Measurement = Callable[[Run, bool], Found]

OTHERS: Mapping[str, Measurement] = {
    "health while 64 turns block": special.health_while_blocked,
    "start": special.start,
    "installed": installed.installed,
    "idle WebSockets": special.idle_sockets,
    "approvals": stores.approvals,
    "approvals far from PostgreSQL": distance.far_approvals,
    "growth of messages": growth.messages,
    "growth of tools": growth.tools,
    "growth of interceptors": growth.interceptors,
    "growth of ledger rows": growth.ledger_rows,
    "worker processes": workers.worker_processes,
}

LONG = ("installed", "approvals far from PostgreSQL", "growth of ledger rows")
"""Measurements of minutes each, which a run without `--all` leaves out unless they are named."""


def attempt(name: str, measurement: Measurement, run: Run, quick: bool, say: Say) -> Found | None:
    """The findings; None, with a message, if a server, a request or an installation failed."""
    say(name)
    try:
        found = measurement(run, quick)
    except (RuntimeError, LoadError, OSError, EOFError) as error:
        say(f"  failed: {str(error)[-500:]}")
        return None
    for key, value in found.items():
        say(f"  {key}: {flat(value)}")
    return found
