"""The port of the MCP server has the bounds of the main one."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

TRANSPORTS = pytest.mark.parametrize("transport", ["streamable-http", "sse"])
GET = b"GET /mcp HTTP/1.1\r\nHost: localhost\r\n"
PATIENCE = 60.0
TOKENS = {"scheme": "bearer", "tokens": {"ann": "token-a"}}


@asynccontextmanager
async def connected(
    served: Any,
) -> AsyncIterator[tuple[asyncio.StreamReader, asyncio.StreamWriter]]:
    port = int(served.url.rsplit(":", 1)[1].partition("/")[0])
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    async with asyncio.timeout(PATIENCE):
        yield reader, writer
    writer.close()


@TRANSPORTS
def test_endless_head_is_refused(serve: Any, transport: str) -> None:
    async def run() -> None:
        async with serve(transport=transport, auth=TOKENS) as served, connected(served) as ends:
            reader, writer = ends
            writer.write(GET + b"A: " + b"x" * 64 * 1024)
            said = await reader.read()
        assert said.startswith(b"HTTP/1.1 431 ")
        assert json.loads(said.partition(b"\r\n\r\n")[2])["code"] == "TOO_LARGE"

    asyncio.run(run())


@TRANSPORTS
def test_connection_without_a_whole_head_is_closed_in_time(
    serve: Any, transport: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("assent.protocol.HEAD_TIME", 0.3)

    async def run() -> None:
        async with serve(transport=transport) as served:
            for begin in (b"", b"GET /m", GET):
                async with connected(served) as (reader, writer):
                    writer.write(begin)
                    assert await reader.read() == b""

    asyncio.run(run())


def test_request_names_one_host(serve: Any) -> None:
    async def run() -> None:
        async with serve() as served, connected(served) as (reader, writer):
            writer.write(GET + b"Host: elsewhere\r\n\r\n")
            assert (await reader.read()).startswith(b"HTTP/1.1 400 ")

    asyncio.run(run())
