"""Puts the helpers beside the tests on the path; an empty schema of PostgreSQL."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))
sys.path.insert(0, str(Path(__file__).parents[3] / "tests"))

from databases import empty_schema


@pytest.fixture
def postgres_url() -> Iterator[str]:
    """The URL of an empty PostgreSQL schema."""
    with empty_schema() as url:
        yield url
