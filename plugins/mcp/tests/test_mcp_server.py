"""The MCP server's lists, answers and refusals, and its start and stop."""

from __future__ import annotations

import asyncio
import gc
import json
import math
import socket
import subprocess
import sys
from typing import Any

import httpx2
import pytest
from mcp.shared.exceptions import MCPError
from mcp_types import PromptReference
from pydantic import ValidationError

from sayso import (
    Agent,
    ImageContent,
    IntermittentUpdate,
    PluginError,
    RequestContext,
    ResourceContent,
    StartupError,
    TextDelta,
    ToolResult,
    tool,
)
from sayso_mcp import MCP

MODERN = "2026-07-28"
ERAS = pytest.mark.parametrize("era", ["legacy", MODERN])
TRANSPORTS = pytest.mark.parametrize("transport", ["streamable-http", "sse"])
TOKENS = {"scheme": "bearer", "tokens": {"ann": "token-a", "bob": "token-b"}}
INITIALIZE = {
    "jsonrpc": "2.0",
    "id": 1,
    "method": "initialize",
    "params": {
        "protocolVersion": "2025-11-25",
        "capabilities": {},
        "clientInfo": {"name": "test", "version": "1"},
    },
}
HEADERS = {"accept": "application/json, text/event-stream", "content-type": "application/json"}


def text(result: Any) -> str:
    return "\n".join(block.text for block in result.content)


@TRANSPORTS
@ERAS
def test_tools_are_listed_with_schema_and_hints(serve: Any, transport: str, era: str) -> None:
    async def run() -> None:
        async with serve(transport=transport) as served, served.client(era) as client:
            listed = {tool.name: tool for tool in (await client.list_tools()).tools}
            assert set(listed) == {"delete_pod", "add", "remember", "slow", "forever", "chat"}
            assert listed["add"].input_schema == served.host.agent.tools["add"].input_schema
            hints = listed["add"].annotations
            assert (hints.read_only_hint, hints.idempotent_hint) == (True, True)
            assert listed["add"].title == "Add two numbers"
            assert listed["delete_pod"].annotations.destructive_hint is True
            assert set(listed["chat"].input_schema["properties"]) == {"message", "history"}
            assert listed["chat"].input_schema["additionalProperties"] is False
            assert text(await client.call_tool("add", {"a": 2, "b": 3})) == "5"

    asyncio.run(run())


@ERAS
def test_resources_and_prompts_are_empty_lists(serve: Any, era: str) -> None:
    async def run() -> None:
        async with serve() as served, served.client(era) as client:
            assert (await client.list_resources()).resources == []
            assert (await client.list_resource_templates()).resource_templates == []
            assert (await client.list_prompts()).prompts == []

    asyncio.run(run())


@ERAS
def test_cursor_that_no_list_gave_is_refused(serve: Any, era: str) -> None:
    async def run() -> None:
        async with serve() as served, served.client(era) as client:
            assert (await client.list_tools()).next_cursor is None
            for listed in (
                client.list_tools,
                client.list_resources,
                client.list_resource_templates,
                client.list_prompts,
            ):
                with pytest.raises(MCPError) as refused:
                    await listed(cursor="page 2")
                assert refused.value.error.code == -32602

    asyncio.run(run())


@ERAS
def test_wrong_arguments_unknown_tools_and_methods(serve: Any, era: str) -> None:
    async def run() -> None:
        async with serve() as served, served.client(era) as client:
            wrong = await client.call_tool("add", {"a": "two", "b": 3})
            assert wrong.is_error
            assert "a" in text(wrong)
            with pytest.raises(MCPError) as raised:
                await client.call_tool("subtract", {})
            assert raised.value.error.code == -32602
            with pytest.raises(MCPError) as raised:
                await client.complete(PromptReference(name="none"), {"name": "a", "value": ""})
            assert raised.value.error.code == -32601

    asyncio.run(run())


@ERAS
def test_resources_and_prompts_that_no_list_has_are_not_found(serve: Any, era: str) -> None:
    async def run() -> None:
        async with serve() as served, served.client(era) as client:
            with pytest.raises(MCPError) as raised:
                await client.read_resource("test://none")
            assert raised.value.error.code == (-32002 if era == "legacy" else -32602)
            assert raised.value.error.data == {"uri": "test://none"}
            with pytest.raises(MCPError) as raised:
                await client.get_prompt("none")
            assert raised.value.error.code == -32602

    asyncio.run(run())


@ERAS
def test_handlers_hear_of_a_call_that_is_refused_before_its_tool_runs(
    serve: Any, human: Any, era: str
) -> None:
    @tool
    def add(a: int, b: int) -> int:
        """Add two numbers."""
        return a + b

    @tool(requires_approval=True)
    def wipe(path: str) -> str:
        """Wipe a folder."""
        return "wiped"

    received: list[Any] = []
    agent = Agent(model="offline", tools=[add, wipe], on_event=received.append)
    rules = {"rules": [{"tool": "wipe", "arguments": {"path": "/etc"}, "action": "deny"}]}
    calls = [("add", {"a": "two", "b": 3}), ("wipe", {}), ("wipe", {"path": "/etc"})]

    async def run() -> None:
        yes = human("accept", approve=True)
        async with (
            serve(agent=agent, approvals_=rules) as served,
            served.client(era, elicitation_callback=yes) as client,
        ):
            for name, given in calls:
                assert (await client.call_tool(name, given)).is_error
            assert yes.asked == []

    asyncio.run(run())
    assert {event.event_type for event in received} == {"ToolExecutionFailed"}
    assert [(event.call.name, event.call.input) for event in received] == calls
    assert all(event.error.startswith("Error: ") for event in received)


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        ("[" * 61 + "]" * 61, "taken"),
        ("[" * 62 + "]" * 62, "nested too deep"),
        ("NaN", "not finite"),
        ("[{}, -Infinity]", "not finite"),
        ('{"deep": 1e999}', "not finite"),
    ],
    ids=["deep", "deeper", "nan", "infinity", "large"],
)
def test_arguments_are_json_and_no_deeper_than_the_limit(
    serve: Any, value: str, expected: str
) -> None:
    taken: list[Any] = []

    @tool(input_schema={"type": "object", "properties": {"value": {}}})
    def take(value: Any = None) -> str:
        """Take anything."""
        taken.append(value)
        return "taken"

    async def run() -> None:
        agent = Agent(name="taker", model="offline", tools=[take])
        async with serve(agent=agent) as served, httpx2.AsyncClient(timeout=60) as http:
            began = await http.post(served.url, json=INITIALIZE, headers=HEADERS)
            headers = {**HEADERS, "mcp-session-id": began.headers["mcp-session-id"]}
            call = {
                "jsonrpc": "2.0",
                "id": 2,
                "method": "tools/call",
                "params": {"name": "take", "arguments": {"value": "VALUE"}},
            }
            body = json.dumps(call).replace('"VALUE"', value)
            answer = await http.post(served.url, content=body, headers=headers)
            result = json.loads(answer.text.partition("data: ")[2])["result"]
            assert expected in result["content"][0]["text"]
            assert result["isError"] is (expected != "taken")
            assert len(taken) == (expected == "taken")

    asyncio.run(run())


@ERAS
def test_progress_comes_while_the_tool_runs(serve: Any, era: str) -> None:
    async def run() -> None:
        seen: list[tuple[float, str | None]] = []
        first = asyncio.Event()

        async def progress(value: float, total: float | None, message: str | None) -> None:
            seen.append((value, message))
            first.set()

        async with serve() as served, served.client(era) as client:
            call = asyncio.ensure_future(client.call_tool("slow", {}, progress_callback=progress))
            await asyncio.wait_for(first.wait(), 60)
            assert not call.done()
            served.ran.go.set()
            assert text(await call) == "slept"
        assert [message for _, message in seen] == ["begun", "ended"]
        assert seen[0][0] < seen[1][0]

    asyncio.run(run())


@ERAS
def test_status_line_that_is_a_number_is_progress_and_no_error(serve: Any, era: str) -> None:
    @tool
    def count(context: RequestContext) -> str:
        """Count."""
        context.update(50)  # type: ignore[arg-type]
        return "counted"

    async def run() -> None:
        seen: list[str | None] = []

        async def progress(value: float, total: float | None, message: str | None) -> None:
            seen.append(message)

        agent = Agent(name="counts", model="offline", tools=[count])
        async with serve(agent=agent) as served, served.client(era) as client:
            result = await client.call_tool("count", {}, progress_callback=progress)
            assert text(result) == "counted"
        assert seen == ["50"]

    asyncio.run(run())


def test_session_lives_as_long_as_the_clients(serve: Any) -> None:
    async def run() -> None:
        async with serve() as served:
            async with served.client("legacy") as client:
                assert text(await client.call_tool("remember", {"word": "one"})) == "nothing"
                assert text(await client.call_tool("remember", {"word": "two"})) == "one"
            async with served.client("legacy") as other:
                assert text(await other.call_tool("remember", {})) == "nothing"
            async with served.client(MODERN) as client:
                # The stateless era has no sessions over HTTP.
                for _ in range(2):
                    assert text(await client.call_tool("remember", {"word": "x"})) == "nothing"

    asyncio.run(run())


@TRANSPORTS
@ERAS
def test_large_texts_reach_the_client_and_leave_its_session_well(
    serve: Any, transport: str, era: str
) -> None:
    @tool
    def flood(context: RequestContext, line: str) -> str:
        """Return too much, after a status line."""
        context.update("begun")
        return line * (2**21 // len(line))

    async def seen(progress: float, total: float | None, message: str | None) -> None:
        pass

    async def run() -> None:
        agent = Agent(name="large", model="offline", tools=[flood])
        async with (
            serve(agent=agent, transport=transport) as served,
            served.client(era) as client,
        ):
            for line in ("x", "\n", "ü", "語", "🙂", "\x85"):
                for callback in (None, seen):
                    result = await client.call_tool(
                        "flood", {"line": line}, progress_callback=callback
                    )
                    assert text(result).startswith(line * 50_000)
                    assert "[cut: " in text(result)[-100:]

    asyncio.run(run())


def test_events_reach_a_client_that_ends_lines_as_python_does(serve: Any) -> None:
    odd = "a\x85b\u2028c\u2029d"

    @tool
    def echo(context: RequestContext) -> str:
        """Say the line, as a status line and as the result."""
        context.update(odd)
        return odd

    params = {"name": "echo", "arguments": {}, "_meta": {"progressToken": 1}}
    call = {"jsonrpc": "2.0", "id": 2, "method": "tools/call", "params": params}

    async def run() -> None:
        async with (
            serve(agent=Agent(model="offline", tools=[echo])) as served,
            httpx2.AsyncClient(timeout=60, headers=HEADERS) as http,
        ):
            began = await http.post(served.url, json=INITIALIZE)
            session = {"mcp-session-id": began.headers["mcp-session-id"]}
            answer = await http.post(served.url, json=call, headers=session)
            lines = [line for line in answer.text.splitlines() if line.startswith("data: ")]
            status, result = [json.loads(line.removeprefix("data: ")) for line in lines]
            assert status["params"]["message"] == odd
            assert result["result"]["content"][0]["text"] == odd

    asyncio.run(run())


@ERAS
def test_rich_and_large_results(serve: Any, era: str) -> None:
    @tool
    def picture() -> ToolResult:
        """An image and values."""
        return ToolResult(["see", ImageContent(b"png", "image/png")], structured={"width": 3})

    @tool
    def plain_list() -> ToolResult:
        """Only values."""
        return ToolResult(structured=[1, 2])

    @tool
    def flood() -> str:
        """Return too much."""
        return "x" * 100_000

    @tool
    def undecodable() -> str:
        """A name that is not UTF-8."""
        return "name \udcff"

    async def run() -> None:
        agent = Agent(name="rich", model="offline", tools=[picture, plain_list, flood, undecodable])
        async with (
            serve(agent=agent, limits={"tool_output": 1000}) as served,
            served.client(era) as client,
        ):
            seen = await client.call_tool("picture", {})
            assert [block.type for block in seen.content] == ["text", "image"]
            assert (seen.content[1].data, seen.content[1].mime_type) == ("cG5n", "image/png")
            assert seen.structured_content == {"width": 3}
            listed = await client.call_tool("plain_list", {})
            assert text(listed) == "[1,2]"
            assert listed.structured_content == (None if era == "legacy" else [1, 2])
            cut = text(await client.call_tool("flood", {}))
            assert len(cut) < 1200
            assert "cut" in cut
            assert text(await client.call_tool("undecodable", {})) == "name ?"

    asyncio.run(run())


@ERAS
def test_gated_rich_result_comes_in_full(serve: Any, human: Any, era: str) -> None:
    @tool(requires_approval=True)
    def picture() -> ToolResult:
        """An image."""
        return ToolResult([ImageContent(b"png", "image/png")])

    async def run() -> None:
        yes = human("accept", approve=True)
        agent = Agent(name="rich", model="offline", tools=[picture])
        async with (
            serve(agent=agent) as served,
            served.client(era, elicitation_callback=yes) as client,
        ):
            assert (await client.call_tool("picture", {})).content[0].type == "image"

    asyncio.run(run())


async def echo(messages: Any, context: Any) -> Any:
    """Report the messages, and propose the calls that the test asks for."""
    received = " | ".join(f"{m.role}: {m.content}" for m in messages)
    yield "heard "
    yield received


@ERAS
def test_chat_hears_the_history_and_streams(serve: Any, era: str) -> None:
    async def run() -> None:
        pieces: list[str] = []

        async def progress(value: float, total: float | None, message: str | None) -> None:
            pieces.append(message or "")

        async with serve(agent=echo) as served, served.client(era) as client:
            history = [{"role": "user", "content": "one"}, {"role": "assistant", "content": "two"}]
            result = await client.call_tool(
                "chat", {"message": "three", "history": history}, progress_callback=progress
            )
            assert text(result) == "heard user: one | assistant: two | user: three"
            assert "".join(pieces) == text(result)
            assert result.structured_content["stop_reason"] == "end_turn"

    asyncio.run(run())


def test_chat_keeps_neither_pieces_nor_status_lines_of_a_long_turn(serve: Any) -> None:
    tracked: list[int] = []

    def talkative(messages: Any, context: RequestContext) -> Any:
        for _ in range(20_000):
            context.update("soon")
            yield "ab"
        kinds = (TextDelta, IntermittentUpdate)
        tracked.append(sum(type(thing) in kinds for thing in gc.get_objects()))

    async def run() -> None:
        async with serve(agent=talkative) as served, served.client(MODERN) as client:
            assert text(await client.call_tool("chat", {"message": "go"})) == "ab" * 20_000

    asyncio.run(run())
    # Some messages are still being sent.
    assert tracked[0] < 20_000


@ERAS
@TRANSPORTS
def test_what_no_json_holds_is_told_as_on_v2(serve: Any, transport: str, era: str) -> None:
    @tool
    def names(context: RequestContext) -> str:
        """The names of the files."""
        context.update("reading \udcff")
        return "file \udcff"

    @tool
    def missing() -> str:
        """Fail to open a file."""
        raise FileNotFoundError("no file \udcff")

    @tool
    def document() -> ToolResult:
        """A document and values."""
        values = {"of \udcff": ["\udcff", math.inf, -(10**4300), {1: 2.5}]}
        return ToolResult([ResourceContent("file:///\udcff", "\udcff")], structured=values)

    async def odd(messages: Any, context: RequestContext) -> Any:
        context.update("reading \udcff")
        yield "half \ud83d"
        call = {"id": "1", "name": "n", "input": {"a": "b"}, "intent": "why \ud83d"}
        yield {"data": {"tool_calls": [call]}}

    async def run() -> None:
        pieces: list[str] = []

        async def progress(value: float, total: float | None, message: str | None) -> None:
            pieces.append(message or "")

        async with (
            serve(
                agent=Agent(tools=[names, missing, document], model="offline"), transport=transport
            ) as served,
            served.client(era) as client,
        ):
            failed = await client.call_tool("missing", {})
            assert failed.is_error
            assert text(failed) == "Error: FileNotFoundError: no file ?"
            rich = await client.call_tool("document", {})
            assert rich.structured_content == {"of ?": ["?", None, None, {"1": 2.5}]}
            assert (rich.content[0].resource.uri, rich.content[0].resource.text) == (
                "file:///?",
                "?",
            )
            result = await client.call_tool("names", {}, progress_callback=progress)
            assert text(result) == "file ?"
        async with serve(agent=odd, transport=transport) as served, served.client(era) as client:
            result = await client.call_tool("chat", {"message": "x"}, progress_callback=progress)
            assert text(result).startswith("half ?")
            assert result.structured_content["pending"][0]["intent"] == "why ?"
        assert pieces == ["reading ?", "reading ?", "half ?"]

    asyncio.run(run())


@ERAS
@pytest.mark.parametrize(
    "wrong",
    [
        {},
        {"message": 1},
        {"message": "x", "data": {"tool_calls": []}},
        {"message": "x", "history": [{"role": "system", "content": "y"}]},
        {"message": "x", "history": [{"role": "user", "content": "y", "data": {}}]},
    ],
)
def test_chat_takes_nothing_that_could_approve(serve: Any, era: str, wrong: Any) -> None:
    async def run() -> None:
        async with serve(agent=echo) as served, served.client(era) as client:
            result = await client.call_tool("chat", wrong)
            assert result.is_error
            assert "heard" not in text(result)

    asyncio.run(run())


@ERAS
def test_chat_names_what_waits_for_approval(serve: Any, era: str) -> None:
    async def run() -> None:
        async with serve() as served, served.client(era) as client:
            result = await client.call_tool("chat", {"message": "delete_pod name=web-1"})
            [row] = await served.proposals()
            assert row.id in text(result)
            assert result.structured_content["pending"][0]["id"] == row.id
            assert result.structured_content["stop_reason"] == "approval_required"
            assert served.ran.calls == []

    asyncio.run(run())


def test_chat_can_have_another_name_or_none(serve: Any) -> None:
    @tool
    def chat() -> str:
        """A tool of the agent's own."""
        return "own"

    async def run() -> None:
        agent = Agent(name="chatty", model="offline", tools=[chat])
        with pytest.raises(PluginError, match="plugin.mcp.chat"):
            async with serve(agent=agent):
                pass
        async with serve(agent=agent, chat="") as served, served.client() as client:
            assert [tool.name for tool in (await client.list_tools()).tools] == ["chat"]
            assert text(await client.call_tool("chat", {})) == "own"
        async with serve(agent=agent, chat="ask") as served, served.client() as client:
            assert {t.name for t in (await client.list_tools()).tools} == {"chat", "ask"}

    asyncio.run(run())


def test_description_of_the_agent_stands_apart_in_that_of_the_chat(serve: Any) -> None:
    async def run() -> None:
        agent = Agent(name="kube", description="Looks after a cluster", model="offline")
        async with serve(agent=agent) as served, served.client() as client:
            [chat] = (await client.list_tools()).tools
            assert (chat.description or "").splitlines()[-1] == "Looks after a cluster"

    asyncio.run(run())


@TRANSPORTS
def test_foreign_hosts_and_origins_are_refused(serve: Any, transport: str) -> None:
    async def run() -> None:
        settings = {"hosts": ["mcp.example"], "origins": ["https://page.example"]}
        async with (
            serve(transport=transport, **settings) as served,
            httpx2.AsyncClient(timeout=60) as http,
        ):

            async def status(**headers: str) -> int:
                url = served.url.replace("/sse", "/messages/")
                answer = await http.post(url, json=INITIALIZE, headers=HEADERS | headers)
                return answer.status_code

            fine = 400 if transport == "sse" else 200
            assert await status() == fine
            assert await status(host="evil.example") == 421
            assert await status(host="localhost.evil.example") == 421
            assert await status(host="mcp.example:9") == fine
            assert await status(origin="https://evil.example") == 403
            assert await status(origin="null") == 403
            assert await status(origin="http://localhost:8001") == fine
            assert await status(origin="http://localhost:8001.evil.example") == 403
            assert await status(origin="http://localhost:") == 403
            assert await status(origin="http://localhost:80@evil.example") == 403
            assert await status(origin="https://page.example") == fine
            unknown = await http.get(served.url + "x", headers={"host": "evil.example"})
            assert unknown.status_code == 421

    asyncio.run(run())


@TRANSPORTS
def test_refusal_of_a_host_or_origin_names_the_setting_that_lets_it_in(
    serve: Any, transport: str
) -> None:
    async def run() -> None:
        async with (
            serve(transport=transport) as served,
            httpx2.AsyncClient(timeout=60) as http,
        ):
            answer = await http.get(served.url, headers={"host": "sayso.internal:8001"})
            assert answer.text == "Invalid Host header; see plugin.mcp.hosts"
            answer = await http.get(served.url, headers={"origin": "https://page.example"})
            assert answer.text == "Invalid Origin header; see plugin.mcp.origins"

    asyncio.run(run())


def test_host_list_holds_on_every_address(serve: Any) -> None:
    async def run() -> None:
        async with serve(host="0.0.0.0") as served, httpx2.AsyncClient(timeout=60) as http:
            answer = await http.post(
                served.url, json=INITIALIZE, headers=HEADERS | {"host": "evil.example"}
            )
            assert answer.status_code == 421

    asyncio.run(run())


@TRANSPORTS
def test_body_has_a_limit(serve: Any, transport: str) -> None:
    async def run() -> None:
        async with (
            serve(transport=transport, limits={"body": 1000}) as served,
            httpx2.AsyncClient(timeout=60) as http,
        ):
            url = served.url.replace("/sse", "/messages/")
            answer = await http.post(url, content=b"{" + b" " * 2000 + b"}", headers=HEADERS)
            assert answer.status_code == 413

    asyncio.run(run())


@TRANSPORTS
def test_bearer_tokens_are_asked_for(serve: Any, transport: str) -> None:
    async def run() -> None:
        async with (
            serve(transport=transport, auth=TOKENS) as served,
            httpx2.AsyncClient(timeout=60) as http,
        ):
            for headers in ({}, {"authorization": "Bearer wrong"}, {"authorization": "token-a"}):
                answer = await http.get(served.url, headers=headers)
                assert answer.status_code == 401
                assert answer.headers["www-authenticate"] == "Bearer"
                assert "token-a" not in answer.text

    asyncio.run(run())


@TRANSPORTS
def test_failing_authentication_lets_nobody_in_and_names_the_incident(
    serve: Any, transport: str, monkeypatch: Any, caplog: Any
) -> None:
    async def fail(*_: Any) -> None:
        raise KeyError("SECRET")

    async def run() -> None:
        async with (
            serve(transport=transport, auth=TOKENS) as served,
            httpx2.AsyncClient(timeout=60) as http,
        ):
            monkeypatch.setattr("sayso_mcp.web.authenticate", fail)
            answer = await http.get(served.url)
            assert answer.status_code == 500
            assert "SECRET" not in answer.text
            assert f"incident {answer.json()['incident']}: AGENT_ERROR" in caplog.text

    asyncio.run(run())


def test_session_belongs_to_its_principal(serve: Any) -> None:
    async def run() -> None:
        async with serve(auth=TOKENS) as served, httpx2.AsyncClient(timeout=60) as http:
            ann = HEADERS | {"authorization": "Bearer token-a"}
            opened = await http.post(served.url, json=INITIALIZE, headers=ann)
            assert opened.status_code == 200
            session = {"mcp-session-id": opened.headers["mcp-session-id"]}
            ping = {"jsonrpc": "2.0", "id": 2, "method": "ping"}
            bob = HEADERS | {"authorization": "Bearer token-b"} | session
            assert (await http.post(served.url, json=ping, headers=bob)).status_code == 404
            again = await http.post(served.url, json=ping, headers=ann | session)
            assert again.status_code == 200

    asyncio.run(run())


@pytest.mark.parametrize(
    ("setting", "value", "expected"),
    [
        ("origins", ["example.com"], "expected origins such as 'https://example.com'"),
        ("origins", ["https://example.com/"], "expected origins such as 'https://example.com'"),
        ("origins", ["*"], "each in full"),
        ("hosts", ["http://example.com"], "expected names such as 'example.com'"),
        ("hosts", ["::1"], "expected names such as 'example.com'"),
        ("page", "console", "expected an address"),
    ],
)
def test_setting_that_nothing_could_match_stops_the_start(
    serve: Any, setting: str, value: Any, expected: str
) -> None:
    async def run() -> None:
        with pytest.raises(StartupError, match=rf"plugin\.mcp\.{setting}.*{expected}"):
            async with serve(**{setting: value}):
                pass

    asyncio.run(run())


def test_busy_port_is_a_start_error_with_the_way_out(serve: Any) -> None:
    async def run() -> None:
        with socket.socket() as taken:
            taken.bind(("127.0.0.1", 0))
            taken.listen()
            port = taken.getsockname()[1]
            with pytest.raises(PluginError, match=rf"port {port} .*in use.*--mcp-port"):
                async with serve(port=port):
                    pass

    asyncio.run(run())


def test_address_of_another_machine_is_a_start_error_that_names_the_setting(serve: Any) -> None:
    async def run() -> None:
        expected = r"192\.0\.2\.1 cannot be listened on: .*; see plugin\.mcp\.host"
        with pytest.raises(PluginError, match=expected):
            async with serve(host="192.0.2.1"):
                pass

    asyncio.run(run())


def test_name_of_the_chat_that_no_tool_can_have_is_a_wrong_setting() -> None:
    assert MCP.Settings(chat="").chat == ""
    with pytest.raises(ValidationError, match="chat\n"):
        MCP.Settings(chat="bad name!")


def test_tools_in_flight_have_a_limit(serve: Any, in_task: Any) -> None:
    async def run() -> None:
        started = in_task(serve(limits={"turns": 1}))
        served = await started.served()
        began = asyncio.Event()

        async def progress(value: float, total: float | None, message: str | None) -> None:
            began.set()

        async with served.client("legacy") as client:
            slow = client.call_tool("slow", {}, progress_callback=progress)
            call = asyncio.ensure_future(slow)
            await asyncio.wait_for(began.wait(), 60)
            refused = await client.call_tool("add", {"a": 1, "b": 1})
            assert refused.is_error
            assert "too many" in text(refused)
            served.ran.go.set()
            assert text(await call) == "slept"
            assert text(await client.call_tool("add", {"a": 1, "b": 1})) == "2"
        await started.stop()

    asyncio.run(run())


@pytest.mark.parametrize("name", ["forever", "slow"])
def test_endless_call_ends_at_the_time_limit_with_an_unknown_outcome(serve: Any, name: str) -> None:
    """Its thread goes on, and an async tool may already have taken effect."""

    async def run() -> None:
        async with serve(limits={"turn_time": 0.3}) as served, served.client("legacy") as client:
            result = await client.call_tool(name, {})
            served.ran.go.set()
            assert result.is_error
            assert text(result) == (
                "Outcome unknown: the tool ran longer than 0.3 seconds. "
                "It may or may not have taken effect."
            )

    asyncio.run(run())


@TRANSPORTS
def test_stop_ends_open_streams_and_waits_for_tools(
    serve: Any, in_task: Any, transport: str
) -> None:
    async def run() -> None:
        started = in_task(serve(transport=transport, drain_timeout=60))
        served = await started.served()
        began = asyncio.Event()

        async def progress(value: float, total: float | None, message: str | None) -> None:
            began.set()

        async with httpx2.AsyncClient(timeout=60) as http, served.client("legacy") as client:
            headers = dict(HEADERS)
            if transport != "sse":
                opened = await http.post(served.url, json=INITIALIZE, headers=HEADERS)
                headers["mcp-session-id"] = opened.headers["mcp-session-id"]
            request = http.build_request("GET", served.url, headers=headers)
            stream = await http.send(request, stream=True)
            assert stream.status_code == 200
            slow = client.call_tool("slow", {}, progress_callback=progress)
            call = asyncio.ensure_future(slow)
            await asyncio.wait_for(began.wait(), 60)
            stopping = asyncio.ensure_future(started.stop())
            while not (await client.call_tool("add", {"a": 1, "b": 1})).is_error:
                pass
            assert not stopping.done()
            served.ran.go.set()
            await stopping
            assert text(await call) == "slept"
            async for _ in stream.aiter_bytes():
                pass
            await stream.aclose()

    asyncio.run(run())


@ERAS
@TRANSPORTS
def test_endless_tool_does_not_hold_the_stop_and_its_outcome_is_told_as_unknown(
    serve: Any, in_task: Any, transport: str, era: str
) -> None:
    async def run() -> None:
        started = in_task(serve(transport=transport))
        served = await started.served()
        async with served.client(era) as client:
            call = asyncio.ensure_future(client.call_tool("forever", {}))
            assert text(await client.call_tool("add", {"a": 1, "b": 1})) == "2"
            # These servers have a drain time of two seconds.
            await started.stop()
            result = await call
            assert result.is_error
            assert text(result).startswith("Outcome unknown: the service stopped")

    asyncio.run(run())


def test_endless_tool_has_no_time_of_its_own_behind_the_drain_of_the_turns(
    serve: Any, in_task: Any
) -> None:
    async def run() -> None:
        # Longer than the stop may take.
        started = in_task(serve(drain_timeout=120))
        served = await started.served()
        async with served.client("legacy") as client:
            call = asyncio.ensure_future(client.call_tool("forever", {}))
            assert text(await client.call_tool("add", {"a": 1, "b": 1})) == "2"
            await served.host.drain(0.0)
            await started.stop()
            call.cancel()
            await asyncio.wait([call])

    asyncio.run(run())


def test_open_question_does_not_hold_the_stop(serve: Any, in_task: Any) -> None:
    async def run() -> None:
        asked = asyncio.Event()

        async def think(context: Any, params: Any) -> Any:
            asked.set()
            await asyncio.Event().wait()

        # Longer than the stop may take.
        started = in_task(serve(drain_timeout=120))
        served = await started.served()
        async with served.client("legacy", elicitation_callback=think) as client:
            call = asyncio.ensure_future(client.call_tool("delete_pod", {"name": "web-1"}))
            await asyncio.wait_for(asked.wait(), 60)
            await started.stop()
            await asyncio.wait([call], timeout=60)
            call.cancel()
        assert served.ran.calls == []

    asyncio.run(run())


@TRANSPORTS
def test_open_question_is_no_call_whose_end_is_unknown_although_the_drain_has_used_its_time(
    serve: Any, in_task: Any, transport: str
) -> None:
    async def run() -> None:
        asked = asyncio.Event()

        async def think(context: Any, params: Any) -> Any:
            asked.set()
            await asyncio.Event().wait()

        started = in_task(serve(transport=transport))
        served = await started.served()
        async with served.client("legacy", elicitation_callback=think) as client:
            call = asyncio.ensure_future(client.call_tool("delete_pod", {"name": "web-1"}))
            await asyncio.wait_for(asked.wait(), 60)
            await served.host.drain(0.0)
            await started.stop()
            assert "has not run" in text(await call)
        assert served.ran.calls == []

    asyncio.run(run())


@ERAS
def test_call_that_comes_while_the_turns_of_the_service_end_is_refused(
    serve: Any, era: str
) -> None:
    async def run() -> None:
        async with serve() as served, served.client(era) as client:
            assert text(await client.call_tool("add", {"a": 1, "b": 1})) == "2"
            await served.host.drain(0.0)
            for name, given in (("add", {"a": 1, "b": 1}), ("chat", {"message": "hello"})):
                refused = await client.call_tool(name, given)
                assert refused.is_error
                assert text(refused) == "Error: the service is stopping"

    asyncio.run(run())


def test_nothing_of_the_sdk_is_imported_before_the_start() -> None:
    code = (
        "import sys; from sayso import Agent, Config, create_app; import sayso_mcp\n"
        "create_app(Agent(model='offline'), config=Config(server={'mcp': True}))\n"
        "print([name for name in sys.modules if name.split('.')[0] in ('mcp', 'mcp_types')])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
