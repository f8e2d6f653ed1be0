"""The calls and turns that this process really holds, independently of the store.

A store may lose the end of a call: a standby takes over that had not received it, or an older
database is restored. Its row then names this process as the owner of a call that ended long ago.
Therefore a process renews only the leases of calls that it runs. If a row of its own names a call
that it does not hold, it treats it as a call whose outcome the store does not know.
"""

from __future__ import annotations

import threading
from collections.abc import Iterable


class Holdings:
    """The claims of this process by their tokens: on their way to the store, or held."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        # None: the claim is on its way, and everything that it claims is held.
        self._ids: dict[str, set[str] | None] = {}

    def send(self, token: str) -> None:
        """Note that the claim is about to be sent."""
        with self._lock:
            self._ids[token] = None

    def keep(self, token: str, ids: Iterable[str]) -> None:
        """Note which calls or turns the claim was granted; without any it is forgotten."""
        with self._lock:
            self._ids[token] = set(ids)
            self._prune(token)

    def end(self, token: str, ids: Iterable[str] | None = None) -> None:
        """Note that the store has recorded the end of these calls or turns; None: of all."""
        with self._lock:
            held = self._ids.get(token)
            self._ids[token] = held - set(ids) if held and ids is not None else set()
            self._prune(token)

    def holds(self, token: str, id_: str) -> bool:
        """Whether this process runs the call, continues the turn, or may be about to."""
        with self._lock:
            if token not in self._ids:
                return False
            held = self._ids[token]
            return held is None or id_ in held

    def ids(self) -> list[str]:
        """The calls that this process runs and the turns that it continues."""
        with self._lock:
            return [id_ for held in self._ids.values() for id_ in held or ()]

    def _prune(self, token: str) -> None:
        if not self._ids[token]:
            del self._ids[token]
