"""The output schemas of tools, and results that match them.

A client rejects a result without the structured content that its tool has promised, even though the
tool has run. Such a result is sent as an error with words instead.
"""

from __future__ import annotations

import functools
import inspect
import json
from contextlib import suppress
from typing import Any, get_type_hints
from weakref import WeakKeyDictionary

import jsonschema_rs
import mcp_types as types
from pydantic import TypeAdapter

from sayso import Tool, ToolResult

_known: WeakKeyDictionary[Tool, dict[str, Any] | None] = WeakKeyDictionary()


def output_schema(tool: Tool) -> dict[str, Any] | None:
    """The schema of the tool's return annotation if it describes an object, else None."""
    if tool not in _known:
        _known[tool] = _schema_of(tool.fn)
    return _known[tool]


def _schema_of(fn: Any) -> dict[str, Any] | None:
    while isinstance(fn, functools.partial):
        fn = fn.func
    with suppress(Exception):
        # The author wrote the annotations: if they cannot be read, nothing is promised.
        function = fn if inspect.isroutine(fn) else type(fn).__call__
        returned = get_type_hints(function, include_extras=True).get("return")
        if returned is None or returned is ToolResult:
            return None
        schema = TypeAdapter(returned).json_schema(mode="serialization")
        return schema if schema.get("type") == "object" else None
    return None


def typed(result: types.CallToolResult, schema: dict[str, Any] | None) -> types.CallToolResult:
    """The result as the schema promises it, otherwise an error with the tool's words."""
    if schema is None or result.is_error:
        return result
    if result.structured_content is None:
        # A recorded outcome is a text, so read the object back from it.
        result.structured_content = _object_in(result.content)
    if (problem := _problem(result.structured_content, schema)) is not None:
        result.structured_content = None
        words = f"The tool has run. What it gave does not fit its output schema: {problem}"
        result.content.append(types.TextContent(text=words))
        result.is_error = True
    return result


def _object_in(content: list[types.ContentBlock]) -> dict[str, Any] | None:
    first = content[0] if content else None
    if isinstance(first, types.TextContent):
        with suppress(ValueError):
            found = json.loads(first.text)
            return found if isinstance(found, dict) else None
    return None


def _problem(value: Any, schema: dict[str, Any]) -> str | None:
    if not isinstance(value, dict):
        return "it is no object"
    try:
        jsonschema_rs.validator_for(schema).validate(value)
    except (jsonschema_rs.ValidationError, ValueError) as error:
        return str(getattr(error, "message", error))[:300]
    return None
