"""Further common clients: the Agents SDK, LangChain, and OpenAI's own in Node."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from openai_world import Start, deletion

sys.path.insert(0, str(Path(__file__).parents[3] / "tests"))

from npm import ran
from pips import python_with

pytestmark = pytest.mark.slow
FOLDER = Path(__file__).parent


def talked(script: str, package: str, *arguments: str) -> str:
    """The output of a script that uses this package."""
    python = python_with(Path(script).stem, package)
    done = subprocess.run(
        [python, FOLDER / script, *arguments], capture_output=True, text=True, timeout=120
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


def test_the_agents_sdk_interrupts_and_goes_on(start: Start) -> None:
    world = start(deletion("a"), "It is gone.")
    url = f"{world.service.url}/v1"
    assert talked("agents_client.py", "openai-agents==0.24.0", url) == "It is gone."
    assert world.deleted == ["a"]


@pytest.mark.parametrize("way", ["chat", "responses"])
def test_langchain_talks_and_passes_an_approval(start: Start, way: str) -> None:
    world = start("Hello.", deletion("a"), "It is gone.")
    url = f"{world.service.url}/v1"
    said = talked("langchain_client.py", "langchain-openai==1.7.4", url, way)
    assert (said, world.deleted) == (("Hello.", []) if way == "chat" else ("It is gone.", ["a"]))


def test_openais_client_in_node_streams_and_approves(start: Start) -> None:
    world = start("Hello.", deletion("a"), "It is gone.")
    url = f"{world.service.url}/v1"
    script = FOLDER / "openai_client.mjs"
    assert ran(script, ("openai@7.59.0",), OPENAI_BASE_URL=url, OPENAI_API_KEY="any") == "ok\n"
    assert world.deleted == ["a"]
