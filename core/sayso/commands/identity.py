"""The identity of a shell, so that a command runs only where it was approved (design, section 6,
"The deed": "Commands")."""

from __future__ import annotations

import hashlib
import os
import secrets
import socket
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from sayso.tools.identity import source_of
from sayso.trees import canonical

_MARK = ".sayso-folder"


def digest_of(folder: str, *settings: object) -> str:
    """The digest of a shell with these settings whose folders are in the one named `folder`."""
    return hashlib.sha256(canonical([folder, *settings])).hexdigest()


def environment(env: object) -> str:
    """The part of the added environment that an approval binds; the environment may contain
    secrets."""
    if isinstance(env, Mapping):
        salt = b"sayso:environment"
        return hashlib.scrypt(canonical(dict(env)), salt=salt, n=2**12, r=8, p=1).hex()
    return source_of(env) if callable(env) else ""


def identity_of(folder: Path) -> str:
    """A name that no other folder on any machine has: from a file in it, made once.

    Empty if it can be neither read nor made; then no command can run there either.
    """
    path = folder / _MARK
    for _ in range(2):
        with suppress(OSError):
            os.utime(path)
            return path.read_text("ascii")
        with suppress(OSError):
            _make(path)
    return ""


def _make(path: Path) -> None:
    # In one step: another process may create it as well, and the first one counts.
    made = path.with_name(f"{_MARK}-{secrets.token_hex(8)}")
    made.write_text(secrets.token_hex(16), "ascii")
    try:
        os.link(made, path)
    finally:
        made.unlink()


def place_of(program: str, workdir: Path | None) -> str:
    """A description, for people, of where commands run."""
    folder = "a private folder" if workdir is None else str(workdir)
    return f"{program} in {folder} on {socket.gethostname()}"


def shell_deed(shell: Any) -> dict[str, str]:
    """The fields of a proposal to run a command in this shell; a shell of the author's own is bound
    by its class."""
    if shell is None:
        return {}
    identity = getattr(shell, "identity", None)
    if identity is None:
        kind = f"{type(shell).__module__}.{type(shell).__qualname__}"
        return {"tool": digest_of("", kind), "source": kind}
    digest, source = identity()
    return {"tool": digest, "source": source}
