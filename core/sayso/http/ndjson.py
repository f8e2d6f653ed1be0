"""A turn as an NDJSON stream over HTTP."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from starlette.types import Receive, Send

from sayso.context import Caller
from sayso.http.disconnect import DisconnectWatch
from sayso.wire.messages import ChatRequest

if TYPE_CHECKING:
    from sayso.hosting import Host

NDJSON = (
    (b"content-type", b"application/x-ndjson"),
    (b"cache-control", b"no-cache"),
    (b"x-accel-buffering", b"no"),
)
"""The headers of a stream of events."""


async def stream_reply(
    host: Host, request: ChatRequest, caller: Caller, receive: Receive, send: Send
) -> int:
    """Send a turn as NDJSON, one event a line; waiting events are sent in one chunk.

    Returns the status that the turn would have had as a whole reply.
    """
    head = _Head(send)
    stream = host.stream(request, caller)
    watch = DisconnectWatch(receive, stream.drop, head.sent)
    try:
        more = True
        while more:
            lines, more = await stream.lines()
            if head.waits:
                await head.sent()
            await send({"type": "http.response.body", "body": lines, "more_body": more})
    finally:
        watch.stop()
        await stream.aclose()
    return stream.failure.status if stream.failure is not None else 200


class _Head:
    """The head of the response: sent with the first events, or before them if they take long.

    Sent alone it would be one more packet for every turn.
    """

    def __init__(self, send: Send) -> None:
        self._send = send
        self._sending = asyncio.Lock()
        self.waits = True

    async def sent(self) -> None:
        """Return when the head was sent."""
        async with self._sending:
            if self.waits:
                # A new list: middleware adds its headers in place.
                start = {"type": "http.response.start", "status": 200, "headers": [*NDJSON]}
                await self._send(start)
                self.waits = False
