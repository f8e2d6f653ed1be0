"""Further common clients: the Agents SDK, LangChain, and OpenAI's own in Node."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pytest
from openai_world import Start, World, deletion

sys.path.insert(0, str(Path(__file__).parents[3] / "tests"))

from npm import ran

pytestmark = pytest.mark.slow
SCRIPT = Path(__file__).parent / "openai_client.mjs"


def test_the_agents_sdk_interrupts_and_goes_on(start: Start) -> None:
    pytest.importorskip("agents")
    import asyncio

    from agents import Agent, HostedMCPTool, OpenAIResponsesModel, Runner, set_tracing_disabled
    from openai import AsyncOpenAI

    world = start(deletion("a"), "It is gone.")

    async def talk() -> Any:
        set_tracing_disabled(True)
        async with AsyncOpenAI(base_url=f"{world.service.url}/v1", api_key="any") as client:
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

    assert asyncio.run(talk()) == "It is gone." and world.deleted == ["a"]


@pytest.mark.parametrize("responses", [False, True])
def test_langchain_talks_and_passes_an_approval(start: Start, responses: bool) -> None:
    chat = pytest.importorskip("langchain_openai")
    world = start("Hello.", deletion("a"), "It is gone.")
    model = chat.ChatOpenAI(
        model="desk",
        base_url=f"{world.service.url}/v1",
        api_key="any",
        use_responses_api=responses,
        max_retries=0,
    )
    assert "".join(chunk.text for chunk in model.stream("hello")) == "Hello."
    if responses:
        _approve(world, model)


def _approve(world: World, model: Any) -> None:
    first = model.invoke([{"role": "user", "content": "delete a"}])
    (request,) = [b for b in first.content if b.get("type") == "mcp_approval_request"]
    answer = {
        "type": "mcp_approval_response",
        "approval_request_id": request["id"],
        "approve": True,
    }
    last = model.invoke(
        [
            {"role": "user", "content": "delete a"},
            first,
            {"role": "user", "content": [answer]},
        ]
    )
    assert "It is gone." in last.text and world.deleted == ["a"]


def test_openais_client_in_node_streams_and_approves(start: Start) -> None:
    world = start("Hello.", deletion("a"), "It is gone.")
    url = f"{world.service.url}/v1"
    assert ran(SCRIPT, ("openai@7.59.0",), OPENAI_BASE_URL=url, OPENAI_API_KEY="any") == "ok\n"
    assert world.deleted == ["a"]
