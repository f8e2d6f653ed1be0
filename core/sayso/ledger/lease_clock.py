"""The check whether a lease has run out, with a store's clock that somebody may set.

Leases are times of the store's clock, so that processes compare the same. When that clock jumps
ahead, every lease seems to have run out, and when it jumps back, those of the dead seem to last for
hours. Therefore each process compares the clock with its own monotonic one, which nobody sets.
"""

from __future__ import annotations

import threading
from typing import NamedTuple

from sayso.ledger import Owner
from sayso.ledger.beginnings import boottime, margin

_KEPT = 1_000
_FUTURE = 4
"""A lease that ends after this many times its length was given before the clock went back."""


class _Lease(NamedTuple):
    owner: str
    until: float


class LeaseClock:
    """Judges leases of `seconds`; from several threads."""

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds
        self._lock = threading.Lock()
        self._ahead: float | None = None
        self._jumped: float | None = None
        self._seen: dict[_Lease, float] = {}

    def has_run_out(self, owner: Owner, now: float) -> bool:
        """Whether `owner` has given no sign of life for its lease; `now` is the store's clock."""
        with self._lock:
            here = boottime()
            self._watch(now, here)
            if self._just_jumped(here):
                # A living process renews its lease meanwhile, by the clock as it is now.
                return False
            if owner.lease > now + _FUTURE * self._seconds:
                return here > self._first_seen(owner, here) + _FUTURE * self._seconds
            return owner.lease + margin(self._seconds) < now

    def _watch(self, now: float, here: float) -> None:
        """Note a jump: between two looks the store's clock went farther than ours, or less far, by
        more than a transaction may have waited since it was read."""
        ahead = now - here
        if self._ahead is not None and abs(ahead - self._ahead) > margin(self._seconds):
            self._jumped = here
        self._ahead = ahead

    def _just_jumped(self, here: float) -> bool:
        return self._jumped is not None and here < self._jumped + self._seconds + margin(
            self._seconds
        )

    def _first_seen(self, owner: Owner, here: float) -> float:
        if len(self._seen) >= _KEPT:
            self._seen.clear()
        return self._seen.setdefault(_Lease(owner.id, owner.lease), here)
