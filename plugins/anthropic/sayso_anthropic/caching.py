"""Where a request says that what stands before is to be cached.

At most four marks are taken. They stand where the next request will begin alike: behind the tools,
behind the static system prompt, behind the user's last text, and behind the newest results.
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
