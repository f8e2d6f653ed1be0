"""Checks a tool's input, and explains to the model what is wrong with it."""

from __future__ import annotations

import itertools
import json
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, TypeVar

from pydantic import TypeAdapter, ValidationError
from pydantic_core import to_json

from sayso.errors import ToolInputError, message_of
from sayso.wire.json_bytes import encodable, is_json

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
    except Exception as error:
        # A validator of the author's raised an unexpected error.
        raise ToolInputError(shortened(f"the input was refused: {message_of(error)}")) from error
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
