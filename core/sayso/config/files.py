"""What stands at a path: a pipe may never be written, and reading a device may never end."""

from __future__ import annotations

import os
import stat
from pathlib import Path

PIPE = "a pipe"
_KINDS = {
    stat.S_IFDIR: "a folder",
    stat.S_IFIFO: PIPE,
    stat.S_IFCHR: "a device",
    stat.S_IFBLK: "a device",
    stat.S_IFSOCK: "a socket",
}


def no_file(path: Path) -> str | None:
    """What stands at `path` in the place of a file, such as "a folder"; None for a file, and where
    there is nothing, or nothing to be seen."""
    try:
        return _KINDS.get(stat.S_IFMT(os.stat(path).st_mode))
    except (OSError, ValueError):
        return None
