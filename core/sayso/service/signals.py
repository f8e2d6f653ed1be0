"""The signals that a process of a service answers on its event loop."""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager

_answered: set[signal.Signals] = set()


@contextmanager
def answered(calls: Mapping[signal.Signals, Callable[[], object]]) -> Iterator[None]:
    """Have each signal's call run on the running loop; in processes that user code forks nothing
    runs."""
    loop = asyncio.get_running_loop()
    for number, call in calls.items():
        loop.add_signal_handler(number, call)
    _answered.update(calls)
    try:
        yield
    finally:
        _answered.clear()
        for number in calls:
            loop.remove_signal_handler(number)


def nothing() -> None:
    """Do nothing: an ignored signal, instead, would be inherited by every program that a turn
    starts."""


def _have_none() -> None:
    # A forked child shares the pipe that wakes its parent's loop: a signal that ends the child
    # would also end the service.
    if _answered:
        signal.set_wakeup_fd(-1)
        for number in _answered:
            signal.signal(number, signal.SIG_DFL)


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_have_none)
