"""Abandoned calls of tools: nobody waits for them, and they still run."""

from __future__ import annotations

import asyncio
import logging
import threading
from collections import Counter
from collections.abc import Callable

from sayso.errors import Exhausted

logger = logging.getLogger("sayso.tools")

MOST = 32
"""Most abandoned calls of one tool that may still run; then it gets no further call."""
_MOMENT = 0.1


class Abandoned:
    """The abandoned calls that have not ended, by the names of their tools.

    An abandoned call occupies no place: `lend` is called with 1 when a call of a plain or an async
    tool is abandoned, and with -1 when it has ended.
    """

    def __init__(self, lend: Callable[[bool, int], None]) -> None:
        self._lend = lend
        self._lock = threading.Lock()
        self._counts: Counter[str] = Counter()

    @property
    def total(self) -> int:
        """The number of abandoned calls."""
        return self._counts.total()

    def check(self, threads: int, blocked: int) -> None:
        """Raise Exhausted if so many are running that the process may soon get no further thread,
        of its `threads`, or loop, of which so many are `blocked`."""
        # A single tool cannot reach this number.
        if self.total >= max(2 * MOST, threads):
            raise Exhausted(self.total, max(self._counts, key=self._counts.__getitem__))
        if blocked >= 2 * MOST:
            raise Exhausted(blocked, "async code that blocks")

    def full(self, name: str) -> bool:
        """Whether so many abandoned calls of the tool are running that it gets no further one."""
        return self._counts[name] >= MOST

    def change(self, name: str, is_async: bool, by: int, *, is_tool: bool = True) -> None:
        """Count a call that was abandoned, or one that has ended at last; from any thread. `name`
        is that of a tool, which gets no further call once there are many, or of a callable."""
        with self._lock:
            self._counts[name] += by
            count = self._counts[name]
        self._lend(is_async, by)
        if by > 0:
            logger.warning(
                "%s %s: a call goes on that nobody waits for any more; %d of its calls do so%s",
                "tool" if is_tool else "agent",
                name,
                count,
                f", and from {MOST} on no further one begins" if is_tool else "",
            )


class Watched:
    """One call of a tool, or of a callable that carries calls out, shared by the code that runs it
    and the code that waits for it."""

    __slots__ = (
        "_abandoned",
        "_started",
        "_ended",
        "_left",
        "_lock",
        "is_async",
        "is_tool",
        "name",
    )

    def __init__(
        self, abandoned: Abandoned, name: str, is_async: bool, *, is_tool: bool = True
    ) -> None:
        self.name, self.is_async, self.is_tool = name, is_async, is_tool
        self._abandoned = abandoned
        self._lock = threading.Lock()
        self._started = self._ended = self._left = False

    def begin(self) -> None:
        """The call's code begins."""
        self._started = True

    def end(self) -> None:
        """The call's code has ended."""
        with self._lock:
            self._ended = True
            late = self._left
        if late:
            self._count(-1)

    def abandon(self) -> None:
        """Nobody waits for it any more. An async call, which is cancelled, gets a moment to end."""
        if self.is_async:
            asyncio.get_running_loop().call_later(_MOMENT, self._abandon)
        else:
            self._abandon()

    def _abandon(self) -> None:
        with self._lock:
            if self._left or self._ended or not self._started:
                return
            self._left = True
        self._count(1)

    def _count(self, by: int) -> None:
        self._abandoned.change(self.name, self.is_async, by, is_tool=self.is_tool)
