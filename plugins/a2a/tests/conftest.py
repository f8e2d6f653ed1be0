"""A service for the tests of this folder."""

from __future__ import annotations

import runpy
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

sys.path.insert(0, str(Path(__file__).parent))
sys.path.insert(0, str(Path(__file__).parents[3] / "tests"))

from a2a_services import AGENT, Cluster, Pause, Serve, Service, configured, running

from ports import quiet_port


@pytest.fixture
def serve(tmp_path: Path) -> Iterator[Serve]:
    """A function that serves an agent until the test ends: `serve(agent, ledger=..., **a2a)`.

    `app` has options of `create_app`; `config` replaces the settings.
    """
    with ExitStack() as stack:

        def start(agent: object, *, app: dict[str, Any] | None = None, **given: Any) -> Service:
            config = given.pop("config", None) or configured(tmp_path, **given)
            return stack.enter_context(running(agent, config, **(app or {})))

        yield start


@pytest.fixture
def cluster() -> Iterator[Cluster]:
    """An agent with a gated tool; a waiting tool is released at the end."""
    made = Cluster()
    yield made
    made.holding.set()


@pytest.fixture
def unused_port() -> int:
    """A port of this machine that nobody listens on, and that no other test gets."""
    return quiet_port()


@pytest.fixture(scope="module")
def kit_agent() -> Callable[..., Any]:
    """The agent of the protocol's test kit."""
    agent: Callable[..., Any] = runpy.run_path(str(AGENT))["agent"]
    return agent


@pytest.fixture
def pause(kit_agent: Callable[..., Any], monkeypatch: pytest.MonkeyPatch) -> Iterator[Pause]:
    """The kit's agent, which works until the test releases it instead of for some seconds."""
    made = Pause()
    monkeypatch.setitem(kit_agent.__globals__, "asyncio", made)  # type: ignore[attr-defined]
    yield made
    made.over.set()
