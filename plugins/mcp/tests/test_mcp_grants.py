"""A call that a standing grant covers runs without a question to the client's person."""

from __future__ import annotations

import asyncio
from typing import Any

import httpx2
import pytest
from mcp import Client
from mcp.client.streamable_http import streamable_http_client

from sayso import Agent, Caller, Grantable, tool

AUTH = {
    "scheme": "bearer",
    "tokens": {"ann": "token-a", "bob": "token-b"},
    "principals": {"ann": {"kind": "person"}, "bob": {"kind": "person"}},
}


@pytest.mark.parametrize("era", ["legacy", "2026-07-28"])
def test_covered_call_runs_unasked_and_says_who_allowed_it(serve: Any, era: str) -> None:
    ran: list[str] = []
    asked: list[Any] = []

    @tool(requires_approval=True)
    def restart(name: str) -> str:
        """Restart a service."""
        ran.append(name)
        return f"restarted {name}"

    async def answer(context: Any, params: Any) -> Any:
        asked.append(params)
        raise AssertionError("nobody is to be asked")

    async def run() -> None:
        approvals = {"deciders": "any", "grants": True}
        agent = Agent(name="ops", model="offline", tools=[restart])
        async with (
            serve(agent=agent, auth=AUTH, approvals_=approvals) as served,
            httpx2.AsyncClient(headers={"authorization": "Bearer token-a"}, timeout=60) as http,
            Client(
                streamable_http_client(served.url, http_client=http),
                mode=era,
                elicitation_callback=answer,
            ) as client,
        ):
            (bob,) = [one for one in served.host.tokens if one == "bob"]
            wanted = Grantable("restart", {"name": "web"}, "ann", 1, 600, "night shift")
            given = await served.host.grants.give(wanted, Caller("inbox", bob))
            result = await client.call_tool("restart", {"name": "web"})
            said = [block.text for block in result.content]
            assert said == ["restarted web", "(Allowed by a standing grant of bob.)"]
            assert (ran, asked) == (["web"], [])
            (row,) = await served.proposals()
            assert (row.state, row.decision.grant) == ("DONE", given.id)

    asyncio.run(run())
