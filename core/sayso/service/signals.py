"""The signals that a process of a service answers, on its event loop or between two waits."""

from __future__ import annotations

import os
import signal
import socket
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress

_answered: set[signal.Signals] = set()


@contextmanager
def answered(calls: Mapping[signal.Signals, Callable[[], object]]) -> Iterator[None]:
    """Have each signal's call run on the running loop; in processes that user code forks nothing
    runs."""
    # The parent of the worker processes has no loop, and starts faster without this import.
    import asyncio

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


class Noted:
    """The signals that came to a process which waits for sockets; `link` is one that becomes
    readable with each of them."""

    def __init__(self, link: socket.socket) -> None:
        self.link = link
        self.got: list[int] = []

    def taken(self) -> list[int]:
        """The signals that came since the last call, the oldest first."""
        with suppress(BlockingIOError):
            self.link.recv(64)
        got, self.got = self.got, []
        return got


@contextmanager
def noted(numbers: Sequence[signal.Signals]) -> Iterator[Noted]:
    """Note these signals instead of their usual effects."""
    link, alarm = socket.socketpair()
    found = Noted(link)
    for end in (link, alarm):
        end.setblocking(False)
    woken = signal.set_wakeup_fd(alarm.fileno(), warn_on_full_buffer=False)
    before = {n: signal.signal(n, lambda number, _: found.got.append(number)) for n in numbers}
    try:
        yield found
    finally:
        signal.set_wakeup_fd(woken)
        for number, handler in before.items():
            signal.signal(number, handler)
        link.close()
        alarm.close()


def _have_none() -> None:
    # A forked child shares the pipe that wakes its parent's loop: a signal that ends the child
    # would also end the service.
    if _answered:
        signal.set_wakeup_fd(-1)
        for number in _answered:
            signal.signal(number, signal.SIG_DFL)


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_have_none)
