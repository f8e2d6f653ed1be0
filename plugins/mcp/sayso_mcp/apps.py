"""The approval card as an MCP App: in hosts that show apps a person decides beside the call.

Only the card can decide. Its tool is listed for clients that show apps, which keep it from the
model. It also requires a key for each call, which is only in the `_meta` of the result; hosts give
that to the card and not to the model.
"""

from __future__ import annotations

import asyncio
import hashlib
import hmac
from collections.abc import Iterable
from pathlib import Path
from typing import Any, Protocol

import mcp_types as types
from pydantic_core import to_json

from sayso import Host, InvalidRequest, Proposal, StillRunning, Tool, ToolInputError
from sayso_mcp.calls import ToolCalls
from sayso_mcp.content import said
from sayso_mcp.peers import Context, caller_of, peer_of, principal_of
from sayso_mcp.person import LONGEST

EXTENSION = "io.modelcontextprotocol/ui"
MIME = "text/html;profile=mcp-app"
URI = "ui://sayso/approval.html"
META = "sayso/approval"
"""The key of `_meta` under which a result has what the card shows."""
SHOWN_ON: dict[str, Any] = {"ui": {"resourceUri": URI}}
"""The `_meta` of tools whose results the card is shown on."""
_SCHEMA = {
    "type": "object",
    "properties": {
        "id": {"type": "string"},
        "key": {"type": "string"},
        "input": {"type": "object"},
        "approve": {"type": "boolean"},
        "reason": {"type": "string", "maxLength": 1000},
    },
    "required": ["id", "key", "input", "approve"],
    "additionalProperties": False,
}


class Call(Protocol):
    """A pending call, from the ledger or from a reply of the agent."""

    id: str
    name: str
    input: dict[str, Any]
    description: str
    intent: str | None


class Card:
    """The card of one service, and its decisions."""

    def __init__(self, host: Host, settings: Any, calls: ToolCalls, key: bytes) -> None:
        self._host = host
        self._settings = settings
        self._calls = calls
        self._key = key
        self.tool: Tool = Tool(
            _shape,
            name="sayso_decide",
            title="Decide",
            description="For the approval card alone: decide on a call that waits.",
            input_schema=_SCHEMA,
        )

    def is_shown(self, context: Context) -> bool:
        """Whether the client shows the card, and its person may decide there."""
        capabilities = context.session.client_capabilities
        extensions = (capabilities.extensions if capabilities else None) or {}
        types_ = (extensions.get(EXTENSION) or {}).get("mimeTypes")
        return self._settings.approvals == "client" and MIME in (types_ or ())

    def described(self) -> types.Tool:
        """The tool of the card, which hosts keep from the model."""
        return types.Tool(
            name=self.tool.name,
            title=self.tool.title,
            description=self.tool.description,
            input_schema=self.tool.input_schema,
            meta={"ui": {"resourceUri": URI, "visibility": ["app"]}},
        )

    def with_card(
        self, context: Context, result: types.CallToolResult, calls: Iterable[Call]
    ) -> types.CallToolResult:
        """The result with the card's data on these pending calls, for clients that show it."""
        if not self.is_shown(context):
            return result
        shown = [
            {
                "id": call.id,
                "key": self._key_of(call.id, context),
                "name": call.name,
                "input": call.input,
                "description": call.description,
                "intent": call.intent,
            }
            for call in calls
            if len(to_json(call.input)) < LONGEST
        ]
        result.meta = {**(result.meta or {}), META: {"decide": self.tool.name, "calls": shown}}
        return result

    def _key_of(self, id_: str, context: Context) -> str:
        text = to_json([id_, principal_of(context)])
        return hmac.new(self._key, text, hashlib.sha256).hexdigest()

    async def call(
        self, context: Context, params: types.CallToolRequestParams
    ) -> types.CallToolResult:
        """Decide as the person at the card did; returns the outcome in words."""
        given = params.arguments or {}
        try:
            self.tool.validate(given)
        except ToolInputError as error:
            return said(f"Error: {error}", error=True)
        if not hmac.compare_digest(given["key"], self._key_of(given["id"], context)):
            return said("Error: this is not the key of that call", error=True)
        try:
            return _words(await self._decided(context, given))
        except InvalidRequest as error:
            return said(f"Not decided: {error.items[0]['msg']}", error=True)
        except (StillRunning, TimeoutError):
            return said("Approved; it still runs. Its end is recorded when it comes.")

    async def _decided(self, context: Context, given: dict[str, Any]) -> Proposal:
        caller = caller_of(context)
        row = await self._host.calls.look(given["id"], caller)
        work = self._host.calls.decide(
            given["id"],
            caller,
            approved=given["approve"],
            kind=row.kind if row is not None else "tool_call",
            reason=None if given["approve"] else given.get("reason") or None,
            input=given["input"],
            session=peer_of(context).session,
            # The calls of a conversation run where that continues.
            run=row is None or not row.reference,
        )
        # An approved call goes on if the client abandons this request.
        async with asyncio.timeout(self._host.config.limits.turn_time):
            return await asyncio.shield(self._calls.keep(work))

    def resource(self) -> types.Resource:
        """The card in the list of resources."""
        return types.Resource(uri=URI, name="approval", title="Approval", mime_type=MIME)

    def contents(self) -> types.TextResourceContents:
        """The page of the card."""
        page = Path(__file__).with_name("card.html").read_text(encoding="utf-8")
        meta = {"ui": {"prefersBorder": False}}
        return types.TextResourceContents(uri=URI, mime_type=MIME, text=page, meta=meta)


def _words(row: Proposal) -> types.CallToolResult:
    match row.state:
        case "DONE":
            return said(f"Approved. It gave: {row.output}")
        case "FAILED" | "INDETERMINATE":
            return said(f"Approved. {row.output}", error=True)
        case "REJECTED":
            reason = row.decision.reason if row.decision else None
            return said(f"Rejected{f': {reason}' if reason else ''}. It has not run.")
        case "APPROVED":
            return said("Approved. It runs when the conversation goes on.")
    return said(f"The call is {row.state.lower()}.")


def _shape(**_: Any) -> None:
    """A placeholder function: of this tool only the name and the schema are used."""
