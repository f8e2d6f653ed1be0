"""Replies to HTTP/1.0, which knows no chunks."""

from __future__ import annotations

from typing import Any

from uvicorn.protocols.http.httptools_impl import RequestResponseCycle


class Unchunked(RequestResponseCycle):
    """A reply to HTTP/1.0, which has no chunks: the end of the connection ends its body."""

    async def send(self, message: Any) -> None:
        """Send one ASGI message."""
        if message["type"] == "http.response.start":
            named = {name.lower() for name, _ in message.get("headers", ())}
            self.chunked_encoding = None if b"content-length" in named else False
            self._counted = b"content-length" in named
        elif not self._counted:
            self.expected_content_length = len(message.get("body", b""))
        await super().send(message)
