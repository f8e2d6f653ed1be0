"""The load: raw protocols that keep a number of connections busy and time every turn."""

from __future__ import annotations

import asyncio
import base64
import os
import struct
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import partial
from itertools import repeat
from typing import cast

HOST = "127.0.0.1"
DONE = b'"type":"done"'


class LoadError(Exception):
    """A server's answer is not a turn's, or there was none at all."""


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
    """A masked text frame; the mask of zeros leaves the text unchanged."""
    size = len(body)
    if size < 126:
        head = struct.pack("!BB", 0x81, 0x80 | size)
    elif size < 1 << 16:
        head = struct.pack("!BBH", 0x81, 0x80 | 126, size)
    else:
        head = struct.pack("!BBQ", 0x81, 0x80 | 127, size)
    return head + b"\0\0\0\0" + body


class Client(asyncio.Protocol):
    """One connection that sends the next turn as soon as one has ended, until stopped.

    It reads only as much as it needs to find the end of a reply, so that the load is not the
    bottleneck.
    """

    def __init__(
        self, requests: Iterator[bytes], timings: Timings, ended: Callable[[], None]
    ) -> None:
        self.requests = requests
        self.timings = timings
        self.ended = ended
        self.running = True
        self.error: str | None = None
        self.pieces: list[bytes] = []
        self.started_at = 0.0
        self.first = 0.0

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        # uvloop's transports do not derive from asyncio.Transport.
        self.transport = cast("asyncio.Transport", transport)
        self.next()

    def next(self) -> None:
        """Send one turn."""
        request = next(self.requests, None)
        if request is None:
            self.fail("there are no requests left; take fewer rounds")
            return
        self.pieces.clear()
        self.first = 0.0
        self.started_at = time.perf_counter()
        self.transport.write(request)

    def data_received(self, data: bytes) -> None:
        now = time.perf_counter()
        self.pieces.append(data)
        if not self.first and self.has_body(data):
            self.first = now
        if not self.is_whole(data):
            return
        self.timings.whole.append(now - self.started_at)
        self.timings.first.append((self.first or now) - self.started_at)
        if not self.is_good():
            self.fail(repr(b"".join(self.pieces)[:300]))
        elif self.running:
            self.next()
        else:
            self.timings.last_body = b"".join(self.pieces)
            self.ended()

    def connection_lost(self, exc: Exception | None) -> None:
        if self.running:
            self.fail(f"the connection was closed: {exc}")

    def fail(self, why: str) -> None:
        """Close the connection, and keep the reason."""
        self.running = False
        self.error = why
        self.transport.close()
        self.ended()

    def has_body(self, data: bytes) -> bool:
        """Whether a part of the reply's body has arrived, at the latest in `data`."""
        return len(self.pieces) > 1 or not data.endswith(b"\r\n\r\n")

    def is_whole(self, data: bytes) -> bool:
        """Whether the reply is complete with `data`."""
        raise NotImplementedError

    def is_good(self) -> bool:
        """Whether it is a reply, not a refusal."""
        return self.pieces[0].startswith(b"HTTP/1.1 200")


class Whole(Client):
    """Replies with a content length; one as long as the previous one is not read again."""

    expected = 0

    def is_whole(self, data: bytes) -> bool:
        size = len(data) if len(self.pieces) == 1 else sum(map(len, self.pieces))
        if size == self.expected:
            return True
        reply = b"".join(self.pieces)
        end = reply.find(b"\r\n\r\n")
        if end < 0:
            return False
        head = reply[:end].lower()
        at = head.find(b"content-length: ")
        if at < 0:
            return reply.endswith(b"\r\n0\r\n\r\n")
        if size - end - 4 < int(head[at + 16 :].split(b"\r\n", 1)[0]):
            return False
        self.expected = size
        return True


class Stream(Client):
    """Chunked replies."""

    def is_whole(self, data: bytes) -> bool:
        if not data.endswith(b"\n"):
            return False
        if len(data) < 7:
            data = b"".join(self.pieces[-7:])
        return data.endswith(b"\r\n0\r\n\r\n")


class Socket(Client):
    """Turns on a WebSocket; each ends with a frame that has the event `done`."""

    upgraded = False

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast("asyncio.Transport", transport)
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
        self.pieces.append(data)
        answer = b"".join(self.pieces)
        if b"\r\n\r\n" in answer:
            if not answer.startswith(b"HTTP/1.1 101"):
                self.fail(repr(answer[:300]))
                return
            self.upgraded = True
            self.next()

    def has_body(self, data: bytes) -> bool:
        return True

    def is_whole(self, data: bytes) -> bool:
        if not data.endswith(b"}"):
            return False
        if DONE in data[-200:]:
            return True
        # The last frame may arrive in two pieces.
        return len(data) < 200 and DONE in b"".join(self.pieces[-3:])[-200:]

    def is_good(self) -> bool:
        return True


class Idle(Socket):
    """A WebSocket that is opened and then says nothing; `running` until it is open."""

    def next(self) -> None:
        self.running = False
        self.ended()


async def drive(
    kind: type[Client],
    port: int,
    request: bytes | Iterator[bytes],
    connections: int,
    seconds: float,
) -> Timings:
    """Keep `connections` busy for `seconds`; raises LoadError for an invalid reply."""
    timings = Timings()
    left = connections
    everyone = asyncio.get_running_loop().create_future()

    def one_ended() -> None:
        nonlocal left
        left -= 1
        if left == 0 and not everyone.done():
            everyone.set_result(None)

    requests = repeat(request) if isinstance(request, bytes) else request
    clients = await open_clients(kind, port, requests, connections, timings, one_ended)
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
    requests: Iterator[bytes],
    connections: int,
    timings: Timings,
    ended: Callable[[], None],
) -> list[Client]:
    """This number of connections, opened a few at a time."""
    loop = asyncio.get_running_loop()
    clients: list[Client] = []
    for first in range(0, connections, 50):
        opened = await asyncio.gather(
            *(
                loop.create_connection(partial(kind, requests, timings, ended), HOST, port)
                for _ in range(first, min(connections, first + 50))
            )
        )
        clients += [client for _, client in opened]
    return clients


async def once(kind: type[Client], port: int, request: bytes | Iterator[bytes]) -> Timings:
    """One turn on a connection of its own."""
    return await drive(kind, port, request, 1, 0.0)
