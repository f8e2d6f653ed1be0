"""A model that repeats the last message: `model = "echo"`, or `"echo:loud"` for capitals.

In a real one, ask your provider inside `stream`; clients that are bound to an event loop come from
`sayso.per_loop`.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from typing import Any

from sayso import Ask, ModelError, Reply, Text, TextDelta, Turn, Usage


class Echo:
    """A `Model`: deltas word by word, then the reply."""

    provider = "echo"

    def __init__(self, name: str = "") -> None:
        self.name = name

    async def stream(self, ask: Ask) -> AsyncIterator[TextDelta | Reply]:
        """The text of the last turn, or "…" if it has none."""
        if ask.schema is not None:
            raise ModelError("bad_request", "an echo gives no structured replies")
        text = " ".join(block.text for block in ask.turns[-1].blocks if isinstance(block, Text))
        text = (text.upper() if self.name == "loud" else text) or "…"
        for word in text.split(" "):
            yield TextDelta(f"{word} ")
        usage = Usage(output_tokens=len(text.split()))
        yield Reply(Turn("assistant", [Text(f"{text} ")]), "end_turn", usage)


def connect(name: str, settings: Mapping[str, Any]) -> Echo:
    """The model that `echo:NAME` names; the entry point in the group `sayso.models`."""
    return Echo(name)
