"""A tool's inputs: their JSON schema, and the conversion of the model's input to arguments.

There are three forms: from a function's signature, from a JSON schema, from a typed model
(interface.md, "Agent configuration").
"""

from __future__ import annotations

import copy
import functools
import itertools
import typing
from collections.abc import Collection, Mapping, Sequence
from dataclasses import is_dataclass
from typing import Annotated, Any, Protocol, TypeVar, cast

import typing_extensions
from pydantic import BaseModel, TypeAdapter
from pydantic.errors import PydanticUserError
from pydantic.fields import FieldInfo
from pydantic_core import PydanticSerializationError

from sayso.config.received import Names, every_name, other_names
from sayso.errors import ToolInputError
from sayso.tools.bounds import Bounds
from sayso.tools.docstrings import Docstring
from sayso.tools.dumps import (
    all_dumped,
    arguments_may_drop,
    dumped,
    is_plain,
    may_drop,
    refuse_dropped,
    secret_defaults,
)
from sayso.tools.inputs import Whole, groups_of, held_by
from sayso.tools.json_schemas import Schema, object_schema, sayable, stated_object, unusable
from sayso.tools.parameters import model_of, refined
from sayso.tools.signatures import EMPTY, Argument, Signature
from sayso.tools.values import (
    SHOWN_ERRORS,
    as_json,
    explained,
    line,
    refuse_names,
    shortened,
    validated,
)

T = TypeVar("T")

BACKTRACKS = 1000
"""Steps that a pattern may backtrack in one text; if it needs more, the text counts as invalid."""
COMPILED = 2**20
"""Most bytes of a compiled pattern."""
_UNDESCRIBED = (PydanticUserError, PydanticSerializationError, TypeError, NameError)
"""The errors of pydantic and Python for a type that has no JSON schema."""

Arguments = dict[str, Any]
"""Keyword arguments for a tool's function, without the injected ones."""


class Inputs(Protocol):
    """One form of input: `schema` for the model, `read` for the model's input. The
    defaults here hold for a form without pydantic."""

    schema: dict[str, Any]

    @property
    def names(self) -> Collection[str]:
        """The names of the arguments, including all aliases."""
        ...

    @property
    def other_names(self) -> Names:
        """The aliases of fields in dataclasses and typed dicts inside the arguments."""
        return {}

    @property
    def secret_defaults(self) -> Sequence[tuple[str, Any]]:
        """The defaults that contain secrets, also of fields within fields, with the fields'
        names."""
        return ()

    def read(self, input: Mapping[str, Any]) -> Arguments:
        """The arguments for the function; raises ToolInputError."""
        ...

    def whole(self, input: Mapping[str, Any]) -> Whole:
        """The input with everything that was not sent; raises ToolInputError."""
        ...

    def parameter(self, key: str) -> str:
        """The parameter that `key` means, by its name in the schema."""
        return key


class _Adapted(Inputs, Protocol):
    """A form of input that a pydantic adapter reads."""

    _adapter: TypeAdapter[Any]

    @functools.cached_property
    def other_names(self) -> Names:
        return other_names(self._adapter.core_schema)

    @property
    def secret_defaults(self) -> Sequence[tuple[str, Any]]:
        return [*secret_defaults(self._adapter.core_schema)]


def inputs_of(label: str, signature: Signature, docs: Docstring, stated: Any) -> Inputs:
    """The inputs of the tool called `label`; `stated` is a JSON schema, a typed model or None."""
    if stated is None:
        model = _sole_model(signature)
        if model is None:
            return SignatureInputs(label, signature, docs)
        return ModelInputs(label, signature.arguments[0], model)
    if isinstance(stated, Mapping):
        return SchemaInputs(label, signature, stated)
    if not _is_model(stated):
        raise TypeError(
            f"tool {label!r}: input_schema must be a JSON schema (a dict) or a typed model (a "
            "pydantic model, a dataclass or a TypedDict)"
        )
    if len(signature.arguments) != 1 or signature.rest is not None:
        raise TypeError(
            f"tool {label!r}: with a model as input_schema the function takes one parameter for "
            f"the instance, beside injected ones; it takes {len(signature.arguments)}"
        )
    return ModelInputs(label, signature.arguments[0], stated)


def _is_model(stated: Any) -> bool:
    is_class = isinstance(stated, type)
    return (is_class and (issubclass(stated, BaseModel) or is_dataclass(stated))) or (
        typing_extensions.is_typeddict(stated)
    )


def _sole_model(signature: Signature) -> type[BaseModel] | None:
    if len(signature.arguments) != 1 or signature.rest is not None:
        return None
    only = signature.arguments[0].annotation
    while typing.get_origin(only) is Annotated:
        only = typing.get_args(only)[0]
    is_model = isinstance(only, type) and issubclass(only, BaseModel)
    if not is_model or getattr(only, "__pydantic_root_model__", False):
        return None
    return cast("type[BaseModel]", only)


class SignatureInputs(_Adapted):
    """Inputs read from a function's signature; a value that was not sent keeps its default."""

    def __init__(self, label: str, signature: Signature, docs: Docstring) -> None:
        self._closed = signature.closed
        self._names = [argument.name for argument in signature.arguments]
        self._field_defaults = {
            a.name
            for a in signature.arguments
            if a.default is EMPTY or isinstance(a.default, FieldInfo)
        }
        self._own_defaults = {
            a.name: a.default for a in signature.arguments if a.name not in self._field_defaults
        }
        self._model = _checked_model(label, signature, docs)
        self._fields = list(zip(self._model.model_fields, self._names, strict=True))
        self._adapter = TypeAdapter(self._model)
        self.schema = object_schema(label, self._adapter)

    @property
    def names(self) -> Collection[str]:
        return self._names

    def read(self, input: Mapping[str, Any]) -> Arguments:
        instance = self._validated(input)
        # pydantic's properties of these names take as long as the validation.
        sent, more = instance.__pydantic_fields_set__, instance.__pydantic_extra__
        read = instance.__dict__
        values = {
            name: read[field]
            for field, name in self._fields
            if field in sent or name in self._field_defaults
        }
        return {**values, **more} if more else values

    def _validated(self, input: Mapping[str, Any]) -> BaseModel:
        if self._closed:
            refuse_names(self._closed & input.keys(), self._names)
        instance: BaseModel = validated(self._adapter, input, self._names)
        if self._may_drop:
            held = {n: instance.__dict__[f] for f, n in self._fields}
            held |= instance.__pydantic_extra__ or {}
            refuse_dropped(input, held, self.other_names, self._names)
        return instance

    @functools.cached_property
    def _may_drop(self) -> bool:
        return arguments_may_drop(self._adapter.core_schema)

    def whole(self, input: Mapping[str, Any]) -> Whole:
        instance = self._validated(input)
        found = Whole()
        for name, value in (instance.__pydantic_extra__ or {}).items():
            found.put(name, value, *dumped(instance, name))
        for field, name in self._fields:
            if field in instance.__pydantic_fields_set__ or name in self._field_defaults:
                found.put(name, instance.__dict__[field], *dumped(instance, field))
            else:
                # The function uses its own default object, not a copy.
                found.put(name, self._own_defaults[name], *dumped(instance, field))
        return found


class ModelInputs(_Adapted):
    """Inputs of a typed model: the parameter `argument` gets the instance; if nothing is sent, the
    function's own default."""

    def __init__(self, label: str, argument: Argument, model: type[Any]) -> None:
        self._name = argument.name
        self._model = model
        self._default = argument.default if model in type(argument.default).__mro__ else None
        try:
            self._adapter = TypeAdapter(refined(model))
            self.schema = object_schema(label, self._adapter)
        except _UNDESCRIBED as error:
            raise unusable(label, argument.name, error) from error

    @property
    def names(self) -> Collection[str]:
        return set(every_name(self._model, self.other_names))

    def read(self, input: Mapping[str, Any]) -> Arguments:
        if self._default is not None and not input:
            # A copy: the function may change it.
            return {self._name: copy.deepcopy(self._default)}
        return {self._name: self._validated(input)}

    def _validated(self, input: Mapping[str, Any]) -> Any:
        known = list(self.schema.get("properties", {}))
        instance = validated(self._adapter, input, known)
        if self._may_drop:
            refuse_dropped(input, instance, self.other_names, known)
        return instance

    @functools.cached_property
    def _may_drop(self) -> bool:
        return may_drop(self._adapter.core_schema)

    @functools.cached_property
    def _parameters(self) -> dict[str, str]:
        """The name of each parameter in the schema, by each of its names."""
        properties = self.schema.get("properties", {})
        found: dict[str, str] = {}
        for group in groups_of(self._model, self.other_names):
            name = next((n for n in group if n in properties), group[0])
            found |= dict.fromkeys(group, name)
        return found

    def parameter(self, key: str) -> str:
        return self._parameters.get(key, key)

    def whole(self, input: Mapping[str, Any]) -> Whole:
        (instance,) = self.read(input).values()
        found = Whole()
        dumps = {self.parameter(k): dump for k, dump in all_dumped(self._adapter, instance)}
        for key, value in held_by(instance):
            name = self.parameter(key)
            found.put(name, value, *([dumps[name]] if name in dumps else []))
        return found


class SchemaInputs(Inputs):
    """Inputs of a JSON schema: the function gets them as they were sent, by keyword."""

    def __init__(self, label: str, signature: Signature, schema: Mapping[str, Any]) -> None:
        self._bounds = _bounds(label, schema)
        self.schema = stated_object(label, schema)
        self.is_open = signature.rest is not None
        """Whether the function takes every argument that the schema allows."""
        self._closed = signature.closed
        self._names = [argument.name for argument in signature.arguments]
        self._defaults = {a.name: a.default for a in signature.arguments if a.default is not EMPTY}
        self._fit(label, signature)
        self._validator = _validator(label, self.schema)
        self.schema = sayable(self.schema)

    @property
    def names(self) -> Collection[str]:
        return self._names

    def _fit(self, label: str, signature: Signature) -> None:
        properties = self.schema["properties"]
        unknown = set() if self.is_open else set(properties) - set(self._names)
        if taken := unknown | (set(properties) & self._closed):
            raise ValueError(
                f"tool {label!r}: its schema has {sorted(taken)}, which the function does not "
                "take; add the parameters or **kwargs"
            )
        required = {a.name for a in signature.arguments if a.default is EMPTY}
        missing = required - set(self.schema.get("required", ()))
        if missing:
            raise ValueError(
                f"tool {label!r}: the function needs {sorted(missing)}, which its schema does not "
                "require; add them to 'required' or give them defaults"
            )

    def read(self, input: Mapping[str, Any]) -> Arguments:
        as_json(input)
        # A copy: the function may change it, and the approved input must stay.
        given = copy.deepcopy(dict(input))
        refuse_names(self._closed & given.keys(), self._names)
        self._bounds.check(given)
        try:
            errors = list(itertools.islice(self._validator.iter_errors(given), SHOWN_ERRORS))
        except (ValueError, OverflowError) as error:
            raise ToolInputError(shortened(f"the input cannot be read: {error}")) from error
        if errors:
            raise explained(line(tuple(e.instance_path), e.message, e.instance) for e in errors)
        if not self.is_open:
            refuse_names(given.keys() - set(self._names), self._names)
        return given

    def whole(self, input: Mapping[str, Any]) -> Whole:
        found = Whole()
        for name, value in {**self._defaults, **self.read(input)}.items():
            # The function gets JSON as it was sent; a default that is a tuple is no JSON list.
            found.put(name, value, *([value] if is_plain(value) else []))
        return found


def _checked_model(label: str, signature: Signature, docs: Docstring) -> type[BaseModel]:
    try:
        model = model_of(signature.arguments, signature.rest, docs)
        model.model_json_schema(schema_generator=Schema)
        return model
    except _UNDESCRIBED as error:
        for argument in signature.arguments:
            try:
                model_of([argument], None, docs).model_json_schema(schema_generator=Schema)
            except _UNDESCRIBED as cause:
                raise unusable(label, argument.name, cause) from cause
        raise unusable(label, "**", error) from error


def _bounds(label: str, schema: Mapping[str, Any]) -> Bounds:
    try:
        return Bounds(dict(schema))
    except ValueError as error:
        raise ValueError(f"tool {label!r}: input_schema is not usable: {error}") from error


def _validator(label: str, schema: dict[str, Any]) -> Any:
    # Imported here, so that only tools with a JSON schema pay for it.
    import jsonschema_rs

    patterns = jsonschema_rs.FancyRegexOptions(backtrack_limit=BACKTRACKS, size_limit=COMPILED)
    try:
        return jsonschema_rs.validator_for(
            schema, mask="the value", retriever=_no_retrieval, pattern_options=patterns
        )
    except ValueError as error:
        reason = str(error).partition("\n")[0]
        place = ".".join(map(str, getattr(error, "instance_path", None) or ()))
        at = f" at {place!r}" if place else ""
        raise ValueError(f"tool {label!r}: input_schema is not valid{at}: {reason}") from error


def _no_retrieval(uri: str, /) -> Any:
    raise ValueError("references to other documents are not followed")
