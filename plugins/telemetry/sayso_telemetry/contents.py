"""The words of turns, calls and tools as attributes; only where the user asks for them.

`OTEL_INSTRUMENTATION_GENAI_CAPTURE_MESSAGE_CONTENT` asks: `SPAN_ONLY` or `SPAN_AND_EVENT`. The
secrets of the request are masked even then, and long values are cut.
"""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from typing import Any

from sayso import Attachment, Call, ModelCallBegan, Reply, Result, Text, Turn, mask
from sayso_telemetry import names

LONGEST = 64 * 1024
"""Most characters of one attribute."""


def wanted() -> bool:
    """Whether the user asks for contents."""
    return os.environ.get(names.CAPTURE, "").strip().upper() in names.CAPTURED


def written(value: object, secrets: Sequence[str]) -> str:
    """`value` as JSON text without the secrets, cut to its limit."""
    plain = mask(json.loads(json.dumps(value, default=str)), secrets)
    text = json.dumps(plain, ensure_ascii=False)
    return text if len(text) <= LONGEST else f"{text[:LONGEST]}... ({len(text)} characters)"


def asked(call: ModelCallBegan) -> dict[str, str]:
    """The attributes with what a model is asked."""
    ask = call.ask
    instructions = [{"type": "text", "content": text} for text in (ask.system, ask.context) if text]
    found = {names.INPUT_MESSAGES: written([_message(turn) for turn in ask.turns], ask.secrets)}
    if instructions:
        found[names.INSTRUCTIONS] = written(instructions, ask.secrets)
    if ask.tools:
        tools = [
            {
                "type": "function",
                "name": tool.name,
                "description": tool.description,
                "parameters": dict(tool.input_schema),
            }
            for tool in ask.tools
        ]
        found[names.DEFINITIONS] = written(tools, ask.secrets)
    return found


def answered(reply: Reply, secrets: Sequence[str]) -> dict[str, str]:
    """The attributes with the answer of a model."""
    message = {**_message(reply.turn), "finish_reason": reply.stop}
    return {names.OUTPUT_MESSAGES: written([message], secrets)}


def _message(turn: Turn) -> dict[str, Any]:
    return {"role": turn.role, "parts": [_part(block) for block in turn.blocks]}


def _part(block: Text | Call | Result | Attachment) -> dict[str, Any]:
    match block:
        case Text():
            return {"type": "text", "content": block.text}
        case Call():
            arguments = dict(block.input)
            return {"type": "tool_call", "id": block.id, "name": block.name, "arguments": arguments}
        case Result():
            return {"type": "tool_call_response", "id": block.call_id, "response": block.output}
        case Attachment():
            return {"type": "uri" if block.url else "blob", "mime_type": block.mime}
