"""JSON of any values of user code: values that JSON cannot hold are converted."""

from __future__ import annotations

from dataclasses import fields, is_dataclass
from math import isfinite
from typing import Any

from pydantic import BaseModel
from pydantic_core import PydanticSerializationError, to_json, to_jsonable_python

from sayso.trees import DIGITS, is_endless

_DEEPEST = 100
"""Most levels of a value that are converted; anything deeper becomes text."""


def dump_json(value: Any) -> bytes:
    """`value` as JSON, UTF-8. Only user code can produce values that JSON cannot hold; they are
    converted.

    Infinities, NaN and endless integers become null, lone surrogates "?", bytes their UTF-8 text,
    and other objects their `str()`. Self-referencing containers also become their `str()`.
    """
    try:
        raw = to_json(value, inf_nan_mode="null")
    except PydanticSerializationError:
        return to_json(json_values(value), inf_nan_mode="null")
    if may_hold_endless(raw):
        return to_json(json_values(value), inf_nan_mode="null")
    return raw


def may_hold_endless(raw: bytes) -> bool:
    """Whether a JSON text may contain such an integer; a string of digits looks like one."""
    if len(raw) <= DIGITS:
        return False
    # An endless integer fills at least one of these pieces.
    piece = DIGITS // 2
    return any(raw[n : n + piece].isdigit() for n in range(0, len(raw) - piece + 1, piece))


def encodable(text: str) -> str:
    """`text` as a plain `str` with "?" for lone surrogates, which JSON cannot hold, and which names
    of files that are not UTF-8 contain; `text` itself if there are none."""
    if type(text) is str and _encodes(text):
        return text
    return text.encode("utf-8", "replace").decode()


def _encodes(text: str) -> bool:
    if text.isascii():
        return True
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def json_values(value: Any, within: tuple[int, ...] = ()) -> Any:
    """`value` as JSON values, as `dump_json` writes it; `within` are the ids of its containers."""
    match value:
        case float() if not isfinite(value):
            return None
        case int() if is_endless(value):
            return None
        case None | bool() | int() | float():
            return value
        case str():
            return encodable(value)
        case bytes() | bytearray():
            return value.decode("utf-8", "replace")
        case BaseModel():
            return json_values(value.model_dump(warnings=False), within)
    text = f"<{type(value).__name__}>"
    inner = (*within, id(value))
    match value:
        case _ if id(value) in within or len(within) >= _DEEPEST:
            return json_values(text)
        case dict():
            return {
                json_values(_name(key)): json_values(item, inner) for key, item in value.items()
            }
        case list() | tuple() | set() | frozenset():
            return [json_values(item, inner) for item in value]
        case _ if is_dataclass(value) and not isinstance(value, type):
            return {f.name: json_values(getattr(value, f.name, None), inner) for f in fields(value)}
    if (number := own_number(value)) is not None:
        return json_values(number)
    try:
        made = to_jsonable_python(value, inf_nan_mode="null")
    except Exception:
        made = text
    # The text of a path may have half of a surrogate pair.
    return json_values(made, inner)


def own_number(value: Any) -> int | float | bool | None:
    """A single number of NumPy or a similar library as Python's own; None for anything else."""
    if getattr(value, "shape", None) != () or not hasattr(value, "dtype"):
        return None
    try:
        number = value.item()
    except Exception:
        return None
    return number if isinstance(number, int | float) else None


def _name(key: object) -> str:
    try:
        return str(key)
    except Exception:
        # An endless integer, or an object whose `str()` fails.
        return f"<{type(key).__name__}>"
