"""The tool `chat`: one turn with the agent. Nothing in its input can approve anything."""

from __future__ import annotations

import json
from typing import Any

import mcp_types as types

from sayso import (
    AgentMessage,
    ChatRequest,
    Done,
    ErrorEvent,
    Event,
    Host,
    IntermittentUpdate,
    Session,
    TextDelta,
    Tool,
    ToolInputError,
    fold,
)
from sayso_mcp.content import said
from sayso_mcp.peers import Context, caller_of, peer_of
from sayso_mcp.progress import Progress, wanted

SCHEMA: dict[str, Any] = {
    "type": "object",
    "properties": {
        "message": {"type": "string", "description": "What to say to the agent."},
        "history": {
            "type": "array",
            "description": "Earlier messages of the conversation, oldest first.",
            "items": {
                "type": "object",
                "properties": {
                    "role": {"type": "string", "enum": ["user", "assistant"]},
                    "content": {"type": "string"},
                },
                "required": ["role", "content"],
                "additionalProperties": False,
            },
        },
    },
    "required": ["message"],
    "additionalProperties": False,
}

_PENDING = {"id", "type", "name", "input", "intent", "description"}
"""What is told of a call that waits."""


class Chat:
    """The tool `chat` of one service."""

    def __init__(self, host: Host, name: str) -> None:
        self.host = host
        agent = host.agent
        about = f"\n\n{agent.description}" if agent.description else ""
        self.tool: Tool = Tool(
            _shape,
            name=name,
            input_schema=SCHEMA,
            title=f"Talk to {agent.name}",
            description=(
                f"Talk to the agent {agent.name!r}. Calls that need approval are listed with their "
                f"ids and do not run before a person has approved them elsewhere.{about}"
            ),
        )

    async def call(
        self, context: Context, params: types.CallToolRequestParams
    ) -> types.CallToolResult:
        """The agent's reply; its text comes as progress, too, as it is written."""
        given = params.arguments or {}
        try:
            self.tool.validate(given)
        except ToolInputError as error:
            return said(f"Error: {error}", error=True)
        caller = caller_of(context)
        peer = peer_of(context)
        newest: dict[str, Any] = {"role": "user", "content": given["message"]}
        if (state := peer.session.dump()) is not None:
            newest["data"] = {"session": state}
        messages = [*given.get("history", []), newest]
        if len(messages) > self.host.config.limits.messages:
            return said("Error: the history has too many messages", error=True)
        request = ChatRequest.model_validate({"messages": messages})
        stream = self.host.stream(request, caller)
        # What the reply takes: a long turn may have a hundred thousand pieces and status lines.
        text: list[str] = []
        events: list[Event] = []
        sending = Progress(context) if wanted(context) else None
        try:
            while waiting := await stream.ready():
                text += [e.text for e in waiting if isinstance(e, TextDelta)]
                events += [e for e in waiting if not isinstance(e, TextDelta | IntermittentUpdate)]
                if sending is not None:
                    await _report(sending, waiting)
        finally:
            await stream.aclose()
        end = events[-1]
        if isinstance(end, ErrorEvent):
            incident = f" (incident {end.incident})" if end.incident else ""
            return said(f"Error: {end.error}{incident}", error=True)
        assert isinstance(end, Done)
        reply = fold([TextDelta("".join(text)), *events])
        if reply.data.session is not None:
            peer.session = Session(reply.data.session)
        return _result(reply, end.stop_reason)


async def _report(sending: Progress, events: list[Event]) -> None:
    text = "".join(e.text for e in events if isinstance(e, TextDelta))
    for event in events:
        if isinstance(event, IntermittentUpdate) and event.text:
            await sending.report(event.text)
    if text:
        await sending.report(text)


def _result(reply: AgentMessage, stop_reason: str) -> types.CallToolResult:
    pending = [approval.model_dump(include=_PENDING) for approval in reply.data.approvals]
    texts = [reply.content] if reply.content or not pending else []
    if pending:
        heading = "Waiting for approval; none of these has run:"
        texts.append("\n".join([heading, *map(_line, pending)]))
    structured: dict[str, Any] = {"content": reply.content, "stop_reason": stop_reason}
    if pending:
        structured["pending"] = pending
    return types.CallToolResult(
        content=[types.TextContent(text=text) for text in texts], structured_content=structured
    )


def _line(pending: dict[str, Any]) -> str:
    why = f" ({pending['intent']})" if pending["intent"] else ""
    return f"- {pending['id']}: {pending['name']} {json.dumps(pending['input'])}{why}"


def _shape(**_: Any) -> None:
    """Stands for the tool where only its name and schema count."""
