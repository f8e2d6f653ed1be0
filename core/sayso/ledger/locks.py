"""Lock files that are held for as long as this process lives.

A process that user code forks inherits the locks of its parent. It would keep them after the
parent's death, so that the parent passed for alive and everybody else stayed locked out. So it
closes them.
"""

from __future__ import annotations

import fcntl
import os
from pathlib import Path

_open: set[int] = set()


def opened(path: Path) -> int:
    """The descriptor of the file at `path`, made with mode 0600 where there is none, to lock it."""
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT, 0o600)
    _open.add(descriptor)
    return descriptor


def closed(descriptor: int) -> None:
    """Close what `opened` gave, and free its lock."""
    _open.discard(descriptor)
    os.close(descriptor)


def taken(descriptor: int, kind: int = fcntl.LOCK_EX) -> bool:
    """Lock the file unless another descriptor's lock on it stands against that."""
    try:
        fcntl.flock(descriptor, kind | fcntl.LOCK_NB)
    except OSError:
        return False
    return True


def _have_none() -> None:
    for descriptor in _open:
        os.close(descriptor)
    _open.clear()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_have_none)
