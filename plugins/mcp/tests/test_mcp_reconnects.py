"""Clients whose connection is cut while a gated call waits or runs, and that call again."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Awaitable, Callable
from functools import partial
from typing import Any

import httpx2
import pytest

from sayso import Agent, Caller, tool
from sayso_mcp import service
from sayso_mcp.call import call_tool
from sayso_mcp.calls import ToolCalls

PATIENCE = 60.0
MODERN = "2026-07-28"
HEADERS = {"accept": "application/json, text/event-stream", "content-type": "application/json"}
META = {
    "io.modelcontextprotocol/protocolVersion": MODERN,
    "io.modelcontextprotocol/clientCapabilities": {},
    "io.modelcontextprotocol/clientInfo": {"name": "test", "version": "1"},
}


async def session(http: httpx2.AsyncClient, url: str) -> dict[str, str]:
    """The headers of a new session."""
    params = {
        "protocolVersion": "2025-11-25",
        "capabilities": {},
        "clientInfo": {"name": "test", "version": "1"},
    }
    body = {"jsonrpc": "2.0", "id": 0, "method": "initialize", "params": params}
    started = await http.post(url, json=body, headers=HEADERS)
    return {"mcp-session-id": started.headers["mcp-session-id"]}


@pytest.mark.parametrize("era", ["legacy", MODERN])
def test_outcome_that_a_cut_connection_lost_is_told_to_the_same_call_on_the_console(
    serve: Any, eventually: Any, era: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    received: list[Callable[[], Awaitable[bool]]] = []

    async def noted(calls: ToolCalls, context: Any, params: Any) -> Any:
        received.append(partial(calls.is_gone, context))
        return await call_tool(calls, context, params)

    monkeypatch.setattr(service, "call_tool", noted)
    started = threading.Event()
    go = threading.Event()

    @tool(requires_approval=True)
    def rebuild() -> str:
        """Rebuild the index."""
        started.set()
        assert go.wait(PATIENCE)
        return "rebuilt"

    async def run() -> None:
        agent = Agent(model="offline", tools=[rebuild])
        only_here = {"approvals_": {"run": "caller"}}
        async with serve(agent=agent, approvals="inbox", **only_here) as served:
            params: dict[str, Any] = {"name": "rebuild", "arguments": {}}
            headers = dict(HEADERS)
            if era == MODERN:
                params["_meta"] = META
                headers |= {"mcp-protocol-version": MODERN, "mcp-method": "tools/call"}
                headers["mcp-name"] = "rebuild"
            else:
                async with httpx2.AsyncClient(timeout=PATIENCE) as http:
                    headers |= await session(http, served.url)

            async def call(id_: int) -> str:
                body = {"jsonrpc": "2.0", "id": id_, "method": "tools/call", "params": params}
                async with httpx2.AsyncClient(timeout=PATIENCE, headers=headers) as http:
                    return (await http.post(served.url, json=body)).text

            async def done() -> bool:
                return [row.state for row in await served.proposals()] == ["DONE"]

            assert "Waiting for approval" in await call(1)
            [row] = await served.proposals()
            await served.host.calls.decide(row.id, Caller("cli"), approved=True, run=False)
            cut = asyncio.ensure_future(call(2))
            await eventually(started.is_set)
            cut.cancel()
            await asyncio.wait([cut])
            await eventually(received[-1])
            go.set()
            await eventually(done)
            assert "rebuilt" in await call(3)
            assert "Waiting for approval" in await call(4)

    asyncio.run(run())
