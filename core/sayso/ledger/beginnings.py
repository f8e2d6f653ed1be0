"""The start of a call: until when its claim allows it, and which calls this process has started."""

from __future__ import annotations

import threading
import time
from collections import deque
from typing import NamedTuple

_CLOCK = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)
_MARGIN = 0.2
_PRUNED_FROM = 1_000


class CallNotStarted(Exception):
    """A claimed call was not started, and never will be on this claim."""


class Claim(NamedTuple):
    """One attempt to claim: a random token, and until when the claimed calls may be started."""

    token: str
    until: float


def boottime() -> float:
    """Seconds of a clock that goes on while this machine sleeps."""
    return time.clock_gettime(_CLOCK)


def margin(lease: float) -> float:
    """Seconds before the end of its lease by which a call must have started, and seconds after it
    until other processes consider its process dead. Allows for clocks of different speed and for
    delays."""
    return lease * _MARGIN


class Beginnings:
    """The calls that this process has started, kept for as long as an approval may name them."""

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds
        self._lock = threading.Lock()
        self._known: set[str] = set()
        self._order: deque[tuple[float, str]] = deque()

    def __contains__(self, id_: str) -> bool:
        return id_ in self._known

    def add(self, id_: str) -> None:
        """Note that the call was started; from any thread."""
        now = boottime()
        with self._lock:
            self._known.add(id_)
            self._order.append((now, id_))
            while len(self._order) > _PRUNED_FROM and self._order[0][0] < now - self._seconds:
                self._known.discard(self._order.popleft()[1])
