"""Configuration values that are accepted as they are; values that would have to be guessed are
not."""

from __future__ import annotations

import types
from typing import Any, Union, get_args, get_origin

from pydantic import BeforeValidator
from pydantic.fields import FieldInfo


class VariableText(str):
    """The value of an environment variable: it has no types, so "8000" may be a number."""


def exact(value: Any, field: FieldInfo) -> Any:
    """`value`. Raises ValueError if pydantic would turn true into 1, or "yes" into true.

    Fields that parse text themselves, such as durations, accept anything.
    """
    if value is None or isinstance(value, VariableText):
        return value
    kinds = kinds_of(field.annotation, field.metadata)
    if not kinds <= {bool, int, float}:
        return value
    if bool in kinds:
        if not kinds & {int, float} and not isinstance(value, bool):
            raise ValueError("expected true or false, without quotes")
    elif isinstance(value, bool | str):
        number = "number" if float in kinds else "whole number"
        raise ValueError(f"expected a {number}, without quotes")
    return value


def kinds_of(annotation: Any, metadata: Any = ()) -> set[Any]:
    """The types that a value may have, beside null: `list` for `list[str]`; Any for a field that
    parses its value itself."""
    if any(isinstance(part, BeforeValidator) for part in metadata):
        return {Any, *kinds_of(annotation)}
    origin = get_origin(annotation)
    if origin in (Union, types.UnionType):
        return set().union(*map(kinds_of, get_args(annotation))) - {types.NoneType}
    if hasattr(annotation, "__metadata__"):
        return kinds_of(get_args(annotation)[0], annotation.__metadata__)
    return {origin or annotation}
