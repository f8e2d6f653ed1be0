"""The WebSocket protocol of the listener; imported only where `websockets` is installed."""

from __future__ import annotations

import asyncio
import struct
from typing import Any

from uvicorn.protocols.websockets.websockets_sansio_impl import WebSocketsSansIOProtocol
from websockets.protocol import State

from assent.corked import Corked


class WebSocket(WebSocketsSansIOProtocol):
    """uvicorn's WebSocket protocol on a corked transport; broken text reaches the app as bytes.

    So it is answered with an `error` event like every other frame that holds no JSON.
    """

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        corked = transport if isinstance(transport, Corked) else Corked(transport)  # type: ignore[arg-type]
        super().connection_made(corked)  # type: ignore[arg-type]

    def send_receive_event_to_app(self) -> None:
        if self.curr_msg_data_type == "text":
            try:
                b"".join(self.frames).decode()
            except UnicodeDecodeError:
                self.curr_msg_data_type = "bytes"
        super().send_receive_event_to_app()

    async def send(self, message: Any) -> None:
        """Send one ASGI message."""
        text = message.get("text")
        if text is None or message["type"] != "websocket.send" or not self._open():
            await super().send(message)
            return
        # Whole text frames on an open connection need nothing of the protocol's state machine,
        # which takes six times as long for each; a turn sends one an event.
        if not self.writable.is_set():
            await self.writable.wait()
        self.transport.write(text_frame(text.encode()))

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
            # Another version of uvicorn keeps this state elsewhere: then all goes its way.
            return False


def text_frame(data: bytes) -> bytes:
    """A whole, unmasked text frame (RFC 6455, section 5.2)."""
    size = len(data)
    if size < 126:
        return bytes((0x81, size)) + data
    if size < 1 << 16:
        return struct.pack("!BBH", 0x81, 126, size) + data
    return struct.pack("!BBQ", 0x81, 127, size) + data
