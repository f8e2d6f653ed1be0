"""A reply as Server-Sent Events over HTTP (WHATWG HTML, "Server-sent events")."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from contextlib import suppress
from typing import Any

from starlette.types import Receive, Send

from sayso.http.disconnect import A_MOMENT
from sayso.http.endpoints import Headers

SSE: Headers = (
    (b"content-type", b"text/event-stream; charset=utf-8"),
    (b"cache-control", b"no-cache"),
    (b"x-accel-buffering", b"no"),
)
"""The headers of a stream of events."""
SILENCE = 10.0
"""Seconds without a frame after which a comment is sent: proxies close silent connections."""
_COMMENT = b": \n\n"


def sse_frame(data: bytes, event: str = "") -> bytes:
    """One frame; `data` is JSON on one line. Line ends are LF alone, since some clients accept no
    other."""
    named = b"event: %b\n" % event.encode() if event else b""
    return b"%bdata: %b\n\n" % (named, data)


async def sse_reply(
    frames: AsyncGenerator[bytes, None], receive: Receive, send: Send, headers: Headers = ()
) -> None:
    """Send `frames` as they arrive, with a comment at once and in each long silence.

    The generator is closed at the end. If the client leaves before that, it is cancelled at its
    present await, and its own `finally` handles its turn.
    """
    await send({"type": "http.response.start", "status": 200, "headers": [*SSE, *headers]})
    await _send(send, _COMMENT)
    gone = asyncio.ensure_future(_gone(receive))
    reading: asyncio.Future[bytes | None] | None = None
    try:
        while not gone.done():
            reading = reading or asyncio.ensure_future(anext(frames, None))
            both: set[asyncio.Future[Any]] = {reading, gone}
            await asyncio.wait(both, timeout=SILENCE, return_when=asyncio.FIRST_COMPLETED)
            if not reading.done():
                await _send(send, b"" if gone.done() else _COMMENT)
                continue
            frame, reading = reading.result(), None
            if frame is None:
                await _send(send, b"", more=False)
                return
            await _send(send, frame)
    finally:
        gone.cancel()
        if reading is not None:
            reading.cancel()
            with suppress(asyncio.CancelledError, StopAsyncIteration):
                await reading
        await frames.aclose()


async def _send(send: Send, body: bytes, *, more: bool = True) -> None:
    await send({"type": "http.response.body", "body": body, "more_body": more})


async def _gone(receive: Receive) -> None:
    """Return a moment after the client has left, so that its last decision is carried out."""
    while (await receive())["type"] != "http.disconnect":
        pass
    await asyncio.sleep(A_MOMENT)
