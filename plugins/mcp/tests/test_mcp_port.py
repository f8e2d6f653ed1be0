"""The MCP server's port has the same limits as the main one."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import socket
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from itertools import pairwise
from typing import Any

import httpx2
import pytest

from ports import quiet_port
from sayso_mcp.posts import Messages
from sayso_mcp.running import bind

HEADERS = {"accept": "application/json, text/event-stream", "content-type": "application/json"}
TRANSPORTS = pytest.mark.parametrize("transport", ["streamable-http", "sse"])
GET = b"GET /mcp HTTP/1.1\r\nHost: localhost\r\n"
PATIENCE = 60.0
INITIALIZE = {
    "jsonrpc": "2.0",
    "id": 0,
    "method": "initialize",
    "params": {
        "protocolVersion": "2025-11-25",
        "capabilities": {},
        "clientInfo": {"name": "test", "version": "1"},
    },
}
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
    monkeypatch.setattr("sayso.listener.protocol.HEAD_TIME", 0.3)

    async def run() -> None:
        async with serve(transport=transport) as served:
            for begin in (b"", b"GET /m", GET):
                async with connected(served) as (reader, writer):
                    writer.write(begin)
                    assert await reader.read() == b""

    asyncio.run(run())


def test_events_leave_at_once() -> None:
    async def run() -> None:
        at_once: list[int] = []

        async def connection(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            end = writer.get_extra_info("socket")
            at_once.append(end.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY))
            writer.close()
            await writer.wait_closed()

        with bind("127.0.0.1", 0) as listening:
            server = await asyncio.start_server(connection, sock=listening)
            async with server, asyncio.timeout(PATIENCE):
                reader, writer = await asyncio.open_connection(*listening.getsockname())
                assert await reader.read() == b""
                writer.close()
                await writer.wait_closed()
        assert at_once == [1]

    asyncio.run(run())


def test_stream_is_opened_again_after_the_last_event(serve: Any) -> None:
    async def run() -> None:
        async with serve() as served, httpx2.AsyncClient(timeout=PATIENCE) as http:
            started = await http.post(served.url, json=INITIALIZE, headers=HEADERS)
            session = {"mcp-session-id": started.headers["mcp-session-id"], "last-event-id": "7"}
            async with http.stream("GET", served.url, headers={**HEADERS, **session}) as stream:
                assert stream.status_code == 200
                assert stream.headers["content-type"].startswith("text/event-stream")

    asyncio.run(run())


def test_request_names_one_host(serve: Any) -> None:
    async def run() -> None:
        async with serve() as served, connected(served) as (reader, writer):
            writer.write(GET + b"Host: elsewhere\r\n\r\n")
            assert (await reader.read()).startswith(b"HTTP/1.1 400 ")

    asyncio.run(run())


def test_case_of_a_host_means_nothing(serve: Any) -> None:
    async def run() -> None:
        names = {"host": "LocalHost", "hosts": ["MCP.example"], "origins": ["https://Page.example"]}
        async with serve(**names) as served, httpx2.AsyncClient(timeout=PATIENCE) as http:
            for given in (
                {"host": "LOCALHOST:9"},
                {"host": "Mcp.Example"},
                {"origin": "https://page.example"},
                {"origin": "https://Page.example"},
            ):
                answer = await http.delete(served.url, headers=given)
                assert answer.status_code == 400

    asyncio.run(run())


def test_case_of_a_content_type_means_nothing(serve: Any) -> None:
    async def run() -> None:
        async with serve() as served, httpx2.AsyncClient(timeout=PATIENCE) as http:
            headers = {**HEADERS, "content-type": "Application/JSON; Charset=UTF-8"}
            answer = await http.post(served.url, json=INITIALIZE, headers=headers)
            assert answer.status_code == 200

    asyncio.run(run())


# Python 3.12 warns about a fork in a process with threads.
@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_port_is_not_kept_by_processes_that_user_code_forks() -> None:
    port = quiet_port()
    listening = bind("127.0.0.1", port)
    ready, started = os.pipe()
    child = os.fork()
    if not child:
        os.write(started, b"!")
        time.sleep(600)
        os._exit(0)
    try:
        os.read(ready, 1)
        listening.close()
        bind("127.0.0.1", port).close()
    finally:
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)
        os.close(ready)
        os.close(started)


def test_others_are_answered_between_two_long_bodies_that_came_together() -> None:
    long = b'{"jsonrpc": "2.0", "id": 1, "method": "ping", "params": {"_": "%b"}}' % (b"x" * 70_000)
    seen: list[str] = []
    read: list[bytes] = []

    async def app(scope: Any, receive: Any, send: Any) -> None:
        read.append((await receive())["body"])
        seen.append("long")

    async def receive() -> dict[str, Any]:
        return {"type": "http.request", "body": long, "more_body": False}

    async def send(message: Any) -> None:
        raise AssertionError(f"refused: {message}")

    async def together() -> None:
        reading = Messages(app, 10**6)
        headers = [(b"content-type", b"application/json")]
        scope = {"type": "http", "method": "POST", "path": "/", "headers": headers}
        all_of_them = [asyncio.create_task(reading(scope, receive, send)) for _ in range(5)]
        while not all(one.done() for one in all_of_them):
            await asyncio.sleep(0)
            seen.append("other")
        await asyncio.gather(*all_of_them)

    asyncio.run(together())
    assert read == [long] * 5
    ends = [at for at, what in enumerate(seen) if what == "long"]
    assert all(after - before > 2 for before, after in pairwise(ends))


def test_each_answer_repeats_the_id_of_its_request(serve: Any) -> None:
    async def run() -> None:
        async with serve() as served, httpx2.AsyncClient(timeout=PATIENCE) as http:
            for address in (served.url, f"{served.url}/nowhere"):
                answer = await http.post(address, json={}, headers={"X-Request-ID": "req-7"})
                assert answer.headers["x-request-id"] == "req-7"

    asyncio.run(run())
