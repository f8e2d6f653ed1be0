"""Further common clients: the Agents SDK, LangChain, and OpenAI's own in Node."""

from __future__ import annotations

import subprocess
import sys
from importlib.metadata import distributions
from pathlib import Path
from typing import Any

import pytest
from openai_world import Start, World, deletion

sys.path.insert(0, str(Path(__file__).parents[3] / "tests"))

from npm import ran

pytestmark = pytest.mark.slow
SCRIPT = Path(__file__).parent / "openai_client.mjs"
AGENTS = Path(__file__).parent / "agents_client.py"


def test_the_agents_sdk_interrupts_and_goes_on(start: Start) -> None:
    # In a process of its own: modules of other tests have the name of its package, too.
    if not any(each.name == "openai-agents" for each in distributions()):
        pytest.skip("openai-agents is not installed")
    world = start(deletion("a"), "It is gone.")
    ran = subprocess.run(
        [sys.executable, AGENTS, f"{world.service.url}/v1"], capture_output=True, text=True
    )
    assert ran.stdout.strip() == "It is gone.", ran.stderr
    assert world.deleted == ["a"]


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
