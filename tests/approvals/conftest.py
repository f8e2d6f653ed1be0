"""Services under faults: in this process (`served`), or as processes of their own (`nursery`)."""

from __future__ import annotations

import os
import secrets
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

SERVER = os.environ.get("ASSENT_TEST_POSTGRES", "postgresql://postgres@127.0.0.1:5432/test")


@pytest.fixture
def served(tmp_path: Path) -> Iterator[Serve]:
    """Serve agents over real sockets; all of them end with the test."""
    with ExitStack() as stack:

        def serve(agent: Any, given: Sequence[object] = (), **settings: Any) -> Service:
            return stack.enter_context(service(agent, tmp_path, given, **settings))

        yield serve


@pytest.fixture(scope="session")
def _nursery() -> Iterator[Nursery]:
    nursery = Nursery()
    yield nursery
    nursery.close()


@pytest.fixture
def nursery(_nursery: Nursery, request: pytest.FixtureRequest) -> Iterator[Nursery]:
    """Starts service processes; all of them end with the test."""
    if "postgres_url" in request.fixturenames:
        # Made before, and so dropped when no process works on it any more.
        request.getfixturevalue("postgres_url")
    yield _nursery
    _nursery.clear()


@pytest.fixture
def postgres_url() -> Iterator[str]:
    """The URL of a schema of this test's own; skips where no server runs, but not in CI."""
    psycopg = pytest.importorskip("psycopg")
    try:
        admin = psycopg.connect(SERVER, autocommit=True, connect_timeout=60)
    except psycopg.OperationalError as error:
        if os.environ.get("CI") == "true":
            raise
        pytest.skip(f"no PostgreSQL server at {SERVER}: {error}")
    schema = f"assent_test_{secrets.token_hex(6)}"
    with admin:
        admin.execute(f"CREATE SCHEMA {schema}".encode())
        yield f"{SERVER}?connect_timeout=60&options=-csearch_path%3D{schema}"
        admin.execute(f"DROP SCHEMA {schema} CASCADE".encode())
