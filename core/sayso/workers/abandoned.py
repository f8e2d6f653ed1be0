"""Abandoned calls of user code: nobody waits for them, and they still run."""

from __future__ import annotations

import asyncio
import functools
import logging
import threading
from collections import Counter
from collections.abc import Callable, Sequence
from contextvars import Context
from typing import Any, TypeVar

from sayso.errors import Exhausted

T = TypeVar("T")

logger = logging.getLogger("sayso.tools")

MOST = 32
"""Most abandoned calls of one tool or function that may still run; then it gets no further call."""
_MOMENT = 0.1
SECOND = 1.0
"""The time that a call of a function that is no tool has to end; most end soon after their caller
has left."""


class Abandoned:
    """The abandoned calls that have not ended, by what they are calls of: "tool delete_pod",
    "agent kube", "function guard.check".

    An abandoned call occupies no place: `lend` is called with 1 when a call of plain or of async
    code is abandoned, and with -1 when it has ended.
    """

    def __init__(self, lend: Callable[[bool, int], None]) -> None:
        self._lend = lend
        self._lock = threading.Lock()
        self._counts: Counter[str] = Counter()
        self.total = 0
        """The number of abandoned calls."""

    def check(self, threads: int, blocked: int) -> None:
        """Raise Exhausted if so many are running that the process may soon get no further thread,
        of its `threads`, or loop, of which so many are `blocked`."""
        # A single tool or function cannot reach this number.
        if self.total >= max(2 * MOST, threads):
            raise Exhausted(self.total, max(self._counts, key=self._counts.__getitem__))
        if blocked >= 2 * MOST:
            raise Exhausted(blocked, "async code that blocks")

    def full(self, what: str) -> bool:
        """Whether so many abandoned calls of this are running that it gets no further one."""
        return self._counts[what] >= MOST

    def admit(self, what: str) -> None:
        """Raise Exhausted if this gets no further call."""
        if self.full(what):
            raise Exhausted(self._counts[what], what)

    def change(self, what: str, is_async: bool, by: int) -> None:
        """Count a call that was abandoned, or one that has ended at last; from any thread."""
        with self._lock:
            self._counts[what] += by
            self.total += by
            count = self._counts[what]
        self._lend(is_async, by)
        if by > 0:
            logger.warning(
                "%s: a call goes on that nobody waits for any more; %d of its calls do so, "
                "and from %d on no further one begins",
                what,
                count,
                MOST,
            )


class Watched:
    """One call of user code, shared by the code that runs it and the code that waits for it.

    `what` is a text, or a function that makes it; `patience` are the seconds that an abandoned call
    has to end before it counts.
    """

    __slots__ = (
        "_abandoned",
        "_ended",
        "_left",
        "_lock",
        "_patience",
        "_started",
        "_what",
        "is_async",
    )

    def __init__(
        self,
        abandoned: Abandoned,
        what: str | Callable[[], str],
        is_async: bool,
        *,
        patience: float | None = None,
    ) -> None:
        self.is_async = is_async
        self._what = what
        # An async call is cancelled, and gets a moment to end.
        self._patience = patience if patience is not None else _MOMENT if is_async else 0.0
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

    def run(self, fn: Callable[..., T], *args: Any, **kwargs: Any) -> T:
        """The result of `fn(*args, **kwargs)`, which is the call's code."""
        self.begin()
        try:
            return fn(*args, **kwargs)
        finally:
            self.end()

    def abandon(self) -> None:
        """Nobody waits for it any more."""
        if self._ended:
            return
        if self._patience:
            asyncio.get_running_loop().call_later(self._patience, self._abandon)
        else:
            self._abandon()

    def _abandon(self) -> None:
        with self._lock:
            if self._left or self._ended or not self._started:
                return
            self._left = True
        self._count(1)

    def _count(self, by: int) -> None:
        if not isinstance(self._what, str):
            self._what = self._what()
        self._abandoned.change(self._what, self.is_async, by)


def watched_function(abandoned: Abandoned, fn: object) -> Watched:
    """The watch over a call of a plain function that is no tool: an interceptor, a handler, a
    callable. Raises Exhausted if it gets no further call."""
    if abandoned.total:
        abandoned.admit(described(fn))
    return Watched(abandoned, functools.partial(described, fn), False, patience=SECOND)


def described(fn: Any, args: Sequence[object] = ()) -> str:
    """The description of a function of a user, called with `args`, in the log: its module and
    name."""
    while True:
        if isinstance(fn, functools.partial):
            fn, args = fn.func, (*fn.args, *args)
        elif args and isinstance(getattr(fn, "__self__", None), Context):
            # `asyncio.to_thread` calls a function by `Context.run`.
            fn, args = args[0], args[1:]
        else:
            break
    name = getattr(fn, "__qualname__", None) or type(fn).__qualname__
    module = getattr(fn, "__module__", None) or type(fn).__module__
    return f"function {module}.{name}"
