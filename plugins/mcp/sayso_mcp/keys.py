"""The secret that seals the state of open questions; processes share it, and it survives
restarts."""

from __future__ import annotations

import os
import secrets
from contextlib import suppress
from pathlib import Path

from sayso import Host, PluginError

LENGTH = 32


def key_of(host: Host, given: Path | None) -> bytes:
    """The secret: from `key_file`, else from `mcp.key` in the state folder, which is made if
    missing.

    If the ledger is not shared, sealed state is of no use to another process, so the secret is
    random. Raises PluginError for a file that cannot be read, is too short, or that others can
    read.
    """
    if given is None and not host.shares_ledger:
        return secrets.token_bytes(LENGTH)
    if given is None:
        path = host.state_dir / "mcp.key"
    else:
        path = host.config.path("plugin.mcp.key_file", given)
    try:
        return _read(path)
    except OSError as error:
        raise PluginError(
            f"the MCP key {str(path)!r} cannot be used: {error.strerror}; "
            "set plugin.mcp.key_file or server.state_dir to a place that can be written"
        ) from error


def _read(path: Path) -> bytes:
    if not path.exists():
        _make(path)
    if path.stat().st_mode & 0o077 and os.name == "posix":
        raise PluginError(f"the MCP key {str(path)!r} is open to other users; try: chmod 600")
    key = path.read_bytes()
    if len(key) < LENGTH:
        raise PluginError(
            f"the MCP key {str(path)!r} has less than {LENGTH} bytes; remove it, and a new one "
            "is made at the next start"
        )
    return key


def _make(path: Path) -> None:
    """Write the whole file under another name first: other processes never see half of it."""
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    draft = path.with_name(f".{path.name}.{secrets.token_hex(8)}")
    descriptor = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    try:
        with os.fdopen(descriptor, "wb") as file:
            file.write(secrets.token_bytes(LENGTH))
        with suppress(FileExistsError):
            os.link(draft, path)
    finally:
        draft.unlink()
