"""The service's listening sockets, which a process forked by user code must give up.

Otherwise it would keep the port in use after the service has ended, and keep open connections that
the service has closed, on which clients would wait for answers.
"""

from __future__ import annotations

import os
import socket
from weakref import WeakSet

BACKLOG = 2048
"""Connections that wait at a socket until somebody takes them."""
_INTERNET = (socket.AF_INET, socket.AF_INET6)
_listening: WeakSet[socket.socket] = WeakSet()


def serves_on(listening: socket.socket) -> None:
    """Say that a service of this process listens on this socket, for as long as it is open."""
    _listening.add(listening)


def _have_none() -> None:
    ports = {each.getsockname()[1] for each in _listening if each.fileno() >= 0}
    if not ports:
        return
    nothing = os.open(os.devnull, os.O_RDWR)
    for name in os.listdir("/dev/fd"):
        if _local_port(int(name)) in ports:
            # Closed, its number would be another file's, which its object here would close again.
            os.dup2(nothing, int(name), inheritable=False)
    os.close(nothing)


def _local_port(descriptor: int) -> int | None:
    try:
        found = socket.socket(fileno=descriptor)
    except OSError:
        return None
    try:
        return int(found.getsockname()[1]) if found.family in _INTERNET else None
    finally:
        found.detach()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_have_none)
