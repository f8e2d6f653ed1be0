"""RFC 8785 canonical JSON: equal values have equal bytes, whoever wrote them."""

from __future__ import annotations

from collections.abc import Mapping
from decimal import Decimal
from json.encoder import encode_basestring
from math import isfinite
from operator import itemgetter
from typing import Any

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
        case str():
            return encode_basestring(value)
        case None:
            return "null"
        case bool():
            return "true" if value else "false"
        case int():
            return str(value) if abs(value) < _EXACT else _large(value)
        case float():
            return _double(value)
        case dict() | Mapping():
            return "{" + ",".join([_member(*item) for item in _sorted(value)]) + "}"
        case list() | tuple():
            return "[" + ",".join(map(_text, value)) + "]"
    raise TypeError(f"{type(value).__name__!r} is no JSON value")


def _member(name: str, value: object) -> str:
    text = encode_basestring(value) if type(value) is str else _text(value)
    return f"{encode_basestring(name)}:{text}"


def _sorted(value: Mapping[Any, object]) -> list[tuple[str, object]]:
    for name in value:
        if not isinstance(name, str):
            raise TypeError(f"a key of type {type(name).__name__!r} is no JSON key")
    if "".join(value).isascii():
        # Nearly always: the order by code points is then that by UTF-16 units.
        return sorted(value.items(), key=_name)
    return sorted(value.items(), key=_utf16)


_name = itemgetter(0)


def _utf16(item: tuple[str, object]) -> bytes:
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
    if 1e-4 <= abs(value) < 1e16:
        # Here Python writes a double as ECMAScript does, but for the fraction of a whole one.
        return repr(value).removesuffix(".0")
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
