"""Living processes of this machine: one locked file for each process that uses a store.

The kernel frees a lock when its process dies, however it dies. A free lock therefore means a dead
owner, known at once, without waiting for a lease.
"""

from __future__ import annotations

import fcntl
import functools
import os
import re
import threading
from pathlib import Path

from sayso.ledger import Owner, locks

_NAME = re.compile(r"[A-Za-z0-9_-]{1,128}")
_BOOT_ID = Path("/proc/sys/kernel/random/boot_id")


@functools.cache
def boot_id() -> str:
    """The running kernel's boot id; empty if none can be read."""
    try:
        return _BOOT_ID.read_text().strip()
    except OSError:
        return ""


class Owners:
    """The lock files in `folder`, one for each owner id; the folder is created when first
    needed."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._held: dict[str, int] = {}
        self._lock = threading.Lock()

    def hold(self, owner: str) -> None:
        """Lock `owner`'s file until `release` or the end of this process; remove stale files.

        Raises OSError if the folder cannot be written, ValueError for an id that is no file name.
        """
        if not _NAME.fullmatch(owner):
            raise ValueError("an owner id must be letters, digits, '-' and '_'")
        self.folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        with self._lock:
            if owner not in self._held:
                self._remove_stale()
                self._held[owner] = self._locked(owner)

    def release(self) -> None:
        """Release every held lock; may be called repeatedly."""
        with self._lock:
            for owner, descriptor in self._held.items():
                (self.folder / owner).unlink(missing_ok=True)
                locks.closed(descriptor)
            self._held.clear()

    def dead(self, owner: Owner) -> bool:
        """Whether `owner` ran under this kernel and its lock is free."""
        if not owner.boot or owner.boot != boot_id() or owner.id in self._held:
            return False
        if not _NAME.fullmatch(owner.id):
            return False
        try:
            descriptor = os.open(self.folder / owner.id, os.O_RDONLY)
        except FileNotFoundError:
            return True
        except OSError:
            return False
        try:
            return locks.taken(descriptor, fcntl.LOCK_SH)
        finally:
            os.close(descriptor)

    def _locked(self, owner: str) -> int:
        # Others judge by the final name, so create the file under it only when it is already
        # locked.
        draft = self.folder / f".{owner}"
        descriptor = locks.opened(draft)
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        draft.rename(self.folder / owner)
        return descriptor

    def _remove_stale(self) -> None:
        for path in self.folder.iterdir():
            if path.name.startswith(".") or path.name in self._held:
                continue
            try:
                descriptor = os.open(path, os.O_RDONLY)
            except OSError:
                continue
            if locks.taken(descriptor):
                path.unlink(missing_ok=True)
            os.close(descriptor)
