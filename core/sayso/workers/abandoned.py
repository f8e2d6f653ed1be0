"""Calls of tools that nobody waits for any more and that go on all the same."""

from __future__ import annotations

import asyncio
import logging
import threading
from collections import Counter
from collections.abc import Callable

from sayso.errors import Exhausted

logger = logging.getLogger("sayso.tools")

MOST = 32
"""Calls of one tool that may be abandoned and go on, before no further one of it begins."""
_MOMENT = 0.1


class Abandoned:
    """The calls that were abandoned and have not ended, by the names of their tools.

    What is abandoned holds no place: `lend` is called with 1 when a call of a plain or an async
    tool is, and with -1 when that has ended.
    """

    def __init__(self, lend: Callable[[bool, int], None]) -> None:
        self._lend = lend
        self._lock = threading.Lock()
        self._counts: Counter[str] = Counter()

    @property
    def total(self) -> int:
        """How many there are."""
        return self._counts.total()

    def check(self, threads: int, blocked: int) -> None:
        """Raise Exhausted where so many go on that the process may soon get no further thread, of
        its `threads`, or loop, of which so many are `blocked`."""
        # A single tool does not come to that.
        if self.total >= max(2 * MOST, threads):
            raise Exhausted(self.total, max(self._counts, key=self._counts.__getitem__))
        if blocked >= 2 * MOST:
            raise Exhausted(blocked, "async code that blocks")

    def full(self, name: str) -> bool:
        """Whether so many calls of the tool go on that no further one may begin."""
        return self._counts[name] >= MOST

    def change(self, name: str, is_async: bool, by: int) -> None:
        """Count a call that was abandoned, or one that has ended at last; from any thread."""
        with self._lock:
            self._counts[name] += by
            count = self._counts[name]
        self._lend(is_async, by)
        if by > 0:
            logger.warning(
                "tool %s: a call goes on that nobody waits for any more; %d of its calls do so, "
                "and from %d on no further one begins",
                name,
                count,
                MOST,
            )


class Watched:
    """One call of a tool, from where it runs and from where it is waited for."""

    __slots__ = ("_abandoned", "_begun", "_ended", "_left", "_lock", "is_async", "name")

    def __init__(self, abandoned: Abandoned, name: str, is_async: bool) -> None:
        self.name, self.is_async = name, is_async
        self._abandoned = abandoned
        self._lock = threading.Lock()
        self._begun = self._ended = self._left = False

    def begin(self) -> None:
        """Its code begins."""
        self._begun = True

    def end(self) -> None:
        """Its code has ended."""
        with self._lock:
            self._ended = True
            late = self._left
        if late:
            self._abandoned.change(self.name, self.is_async, -1)

    def abandon(self) -> None:
        """Nobody waits for it any more. An async call, which is cancelled, has a moment to end."""
        if self.is_async:
            asyncio.get_running_loop().call_later(_MOMENT, self._abandon)
        else:
            self._abandon()

    def _abandon(self) -> None:
        with self._lock:
            if self._left or self._ended or not self._begun:
                return
            self._left = True
        self._abandoned.change(self.name, self.is_async, 1)
