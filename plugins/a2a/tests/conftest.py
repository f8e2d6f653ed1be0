"""A service for the tests of this folder."""

from __future__ import annotations

import socket
import sys
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

sys.path.insert(0, str(Path(__file__).parent))

from a2a_services import Cluster, Serve, Service, configured, running


@pytest.fixture
def serve(tmp_path: Path) -> Iterator[Serve]:
    """A function that serves an agent until the test ends: `serve(agent, ledger=..., **a2a)`.

    `app` holds options of `create_app`, `config` stands in place of the settings.
    """
    with ExitStack() as stack:

        def start(agent: object, *, app: dict[str, Any] | None = None, **given: Any) -> Service:
            config = given.pop("config", None) or configured(tmp_path, **given)
            return stack.enter_context(running(agent, config, **(app or {})))

        yield start


@pytest.fixture
def cluster() -> Iterator[Cluster]:
    """An agent with a gated tool; what it holds is let go at the end."""
    made = Cluster()
    yield made
    made.holding.set()


@pytest.fixture
def unused_port() -> int:
    """A port of this machine that nobody listens on."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port: int = free.getsockname()[1]
        return port
