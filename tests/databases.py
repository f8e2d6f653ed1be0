"""PostgreSQL for a test: the server at SAYSO_TEST_POSTGRES, or that of this machine."""

from __future__ import annotations

import os
import secrets
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

SERVER = os.environ.get("SAYSO_TEST_POSTGRES", "postgresql://postgres@127.0.0.1:5432/test")


@contextmanager
def empty_schema() -> Iterator[str]:
    """The URL of a schema of this test's own; skips if no server runs, but not in CI."""
    psycopg = pytest.importorskip("psycopg")
    try:
        admin = psycopg.connect(SERVER, autocommit=True, connect_timeout=60)
    except psycopg.OperationalError as error:
        if os.environ.get("CI") == "true":
            raise
        pytest.skip(f"no PostgreSQL server at {SERVER}: {error}")
    schema = f"sayso_test_{secrets.token_hex(6)}"
    with admin:
        admin.execute(f"CREATE SCHEMA {schema}".encode())
        yield f"{SERVER}?connect_timeout=60&options=-csearch_path%3D{schema}"
        admin.execute(f"DROP SCHEMA {schema} CASCADE".encode())
