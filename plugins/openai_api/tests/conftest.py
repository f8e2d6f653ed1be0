"""A service with the OpenAI-compatible endpoint."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
from openai import OpenAI

from sayso import Agent, tool
from sayso.testing import scripted, served

sys.path.insert(0, str(Path(__file__).parent))

from openai_world import CONFIG, Start, World


@pytest.fixture
def start() -> Iterator[Start]:
    """Serve an agent whose model says `steps`; `deletion("a")` is a call that needs a person."""
    with ExitStack() as stack:

        def begin(*steps: Any, config: str = "", key: str = "any", **options: Any) -> World:
            deleted: list[str] = []

            @tool(requires_approval=True)
            def delete(name: str) -> str:
                """Delete a file."""
                if name == "broken":
                    raise ValueError("the disk is broken")
                deleted.append(name)
                return f"deleted {name}"

            model = scripted(*steps)
            agent = Agent(name="desk", model=model, tools=[delete], **options)
            service = stack.enter_context(served(agent, config=CONFIG + config))
            client = OpenAI(base_url=f"{service.url}/v1", api_key=key, max_retries=0)
            stack.enter_context(client)
            return World(service, client, model, deleted)

        yield begin
