"""Notifications (NOTIFY) from one process to the others that the log has something new for them.

They are sent only for changes that no reader polls for: a NOTIFY within the transactions themselves
would make all of them commit one after another.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from contextlib import suppress

import psycopg

from sayso_postgres.connection import Raw

CHANNEL = "sayso_log"
_LISTEN = f"LISTEN {CHANNEL}"
_NOTIFY = f"NOTIFY {CHANNEL}"
_STEP = 0.5
"""Seconds after which the listening thread checks whether it should stop."""
_POOLED = 1.0
"""Seconds between two looks if a pooler in transaction mode passes no notifications on."""


class Waking:
    """A connection for listening only; it is opened when a reader first waits."""

    def __init__(self, connect: Callable[[], Raw]) -> None:
        self._connect = connect
        self._listening: Raw | None = None
        self._lock = threading.Lock()
        self._closed = False

    def wait(self, seconds: float) -> None:
        """Return when another process has sent a notification, or after this number of seconds;
        blocks."""
        until = time.monotonic() + seconds
        with self._lock:
            try:
                while not self._closed and (left := until - time.monotonic()) > 0:
                    if self._is_notified(min(left, _STEP)):
                        return
            except psycopg.Error:
                # The poll continues without it, and the next wait opens a new connection.
                self._cut()
                time.sleep(min(_POOLED, max(0.0, until - time.monotonic())))

    def notify(self) -> None:
        """Wake all processes that wait; blocks. If this fails, their polls find the change."""
        with suppress(psycopg.Error), self._connect() as connection:
            connection.execute(_NOTIFY.encode())

    def close(self) -> None:
        """Let waiting readers return, and close the connection."""
        self._closed = True
        if self._lock.acquire(timeout=2 * _STEP):
            self._cut()
            self._lock.release()

    def _is_notified(self, seconds: float) -> bool:
        if self._listening is None:
            self._listening = self._connect()
            self._listening.execute(_LISTEN.encode())
        if self._listening.pooled:
            time.sleep(min(seconds, _POOLED))
            return False
        return any(True for _ in self._listening.notifies(timeout=seconds, stop_after=1))

    def _cut(self) -> None:
        listening, self._listening = self._listening, None
        if listening is not None:
            with suppress(psycopg.Error):
                listening.close()
