"""A service with AG-UI."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from sayso import Agent, Session, tool
from sayso.testing import scripted, served

sys.path.insert(0, str(Path(__file__).parent))

from agui_world import CONFIG, Start, World


@pytest.fixture
def start() -> Iterator[Start]:
    """Serve an agent whose model says `steps`; `deletion("a")` is a call that needs a person."""
    with ExitStack() as stack:

        def begin(*steps: Any, config: str = "", **options: Any) -> World:
            deleted: list[str] = []

            @tool(requires_approval=True, editable=True)
            def delete(name: str) -> str:
                """Delete a file."""
                if name == "broken":
                    raise ValueError("the disk is broken")
                deleted.append(name)
                return f"deleted {name}"

            @tool
            def count(session: Session) -> str:
                """Count."""
                session.set("n", session.get("n", 0) + 1)
                return str(session.get("n"))

            model = scripted(*steps)
            agent = Agent(name="desk", model=model, tools=[delete, count], **options)
            service = stack.enter_context(served(agent, config=CONFIG + config))
            return World(service, model, deleted)

        yield begin
