"""The load: raw protocols that keep a number of connections busy and time every turn."""

from __future__ import annotations

import asyncio
import base64
import os
import struct
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from typing import cast

HOST = "127.0.0.1"


class LoadError(Exception):
    """A server answered with what no turn looks like, or did not answer at all."""


@dataclass(slots=True)
class Timings:
    """Seconds of each turn: to its end, and to the first byte of its body."""

    whole: list[float] = field(default_factory=list)
    first: list[float] = field(default_factory=list)
    last_body: bytes = b""


def post(path: str, body: bytes, content_type: str = "application/json") -> bytes:
    """An HTTP/1.1 request on a connection that stays open."""
    head = (
        f"POST {path} HTTP/1.1\r\nHost: {HOST}\r\nContent-Type: {content_type}\r\n"
        f"Content-Length: {len(body)}\r\n\r\n"
    )
    return head.encode() + body


def frame(body: bytes) -> bytes:
    """A masked text frame; the mask of zeros leaves the text as it is."""
    size = len(body)
    if size < 126:
        head = struct.pack("!BB", 0x81, 0x80 | size)
    elif size < 1 << 16:
        head = struct.pack("!BBH", 0x81, 0x80 | 126, size)
    else:
        head = struct.pack("!BBQ", 0x81, 0x80 | 127, size)
    return head + b"\0\0\0\0" + body


class Client(asyncio.Protocol):
    """One connection that sends the next turn as soon as one has ended, until told to stop."""

    def __init__(self, request: bytes, timings: Timings, ended: Callable[[], None]) -> None:
        self.request = request
        self.timings = timings
        self.ended = ended
        self.running = True
        self.error: str | None = None
        self.buffer = b""
        self.begun = 0.0
        self.waiting_for_first = True

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        # uvloop's transports are no asyncio.Transport.
        self.transport = cast("asyncio.Transport", transport)
        self.next()

    def next(self) -> None:
        """Send one turn."""
        self.buffer = b""
        self.waiting_for_first = True
        self.begun = time.perf_counter()
        self.transport.write(self.request)

    def data_received(self, data: bytes) -> None:
        self.buffer = self.buffer + data if self.buffer else data
        if self.waiting_for_first and self.has_body():
            self.waiting_for_first = False
            self.timings.first.append(time.perf_counter() - self.begun)
        if self.is_whole():
            self.timings.whole.append(time.perf_counter() - self.begun)
            if not self.is_good():
                self.fail(repr(self.buffer[:300]))
            elif self.running:
                self.next()
            else:
                self.timings.last_body = self.buffer
                self.ended()

    def connection_lost(self, exc: Exception | None) -> None:
        if self.running:
            self.fail(f"the connection was closed: {exc}")

    def fail(self, why: str) -> None:
        """Give up."""
        self.running = False
        self.error = why
        self.transport.close()
        self.ended()

    def has_body(self) -> bool:
        """Whether something of the reply itself has come."""
        at = self.buffer.find(b"\r\n\r\n")
        return 0 <= at < len(self.buffer) - 4

    def is_whole(self) -> bool:
        """Whether the reply is complete."""
        raise NotImplementedError

    def is_good(self) -> bool:
        """Whether it is a reply, not a refusal."""
        return self.buffer.startswith(b"HTTP/1.1 200")


class Whole(Client):
    """Replies with a content length."""

    def is_whole(self) -> bool:
        end = self.buffer.find(b"\r\n\r\n")
        if end < 0:
            return False
        head = self.buffer[:end].lower()
        at = head.find(b"content-length: ")
        if at < 0:
            return self.buffer.endswith(b"0\r\n\r\n")
        return len(self.buffer) - end - 4 >= int(head[at + 16 :].split(b"\r\n", 1)[0])


class Stream(Client):
    """Chunked replies."""

    def is_whole(self) -> bool:
        return self.buffer.endswith(b"0\r\n\r\n")


class Socket(Client):
    """Turns on a WebSocket; each ends with a frame that holds the event `done`."""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast("asyncio.Transport", transport)
        self.upgraded = False
        key = base64.b64encode(os.urandom(16)).decode()
        self.transport.write(
            (
                f"GET /api/chat-ws HTTP/1.1\r\nHost: {HOST}\r\nUpgrade: websocket\r\n"
                f"Connection: Upgrade\r\nSec-WebSocket-Key: {key}\r\n"
                "Sec-WebSocket-Version: 13\r\n\r\n"
            ).encode()
        )

    def data_received(self, data: bytes) -> None:
        if self.upgraded:
            super().data_received(data)
            return
        self.buffer += data
        if b"\r\n\r\n" in self.buffer:
            if not self.buffer.startswith(b"HTTP/1.1 101"):
                self.fail(repr(self.buffer[:300]))
                return
            self.upgraded = True
            self.next()

    def has_body(self) -> bool:
        return len(self.buffer) > 4

    def is_whole(self) -> bool:
        at = self.buffer.rfind(b'"type":"done"')
        return at >= 0 and self.buffer.endswith(b"}")

    def is_good(self) -> bool:
        return True


class Idle(Socket):
    """A WebSocket that is opened and then says nothing."""

    def next(self) -> None:
        self.running = False
        self.ended()


async def drive(
    kind: type[Client], port: int, request: bytes, connections: int, seconds: float
) -> Timings:
    """Keep `connections` busy for `seconds`; raises LoadError for a reply that is none."""
    timings = Timings()
    left = connections
    everyone = asyncio.get_running_loop().create_future()

    def one_ended() -> None:
        nonlocal left
        left -= 1
        if left == 0 and not everyone.done():
            everyone.set_result(None)

    clients = await open_clients(kind, port, request, connections, timings, one_ended)
    try:
        await asyncio.wait([everyone], timeout=seconds)
        for client in clients:
            client.running = False
        await asyncio.wait_for(everyone, 60)
    except TimeoutError:
        raise LoadError("a turn did not end within a minute") from None
    finally:
        for client in clients:
            client.transport.close()
    errors = [client.error for client in clients if client.error]
    if errors:
        raise LoadError(errors[0])
    return timings


async def open_clients(
    kind: type[Client],
    port: int,
    request: bytes,
    connections: int,
    timings: Timings,
    ended: Callable[[], None],
) -> list[Client]:
    """That many connections, opened a few at a time."""
    loop = asyncio.get_running_loop()
    clients: list[Client] = []
    for first in range(0, connections, 50):
        opened = await asyncio.gather(
            *(
                loop.create_connection(partial(kind, request, timings, ended), HOST, port)
                for _ in range(first, min(connections, first + 50))
            )
        )
        clients += [client for _, client in opened]
    return clients


async def once(kind: type[Client], port: int, request: bytes) -> Timings:
    """One turn on a connection of its own."""
    return await drive(kind, port, request, 1, 0.0)
