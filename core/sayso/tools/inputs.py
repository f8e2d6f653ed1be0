"""The input that a tool will get: it is recorded, shown, compared, and runs (design, section 6,
"The deed": "Input").

The recorded input has each parameter as the tool's own types write it, but only if reading that
again gives the tool the very same value. Otherwise the parameter stays as it was sent, or absent if
it was not sent, and its description says so.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import MISSING, dataclass, field, fields, is_dataclass
from typing import Any, Protocol

from pydantic import BaseModel, Secret, SecretBytes, SecretStr

from sayso.config.received import Names, names_of, received
from sayso.errors import ToolInputError
from sayso.trees import canonical, copied
from sayso.wire.json_bytes import is_json

OF_NAMES = ("properties", "patternProperties", "$defs", "definitions", "dependentSchemas")
"""The keywords of a JSON schema whose keys are names."""
VALUES = frozenset({"default", "const", "enum"})
"""The keywords of a JSON schema that hold values and no schemas."""
_SECRET = (Secret, SecretStr, SecretBytes)
_ABSENT = object()
_ADDRESS = re.compile(r" at 0x[0-9a-fA-F]+")
UNSTEADY = object()
"""Stands for a value that differs in another process."""


@dataclass(slots=True)
class Whole:
    """A validated input with everything that was not sent: for each parameter the value that the
    tool gets, and the JSON from which the tool would read it again, if there is any."""

    values: dict[str, Any] = field(default_factory=dict)
    dumps: dict[str, Any] = field(default_factory=dict)

    def put(self, name: str, value: Any, dump: Any = _ABSENT) -> None:
        """Add a parameter; without `dump` no JSON can be read as it."""
        self.values[name] = value
        if dump is not _ABSENT and is_json(dump):
            self.dumps[name] = ordered(value, dump)


class Taking(Protocol):
    """The attributes of a tool that its inputs need."""

    name: str
    defaults: dict[str, Any]
    fixed: Mapping[str, Any]

    @property
    def input_schema(self) -> dict[str, Any]:
        """The JSON schema of the input."""
        ...

    @property
    def write_only(self) -> frozenset[str]:
        """The parameters that the schema marks as secret."""
        ...

    @property
    def secret_defaults(self) -> frozenset[str]:
        """The parameters whose defaults are secret."""
        ...

    def whole(self, input: Mapping[str, Any]) -> Whole:
        """The input with everything that was not sent; raises ToolInputError."""
        ...

    def parameter(self, key: str) -> str:
        """The parameter that `key` of an input means, by its name in the schema."""
        ...


@dataclass(frozen=True, slots=True)
class Recorded:
    """The input of a proposal. `marks` has the additions to a parameter's `input_description`:

    - `set_by: "service"` if it is absent from `input`, with its `default` if that may be shown;
    - `read_by: "tool"` if it is recorded as it was sent and the tool reads it as something else.
    """

    input: dict[str, Any]
    marks: dict[str, dict[str, Any]]

    def described(self, about: Mapping[str, Mapping[str, Any]]) -> dict[str, Any]:
        """The descriptions of the parameters with the marks of this input."""
        nothing = {"type": "any", "description": ""}
        names = dict.fromkeys([*about, *self.marks])
        return {n: {**about.get(n, nothing), **self.marks.get(n, {})} for n in names}


def recorded(tool: Taking, sent: Mapping[str, Any]) -> Recorded:
    """The recorded form of a call of `tool` with the input `sent`; raises ToolInputError.

    It calls users' code: validators, serializers, and factories of defaults, each of those once for
    the recorded value.
    """
    whole = tool.whole(sent)
    own = {tool.parameter(key): key for key in sent}
    kept = {
        name: dump
        for name, dump in whole.dumps.items()
        if not _is_secret(tool, name, whole.values[name])
    }
    fit = _fitting(tool, sent, own, whole, kept)
    input = _with(sent, own, fit)
    marks = {n: _mark(tool, n, value) for n, value in whole.values.items() if n not in {*own, *fit}}
    for name in own.keys() - fit.keys():
        if name in whole.values and not _reads_as(whole.values[name], sent[own[name]]):
            marks[name] = {"read_by": "tool"}
    # A client that reads the schema fills in these defaults itself.
    for name, stated in tool.input_schema["properties"].items():
        if name not in whole.values and isinstance(stated, Mapping) and "default" in stated:
            marks[name] = {} if name in tool.write_only else {"default": copied(stated["default"])}
    # A parameter fixed by a partial cannot be sent any more, but is part of the deed.
    shown = {name: value for name, value in tool.fixed.items() if is_json(value)}
    marks |= {name: _mark(tool, name, value) for name, value in shown.items()}
    return Recorded(input, marks)


def _fitting(
    tool: Taking,
    sent: Mapping[str, Any],
    own: Mapping[str, str],
    whole: Whole,
    kept: Mapping[str, Any],
) -> dict[str, Any]:
    """The parameters of `kept` from which the tool reads the same values again."""
    if canonical(_with(sent, own, kept)) == canonical(sent):
        return dict(kept)  # the usual case: the tool has just read them
    if _survive(tool, _with(sent, own, kept), whole, kept):
        return dict(kept)
    found: dict[str, Any] = {}
    for name, dump in kept.items():
        trial = {**found, name: dump}
        if _survive(tool, _with(sent, own, trial), whole, trial):
            found = trial
    return found


def _with(
    sent: Mapping[str, Any], own: Mapping[str, str], kept: Mapping[str, Any]
) -> dict[str, Any]:
    """The input with the `kept` parameters in place of their values as sent."""
    rest = {key: value for name, key in own.items() if name not in kept for value in [sent[key]]}
    found: dict[str, Any] = copied({**{n: kept[n] for n in kept if n in own}, **rest, **kept})
    return found


def _survive(tool: Taking, input: Mapping[str, Any], whole: Whole, names: Iterable[str]) -> bool:
    try:
        again = tool.whole(input)
    except ToolInputError:
        return False
    return all(
        name in again.dumps and same(again.values[name], whole.values[name]) for name in names
    )


def _mark(tool: Taking, name: str, value: Any) -> dict[str, Any]:
    """The mark of a parameter that the service sets."""
    mark: dict[str, Any] = {"set_by": "service"}
    shown = UNSTEADY if _is_secret(tool, name, value) else steady(value)
    if shown is not UNSTEADY and is_json(shown):
        mark["default"] = shown
    return mark


def _is_secret(tool: Taking, name: str, value: Any) -> bool:
    return name in tool.write_only or holds_secret_type(value)


def steady(value: Any) -> Any:
    """A value in a form that has a canonical text, the same in each process; UNSTEADY if it has
    none."""
    try:
        found = received(value, {})
        if not _ADDRESS.search(canonical(found).decode("utf-8", "replace")):
            return found
    except Exception:
        # A user's object that cannot be serialized.
        return UNSTEADY
    return UNSTEADY


def _reads_as(value: Any, sent: Any) -> bool:
    """Whether the tool gets exactly the value that was sent."""
    try:
        return canonical(received(value, {})) == canonical(sent)
    except Exception:
        # A user's object that cannot be serialized.
        return False


def held_by(instance: Any) -> Iterator[tuple[str, Any]]:
    """The values in a model, dataclass or typed dict, by name."""
    parts = _parts(instance, {})
    return ((name, value) for name, _, value, _ in parts or ())


def groups_of(kind: type[Any], others: Names) -> Iterator[list[str]]:
    """For each field of a model, dataclass or typed dict, all its names."""
    if issubclass(kind, BaseModel):
        for name, stated in kind.model_fields.items():
            yield [*names_of(name, stated)]
        return
    for name in [f.name for f in fields(kind)] if is_dataclass(kind) else kind.__annotations__:
        yield [name, *others.get(name, ())]


def same(one: Any, other: Any) -> bool:
    """Whether two values are equal to a tool in everything but their identity."""
    if type(one) is not type(other):
        return False
    if isinstance(one, _SECRET):
        return bool(one.get_secret_value() == other.get_secret_value())
    if isinstance(one, BaseModel):
        parts = (one.__dict__, one.__pydantic_extra__), (other.__dict__, other.__pydantic_extra__)
        return same(*parts)
    if is_dataclass(one):
        return same(vars(one), vars(other)) if hasattr(one, "__dict__") else bool(one == other)
    if isinstance(one, Mapping):
        return one.keys() == other.keys() and all(same(one[key], other[key]) for key in one)
    if isinstance(one, list | tuple):
        return len(one) == len(other) and all(map(same, one, other))
    try:
        return bool(one == other)
    except Exception:
        # The author's `__eq__` failed.
        return False


def ordered(value: Any, dump: Any) -> Any:
    """The JSON of a value with its sets in a fixed order; Python's own order differs from set to
    set."""
    if isinstance(value, set | frozenset) and isinstance(dump, list):
        return sorted(dump, key=canonical)
    if isinstance(value, list | tuple) and isinstance(dump, list) and len(value) == len(dump):
        return [ordered(*pair) for pair in zip(value, dump, strict=True)]
    if isinstance(dump, dict) and (parts := _parts(value, {})) is not None:
        by_key = {key: part for _, keys, part, _ in parts for key in keys}
        return {k: ordered(by_key[k], v) if k in by_key else v for k, v in dump.items()}
    return dump


def holds_secret_type(value: Any) -> bool:
    """Whether the value contains one of pydantic's secret types."""
    if isinstance(value, BaseModel):
        return holds_secret_type(value.__dict__) or holds_secret_type(value.__pydantic_extra__)
    if is_dataclass(value) and not isinstance(value, type):
        return any(holds_secret_type(getattr(value, f.name, None)) for f in fields(value))
    if isinstance(value, Mapping):
        return any(map(holds_secret_type, value.values()))
    if isinstance(value, list | tuple | set | frozenset):
        return any(map(holds_secret_type, value))
    return isinstance(value, _SECRET)


def write_only(schema: Mapping[str, Any]) -> frozenset[str]:
    """The parameters with anything `writeOnly` in their JSON schema, as secrets have."""
    definitions = {**schema.get("definitions", {}), **schema.get("$defs", {})}
    return frozenset(
        name
        for name, stated in schema.get("properties", {}).items()
        if _is_write_only(stated, definitions, set())
    )


def without_secrets(schema: dict[str, Any]) -> dict[str, Any]:
    """`schema` without the defaults of secrets, which no model or client may read."""
    definitions = {**schema.get("definitions", {}), **schema.get("$defs", {})}
    found: dict[str, Any] = _without_secrets(schema, definitions)
    return found


def _without_secrets(schema: Any, definitions: Mapping[str, Any]) -> Any:
    if isinstance(schema, list):
        return [_without_secrets(item, definitions) for item in schema]
    if not isinstance(schema, Mapping):
        return schema
    kept: dict[str, Any] = {}
    for key, value in schema.items():
        if key in OF_NAMES and isinstance(value, Mapping):
            kept[key] = {n: _without_secrets(each, definitions) for n, each in value.items()}
        elif key in VALUES:
            kept[key] = value
        else:
            kept[key] = _without_secrets(value, definitions)
    if "default" in kept and _is_write_only(kept, definitions, set()):
        del kept["default"]
    return kept


def _is_write_only(schema: Any, definitions: Mapping[str, Any], seen: set[str]) -> bool:
    if isinstance(schema, list):
        return any(_is_write_only(item, definitions, seen) for item in schema)
    if not isinstance(schema, Mapping):
        return False
    if schema.get("writeOnly") is True:
        return True
    name = str(schema.get("$ref", "")).rpartition("/")[2]
    if name in definitions and name not in seen:
        seen.add(name)
        if _is_write_only(definitions[name], definitions, seen):
            return True
    inner = (value for key, value in schema.items() if key not in VALUES)
    return any(_is_write_only(value, definitions, seen) for value in inner)


def dropped(sent: Any, value: Any, names: Names) -> Iterator[tuple[str | int, ...]]:
    """The places of `sent` of which nothing is in the `value` read from it.

    An author's validator may rename keys: as many keys may be missing as have appeared.
    """
    if isinstance(value, BaseModel) and getattr(type(value), "__pydantic_root_model__", False):
        yield from dropped(sent, value.__dict__["root"], names)
    elif isinstance(sent, Mapping):
        yield from _dropped_keys(sent, value, names)
    elif isinstance(sent, list) and isinstance(value, list | tuple) and len(sent) == len(value):
        for index, item in enumerate(sent):
            yield from ((index, *place) for place in dropped(item, value[index], names))


def _dropped_keys(
    sent: Mapping[str, Any], value: Any, names: Names
) -> Iterator[tuple[str | int, ...]]:
    parts = _parts(value, names)
    if parts is None:
        return
    by_key = {key: (own, part) for own, keys, part, _ in parts for key in keys}
    missing = [key for key in sent if key not in by_key]
    taken = {by_key[key][0] for key in sent if key in by_key}
    renamed = sum(1 for own, _, _, is_set in parts if is_set and own not in taken)
    if len(missing) > renamed:
        yield from ((key,) for key in missing)
    for key, item in sent.items():
        if key in by_key:
            yield from ((key, *place) for place in dropped(item, by_key[key][1], names))


_Part = tuple[str, set[str], Any, bool]
"""A name, all names of the same field, the value, and whether it was set."""


def _parts(value: Any, names: Names) -> list[_Part] | None:
    if isinstance(value, BaseModel):
        return [*_fields(value), *_extra(value.__pydantic_extra__)]
    if is_dataclass(value) and not isinstance(value, type):
        return [*_fields_of_dataclass(value, names)]
    if isinstance(value, Mapping):
        found = {str(received(key, {})): part for key, part in value.items()}
        return [(n, {n, *names.get(n, ())}, part, True) for n, part in found.items()]
    return None


def _fields(model: BaseModel) -> Iterator[_Part]:
    for name, stated in type(model).model_fields.items():
        is_set = name in model.__pydantic_fields_set__
        yield name, {*names_of(name, stated)}, model.__dict__.get(name), is_set


def _fields_of_dataclass(value: Any, names: Names) -> Iterator[_Part]:
    defaults = {f.name: f.default for f in fields(value)}
    made = {f.name for f in fields(value) if f.default_factory is not MISSING}
    held = {n: getattr(value, n, None) for n in defaults} | getattr(value, "__dict__", {})
    for name, part in held.items():
        # Only models record which fields were set.
        is_set = name not in made and not same(part, defaults.get(name))
        yield name, {name, *names.get(name, ())}, part, is_set


def _extra(given: Mapping[str, Any] | None) -> Iterator[_Part]:
    for name, part in (given or {}).items():
        yield name, {name}, part, True
