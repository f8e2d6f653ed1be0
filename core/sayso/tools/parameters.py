"""A pydantic model of a function's parameters, with which a call's input is checked."""

from __future__ import annotations

import copy
import functools
import operator
import sys
import types
import typing
from collections import deque
from collections.abc import Iterable, Mapping, Sequence
from typing import Annotated, Any

import typing_extensions
from pydantic import BaseModel, ConfigDict, StrictBool, create_model
from pydantic.fields import FieldInfo
from pydantic_core import PydanticSerializationError, to_jsonable_python

from sayso.tools.docstrings import Docstring
from sayso.tools.signatures import EMPTY, Argument


def model_of(arguments: Iterable[Argument], rest: Any, docs: Docstring) -> type[BaseModel]:
    """A model with a field for each of these parameters.

    With `rest`, the annotation of `**kwargs`, it accepts further fields of that type. Raises
    pydantic's error for an annotation that it cannot check.
    """
    # Fields have other names than the parameters, since those may be called `json` or `_x`.
    config = ConfigDict(
        extra="forbid" if rest is None else "allow",
        hide_input_in_errors=True,
        # Otherwise the texts "nan" and "Infinity" would become numbers, which no JSON can show an
        # approver.
        allow_inf_nan=False,
    )
    holder: dict[str, Any] = {"model_config": config, "__module__": __name__}
    if rest is not None:
        holder["__annotations__"] = {"__pydantic_extra__": refined(dict[str, rest])}
    base = types.new_class("Input", (BaseModel,), exec_body=lambda body: body.update(holder))
    fields: dict[str, Any] = {
        f"p{index}": _field(argument, docs.parameters.get(argument.name))
        for index, argument in enumerate(arguments)
    }
    return create_model("Input", __base__=base, **fields)


def _field(argument: Argument, documented: str | None) -> tuple[Any, FieldInfo]:
    annotation = Any if argument.annotation is EMPTY else argument.annotation
    metadata: tuple[Any, ...] = ()
    if typing.get_origin(annotation) is Annotated:
        annotation, *metadata = typing.get_args(annotation)  # type: ignore[assignment]
    annotation = refined(annotation)
    if argument.default is None and annotation is not Any:
        annotation = annotation | None
    if metadata:
        annotation = Annotated[(annotation, *metadata)]
    field = copy.copy(_with_default(annotation, argument.default))
    field.alias = field.validation_alias = argument.name
    field.alias_priority = 2
    noted = next((note for note in metadata if isinstance(note, str)), None)
    field.description = field.description or noted or documented
    # Without the metadata, which the field already has: validators would run twice.
    return field.annotation, field


def _with_default(annotation: Any, default: Any) -> FieldInfo:
    if default is EMPTY:
        return FieldInfo.from_annotation(annotation)
    try:
        if not isinstance(default, FieldInfo):
            to_jsonable_python(default)
    except (PydanticSerializationError, ValueError):
        # Hide the default from the model; the function uses its own anyway.
        hidden = FieldInfo.from_annotation(annotation)
        hidden.default_factory = lambda: default
        return hidden
    return FieldInfo.from_annotated_attribute(annotation, default)


_CONTAINERS = (list, dict, set, tuple, frozenset, deque, Sequence, Mapping)
"""The types whose items are checked as parameters are."""


def refined(annotation: Any) -> Any:
    """`annotation` with booleans that accept only `true` and `false`, not "yes" or 1, and with
    lists for iterables, which pydantic would validate only while the tool reads them.

    The fields of models, dataclasses and typed dicts keep their own rules.
    """
    if annotation is bool:
        return StrictBool
    if sys.version_info < (3, 12) and type(annotation) is typing._TypedDictMeta:  # type: ignore[attr-defined]
        return _typed_dict(annotation)
    origin, members = typing.get_origin(annotation), typing.get_args(annotation)
    if origin in (typing.Union, types.UnionType):
        return functools.reduce(operator.or_, map(refined, members))
    if origin is Iterable and members:
        return list[refined(members[0])]  # type: ignore[misc]
    if origin is Annotated:
        return Annotated[(refined(members[0]), *annotation.__metadata__)]
    if origin in _CONTAINERS and members:
        return origin[tuple(item if item is ... else refined(item) for item in members)]
    return annotation


def _typed_dict(stated: Any) -> Any:
    # Before Python 3.12, pydantic only accepts the TypedDict of typing_extensions.
    fields: dict[str, Any] = {}
    for name, hint in typing.get_type_hints(stated, include_extras=True).items():
        wrapper = typing.get_origin(hint)
        if wrapper not in (typing.Required, typing.NotRequired):
            wrapper = typing.Required if name in stated.__required_keys__ else typing.NotRequired
        else:
            (hint,) = typing.get_args(hint)
        fields[name] = wrapper[hint]
    make: Any = typing_extensions.TypedDict
    made = make(stated.__name__, fields)
    if config := getattr(stated, "__pydantic_config__", None):
        made.__pydantic_config__ = config
    return made
