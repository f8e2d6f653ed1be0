"""What stands at a path: a pipe may never be written, and reading a device may never end."""

from __future__ import annotations

import os
import shlex
import stat
from pathlib import Path

from sayso.errors import ConfigError

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


def refuse_open(path: Path, what: str, way_out: str, *, group: bool = True) -> None:
    """Raise ConfigError where other users may change the file or folder at `path`; `what` names it.

    `group` tells whether its group counts as others.
    """
    try:
        found = os.stat(path)
    except (OSError, ValueError):
        return
    others = stat.S_IWOTH | (stat.S_IWGRP if group else 0)
    # A device or a pipe is no file to keep; in a folder such as /tmp each has its own files.
    kept = stat.S_ISREG(found.st_mode)
    kept |= stat.S_ISDIR(found.st_mode) and not found.st_mode & stat.S_ISVTX
    if os.name == "posix" and kept and found.st_mode & others:
        raise ConfigError(
            f"other users may write {what} {str(path)!r}; try: chmod go-w {shlex.quote(str(path))}"
            f", or {way_out}"
        )
