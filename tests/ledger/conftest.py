"""The storages on which the ledger's stores are tested."""

from __future__ import annotations

import os
import secrets
import sys
from collections.abc import Iterator
from pathlib import Path

import psycopg
import pytest

sys.path.insert(0, str(Path(__file__).parent.parent))

from assent.ledger.conformance import Factory
from assent.ledger.memory import MemoryStore
from assent.ledger.postgres import PostgresStore
from assent.ledger.sqlite import SqliteStore

SERVER = os.environ.get("ASSENT_TEST_POSTGRES", "postgresql://postgres@127.0.0.1:5432/test")


@pytest.fixture
def postgres_url() -> Iterator[str]:
    """The URL of a schema of this test's own; skips where no server runs, but not in CI."""
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


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """Where a test's SQLite store lies; its folder does not exist yet."""
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
