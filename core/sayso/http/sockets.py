"""WebSocket connections that need no task while they are idle."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any, Protocol

from starlette.types import Receive, Send

BEARER = "sayso.bearer."
"""The prefix of a subprotocol that carries a bearer token, in base64url: a page in a browser cannot
set a header on a WebSocket."""


class Carrier(Protocol):
    """The carrier of an accepted WebSocket: the listener's own protocol, or plain ASGI."""

    async def send_lines(self, lines: bytes) -> None:
        """Send each line, without its end, as one text message."""
        ...

    def read_on(self) -> None:
        """Continue reading, after `Socket.received` asked for a pause."""
        ...

    def hang_up(self) -> None:
        """Close the connection at once, because the endpoint has failed."""
        ...


class Socket:
    """One accepted WebSocket; an endpoint's own subclass gets its messages.

    The app's listener calls the object itself, and `serve` returns at once, so an idle connection
    has neither task nor queue. Under another server, or behind middleware that wraps `receive` or
    `send`, `serve` reads until the client has gone.
    """

    __slots__ = ("carrier",)

    carrier: Carrier

    @property
    def busy(self) -> bool | None:
        """Whether a message is still unanswered; None if that is unknown.

        When a worker is renewed, a connection that knows it reads nothing more, and is closed as
        soon as it is not busy.
        """
        return None

    def received(self, frame: str | bytes) -> bool:
        """Take one message, in order; False asks to stop reading until `carrier.read_on()`."""
        raise NotImplementedError

    def oversized(self) -> bytes:
        """The last line for a client that sends a frame far too large to read."""
        return b""

    def left(self) -> None:
        """The client has gone, or the service closes; called once."""
        raise NotImplementedError

    async def ended(self) -> None:
        """Return when nothing started by this connection is running any more."""

    async def serve(self, receive: Receive, send: Send, offered: Sequence[str] = ()) -> None:
        """Accept the connection and read its messages.

        `offered` are the subprotocols of the scope: browsers close a connection that chose none of
        those that they offered.
        """
        await receive()
        await send({"type": "websocket.accept", "subprotocol": _chosen(offered)})
        protocol: Any = getattr(send, "__self__", None)
        carry = getattr(protocol, "carry", None)
        if carry is not None and getattr(receive, "__self__", None) is protocol:
            self.carrier = protocol  # type: ignore[assignment]
            carry(self)
            return
        plain = self.carrier = _Plain(receive, send)
        try:
            await plain.read_messages(self)
        finally:
            await self.ended()


def _chosen(offered: Sequence[str]) -> str | None:
    """The first subprotocol, if one of them carries no token."""
    plain = [one for one in offered if not one.startswith(BEARER)]
    return next(iter([*plain, *offered]), None)


class _Plain:
    """A WebSocket of any server, through ASGI messages."""

    def __init__(self, receive: Receive, send: Send) -> None:
        self._receive = receive
        self._send = send
        self._reads_on = asyncio.Event()
        self._hearing: asyncio.Task[Any] | None = None

    async def read_messages(self, socket: Socket) -> None:
        self._hearing = asyncio.current_task()
        try:
            while (message := await self._receive())["type"] != "websocket.disconnect":
                if message["type"] != "websocket.receive":
                    continue
                text = message.get("text")
                self._reads_on.clear()
                if not socket.received(text if text is not None else message.get("bytes") or b""):
                    await self._reads_on.wait()
        finally:
            self._hearing = None
            socket.left()

    async def send_lines(self, lines: bytes) -> None:
        for line in texts(lines):
            await self._send({"type": "websocket.send", "text": line.decode()})

    def read_on(self) -> None:
        self._reads_on.set()

    def hang_up(self) -> None:
        if self._hearing is not None:
            self._hearing.cancel()


def texts(lines: bytes) -> list[bytes]:
    """The lines without their ends; no JSON text contains a line end."""
    found = lines.split(b"\n")
    del found[-1]
    return found
