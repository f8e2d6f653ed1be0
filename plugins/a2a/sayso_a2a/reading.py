"""An HTTP client for other agents; bounds the size and the time of their answers."""

from __future__ import annotations

import asyncio
import zlib
from typing import Any

import httpx

LARGEST = 2**24
"""Most bytes of one answer, uncompressed."""
_OF_THE_BODY = ("content-encoding", "content-length", "transfer-encoding")


class Reader(httpx.AsyncClient):
    """Reads each answer whole: `LARGEST` bytes at most, and within `seconds` of its request."""

    def __init__(self, seconds: float, **options: Any) -> None:
        super().__init__(timeout=None, **options)
        self.headers["accept-encoding"] = "gzip"
        self._seconds = seconds

    async def send(self, request: httpx.Request, **options: Any) -> httpx.Response:
        """The answer with its body. Raises ReadTimeout for a slow one, ValueError for a large
        one."""
        try:
            async with asyncio.timeout(self._seconds):
                answer = await super().send(request, **{**options, "stream": True})
                try:
                    content = await _content(answer)
                finally:
                    await answer.aclose()
        except TimeoutError as error:
            late = f"no whole answer within {self._seconds:g} seconds"
            raise httpx.ReadTimeout(late, request=request) from error
        headers = [item for item in answer.headers.multi_items() if item[0] not in _OF_THE_BODY]
        return httpx.Response(answer.status_code, headers=headers, content=content, request=request)


async def _content(answer: httpx.Response) -> bytes:
    packing = answer.headers.get("content-encoding", "identity").lower()
    if packing not in ("identity", "gzip"):
        raise ValueError(f"the agent's answer is packed as {packing!r}, which nobody asked for")
    unpacking = zlib.decompressobj(wbits=16 + zlib.MAX_WBITS) if packing == "gzip" else None
    content = bytearray()
    async for piece in answer.aiter_raw():
        # httpx would decompress a chunk whole: a thousand bytes can hold a million, or more.
        room = LARGEST + 1 - len(content)
        content += piece if unpacking is None else _unpacked(unpacking, piece, room)
        if len(content) > LARGEST:
            raise ValueError(f"the agent's answer is larger than {LARGEST} bytes")
    return bytes(content)


def _unpacked(unpacking: zlib._Decompress, piece: bytes, room: int) -> bytes:
    try:
        return unpacking.decompress(piece, room)
    except zlib.error as error:
        raise ValueError(f"the agent's answer is no gzip: {error}") from error
