"""A server that answers as the provider does, and no key or address of the machine's own."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parents[3] / "tests" / "models"))

from gemini_server import GeminiServer
from providers import forget_keys


@pytest.fixture(autouse=True)
def _no_keys(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    forget_keys(monkeypatch, tmp_path)


@pytest.fixture
def gemini_server() -> Iterator[GeminiServer]:
    with GeminiServer() as server:
        yield server
