"""An agent for the official conformance suite: its tools return every kind of MCP content.

sayso mcp examples/mcp_conformance/agent.py:agent --transport streamable-http --port 8001
"""

from __future__ import annotations

import base64
import time
from typing import Any

from sayso import (
    Agent,
    AudioContent,
    ImageContent,
    RequestContext,
    ResourceContent,
    TextContent,
    ToolResult,
    tool,
)

PIXEL = base64.b64decode(
    "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mP8z8DwHwAFBQIAX8jx0gAAAABJRU5E"
    "rkJggg=="
)
SILENCE = (
    b"RIFF"
    + (44).to_bytes(4, "little")
    + b"WAVEfmt "
    + (16).to_bytes(4, "little")
    + (1).to_bytes(2, "little")
    + (1).to_bytes(2, "little")
    + (8000).to_bytes(4, "little")
    + (8000).to_bytes(4, "little")
    + (1).to_bytes(2, "little")
    + (8).to_bytes(2, "little")
    + b"data"
    + (8).to_bytes(4, "little")
    + b"\x80" * 8
)

CONTACT: dict[str, Any] = {
    "$schema": "https://json-schema.org/draft/2020-12/schema",
    "type": "object",
    "$defs": {
        "address": {
            "$anchor": "addressDef",
            "type": "object",
            "properties": {"street": {"type": "string"}, "city": {"type": "string"}},
        }
    },
    "properties": {
        "name": {"type": "string"},
        "address": {"$ref": "#/$defs/address"},
        "contactMethod": {"type": "string", "enum": ["phone", "email"]},
        "phone": {"type": "string"},
        "email": {"type": "string"},
    },
    "allOf": [{"anyOf": [{"required": ["phone"]}, {"required": ["email"]}]}],
    "if": {"properties": {"contactMethod": {"const": "phone"}}, "required": ["contactMethod"]},
    "then": {"required": ["phone"]},
    "else": {"required": ["email"]},
    "additionalProperties": False,
}

REGION: dict[str, Any] = {
    "type": "object",
    "properties": {"region": {"type": "string", "x-mcp-header": "Region"}},
    "required": ["region"],
}


@tool(read_only=True)
def test_simple_text() -> str:
    """Give a text."""
    return "This is a simple text response for testing."


@tool(read_only=True)
def test_image_content() -> ToolResult:
    """Give an image of one pixel."""
    return ToolResult([ImageContent(PIXEL, "image/png")])


@tool(read_only=True)
def test_audio_content() -> ToolResult:
    """Give a millisecond of silence."""
    return ToolResult([AudioContent(SILENCE, "audio/wav")])


@tool(read_only=True)
def test_embedded_resource() -> ToolResult:
    """Give a document."""
    document = ResourceContent(
        "test://embedded-resource", "This is an embedded resource content.", "text/plain"
    )
    return ToolResult([document])


@tool(read_only=True)
def test_multiple_content_types() -> ToolResult:
    """Give a text, an image and a document."""
    document = ResourceContent(
        "test://mixed-content-resource", '{"test":"data","value":123}', "application/json"
    )
    return ToolResult(
        [
            TextContent("Multiple content types test:"),
            ImageContent(PIXEL, "image/png"),
            document,
        ]
    )


@tool(read_only=True)
def test_error_handling() -> str:
    """Fail."""
    raise RuntimeError("This tool intentionally returns an error for testing")


@tool(read_only=True)
def test_tool_with_progress(context: RequestContext) -> str:
    """Report progress three times."""
    for step in (0, 50, 100):
        context.update(f"Completed step {step} of 100", {"progress": step, "total": 100})
        time.sleep(0.05)
    return "done"


@tool(input_schema=CONTACT, read_only=True)
def json_schema_2020_12_tool(**contact: Any) -> ToolResult:
    """Take a contact, described with the keywords of JSON Schema 2020-12."""
    return ToolResult(structured=contact)


@tool(input_schema=REGION, read_only=True)
def test_custom_header(region: str) -> str:
    """Take a region, which clients repeat in a header."""
    return region


@tool(requires_approval=True)
def test_input_required_result_tampered_state() -> str:
    """Run once a person has approved it."""
    return "approved"


agent = Agent(
    name="mcp-conformance",
    description="Gives every kind of MCP content",
    model="offline",
    tools=[
        test_simple_text,
        test_image_content,
        test_audio_content,
        test_embedded_resource,
        test_multiple_content_types,
        test_error_handling,
        test_tool_with_progress,
        json_schema_2020_12_tool,
        test_custom_header,
        test_input_required_result_tampered_state,
    ],
)
