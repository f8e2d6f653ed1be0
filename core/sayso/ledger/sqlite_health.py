"""Whether an SQLite file would take a proposal: room on its disk, and pages that are whole."""

from __future__ import annotations

import os
import sqlite3
import tempfile
import threading
import time
from collections.abc import Iterable
from contextlib import closing
from pathlib import Path

from sayso.errors import ConfigError, LedgerUnavailable
from sayso.ledger.sqlite_connection import WAYS_OUT, SqliteConnection, way_out
from sayso.ledger.writer import Outcome

_ROOM = 2**20
"""Bytes that must be free: what is written at once may be as large."""
_CHECKED_WHOLE = 64 * 2**20
"""Bytes of a file up to which it is looked through."""
_EVERY = 60.0
_SHARE = 0.01
"""The part of the time that looking through the file may take."""
_QUICK_CHECK = "PRAGMA quick_check(1)"
_WHOLE = [("ok",)]


class Health:
    """The known state of the file at `path`; several threads use it."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._name = f"the approvals store {str(path)!r}"
        self._damaged = False
        self._lock = threading.Lock()
        self._next = 0.0

    def check_at_start(self, db: SqliteConnection) -> None:
        """Raise ConfigError for a damaged file, unless it is too large to be looked through."""
        if self._checked_whole() and db.read(_QUICK_CHECK) != _WHOLE:
            raise ConfigError(f"{self._name} {WAYS_OUT['CORRUPT']}")
        self._next = time.monotonic() + _EVERY

    def note(self, outcomes: Iterable[Outcome]) -> None:
        """Remember that a work has met damage: other pages may be whole, and it does not heal."""
        for outcome in outcomes:
            cause = outcome.error and outcome.error.__cause__
            if isinstance(cause, sqlite3.Error) and way_out(cause) == WAYS_OUT["CORRUPT"]:
                self._damaged = True

    def check_space(self) -> None:
        """Raise LedgerUnavailable if the disk, or the user's share of it, is full."""
        if not hasattr(os, "posix_fallocate"):
            return
        try:
            with tempfile.TemporaryFile(dir=self._path.parent) as file:
                os.posix_fallocate(file.fileno(), 0, _ROOM)
        except OSError as error:
            raise self._unavailable(f"cannot grow: {error.strerror}; free some space") from error

    def check_pages(self) -> None:
        """Raise LedgerUnavailable for a damaged file; it is looked through now and then."""
        with self._lock:
            if not self._damaged and time.monotonic() > self._next and self._checked_whole():
                began = time.monotonic()
                self._damaged = not self._is_whole()
                ended = time.monotonic()
                self._next = ended + max(_EVERY, (ended - began) / _SHARE)
        if self._damaged:
            raise self._unavailable(WAYS_OUT["CORRUPT"])

    def _is_whole(self) -> bool:
        # Use a new connection: the others would use pages that they have read before.
        try:
            with closing(sqlite3.connect(f"{self._path.as_uri()}?mode=ro", uri=True)) as db:
                return db.execute(_QUICK_CHECK).fetchall() == _WHOLE
        except sqlite3.DatabaseError as error:
            return way_out(error) != WAYS_OUT["CORRUPT"]

    def _checked_whole(self) -> bool:
        return self._path.stat().st_size < _CHECKED_WHOLE

    def _unavailable(self, why: str) -> LedgerUnavailable:
        error = LedgerUnavailable(f"the approvals store {why}")
        error.add_note(f"it is {str(self._path)!r}")
        return error
