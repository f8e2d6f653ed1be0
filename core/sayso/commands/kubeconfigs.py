"""The kubeconfig of a request as a file, for as long as a command runs."""

from __future__ import annotations

import base64
import binascii
import fcntl
import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import BinaryIO

from sayso.commands.folders import PathRefused

_PREFIX = ".sayso-kubeconfig-"


@contextmanager
def as_file(encoded: str, base: Path) -> Iterator[Path]:
    """A file of this user alone with the kubeconfig, in `base`; raises PathRefused for invalid
    base64.

    It is locked: a free lock means that its process has died.
    """
    try:
        content = base64.b64decode("".join(encoded.split()), validate=True)
    except (binascii.Error, ValueError):
        raise PathRefused("the kubeconfig of the platform context is not valid base64") from None
    file, path = _locked(base)
    try:
        with file:
            file.write(content)
            file.flush()
            yield path
    finally:
        path.unlink(missing_ok=True)


def forget_dead(base: Path) -> None:
    """Remove the files in `base` of processes that were killed while a command ran."""
    for path in base.glob(f"{_PREFIX}*"):
        with suppress(OSError):
            descriptor = os.open(path, os.O_RDWR | os.O_NOFOLLOW | os.O_NONBLOCK)
            with open(descriptor, "rb"):
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
                path.unlink()


def _locked(base: Path) -> tuple[BinaryIO, Path]:
    while True:
        # mkstemp creates it with mode 0600.
        descriptor, name = tempfile.mkstemp(prefix=_PREFIX, dir=base)
        file = open(descriptor, "wb")
        with suppress(OSError):
            # If the file system has no locks, `forget_dead` gets none either.
            fcntl.flock(descriptor, fcntl.LOCK_EX)
        if os.fstat(descriptor).st_nlink:
            return file, Path(name)
        # Another process took it for a dead one's before it was locked.
        file.close()
