"""RFC 8785 canonical JSON: equal values have equal bytes, whoever wrote them."""

from __future__ import annotations

import json
from collections.abc import Mapping
from decimal import Decimal
from math import isfinite

_EXACT = 2**53


def canonical(value: object) -> bytes:
    """`value` as RFC 8785 canonical JSON, numbers as doubles.

    What RFC 8785 cannot express has a text of its own, so that every value that Python's `json`
    reads has one: NaN, infinities, and integers beyond the doubles (in full). Raises TypeError
    for what is no JSON value.
    """
    return _text(value).encode("utf-8", "surrogatepass")


def _text(value: object) -> str:
    match value:
        case None:
            return "null"
        case bool():
            return "true" if value else "false"
        case str():
            return json.dumps(value, ensure_ascii=False)
        case int():
            return str(value) if abs(value) < _EXACT else _large(value)
        case float():
            return _double(value)
        case Mapping():
            return "{" + ",".join(map(_member, sorted(value.items(), key=_utf16))) + "}"
        case list() | tuple():
            return "[" + ",".join(map(_text, value)) + "]"
    raise TypeError(f"{type(value).__name__!r} is no JSON value")


def _member(item: tuple[str, object]) -> str:
    return json.dumps(item[0], ensure_ascii=False) + ":" + _text(item[1])


def _utf16(item: tuple[object, object]) -> bytes:
    if not isinstance(item[0], str):
        raise TypeError(f"a key of type {type(item[0]).__name__!r} is no JSON key")
    return item[0].encode("utf-16-be", "surrogatepass")


def _large(value: int) -> str:
    try:
        return _double(float(value))
    except OverflowError:
        return str(value)


def _double(value: float) -> str:
    if not isfinite(value):
        return repr(value)
    if value == 0:
        return "0"
    sign, digits, exponent = Decimal(repr(value)).normalize().as_tuple()
    text = "".join(map(str, digits))
    return ("-" if sign else "") + _placed(text, len(text) + int(exponent))


def _placed(digits: str, point: int) -> str:
    """ECMAScript's Number::toString for `0.digits * 10**point`."""
    if len(digits) <= point <= 21:
        return digits.ljust(point, "0")
    if 0 < point <= 21:
        return f"{digits[:point]}.{digits[point:]}"
    if -6 < point <= 0:
        return "0." + "0" * -point + digits
    fraction = f".{digits[1:]}" if len(digits) > 1 else ""
    return f"{digits[0]}{fraction}e{point - 1:+d}"
