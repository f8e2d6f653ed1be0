"""Questions that an MCP server asks while it runs one of the agent's tools (elicitation).

Each is a proposal of a tool that no model is offered, and a person decides on it as on a call.
Approved, the server gets its yes. Rejected, or if it is not certain whose call the question belongs
to, it is declined.
"""

from __future__ import annotations

import asyncio
import hashlib
import logging
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import mcp_types as types

from sayso import Caller, Proposal, RequestContext, SaysoError, SourceHost, Tool

logger = logging.getLogger("sayso.mcp")
_LOOK = 0.3
_ENDED = "the call that asked has ended"
_SCHEMA = {
    "type": "object",
    "properties": {
        "server": {"type": "string", "description": "The MCP server that asks."},
        "tool": {"type": "string", "description": "The tool that it is running."},
        "question": {"type": "string", "description": "What it asks, in its own words."},
        "answer": {"type": "string", "description": "The field of its form that becomes true."},
    },
    "required": ["server", "tool", "question", "answer"],
}


@dataclass(frozen=True, slots=True)
class CallUnderWay:
    """A running call: the tool, and the context of the request that it runs for."""

    tool: str
    context: RequestContext

    @property
    def caller(self) -> Caller:
        """The caller on whose behalf the tool runs."""
        return Caller(self.context.protocol or "mcp", self.context.principal)


class Asker:
    """Answers the questions of one server; lives on the loop of its connection."""

    def __init__(self, label: str, calls: Mapping[object, CallUnderWay]) -> None:
        self.label = label
        self.calls = calls
        self.tool = _question_tool(label)

    async def __call__(
        self, host: SourceHost, params: types.ElicitRequestParams
    ) -> types.ElicitResult:
        """The answer to one question."""
        asked, field = self._asked(), field_of(params)
        if asked is None or field is None:
            logger.info("a question of the MCP server %r was declined", self.label)
            return types.ElicitResult(action="decline")
        try:
            approved = await self._approved(host, asked, params.message, field)
        except SaysoError as error:
            logger.info("a question of the MCP server %r was declined: %s", self.label, error)
            approved = False
        if approved:
            return types.ElicitResult(action="accept", content={field: True})
        return types.ElicitResult(action="decline")

    def _asked(self) -> CallUnderWay | None:
        """The call that the question belongs to; None if it could belong to another person.

        The protocol does not name the call. It is certain whom to ask only while all running calls
        are of one person.
        """
        running = list(self.calls.values())
        people = {(a.context.principal, a.context.platform.tenant_name) for a in running}
        return running[-1] if len(people) == 1 else None

    async def _approved(
        self, host: SourceHost, asked: CallUnderWay, question: str, field: str
    ) -> bool:
        tools = {each.tool for each in self.calls.values()}
        input = {
            "server": self.label,
            "tool": " or ".join(sorted(tools)),
            "question": question,
            "answer": field,
        }
        calls, caller, platform = host.calls, asked.caller, asked.context.platform
        row = await calls.propose(self.tool.name, input, caller, platform=platform)
        asked.context.update(
            f"the MCP server {self.label!r} asks; a person decides on {row.id}",
            {"approval": row.id},
        )
        try:
            row = await self._decided(host, row, asked)
        except asyncio.CancelledError:
            await asyncio.shield(calls.withdraw([row.id], caller, _ENDED))
            raise
        if row.state == "PENDING":
            await calls.withdraw([row.id], caller, _ENDED)
        if row.state == "APPROVED":
            row = await calls.decide(
                row.id, caller, approved=True, platform=platform, seen=row.seen
            )
        return bool(row.state == "DONE")

    async def _decided(self, host: SourceHost, row: Proposal, asked: CallUnderWay) -> Proposal:
        """The proposal once somebody has decided on it, or as it is when the call ends."""
        while row.state in ("PENDING", "EXECUTING") and asked in self.calls.values():
            if row.state == "EXECUTING":
                await asyncio.sleep(_LOOK)
            rows = await host.calls.settled([row.id], asked.caller, _LOOK)
            row = rows[0] if rows else row
        return row


def field_of(params: types.ElicitRequestParams) -> str | None:
    """The only field of a form if a yes answers it; None if the form needs more, or asks to open a
    page."""
    if not isinstance(params, types.ElicitRequestFormParams):
        return None
    schema: dict[str, Any] = params.requested_schema
    properties = schema.get("properties", {})
    needed = schema.get("required") or (list(properties) if len(properties) == 1 else [])
    if len(needed) != 1 or properties.get(needed[0], {}).get("type") != "boolean":
        return None
    name: str = needed[0]
    return name


def _question_tool(label: str) -> Tool:
    async def answer(**_: Any) -> str:
        return "The server was told yes."

    tool = Tool(
        answer,
        name=f"question_{hashlib.sha256(label.encode()).hexdigest()[:12]}",
        description=f"Answer yes to what the MCP server {label} asks before it goes on.",
        input_schema=_SCHEMA,
        requires_approval=True,
    )
    tool.offered = False
    return tool
