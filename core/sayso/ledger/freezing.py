"""The stop of all starts: a note in the store that every process reads before it claims a call
(design, section 6, "Approved elsewhere")."""

from __future__ import annotations

import json
import time
from dataclasses import asdict, dataclass

from sayso.ledger import Proposal, Transaction
from sayso.ledger.log import append, digest

_NOTE = "frozen"
LOOK = 1.0
"""Seconds for which a process uses the note that it has read: a stop applies everywhere within
two."""


@dataclass(frozen=True, slots=True)
class Frozen:
    """A stop of all starts: its author, its time (by the store's clock) and its reason."""

    who: str | None
    at: float
    reason: str

    def words(self, row: Proposal) -> str:
        """The text for callers about an approved call that does not start."""
        by = f" by {self.who}" if self.who else ""
        why = f": {self.reason}" if self.reason else ""
        return f"{row.name} was approved and has not run: all starts were stopped{by}{why}."


class Freezing:
    """The stop in the state that this process knows."""

    def __init__(self) -> None:
        self.now: Frozen | None = None
        self._read = -LOOK

    def look(self, tx: Transaction) -> Frozen | None:
        """The stop that applies now; it is read in this transaction, unless it was read a moment
        ago."""
        if time.monotonic() - self._read > LOOK:
            text = tx.notes(_NOTE).get(_NOTE)
            self.now = Frozen(**json.loads(text)) if text else None
            self._read = time.monotonic()
        return self.now

    def words(self, row: Proposal) -> str:
        """Why the approved call does not start, if that is because of a stop; else empty."""
        return self.now.words(row) if self.now is not None else ""

    def freeze(self, tx: Transaction, who: str | None, reason: str) -> Frozen:
        """Stop all starts."""
        frozen = Frozen(who, tx.now, reason)
        tx.note(_NOTE, json.dumps(asdict(frozen)))
        append(tx, {"event": "frozen", "who": who, "reason": digest(reason)})
        self._read = -LOOK
        return frozen

    def thaw(self, tx: Transaction, who: str | None) -> bool:
        """Let calls start again; returns whether they were stopped."""
        if _NOTE not in tx.notes(_NOTE):
            return False
        tx.note(_NOTE, None)
        append(tx, {"event": "thawed", "who": who})
        self._read = -LOOK
        return True
