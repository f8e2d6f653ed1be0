"""JSON schemas of objects, in the form that models get for the input of a tool."""

from __future__ import annotations

import copy
from collections.abc import Mapping
from typing import Any

from pydantic import TypeAdapter
from pydantic.json_schema import GenerateJsonSchema

from sayso.tools.inputs import ordered
from sayso.wire.json_bytes import is_json


def object_schema(label: str, adapter: TypeAdapter[Any]) -> dict[str, Any]:
    """The JSON schema of `adapter`, of type object at its top; raises ValueError otherwise."""
    schema = adapter.json_schema(schema_generator=Schema)
    top = schema.pop("$ref", None)
    if top is not None:
        # A recursive model is a reference at the top, where providers require the object itself.
        schema = {**copy.deepcopy(schema["$defs"][top.removeprefix("#/$defs/")]), **schema}
    if schema.get("type") != "object":
        raise ValueError(
            f"tool {label!r}: its input is no JSON object; use a model with named fields"
        )
    schema.setdefault("properties", {})
    return sayable({key: value for key, value in schema.items() if key != "title"})


def sayable(schema: dict[str, Any]) -> dict[str, Any]:
    """`schema` without values that JSON cannot express, such as a default of infinity.

    A provider would refuse every request with the tool because of one such value.
    """
    if is_json(schema):
        return schema
    kept: dict[str, Any] = {}
    for key, value in schema.items():
        if isinstance(value, dict):
            kept[key] = sayable(value)
        elif isinstance(value, list) and all(isinstance(item, dict) for item in value):
            kept[key] = [sayable(item) for item in value]
        elif is_json(value):
            kept[key] = value
    return kept


class Schema(GenerateJsonSchema):
    """Schemas without titles that are the same in each process."""

    ignored_warning_kinds = {
        *GenerateJsonSchema.ignored_warning_kinds,
        # The service itself sets a default that JSON cannot express.
        "non-serializable-default",
    }

    def field_title_should_be_set(self, schema: Any) -> bool:
        return False

    def encode_default(self, dft: Any) -> Any:
        # Python's own order of a set differs in each process, and so would the schema.
        return ordered(dft, super().encode_default(dft))


def stated_object(label: str, schema: Mapping[str, Any]) -> dict[str, Any]:
    """A copy of the author's schema, of type object; raises ValueError or TypeError."""
    stated = copy.deepcopy(dict(schema))
    if stated.setdefault("type", "object") != "object":
        raise ValueError(f"tool {label!r}: an input schema must have the type 'object' at its top")
    if not isinstance(stated.setdefault("properties", {}), dict):
        raise TypeError(f"tool {label!r}: 'properties' of the input schema must be an object")
    return stated


def unusable(label: str, parameter: str, error: Exception) -> TypeError:
    """The error for a parameter that has no JSON schema."""
    reason = str(error).partition("\n")[0]
    return TypeError(
        f"tool {label!r}: parameter {parameter!r} cannot be described to a model ({reason}); "
        "use JSON types, or give an input_schema"
    )
