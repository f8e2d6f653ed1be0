"""JSON schemas in the narrower forms that providers accept."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Any

_KEY = re.compile(r"[a-zA-Z0-9_.-]{1,64}")
_COMBINATORS = ("allOf", "anyOf", "oneOf")


def plain_object(schema: Mapping[str, Any]) -> dict[str, Any]:
    """`schema` of a tool as type object, without a combinator or reference at its top.

    Branches are merged into one set of properties; a property that only one branch requires is not
    required. The engine validates against the whole schema anyway.
    """
    if schema.get("type") == "object" and not any(key in schema for key in (*_COMBINATORS, "$ref")):
        return dict(schema)
    merged = _merged(schema, schema, 0)
    definitions = {key: schema[key] for key in ("$defs", "definitions") if key in schema}
    return {"type": "object", "properties": {}, **merged, **definitions}


def sent_keys(schema: Mapping[str, Any]) -> dict[str, str]:
    """The properties whose names Anthropic refuses, each with a unique name that it accepts.

    Because of one such name, for instance `$filter`, it would refuse every request with that tool.
    """
    properties = schema.get("properties", {})
    taken = {key for key in properties if _KEY.fullmatch(key)}
    renamed_keys: dict[str, str] = {}
    for key in properties:
        if key not in taken:
            clean, number = re.sub(r"[^a-zA-Z0-9_.-]", "_", key)[:60], 2
            fresh = clean or "_"
            while fresh in taken:
                fresh, number = f"{clean}_{number}", number + 1
            taken.add(fresh)
            renamed_keys[key] = fresh
    return renamed_keys


def renamed(values: Mapping[str, Any], names: Mapping[str, str]) -> dict[str, Any]:
    """`values` with the keys in `names` replaced by their other name."""
    return {names.get(key, key): value for key, value in values.items()}


def with_keys(schema: Mapping[str, Any], names: Mapping[str, str]) -> dict[str, Any]:
    """`schema` with the properties in `names` under their new name, the old one as their title."""
    properties = {
        key: {"title": key, **value} if key in names and isinstance(value, Mapping) else value
        for key, value in schema.get("properties", {}).items()
    }
    properties = renamed(properties, names)
    required = [names.get(key, key) for key in schema.get("required", ())]
    return {**schema, "properties": properties, **({"required": required} if required else {})}


def resolved(schema: Mapping[str, Any], root: Mapping[str, Any]) -> Mapping[str, Any]:
    """`schema`, or the target of its `$ref` within `root`; an unknown reference is an empty
    schema."""
    for _ in range(16):
        reference = schema.get("$ref")
        if not isinstance(reference, str):
            return schema
        found: Any = root
        for part in reference.removeprefix("#/").split("/"):
            found = found.get(part, {}) if isinstance(found, Mapping) else {}
        rest = {key: value for key, value in schema.items() if key != "$ref"}
        schema = {**found, **rest} if isinstance(found, Mapping) else {}
    return {}


def closed(schema: Mapping[str, Any]) -> dict[str, Any]:
    """`schema` with `additionalProperties: false` on each object that does not say otherwise."""
    copy = {key: _part(key, value, closed) for key, value in schema.items()}
    if copy.get("type") == "object" or "properties" in copy:
        copy.setdefault("additionalProperties", False)
    return copy


def with_items(schema: Mapping[str, Any]) -> dict[str, Any]:
    """`schema` with `items` on each array; they are optional, for instance for a tuple.

    OpenAI refuses every request with a tool that has an array without them.
    """
    copy = {key: _part(key, value, with_items) for key, value in schema.items()}
    kind = copy.get("type")
    if kind == "array" or (isinstance(kind, list) and "array" in kind):
        copy.setdefault("items", {})
    return copy


def _part(keyword: str, value: Any, change: Callable[[Mapping[str, Any]], dict[str, Any]]) -> Any:
    """`value` with its schemas changed, if `keyword` is one that has schemas."""
    if keyword in ("properties", "$defs", "definitions") and isinstance(value, Mapping):
        return {
            name: change(part) if isinstance(part, Mapping) else part
            for name, part in value.items()
        }
    if keyword in (*_COMBINATORS, "prefixItems") and isinstance(value, list):
        return [change(part) if isinstance(part, Mapping) else part for part in value]
    if keyword in ("items", "additionalProperties", "not") and isinstance(value, Mapping):
        return change(value)
    return value


def _merged(schema: Mapping[str, Any], root: Mapping[str, Any], depth: int) -> dict[str, Any]:
    if depth > 8:
        return {}
    schema = resolved(schema, root)
    out = {k: v for k, v in schema.items() if k not in (*_COMBINATORS, "$ref", "type")}
    properties: dict[str, Any] = dict(schema.get("properties", {}))
    required: list[str] = list(schema.get("required", []))
    for key in _COMBINATORS:
        for branch in schema.get(key, ()):
            part = _merged(branch, root, depth + 1)
            for name, value in part.get("properties", {}).items():
                properties.setdefault(name, value)
            if key == "allOf":
                required += part.get("required", [])
    out["properties"] = properties
    if required:
        out["required"] = sorted(set(required), key=required.index)
    return out
