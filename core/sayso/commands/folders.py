"""Files under a folder with any contents: no path and no link leads out of it."""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path

__all__ = ["PathRefused", "folder_inside", "private_folder", "relative_parts", "write_inside"]

_FOLDER = os.O_RDONLY | getattr(os, "O_DIRECTORY", 0) | getattr(os, "O_NOFOLLOW", 0)
_NEW_FILE = os.O_WRONLY | os.O_CREAT | os.O_EXCL | getattr(os, "O_NOFOLLOW", 0)


class PathRefused(ValueError):
    """A path is absolute, leads out of its folder, or is no path at all."""


def relative_parts(path: str) -> tuple[str, ...]:
    """The names in a path below a folder; raises PathRefused.

    Refused are absolute paths, `..`, `~` at the front, NUL, and paths that name no file.
    """
    shown = repr(path if len(path) <= 200 else path[:200] + "…")
    try:
        path.encode()
    except UnicodeEncodeError:
        raise PathRefused(f"the file path {shown} is not valid Unicode") from None
    if "\0" in path:
        raise PathRefused(f"the file path {shown} holds a NUL character")
    if path.startswith(("/", "~")):
        raise PathRefused(f"the file path {shown} must be relative to the working directory")
    parts = tuple(part for part in path.split("/") if part not in ("", "."))
    if ".." in parts:
        raise PathRefused(f"the file path {shown} must not contain '..'")
    if not parts or path.endswith(("/", "/.")):
        raise PathRefused(f"the file path {shown} names no file")
    return parts


def private_folder(path: Path) -> Path:
    """`path` as a folder of this user alone, mode 0700, created if missing.

    Raises PermissionError if it is a link or another user's.
    """
    path.mkdir(mode=0o700, exist_ok=True)
    found = path.lstat()
    if not stat.S_ISDIR(found.st_mode) or found.st_uid != os.geteuid():
        raise PermissionError(f"{str(path)!r} is not a folder of this user; choose another one")
    if stat.S_IMODE(found.st_mode) != 0o700:
        path.chmod(0o700)
    return path


@contextmanager
def folder_inside(root: Path, parts: Sequence[str], *, create: bool = False) -> Iterator[int]:
    """A descriptor of the folder `parts` below `root`, reached without following any link.

    Raises PathRefused for a link or a file on the way, FileNotFoundError for a missing folder.
    """
    here = os.open(root, _FOLDER)
    try:
        for index, part in enumerate(parts):
            if create:
                with suppress(FileExistsError):
                    os.mkdir(part, 0o700, dir_fd=here)
            below = _open_folder(part, here, "/".join(parts[: index + 1]))
            os.close(here)
            here = below
        yield here
    finally:
        os.close(here)


def _open_folder(name: str, within: int, shown: str) -> int:
    try:
        return os.open(name, _FOLDER, dir_fd=within)
    except OSError as error:
        if error.errno in (errno.ELOOP, errno.ENOTDIR):
            raise PathRefused(f"{shown!r} is a link or a file, not a folder") from None
        raise


def write_inside(root: Path, path: str, content: bytes) -> None:
    """Write `content` to the file `path` below `root`, mode 0600; sub-folders are created.

    An existing file is replaced, never written through: it could be a link to another.
    """
    *folders, name = relative_parts(path)
    with folder_inside(root, folders, create=True) as folder:
        _remove_old(name, folder, path)
        descriptor = os.open(name, _NEW_FILE, 0o600, dir_fd=folder)
        with open(descriptor, "wb") as file:
            file.write(content)


def _remove_old(name: str, folder: int, path: str) -> None:
    try:
        found = os.stat(name, dir_fd=folder, follow_symlinks=False)
    except FileNotFoundError:
        return
    if not stat.S_ISREG(found.st_mode):
        raise PathRefused(f"{path!r} is there already and is no regular file")
    os.unlink(name, dir_fd=folder)
