"""Calls that wait for a decision on Sayso's own page."""

from __future__ import annotations

import asyncio
import hashlib
from dataclasses import dataclass, field
from typing import Any

import mcp_types as types
from pydantic_core import to_json

from sayso import Caller, Host, Proposal


@dataclass(slots=True)
class Waiting:
    """The calls of one caller that wait: the id of the proposal for the digest of each.

    Whoever calls again finds them, also in another session, or after a restart.
    """

    ids: dict[str, str] = field(default_factory=dict)
    lock: asyncio.Lock = field(default_factory=asyncio.Lock)
    is_read: bool = False

    async def read(self, host: Host, caller: Caller) -> None:
        """Know what the ledger has, once; under the lock."""
        if not self.is_read:
            for row in await host.calls.proposed(caller):
                self.ids[digest(row.name, row.asked)] = row.id
            self.is_read = True


def who(caller: Caller) -> str:
    """The name of the caller among those whose calls wait."""
    return f"{caller.principal!r} {caller.address!r} {caller.client!r}"


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
        f"Waiting for approval: the tool {row.name!r} has not run. A person decides on Sayso's "
        f"page, or with: sayso approvals approve {row.id}\n"
        "Call it again with the same arguments to learn what became of it."
    )
    structured = {"approval": {"id": row.id, "state": "PENDING", "name": row.name}}
    return types.CallToolResult(
        content=[types.TextContent(text=text)], structured_content=structured
    )
