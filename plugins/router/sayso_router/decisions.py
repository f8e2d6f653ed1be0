"""A router's decision, and reading it from the answer."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

_NOTHING = object()


@dataclass(frozen=True, slots=True)
class Decision:
    """Whether the agent answers, and why (interface.md, rule 6 of "Endpoints")."""

    should_respond: bool
    reasoning: str = ""


def decision_of(value: object) -> Decision:
    """`value`, an object or mapping, as a Decision; ValueError says what is wrong with it."""

    def get(name: str) -> object:
        if isinstance(value, Mapping):
            return value.get(name, _NOTHING)
        return getattr(value, name, _NOTHING)

    respond, reasoning = get("should_respond"), get("reasoning")
    if not isinstance(respond, bool):
        given = type(respond).__name__
        given = type(value).__name__ if respond is _NOTHING else f"should_respond as {given}"
        raise ValueError(
            "a router must return an object or dict with should_respond (true or false) and "
            f"reasoning; it returned {given}"
        )
    return Decision(respond, "" if reasoning in (_NOTHING, None) else str(reasoning))
