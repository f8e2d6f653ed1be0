"""The turns under way: one timer for all of them costs a turn nothing."""

from __future__ import annotations

import asyncio
from time import monotonic

from sayso.hosting.streams import EventStream
from sayso.workers.running import Begun

_LOOK = 0.1
_BEAT = 1.0
"""Seconds between two looks at the turns' time, and at which streams are silent."""


class TurnWatch:
    """Ends turns that exceed their time, and has silent streams say that they live."""

    def __init__(self) -> None:
        self.begun: set[Begun] = set()
        self.streams: set[EventStream] = set()
        self._armed = False
        self._next_beat = 0.0

    def add(self, begun: Begun) -> None:
        """Look after the turn until it is no longer among `begun`."""
        self.begun.add(begun)
        if not self._armed:
            self._arm()

    def _arm(self) -> None:
        self._armed = True
        asyncio.get_running_loop().call_later(_LOOK, self._look)

    def _look(self) -> None:
        now = monotonic()
        for begun in list(self.begun):
            begun.check(now)
        if now >= self._next_beat:
            self._next_beat = now + _BEAT
            for stream in list(self.streams):
                stream.beat(now)
        self._armed = False
        if self.begun:
            self._arm()
