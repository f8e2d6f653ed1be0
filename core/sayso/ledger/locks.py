"""Lock files that are held for as long as this process lives.

A process forked by user code inherits the locks of its parent. If it kept them, a dead parent would
still look alive, and everybody else would stay locked out; so the child closes them.
"""

from __future__ import annotations

import fcntl
import os
from pathlib import Path

_open: set[int] = set()


def opened(path: Path) -> int:
    """The descriptor of the file at `path`, for locking; the file is created with mode 0600 if
    missing."""
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT, 0o600)
    _open.add(descriptor)
    return descriptor


def closed(descriptor: int) -> None:
    """Close a descriptor from `opened`, and free its lock."""
    _open.discard(descriptor)
    os.close(descriptor)


def taken(descriptor: int, kind: int = fcntl.LOCK_EX) -> bool:
    """Lock the file; false if another descriptor's lock prevents it."""
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
