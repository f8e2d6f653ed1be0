"""Calls that wait for a decision on Assent's own page."""

from __future__ import annotations

import hashlib
from typing import Any

import mcp_types as types
from pydantic_core import to_json

from assent import Proposal


def digest(name: str, input: dict[str, Any]) -> str:
    """What makes two calls the same: the tool, and its arguments in any order."""
    canonical = to_json({"name": name, "input": _sorted(input)})
    return hashlib.sha256(canonical).hexdigest()


def _sorted(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _sorted(value[key]) for key in sorted(value)}
    return [_sorted(item) for item in value] if isinstance(value, list) else value


def pending(row: Proposal) -> types.CallToolResult:
    """The result of a call that waits, with its id."""
    text = (
        f"Waiting for approval: the tool {row.name!r} has not run. A person decides on Assent's "
        f"page, or with: assent approvals approve {row.id}\n"
        "Call it again with the same arguments to learn what became of it."
    )
    structured = {"approval": {"id": row.id, "state": "PENDING", "name": row.name}}
    return types.CallToolResult(
        content=[types.TextContent(text=text)], structured_content=structured
    )
