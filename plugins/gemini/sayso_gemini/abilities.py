"""The parameters that Gemini models accept, and the numbers of tokens that they read, by
generation."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

CURRENT = (3, 8)


@dataclass(frozen=True, slots=True)
class Abilities:
    """The abilities of one model.

    `levels` says that it thinks by levels and not by a budget of tokens, `thinks` that it thinks at
    all, `signs` that a call must be sent back with its signature, and `warm` that its makers advise
    against changing the default temperature.
    """

    window: int
    thinks: bool
    levels: bool
    signs: bool
    warm: bool
    thinks_off: bool


def abilities_of(model: str) -> Abilities:
    """The abilities of the model with this id; an unknown id is current."""
    found = re.search(r"gemini-(\d+)(?:\.(\d+))?", model)
    version = (int(found[1]), int(found[2] or 0)) if found else CURRENT
    return Abilities(
        window=1_000_000,
        thinks=version >= (2, 5),
        levels=version >= (3, 0),
        signs=version >= (3, 0),
        warm=version >= (3, 0),
        thinks_off=version == (2, 5) and "pro" not in model,
    )


def thinking(able: Abilities, config: Mapping[str, Any], effort: str) -> dict[str, Any]:
    """The request for thinking; it asks for the thoughts of models that have any."""
    if not able.thinks:
        return {}
    level = effort or config.get("thinking_level")
    asked: dict[str, Any] = {"include_thoughts": True}
    if level and able.levels:
        names = {"off": "MINIMAL", "max": "XHIGH"}
        asked["thinking_level"] = names.get(level, str(level).upper())
    elif level == "off" and able.thinks_off:
        return {"thinking_budget": 0}
    elif level:
        asked["thinking_budget"] = _BUDGETS.get(str(level), -1)
    return asked


_BUDGETS = {"off": 128, "minimal": 128, "low": 1_024, "medium": 8_192, "high": 24_576}
"""Tokens; -1 leaves it to the model."""
