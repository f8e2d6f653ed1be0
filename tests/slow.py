"""Parameters of tests that take long: few of them run each time, the others with `--all`."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import pytest


def few(values: Iterable[Any], *first: Any) -> list[Any]:
    """The values as parameters; all but `first` are marked slow."""
    return [v if v in first else pytest.param(v, marks=pytest.mark.slow) for v in values]
