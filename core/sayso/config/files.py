"""Kinds of files: writing to a pipe, or reading a device, may never end."""

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
    """The kind of thing at `path` if it is no file, such as "a folder". None for a file, and if
    there is nothing, or nothing that can be read."""
    try:
        return _KINDS.get(stat.S_IFMT(os.stat(path).st_mode))
    except (OSError, ValueError):
        return None


def refuse_open(path: Path, what: str, way_out: str, *, group: bool = True) -> None:
    """Raise ConfigError if other users may change the file or folder at `path`; `what` names it.

    `group` says whether its group counts as others.
    """
    try:
        found = os.stat(path)
    except (OSError, ValueError):
        return
    others = stat.S_IWOTH | (stat.S_IWGRP if group else 0)
    # A device or a pipe is not stored; in a folder with the sticky bit, such as /tmp, each user
    # owns their files.
    kept = stat.S_ISREG(found.st_mode)
    kept |= stat.S_ISDIR(found.st_mode) and not found.st_mode & stat.S_ISVTX
    if os.name == "posix" and kept and found.st_mode & others:
        raise ConfigError(
            f"other users may write {what} {str(path)!r}; try: chmod go-w {shlex.quote(str(path))}"
            f", or {way_out}"
        )
