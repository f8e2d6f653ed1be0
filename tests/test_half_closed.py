"""Clients that close their half of a connection and still read; and those that have gone."""

from __future__ import annotations

import asyncio
import http.client
import json
import socket
import sys
import threading
from collections.abc import Iterator
from contextlib import closing

import pytest

from programs import DEADLINE, until
from sayso.testing.client import Service
from sayso.testing.serving import served

BODY = json.dumps({"messages": [{"role": "user", "content": "hello"}]}).encode()
PATHS = ["/api/chat", "/api/chat-stream", "/api/sendMessage", "/api/sendMessageStream"]

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="other systems cannot tell")


class Slow:
    """An agent that answers on a signal, and records whether it was cancelled."""

    def __init__(self) -> None:
        self.started = threading.Event()
        self.go = threading.Event()
        self.cancelled = threading.Event()

    async def __call__(self, messages: object, context: object) -> str:
        self.started.set()
        try:
            while not self.go.is_set():  # noqa: ASYNC110
                await asyncio.sleep(0.01)
        except asyncio.CancelledError:
            self.cancelled.set()
            raise
        return "answered"


@pytest.fixture
def slow() -> Iterator[Slow]:
    agent = Slow()
    yield agent
    agent.go.set()


@pytest.fixture(params=["short", "asgi"])
def service(request: pytest.FixtureRequest, slow: Slow) -> Iterator[Service]:
    """By the listener's own short way, and by plain ASGI, which middleware forces."""

    async def answer(messages: object, context: object) -> str:
        return await slow(messages, context)

    options = {"cors_origins": ["https://page.example"]} if request.param == "asgi" else {}
    with served(answer, **options) as running:
        yield running


def asked(service: Service, path: str, version: str = "1.1") -> socket.socket:
    """A connection that has sent a whole request."""
    connection = socket.create_connection(("127.0.0.1", service.port), DEADLINE)
    head = f"POST {path} HTTP/{version}\r\nHost: 127.0.0.1:{service.port}\r\n"
    head += f"Content-Type: application/json\r\nContent-Length: {len(BODY)}\r\n\r\n"
    connection.sendall(head.encode() + BODY)
    return connection


@pytest.mark.parametrize("path", PATHS)
def test_half_closed_client_gets_its_answer(service: Service, slow: Slow, path: str) -> None:
    with closing(asked(service, path)) as connection:
        slow.started.wait(DEADLINE)
        connection.shutdown(socket.SHUT_WR)
        # Longer than the moment after which one that has gone is noticed.
        assert not slow.cancelled.wait(0.5)
        slow.go.set()
        response = http.client.HTTPResponse(connection)
        response.begin()
        body = response.read()
    assert response.status == 200
    assert b"answered" in body
    if path.endswith("tream"):
        events = [json.loads(line) for line in body.splitlines()]
        assert events[-1]["type"] == "done"
        assert {e["text"] for e in events if e["type"] == "intermittent_update"} <= {""}


@pytest.mark.parametrize("path", PATHS)
def test_client_that_has_gone_ends_its_turn(service: Service, slow: Slow, path: str) -> None:
    with closing(asked(service, path)):
        assert slow.started.wait(DEADLINE)
    until(slow.cancelled.is_set)


def test_half_closed_client_that_goes_later_ends_its_turn(service: Service, slow: Slow) -> None:
    with closing(asked(service, "/api/chat")) as connection:
        slow.started.wait(DEADLINE)
        connection.shutdown(socket.SHUT_WR)
        assert not slow.cancelled.wait(0.3)
        assert connection.recv(100).startswith(b"HTTP/1.1 100 Continue")
        # With something unread, or unanswered, the end of it is a refusal.
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0")
    until(slow.cancelled.is_set)


def test_half_closed_client_of_http_1_0_is_taken_for_gone(service: Service, slow: Slow) -> None:
    """It knows no interim answers, so nothing can be sent that would tell."""
    with closing(asked(service, "/api/chat", "1.0")) as connection:
        slow.started.wait(DEADLINE)
        connection.shutdown(socket.SHUT_WR)
        until(slow.cancelled.is_set)
