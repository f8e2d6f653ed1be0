"""The values that a tool may return, and the text made of them."""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, is_dataclass
from enum import Enum
from typing import Any

from pydantic import BaseModel
from pydantic_core import to_json

from sayso.models import Attachment
from sayso.trees import is_endless
from sayso.wire.json_bytes import dump_json, encodable, own_number

MOST_IMAGES = 8
"""Images of a result that a model is shown."""
MOST_BYTES = 5 * 2**20
"""Bytes of one."""


@dataclass(frozen=True, slots=True)
class TextContent:
    """A text in a result."""

    text: str


@dataclass(frozen=True, slots=True)
class ImageContent:
    """An image in a result; `mime` is its media type, such as `image/png`."""

    data: bytes
    mime: str


@dataclass(frozen=True, slots=True)
class AudioContent:
    """A sound in a result; `mime` is its media type, such as `audio/wav`."""

    data: bytes
    mime: str


@dataclass(frozen=True, slots=True)
class ResourceContent:
    """A document in a result, with its address."""

    uri: str
    data: str | bytes
    mime: str | None = None


Content = TextContent | ImageContent | AudioContent | ResourceContent


@dataclass(frozen=True, slots=True)
class ToolResult:
    """A rich result: MCP clients get all of it, everyone else the text.

    `structured` is a JSON value beside the content; `is_error` says that the tool failed.
    """

    content: Sequence[Content | str] = ()
    structured: Any = None
    is_error: bool = False


def images_of(result: ToolResult) -> tuple[Attachment, ...]:
    """The images of a result, for models that take some; its text names all of them."""
    found = [part for part in result.content if isinstance(part, ImageContent)]
    fit = [image for image in found if len(image.data) <= MOST_BYTES][:MOST_IMAGES]
    return tuple(Attachment(image.mime, b64encode(image.data).decode()) for image in fit)


def text_of(value: Any) -> str:
    """The text of a tool's result for the model and the caller; empty for None.

    Models, dataclasses, dicts and lists become JSON; bytes are read as UTF-8.
    """
    if type(value) is str and value.isascii():
        return value
    match value:
        case None:
            return ""
        case Enum():
            return text_of(value.value)
        case ToolResult():
            return _rich_text(value)
        case bytes() | bytearray() | memoryview():
            return bytes(value).decode("utf-8", "replace")
        case BaseModel() | dict() | list() | tuple() | set() | frozenset():
            return _json(value)
        case int() if is_endless(value):
            # str() refuses it, and the tool has already run.
            return _json(value)
    if is_dataclass(value) and not isinstance(value, type):
        return _json(value)
    return encodable(str(value))


def _json(value: Any) -> str:
    with suppress(ValueError):
        return to_json(value, fallback=_plain, inf_nan_mode="null").decode()
    with suppress(ValueError):
        return dump_json(value).decode()
    return encodable(str(value))


def _plain(value: Any) -> Any:
    number = own_number(value)
    return str(value) if number is None else number


def _rich_text(result: ToolResult) -> str:
    if not result.content:
        return text_of(result.structured)
    return "\n".join(_content_text(block) for block in result.content)


def _content_text(block: Content | str) -> str:
    match block:
        case str():
            return text_of(block)
        case TextContent():
            return text_of(block.text)
        case ImageContent():
            return f"[image {block.mime}, {len(block.data)} bytes]"
        case AudioContent():
            return f"[audio {block.mime}, {len(block.data)} bytes]"
        case ResourceContent(data=str() as text):
            return f"[resource {block.uri}]\n{text_of(text)}"
        case ResourceContent():
            return f"[resource {block.uri}, {len(block.data)} bytes]"
