"""What a tool gets, as the rules of the configuration compare it (`[[approvals.rules]]`)."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import fields, is_dataclass
from decimal import Decimal
from enum import Enum
from typing import Any

from pydantic import AliasChoices, BaseModel, SecretBytes, SecretStr
from pydantic.fields import FieldInfo
from pydantic_core import to_jsonable_python


def received(value: Any) -> Any:
    """`value` as JSON: what stands in it, whatever a serializer would make of it or leave out.

    A field of a model stands under its name and under each of its aliases.
    """
    match value:
        case Enum():
            return received(value.value)
        case None | bool() | int() | float() | str():
            return value
        case Decimal():
            return float(value)
        case bytes() | bytearray():
            return value.decode("utf-8", "replace")
        case SecretStr() | SecretBytes():
            return received(value.get_secret_value())
        case BaseModel():
            return _fields(value)
        case Mapping():
            return {str(received(name)): received(item) for name, item in value.items()}
        case list() | tuple() | set() | frozenset():
            return [received(item) for item in value]
    if is_dataclass(value) and not isinstance(value, type):
        return {f.name: received(getattr(value, f.name, None)) for f in fields(value)}
    try:
        return to_jsonable_python(value, fallback=str)
    except ValueError:
        return str(value)


def _fields(model: BaseModel) -> Any:
    kind = type(model)
    if getattr(kind, "__pydantic_root_model__", False):
        return received(model.__dict__["root"])
    found = received(model.__pydantic_extra__ or {})
    for name, field in kind.model_fields.items():
        value = received(model.__dict__.get(name))
        found |= dict.fromkeys(_names(name, field), value)
    return found


def _names(name: str, field: FieldInfo) -> Iterator[str]:
    yield name
    stated = field.validation_alias
    choices = stated.choices if isinstance(stated, AliasChoices) else [stated]
    for choice in (field.alias, field.serialization_alias, *choices):
        if isinstance(choice, str):
            yield choice
