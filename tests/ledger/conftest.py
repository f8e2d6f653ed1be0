"""The storages on which the ledger's stores are tested."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent.parent))

from databases import empty_schema
from sayso.ledger.conformance.samples import Factory
from sayso.ledger.memory import MemoryStore
from sayso.ledger.sqlite import SqliteStore
from sayso_postgres.store import PostgresStore


@pytest.fixture
def postgres_url() -> Iterator[str]:
    """The URL of an empty PostgreSQL schema."""
    with empty_schema() as url:
        yield url


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """The path of a test's SQLite store; its folder does not exist yet."""
    return tmp_path / "state" / "ledger.db"


@pytest.fixture(params=["memory", "sqlite", "postgres"])
def factory(request: pytest.FixtureRequest, path: Path) -> Factory:
    """A factory of stores over one empty storage."""
    if request.param == "memory":
        return MemoryStore
    if request.param == "sqlite":
        return lambda: SqliteStore(path)
    url = request.getfixturevalue("postgres_url")
    return lambda: PostgresStore(url)
