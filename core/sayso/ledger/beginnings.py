"""When a call begins: until when its claim lets it, and which calls this process has begun."""

from __future__ import annotations

import threading
import time
from collections import deque
from typing import NamedTuple

_CLOCK = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)
_MARGIN = 0.2
_PRUNED_FROM = 1_000


class NotBegun(Exception):
    """A claimed call has not begun, and never will on this claim."""


class Claim(NamedTuple):
    """One attempt to claim: a random token, and until when what it claims may begin."""

    token: str
    until: float


def boottime() -> float:
    """Seconds of a clock that runs on while this machine sleeps."""
    return time.clock_gettime(_CLOCK)


def margin(lease: float) -> float:
    """How much earlier than its lease ends a call must have begun, and how much later others take
    its process for dead: what clocks may differ in their pace, and a message take."""
    return lease * _MARGIN


class Beginnings:
    """The calls that this process knows it began, for as long as an approval may name them."""

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds
        self._lock = threading.Lock()
        self._known: set[str] = set()
        self._order: deque[tuple[float, str]] = deque()

    def __contains__(self, id_: str) -> bool:
        return id_ in self._known

    def add(self, id_: str) -> None:
        """Note that the call has begun; from any thread."""
        now = boottime()
        with self._lock:
            self._known.add(id_)
            self._order.append((now, id_))
            while len(self._order) > _PRUNED_FROM and self._order[0][0] < now - self._seconds:
                self._known.discard(self._order.popleft()[1])
