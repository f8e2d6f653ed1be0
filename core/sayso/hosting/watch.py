"""The turns that run. One timer watches all of them, so a turn costs nothing extra."""

from __future__ import annotations

import asyncio
from time import monotonic

from sayso.hosting.streams import EventStream
from sayso.workers.running import StartedTurn

_LOOK = 0.1
_BEAT = 1.0
"""Seconds between two looks at the turns' time, and at which streams are silent."""


class TurnWatch:
    """Ends turns that exceed their time, and lets silent streams send a sign of life."""

    def __init__(self) -> None:
        self.started: set[StartedTurn] = set()
        self.streams: set[EventStream] = set()
        self._armed = False
        self._next_beat = 0.0

    def add(self, started: StartedTurn) -> None:
        """Watch the turn until it is no longer among `started`."""
        self.started.add(started)
        if not self._armed:
            self._arm()

    def _arm(self) -> None:
        self._armed = True
        asyncio.get_running_loop().call_later(_LOOK, self._look)

    def _look(self) -> None:
        now = monotonic()
        for started in list(self.started):
            started.check(now)
        if now >= self._next_beat:
            self._next_beat = now + _BEAT
            for stream in list(self.streams):
                stream.beat(now)
        self._armed = False
        if self.started:
            self._arm()
