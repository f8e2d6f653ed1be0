"""The arguments of a tool in the form that the configuration's rules compare
(`[[approvals.rules]]`)."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from dataclasses import fields, is_dataclass
from decimal import Decimal
from enum import Enum
from typing import Any

from pydantic import AliasChoices, BaseModel, Secret, SecretBytes, SecretStr
from pydantic.fields import FieldInfo
from pydantic_core import to_jsonable_python

from sayso.trees import walk

Names = Mapping[str, Collection[str]]
"""The other names of a field, by its name."""


def received(value: Any, names: Names) -> Any:
    """`value` as JSON, with its actual contents, whatever a serializer would change or leave out.

    A field of a model is there under its name and under each of its aliases. `names` are those of
    dataclasses and typed dicts, whose values do not have them; see `other_names`.
    """
    match value:
        case Enum():
            return received(value.value, names)
        case None | bool() | int() | float() | str():
            return value
        case Decimal():
            return float(value)
        case bytes() | bytearray():
            # Different bytes have different texts.
            return value.decode("utf-8", "backslashreplace")
        case Secret() | SecretStr() | SecretBytes():
            return received(value.get_secret_value(), names)
        case BaseModel():
            return _fields(value, names)
        case Mapping():
            found = {str(received(k, names)): received(item, names) for k, item in value.items()}
            return _by_all_names(found, names)
        case list() | tuple():
            return [received(item, names) for item in value]
        case set() | frozenset():
            # Python's own order of a set differs in each process.
            return sorted((received(item, names) for item in value), key=repr)
    if is_dataclass(value) and not isinstance(value, type):
        found = {f.name: received(getattr(value, f.name, None), names) for f in fields(value)}
        return _by_all_names(found, names)
    try:
        return to_jsonable_python(value, fallback=str)
    except ValueError:
        return str(value)


def other_names(schema: Mapping[str, Any]) -> Names:
    """The aliases that pydantic's core `schema` has for fields of dataclasses and typed dicts."""
    found: dict[str, set[str]] = {}
    for node in walk(schema):
        match node:
            case {"type": "dataclass-field", "name": str(name)}:
                found.setdefault(name, set()).update(_aliases(node))
            case {"type": "typed-dict", "fields": Mapping() as fields}:
                for name, field in fields.items():
                    found.setdefault(name, set()).update(_aliases(field))
    return found


def every_name(kind: type[Any], others: Names) -> Iterator[str]:
    """All names of the fields of a model, dataclass or typed dict."""
    if issubclass(kind, BaseModel):
        for name, field in kind.model_fields.items():
            yield from names_of(name, field)
        return
    for name in [f.name for f in fields(kind)] if is_dataclass(kind) else kind.__annotations__:
        yield name
        yield from others.get(name, ())


def _aliases(field: Mapping[str, Any]) -> Iterator[str]:
    for stated in (field.get("validation_alias"), field.get("serialization_alias")):
        match stated:
            case str():
                yield stated
            case [str(name)]:
                yield name
            case [*paths]:
                yield from (path[0] for path in paths if isinstance(path, list) and len(path) == 1)


def _by_all_names(found: dict[str, Any], names: Names) -> dict[str, Any]:
    others = {other: found[name] for name in found for other in names.get(name, ())}
    return {**others, **found}


def _fields(model: BaseModel, names: Names) -> Any:
    kind = type(model)
    if getattr(kind, "__pydantic_root_model__", False):
        return received(model.__dict__["root"], names)
    found = received(model.__pydantic_extra__ or {}, {})
    for name, field in kind.model_fields.items():
        value = received(model.__dict__.get(name), names)
        found |= dict.fromkeys(names_of(name, field), value)
    return found


def names_of(name: str, field: FieldInfo) -> Iterator[str]:
    """All names of a field of a model."""
    yield name
    stated = field.validation_alias
    choices = stated.choices if isinstance(stated, AliasChoices) else [stated]
    for choice in (field.alias, field.serialization_alias, *choices):
        if isinstance(choice, str):
            yield choice
