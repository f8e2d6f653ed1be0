"""The pytest plugin of Assent; pytest finds it by its entry point, so importing it costs little."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from assent.testing import Served


@pytest.fixture
def assent_served() -> Iterator[Served]:
    """Serve agents as `assent.testing.served` does; all of them end with the test."""
    from assent.testing import Served

    serve = Served()
    try:
        yield serve
    finally:
        serve.close()
