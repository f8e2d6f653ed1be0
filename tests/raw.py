"""Plain sockets to a service, for data that no client library would send."""

from __future__ import annotations

import socket

DEADLINE = 60.0
"""Seconds after which a socket's test fails."""


def rest(connection: socket.socket) -> bytes:
    """All data until the service closes the connection."""
    said = []
    try:
        while got := connection.recv(1 << 20):
            said.append(got)
    except ConnectionError:
        pass
    return b"".join(said)
