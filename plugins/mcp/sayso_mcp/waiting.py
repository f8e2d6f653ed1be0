"""Calls that wait for a decision on Sayso's own page."""

from __future__ import annotations

import asyncio
import hashlib
import json
from dataclasses import dataclass, field
from typing import Any

import mcp_types as types

from sayso import Caller, Host, Proposal

CANCELLED = "the client cancelled its call"
"""The reason recorded for a call that its client cancelled."""


@dataclass(slots=True)
class Waiting:
    """The waiting calls of one caller: the digest of each call and the id of its proposal.

    The same call finds its proposal again, even from another session or after a restart.
    """

    ids: dict[str, str] = field(default_factory=dict)
    no_longer_asked: set[str] = field(default_factory=set)
    """The proposals among them that no client is asking a person about any more."""
    lock: asyncio.Lock = field(default_factory=asyncio.Lock)
    is_read: bool = False

    async def read(self, host: Host, caller: Caller) -> None:
        """Load the caller's calls from the ledger, once; call it under the lock."""
        if not self.is_read:
            for row in await host.calls.proposed(caller):
                self.ids[digest(row.name, row.asked)] = row.id
            self.is_read = True

    def leave(self, key: str, id_: str) -> None:
        """Let the same call find the proposal again."""
        self.ids[key] = id_
        self.no_longer_asked.add(id_)

    def forget(self, key: str, id_: str) -> None:
        """Let the same call be a new one, if it would find this very proposal."""
        if self.ids.get(key) == id_:
            self.drop(id_)

    def drop(self, id_: str) -> None:
        """Forget the proposal."""
        self.no_longer_asked.discard(id_)
        self.ids = {key: known for key, known in self.ids.items() if known != id_}


def who(caller: Caller) -> str:
    """The caller's name in the table of waiting calls."""
    return f"{caller.principal!r} {caller.address!r} {caller.client!r}"


def digest(name: str, input: dict[str, Any]) -> str:
    """The digest that makes two calls the same: of the tool and its arguments in any order."""
    text = json.dumps([name, input], sort_keys=True)
    return hashlib.sha256(text.encode()).hexdigest()


def pending(row: Proposal, page: str | None) -> types.CallToolResult:
    """The result of a call that waits, with its id and the ways to decide on it.

    It is an error, so that nobody takes it for the tool's own result.
    """
    text = (
        f"Waiting for approval: the tool {row.name!r} has not run. {ways(row.id, page)}\n"
        "Call it again with the same arguments to learn what became of it."
    )
    structured = {"approval": {"id": row.id, "state": "PENDING", "name": row.name}}
    return types.CallToolResult(
        content=[types.TextContent(text=text)], structured_content=structured, is_error=True
    )


def ways(id_: str, page: str | None) -> str:
    """A sentence on where a person decides."""
    where = f"on {page}#{id_}" if page else "on Sayso's page"
    return f"A person decides {where}, or with: sayso approvals approve {id_}"


def no_way(name: str) -> str:
    """Why nobody could ever approve the call, and how to change that."""
    return (
        f"the tool {name!r} needs a person's approval, and this client cannot ask for it: it does "
        "not declare form elicitation; connect one that does, or set plugin.mcp.page to the "
        "address of Sayso's page, or approvals.ledger to one that other processes share"
    )
