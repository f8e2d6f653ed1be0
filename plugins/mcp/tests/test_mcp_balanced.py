"""Clients whose sessions live in one of two services, behind the nginx lines of docs/mcp.md."""

from __future__ import annotations

import asyncio
import re
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import httpx2
import pytest
from mcp import Client
from mcp.client.sse import sse_client
from mcp.client.streamable_http import streamable_http_client

from nginx import CONFIGURATION, fronted, needs_nginx
from ports import quiet_port

pytestmark = needs_nginx
PAGE = Path(__file__).parents[3] / "docs" / "mcp.md"
TOKENS = {f"client{n}": f"token-{n}" for n in range(6)}
TRANSPORTS = ("streamable-http", "sse")
AUTH = {"scheme": "bearer", "tokens": TOKENS}


def configuration(front: int, ports: list[int], line: str) -> str:
    """The upstream of the page with `line` in the place of `ip_hash`, and the location of the file
    that the page names."""
    (upstream,) = re.findall(r"^upstream sayso_mcp \{.*?^\}", PAGE.read_text(), re.M | re.S)
    upstream = upstream.replace("ip_hash;", line)
    for number, port in enumerate(ports, 11):
        assert f"10.0.0.{number}:8001" in upstream
        upstream = upstream.replace(f"10.0.0.{number}:8001", f"127.0.0.1:{port}")
    before, server = re.split(r"(?=^server \{)", CONFIGURATION.read_text(), flags=re.M)
    mapped = before.split("upstream")[0]
    server = server.replace("listen 80;", f"listen 127.0.0.1:{front};")
    return mapped + upstream + "\n" + server.replace("http://sayso;", "http://sayso_mcp;")


def accepts(port: int) -> bool:
    with socket.socket() as found:
        return found.connect_ex(("127.0.0.1", port)) == 0


@asynccontextmanager
async def client(url: str, token: str, transport: str) -> AsyncIterator[Client]:
    headers = {"authorization": f"Bearer {token}"}
    if transport == "sse":
        async with Client(sse_client(url, headers=headers), mode="legacy") as connected:
            yield connected
        return
    async with (
        httpx2.AsyncClient(headers=headers, timeout=60) as http,
        Client(streamable_http_client(url, http_client=http), mode="legacy") as connected,
    ):
        yield connected


async def words_of(url: str, token: str, transport: str) -> list[str]:
    """The words that a session remembers from one call to the next."""
    async with client(url, token, transport) as connected:
        results: list[Any] = [
            await connected.call_tool("remember", {"word": word})
            for word in ("one", "two", "three")
        ]
        return [result.content[0].text for result in results]


STICKY = ("ip_hash;", "hash $http_authorization consistent;")


@pytest.mark.parametrize(
    ("transport", "line"),
    # Over sse a client whose message got to the other service waits for its timeout.
    [("streamable-http", ""), *((each, line) for each in TRANSPORTS for line in STICKY)],
)
def test_sessions_stay_with_their_service_behind_nginx(
    serve: Any, tmp_path: Path, transport: str, line: str
) -> None:
    front, ports = quiet_port(), [quiet_port(), quiet_port()]
    folder = tmp_path / "nginx"
    folder.mkdir()

    async def run() -> list[list[str] | BaseException]:
        options: dict[str, Any] = {"transport": transport, "auth": AUTH}
        async with (
            serve(port=ports[0], **options) as one,
            serve(port=ports[1], **options),
        ):
            url = one.url.replace(str(ports[0]), str(front))
            text = configuration(front, ports, line)
            nginx = fronted(folder, text, lambda: accepts(front))
            await asyncio.to_thread(nginx.__enter__)
            try:
                talks = [words_of(url, token, transport) for token in TOKENS.values()]
                return await asyncio.gather(*talks, return_exceptions=True)
            finally:
                await asyncio.to_thread(nginx.__exit__, None, None, None)

    found = asyncio.run(run())
    remembered = [words == ["nothing", "one", "two"] for words in found]
    assert all(remembered) is bool(line), found
