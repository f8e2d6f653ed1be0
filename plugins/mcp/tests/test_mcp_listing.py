"""The server's description of itself and its tools, and its notifications of changes."""

from __future__ import annotations

import asyncio
import dataclasses
import json
import math
import sys
from pathlib import Path
from typing import Any

import mcp_types as types
import pytest
from mcp import Client
from mcp_programs import old_client, script
from pydantic import BaseModel, Field, computed_field
from test_mcp_old_clients import ran
from typing_extensions import TypedDict

from sayso import Agent, Caller, Config, ServiceHost, ToolResult, tool
from sayso_mcp import MCP, mcp_server
from sayso_mcp.apps import EXTENSION

MODERN = "2026-07-28"
ERAS = pytest.mark.parametrize("era", ["legacy", MODERN])
TRANSPORTS = pytest.mark.parametrize("transport", ["streamable-http", "sse"])
NODE = Path(__file__).with_name("old_client.mjs")
OLD = Path(__file__).with_name("old_server.py")


class Pod(BaseModel):
    """A pod."""

    name: str
    load: float = Field(default=0.5, serialization_alias="cpu")

    @computed_field  # type: ignore[prop-decorator]
    @property
    def busy(self) -> bool:
        return self.load > 1


@dataclasses.dataclass
class Node:
    name: str
    pods: list[Pod]


class Count(TypedDict):
    total: int


@tool
def pod(name: str) -> Pod:
    """A pod."""
    return Pod(name=name)


@tool
async def node(name: str) -> Node:
    """A node."""
    return Node(name, [Pod(name="a")])


@tool
def count() -> Count:
    """The pods, counted."""
    return {"total": 3}


@tool
def lie() -> Count:
    """Not what it promises."""
    return {"total": "three"}  # type: ignore[typeddict-item]


@tool
def endless() -> Pod:
    """A number that no JSON has."""
    return Pod(name="x", load=math.inf)


@tool
def plain(name: str, size: int = 1, note: str | None = "none") -> str:
    """A text."""
    return f"{name} {size} {note}"


@tool
def rich() -> ToolResult:
    """A result with rich content has no schema."""
    return ToolResult(structured={"a": 1})


@tool(requires_approval=True)
def gated(name: str) -> Pod:
    """A pod, once somebody has approved."""
    return Pod(name=name)


@tool(requires_approval=True, destructive=False)
def mild() -> str:
    """Gated, and said to be harmless."""
    return "done"


@tool(read_only=True)
def look() -> str:
    """Change nothing."""
    return "seen"


TOOLS = [pod, node, count, lie, endless, plain, rich, gated, mild, look]


def agent(**options: Any) -> Agent:
    return Agent(name="typed", model="offline", tools=TOOLS, **options)


@ERAS
def test_object_that_a_tool_returns_has_its_schema_and_comes_structured(
    serve: Any, era: str
) -> None:
    async def run() -> None:
        async with serve(agent=agent()) as served, served.client(era) as client:
            listed = {tool.name: tool for tool in (await client.list_tools()).tools}
            assert set(listed["pod"].output_schema["properties"]) == {"name", "cpu", "busy"}
            with_schema = {name for name, tool in listed.items() if tool.output_schema}
            assert with_schema == {"pod", "node", "count", "lie", "endless", "gated"}
            # The client validates the result against the schema.
            result = await client.call_tool("pod", {"name": "web"})
            assert result.structured_content == {"name": "web", "cpu": 0.5, "busy": False}
            assert json.loads(result.content[0].text) == result.structured_content
            result = await client.call_tool("node", {"name": "n"})
            assert result.structured_content["pods"][0]["name"] == "a"
            assert (await client.call_tool("count", {})).structured_content == {"total": 3}

    asyncio.run(run())


@ERAS
@pytest.mark.parametrize("name", ["lie", "endless"])
def test_object_that_does_not_fit_its_schema_is_told_and_no_lost_call(
    serve: Any, era: str, name: str
) -> None:
    async def run() -> None:
        async with serve(agent=agent()) as served, served.client(era) as client:
            result = await client.call_tool(name, {})
            assert result.is_error
            assert result.structured_content is None
            assert "The tool has run." in result.content[-1].text

    asyncio.run(run())


@ERAS
def test_recorded_outcome_of_a_gated_tool_keeps_its_schema(serve: Any, era: str) -> None:
    async def run() -> None:
        async with serve(agent=agent(), approvals="inbox") as served:
            async with served.client(era) as client:
                await client.list_tools()
                assert (await client.call_tool("gated", {"name": "web"})).is_error
                [row] = await served.proposals()
                await served.host.calls.decide(row.id, Caller("v2"), approved=True)
                result = await client.call_tool("gated", {"name": "web"})
                assert result.structured_content == {"name": "web", "cpu": 0.5, "busy": False}

    asyncio.run(run())


@ERAS
def test_large_object_of_a_tool_with_a_schema_is_no_lost_call(serve: Any, era: str) -> None:
    @tool
    def many() -> Node:
        """Many pods."""
        return Node("n", [Pod(name="x" * 100)] * 20_000)

    async def seen(progress: float, total: float | None, message: str | None) -> None:
        pass

    async def run() -> None:
        large = Agent(name="large", model="offline", tools=[many])
        async with serve(agent=large) as served, served.client(era) as client:
            await client.list_tools()
            result = await client.call_tool("many", {}, progress_callback=seen)
            if result.structured_content is None:
                assert result.is_error
                link = result.content[-1]
                [found] = (await client.read_resource(link.uri)).contents
                result.structured_content = json.loads(found.text)
            assert len(result.structured_content["pods"]) == 20_000

    asyncio.run(run())


@ERAS
def test_hints_come_from_what_needs_approval(serve: Any, era: str) -> None:
    @tool(idempotent=True)
    def again() -> str:
        """Any number of times."""
        return "done"

    rules = {"rules": [{"tool": "plain", "action": "require"}]}
    hinted = Agent(name="hinted", model="offline", tools=[*TOOLS, again])

    async def run() -> None:
        async with (
            serve(agent=hinted, approvals_=rules) as served,
            served.client(era) as client,
        ):
            listed = (await client.list_tools()).tools
            hints = {t.name: t.annotations for t in listed}
            found = {
                name: hints[name].destructive_hint
                for name in ("gated", "plain", "mild", "pod", "look")
            }
            assert found == {
                "gated": True,
                "plain": True,
                "mild": False,
                "pod": False,
                "look": None,
            }
            assert hints["again"].idempotent_hint is True
            assert hints["pod"].idempotent_hint is False

    asyncio.run(run())


@pytest.mark.parametrize("version", ["", "3.2.1"])
def test_server_has_the_agents_version(serve: Any, version: str) -> None:
    async def run() -> None:
        async with serve(agent=agent(version=version)) as served:
            async with served.client("legacy") as client:
                assert client.server_info.version == version
            async with served.client("auto") as client:
                assert client.server_info.version == version
            reported = await ran(old_client(served.url, "look", "{}"))
            assert reported["server"] == version

    asyncio.run(run())


@pytest.mark.parametrize("era", ["legacy", "auto"])
@TRANSPORTS
def test_nothing_is_declared_that_there_is_not(serve: Any, era: str, transport: str) -> None:
    async def run() -> None:
        async with (
            serve(agent=agent(), transport=transport) as served,
            served.client(era) as client,
        ):
            declared = client.server_capabilities
            found = declared.model_dump(by_alias=True, exclude_none=True, mode="json")
            # The older era has no way to declare this.
            extensions = {} if era == "legacy" else {"extensions": {EXTENSION: {}}}
            assert found == {"tools": {}, "resources": {}} | extensions

    asyncio.run(run())


@ERAS
def test_null_in_a_field_that_a_form_left_empty_is_no_argument(serve: Any, era: str) -> None:
    async def run() -> None:
        async with serve(agent=agent()) as served, served.client(era) as client:
            given = {"name": "web", "size": None, "note": None}
            assert (await client.call_tool("plain", given)).content[0].text == "web 1 None"
            missing = await client.call_tool("plain", {"name": None})
            assert missing.is_error

    asyncio.run(run())


@pytest.mark.parametrize("client", ["python", "typescript"])
def test_clients_of_1_x_take_structured_results(serve: Any, client: str) -> None:
    async def run() -> None:
        async with serve(agent=agent()) as served:
            given = json.dumps({"name": "web"})
            reported = await ran(
                old_client(served.url, "pod", given)
                if client == "python"
                else script(NODE, served.url, "pod", given, "60000", "none")
            )
            assert reported["structuredContent"] == {"name": "web", "cpu": 0.5, "busy": False}

    asyncio.run(run())


@TRANSPORTS
@pytest.mark.parametrize("era", ["legacy", "auto"])
def test_client_hears_that_the_tools_have_changed(
    serve: Any, tmp_path: Path, transport: str, era: str
) -> None:
    async def run() -> None:
        received = asyncio.Event()

        async def listen_to(message: Any) -> None:
            if isinstance(message, types.ToolListChangedNotification):
                received.set()

        folder = tmp_path / "server"
        folder.mkdir()
        old = mcp_server([sys.executable, str(OLD), str(folder)], requires_approval=False)
        growing = Agent(name="growing", model="offline", tools=[old])
        async with (
            serve(agent=growing, transport=transport) as served,
            served.client(era, message_handler=listen_to) as client,
        ):
            assert client.server_capabilities.tools.list_changed is True
            await client.list_tools()
            listens = asyncio.Event()
            listening = asyncio.ensure_future(listened(client, listens, received))
            await asyncio.wait_for(listens.wait(), 60)
            await client.call_tool("grow", {})
            await asyncio.wait_for(received.wait(), 60)
            listening.cancel()
            await asyncio.wait([listening])
            names = {t.name for t in (await client.list_tools(cache_mode="bypass")).tools}
            assert "grown" in names

    asyncio.run(run())


async def listened(client: Client, listens: asyncio.Event, received: asyncio.Event) -> None:
    """From 2026-07-28 on a client learns of changes from a stream that it must ask for."""
    if client.protocol_version != MODERN:
        listens.set()
        return
    async with client.listen(tools_list_changed=True) as events:
        listens.set()
        async for _ in events:
            received.set()


@pytest.mark.parametrize(
    ("host", "plugins", "expected"),
    [
        ("127.0.0.1", ["mcp", "console"], "http://127.0.0.1:8123/console"),
        ("::1", ["mcp", "console"], "http://[::1]:8123/console"),
        ("0.0.0.0", ["mcp", "console"], None),
        ("127.0.0.1", ["mcp"], None),
    ],
)
def test_page_is_that_of_the_console_beside_the_server(
    tmp_path: Path, host: str, plugins: list[str], expected: str | None
) -> None:
    server = {"host": host, "port": 8123, "state_dir": tmp_path}
    made = ServiceHost.create(
        agent(),
        Config.model_validate(
            {"plugins": plugins, "server": server, "plugin": {"mcp": {"port": 0}}}
        ),
    )
    plugin = made.plugins.get("mcp")
    assert isinstance(plugin, MCP)
    assert plugin.settings_beside(made).page == expected


@pytest.mark.parametrize("era", ["legacy", "auto"])
def test_server_shows_its_icon(serve: Any, era: str) -> None:
    async def run() -> None:
        icon = "https://example.com/icon.png"
        async with serve(icon=icon) as served, served.client(era) as client:
            assert [each.src for each in client.server_info.icons] == [icon]

    asyncio.run(run())
