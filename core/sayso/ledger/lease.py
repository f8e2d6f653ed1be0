"""The lease of this process on what it has claimed, renewed for as long as it lives."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Collection

from sayso.errors import LedgerUnavailable
from sayso.ledger import Store

logger = logging.getLogger("sayso.ledger")


class Lease:
    """Shows other processes that the process `owner` is alive, from its first claim on.

    It is renewed three times in `seconds`, for what is `held` then.
    """

    def __init__(
        self, store: Store, owner: str, seconds: float, held: Callable[[], Collection[str]]
    ) -> None:
        self._store = store
        self._held_ids = held
        self._owner = owner
        self._seconds = seconds
        self._held = False
        self._lock = threading.Lock()
        self._stopped = threading.Event()

    def hold(self) -> None:
        """Start renewing the lease, once; raises LedgerUnavailable."""
        with self._lock:
            if self._held or not self._store.shared:
                return
            self._store.hold(self._owner)
            renewer = threading.Thread(target=self._renew, name="sayso-lease", daemon=True)
            try:
                renewer.start()
            except RuntimeError as error:
                # Without renewal, others would consider this process dead during a long call.
                raise LedgerUnavailable(f"no claim can be kept alive: {error}") from error
            self._held = True

    def stop(self) -> None:
        """Stop renewing the lease."""
        self._stopped.set()

    def _renew(self) -> None:
        while not self._stopped.wait(self._seconds / 3):
            try:
                if ids := self._held_ids():
                    self._store.renew(self._owner, self._seconds, ids)
            except Exception as error:
                logger.warning("the lease of this process could not be renewed: %r", error)
