"""Services under faults: in this process (`served`), or as processes of their own (`nursery`)."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

sys.path.insert(0, str(Path(__file__).parent.parent))
sys.path.insert(0, str(Path(__file__).parent.parent / "contract"))
sys.path.insert(0, str(Path(__file__).parent))

from processes import Nursery
from serving import Serve, Service, service
from stages import boottime

from databases import empty_schema
from sayso.ledger import claiming, claims


@pytest.fixture
def served(tmp_path: Path) -> Iterator[Serve]:
    """Serve agents over real sockets; all of them end with the test."""
    with ExitStack() as stack:

        def serve(agent: Any, given: Sequence[object] = (), **settings: Any) -> Service:
            return stack.enter_context(service(agent, tmp_path, given, **settings))

        yield serve


@pytest.fixture(autouse=True)
def _staged_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """Time that a test lets pass goes by for its processes, too."""
    for module in (claims, claiming):
        monkeypatch.setattr(module, "boottime", boottime)


@pytest.fixture(scope="session")
def _nursery() -> Iterator[Nursery]:
    nursery = Nursery()
    yield nursery
    nursery.close()


@pytest.fixture
def nursery(_nursery: Nursery, request: pytest.FixtureRequest) -> Iterator[Nursery]:
    """Starts service processes; all of them end with the test."""
    if "postgres_url" in request.fixturenames:
        # Made first, and therefore dropped when no process uses it any more.
        request.getfixturevalue("postgres_url")
    yield _nursery
    _nursery.clear()


@pytest.fixture
def postgres_url() -> Iterator[str]:
    """The URL of an empty PostgreSQL schema."""
    with empty_schema() as url:
        yield url


@pytest.fixture(params=["sqlite", "postgres"])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[str]:
    """The address of an empty ledger in a database of each kind."""
    if request.param == "sqlite":
        yield f"sqlite:///{tmp_path / 'approvals.db'}"
    else:
        with empty_schema() as schema:
            yield schema
