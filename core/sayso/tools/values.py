"""The values of a tool: its input checked, with the model told what is wrong with it, and the
results that it may return, with the text made of them."""

from __future__ import annotations

import itertools
import json
from base64 import b64encode
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, is_dataclass
from enum import Enum
from typing import Any, TypeVar

from pydantic import BaseModel, TypeAdapter, ValidationError
from pydantic_core import to_json

from sayso.errors import ToolInputError, message_of
from sayso.models import Attachment
from sayso.trees import is_endless
from sayso.wire.json_bytes import dump_json, encodable, is_json, own_number

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


T = TypeVar("T")

MESSAGE_LIMIT = 1000
SHOWN_ERRORS = 5
_SHORT = 60
_Line = tuple[str, str]
"""The explanation, and the value that was given, if it is short."""


def validated(adapter: TypeAdapter[T], input: Mapping[str, Any], known: Iterable[str]) -> T:
    """`input` read as JSON by `adapter`; raises ToolInputError, which names the `known`
    parameters."""
    raw = as_json(input)
    try:
        # Calls the validator directly: the adapter's own method costs as much again.
        checked: T = adapter.validator.validate_json(raw)
    except ValidationError as error:
        raise explained(_pydantic_lines(error, known)) from None
    except BaseException as error:
        # A validator of the author's raised an unexpected error, or SystemExit.
        said = message_of(error) or type(error).__name__
        raise ToolInputError(shortened(f"the input was refused: {said}")) from error
    return checked


def as_json(input: Mapping[str, Any]) -> bytes:
    """The input as JSON; raises ToolInputError if it cannot be written as JSON."""
    try:
        raw = to_json(input if type(input) is dict else dict(input))
    except ValueError as error:
        raise ToolInputError(shortened(f"the input is no valid JSON: {error}", 300)) from None
    if (b"NaN" in raw or b"Infinity" in raw) and not is_json(dict(input)):
        raise ToolInputError("the input is no JSON: it holds NaN or an infinity")
    return raw


def _pydantic_lines(error: ValidationError, known: Iterable[str]) -> Iterator[_Line]:
    for detail in error.errors(include_url=False, include_context=False):
        where = tuple(detail["loc"])
        if detail["type"] == "missing":
            yield f"parameter {_path(where)!r} is missing", ""
        elif detail["type"] == "extra_forbidden":
            yield unknown(where, known)
        else:
            yield line(where, detail["msg"], detail["input"])


def line(where: tuple[str | int, ...], message: str, value: object) -> _Line:
    """The error at one place of the input."""
    subject = f"parameter {_path(where)!r}" if where else "the input"
    scalar = isinstance(value, (str, int, float)) and len(str(value)) <= _SHORT
    got = f", got {json.dumps(value, ensure_ascii=False)}" if scalar else ""
    return shortened(f"{subject}: {message}", 300), got


def _path(where: tuple[str | int, ...]) -> str:
    return ".".join(str(part) for part in where)[:200]


def _unknown(name: str, known: Iterable[str]) -> str:
    names = ", ".join(known)
    return f"there is no parameter {name!r}" + (f"; there are: {names}" if names else "")


def unknown(where: tuple[str | int, ...], known: Iterable[str]) -> _Line:
    """The error for a key that nothing reads."""
    return _unknown(_path(where), known if len(where) == 1 else []), ""


def refuse_names(names: Iterable[str], known: Iterable[str]) -> None:
    """Raise ToolInputError if there are any of these names, which the tool does not know."""
    wrong = sorted(str(name)[:200] for name in names)
    if wrong:
        raise explained((_unknown(name, known), "") for name in wrong)


def explained(lines: Iterable[_Line]) -> ToolInputError:
    """The error that explains the first of these lines."""
    found = list(dict.fromkeys(itertools.islice(lines, 50)))
    more = len(found) - SHOWN_ERRORS
    rest = [f"and {more} more"] if more > 0 else []
    shown = found[:SHOWN_ERRORS]
    whole = "; ".join([*(text + got for text, got in shown), *rest])
    bare = "; ".join([*(text for text, _ in shown), *rest])
    return ToolInputError(shortened(whole), shortened(bare))


def shortened(text: str, limit: int = MESSAGE_LIMIT) -> str:
    """`text` as valid Unicode, truncated to `limit` characters."""
    clean = encodable(text)
    return clean if len(clean) <= limit else clean[: limit - 1] + "…"
