"""The `offline` model: deterministic, without network, and not a language model.

It matches the user's words to tools and takes arguments from them, and says so.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Mapping
from typing import Any

from sayso import Ask
from sayso.models.adapters import ModelEvent, streamed
from sayso_demo.offline.answering import answer

__all__ = ["Offline", "connect"]


def connect(name: str, settings: Mapping[str, Any]) -> Offline:
    """The offline model; it has no settings."""
    return Offline(name or "offline")


class Offline:
    """A `Model` that answers by rules."""

    provider = "offline"
    never_blocks = True

    def __init__(self, name: str = "offline") -> None:
        self.name = name

    def __repr__(self) -> str:
        return f"Offline({self.name!r})"

    async def stream(self, ask: Ask) -> AsyncGenerator[ModelEvent, None]:
        """Deltas word by word, then exactly one Reply, last."""
        for event in streamed(answer(ask)):
            yield event
