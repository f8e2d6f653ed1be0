"""Results above the event size that clients read become links or words; no call is lost."""

from __future__ import annotations

import asyncio
import base64
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import httpx2
import mcp_types as types
import pytest
from mcp import Client
from mcp.client.streamable_http import streamable_http_client
from mcp.shared.exceptions import MCPError
from mcp_programs import old_client, script
from test_mcp_old_clients import ran

from sayso import Agent, AudioContent, ImageContent, RequestContext, ResourceContent, ToolResult
from sayso import tool as declared
from sayso_mcp.events import KEPT, Kept

MODERN = "2026-07-28"
ERAS = pytest.mark.parametrize("era", ["legacy", MODERN])
TRANSPORTS = pytest.mark.parametrize("transport", ["streamable-http", "sse"])
LARGE = bytes(range(256)) * 2**13
"""2 MiB."""
TOKENS = {"scheme": "bearer", "tokens": {"ann": "token-a", "bob": "token-b"}}
NODE = Path(__file__).with_name("old_client.mjs")


@declared
def give(kind: str, context: RequestContext) -> ToolResult:
    """Give a large thing."""
    context.update("begun")
    match kind:
        case "picture":
            return ToolResult(["see", ImageContent(LARGE, "image/png")])
        case "sound":
            return ToolResult(["hear", AudioContent(LARGE, "audio/wav")])
        case "document":
            text = ResourceContent("file:///report", "line\n" * 2**19, "text/plain")
            return ToolResult(["read", text])
        case "values":
            return ToolResult(["values"], structured={"rows": ["x" * 99] * 2**15})
        case "pictures":
            return ToolResult([ImageContent(LARGE[: 2**19], "image/png")] * 3)
    return ToolResult(["small", ImageContent(b"png", "image/png")], structured={"a": 1})


async def seen(progress: float, total: float | None, message: str | None) -> None:
    """Ask for progress: then the newer era, too, answers with events."""


async def called(client: Client, kind: str) -> Any:
    return await client.call_tool("give", {"kind": kind}, progress_callback=seen)


@ERAS
@pytest.mark.parametrize(
    ("kind", "size"), [("picture", 2**21), ("sound", 2**21), ("document", 5 * 2**19)]
)
def test_large_part_is_a_link_that_the_client_reads(
    serve: Any, era: str, kind: str, size: int
) -> None:
    async def run() -> None:
        agent = Agent(name="large", model="offline", tools=[give])
        async with serve(agent=agent) as served, served.client(era) as client:
            words, link = (await called(client, kind)).content
            assert words.type == "text"
            assert (link.type, link.size) == ("resource_link", size)
            [found] = (await client.read_resource(link.uri)).contents
            if kind == "document":
                assert found.text == "line\n" * 2**19
            else:
                assert base64.b64decode(found.blob) == LARGE
            assert found.mime_type == link.mime_type
            assert [b.type for b in (await called(client, "none")).content] == ["text", "image"]

    asyncio.run(run())


@ERAS
def test_large_structured_result_is_a_link_that_the_client_reads(serve: Any, era: str) -> None:
    async def run() -> None:
        agent = Agent(name="large", model="offline", tools=[give])
        async with serve(agent=agent) as served, served.client(era) as client:
            result = await called(client, "values")
            assert result.structured_content is None
            first, words, link = result.content
            assert first.text == "values"
            assert "too large" in words.text
            [found] = (await client.read_resource(link.uri)).contents
            assert json.loads(found.text) == {"rows": ["x" * 99] * 2**15}

    asyncio.run(run())


@ERAS
@pytest.mark.parametrize("kind", ["picture", "sound", "document", "values"])
def test_part_that_no_event_of_sse_holds_is_left_out_with_words(
    serve: Any, era: str, kind: str
) -> None:
    async def run() -> None:
        agent = Agent(name="large", model="offline", tools=[give])
        async with serve(agent=agent, transport="sse") as served, served.client(era) as client:
            result = await called(client, kind)
            assert {block.type for block in result.content} == {"text"}
            assert "too large" in result.content[-1].text
            # The session still works.
            assert [b.type for b in (await called(client, "none")).content] == ["text", "image"]

    asyncio.run(run())


@TRANSPORTS
@ERAS
def test_parts_that_fit_each_and_not_together_are_sent_as_far_as_they_fit(
    serve: Any, transport: str, era: str
) -> None:
    async def run() -> None:
        agent = Agent(name="large", model="offline", tools=[give])
        async with (
            serve(agent=agent, transport=transport) as served,
            served.client(era) as client,
        ):
            blocks = (await called(client, "pictures")).content
            kinds = sorted(block.type for block in blocks)
            assert kinds == ["image", "resource_link", "resource_link"]
            for link in blocks:
                if link.type == "resource_link":
                    [found] = (await client.read_resource(link.uri)).contents
                    assert base64.b64decode(found.blob) == LARGE[: 2**19]

    asyncio.run(run())


def test_what_is_kept_is_read_by_its_principal_alone(serve: Any) -> None:
    async def run() -> None:
        agent = Agent(name="large", model="offline", tools=[give])
        async with serve(agent=agent, auth=TOKENS) as served:
            async with bearer(served.url, "token-a") as ann:
                link = (await called(ann, "picture")).content[1]
                assert len((await ann.read_resource(link.uri)).contents) == 1
            async with bearer(served.url, "token-b") as bob:
                with pytest.raises(MCPError, match="no such resource"):
                    await bob.read_resource(link.uri)

    asyncio.run(run())


@asynccontextmanager
async def bearer(url: str, token: str) -> AsyncIterator[Client]:
    headers = {"authorization": f"Bearer {token}"}
    async with (
        httpx2.AsyncClient(headers=headers, timeout=60) as http,
        Client(streamable_http_client(url, http_client=http), mode="legacy") as client,
    ):
        yield client


def test_what_is_kept_is_bounded() -> None:
    kept = Kept()
    part = types.TextResourceContents(uri="", text="x")
    addresses = [kept.keep(part, None, KEPT // 4) for _ in range(5)]
    found = [kept.read(address, None) is not None for address in addresses]
    assert found == [False, True, True, True, True]


@pytest.mark.parametrize("client", ["python", "typescript"])
@pytest.mark.parametrize("kind", ["picture", "document", "values"])
def test_clients_of_1_x_read_what_is_large(serve: Any, client: str, kind: str) -> None:
    async def run() -> None:
        agent = Agent(name="large", model="offline", tools=[give])
        given = json.dumps({"kind": kind})
        async with serve(agent=agent) as served:
            reported = await ran(
                old_client(served.url, "give", given)
                if client == "python"
                else script(NODE, served.url, "give", given, "60000", "none")
            )
            [read] = reported["content"][-1]["read"]
            assert read > 2**21

    asyncio.run(run())


@ERAS
def test_question_that_no_event_holds_goes_to_the_page(serve: Any, human: Any, era: str) -> None:
    @declared(requires_approval=True)
    def store(text: str) -> str:
        """Store a text."""
        return f"stored {len(text)}"

    async def run() -> None:
        yes = human("accept", approve=True)
        agent = Agent(name="large", model="offline", tools=[store])
        async with (
            serve(agent=agent) as served,
            served.client(era, elicitation_callback=yes) as client,
        ):
            result = await client.call_tool("store", {"text": "x" * 2**21})
            assert result.is_error
            assert "Waiting for approval" in result.content[0].text
            assert yes.asked == []
            stored = await client.call_tool("store", {"text": "x"})
            assert stored.content[0].text == "stored 1"

    asyncio.run(run())
