"""Lines of a stdio server, with a bound; the SDK's client has none.

With each chunk the SDK searches again everything it has of the line: a line of 60 MiB took minutes,
during which the loop did little else.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from contextvars import ContextVar
from typing import Any

import anyio

logger = logging.getLogger("sayso.mcp")
LARGEST = 2**24
"""Most bytes of a line; also of an event or an answer over streamable-http."""

too_long: ContextVar[Callable[[], None] | None] = ContextVar("too_long", default=None)
"""Called when a line is too long; the stream then ends. None: there is no limit."""


class Lines:
    """Takes the place of the SDK's stream of decoded chunks; yields whole lines only."""

    def __init__(self, stream: Any, encoding: str = "utf-8", errors: str = "strict") -> None:
        self._stream = stream
        self._coding = encoding, errors
        self._partial: list[bytes] = []
        self._size = 0
        self._refuse = too_long.get()

    def __aiter__(self) -> Lines:
        return self

    async def __anext__(self) -> str:
        while True:
            try:
                piece: bytes = await self._stream.receive()
            except anyio.EndOfStream:
                raise StopAsyncIteration from None
            ended, newline, rest = piece.rpartition(b"\n")
            if newline:
                lines = [*self._partial, ended, newline]
                self._partial, self._size = [rest], len(rest)
                return b"".join(lines).decode(*self._coding)
            self._partial.append(piece)
            self._size += len(piece)
            if self._size > LARGEST and self._refuse is not None:
                logger.warning("a line of an MCP server has more than %d bytes", LARGEST)
                self._refuse()
                # The rest of the input is read and discarded.
                raise StopAsyncIteration
