"""The numbers of a service, for metrics."""

from __future__ import annotations

from typing import NamedTuple


class Load(NamedTuple):
    """The present load of one process: running turns, those that wait for a place, approved calls
    that run without a turn that waits for them, abandoned calls that have not ended, threads and
    event loops for user code, and outcomes that the store has not taken yet."""

    turns: int
    waiting: int
    calls: int
    abandoned: int
    threads: int
    loops: int
    unrecorded: int


class Backlog(NamedTuple):
    """The calls of all processes that somebody still has to act on.

    `pending` and `approved` (approved, and not begun) are counted up to 1,000; `oldest` is for how
    many seconds the oldest pending call has waited, 0.0 without one.
    """

    pending: int
    approved: int
    oldest: float
