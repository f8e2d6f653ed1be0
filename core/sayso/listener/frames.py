"""The WebSocket protocol of the listener; imported only if `websockets` is installed."""

from __future__ import annotations

import asyncio
import struct
from typing import Any

from uvicorn.protocols.utils import ClientDisconnected
from uvicorn.protocols.websockets.websockets_sansio_impl import WebSocketsSansIOProtocol
from websockets.frames import CloseCode, Frame
from websockets.protocol import State

from sayso.http.sockets import Socket, texts
from sayso.listener.connections import CorkedTransport

LINGER = 2.0
"""Seconds for a client that answers no ping to take the data written to it."""

_WRITABLE = asyncio.Event()
_WRITABLE.set()
"""Shared by every connection that may write; a connection that must pause makes its own."""


class WebSocket(WebSocketsSansIOProtocol):
    """uvicorn's WebSocket protocol on a corked transport, which carries Sockets without a task.

    Invalid UTF-8 reaches the app as bytes, so that it is answered with an `error` event like every
    other frame that is not JSON.
    """

    _refused = False
    _pong = b""
    """The last answers to pings, while the client does not read."""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        corked = transport if isinstance(transport, CorkedTransport) else CorkedTransport(transport)  # type: ignore[arg-type]
        super().connection_made(corked)  # type: ignore[arg-type]
        self.writable = _WRITABLE

    def connection_lost(self, exc: Exception | None) -> None:
        super().connection_lost(exc)
        # Break reference cycles, which would stay until a garbage collection: the parser, a
        # suspended generator, holds `conn`, which holds the parser, and the data it read last. The
        # traceback of the error that stopped it does the same.
        self.conn.parser.close()
        self.conn.parser_exc = None

    def pause_writing(self) -> None:
        self.writable = asyncio.Event()

    def resume_writing(self) -> None:
        self.writable.set()
        self.writable = _WRITABLE
        pong, self._pong = self._pong, b""
        if pong and not self.close_sent:
            self.transport.write(pong)

    def data_received(self, data: bytes) -> None:
        # Discard the rest of a refused frame: closing a connection with unread bytes resets it, and
        # the client would never see the reason.
        if not self._refused:
            super().data_received(data)

    def handle_parser_exception(self) -> None:
        closed = self.conn.close_sent
        if closed is None or closed.code != CloseCode.MESSAGE_TOO_BIG:
            super().handle_parser_exception()
            return
        self._refused = True
        last = self.queue.oversized() if isinstance(self.queue, _SocketQueue) else b""
        self.queue.put_nowait(
            {"type": "websocket.disconnect", "code": closed.code, "reason": closed.reason}
        )
        self.transport.write(text_frames(last) + b"".join(self.conn.data_to_send()))
        self.close_sent = True
        self.close_timer = self.loop.call_later(LINGER, self.transport.close)

    def handle_cont(self, event: Frame) -> None:
        # A list of two-byte chunks would take thirty times the memory that the limit allows.
        whole: bytes | bytearray = self.frames[0]
        if not isinstance(whole, bytearray):
            whole = bytearray(whole)
        whole += event.data
        self.frames = [bytes(whole) if event.fin else whole]  # type: ignore[list-item]
        if event.fin:
            self.send_receive_event_to_app()

    def handle_ping(self) -> None:
        if self.writable.is_set() or self.conn.state is not State.OPEN:
            super().handle_ping()
        else:
            # One answer to the last of many is enough (RFC 6455, section 5.5.3).
            self._pong = b"".join(self.conn.data_to_send()) or self._pong

    def keepalive_timeout(self) -> None:
        if self.read_paused and self.writable.is_set():
            # The answer may be queued behind messages that were not read yet; a client that has
            # gone refuses data written to it.
            self.pong_timer = None
            self.send_keepalive_ping()
            return
        super().keepalive_timeout()
        # A client that does not read will not receive the close frame, so abort after LINGER.
        if self.close_timer is None:
            self.close_timer = self.loop.call_later(LINGER, self.transport.abort)

    def send_receive_event_to_app(self) -> None:
        if self.curr_msg_data_type == "text":
            try:
                b"".join(self.frames).decode()
            except UnicodeDecodeError:
                self.curr_msg_data_type = "bytes"
        if isinstance(self.queue, _SocketQueue):
            # uvicorn pauses reading until the message is taken; here it is taken at once.
            self.read_paused, reads = True, not self.read_paused
            super().send_receive_event_to_app()
            self.read_paused = not (reads and self.queue.wants_more)
            if self.read_paused and reads:
                self.transport.pause_reading()
            return
        super().send_receive_event_to_app()

    async def run_asgi(self) -> None:
        """Run the app for this connection."""
        try:
            await self.app(self.scope, self.receive, self.send)
        except ClientDisconnected:
            pass
        except BaseException:
            self.logger.exception("Exception in ASGI application\n")
            self.send_500_response()
        else:
            if isinstance(self.queue, _SocketQueue):
                # The connection stays after this task has ended.
                self._forget_handshake()
                return
            if not (self.handshake_complete or self.initial_response):
                self.logger.error("ASGI callable returned without completing handshake.")
                self.send_500_response()
        if self.close_timer is None:
            self.transport.close()

    def carry(self, socket: Socket) -> None:
        """Pass messages to `socket` from now on, instead of to `receive`."""
        waiting, passing = self.queue, _SocketQueue(socket)
        self.queue = passing  # type: ignore[assignment]
        while not waiting.empty():
            passing.put_nowait(waiting.get_nowait())
        if self.read_paused and passing.wants_more:
            self.read_on()

    def read_on(self) -> None:
        """Continue reading, after the socket asked for a pause."""
        if self.read_paused:
            self.read_paused = False
            self.transport.resume_reading()

    def hang_up(self) -> None:
        """Close the connection at once."""
        self.transport.close()

    def retire(self, *, at_once: bool) -> None:
        """Stop reading, and close with 1012 once everything is answered, if the endpoint knows
        when."""
        passing = self.queue
        if (
            isinstance(passing, _SocketQueue)
            and passing.busy is not None
            and not self.transport.is_closing()
        ):
            passing.retired = True
            if not passing.busy:
                self.shutdown()

    async def send(self, message: Any) -> None:
        """Send one ASGI message."""
        text = message.get("text")
        if text is None or message["type"] != "websocket.send" or not self._open():
            await super().send(message)
            return
        # Whole text frames on an open connection do not need the protocol's state machine, which
        # takes six times as long for each; a turn sends one per event.
        if not self.writable.is_set():
            await self.writable.wait()
        self.transport.write(text_frame(text.encode()))

    async def send_lines(self, lines: bytes) -> None:
        """Send each line, without its end, as one text message."""
        if not self.writable.is_set():
            await self.writable.wait()
        if self._open():
            self.transport.write(text_frames(lines))
        elif not self.disconnected:
            for line in texts(lines):
                await super().send({"type": "websocket.send", "text": line.decode()})

    def _open(self) -> bool:
        try:
            return (
                self.handshake_complete
                and not (self.close_sent or self.disconnected)
                and self.initial_response is None
                and self.conn.state is State.OPEN
                and not self.conn.extensions
            )
        except AttributeError:
            # Another version of uvicorn has this state elsewhere; then use uvicorn's own way.
            return False

    def _forget_handshake(self) -> None:
        # These are as large as everything else that an idle connection needs.
        for name in ("request", "response", "scope"):
            self.__dict__.pop(name, None)


class _SocketQueue:
    """Takes the place of uvicorn's queue: messages go to the Socket at once."""

    __slots__ = ("_socket", "retired", "wants_more")

    def __init__(self, socket: Socket) -> None:
        self._socket: Socket | None = socket
        self.wants_more = True
        self.retired = False

    @property
    def busy(self) -> bool | None:
        return self._socket is not None and self._socket.busy

    def oversized(self) -> bytes:
        return b"" if self._socket is None else self._socket.oversized()

    def put_nowait(self, message: Any) -> None:
        socket = self._socket
        if socket is None:
            return
        if message["type"] == "websocket.receive":
            if self.retired:
                return
            text = message.get("text")
            self.wants_more = socket.received(text if text is not None else message["bytes"])
        elif message["type"] == "websocket.disconnect":
            self._socket = None
            socket.left()


def text_frame(data: bytes) -> bytes:
    """A whole, unmasked text frame (RFC 6455, section 5.2)."""
    return _head(len(data)) + data


def text_frames(lines: bytes) -> bytes:
    """Each line, without its end, as a text frame."""
    parts: list[bytes] = []
    for text in texts(lines):
        parts += (_head(len(text)), text)
    return b"".join(parts)


def _head(size: int) -> bytes:
    if size < 126:
        return _SHORT[size]
    if size < 1 << 16:
        return struct.pack("!BBH", 0x81, 126, size)
    return struct.pack("!BBQ", 0x81, 127, size)


_SHORT = [bytes((0x81, size)) for size in range(126)]
