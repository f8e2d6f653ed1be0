"""The memory of a broken WebSocket is released at once, as far as uvicorn's own is."""

from __future__ import annotations

import gc
import os
import re
import socket
import struct
import sys
import weakref
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from websockets.frames import Frame, Opcode

from programs import Program, until
from sayso.listener.frames import WebSocket
from sayso.testing import served

HANDSHAKE = (
    b"GET /api/chat-ws HTTP/1.1\r\nHost: localhost\r\nConnection: Upgrade\r\n"
    b"Upgrade: websocket\r\nSec-WebSocket-Version: 13\r\n"
    b"Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n"
)
LARGE = b"x" * 2 * 2**20
WHOLE = bytes(Frame(Opcode.TEXT, LARGE).serialize(mask=True))
STARTED = bytes(Frame(Opcode.TEXT, LARGE, fin=False).serialize(mask=True))
BROKEN = {
    "part of a frame": WHOLE[:-10],
    "a frame without JSON": WHOLE,
    "a part of a message": STARTED,
    "no frame behind a part": STARTED + b"\xff\xff",
    "an unmasked frame": WHOLE + b"\x81\x05hello",
}
CONNECTIONS = 100

SAYSO = """
from sayso import Agent, serve

async def words(messages, context):
    return "a few words"

if __name__ == "__main__":
    serve(words, host="127.0.0.1", port=0)
"""
UVICORN = """
import socket, sys
import uvicorn

async def app(scope, receive, send):
    if scope["type"] != "websocket":
        return
    await receive()
    await send({"type": "websocket.accept"})
    while (await receive())["type"] != "websocket.disconnect":
        await send({"type": "websocket.send", "text": "{}"})

listening = socket.create_server(("127.0.0.1", 0))
print(f"listening on http://127.0.0.1:{listening.getsockname()[1]}", file=sys.stderr, flush=True)
config = uvicorn.Config(app, ws="websockets-sansio", lifespan="off", log_level="critical")
uvicorn.Server(config).run([listening])
"""


def break_off(port: int, said: bytes) -> None:
    """Open a WebSocket, send `said`, and disconnect without a close frame."""
    with closing(socket.create_connection(("127.0.0.1", port))) as connection:
        connection.sendall(HANDSHAKE)
        assert connection.recv(1000).startswith(b"HTTP/1.1 101 ")
        connection.sendall(said)
        if said is WHOLE:
            assert connection.recv(1000)
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))


@pytest.fixture
def without_collections() -> Iterator[None]:
    gc.collect()
    gc.disable()
    yield
    gc.enable()


@pytest.mark.parametrize("said", BROKEN.values(), ids=BROKEN.keys())
def test_nothing_of_a_broken_connection_waits_for_the_garbage_collector(
    said: bytes, monkeypatch: pytest.MonkeyPatch, without_collections: None
) -> None:
    async def words(messages: Any, context: Any) -> str:
        return "a few words"

    made: list[weakref.ref[Any]] = []

    class Seen(WebSocket):
        def connection_made(self, transport: Any) -> None:
            super().connection_made(transport)
            made.extend(map(weakref.ref, (self, self.conn, self.conn.reader)))

    monkeypatch.setattr("sayso.listener.frames.WebSocket", Seen)
    with served(words) as service:
        break_off(service.port, said)
        until(lambda: made and not [ref for ref in made if ref() is not None])


def test_broken_connections_leave_no_more_memory_than_with_uvicorn_alone(tmp_path: Path) -> None:
    ours = _grown(tmp_path, SAYSO)
    plain = _grown(tmp_path, UVICORN)
    # Both allocate in different ways; leaked memory would be 200 MB.
    assert ours < plain + 20


def _grown(folder: Path, script: str) -> float:
    """The growth of a service's memory, in MB, after many broken connections."""
    file = folder / "service.py"
    file.write_text(script)
    environ = {**os.environ, "SAYSO_SERVER__STATE_DIR": str(folder / "state")}
    service = Program([sys.executable, str(file)], folder, environ)
    try:
        port = service.port
        before = _resident(service.process.pid)
        for _ in range(CONNECTIONS):
            break_off(port, WHOLE)
        return _resident(service.process.pid) - before
    finally:
        service.close()


def _resident(pid: int) -> float:
    found = re.search(r"VmRSS:\s+(\d+) kB", Path(f"/proc/{pid}/status").read_text())
    assert found is not None
    return int(found[1]) / 1024
