"""JSON of whatever user code brings: what JSON cannot hold is made to fit."""

from __future__ import annotations

from dataclasses import fields, is_dataclass
from math import isfinite
from typing import Any

from pydantic import BaseModel
from pydantic_core import PydanticSerializationError, to_json, to_jsonable_python

from sayso.wire.canonical import is_endless, may_hold_endless

_DEEPEST = 100
"""Levels of a value that are made to fit; what is deeper becomes text."""


def dump_json(value: Any) -> bytes:
    """`value` as JSON, UTF-8; what no JSON holds, which only user code can bring, is made to fit.

    Infinities, NaN and endless integers become null, lone surrogates "?", bytes the text that they
    are in UTF-8, and other objects their text; so does what holds itself.
    """
    try:
        raw = to_json(value, inf_nan_mode="null")
    except PydanticSerializationError:
        return to_json(fitting(value), inf_nan_mode="null")
    if may_hold_endless(raw):
        return to_json(fitting(value), inf_nan_mode="null")
    return raw


def encodable(text: str) -> str:
    """`text` as a plain `str` with "?" for lone surrogates, which no JSON holds, and names of files
    that are not UTF-8 do; where there is nothing to change, `text` itself."""
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


def fitting(value: Any, within: tuple[int, ...] = ()) -> Any:
    """`value` as JSON values, as `dump_json` writes it; `within` are the ids of what holds it."""
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
            return fitting(value.model_dump(warnings=False), within)
    text = f"<{type(value).__name__}>"
    inner = (*within, id(value))
    match value:
        case _ if id(value) in within or len(within) >= _DEEPEST:
            return fitting(text)
        case dict():
            return {fitting(_name(key)): fitting(item, inner) for key, item in value.items()}
        case list() | tuple() | set() | frozenset():
            return [fitting(item, inner) for item in value]
        case _ if is_dataclass(value) and not isinstance(value, type):
            return {f.name: fitting(getattr(value, f.name, None), inner) for f in fields(value)}
    try:
        made = to_jsonable_python(value, inf_nan_mode="null")
    except Exception:
        made = text
    # The text of a path may have half a surrogate pair.
    return fitting(made, inner)


def _name(key: object) -> str:
    try:
        return str(key)
    except Exception:
        # An endless integer, or a text that fails to be made.
        return f"<{type(key).__name__}>"
