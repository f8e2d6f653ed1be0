"""The limited number of turns in flight."""

from __future__ import annotations

import asyncio
import threading
import time
from collections import deque
from collections.abc import Callable
from functools import partial
from typing import NamedTuple

from sayso.errors import Busy
from sayso.observing import SlotAwaited
from sayso.workers.mailbox import Mailbox, mailbox, wake_waiter

PATIENCE = 10.0
"""Seconds that a turn waits for a slot."""

Waited = Callable[[SlotAwaited], None]
"""Called for each turn that had to wait."""


class Slots:
    """A fair semaphore for turns in flight, which run on several loops."""

    def __init__(self, limit: int, waited: Waited | None = None) -> None:
        self._free = limit
        self._limit = limit
        self._waited = waited
        self._lock = threading.Lock()
        self._waiting: deque[_Waiter] = deque()

    @property
    def taken(self) -> int:
        """The number of turns that hold a slot."""
        return self._limit - self._free

    @property
    def waiting(self) -> int:
        """The number of turns that wait for a slot."""
        return len(self._waiting)

    @property
    def free(self) -> bool:
        """Whether a turn would get a slot at once."""
        return self._free > 0

    def take_now(self) -> Slot | None:
        """A free slot; None if there is none."""
        with self._lock:
            if self._free <= 0:
                return None
            self._free -= 1
        return Slot(self)

    async def take(self) -> Slot:
        """A slot, after at most ten seconds; raises Busy."""
        waiter = _Waiter(mailbox(), asyncio.get_running_loop().create_future())
        with self._lock:
            self._waiting.append(waiter)
        # A slot may have come free meanwhile.
        self.change(0)
        begin = time.monotonic()
        given = False
        try:
            await self._given(waiter)
            given = True
        finally:
            if self._waited is not None:
                self._waited(SlotAwaited(time.monotonic() - begin, refused=not given))
        return Slot(self)

    async def _given(self, waiter: _Waiter) -> None:
        try:
            # Not `wait_for`: before Python 3.12 it swallows a cancellation that arrives together
            # with the slot.
            async with asyncio.timeout(PATIENCE):
                await waiter.future
        except BaseException as error:
            with self._lock:
                too_late = waiter not in self._waiting
                if not too_late:
                    self._waiting.remove(waiter)
            if too_late:
                self.change(+1)
            if isinstance(error, TimeoutError):
                raise Busy from None
            raise

    def change(self, by: int) -> None:
        """Give slots back, to the longest waiting turns first, or take one that may not be
        there."""
        with self._lock:
            self._free += by
            if not self._waiting:
                return
            given = []
            while self._free > 0 and self._waiting:
                self._free -= 1
                given.append(self._waiting.popleft())
        for waiter in given:
            waiter.box.post(partial(wake_waiter, waiter.future))


class _Waiter(NamedTuple):
    box: Mailbox
    future: asyncio.Future[None]


class Slot:
    """A turn's slot among the turns in flight; given back while it only waits for another turn."""

    def __init__(self, slots: Slots) -> None:
        self._slots = slots
        self._held = True
        self._ended = False

    def pause(self) -> None:
        """Let another turn have the slot."""
        if self._held:
            self._held = False
            self._slots.change(+1)

    def resume(self) -> None:
        """Take the slot again."""
        if not (self._held or self._ended):
            self._held = True
            self._slots.change(-1)

    def end(self) -> None:
        """Give the slot back for good; work that outlives the turn needs none."""
        self._ended = True
        self.pause()
