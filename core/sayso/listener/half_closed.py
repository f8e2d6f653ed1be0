"""Clients that send no more: most have left, some have only closed their half of the connection.

Both send the same end. A probe that is sent to them shows the difference: the system of a client
that has left refuses it, and the connection is closed then.
"""

from __future__ import annotations

import asyncio
import socket
import sys

from sayso.http.disconnect import A_MOMENT
from sayso.listener.corked import CorkedTransport

CONTINUE = b"HTTP/1.1 100 Continue\r\n\r\n"
"""An interim answer, which every client of HTTP/1.1 skips, whether it has asked for it or not."""
_CLOSED = 7
_LONGEST = 5.0
"""Seconds between two looks, at most; the first are a moment apart."""


def is_detectable() -> bool:
    """Whether this system says that a connection was refused before more is written to it."""
    return sys.platform == "linux"


class HalfClosed:
    """Looks after a connection to which something was just sent, until it is closed."""

    def __init__(self, transport: CorkedTransport, loop: asyncio.AbstractEventLoop) -> None:
        self._transport = transport
        self._loop = loop
        self._pause = A_MOMENT
        loop.call_later(self._pause, self._look)

    def _look(self) -> None:
        if self._transport.is_closing():
            return
        found = self._transport.get_extra_info("socket")
        if found.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, 1)[0] == _CLOSED:
            self._transport.abort()
            return
        self._pause = min(2 * self._pause, _LONGEST)
        self._loop.call_later(self._pause, self._look)
