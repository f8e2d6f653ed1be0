from __future__ import annotations

import asyncio
import gc
import json
import socket
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import pytest

from raw import DEADLINE, rest
from sayso import Message
from sayso.listener import connections, protocol
from sayso.testing import served as served_on_loopback
from sayso.testing.client import Service

GET = b"GET /health HTTP/1.1\r\nHost: a\r\n"
POST = b"POST /api/chat HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
SMALL = json.dumps({"messages": [{"role": "user", "content": "broken off"}]}).encode()
HANDSHAKE = (
    b"GET /api/chat-ws HTTP/1.1\r\nHost: localhost\r\nConnection: Upgrade\r\n"
    b"Upgrade: websocket\r\nSec-WebSocket-Version: 13\r\n"
    b"Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n"
)
BODY = json.dumps({"messages": [{"role": "user", "content": "x" * 300_000}]}).encode()


@contextmanager
def served(agent: object, *, host: str = "0.0.0.0", **options: Any) -> Iterator[Service]:
    """A service that answers under any name, unless it listens on the loopback address."""
    config = f'[server]\nhost = "{host}"\n'
    with served_on_loopback(agent, config=config, **options) as running:
        yield running


@pytest.fixture(scope="module")
def service() -> Iterator[Service]:
    with served(lambda messages, context: str(len(messages[-1].content))) as running:
        yield running


@contextmanager
def connected(service: Service) -> Iterator[socket.socket]:
    address = ("127.0.0.1", service.port)
    with closing(socket.create_connection(address, DEADLINE)) as connection:
        yield connection


@contextmanager
def connected_again(connection: socket.socket) -> Iterator[socket.socket]:
    with closing(socket.create_connection(connection.getpeername(), DEADLINE)) as another:
        yield another


def status(connection: socket.socket) -> bytes:
    return connection.recv(65536).split(b" ", 2)[1]


def send_without_end(connection: socket.socket, piece: bytes) -> int:
    """The number of bytes sent before the service closed the connection."""
    sent = 0
    try:
        while sent < 64 * 2**20:
            connection.sendall(piece)
            sent += len(piece)
    except ConnectionError:
        pass
    return sent


@pytest.mark.parametrize("size", [1000, 9000, 70_000, 300_000])
def test_head_over_the_limit_is_431(service: Service, size: int) -> None:
    with connected(service) as connection:
        connection.sendall(GET + b"A: ")
        try:
            for _ in range(protocol.HEAD_SIZE // size + 1):
                connection.sendall(b"x" * size)
        except ConnectionError:
            pass
        said = rest(connection)
    if size == 1000:
        assert said.startswith(b"HTTP/1.1 431 ")
        assert json.loads(said.partition(b"\r\n\r\n")[2])["code"] == "TOO_LARGE"
    assert b" 200 " not in said


@pytest.mark.parametrize(
    "begin",
    [
        GET + b"A: ",
        GET,
        GET + b"\r\n" + GET + b"A: ",
        b"POST /health HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n0\r\nA: ",
        b"POST /api/chat HTTP/1.1\r\nHost: a\r\nContent-Type: application/json\r\n"
        b"Transfer-Encoding: chunked\r\n\r\n1\r\n{\r\n0\r\nA: ",
    ],
    ids=["one header", "many headers", "pipelined", "trailers, answered", "trailers"],
)
def test_unfinished_head_is_not_kept(service: Service, begin: bytes) -> None:
    piece = b"a: b\r\n" * 10_000 if begin == GET else b"x" * 60_000
    with connected(service) as connection:
        connection.sendall(begin)
        assert send_without_end(connection, piece) < 32 * 2**20


@pytest.mark.parametrize("first", [1, 50, 60_000])
def test_head_at_the_limit_and_a_large_body_behind_it_are_served(
    service: Service, first: int
) -> None:
    head = (
        b"POST /api/chat HTTP/1.1\r\nHost: a\r\nContent-Type: application/json\r\n"
        b"Content-Length: %d\r\nA: " % len(BODY)
    )
    head += b"x" * (protocol.HEAD_SIZE - len(head) - 4) + b"\r\n\r\n"
    with connected(service) as connection:
        for _ in range(2):
            connection.sendall(head[:first])
            connection.sendall(head[first:] + BODY)
            assert status(connection) == b"200"


def test_chunked_body_of_any_pieces_is_served(service: Service) -> None:
    head = (
        b"POST /api/chat HTTP/1.1\r\nHost: a\r\nContent-Type: application/json\r\n"
        b"Transfer-Encoding: chunked\r\n\r\n"
    )
    pieces = [BODY[at : at + 50_000] for at in range(0, len(BODY), 50_000)]
    with connected(service) as connection:
        connection.sendall(head)
        for piece in pieces:
            connection.sendall(b"%x\r\n" % len(piece))
            connection.sendall(piece + b"\r\n")
        connection.sendall(b"0\r\nA: b\r\n\r\n")
        assert status(connection) == b"200"
        connection.sendall(GET + b"\r\n")
        assert status(connection) == b"200"


@pytest.mark.parametrize(
    "head",
    [
        b"Transfer-Encoding: chunked\r\n\r\n%x\r\n" % len(SMALL),
        b"Content-Length: %d\r\n\r\n" % (len(SMALL) + 9),
        b"Expect: 100-continue\r\nContent-Length: %d\r\n\r\n" % (len(SMALL) + 9),
    ],
)
def test_body_that_breaks_off_is_no_request(head: bytes) -> None:
    received: list[str] = []

    def agent(messages: Sequence[Message], context: object) -> str:
        received.append(messages[-1].content)
        return "ok"

    with served(agent) as service:
        with connected(service) as connection:
            connection.sendall(POST + head + SMALL)
            connection.shutdown(socket.SHUT_WR)
            rest(connection)
        service.chat("whole")
    assert received == ["whole"]


@pytest.mark.parametrize("kind", [b"", b"Content-Type: text/plain\r\n"])
def test_trailers_are_no_headers(service: Service, kind: bytes) -> None:
    body = json.dumps({"messages": [{"role": "user", "content": "hej"}]}).encode()
    sent = b"POST /api/chat HTTP/1.1\r\nHost: a\r\n" + kind + b"Transfer-Encoding: chunked\r\n\r\n"
    sent += b"%x\r\n%s\r\n0\r\nContent-Type: application/json\r\n\r\n" % (len(body), body)
    with connected(service) as connection:
        connection.sendall(sent)
        assert status(connection) == b"415"


@pytest.mark.slow
@pytest.mark.parametrize("path", [b"/api/chat", b"/api/chat-stream"])
def test_many_requests_behind_each_other_are_all_answered(service: Service, path: bytes) -> None:
    """However long they are together: only a single head has a limit."""
    body = json.dumps({"messages": [{"role": "user", "content": "hej"}]}).encode()
    head = b"POST %s HTTP/1.1\r\nHost: a\r\nContent-Type: application/json\r\n" % path
    one = head + b"Content-Length: %d\r\n\r\n" % len(body) + body
    last = one.replace(b"Host", b"Connection: close\r\nHost")
    with connected(service) as connection:
        connection.sendall(one * 3000 + last)
        assert rest(connection).count(b"HTTP/1.1 200 ") == 3001


def test_flood_of_requests_is_left_in_the_network(service: Service) -> None:
    one = GET + b"A: b\r\n\r\n"
    with connected(service) as connection:
        client = connection.getsockname()
        sender = threading.Thread(target=connection.sendall, args=(one * 60_000,))
        sender.start()
        answered = waiting = 0
        ours: list[protocol.Http] = []
        status = b"HTTP/1.1 200 "
        unread = b""
        while answered < 60_000:
            came = connection.recv(1 << 20)
            assert came, "closed before all was answered"
            unread += came
            answered += unread.count(status)
            # A status line may arrive in two pieces.
            unread = unread[1 - len(status) :]
            if not ours:
                held = [o for o in gc.get_objects() if type(o) is protocol.Http]
                ours = [o for o in held if o.client == client]
            waiting = max(waiting, len(ours[0].pipeline))
        sender.join()
    # Two reads of uvloop's.
    assert 0 < waiting < 2 * 256_000 / len(one)


@pytest.fixture
def hurried(monkeypatch: pytest.MonkeyPatch) -> Iterator[Service]:
    monkeypatch.setattr(protocol, "HEAD_TIME", 0.3)
    with kept() as running:
        yield running


@pytest.fixture
def brisk(monkeypatch: pytest.MonkeyPatch) -> Iterator[Service]:
    """A service with a short time limit for heads, which a slow machine must meet, too."""
    monkeypatch.setattr(protocol, "HEAD_TIME", 3.0)
    with kept() as running:
        yield running


@contextmanager
def kept() -> Iterator[Service]:
    agent = lambda messages, context: "ok"  # noqa: E731
    with served(agent, timeout_keep_alive=60) as running:
        yield running


@pytest.mark.parametrize("begin", [b"", b"GET /hea", GET, b"\r\n"])
def test_connection_without_a_whole_head_is_closed_in_time(hurried: Service, begin: bytes) -> None:
    with connected(hurried) as connection:
        if begin:
            connection.sendall(begin)
        rest(connection)


def test_head_that_drips_after_an_answer_is_closed_in_time(brisk: Service) -> None:
    with connected(brisk) as connection:
        connection.sendall(GET + b"\r\n")
        assert status(connection) == b"200"
        connection.sendall(b"GET /")
        rest(connection)


def test_kept_connections_and_websockets_outlive_the_time_for_a_head(brisk: Service) -> None:
    pytest.importorskip("websockets")
    from websockets.sync.client import connect

    turn = json.dumps({"messages": [{"role": "user", "content": "hi"}]})
    url = f"ws://127.0.0.1:{brisk.port}/api/chat-ws"
    with connected(brisk) as held, connect(url, open_timeout=DEADLINE) as ws:
        held.sendall(GET + b"\r\n")
        assert status(held) == b"200"
        with connected(brisk) as silent:
            rest(silent)
        held.sendall(GET + b"\r\n")
        assert status(held) == b"200"
        ws.send(turn)
        while json.loads(ws.recv(timeout=DEADLINE))["type"] != "done":
            pass


@pytest.mark.parametrize(
    "head",
    [b"Content-Length: %d\r\n\r\n" % len(BODY), b"Transfer-Encoding: chunked\r\n\r\n9999\r\n"],
)
def test_connection_whose_body_stalls_is_closed_in_time(
    monkeypatch: pytest.MonkeyPatch, head: bytes
) -> None:
    monkeypatch.setattr(protocol, "BODY_TIME", 0.3)
    with kept() as service, connected(service) as connection:
        connection.sendall(POST + head + BODY[:1000])
        assert rest(connection) == b""


@contextmanager
def unread(service: Service, sent: bytes) -> Iterator[socket.socket]:
    """A connection whose client takes only a few kilobytes of the replies into its buffer."""
    with closing(socket.socket()) as connection:
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        connection.settimeout(DEADLINE)
        connection.connect(("127.0.0.1", service.port))
        connection.sendall(sent)
        yield connection


@pytest.mark.parametrize("path", [b"/api/chat", b"/api/chat-stream"])
@pytest.mark.parametrize("kept", [b"", b"Connection: close\r\n"])
def test_connection_whose_client_takes_nothing_of_a_reply_is_cut_in_time(
    monkeypatch: pytest.MonkeyPatch, path: bytes, kept: bytes
) -> None:
    monkeypatch.setattr(connections, "SEND_TIME", 0.3)
    post = POST.replace(b"/api/chat", path) + kept + b"Content-Length: %d\r\n\r\n" % len(SMALL)
    with (
        served(lambda messages, context: "x" * 20_000_000) as service,
        unread(service, post + SMALL) as connection,
    ):
        deadline = time.monotonic() + DEADLINE
        while not sent_to(connection) or established(connection):
            assert time.monotonic() < deadline
            time.sleep(0.01)
        assert len(rest(connection)) < 20_000_000


def sent_to(connection: socket.socket) -> bool:
    return bool(connection.recv(1, socket.MSG_PEEK))


def established(connection: socket.socket) -> bool:
    """Whether the service still holds its end of the connection, according to the kernel."""
    ours = f"{connection.getsockname()[1]:04X}"
    rows = (line.split() for line in Path("/proc/net/tcp").read_text().splitlines()[1:])
    return any(remote.endswith(f":{ours}") and state == "01" for _, _, remote, state, *_ in rows)


def test_connection_is_kept_while_its_client_takes_a_little(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(connections, "SEND_TIME", 0.01)
    # Each read that finds less is followed by another.
    sizes = [5, 4, 4, 3, 3, 3, 9]

    class Sending:
        def __init__(self) -> None:
            self.aborted = asyncio.Event()

        def abort(self) -> None:
            self.aborted.set()

        def get_write_buffer_size(self) -> int:
            return sizes.pop(0)

        def is_closing(self) -> bool:
            return False

        get_protocol = is_closing

    async def send() -> None:
        transport: Any = Sending()
        connections.CorkedTransport(transport).watch()
        async with asyncio.timeout(DEADLINE):
            await transport.aborted.wait()
        assert sizes == [9]

    asyncio.run(send())


def test_body_behind_a_request_that_runs_is_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(protocol, "BODY_TIME", 0.5)
    go_on = threading.Event()

    def agent(messages: Sequence[Message], context: object) -> str:
        assert go_on.wait(DEADLINE)
        return "ok"

    head = POST + b"Content-Length: %d\r\n\r\n"
    with served(agent) as service, connected(service) as connection:
        connection.sendall(head % len(SMALL) + SMALL + head % len(SMALL) + SMALL[:20])
        for _ in range(2):
            with connected(service) as other:
                other.sendall(head % len(SMALL) + SMALL[:20])
                rest(other)
        monkeypatch.setattr(protocol, "BODY_TIME", DEADLINE)
        with connected(service) as other:
            pass
        connection.sendall(SMALL[20:])
        go_on.set()
        said = b""
        while said.count(b"HTTP/1.1 200 ") < 2:
            assert (got := connection.recv(65536))
            said += got


@pytest.mark.parametrize("cut", [1, 60, 10_000])
def test_connection_is_kept_after_a_request_that_is_refused_as_it_is_read(
    brisk: Service, cut: int
) -> None:
    sent = (
        b"POST /api/chat HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
        b"Content-Length: 2\r\n\r\n{}"
    )
    with connected(brisk) as held:
        held.sendall(GET.replace(b"Host: a", b"Host: localhost") + b"\r\n")
        assert status(held) == b"200"
        held.sendall(sent[:cut])
        held.sendall(sent[cut:])
        assert status(held) == b"400"
        with connected(brisk) as silent:
            rest(silent)
        held.sendall(sent)
        assert status(held) == b"400"


@pytest.mark.parametrize("header", [b"Upgrade: h2c", b"upgrade:\th2c "])
def test_offer_of_http_2_is_passed_over_and_loses_no_body(service: Service, header: bytes) -> None:
    body = json.dumps({"messages": [{"role": "user", "content": "Upgrade: h2c"}]}).encode()
    lines = [
        b"POST /api/chat HTTP/1.1",
        b"Connection: Upgrade, HTTP2-Settings",
        header,
        b"HTTP2-Settings: AAMAAABkAAQCAAAAAAIAAAAA",
        b"Host: localhost",
        b"Content-Type: application/json",
        b"Content-Length: %d" % len(body),
    ]
    sent = b"\r\n".join(lines) + b"\r\n\r\n" + body
    with connected(service) as connection:
        for cut in (0, 5, 30, 75, 80, 130, len(sent) - len(body) - 2, len(sent) - 1):
            connection.sendall(sent[:cut])
            service.get("/health")
            connection.sendall(sent[cut:])
            said = connection.recv(65536)
            assert said.startswith(b"HTTP/1.1 200 ") and b'"content":"12"' in said


@pytest.mark.parametrize(
    "hosts",
    [
        b"",
        b"Host: localhost\r\nHost: localhost\r\n",
        b"Host: local host\r\n",
        b"Host: a@localhost\r\n",
        b"Host: localhost:b\r\n",
        b"Host: [::1\r\n",
    ],
)
@pytest.mark.parametrize("path", [b"/api/chat", b"/api/chat-ws", b"/health"])
def test_request_without_one_host_that_may_be_one_is_400(
    service: Service, path: bytes, hosts: bytes
) -> None:
    sent = b"POST %s HTTP/1.1\r\n" % path + hosts
    if path == b"/api/chat":
        sent += b"Content-Type: application/json\r\nContent-Length: %d\r\n\r\n" % len(SMALL) + SMALL
    elif path == b"/api/chat-ws":
        sent = HANDSHAKE.replace(b"Host: localhost\r\n", hosts)
    else:
        sent += b"\r\n"
    with connected(service) as connection:
        connection.sendall(sent)
        assert rest(connection).startswith(b"HTTP/1.1 400 ")


@pytest.mark.parametrize(
    ("target", "host", "wanted"),
    [
        (b"http://localhost/health", b"elsewhere.example", b"200"),
        (b"http://elsewhere.example/health", b"localhost", b"421"),
        (b"http://a@localhost/health", b"localhost", b"400"),
        (b"/health?to=http://elsewhere.example/", b"localhost", b"200"),
    ],
)
def test_host_of_the_target_counts(target: bytes, host: bytes, wanted: bytes) -> None:
    agent = lambda messages, context: "ok"  # noqa: E731
    with served(agent, host="127.0.0.1") as service, connected(service) as connection:
        connection.sendall(b"GET " + target + b" HTTP/1.1\r\nHost: " + host + b"\r\n\r\n")
        assert status(connection) == wanted


@pytest.mark.parametrize("host", [b"a_b:8000", b"[::1]:80", b"\txn--a.example. ", b""])
def test_every_host_that_may_be_one_is_taken(service: Service, host: bytes) -> None:
    with connected(service) as connection:
        connection.sendall(b"GET /health HTTP/1.1\r\nHost: " + host + b"\r\n\r\n")
        assert status(connection) == b"200"


@pytest.mark.parametrize("keep", [b"", b"Connection: keep-alive\r\n"])
def test_http_1_0_gets_no_chunks_and_no_word_before_its_reply(
    service: Service, keep: bytes
) -> None:
    """RFC 9112, section 6.1; RFC 9110, section 10.1.1."""
    said = {}
    for path in (b"/api/chat-stream", b"/api/chat", b"/api/nothing"):
        with connected(service) as connection:
            connection.sendall(
                b"POST %s HTTP/1.0\r\nContent-Type: application/json\r\nExpect: 100-continue\r\n"
                % path
                + keep
                + b"Content-Length: %d\r\n\r\n" % len(SMALL)
                + SMALL
            )
            head, _, said[path] = rest(connection).partition(b"\r\n\r\n")
        assert b"chunked" not in head and b" 100 " not in head
    events = [json.loads(line)["type"] for line in said[b"/api/chat-stream"].splitlines()]
    assert events == ["text_delta", "done"]
    assert json.loads(said[b"/api/chat"])["content"] == "10"
    assert json.loads(said[b"/api/nothing"])["detail"]


def test_http_1_0_gets_no_websocket(service: Service) -> None:
    with connected(service) as connection:
        connection.sendall(HANDSHAKE.replace(b"HTTP/1.1", b"HTTP/1.0"))
        assert rest(connection).startswith(b"HTTP/1.1 404 ")


@contextmanager
def waiting(path: bytes, **options: Any) -> Iterator[tuple[socket.socket, threading.Event]]:
    """A connection on which a reply is pending, and the event that lets it continue."""
    started, go_on = threading.Event(), threading.Event()

    def agent(messages: Sequence[Message], context: object) -> str:
        started.set()
        assert go_on.wait(DEADLINE)
        return "the reply"

    with served(agent, **options) as service, connected(service) as connection:
        sent = POST.replace(b"/api/chat", path) + b"Content-Length: %d\r\n\r\n" % len(SMALL)
        connection.sendall(sent + SMALL)
        assert started.wait(DEADLINE)
        if path == b"/api/chat-stream":
            # The head of a stream is sent before its first event.
            assert b" 200 OK" in connection.recv(65536)
        yield connection, go_on
        go_on.set()


def received(connection: socket.socket, last: bytes) -> bytes:
    said = b""
    while last not in said:
        assert (got := connection.recv(65536)), said
        said += got
    return said


ORDERS = pytest.mark.parametrize("options", [{}, {"log_level": "debug"}], ids=["direct", "tasks"])
"""Answered by an Exchange, and through ASGI."""


@ORDERS
@pytest.mark.parametrize("path", [b"/api/chat", b"/api/chat-stream"])
@pytest.mark.parametrize(
    "behind",
    [
        b"no request\r\n\r\n",
        POST + b"Transfer-Encoding: chunked\r\n\r\nno chunk\r\n",
        GET + b"A: " + b"x" * 200_000,
    ],
    ids=["garbage", "broken body", "long head"],
)
def test_what_cannot_be_read_is_refused_behind_the_reply_that_is_due(
    path: bytes, behind: bytes, options: dict[str, Any]
) -> None:
    with waiting(path, **options) as (connection, go_on):
        connection.sendall(behind)
        with connected_again(connection) as other:
            other.sendall(GET + b"\r\n")
            assert status(other) == b"200"
        go_on.set()
        said = rest(connection)
    reply, _, refusal = said.partition(b"HTTP/1.1 4")
    assert b"the reply" in reply and refusal
    assert path == b"/api/chat" or reply.endswith(b"\r\n0\r\n\r\n")


@ORDERS
def test_requests_before_one_that_cannot_be_read_are_all_answered(options: dict[str, Any]) -> None:
    with waiting(b"/api/chat", **options) as (connection, go_on):
        connection.sendall((GET + b"\r\n") * 2 + POST + b"Transfer-Encoding: chunked\r\n\r\n1\r\n")
        connection.sendall(b"a\r\nno chunk\r\n")
        go_on.set()
        said = rest(connection)
    found = [reply[:3] for reply in said.split(b"HTTP/1.1 ")[1:]]
    assert found == [b"200", b"200", b"200", b"400"]


@ORDERS
@pytest.mark.parametrize("path", [b"/api/chat", b"/api/chat-stream"])
def test_websocket_behind_a_reply_that_is_due_opens_after_it(
    path: bytes, options: dict[str, Any]
) -> None:
    pytest.importorskip("websockets")
    with waiting(path, **options) as (connection, go_on):
        connection.sendall(HANDSHAKE)
        with connected_again(connection) as other:
            other.sendall(GET + b"\r\n")
            assert status(other) == b"200"
        go_on.set()
        said = received(connection, b"HTTP/1.1 101 ")
        assert b"the reply" in said.partition(b"HTTP/1.1 101 ")[0]
        connection.sendall(b"\x89\x80\0\0\0\0")
        received(connection, b"\x8a\x00")


def test_request_refused_early_gets_no_second_reply_for_its_broken_body(service: Service) -> None:
    with connected(service) as connection:
        connection.sendall(POST.replace(b"json", b"xml") + b"Transfer-Encoding: chunked\r\n\r\n")
        said = received(connection, b"UNSUPPORTED")
        connection.sendall(b"no chunk\r\n")
        said += rest(connection)
    assert said.count(b"HTTP/1.1 ") == 1
