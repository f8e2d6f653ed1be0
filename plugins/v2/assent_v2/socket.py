"""The WebSocket endpoint: many turns on one connection, one after another.

interface.md, "Endpoints", rule 4; design, section 5, "WebSocket".
"""

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable, MutableMapping
from typing import Any

from assent import (
    ErrorEvent,
    EventStream,
    Host,
    RequestError,
    TooLarge,
    caller_of,
    encode,
    parse_request,
)

Scope = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[MutableMapping[str, Any]]]
Send = Callable[[MutableMapping[str, Any]], Awaitable[None]]

WAITING = 8
"""Frames that may wait while a turn runs; then reading pauses."""


class ChatSocket:
    """Serves `/api/chat-ws` as an ASGI application."""

    def __init__(self, host: Host) -> None:
        self.host = host

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one connection until the client leaves."""
        await receive()
        await send({"type": "websocket.accept"})
        await _Connection(self.host, scope, receive, send).serve()


class _Connection:
    def __init__(self, host: Host, scope: Scope, receive: Receive, send: Send) -> None:
        self.host = host
        self.scope = scope
        self.receive = receive
        self.send = send
        self.frames: deque[str | bytes] = deque()
        self.changed = asyncio.Event()
        self.taken = asyncio.Event()
        self.gone = False
        self.stream: EventStream | None = None

    async def serve(self) -> None:
        reader = asyncio.ensure_future(self._read())
        try:
            while (frame := await self._next()) is not None:
                await self._turn(frame)
        finally:
            reader.cancel()

    async def _read(self) -> None:
        """Collect frames as they come, also while a turn runs; a leaving client ends the turn."""
        while not self.gone:
            message = await self.receive()
            if message["type"] == "websocket.disconnect":
                self.gone = True
                if self.stream is not None:
                    self.stream.drop()
            elif message["type"] == "websocket.receive":
                text = message.get("text")
                self.frames.append(text if text is not None else message.get("bytes") or b"")
            self.changed.set()
            while len(self.frames) >= WAITING and not self.gone:
                self.taken.clear()
                await self.taken.wait()

    async def _next(self) -> str | bytes | None:
        while not self.frames:
            if self.gone:
                return None
            self.changed.clear()
            await self.changed.wait()
        if self.gone:
            return None
        frame = self.frames.popleft()
        self.taken.set()
        return frame

    async def _turn(self, frame: str | bytes) -> None:
        limits = self.host.config.limits
        try:
            if _size(frame) > limits.frame:
                raise TooLarge("frame", limits.frame)
            request = parse_request(frame, messages=limits.messages, nesting=limits.nesting)
        except RequestError as error:
            await self._send(encode(ErrorEvent(str(error), error.code)))
            return
        stream = self.stream = self.host.stream(request, caller_of(self.scope, "v2", request))
        try:
            while events := await stream.ready():
                for event in events:
                    await self._send(encode(event))
        finally:
            self.stream = None
            await stream.aclose()

    async def _send(self, data: bytes) -> None:
        if not self.gone:
            await self.send({"type": "websocket.send", "text": data.decode()})


def _size(frame: str | bytes) -> int:
    """The frame's size in bytes; ASCII text is not encoded for it."""
    return len(frame) if isinstance(frame, bytes) or frame.isascii() else len(frame.encode())
