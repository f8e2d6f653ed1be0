"""A service with the inbox, whose agent has a gated tool, and three persons and an agent."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))

from inbox import Inbox, configured, deleting

from sayso.testing import served


@pytest.fixture
def inbox() -> Iterator[Inbox]:
    """A service of its own."""
    with served(deleting(), config=configured()) as service:
        yield Inbox(service)
