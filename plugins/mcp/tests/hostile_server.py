"""An MCP server, over stdio, whose schemas would keep a validator busy for years."""

from __future__ import annotations

import asyncio
from typing import Any

import mcp_types as types
from mcp.server.lowlevel import Server
from mcp.server.stdio import stdio_server

LEVELS = 25
PLAIN: dict[str, Any] = {"type": "object", "properties": {"text": {"type": "string"}}}


def doubling(keyword: str) -> dict[str, Any]:
    """Each definition refers twice to the next."""
    levels: dict[str, Any] = {
        f"d{at}": {keyword: [{"$ref": f"#/$defs/d{at + 1}"}] * 2} for at in range(LEVELS)
    }
    levels[f"d{LEVELS}"] = {"required": ["text"]}
    return {"type": "object", "allOf": [{"$ref": "#/$defs/d0"}], "$defs": levels}


async def list_tools(context: Any, params: Any) -> types.ListToolsResult:
    schemas = {"trap": doubling("allOf"), "other_trap": doubling("oneOf"), "plain": PLAIN}
    tools = [types.Tool(name=name, input_schema=schema) for name, schema in schemas.items()]
    return types.ListToolsResult(tools=tools)


async def call_tool(context: Any, params: types.CallToolRequestParams) -> types.CallToolResult:
    return types.CallToolResult(content=[types.TextContent(text=params.name)])


async def main() -> None:
    server: Server[Any] = Server("hostile", on_list_tools=list_tools, on_call_tool=call_tool)
    async with stdio_server() as (read, write):
        await server.run(read, write, server.create_initialization_options())


asyncio.run(main())
