"""A chat request answered without a task is answered as through ASGI, byte for byte."""

from __future__ import annotations

import asyncio
import gc
import json
import re
import socket
import threading
import tracemalloc
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import closing, contextmanager, suppress
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from programs import until
from raw import DEADLINE, rest
from sayso import Agent, Data, IntermittentUpdate, TextDelta, create_app, load_config
from sayso.http.asgi import App
from sayso.http.endpoints import read_body
from sayso.listener.connections import CONTINUE
from sayso.listener.exchange import SIGN_OF_LIFE, Exchange
from sayso.listener.protocol import Http
from sayso.threaded import running
from sayso.wire.messages import AgentMessage

PATHS = ("/api/chat", "/api/chat-stream", "/api/sendMessage", "/api/sendMessageStream")


async def mixed(messages: Any, context: Any) -> AsyncIterator[Any]:
    """Every kind of turn, depending on the message."""
    match messages[-1].content:
        case "fail":
            raise ValueError("no")
        case "late failure":
            yield "so far"
            raise ValueError("no")
        case "update":
            yield IntermittentUpdate("half")
        case "data":
            yield AgentMessage(content="all", data=Data(session={"n": 1}))
        case "slow":
            yield "first"
            await asyncio.sleep(0.06)
        case "slow head":
            await asyncio.sleep(0.06)
    yield messages[-1].content


class Both:
    """One app on a port, asked with and without tasks."""

    def __init__(self, app: App, port: int) -> None:
        self.app = app
        self.port = port

    @contextmanager
    def through_asgi(self) -> Iterator[None]:
        self.app.chat = lambda *head: None  # type: ignore[method-assign]
        try:
            yield
        finally:
            del self.app.chat

    @contextmanager
    def connected(self) -> Iterator[socket.socket]:
        with closing(socket.create_connection(("127.0.0.1", self.port), DEADLINE)) as connection:
            connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            yield connection

    def said(self, *pieces: bytes) -> bytes:
        """Everything that the service sends until it closes the connection."""
        with self.connected() as connection:
            for piece in pieces:
                connection.sendall(piece)
            return plain(rest(connection))


def plain(said: bytes) -> bytes:
    """The output without the parts that differ each time; chunks of a stream may be cut
    anywhere."""
    said = re.sub(rb"date: [^\r]*", b"date: D", said)
    said = re.sub(rb"\b[0-9a-f]{12}\b", b"XINCIDENTIDX", said)
    replies = []
    for reply in re.split(rb"(?=HTTP/1\.1 )", said)[1:]:
        head, _, body = reply.partition(b"\r\n\r\n")
        replies.append(head + b"\r\n\r\n" + (whole(body) if b"chunked" in head else body))
    return b"".join(replies)


def whole(chunked: bytes) -> bytes:
    """The body in the chunks, with its end."""
    parts = []
    while (size := int(chunked.partition(b"\r\n")[0], 16)) > 0:
        start = chunked.index(b"\r\n") + 2
        parts.append(chunked[start : start + size])
        assert chunked[start + size : start + size + 2] == b"\r\n"
        chunked = chunked[start + size + 2 :]
    assert chunked == b"0\r\n\r\n"
    return b"".join(parts)


def request(path: str, body: bytes, *headers: bytes, kind: bytes = b"application/json") -> bytes:
    lines = [
        f"POST {path} HTTP/1.1".encode(),
        b"Host: 127.0.0.1",
        *([b"Content-Type: " + kind] if kind else []),
        f"Content-Length: {len(body)}".encode(),
        *headers,
    ]
    return b"\r\n".join(lines) + b"\r\n\r\n" + body


def ask(content: str, **more: Any) -> bytes:
    return json.dumps({"messages": [{"role": "user", "content": content, **more}]}).encode()


@pytest.fixture(scope="module")
def both(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Both]:
    config = load_config(overrides={"limits.body": 100_000})
    folder = str(tmp_path_factory.mktemp("state"))
    app = create_app(mixed, config=config, state_dir=folder, timeout_keep_alive=60)
    with running(app, app.host.config) as port:
        made = Both(app, port)
        # The first request makes the table of the paths.
        made.said(request(PATHS[0], ask("hej"), b"Connection: close"))
        yield made


CONTENTS = [
    "hej",
    "é✓",
    "fail",
    "late failure",
    "update",
    "data",
    "slow",
    "slow head",
    "",
    "x" * 9000,
]
BODIES = [
    b"",
    b"{",
    b"[]",
    b"{}",
    b'{"messages": []}',
    b'{"messages": [{"role": "assistant", "content": "a"}]}',
    b'{"messages": [{"role": "user"}]}',
    b"\xff\xfe",
    b"x" * 100_001,
    json.dumps({"messages": [{"role": "user", "content": "x" * 90_000}]}).encode(),
    json.dumps({"messages": [{"role": "user", "content": "hej"}], "team": "a", "n": [1]}).encode(),
    ask("hej", data={"tool_calls": [{"id": "a", "name": "b", "input": {}, "execute": True}]}),
]
bodies = st.sampled_from([*map(ask, CONTENTS), *BODIES]) | st.text(max_size=30).map(ask)
kinds = st.sampled_from([b"application/json"] * 6 + [b"", b"text/plain", b"Application/JSON; a=b"])
further = st.lists(
    st.sampled_from([b"Origin: http://a", b"X-A: b", b"Host: elsewhere", b"Expect: 100-continue"]),
    max_size=1,
)


@given(st.sampled_from(PATHS), bodies, kinds, further, st.integers(0, 400))
def test_replies_are_those_of_asgi(
    both: Both, path: str, body: bytes, kind: bytes, headers: list[bytes], cut: int
) -> None:
    sent = request(path, body, *headers, b"Connection: close", kind=kind)
    found = both.said(sent), both.said(sent[:cut], sent[cut:])
    with both.through_asgi():
        wanted = both.said(sent)
    assert wanted.startswith(b"HTTP/1.1 ")
    assert found == (wanted, wanted)


@given(st.lists(st.tuples(st.sampled_from(PATHS), bodies), min_size=2, max_size=4))
def test_requests_behind_each_other_are_answered_in_order(
    both: Both, asked: list[tuple[str, bytes]]
) -> None:
    *first, last = asked
    sent = b"".join(request(path, body) for path, body in first)
    sent += request(*last, b"Connection: close")
    found = both.said(sent)
    with both.through_asgi():
        assert found == both.said(sent)


def test_usual_requests_need_no_task(both: Both, monkeypatch: pytest.MonkeyPatch) -> None:
    started: list[object] = []
    begin = Exchange.begin

    def counted(self: Exchange) -> None:
        started.append(self._endpoint)
        begin(self)

    monkeypatch.setattr(Exchange, "begin", counted)
    for path in PATHS:
        both.said(request(path, ask("hej"), b"Connection: close"))
        sent = request(path, ask("hej"), b"Connection: close")
        both.said(sent[:-30], sent[-30:])
    assert started[::2] == started[1::2] and len(set(started)) == len(PATHS)
    with both.through_asgi():
        both.said(request(PATHS[0], ask("hej"), b"Connection: close"))
    assert len(started) == 2 * len(PATHS)


class Wrapper:
    """An observer's wrapper around an app: it passes on the app's attributes."""

    def __init__(self, app: App) -> None:
        self.app = app
        self.paths: list[str] = []

    def __getattr__(self, name: str) -> Any:
        return getattr(self.app, name)

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        self.paths.append(scope.get("path", ""))
        await self.app(scope, receive, send)


def test_wrapper_around_the_app_sees_every_request(tmp_path: Path) -> None:
    app = create_app(mixed, state_dir=str(tmp_path))
    wrapper: Any = Wrapper(app)
    with running(wrapper, app.host.config) as port:
        both = Both(app, port)
        for _ in range(3):
            both.said(request("/api/chat", ask("hej"), b"Connection: close"))
    assert wrapper.paths.count("/api/chat") == 3


def test_connection_goes_on_after_every_kind_of_reply(both: Both) -> None:
    with both.connected() as connection:
        for content in ("hej", "fail", "", "update", "hej"):
            connection.sendall(request("/api/chat", ask(content)))
            assert connection.recv(65536).startswith(b"HTTP/1.1 ")
        connection.sendall(b"GET /health HTTP/1.1\r\nHost: localhost\r\n\r\n")
        assert b'{"status":"ok"}' in connection.recv(65536)


def test_bearer_token_names_the_caller_without_a_task(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def who(messages: Any, context: Any) -> str:
        return f"{context.principal}"

    started: list[bytes] = []
    begin = Exchange.begin
    monkeypatch.setattr(Exchange, "begin", lambda self: started.append(b"") or begin(self))
    monkeypatch.setenv("SAYSO_AUTH__SCHEME", "bearer")
    monkeypatch.setenv("SAYSO_AUTH__TOKENS__ANN", "a-secret-of-ann")
    with served(who, tmp_path) as both:
        for given, wanted in (
            ([b"Authorization: Bearer a-secret-of-ann"], b'"content":"ann"'),
            ([b"Authorization: Bearer another"], b"HTTP/1.1 401"),
            ([], b"HTTP/1.1 401"),
            (
                [b"Authorization: Bearer \xff", b"Authorization: Bearer a-secret-of-ann"],
                b"HTTP/1.1 401",
            ),
        ):
            sent = request("/api/chat", ask("hej"), *given, b"Connection: close")
            found = both.said(sent)
            assert wanted in found
            with both.through_asgi():
                assert both.said(sent) == found
    assert len(started) == 1


class Waiting:
    """An agent whose turns wait until they are cancelled."""

    def __init__(self) -> None:
        self.waiting_turns = threading.Semaphore(0)
        self.cancelled = threading.Semaphore(0)

    async def __call__(self, messages: Any, context: Any) -> AsyncIterator[str]:
        if messages[-1].content == "speak":
            yield "first"
        self.waiting_turns.release()
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            self.cancelled.release()
            raise


@contextmanager
def served(agent: Any, folder: Path, **options: Any) -> Iterator[Both]:
    app = create_app(agent, state_dir=str(folder), **options)
    with running(app, app.host.config) as port:
        made = Both(app, port)
        with made.connected() as connection:
            connection.sendall(b"GET /health HTTP/1.1\r\nHost: localhost\r\n\r\n")
            assert connection.recv(1000)
        yield made


@pytest.mark.parametrize("path", PATHS[:2])
@pytest.mark.parametrize("content", ["speak", "keep still"])
def test_client_that_leaves_ends_its_turn(tmp_path: Path, path: str, content: str) -> None:
    agent = Waiting()
    with served(agent, tmp_path) as both:
        for body in (ask(content), ask(content, user={"name": "x" * 80_000})):
            with both.connected() as connection:
                connection.sendall(request(path, body))
                assert agent.waiting_turns.acquire(timeout=DEADLINE)
            assert agent.cancelled.acquire(timeout=DEADLINE)
        until(lambda: both.app.host.turns_running == 0)


@pytest.mark.parametrize("on_disconnect", ["cancel", "continue"])
def test_client_that_sends_no_more_gets_the_reply_it_waits_for(
    tmp_path: Path, on_disconnect: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    # The server waits only a moment for a client that no probe can tell from one that has gone.
    monkeypatch.setattr("sayso.listener.protocol.A_MOMENT", DEADLINE)
    sent_no_more = threading.Event()

    def agent(messages: Any, context: Any) -> str:
        assert sent_no_more.wait(DEADLINE)
        return "done"

    def said(both: Both, path: str) -> bytes:
        sent_no_more.clear()
        with both.connected() as connection:
            connection.sendall(request(path, ask("hej")))
            until(lambda: both.app.host.turns_running == 1)
            connection.shutdown(socket.SHUT_WR)
            sent_no_more.set()
            # The head of a stream may be sent before the server has seen the end.
            received = plain(rest(connection)).replace(b"connection: close\r\n", b"")
        for probe in (CONTINUE, SIGN_OF_LIFE):
            received = received.replace(probe, b"")
        return received

    with served(agent, tmp_path, on_disconnect=on_disconnect) as both:
        for path in PATHS:
            short = said(both, path)
            assert short.startswith(b"HTTP/1.1 200 ") and b"done" in short
            with both.through_asgi():
                assert said(both, path) == short


def test_turn_goes_on_without_its_client_where_that_is_wanted(tmp_path: Path) -> None:
    goes_on = threading.Event()
    ended = threading.Semaphore(0)

    def agent(messages: Any, context: Any) -> str:
        assert goes_on.wait(DEADLINE)
        ended.release()
        return "done"

    with served(agent, tmp_path, on_disconnect="continue") as both:
        for path in PATHS[:2]:
            goes_on.clear()
            with both.connected() as connection:
                connection.sendall(request(path, ask("hej")))
                until(lambda: both.app.host.turns_running == 1)
            goes_on.set()
            assert ended.acquire(timeout=DEADLINE)
            until(lambda: both.app.host.turns_running == 0)


def test_slow_reader_holds_its_own_stream_up_and_gets_all_of_it(tmp_path: Path) -> None:
    said = 0

    async def agent(messages: Any, context: Any) -> AsyncIterator[str]:
        nonlocal said
        for _ in range(4000):
            said += 1
            yield "x" * 10_000

    with served(agent, tmp_path) as both, both.connected() as connection:
        connection.sendall(request("/api/chat-stream", ask("hej"), b"Connection: close"))
        until(stands_still(lambda: said))
        assert 0 < said < 4000
        assert rest(connection).count(b"text_delta") == said == 4000


def test_reply_waits_for_a_client_that_has_not_read_the_ones_before(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    replies = 0
    full: list[bool] = []
    begin = Exchange.begin

    async def agent(messages: Any, context: Any) -> str:
        nonlocal replies
        replies += 1
        return "x" * 1_000_000

    def noted(self: Exchange) -> None:
        full.append(self._connection.flow.write_paused)
        self._connection.flow.resume_reading()
        begin(self)

    monkeypatch.setattr(Exchange, "begin", noted)
    with served(agent, tmp_path) as both, both.connected() as connection:
        client = connection.getsockname()
        sent = request("/api/chat", ask("hej"))
        connection.sendall(sent)
        until(lambda: replies == 1)
        ours = next(o for o in gc.get_objects() if type(o) is Http and o.client == client)
        while not ours.flow.write_paused:
            before = replies
            connection.sendall(sent)
            until(lambda before=before: replies > before and both.app.host.turns_running == 0)
            until(lambda: ours.flow.write_paused or ours.cycle.response_complete)
        asked = replies + 1
        connection.sendall(request("/api/chat", ask("hej"), b"Connection: close"))
        until(lambda: replies == asked)
        assert rest(connection).count(b'"content":"xxx') == asked
    assert full and not any(full)


def stands_still(figure: Callable[[], int]) -> Callable[[], bool]:
    """Whether the figure stays unchanged over many reads."""
    seen: list[int] = []

    def look() -> bool:
        seen.append(figure())
        return len(seen) > 50 and seen[-1] > 0 and len(set(seen[-50:])) == 1

    return look


def test_half_a_body_at_the_end_of_the_service_gets_503(tmp_path: Path) -> None:
    app = create_app(mixed, state_dir=str(tmp_path))
    with running(app, app.host.config) as port:
        both = Both(app, port)
        both.said(request("/api/chat", ask("hej"), b"Connection: close"))
        connection = socket.create_connection(("127.0.0.1", port), DEADLINE)
        sent = request("/api/chat", ask("hej"))
        connection.sendall(sent[:-5])
        with both.connected() as other:
            other.sendall(b"GET /health HTTP/1.1\r\nHost: localhost\r\n\r\n")
            assert other.recv(1000)
    said = rest(connection)
    connection.close()
    assert said.startswith(b"HTTP/1.1 503 ")
    assert b'"code":"BUSY"' in said and b"retry-after" in said


def test_turns_at_the_end_of_the_service_are_told_so(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    agent = Waiting()
    connections = []
    with served(agent, tmp_path) as both:
        for path in PATHS[:2]:
            connection = socket.create_connection(("127.0.0.1", both.port), DEADLINE)
            connection.sendall(request(path, ask("speak")))
            connections.append(connection)
            assert agent.waiting_turns.acquire(timeout=DEADLINE)
    whole, stream = (rest(connection) for connection in connections)
    for connection in connections:
        connection.close()
    assert whole.startswith(b"HTTP/1.1 503 ") and b'"code":"STOPPING"' in whole
    assert b"retry-after" not in whole, "part of the turn may have run"
    assert stream.startswith(b"HTTP/1.1 200 ") and stream.endswith(b"\r\n0\r\n\r\n")
    assert b'"code":"STOPPING"' in stream
    assert "2 turns and 0 calls did not end within drain_timeout" in caplog.text


def test_single_turn_that_still_runs_is_counted_as_one(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    agent = Waiting()
    with served(agent, tmp_path) as both:
        connection = socket.create_connection(("127.0.0.1", both.port), DEADLINE)
        connection.sendall(request(PATHS[0], ask("speak")))
        assert agent.waiting_turns.acquire(timeout=DEADLINE)
    rest(connection)
    connection.close()
    assert "1 turn and 0 calls did not end within drain_timeout" in caplog.text


def test_idle_connection_is_closed_and_a_busy_one_is_not(tmp_path: Path) -> None:
    goes_on = threading.Event()

    async def agent(messages: Any, context: Any) -> str:
        await asyncio.to_thread(goes_on.wait, DEADLINE)
        return "done"

    with (
        served(agent, tmp_path, timeout_keep_alive=1) as both,
        both.connected() as busy,
        both.connected() as idle,
    ):
        busy.sendall(request("/api/chat", ask("hej")))
        idle.sendall(b"GET /health HTTP/1.1\r\nHost: localhost\r\n\r\n")
        assert rest(idle).endswith(b'{"status":"ok"}')
        goes_on.set()
        assert busy.recv(65536).startswith(b"HTTP/1.1 200 ")
        assert rest(busy) == b""


@pytest.mark.parametrize("error", [GeneratorExit, asyncio.CancelledError, KeyboardInterrupt])
def test_whatever_a_streaming_agent_raises_is_answered_as_its_failure(
    tmp_path: Path, error: type[BaseException]
) -> None:
    async def agent(messages: Any, context: Any) -> AsyncIterator[str]:
        if messages[-1].content == "later":
            await asyncio.sleep(0.01)
        raise error
        yield ""

    with served(agent, tmp_path) as both:
        for path in PATHS:
            for content in ("at once", "later"):
                sent = request(path, ask(content), b"Connection: close")
                found = both.said(sent)
                assert b"agent failed" in found
                with both.through_asgi():
                    assert both.said(sent) == found


def test_failure_that_cannot_be_told_is_answered_too(tmp_path: Path) -> None:
    class Wordless(Exception):
        def __str__(self) -> str:
            raise ValueError

    async def agent(messages: Any, context: Any) -> str:
        raise Wordless

    with served(agent, tmp_path, debug=True) as both:
        sent = request("/api/chat", ask("hej"), b"Connection: close")
        found = both.said(sent)
        assert found.startswith(b"HTTP/1.1 500 ")
        with both.through_asgi():
            assert both.said(sent) == found


@pytest.mark.parametrize("body", [b"", ask("another")])
def test_request_begins_once_when_one_for_a_websocket_follows(tmp_path: Path, body: bytes) -> None:
    started = threading.Semaphore(0)
    said: list[str] = []

    async def agent(messages: Any, context: Any) -> str:
        said.append(messages[-1].content)
        started.release()
        await asyncio.sleep(0.05)
        return "done"

    upgrade = (
        b"GET /api/chat-ws HTTP/1.1\r\nHost: 127.0.0.1\r\nConnection: Upgrade\r\n"
        b"Upgrade: websocket\r\nSec-WebSocket-Version: 13\r\n"
        b"Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\nContent-Length: %d\r\n\r\n" % len(body)
    )
    with served(agent, tmp_path) as both:
        with both.connected() as connection:
            connection.sendall(request("/api/chat", ask("hej")))
            assert started.acquire(timeout=DEADLINE)
            connection.sendall(upgrade + body)
            received = b""
            while b'"content":"done"' not in received:
                assert (got := connection.recv(65536))
                received += got
        assert b" 422 " not in received
        until(lambda: both.app.host.turns_running == 0)
    assert said == ["hej"]


def test_turn_that_takes_its_time_to_end_is_answered_before_the_service_ends(
    tmp_path: Path,
) -> None:
    started = threading.Event()

    async def agent(messages: Any, context: Any) -> str:
        started.set()
        for _ in range(3):
            with suppress(asyncio.CancelledError):
                await asyncio.sleep(600)
        return "never"

    with served(agent, tmp_path) as both:
        connection = socket.create_connection(("127.0.0.1", both.port), DEADLINE)
        connection.sendall(request("/api/chat", ask("hej")))
        assert started.wait(DEADLINE)
    said = rest(connection)
    connection.close()
    assert said.startswith(b"HTTP/1.1 503 ") and b'"code":"STOPPING"' in said


def test_requests_and_connections_leave_nothing_to_the_garbage_collector(both: Both) -> None:
    def kept() -> list[object]:
        return [o for o in gc.get_objects() if type(o) in (Exchange, Http)]

    sent = request("/api/chat", ask("hej"))
    # Other tests may have left some.
    before = kept()
    gc.disable()
    try:
        for content in ("hej", "fail", "late failure", "slow"):
            for path in PATHS[:2]:
                both.said(request(path, ask(content), b"Connection: close"))
        for piece in (b"", sent[:10], sent[:-5], sent + b"\0", request(PATHS[0], ask("slow"))):
            with both.connected() as connection:
                connection.sendall(piece)
        until(lambda: all(any(o is b for b in before) for o in kept()))
    finally:
        gc.enable()


def test_body_in_many_pieces_takes_no_more_memory_than_it_has_bytes(both: Both) -> None:
    sent = request("/api/chat", ask("x" * 30_000), b"Connection: close")
    with both.connected() as connection:
        for at in range(0, len(sent) - 1, 2):
            connection.sendall(sent[at : min(at + 2, len(sent) - 1)])
        until(lambda: any(type(o) is Exchange and o.more_body for o in gc.get_objects()))
        kept = [o for o in gc.get_objects() if type(o) is Exchange and o.more_body]
        held = [part for one in kept for part in gc.get_referents(one)]
        assert not any(isinstance(part, list) and len(part) > 100 for part in held)
        connection.sendall(sent[-1:])
        assert rest(connection).startswith(b"HTTP/1.1 200 ")


def test_body_through_asgi_takes_no_more_memory_than_it_has_bytes() -> None:
    pieces = (bytes((at % 256, at % 255)) for at in range(50_000))

    async def receive() -> dict[str, Any]:
        if (piece := next(pieces, None)) is not None:
            return {"body": piece, "more_body": True}
        taken.append(tracemalloc.get_traced_memory()[1] - before)
        return {"body": b"", "more_body": False}

    taken: list[int] = []
    scope = {"headers": [(b"content-type", b"application/json")]}
    tracemalloc.start()
    before = tracemalloc.get_traced_memory()[0]
    try:
        body = asyncio.run(read_body(scope, receive, 100_000))
    finally:
        tracemalloc.stop()
    assert len(body) == 100_000
    assert taken[0] < 500_000


def test_others_are_answered_between_two_long_bodies_that_came_together() -> None:
    long = b"x" * 70_000
    seen: list[str] = []
    scope = {"headers": [(b"content-type", b"application/json")]}

    async def receive() -> dict[str, Any]:
        return {"body": long, "more_body": False}

    async def read() -> None:
        assert await read_body(scope, receive, 10**6) == long
        seen.append("long")

    async def together() -> None:
        readers = [asyncio.create_task(read()) for _ in range(5)]
        while not all(reader.done() for reader in readers):
            await asyncio.sleep(0)
            seen.append("other")

    asyncio.run(together())
    ends = [at for at, what in enumerate(seen) if what == "long"]
    assert len(ends) == 5
    assert all(after - before > 2 for before, after in pairwise(ends))


class Unspeakable(Exception):
    """An exception whose own text fails."""

    def __str__(self) -> str:
        raise ValueError("no text")


@pytest.mark.parametrize("path", PATHS)
def test_failure_without_a_text_is_told_all_the_same(tmp_path: Path, path: str) -> None:
    async def agent(messages: Any, context: Any) -> AsyncIterator[str]:
        yield "so far"
        raise Unspeakable

    with served(agent, tmp_path, debug=True) as both:
        sent = request(path, ask("hej"), b"Connection: close")
        found = both.said(sent)
        assert b"Unspeakable" in found
        with both.through_asgi():
            assert both.said(sent) == found


@pytest.mark.parametrize("path", PATHS)
@pytest.mark.parametrize("text", [b"hej", 5, None])
def test_model_whose_delta_is_no_text_fails_the_turn_and_answers_the_client(
    tmp_path: Path, path: str, text: Any
) -> None:
    class Odd:
        provider = name = "odd"

        async def stream(self, ask: Any) -> AsyncIterator[Any]:
            yield TextDelta(text)

    with served(Agent(model=Odd()), tmp_path) as both:
        sent = request(path, ask("hej"), b"Connection: close")
        found = both.said(sent)
        assert b"the model" in found
