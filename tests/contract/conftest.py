"""The service under test: `served(agent, **settings)` returns a client of it."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

sys.path.insert(0, str(Path(__file__).parent.parent))
sys.path.insert(0, str(Path(__file__).parent))

from serving import Serve, Service, service

from databases import empty_schema


@pytest.fixture
def served(tmp_path: Path) -> Iterator[Serve]:
    """Serve agents over real sockets; all of them end with the test."""
    with ExitStack() as stack:

        def serve(agent: Any, given: Sequence[object] = (), **settings: Any) -> Service:
            return stack.enter_context(service(agent, tmp_path, given, **settings))

        yield serve


@pytest.fixture(params=["sqlite", "postgresql"])
def ledger_url(request: pytest.FixtureRequest) -> Iterator[str]:
    """The URL of an empty store, of each kind that processes can share."""
    if request.param == "sqlite":
        yield "sqlite:///calls.db"
        return
    with empty_schema() as url:
        yield url


@pytest.fixture(scope="module")
def echo(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Service]:
    """One service for the module, whose agent answers `fine` to everything."""
    with service(lambda messages, context: "fine", tmp_path_factory.mktemp("echo")) as running:
        yield running
