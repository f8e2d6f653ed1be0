"""Validated inputs as JSON again, and a check that nothing was lost."""

from __future__ import annotations

import itertools
from collections.abc import Collection, Iterator, Mapping
from typing import Any

from pydantic import BaseModel, TypeAdapter

from sayso.config.received import Names
from sayso.tools.inputs import dropped, holds_secret_type
from sayso.tools.values import explained, unknown
from sayso.trees import walk

_KEPT_WHOLE = frozenset(("any", "bool", "float", "int", "literal", "none", "str"))
"""The types of pydantic's core schemas that drop nothing of a value and call no user code."""


def dumped(instance: BaseModel, name: str) -> list[Any]:
    """The JSON of one field, in a list; empty if it has none."""
    try:
        written = instance.model_dump(
            mode="json", by_alias=True, round_trip=True, include={name}, warnings=False
        )
    except Exception:
        # A value or a serializer of the author's failed.
        return []
    return list(written.values())[:1]


def all_dumped(adapter: TypeAdapter[Any], instance: Any) -> Iterator[tuple[str, Any]]:
    """The JSON of each field, by its name in the JSON."""
    try:
        written = adapter.dump_python(
            instance, mode="json", by_alias=True, round_trip=True, warnings=False
        )
    except Exception:
        # A value or a serializer of the author's failed.
        return
    if isinstance(written, Mapping):
        yield from written.items()


def is_plain(value: Any) -> bool:
    """Whether a value is of a type that JSON is read as."""
    if isinstance(value, dict):
        return type(value) is dict and all(map(is_plain, value.values()))
    if isinstance(value, list):
        return type(value) is list and all(map(is_plain, value))
    return type(value) in (str, int, float, bool, type(None))


def may_drop(schema: Any) -> bool:
    """Whether something in pydantic's core `schema` ignores keys that it does not know."""
    dropping = ("model-fields", "dataclass-args", "typed-dict")
    return any(isinstance(node, dict) and node.get("type") in dropping for node in walk(schema))


def arguments_may_drop(schema: Mapping[str, Any]) -> bool:
    """Whether an argument may hold less than the client sent. `schema` is pydantic's core schema of
    a signature's model; the model itself refuses further keys or keeps them."""
    inner = schema.get("schema", {})
    if schema.get("type") != "model" or inner.get("type") != "model-fields":
        return may_drop(schema)
    further = inner.get("extras_schema", {"type": "any"})
    return not all(map(_keeps_all, [further, *(f["schema"] for f in inner["fields"].values())]))


def _keeps_all(schema: Mapping[str, Any]) -> bool:
    """Whether a value surely keeps everything that the client sent of it: a scalar, or a list of
    such values."""
    match schema:
        case {"type": "nullable" | "default", "schema": inner}:
            return _keeps_all(inner)
        case {"type": "list"}:
            return _keeps_all(schema.get("items_schema", {"type": "any"}))
    return schema.get("type") in _KEPT_WHOLE


def secret_defaults(schema: Any, name: str = "") -> Iterator[tuple[str, Any]]:
    """Each default in pydantic's core `schema` that contains a secret, however deep the field is,
    with the name of that field."""
    rest, seen = [(name, schema)], set[int]()
    while rest:
        name, node = rest.pop()
        if id(node) in seen:
            continue
        seen.add(id(node))
        if isinstance(node, Mapping):
            name = str(node.get("name", name))
            if node.get("type") == "default" and holds_secret_type(node.get("default")):
                yield name, node["default"]
            rest += [
                (key if isinstance(value, Mapping) and "schema" in value else name, value)
                for key, value in node.items()
            ]
        elif isinstance(node, list | tuple):
            rest += [(name, value) for value in node]


def refuse_dropped(
    sent: Mapping[str, Any], value: Any, names: Names, known: Collection[str]
) -> None:
    """Raise ToolInputError for a value that was sent and that the tool would not get."""
    if places := list(itertools.islice(dropped(sent, value, names), 50)):
        raise explained(unknown(place, known) for place in places)
