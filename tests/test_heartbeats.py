"""A stream says at least every fifteen seconds that it lives, in a way that clients ignore."""

from __future__ import annotations

import asyncio
import json
import threading
from collections.abc import AsyncIterator
from contextlib import closing
from http.client import HTTPConnection
from typing import Any

import pytest
from starlette.requests import Request
from starlette.responses import JSONResponse
from starlette.routing import Route, Router
from websockets.sync.client import connect

from programs import DEADLINE
from sayso import Caller, ChatRequest, Host, Message, Plugin, engine, hookimpl
from sayso.hosting import streams
from sayso.testing.client import Service
from sayso.testing.serving import served

MESSAGES = [{"role": "user", "content": "hello"}]
SILENT = {"type": "intermittent_update", "text": "", "content": {}}


@pytest.fixture(autouse=True)
def _fast(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(streams.EventStream.beat, "__defaults__", (0.15,))
    monkeypatch.setattr(engine, "_BEAT", 0.05)


def slow(go: threading.Event) -> Any:
    async def answer(messages: object, context: object) -> AsyncIterator[str]:
        yield "first "
        while not go.is_set():  # noqa: ASYNC110
            await asyncio.sleep(0.01)
        yield "last"

    return answer


def lines_of(service: Service, path: str, go: threading.Event, beats: int = 2) -> list[Any]:
    """The events of a stream whose turn goes on when it has said so often that it lives."""
    found: list[Any] = []
    with closing(HTTPConnection("127.0.0.1", service.port, timeout=DEADLINE)) as connection:
        body = json.dumps({"messages": MESSAGES})
        connection.request("POST", path, body, {"Content-Type": "application/json"})
        for line in connection.getresponse():
            found.append(json.loads(line))
            if found.count(SILENT) == beats:
                go.set()
    return found


@pytest.mark.parametrize("path", ["/api/chat-stream", "/api/sendMessageStream"])
@pytest.mark.parametrize("around", [False, True])
def test_silent_stream_says_that_it_lives(path: str, around: bool) -> None:
    """By the listener's short way, and by plain ASGI, which middleware forces."""
    go = threading.Event()
    options = {"cors_origins": ["https://page.example"]} if around else {}
    with served(slow(go), **options) as service:
        events = lines_of(service, path, go)
    said = [event for event in events if event != SILENT]
    assert [event["type"] for event in said] == ["text_delta", "text_delta", "done"]
    assert events.count(SILENT) >= 2


def test_silent_websocket_says_that_it_lives() -> None:
    go = threading.Event()
    with served(slow(go)) as service:
        with connect(f"ws://127.0.0.1:{service.port}/api/chat-ws", open_timeout=DEADLINE) as ws:
            ws.send(json.dumps({"messages": MESSAGES}))
            events = []
            while not events or events[-1]["type"] != "done":
                events.append(json.loads(ws.recv(DEADLINE)))
                if events.count(SILENT) == 2:
                    go.set()
    assert events.count(SILENT) >= 2


def test_events_that_are_not_written_out_as_they_are_have_no_such_lines() -> None:
    """Protocols of plugins that read events one by one have signs of life of their own."""
    go = threading.Event()

    class Own(Plugin):
        """A protocol of its own."""

        name = "own"

        @hookimpl
        def register_routes(self, host: Host) -> Router:
            async def own(request: Request) -> JSONResponse:
                asked = ChatRequest(messages=[Message(role="user", content="hello")])
                asyncio.get_running_loop().call_later(0.6, go.set)
                events = host.stream(asked, Caller("own"))
                return JSONResponse([type(event).__name__ async for event in events])

            return Router([Route("/own", own)])

    with served(slow(go), [Own()]) as service:
        names = service.get("/own").json()
    assert names == ["TextDelta", "TextDelta", "Done"]


def test_stream_that_speaks_has_no_such_lines() -> None:
    async def answer(messages: object, context: object) -> AsyncIterator[str]:
        for number in range(20):
            yield str(number)
            await asyncio.sleep(0.03)

    with served(answer) as service:
        events = lines_of(service, "/api/chat-stream", threading.Event())
    assert events.count(SILENT) < 3, "a busy machine is slower"


def test_the_silence_is_shorter_than_fifteen_seconds() -> None:
    assert streams.SILENCE + 1.0 <= 15.0
