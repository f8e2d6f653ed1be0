"""Odd WebSocket clients cost the service neither memory nor a connection."""

from __future__ import annotations

import asyncio
import gc
import json
import logging
import socket
import threading
from collections.abc import AsyncIterator, Iterator
from contextlib import closing, contextmanager
from typing import Any

import pytest
from websockets.frames import Frame, Opcode

from programs import until
from raw import DEADLINE, rest
from sayso import Agent, Call, tool
from sayso.listener import frames
from sayso.listener.frames import WebSocket
from sayso.testing import Service, scripted, served

ASK = json.dumps({"messages": [{"role": "user", "content": "hej"}]}).encode()
HANDSHAKE = (
    b"GET /api/chat-ws HTTP/1.1\r\nHost: localhost\r\nConnection: Upgrade\r\n"
    b"Upgrade: websocket\r\nSec-WebSocket-Version: 13\r\n"
    b"Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n"
)


async def words(messages: Any, context: Any) -> str:
    return "a few words"


def masked(opcode: Opcode, data: bytes, *, fin: bool = True) -> bytes:
    return bytes(Frame(opcode, data, fin).serialize(mask=True))


@contextmanager
def connected(service: Service) -> Iterator[socket.socket]:
    with closing(socket.socket()) as connection:
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        connection.settimeout(DEADLINE)
        connection.connect(("127.0.0.1", service.port))
        yield connection


@contextmanager
def accepted(service: Service) -> Iterator[tuple[socket.socket, WebSocket]]:
    """A client's socket, and the service's side of it."""
    with connected(service) as connection:
        connection.sendall(HANDSHAKE + b"\r\n")
        assert connection.recv(1000).startswith(b"HTTP/1.1 101 ")
        client = connection.getsockname()
        found = [o for o in gc.get_objects() if type(o) is WebSocket and o.client == client]
        yield connection, found[0]


@pytest.mark.parametrize(
    "more",
    [
        b"A: b\r\n" * 200,
        b"Cookie: " + b"x" * 9000 + b"\r\n",
        b"Content-Length: 2\r\n",
        b"Transfer-Encoding: chunked\r\n",
    ],
    ids=["many headers", "long header", "body", "chunks"],
)
def test_handshake_that_cannot_be_read_is_refused(more: bytes) -> None:
    with served(words) as service, connected(service) as connection:
        connection.sendall(HANDSHAKE + more + b"\r\n")
        assert rest(connection).startswith(b"HTTP/1.1 4")


def test_frames_that_do_not_wait_for_the_handshake_harm_nobody(
    caplog: pytest.LogCaptureFixture,
) -> None:
    with served(words) as service, connected(service) as connection:
        connection.sendall(HANDSHAKE + b"\r\n" + masked(Opcode.TEXT, b"x" * 200_000))
        assert connection.recv(1000).startswith(b"HTTP/1.1 101 ")
    assert "Fatal error" not in caplog.text


@pytest.mark.parametrize("origin", [b"http://elsewhere", b"null", b"http://[::1", b"://", b"\xff"])
def test_refused_handshake_is_no_error_of_the_service(
    caplog: pytest.LogCaptureFixture, origin: bytes
) -> None:
    with served(words) as service, connected(service) as connection:
        connection.sendall(HANDSHAKE + b"Origin: " + origin + b"\r\n\r\n")
        assert rest(connection).startswith(b"HTTP/1.1 403 ")
    errors = [r for r in caplog.records if r.levelno >= logging.ERROR]
    assert not [r for r in errors if r.name.startswith(("sayso", "uvicorn"))]


@pytest.mark.slow
def test_pings_of_a_client_that_does_not_read_fill_no_memory() -> None:
    # This amount of data may take longer than the time for a client's pong.
    calm = {"ws_ping_interval": DEADLINE}
    with served(words, **calm) as service, accepted(service) as (connection, ours):
        many = masked(Opcode.PING, b"x" * 100) * 4000
        for _ in range(100):
            connection.sendall(many)
            assert ours.transport.get_write_buffer_size() < 16 * 2**20
        connection.sendall(masked(Opcode.PING, b"the last"))
        connection.sendall(masked(Opcode.TEXT, ASK))
        said = b""
        while b'"done"' not in said:
            said = said[-200:] + connection.recv(1 << 16)
        while b"\x8a\x08the last" not in said:
            said = said[-200:] + connection.recv(1 << 16)


def test_message_in_many_pieces_takes_no_more_memory_than_it_has_bytes() -> None:
    begin, end = ASK[:10], ASK[10:]
    with served(words) as service, accepted(service) as (connection, ours):
        connection.sendall(masked(Opcode.TEXT, begin, fin=False))
        for at in range(0, len(end), 2):
            connection.sendall(masked(Opcode.CONT, end[at : at + 2], fin=False))
            connection.sendall(masked(Opcode.CONT, b"", fin=False))
        until(lambda: sum(map(len, ours.frames)) == len(ASK))
        assert len(ours.frames) == 1
        connection.sendall(masked(Opcode.CONT, b""))
        assert b"a few words" in connection.recv(1000)
        connection.sendall(masked(Opcode.TEXT, ASK))
        assert b"a few words" in connection.recv(1000)


@pytest.mark.slow
def test_client_that_neither_reads_nor_answers_pings_is_cut_off(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    started = threading.Event()

    async def without_end(messages: Any, context: Any) -> AsyncIterator[str]:
        started.set()
        while True:
            yield "x" * 10_000
            await asyncio.sleep(0)

    monkeypatch.setattr(frames, "LINGER", 0.1)
    options = {"ws_ping_interval": 2.0, "ws_ping_timeout": 2.0}
    with served(without_end, **options) as service, accepted(service) as (connection, _):
        connection.sendall(masked(Opcode.TEXT, ASK))
        assert started.wait(DEADLINE)
        until(lambda: service.host.turns_running == 0)


def test_client_whose_pong_waits_behind_its_own_frames_is_not_cut_off(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    go, waited = threading.Event(), []

    def blocking(messages: Any, context: Any) -> str:
        go.wait(DEADLINE)
        return "fine"

    def counted(protocol: WebSocket) -> None:
        if waited:
            # From here on the machine may be slow.
            protocol.ping_timeout = DEADLINE
        timeout(protocol)
        waited.append(protocol)

    timeout = WebSocket.keepalive_timeout
    monkeypatch.setattr(WebSocket, "keepalive_timeout", counted)
    options = {"ws_ping_interval": DEADLINE}
    with served(blocking, **options) as service, accepted(service) as (connection, ours):
        connection.sendall(masked(Opcode.TEXT, ASK) * 20)
        until(lambda: ours.read_paused)
        ours.ping_timeout = 0.05
        ours.loop.call_soon_threadsafe(ours.send_keepalive_ping)
        until(lambda: len(waited) == 2)
        pings = connection.recv(1 << 16)
        connection.sendall(masked(Opcode.PONG, pings[-4:]))
        go.set()
        said = b""
        while said.count(b'"done"') < 20:
            assert (piece := connection.recv(1 << 16))
            said += piece
        until(lambda: ours.pending_ping_payload is None)


def test_client_that_leaves_with_frames_unread_is_noticed_by_a_ping() -> None:
    async def for_ever(messages: Any, context: Any) -> None:
        await asyncio.Event().wait()

    options = {"ws_ping_interval": DEADLINE}
    with served(for_ever, **options) as service:
        with accepted(service) as (connection, ours):
            connection.sendall(masked(Opcode.TEXT, ASK) * 20)
            until(lambda: ours.read_paused)
            ours.ping_timeout = 0.05
        ours.loop.call_soon_threadsafe(ours.send_keepalive_ping)
        until(lambda: service.host.turns_running == 0)


@pytest.mark.parametrize("waiting", [0, 8])
def test_approval_that_comes_together_with_the_close_is_carried_out(
    waiting: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sayso_v2.socket.A_MOMENT", DEADLINE)
    ran = threading.Event()

    @tool(requires_approval=True)
    def delete(name: str) -> str:
        """Delete a file."""
        ran.set()
        return "gone"

    agent = Agent(model=scripted([Call("1", "delete", {"name": "a"})], "gone"), tools=[delete])
    with served(agent) as service:
        (call,) = service.chat("delete a")["data"]["tool_calls"]
        approval = {"role": "user", "content": "", "data": {"tool_calls": [call]}}
        approval["data"]["tool_calls"][0]["execute"] = True
        body = json.dumps({"messages": [{"role": "user", "content": "delete a"}, approval]})
        with accepted(service) as (connection, _):
            more = masked(Opcode.TEXT, ASK) * waiting
            frame = masked(Opcode.TEXT, body.encode())
            connection.sendall(frame + more + masked(Opcode.CLOSE, b"\x03\xe8"))
            until(ran.is_set)
        until(lambda: service.host.turns_running == 0)
