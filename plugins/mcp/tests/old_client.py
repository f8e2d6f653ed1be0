"""Calls one tool with the official SDK 1.x, for the tests of the server; prints the result as JSON.

python old_client.py URL TOOL ARGUMENTS [ANSWER]      ANSWER: the person's answer to each form

Without an ANSWER the client declares no elicitation.
"""

import asyncio
import json
import sys
from typing import Any

from mcp import ClientSession, types
from mcp.client.streamable_http import streamable_http_client
from mcp.shared.exceptions import McpError


async def answer(context: Any, params: Any) -> Any:
    return types.ElicitResult(action="accept", content=json.loads(sys.argv[4]))


async def main() -> None:
    url, tool, arguments = sys.argv[1:4]
    asks = {"elicitation_callback": answer} if len(sys.argv) > 4 else {}
    async with (
        streamable_http_client(url) as (read, write, _),
        ClientSession(read, write, **asks) as session,
    ):
        initialized = await session.initialize()
        try:
            result = await session.call_tool(tool, json.loads(arguments))
            reported = json.loads(result.model_dump_json(by_alias=True, exclude_none=True))
        except (McpError, RuntimeError) as error:
            reported = {"raised": str(error)}
        for link in reported.get("content", []):
            if link["type"] == "resource_link":
                read_ = await session.read_resource(link["uri"])
                link["read"] = [len(c.model_dump_json()) for c in read_.contents]
        print(json.dumps({**reported, "server": initialized.serverInfo.version}))


asyncio.run(main())
