"""The marks in a request after which the provider caches everything before them.

A request has at most four marks. They are at the points up to which the next request is the same:
after the tools, after the static system prompt, after the user's last text, and after the newest
results.
"""

from __future__ import annotations

from typing import Any

_MARK = {"cache_control": {"type": "ephemeral"}}
_UNMARKED = ("thinking", "redacted_thinking")


def marked(block: dict[str, Any]) -> dict[str, Any]:
    """`block` with a mark."""
    return {**block, **_MARK}


def marked_last(blocks: list[Any]) -> list[Any]:
    """`blocks` with a mark on the last one that takes it."""
    for n in range(len(blocks) - 1, -1, -1):
        if blocks[n].get("type") not in _UNMARKED:
            return [*blocks[:n], marked(blocks[n]), *blocks[n + 1 :]]
    return list(blocks)
