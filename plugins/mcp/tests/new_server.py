"""A small MCP server of 2026-07-28 over stdio, for the tests of the client."""

from __future__ import annotations

import asyncio
from typing import Any

import mcp_types as types
from mcp.server.lowlevel import Server
from mcp.server.stdio import stdio_server
from mcp.server.subscriptions import InMemorySubscriptionBus, ListenHandler
from mcp.shared.subscriptions import ToolsListChanged

OBJECT: dict[str, Any] = {"type": "object", "properties": {"text": {"type": "string"}}}
FORM: dict[str, Any] = {"type": "object", "properties": {"ok": {"type": "boolean"}}}
names = ["ask", "grow"]
bus = InMemorySubscriptionBus()


async def list_tools(context: Any, params: Any) -> types.ListToolsResult:
    return types.ListToolsResult(tools=[types.Tool(name=n, input_schema=OBJECT) for n in names])


async def call_tool(
    context: Any, params: types.CallToolRequestParams
) -> types.CallToolResult | types.InputRequiredResult:
    text = params.name
    if params.name == "grow":
        names.append("grown")
        await bus.publish(ToolsListChanged())
    if params.name == "ask":
        answer = (params.input_responses or {}).get("ask")
        if not isinstance(answer, types.ElicitResult):
            form = types.ElicitRequestFormParams(message="May I?", requested_schema=FORM)
            request = types.ElicitRequest(params=form)
            return types.InputRequiredResult(input_requests={"ask": request})
        text = answer.action
    return types.CallToolResult(content=[types.TextContent(text=text)])


async def main() -> None:
    server: Server[Any] = Server(
        "new",
        on_list_tools=list_tools,
        on_call_tool=call_tool,
        on_subscriptions_listen=ListenHandler(bus),
    )
    async with stdio_server() as (read, write):
        await server.run(read, write, server.create_initialization_options())


asyncio.run(main())
