"""Finds the changed source file, for `reload`: by modification times, without a dependency."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path
from time import monotonic

SKIPPED = frozenset({"__pycache__", "node_modules", "site-packages"})
MOST = 5_000
"""Most files and folders checked in a tree; files that a process has loaded are always checked."""
SHARE = 0.1
"""The share of its time that checking a large tree may take."""


class Watch:
    """The Python files under the working directory and the program's, and some more."""

    def __init__(self, files: Iterable[Path]) -> None:
        program = getattr(sys.modules["__main__"], "__file__", None)
        folders = {Path.cwd()}
        if program and not program.startswith((sys.prefix, sys.base_prefix)):
            folders.add(Path(program).resolve().parent)
        self._folders = folders
        self._files = {str(path) for path in files}
        self._next = 0.0
        self._seen = self._look()

    def add(self, files: Iterable[str]) -> None:
        """Also watch these: files that a child process has loaded."""
        new = set(files) - self._files
        self._files |= new
        for file in new:
            self._seen.setdefault(file, _time(file))

    def changed(self) -> Path | None:
        """A file that is new, gone or changed since the last call; None if there is none."""
        if (now := monotonic()) < self._next:
            return None
        seen, self._seen = self._seen, self._look()
        self._next = now + (monotonic() - now) / SHARE
        for file, time in self._seen.items():
            if seen.get(file) != time:
                return Path(file)
        gone = seen.keys() - self._seen.keys()
        return Path(gone.pop()) if gone else None

    def _look(self) -> dict[str, int]:
        found = {file: _time(file) for file in self._files}
        for folder in self._folders:
            for count, file in enumerate(_sources(folder)):
                if count >= MOST:
                    break
                found[file] = _time(file)
        return found


def _sources(folder: Path) -> Iterator[str]:
    for count, (place, folders, files) in enumerate(os.walk(folder)):
        if count >= MOST:
            return
        folders[:] = [
            name
            for name in folders
            if name not in SKIPPED
            and not name.startswith(".")
            and not os.path.exists(os.path.join(place, name, "pyvenv.cfg"))
        ]
        yield from (os.path.join(place, name) for name in files if name.endswith(".py"))


def _time(file: str) -> int:
    try:
        return os.stat(file).st_mtime_ns
    except OSError:
        return 0
