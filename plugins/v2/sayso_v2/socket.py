"""The WebSocket endpoint: many turns on one connection, one after another.

interface.md, "Endpoints", rule 4; design, section 5, "WebSocket".
"""

import asyncio
import logging
from contextlib import aclosing
from contextvars import Context, copy_context

from starlette.types import Receive, Scope, Send

from sayso import (
    Caller,
    ChatEndpoint,
    ErrorEvent,
    EventStream,
    Principal,
    RequestError,
    Socket,
    StreamUnknown,
    TooLarge,
    Unauthenticated,
    caller_of,
    encode,
    turn_to_read,
)
from sayso_v2.resuming import Resumed, resumed

WAITING = 8
"""Most frames queued while a turn runs; then reading pauses."""
A_MOMENT = 0.05
"""Seconds after which a turn whose client has gone ends, so that its decisions are carried out
before."""
_EXPIRED = "the credentials of this connection have expired: open another one with new ones"

logger = logging.getLogger("sayso.server")


class ChatSocket:
    """Serves `/api/chat-ws` as an ASGI application; frames are read as bodies of `endpoint`."""

    def __init__(self, endpoint: ChatEndpoint) -> None:
        self.endpoint = endpoint

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one connection."""
        caller = caller_of(scope, self.endpoint.protocol)
        await _Connection(self.endpoint, caller).serve(receive, send, scope["subprotocols"])


class _Connection(Socket):
    """Turns on one connection; a task runs only while frames are queued or a turn runs."""

    __slots__ = ("caller", "context", "endpoint", "frames", "gone", "replay", "stream", "work")

    def __init__(self, endpoint: ChatEndpoint, caller: Caller) -> None:
        self.endpoint = endpoint
        self.caller = caller
        self.frames: list[str | bytes] = []
        self.gone = False
        self.replay: asyncio.Task[None] | None = None
        self.stream: EventStream | None = None
        self.work: asyncio.Task[None] | None = None
        # Context variables of middleware and authentication are set for the turns, too.
        self.context: Context = copy_context()

    @property
    def busy(self) -> bool:
        return self.work is not None

    def received(self, frame: str | bytes) -> bool:
        self.frames.append(frame)
        if self.work is None:
            self.work = asyncio.get_running_loop().create_task(self._turns(), context=self.context)
        return len(self.frames) < WAITING

    def oversized(self) -> bytes:
        return _refused(TooLarge("frame", self.endpoint.host.config.limits.frame))

    def left(self) -> None:
        """End the turn soon, and begin no other, since nobody waits for it. Its frame may be an
        approval that came with the close."""
        self.gone = True
        asyncio.get_running_loop().call_later(A_MOMENT, self._end)

    def _end(self) -> None:
        if self.stream is not None:
            self.stream.drop()
        if self.replay is not None:
            self.replay.cancel()

    async def ended(self) -> None:
        if self.work is not None:
            await self.work

    async def _turns(self) -> None:
        try:
            while self.frames:
                frame = self.frames.pop(0)
                if len(self.frames) == WAITING - 1 and not self.gone:
                    self.carrier.read_on()
                await self._turn(frame)
                if self.gone:
                    break
        except Exception:
            if not self.gone:
                logger.exception("a WebSocket connection failed")
                self.carrier.hang_up()
        finally:
            self.work = None

    async def _turn(self, frame: str | bytes) -> None:
        host, known = self.endpoint.host, self.caller
        limit = host.config.limits.frame
        try:
            if _size(frame) > limit:
                raise TooLarge("frame", limit)
            if isinstance(known.principal, Principal) and known.principal.expired:
                raise Unauthenticated(_EXPIRED, "expired")
            await turn_to_read(frame)
            if self.endpoint.host.buffers.offered and (wanted := resumed(frame)) is not None:
                await self._replay(wanted)
                return
            request, caller = self.endpoint.read(
                frame, known.principal, known.address, known.foreign_page
            )
        except RequestError as error:
            await self._send(_refused(error))
            return
        stream = self.stream = host.stream(request, caller._replace(socket=known.socket))
        if self.gone:
            # The client left while its frame was queued.
            asyncio.get_running_loop().call_later(A_MOMENT, self._end)
        try:
            more = True
            while more:
                lines, more = await stream.lines()
                await self._send(lines)
        finally:
            self.stream = None
            await stream.aclose()

    async def _replay(self, wanted: Resumed) -> None:
        """Send the rest of a kept stream, and its further lines, unless the client leaves."""
        buffers = self.endpoint.host.buffers
        buffer = await buffers.find(self.caller.principal, wanted.id)
        if buffer is None:
            raise StreamUnknown

        async def read() -> None:
            async with aclosing(buffer.read(wanted.after)) as pieces:
                async for lines in pieces:
                    await self._send(b"".join(lines))

        self.replay = asyncio.ensure_future(read())
        try:
            await asyncio.wait({self.replay})
            if not self.replay.cancelled():
                self.replay.result()
        finally:
            self.replay = None

    async def _send(self, lines: bytes) -> None:
        if lines and not self.gone:
            await self.carrier.send_lines(lines)


def _refused(error: RequestError) -> bytes:
    return encode(ErrorEvent(str(error), error.code)) + b"\n"


def _size(frame: str | bytes) -> int:
    """The frame's size in bytes; ASCII text is not encoded for it."""
    return len(frame) if isinstance(frame, bytes) or frame.isascii() else len(frame.encode())
