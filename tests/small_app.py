"""A small ASGI app with the attributes that the server needs of `sayso.app`, for its tests."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import sys
import threading
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

from sayso.errors import StartupError
from sayso.workers import Workers


class SmallHost:
    def __init__(self, agent: object, config: Any) -> None:
        self.workers = Workers()
        self.stopping = asyncio.Event()
        self.streams = 0
        self.blocked: list[bool] = []
        self.release = threading.Event()
        self.all_ended = asyncio.Event()
        own = ["clock"] if os.environ.get("SMALL_OWN_PROCESS") else []
        self.plugins = SimpleNamespace(own_process=own, page="", decide_by_id=False)
        self.guarded = False
        self.agent = agent

    def describe(self) -> list[str]:
        return [f"agent {self.agent}"]

    async def drain(self, timeout: float) -> None:
        self.stopping.set()
        # Bypasses Python's buffer, which would be flushed at the end, when nobody reads it any
        # more.
        with suppress(OSError):
            os.write(2, b"draining\n")
        if self.streams:
            await self.all_ended.wait()


class SmallApp:
    def __init__(self, agent: object, config: Any) -> None:
        self.host = SmallHost(agent, config)

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        if scope["type"] == "lifespan":
            await self._lifespan(receive, send)
        elif scope["type"] == "websocket":
            await self._talk(receive, send)
        else:
            await getattr(self, f"get_{scope['path'].strip('/')}")(receive, send)

    async def _lifespan(self, receive: Any, send: Any) -> None:
        await receive()
        if os.environ.get("SMALL_FAILS"):
            await send({"type": "lifespan.startup.failed", "message": "Traceback ..."})
            raise StartupError("the plugin 'small' did not start")
        await self.host.workers.start()
        await send({"type": "lifespan.startup.complete"})
        await receive()
        await self.host.workers.close(0.5)
        await send({"type": "lifespan.shutdown.complete"})

    async def get_health(self, receive: Any, send: Any) -> None:
        await _answer(send, {"status": "ok"})

    async def get_agent(self, receive: Any, send: Any) -> None:
        await _answer(send, {"agent": str(self.host.agent), "pid": os.getpid()})

    async def get_block(self, receive: Any, send: Any) -> None:
        async def turn() -> None:
            self.host.blocked.append(True)
            self.host.release.wait(300)
            self.host.blocked.pop()

        await self.host.workers.spawn(turn)
        await _answer(send, {"done": True})

    async def get_blocked(self, receive: Any, send: Any) -> None:
        await _answer(send, {"turns": len(self.host.blocked)})

    async def get_release(self, receive: Any, send: Any) -> None:
        self.host.release.set()
        await _answer(send, {})

    async def get_stream(self, receive: Any, send: Any) -> None:
        headers = [(b"content-type", b"application/x-ndjson")]
        await send({"type": "http.response.start", "status": 200, "headers": headers})
        await send({"type": "http.response.body", "body": b'{"n": 0}\n', "more_body": True})
        self.host.streams += 1
        await self.host.stopping.wait()
        await asyncio.sleep(0.1)
        await send({"type": "http.response.body", "body": b'{"type": "done"}\n'})
        self._ended()

    async def get_slow(self, receive: Any, send: Any) -> None:
        self.host.streams += 1
        await send({"type": "http.response.start", "status": 200, "headers": []})
        await send({"type": "http.response.body", "body": b"begun\n", "more_body": True})
        await asyncio.sleep(600)

    async def _talk(self, receive: Any, send: Any) -> None:
        await receive()
        await send({"type": "websocket.accept"})
        self.host.streams += 1
        stopping = asyncio.create_task(self.host.stopping.wait())
        while True:
            received = asyncio.create_task(receive())
            await asyncio.wait([received, stopping], return_when=asyncio.FIRST_COMPLETED)
            if stopping.done():
                received.cancel()
                await send({"type": "websocket.send", "text": '{"type": "error"}'})
                self._ended()
                await receive()
                return
            message = received.result()
            if message["type"] == "websocket.disconnect":
                stopping.cancel()
                self._ended()
                return
            kind = "text" if message.get("text") is not None else "bytes"
            for _ in range(3):
                await send({"type": "websocket.send", "text": kind})

    def _ended(self) -> None:
        self.host.streams -= 1
        if not self.host.streams:
            self.host.all_ended.set()


async def _answer(send: Any, value: object) -> None:
    body = json.dumps(value).encode()
    headers = [(b"content-length", b"%d" % len(body))]
    await send({"type": "http.response.start", "status": 200, "headers": headers})
    await send({"type": "http.response.body", "body": body})


def app_to_serve(agent: object, config: Any, extras: Any) -> SmallApp:
    if os.environ.get("SMALL_REFUSES"):
        raise StartupError("plugin 'small' is not installed; try: pip install small")
    return SmallApp(agent, config)


@asynccontextmanager
async def run_own_process(*_: object) -> AsyncIterator[None]:
    note = Path(os.environ["SMALL_OWN_PROCESS"])
    _write(note, str(os.getpid()))
    yield
    _write(note, "left")


def _write(note: Path, line: str) -> None:
    if note.is_dir():
        raise StartupError("the port of plugin 'clock' is in use")
    with note.open("a") as file:
        file.write(line + "\n")


def install() -> None:
    """Replace `sayso.app`."""
    module = ModuleType("sayso.app")
    module.app_to_serve = app_to_serve  # type: ignore[attr-defined]
    module.run_own_process = run_own_process  # type: ignore[attr-defined]
    sys.modules["sayso.app"] = module
    signal.signal(signal.SIGINT, signal.default_int_handler)
