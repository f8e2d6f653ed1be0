"""Lines of a server over stdio, which the SDK's client reads without a bound.

It looks through all that it has of a line with each piece of it: 60 MiB took minutes, in which the
loop did little else.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from contextvars import ContextVar
from typing import Any

import anyio

logger = logging.getLogger("sayso.mcp")
LARGEST = 2**24
"""Bytes of a line, as of an event or an answer over streamable-http."""

too_long: ContextVar[Callable[[], None] | None] = ContextVar("too_long", default=None)
"""What hears that a line is too long, after which none is given; None: no line is."""


class Lines:
    """In place of the SDK's stream of decoded pieces: gives nothing but whole lines."""

    def __init__(self, stream: Any, encoding: str = "utf-8", errors: str = "strict") -> None:
        self._stream = stream
        self._coding = encoding, errors
        self._begun: list[bytes] = []
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
            ended, newline, begun = piece.rpartition(b"\n")
            if newline:
                lines = [*self._begun, ended, newline]
                self._begun, self._size = [begun], len(begun)
                return b"".join(lines).decode(*self._coding)
            self._begun.append(piece)
            self._size += len(piece)
            if self._size > LARGEST and self._refuse is not None:
                logger.warning("a line of an MCP server has more than %d bytes", LARGEST)
                self._refuse()
                # What follows is read, and thrown away.
                raise StopAsyncIteration
