"""Results of tools as MCP content, and MCP content as results of tools."""

from __future__ import annotations

import base64
from collections.abc import Sequence
from math import isfinite
from typing import Any

import mcp_types as types
from pydantic_core import to_jsonable_python

from sayso import (
    AudioContent,
    ImageContent,
    Outcome,
    ResourceContent,
    TextContent,
    ToolInputError,
    ToolResult,
)
from sayso.trees import rebuilt

MOST_BYTES = 10 * 2**20
"""Largest image, sound or document in a result, in bytes; a larger one is named, not sent."""

_ENDLESS: int = 10**4300
"""The first integer with more digits than Python's JSON reader accepts."""


def said(text: str, *, error: bool = False) -> types.CallToolResult:
    """A result of one text; with `error`, one that the model should read as a failure."""
    return types.CallToolResult(content=[types.TextContent(text=clean(text))], is_error=error)


def unknown(why: str) -> types.CallToolResult:
    """The result of a call whose outcome is unknown."""
    return said(f"Outcome unknown: {why}. It may or may not have taken effect.", error=True)


def result_of(
    outcome: Outcome, *, limit: int, modern: bool, structured: bool = False
) -> types.CallToolResult:
    """The result of a call that ended: all parts of a ToolResult; of anything else the text, and
    with `structured` also the object that the text is made from.

    `limit` is the maximum of bytes of text; the text of a larger result is truncated.
    """
    value = outcome.value
    if not isinstance(value, ToolResult):
        result = said(outcome.output, error=outcome.failed)
        if structured and not outcome.failed:
            result.structured_content = _json_value(value)
        return result
    blocks = [_block(part) for part in value.content]
    if _text_bytes(blocks) > limit or not blocks:
        others = [b for b in blocks if not isinstance(b, types.TextContent)]
        blocks = [types.TextContent(text=outcome.output), *others]
    object_ = _json_value(value.structured)
    if not modern and not isinstance(object_, dict):
        # Before 2026-07-28 structured content must be an object or absent; the text has the value
        # anyway.
        object_ = None
    given: dict[str, Any] = {} if object_ is None else {"structured_content": object_}
    return types.CallToolResult(content=blocks, is_error=outcome.failed, **given)


def _json_value(value: Any) -> Any:
    """`value` as JSON, or None if JSON cannot hold it, such as a self-referencing list."""
    try:
        try:
            return fit(to_jsonable_python(value, fallback=str))
        except UnicodeEncodeError:
            # A name in it contains half of a surrogate pair.
            return fit(to_jsonable_python(fit(value), fallback=str))
    except (ValueError, RecursionError):
        return None


def fit(value: Any) -> Any:
    """A JSON value that every reader accepts: texts as `clean` makes them, NaN and infinities
    null."""
    return rebuilt(value, _fit, lambda key: clean(str(key)))


def _fit(leaf: Any) -> Any:
    match leaf:
        case str():
            return clean(leaf)
        case float() if not isfinite(leaf):
            return None
        case int() if not -_ENDLESS < leaf < _ENDLESS:
            return None
    return leaf


def check_json(input: dict[str, Any], nesting: int) -> None:
    """Raise ToolInputError for arguments that are nested too deeply or contain NaN or an infinity.

    The SDK accepts NaN and infinities although they are not JSON.
    """
    level: list[Any] = [input]
    for _ in range(nesting):
        inner = [v for each in level for v in (each.values() if isinstance(each, dict) else each)]
        if any(isinstance(value, float) and not isfinite(value) for value in inner):
            raise ToolInputError("the input is no valid JSON: a number is not finite")
        level = [value for value in inner if isinstance(value, dict | list)]
        if not level:
            return
    raise ToolInputError("the input is nested too deep")


def without_nulls(input: dict[str, Any], schema: dict[str, Any]) -> dict[str, Any]:
    """The arguments without nulls for parameters that may be absent but not null.

    Clients with forms send null for each field that the user left empty.
    """
    optional = {
        name: given
        for name, given in schema.get("properties", {}).items()
        if name not in schema.get("required", ()) and isinstance(given, dict)
    }
    return {
        name: value
        for name, value in input.items()
        if value is not None or name not in optional or _takes_null(optional[name])
    }


def _takes_null(schema: dict[str, Any]) -> bool:
    """Whether null may be valid. If the schema does not state its type directly, it may."""
    stated = schema.get("type")
    return stated is None or "null" in ([stated] if isinstance(stated, str) else stated)


def _block(part: Any) -> types.ContentBlock:
    match part:
        case TextContent(text=text):
            return types.TextContent(text=clean(text))
        case ImageContent(data=data, mime=mime) if len(data) <= MOST_BYTES:
            return types.ImageContent(data=_base64(data), mime_type=clean(mime))
        case AudioContent(data=data, mime=mime) if len(data) <= MOST_BYTES:
            return types.AudioContent(data=_base64(data), mime_type=clean(mime))
        case ResourceContent(data=data) if len(data) <= MOST_BYTES:
            return types.EmbeddedResource(resource=_resource(part))
        case ImageContent() | AudioContent() | ResourceContent():
            kind = type(part).__name__.removesuffix("Content").lower()
            return types.TextContent(text=f"[{kind} of {len(part.data)} bytes left out: too large]")
    return types.TextContent(text=clean(str(part)))


def _resource(part: ResourceContent) -> types.TextResourceContents | types.BlobResourceContents:
    uri, mime = clean(part.uri), None if part.mime is None else clean(part.mime)
    if isinstance(part.data, str):
        return types.TextResourceContents(uri=uri, mime_type=mime, text=clean(part.data))
    return types.BlobResourceContents(uri=uri, mime_type=mime, blob=_base64(part.data))


def _base64(data: bytes) -> str:
    return base64.b64encode(data).decode()


def clean(text: str) -> str:
    """`text` without lone surrogates, which JSON cannot hold; file names that are not UTF-8 have
    them."""
    return text.encode("utf-8", "replace").decode()


def _text_bytes(blocks: Sequence[types.ContentBlock]) -> int:
    return sum(len(b.text.encode()) for b in blocks if isinstance(b, types.TextContent))


def received(result: types.CallToolResult) -> ToolResult:
    """The ToolResult of an MCP server's result. Raises RuntimeError for content that is not
    base64."""
    content = [_received(block) for block in result.content]
    return ToolResult(content, result.structured_content, bool(result.is_error))


def _received(block: Any) -> TextContent | ImageContent | AudioContent | ResourceContent:
    match block:
        case types.TextContent():
            return TextContent(block.text)
        case types.ImageContent():
            return ImageContent(_bytes(block.data), block.mime_type)
        case types.AudioContent():
            return AudioContent(_bytes(block.data), block.mime_type)
        case types.EmbeddedResource(resource=types.TextResourceContents() as inner):
            return ResourceContent(str(inner.uri), inner.text, inner.mime_type)
        case types.EmbeddedResource(resource=types.BlobResourceContents() as blob):
            return ResourceContent(str(blob.uri), _bytes(blob.blob), blob.mime_type)
        case types.ResourceLink():
            return TextContent(f"[resource {block.name}: {block.uri}]")
    return TextContent(str(block))


def _bytes(text: str) -> bytes:
    try:
        return base64.b64decode(text, validate=True)
    except ValueError as error:
        raise RuntimeError(
            "the MCP server sent content that is no base64, and the call may have taken effect"
        ) from error
