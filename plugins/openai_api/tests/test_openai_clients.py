"""Further common clients: the Agents SDK, LangChain, and OpenAI's own in Node."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from openai_world import Start, World, deletion

sys.path.insert(0, str(Path(__file__).parents[3] / "tests"))

from npm import ran
from pips import python_with

pytestmark = pytest.mark.slow
FOLDER = Path(__file__).parent
SCRIPT = FOLDER / "openai_client.mjs"
AGENTS = "openai-agents==0.24.0"
LANGCHAIN = "langchain-openai==1.7.4"


def said(script: str, package: str, world: World, *arguments: str) -> list[str]:
    """The lines of a client in an environment of its own, away from the one of the tests."""
    python = python_with(package.partition("==")[0], package)
    command = [python, FOLDER / script, f"{world.service.url}/v1", *arguments]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()


def test_the_agents_sdk_interrupts_and_goes_on(start: Start) -> None:
    world = start(deletion("a"), "It is gone.")
    assert said("agents_client.py", AGENTS, world) == ["It is gone."]
    assert world.deleted == ["a"]


@pytest.mark.parametrize("api", ["chat", "responses"])
def test_langchain_talks_and_passes_an_approval(start: Start, api: str) -> None:
    world = start("Hello.", deletion("a"), "It is gone.")
    hello, *rest = said("langchain_client.py", LANGCHAIN, world, api)
    assert hello == "Hello."
    if api == "responses":
        assert "It is gone." in "".join(rest)
        assert world.deleted == ["a"]


def test_openais_client_in_node_streams_and_approves(start: Start) -> None:
    world = start("Hello.", deletion("a"), "It is gone.")
    url = f"{world.service.url}/v1"
    assert ran(SCRIPT, ("openai@7.59.0",), OPENAI_BASE_URL=url, OPENAI_API_KEY="any") == "ok\n"
    assert world.deleted == ["a"]
