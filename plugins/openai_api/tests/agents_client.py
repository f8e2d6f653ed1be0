"""A talk by OpenAI's Agents SDK with a service at the address in `argv`: it asks for a deletion,
approves it, and prints the answer."""

from __future__ import annotations

import asyncio
import sys
from typing import Any

from agents import Agent, HostedMCPTool, OpenAIResponsesModel, Runner, set_tracing_disabled
from openai import AsyncOpenAI


async def talk(url: str) -> Any:
    """The final answer."""
    set_tracing_disabled(True)
    async with AsyncOpenAI(base_url=url, api_key="any") as client:
        config: Any = {"type": "mcp", "server_label": "sayso", "server_url": "http://x.invalid"}
        agent = Agent(
            name="desk",
            model=OpenAIResponsesModel(model="desk", openai_client=client),
            tools=[HostedMCPTool(tool_config=config)],
        )
        result = await Runner.run(agent, "delete a")
        (waiting,) = result.interruptions
        state = result.to_state()
        state.approve(waiting)
        return (await Runner.run(agent, state)).final_output


print(asyncio.run(talk(sys.argv[1])))
