"""The service's listening sockets, which a process forked by user code closes.

Otherwise it would keep the port in use after the service has ended, and keep connections open that
the service has closed, on which clients would wait for answers.
"""

from __future__ import annotations

import errno
import os
import socket
import sys
from contextlib import ExitStack
from weakref import WeakSet

from sayso.errors import StartupError

BACKLOG = 2048
"""Connections that wait at a socket to be accepted."""
_INTERNET = (socket.AF_INET, socket.AF_INET6)
_ours: WeakSet[socket.socket] = WeakSet()


def bind(host: str, port: int, workers: int = 1) -> list[socket.socket]:
    """Listening sockets on `host` and `port`; a StartupError of one line if that is impossible.

    On Linux one for each worker, since the kernel then gives each about as many connections; from
    one socket, any worker that is awake takes all waiting ones. Elsewhere one for all.
    """
    with ExitStack() as stack:
        try:
            sockets = [stack.enter_context(_listening(host, port))]
            if workers > 1 and sys.platform == "linux":
                # Set only after binding: otherwise a second service could share the port of the
                # first.
                sockets[0].setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
                address = sockets[0].getsockname()[:2]
                for _ in range(workers - 1):
                    sockets.append(stack.enter_context(_listening(*address, shared=True)))
        except OSError as error:
            raise StartupError(_unbound(error, host, port)) from error
        stack.pop_all()
        return sockets


def _listening(host: str, port: int, *, shared: bool = False) -> socket.socket:
    listening = socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET)
    try:
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if shared:
            listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
        listening.bind((host, port))
        # Listen now, not in a child: a second service could bind between bind and listen.
        listening.listen(BACKLOG)
    except OSError:
        listening.close()
        raise
    serves_on(listening)
    return listening


def _unbound(error: OSError, host: str, port: int) -> str:
    where = f"port {port} of {host}"
    match error.errno:
        case errno.EADDRINUSE:
            return f"{where} is in use; stop what listens there or choose another with --port"
        case errno.EACCES:
            return f"{where} needs more rights; choose a port above 1023 with --port"
        case errno.EADDRNOTAVAIL:
            return f"{host} is no address of this machine; choose another with --host"
    return f"{where} cannot be listened on: {error.strerror or error}"


def serves_on(listening: socket.socket) -> None:
    """Note that a service of this process listens on this socket, for as long as it is open."""
    _ours.add(listening)


def _have_none() -> None:
    ports = {each.getsockname()[1] for each in _ours if each.fileno() >= 0}
    if not ports:
        return
    nothing = os.open(os.devnull, os.O_RDWR)
    for name in os.listdir("/dev/fd"):
        if _local_port(int(name)) in ports:
            # Replaced rather than closed: a closed number would be reused for another file, which
            # the socket's object here would close again.
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
