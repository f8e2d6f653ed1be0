"""The ways in which a call of another server's tool can end: reported truthfully, and sent once."""

from __future__ import annotations

import asyncio
import gzip
import json
import queue
import sys
import threading
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from ports import quiet_port
from sayso import Agent, Caller, Config, Outcome, ServiceHost, Session
from sayso_mcp import mcp_server

OLD = Path(__file__).with_name("old_server.py")
SOMEBODY = Caller("test")
MAYBE = "gave no result, and the call may have taken effect"
HTML = b"<html>Bad gateway</html>"


def error(code: int) -> bytes:
    """A JSON-RPC error."""
    wrong = {"code": code, "message": "it was not to be"}
    return json.dumps({"jsonrpc": "2.0", "error": wrong}).encode()


# For each ending: status, content type, body, and whether the call may have taken effect.
ENDINGS: dict[str, tuple[int, str, bytes, bool]] = {
    "202": (202, "application/json", b"", True),
    "html": (200, "text/html", HTML, True),
    "no JSON": (200, "application/json", b"{", True),
    "no result": (200, "application/json", b'{"jsonrpc": "2.0", "id": 1, "result": 1}', True),
    "empty stream": (200, "text/event-stream", b"", True),
    "stream without an answer": (200, "text/event-stream", b"data: {}\n\n", True),
    "redirect after a post": (303, "text/html", b"", True),
    "cut connection": (0, "", b"", True),
    "cut body": (206, "application/json", b'{"jsonrpc"', True),
    "cut stream": (206, "text/event-stream", b"data: {", True),
    "400": (400, "text/html", HTML, True),
    "401": (401, "text/html", HTML, False),
    "403": (403, "text/html", HTML, False),
    "404": (404, "text/html", HTML, False),
    "408": (408, "text/html", HTML, True),
    "413": (413, "text/html", HTML, False),
    "429": (429, "text/html", HTML, False),
    "500": (500, "text/html", HTML, True),
    "502": (502, "text/html", HTML, True),
    "503": (503, "application/json", b"{}", True),
    "504": (504, "text/html", HTML, True),
    "method not found": (200, "application/json", error(-32601), False),
    "invalid params": (200, "application/json", error(-32602), False),
    "400 with invalid request": (400, "application/json", error(-32600), False),
    "404 with method not found": (404, "application/json", error(-32601), False),
    "internal error": (200, "application/json", error(-32603), True),
    "500 with internal error": (500, "application/json", error(-32603), True),
}


class Ending(BaseHTTPRequestHandler):
    """A server over streamable-http at `/mcp` and over sse at `/sse` whose calls end as configured;
    it keeps no connection open."""

    ending: tuple[int, str, bytes]
    calls: list[str]
    streams: list[queue.SimpleQueue[bytes | None]]

    def log_message(self, *arguments: Any) -> None:
        pass

    def answer(self, status: int, kind: str = "application/json", body: bytes = b"") -> None:
        self.send_response(status)
        self.send_header("content-type", kind)
        self.send_header("content-length", str(len(body) + 10 * (status == 206)))
        self.send_header("mcp-session-id", "one")
        if status == 303:
            self.send_header("location", "/done")
        self.end_headers()
        self.wfile.write(body)
        self.close_connection = status == 206

    def do_DELETE(self) -> None:
        self.answer(204)

    def do_GET(self) -> None:
        if self.path != "/sse":
            self.answer(405)
            return
        self.send_response(200)
        self.send_header("content-type", "text/event-stream")
        self.end_headers()
        self.close_connection = True
        self.wfile.write(b"event: endpoint\ndata: /messages\n\n")
        events: queue.SimpleQueue[bytes | None] = queue.SimpleQueue()
        self.streams.append(events)
        while (event := events.get()) is not None:
            self.wfile.write(b"event: message\ndata: " + event + b"\n\n")

    def do_POST(self) -> None:
        asked = json.loads(self.rfile.read(int(self.headers["content-length"])))
        if asked.get("method") == "tools/call":
            self.calls.append(asked["params"]["name"])
            self.end(asked["id"])
        elif "id" not in asked:
            self.answer(202)
        else:
            self.give({"id": asked["id"], **self.reply(asked["method"])})

    def reply(self, method: str) -> dict[str, Any]:
        match method:
            case "initialize":
                info = {"name": "ending", "version": "1"}
                reported = {"capabilities": {"tools": {}}, "serverInfo": info}
                return {"result": {"protocolVersion": "2025-11-25", **reported}}
            case "tools/list":
                return {"result": {"tools": [{"name": "act", "inputSchema": {"type": "object"}}]}}
        return {"error": {"code": -32601, "message": "Method not found"}}

    def give(self, message: dict[str, Any]) -> None:
        body = json.dumps({"jsonrpc": "2.0", **message}).encode()
        if self.path == "/mcp":
            self.answer(200, body=body)
        else:
            self.answer(202)
            self.streams[-1].put(body)

    def end(self, id: Any) -> None:
        status, kind, body = self.ending
        if b'"error"' in body:
            body = json.dumps(json.loads(body) | {"id": id}).encode()
        if status == 0:
            self.close_connection = True
        elif self.path == "/messages" and status == 200:
            self.answer(202)
            self.streams[-1].put(body or None)
        else:
            self.answer(status, kind, body)


@contextmanager
def ending(status: int, kind: str = "", body: bytes = b"") -> Iterator[Any]:
    """The server's handler, its address, and the server; status 0 cuts the connection."""

    class Handler(Ending):
        pass

    Handler.ending, Handler.calls, Handler.streams = (status, kind, body), [], []
    with ThreadingHTTPServer(("127.0.0.1", quiet_port()), Handler) as server:
        server.daemon_threads = True
        threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True).start()
        yield Handler, f"http://127.0.0.1:{server.server_port}", server
        for stream in Handler.streams:
            stream.put(None)
        server.shutdown()


@asynccontextmanager
async def using(folder: Path, server: Any, **options: Any) -> AsyncIterator[ServiceHost]:
    """A host whose agent has the tools of this server."""
    agent = Agent(model="offline", tools=[mcp_server(server, **options)])
    given = {"state_dir": folder, "start_timeout": 180}
    config = Config.model_validate(
        {"plugins": [], "server": given, "approvals": {"ledger": "memory://"}}
    )
    host = ServiceHost.create(agent, config)
    async with host.life():
        yield host


@pytest.fixture(autouse=True)
def patient(monkeypatch: pytest.MonkeyPatch) -> None:
    """Give a server more time to start than the service does by default."""
    monkeypatch.setattr("sayso_mcp.connection.FIRST", 120.0)


async def act(host: ServiceHost) -> Outcome:
    """A call without the gate's time limit: if no outcome is reported, the test fails here."""
    async with asyncio.timeout(60):
        return await host.calls.run("act", {}, SOMEBODY, session=Session())


def reports(outcome: Outcome, maybe: bool) -> bool:
    """Whether the outcome is a failure, and says whether the call may have taken effect."""
    assert outcome.state == "FAILED", outcome
    return (MAYBE in outcome.output) is maybe and ("taken effect" in outcome.output) is maybe


@pytest.mark.parametrize("name", ENDINGS)
def test_answer_over_http_that_is_no_result_is_told_as_it_is(tmp_path: Path, name: str) -> None:
    async def run(handler: Any, url: str) -> None:
        async with using(tmp_path, f"{url}/mcp", requires_approval=False, timeout=None) as host:
            outcome = await act(host)
            assert reports(outcome, maybe), outcome.output
            if status >= 300:
                assert f"(HTTP status {status})" in outcome.output
        assert handler.calls == ["act"]

    status, kind, body, maybe = ENDINGS[name]
    with ending(status, kind, body) as (handler, url, _):
        asyncio.run(run(handler, url))


@pytest.mark.slow
@pytest.mark.parametrize(
    "name",
    [
        "cut connection",
        "cut body",
        "empty stream",
        "redirect after a post",
        "401",
        "404",
        "429",
        "500",
    ],
)
def test_answer_over_sse_that_is_no_result_is_told_at_once_as_it_is(
    tmp_path: Path, name: str
) -> None:
    async def run(handler: Any, url: str) -> None:
        async with using(tmp_path, f"{url}/sse", requires_approval=False, timeout=None) as host:
            outcome = await act(host)
            assert reports(outcome, maybe), outcome.output
            # The client connects again, and sends no call again.
            handler.ending = (200, "", error(-32602))
            assert reports(await act(host), False)
        assert handler.calls == ["act", "act"]

    status, kind, body, maybe = ENDINGS[name]
    with ending(status, kind, body) as (handler, url, _):
        asyncio.run(run(handler, url))


def test_redirect_that_is_followed_over_sse_loses_no_connection(tmp_path: Path) -> None:
    def moved(handler: Any) -> None:
        if handler.path == "/messages":
            handler.rfile.read(int(handler.headers["content-length"]))
            handler.send_response(307)
            handler.send_header("location", "/messages/")
            handler.send_header("content-length", "0")
            handler.end_headers()
        else:
            handler.path = "/messages"
            Ending.do_POST(handler)

    async def run(handler: Any, url: str) -> None:
        async with using(tmp_path, f"{url}/sse", requires_approval=False, timeout=None) as host:
            for _ in range(3):
                assert reports(await act(host), False)
        assert len(handler.streams) == 1

    with ending(200, "", error(-32602)) as (handler, url, _):
        handler.do_POST = moved
        asyncio.run(run(handler, url))


@pytest.mark.parametrize("packed", [False, True])
def test_answer_that_is_too_long_is_not_read_to_its_end(tmp_path: Path, *, packed: bool) -> None:
    body = b'{"x": "' + b"x" * 2**25 + b'"}'

    async def run(handler: Any, url: str) -> None:
        async with using(tmp_path, f"{url}/mcp", requires_approval=False) as host:
            outcome = await act(host)
            assert reports(outcome, True), outcome.output
            assert "more than 16777216 bytes" in outcome.output

    kind = "application/json\r\nContent-Encoding: gzip" if packed else "application/json"
    with ending(200, kind, gzip.compress(body) if packed else body) as (handler, url, _):
        asyncio.run(run(handler, url))


@pytest.mark.parametrize("path", ["mcp", "sse"])
def test_call_that_no_server_took_is_not_said_to_have_taken_effect(
    tmp_path: Path, path: str
) -> None:
    async def run(handler: Any, url: str, server: ThreadingHTTPServer) -> None:
        async with using(tmp_path, f"{url}/{path}", requires_approval=False) as host:
            server.shutdown()
            server.socket.close()
            outcome = await act(host)
            assert reports(outcome, False), outcome.output
            assert "ConnectError" in outcome.output
        assert handler.calls == []

    with ending(0) as (handler, url, server):
        asyncio.run(run(handler, url, server))


def test_call_that_found_no_connection_in_its_short_timeout_is_not_said_to_have_run(
    tmp_path: Path,
) -> None:
    async def run(url: str, server: ThreadingHTTPServer) -> None:
        async with using(tmp_path, f"{url}/sse", requires_approval=False, timeout=1.0) as host:
            server.shutdown()
            server.socket.close()
            outcome = await act(host)
            while "is not connected" not in outcome.output:
                assert outcome.state == "FAILED", outcome
                outcome = await act(host)
            assert reports(outcome, False), outcome.output

    with ending(0) as (_, url, server):
        asyncio.run(run(url, server))


def test_ledger_and_its_reader_learn_that_a_failed_call_may_have_taken_effect(
    tmp_path: Path,
) -> None:
    async def run(url: str) -> None:
        async with using(tmp_path, f"{url}/mcp") as host:
            row = await host.calls.propose("act", {}, SOMEBODY)
            ended = await host.calls.decide(row.id, SOMEBODY, approved=True)
            assert ended.state == "FAILED" and MAYBE in (ended.output or "")
            known = await host.calls.look(row.id, SOMEBODY)
            assert known is not None and known.output == ended.output

    with ending(502, "text/html", HTML) as (handler, url, _):
        asyncio.run(run(url))
    assert handler.calls == ["act"]


def test_unknown_method_over_stdio_is_not_said_to_have_taken_effect(tmp_path: Path) -> None:
    async def run() -> None:
        program = [sys.executable, str(OLD), str(tmp_path), "missing"]
        async with using(tmp_path, program, requires_approval=False) as host:
            outcome = await host.calls.run("missing", {}, SOMEBODY, session=Session())
            assert reports(outcome, False), outcome.output

    asyncio.run(run())


def test_content_that_is_no_base64_is_of_a_call_that_may_have_taken_effect(tmp_path: Path) -> None:
    async def run(url: str) -> None:
        async with using(tmp_path, f"{url}/mcp", requires_approval=False) as host:
            outcome = await act(host)
            assert outcome.state == "FAILED"
            assert "no base64, and the call may have taken effect" in outcome.output

    image = {"type": "image", "mimeType": "image/png", "data": "?"}
    given = json.dumps({"jsonrpc": "2.0", "id": 3, "result": {"content": [image]}}).encode()
    with ending(200, "text/event-stream", b"data: " + given + b"\n\n") as (_, url, _):
        asyncio.run(run(url))
