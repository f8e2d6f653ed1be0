"""Deadlines for start-up code that hangs: imports, constructors and lifespans of plugins."""

from __future__ import annotations

import signal
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType


class Overdue(BaseException):
    """Raised into code that ran past its deadline; no Exception, so that no retry catches it."""


@contextmanager
def interrupted(seconds: float) -> Iterator[None]:
    """Raise Overdue into the block after `seconds`, also inside a blocking call.

    If this thread cannot be interrupted there is no deadline; a service starts on the main thread,
    which can be. While the block awaits, and other code runs, nothing is raised.
    """
    if not _can_interrupt():
        yield
        return
    block = sys._getframe(2)

    def overdue(number: int, frame: FrameType | None) -> None:
        while frame is not None:
            if frame is block:
                raise Overdue
            frame = frame.f_back

    before = signal.signal(signal.SIGALRM, overdue)
    # Repeated each second, for code that catches everything.
    signal.setitimer(signal.ITIMER_REAL, seconds, 1.0)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0.0)
        signal.signal(signal.SIGALRM, before)


@contextmanager
def watched(seconds: float, overdue: Callable[[], object]) -> Iterator[None]:
    """Call `overdue` on another thread if the block still runs after `seconds`."""
    timer = threading.Timer(seconds, overdue)
    timer.daemon = True
    timer.start()
    try:
        yield
    finally:
        timer.cancel()


def _can_interrupt() -> bool:
    """Whether this is the main thread of a system with timers, and nobody else uses them."""
    return (
        hasattr(signal, "setitimer")
        and threading.current_thread() is threading.main_thread()
        and signal.getitimer(signal.ITIMER_REAL) == (0.0, 0.0)
    )
