"""JSON values: walking one, copying it with other leaves, and its RFC 8785 canonical text, by which
equal values have equal bytes, whatever program wrote them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from decimal import Decimal
from json.encoder import encode_basestring
from math import isfinite
from typing import Any

__all__ = ["inside", "rebuilt", "walk"]

_CONTAINERS = (dict, list, tuple)


def inside(value: object) -> Iterable[Any]:
    """The values directly in a container; none for a leaf."""
    if isinstance(value, dict):
        return value.values()
    return value if isinstance(value, (list, tuple)) else ()


def walk(value: object) -> Iterator[Any]:
    """Each value in a tree, in no particular order: the containers, itself too, and the leaves.

    A container that occurs in several places, or in itself, is walked once.
    """
    rest, seen = [value], set[int]()
    while rest:
        node = rest.pop()
        if isinstance(node, _CONTAINERS):
            if id(node) in seen:
                continue
            seen.add(id(node))
            rest.extend(inside(node))
        yield node


def rebuilt(value: Any, leaf: Callable[[Any], Any], key: Callable[[Any], Any] | None = None) -> Any:
    """A copy of a tree with `leaf` of each value that is no container, and `key` of each key.

    Tuples become lists, as in JSON.
    """
    if isinstance(value, dict):
        if key is None:
            return {name: rebuilt(item, leaf) for name, item in value.items()}
        return {key(name): rebuilt(item, leaf, key) for name, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [rebuilt(item, leaf, key) for item in value]
    return leaf(value)


_EXACT = 2**53
DIGITS = 4300
"""The largest number of digits that JSON parsers accept in an integer."""
_BEYOND: int = 10**DIGITS


def canonical(value: object) -> bytes:
    """`value` as RFC 8785 canonical JSON, numbers as doubles.

    Values that RFC 8785 cannot express have a text of their own, so that every value that Python's
    `json` reads has one: NaN, infinities, and integers beyond the doubles (in full). Raises
    TypeError for a value that is not JSON.
    """
    return _text(value).encode("utf-8", "surrogatepass")


def copied(value: Any) -> Any:
    """A copy of a JSON value that shares no mutable part with it."""
    # Less than half the time of deepcopy, which must handle all types.
    return rebuilt(value, _same)


def _same(leaf: Any) -> Any:
    return leaf


def is_endless(value: object) -> bool:
    """Whether `value` is an integer with more digits than JSON parsers, ours included, accept."""
    return isinstance(value, int) and not -_BEYOND < value < _BEYOND


def holds_endless(value: object) -> bool:
    """Whether a JSON value is or contains such an integer."""
    return any(map(is_endless, walk(value)))


def _text(value: object) -> str:
    write = _WRITERS.get(type(value)) or _writer(value)
    return write(value)


def _writer(value: object) -> Callable[[Any], str]:
    """The writing function for a type derived from one of JSON's."""
    for kinds, write in (
        (str, encode_basestring),
        (int, _whole),
        (float, _double),
        (Mapping, _object),
        ((list, tuple), _array),
    ):
        if isinstance(value, kinds):
            return write
    raise TypeError(f"{type(value).__name__!r} is no JSON value")


def _object(value: Mapping[Any, object]) -> str:
    members = []
    for name in _names(value):
        member = value[name]
        write = _WRITERS.get(type(member)) or _writer(member)
        members.append(f"{encode_basestring(name)}:{write(member)}")
    return "{" + ",".join(members) + "}"


def _array(value: Sequence[object]) -> str:
    return "[" + ",".join(map(_text, value)) + "]"


def _names(value: Mapping[Any, object]) -> list[str]:
    try:
        ascii_only = "".join(value).isascii()
    except TypeError:
        name = next(name for name in value if not isinstance(name, str))
        raise TypeError(f"a key of type {type(name).__name__!r} is no JSON key") from None
    # The usual case: the order by code points is then that by UTF-16 units.
    return sorted(value) if ascii_only else sorted(value, key=_utf16)


def _utf16(name: str) -> bytes:
    return name.encode("utf-16-be", "surrogatepass")


def _whole(value: int) -> str:
    return str(value) if abs(value) < _EXACT else _large(value)


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
        # Here Python writes a double as ECMAScript does, except for the fraction of an integer.
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


_WRITERS: dict[type, Callable[[Any], str]] = {
    str: encode_basestring,
    type(None): lambda value: "null",
    bool: lambda value: "true" if value else "false",
    int: _whole,
    float: _double,
    dict: _object,
    list: _array,
    tuple: _array,
}
