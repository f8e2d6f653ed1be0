"""Plain sockets to a service, for tests of what no client library would send."""

from __future__ import annotations

import socket

DEADLINE = 60.0
"""Seconds after which a socket's test gives up."""


def rest(connection: socket.socket) -> bytes:
    """What comes until the service closes the connection."""
    said = []
    try:
        while got := connection.recv(1 << 20):
            said.append(got)
    except ConnectionError:
        pass
    return b"".join(said)
