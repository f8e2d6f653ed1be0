"""Services under faults that are drawn by chance, from a seed."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent.parent))
sys.path.insert(0, str(Path(__file__).parent.parent / "contract"))
sys.path.insert(0, str(Path(__file__).parent.parent / "approvals"))
sys.path.insert(0, str(Path(__file__).parent))

from processes import Nursery

from databases import empty_schema


@pytest.fixture(scope="module")
def nursery() -> Iterator[Nursery]:
    """Starts service processes; all of them end with the module."""
    made = Nursery()
    yield made
    made.close()


@pytest.fixture
def postgres_url() -> Iterator[str]:
    """The URL of an empty PostgreSQL schema."""
    with empty_schema() as url:
        yield url
