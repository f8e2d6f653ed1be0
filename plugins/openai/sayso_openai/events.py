"""The server-sent events of a response's body."""

from __future__ import annotations

import codecs
from collections.abc import AsyncIterator

LARGEST_EVENT = 16 * 1024 * 1024


async def events(chunks: AsyncIterator[bytes]) -> AsyncIterator[str]:
    """The `data` of each server-sent event; a last one without its blank line is left out.

    Raises ValueError for an event over 16 MiB or one that is not UTF-8.
    """
    rest, data, started, returned = b"", list[bytes](), False, False
    async for chunk in chunks:
        # A line ends with CR, LF or both, which may come in two chunks; no other end counts, since
        # some, such as U+2028, may stand within JSON.
        whole = rest + (chunk.removeprefix(b"\n") if returned else chunk)
        returned = chunk.endswith(b"\r") or (returned and not chunk)
        lines = whole.splitlines()
        rest = lines.pop() if whole and whole[-1] not in b"\r\n" else b""
        if lines and not started:
            started, lines[0] = True, lines[0].removeprefix(codecs.BOM_UTF8)
        for line in lines:
            if line.startswith(b"data:"):
                data.append(line[5:].removeprefix(b" "))
            elif not line and data:
                # Some servers send empty events to keep the connection.
                if text := b"\n".join(data).decode().strip():
                    yield text
                data.clear()
        if len(rest) + sum(map(len, data)) > LARGEST_EVENT:
            raise ValueError("an event that is too large")
    if data and not rest and data[-1].strip() == b"[DONE]":
        yield "[DONE]"
