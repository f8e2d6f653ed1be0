"""A gate at which user code blocks as long as a test wants it to."""

from __future__ import annotations

import threading

PATIENCE = 120.0
"""Seconds after which blocked code fails rather than wait for a test that never opens the gate."""


class Gate:
    """A gate at which code blocks until the test opens it; `count` is the number of blocked
    calls."""

    def __init__(self) -> None:
        self._open = threading.Event()
        self._there: list[bool] = []

    @property
    def count(self) -> int:
        return len(self._there)

    def open(self) -> None:
        self._open.set()

    def block(self) -> str:
        """Block, then return the name of the thread."""
        self._there.append(True)
        assert self._open.wait(PATIENCE)
        return threading.current_thread().name

    async def turn(self) -> str:
        """`block`, as a turn that blocks its loop."""
        return self.block()
