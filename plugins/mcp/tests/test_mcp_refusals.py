"""Posts that are no message of JSON-RPC are refused, as over stdio."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import httpx2
import pytest

HEADERS = {"accept": "application/json, text/event-stream", "content-type": "application/json"}
PATIENCE = 60.0
INITIALIZE = {
    "jsonrpc": "2.0",
    "id": 0,
    "method": "initialize",
    "params": {
        "protocolVersion": "2025-06-18",
        "capabilities": {},
        "clientInfo": {"name": "test", "version": "1"},
    },
}


@asynccontextmanager
async def posting(served: Any) -> AsyncIterator[Any]:
    """`await post(body)` in a new session; returns the response."""
    async with httpx2.AsyncClient(timeout=PATIENCE, headers=HEADERS) as http:
        if served.url.endswith("/mcp"):
            started = await http.post(served.url, json=INITIALIZE)
            http.headers["mcp-session-id"] = started.headers["mcp-session-id"]
            yield lambda body: http.post(served.url, content=body)
            return
        async with http.stream("GET", served.url) as stream:
            lines = stream.aiter_lines()
            while not (line := await anext(lines)).startswith("data: "):
                pass
            address = served.url.removesuffix("/sse") + line.removeprefix("data: ")
            await http.post(address, json=INITIALIZE)
            yield lambda body: http.post(address, content=body)


@pytest.mark.parametrize("transport", ["streamable-http", "sse"])
def test_request_whose_id_no_request_can_have_is_refused(serve: Any, transport: str) -> None:
    async def run() -> None:
        async with serve(transport=transport) as served, posting(served) as post:
            for id_ in (None, 1.5, True, [1]):
                body = {"jsonrpc": "2.0", "id": id_, "method": "tools/list"}
                answer = await post(json.dumps(body))
                assert (answer.status_code, answer.json()["id"]) == (400, None)
                assert answer.json()["error"]["code"] == -32600
            for body in (
                {"jsonrpc": "2.0", "id": None, "method": "notifications/initialized"},
                {"jsonrpc": "2.0", "method": "notifications/initialized"},
                {"jsonrpc": "2.0", "id": 77, "result": {}},
            ):
                assert (await post(json.dumps(body))).status_code == 202

    asyncio.run(run())


@pytest.mark.parametrize("transport", ["streamable-http", "sse"])
def test_body_that_is_no_message_is_refused(
    serve: Any, transport: str, caplog: pytest.LogCaptureFixture
) -> None:
    async def run() -> None:
        async with serve(transport=transport) as served, posting(served) as post:
            for body, code, id_ in (
                (b"no json", -32700, None),
                (b"", -32700, None),
                (b"[]", -32600, None),
                (json.dumps([INITIALIZE]).encode(), -32600, None),
                (b'{"jsonrpc": "2.0", "id": 3, "method": 5}', -32600, 3),
                (b'{"jsonrpc": "2.0", "id": 3, "result": ["a-secret"]}', -32600, None),
                (b'{"jsonrpc": "2.0", "id": 3, "error": "a-secret"}', -32600, None),
                (b'{"jsonrpc": null, "id": 3, "result": {"a": "a-secret"}}', -32600, None),
            ):
                answer = await post(body)
                assert answer.status_code == 400
                assert answer.headers["content-type"] == "application/json"
                assert (answer.json()["error"]["code"], answer.json()["id"]) == (code, id_)
                assert answer.json()["error"].keys() == {"code", "message"}
                assert "a-secret" not in answer.text

    asyncio.run(run())
    # The sender gets an error, and the log no trace: the message may contain a credential.
    assert [record for record in caplog.records if record.exc_info] == []


def test_other_refusals_come_before_that_of_a_body_that_is_no_message(serve: Any) -> None:
    async def run() -> None:
        async with serve() as served, httpx2.AsyncClient(timeout=PATIENCE) as http:
            for given, status in (
                ({"mcp-session-id": "over"}, 404),
                ({"accept": "application/json"}, 406),
            ):
                for id_ in (1, 1.5):
                    batch = [{"jsonrpc": "2.0", "id": id_, "method": "ping"}]
                    for body in (b"no json", json.dumps(batch), json.dumps(batch[0])):
                        answer = await http.post(
                            served.url, content=body, headers={**HEADERS, **given}
                        )
                        assert answer.status_code == status

    asyncio.run(run())


def test_arguments_that_no_tool_can_have_are_a_failure_of_the_call(serve: Any) -> None:
    meta = {
        "io.modelcontextprotocol/protocolVersion": "2026-07-28",
        "io.modelcontextprotocol/clientCapabilities": {},
    }
    headers = {
        **HEADERS,
        "mcp-protocol-version": "2026-07-28",
        "mcp-method": "tools/call",
        "mcp-name": "remember",
    }

    async def run() -> None:
        async with serve() as served, httpx2.AsyncClient(timeout=PATIENCE) as http:
            for word in ("\ud83d", json.loads("[" * 300 + "]" * 300)):
                params = {"name": "remember", "arguments": {"word": word}, "_meta": meta}
                body = {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params}
                answer = await http.post(served.url, content=json.dumps(body), headers=headers)
                assert answer.json()["result"]["isError"]

    asyncio.run(run())

    asyncio.run(run())


@pytest.mark.parametrize("header", [{}, {"mcp-protocol-version": "2025-11-25"}])
def test_request_whose_header_names_another_version_than_its_body_is_refused(
    serve: Any, header: dict[str, str]
) -> None:
    meta = {
        "io.modelcontextprotocol/protocolVersion": "2026-07-28",
        "io.modelcontextprotocol/clientCapabilities": {},
    }
    body = {"jsonrpc": "2.0", "id": 1, "method": "tools/list", "params": {"_meta": meta}}

    async def run() -> None:
        async with serve() as served, httpx2.AsyncClient(timeout=PATIENCE) as http:
            started = await http.post(served.url, json=INITIALIZE, headers=HEADERS)
            session = {"mcp-session-id": started.headers["mcp-session-id"]}
            for given in (header, header | session):
                answer = await http.post(served.url, json=body, headers=HEADERS | given)
                assert (answer.status_code, answer.json()["id"]) == (400, 1)
                assert answer.json()["error"]["code"] == -32020

    asyncio.run(run())


def test_request_that_is_sent_again_before_its_answer_is_refused(
    serve: Any, eventually: Any
) -> None:
    async def run() -> None:
        async with serve() as served, posting(served) as post:
            first = asyncio.ensure_future(post(call("slow", 7)))
            await eventually(served.ran.started.is_set)
            second = await post(call("slow", 7))
            assert (second.status_code, second.json()["id"]) == (400, None)
            assert "has no answer yet" in second.json()["error"]["message"]
            served.ran.go.set()
            assert "slept" in (await first).text

    asyncio.run(run())


def test_client_that_uses_an_id_again_before_its_answer_gets_both_answers(
    serve: Any, eventually: Any
) -> None:
    async def run() -> None:
        async with serve() as served, posting(served) as post:
            first = asyncio.ensure_future(post(call("slow", 7)))
            await eventually(served.ran.started.is_set)
            for id_ in (7, "7", 7):
                answer = message_in(await post(call("add", id_)))
                assert answer["id"] == id_
                assert answer["result"]["content"][0]["text"] == "3"
            assert message_in(await post(call("subtract", 7)))["error"]["code"] == -32602
            assert message_in(await post(call("add", 8)))["id"] == 8
            served.ran.go.set()
            slept = message_in(await first)
            assert (slept["id"], slept["result"]["content"][0]["text"]) == (7, "slept")
            # A finished request does not block its id.
            assert message_in(await post(call("add", 7)))["id"] == 7

    asyncio.run(run())


def call(name: str, id_: int | str) -> str:
    params = {"name": name, "arguments": {"a": 1, "b": 2} if name == "add" else {}}
    return json.dumps({"jsonrpc": "2.0", "id": id_, "method": "tools/call", "params": params})


def message_in(response: Any) -> Any:
    """The last message of a response."""
    assert response.status_code == 200
    lines = [line for line in response.text.splitlines() if line.startswith("data: {")]
    return json.loads(lines[-1].removeprefix("data: "))
