"""The pytest plugin of Sayso; pytest finds it by its entry point, so importing it costs little."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from sayso.testing import Served


@pytest.fixture
def sayso_served() -> Iterator[Served]:
    """Serve agents as `sayso.testing.served` does; all of them end with the test."""
    from sayso.testing import Served

    serve = Served()
    try:
        yield serve
    finally:
        serve.close()
