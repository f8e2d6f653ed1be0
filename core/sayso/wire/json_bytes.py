"""JSON read into models, with errors that never repeat a value that was sent, and JSON written from
any values of user code."""

from __future__ import annotations

import codecs
import json
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import fields, is_dataclass
from functools import cache, cached_property
from itertools import islice
from math import isfinite
from typing import Any, Generic, NamedTuple, TypeVar, get_args

from pydantic import BaseModel, TypeAdapter, ValidationError
from pydantic_core import (
    PydanticSerializationError,
    SchemaValidator,
    from_json,
    to_json,
    to_jsonable_python,
)

from sayso.errors import InvalidRequest
from sayso.garbage import no_collecting
from sayso.trees import DIGITS, is_endless

M = TypeVar("M", bound=BaseModel)
_SHORT = 16 * 2**10
"""Longest body, in bytes, for which all errors are collected. In a longer one, only the first error
of each list is reported: collecting millions takes gigabytes, and a minute in which nobody is
answered."""


# Matches each separator of values, and one or two more at the end; never one inside a text without
# escapes. No more than eight parts are between two separators. Possessive quantifiers would express
# that, too, but they match wrongly before Python 3.11.5.
_SEPARATED = re.compile(rb'(?:[^",\[{]+|"[^"]*"|[\[{]\s*[\]}]){0,8}(?:[,\[{]|.*)', re.DOTALL)


class BodyReader(Generic[M]):
    """Reads JSON into a model.

    Null for an optional field counts as absent, since some clients send every field of their model.
    A decision is never guessed: such a boolean must be true or false, and with `unique` no object
    may have a name twice.
    """

    def __init__(self, model: type[M], *, unique: bool = False) -> None:
        self._model = model
        self._unique = unique
        self._adapter = TypeAdapter(model)
        # Calls the validator directly: the adapter's own method costs as much as checking a
        # message.
        self._read_short = self._adapter.validator.validate_json

    def read(self, body: bytes | str, nesting: int | None = None, values: int | None = None) -> M:
        """The body as a model; raises InvalidRequest with an item for each wrong field.

        It is also raised for more than `values` JSON values. With `nesting`, it is raised for parts
        whose shape the model leaves open, if they are nested deeper than that, or contain NaN or a
        number too large for a double.
        """
        body = unmarked(body)
        if values is not None:
            check_size(body, values)
        if len(body) < _SHORT:
            return self._said(body, nesting, self._read_short)
        # A long body may have millions of values. Searching them for garbage again and again takes
        # longer than reading them, and nobody is answered meanwhile.
        with no_collecting():
            return self._said(body, nesting, self._read_long)

    def _said(self, body: bytes | str, nesting: int | None, read: Callable[..., Any]) -> M:
        if nesting is not None:
            check(strict(body), nesting)
            if self._unique:
                refuse_doubled(body)
        try:
            return read(body)  # type: ignore[no-any-return]
        except UnicodeDecodeError:
            raise InvalidRequest.at(["body"], "json_invalid", "the body is not UTF-8") from None
        except ValidationError as error:
            details = error.errors(include_url=False, include_context=False)
        if any(item["input"] is None for item in details):
            value = from_json(body)
            kept = without_nulls(self._model, value)
            if kept != value:
                return self.read(to_json(kept))
        raise InvalidRequest(
            [
                {"loc": ["body", *item["loc"]], "msg": item["msg"], "type": item["type"]}
                for item in details
            ]
        )

    @cached_property
    def _read_long(self) -> Any:
        schema = _fail_fast(self._adapter.core_schema)
        try:
            # Without the flag it uses the models' own validators, which continue after an error.
            return SchemaValidator(schema, _use_prebuilt=False).validate_json
        except TypeError:
            # pydantic does not promise this. Without it, only a wrong body is refused later.
            return self._read_short


def unmarked(body: bytes | str) -> bytes | str:
    """The body without the byte order mark that some programs put before a text."""
    if isinstance(body, str):
        return body.removeprefix("\ufeff")
    return body.removeprefix(codecs.BOM_UTF8)


def check_size(body: bytes | str, values: int) -> None:
    """Raise InvalidRequest for JSON with more values than this, which takes seconds to read."""
    if len(body) <= 2 * values:
        return
    raw = body.encode("utf-8", "surrogatepass") if isinstance(body, str) else body
    # The main part of a long body is text; this looks at each of its bytes once.
    if sum(map(raw.count, (b",", b"[", b"{"))) < values:
        return
    raw = raw.replace(rb"\\", b"").replace(rb"\"", b"")
    if next(islice(_SEPARATED.finditer(raw), values + 1, None), None) is not None:
        message = f"JSON holds more than {values} values"
        raise InvalidRequest.at(["body"], "too_many_values", message)


def strict(body: bytes | str) -> Any:
    """The value of a JSON text; raises InvalidRequest for NaN and infinities, which models
    accept."""
    try:
        return from_json(body, allow_inf_nan=False)
    except ValueError as error:
        raise InvalidRequest.at(["body"], "json_invalid", f"Invalid JSON: {error}") from None


def check(value: object, nesting: int, level: int = 0) -> None:
    """Raise InvalidRequest if `value`, found at depth `level`, has a `problem`."""
    if kind := problem(nesting - level, value):
        raise InvalidRequest.at(["body"], kind, _PROBLEMS[kind].format(nesting))


_FLAT = {str, int, bool, type(None)}
_PROBLEMS = {
    "too_deep": "JSON is nested deeper than {} levels",
    "finite_number": "a number is too large for a double",
}


def problem(levels: int, value: object) -> str:
    """Why `value`, which is JSON or made of models, is refused: "too_deep" if it is nested deeper
    than `levels`, "finite_number" for NaN or an infinity; else empty."""
    parts: Iterable[object]
    if isinstance(value, dict):
        parts = value.values()
    elif isinstance(value, (list, tuple)):
        parts = value
    elif isinstance(value, BaseModel):
        parts = [*value.__dict__.values(), *(value.__pydantic_extra__ or {}).values()]
    else:
        # 1e999 is valid JSON that reads as infinity, which cannot be written as JSON again.
        return "finite_number" if isinstance(value, float) and not isfinite(value) else ""
    if levels < 1:
        return "too_deep"
    for part in parts:
        if type(part) not in _FLAT and (found := problem(levels - 1, part)):
            return found
    return ""


def refuse_doubled(body: bytes | str) -> None:
    """Raise InvalidRequest for JSON in which an object has a name twice: one reader takes the first
    value of a decision, another the last."""
    # Numbers stay texts: reading one of a million digits takes long.
    json.loads(body, object_pairs_hook=_once, parse_int=str, parse_float=str)


def _once(members: list[tuple[str, Any]]) -> None:
    if len(members) != len(dict(members)):
        raise InvalidRequest.at(
            ["body"], "doubled_name", "a request with a decision has a name twice in one object"
        )


def is_json(value: object) -> bool:
    """Whether `value` can be written as JSON that every parser reads: no NaN, no lone surrogate."""
    try:
        json.dumps(value, allow_nan=False, ensure_ascii=False).encode()
    except (TypeError, ValueError):
        return False
    return True


_ABOVE = 6
"""Levels of a request above the input of a call: body, messages, message, data, calls, call."""


def unsendable(value: Any, nesting: int) -> str:
    """Why no request of at most `nesting` levels can send `value` back as the input of a call;
    empty if one can."""
    if problem(nesting - _ABOVE, value) == "too_deep":
        return f"it is nested deeper than {nesting - _ABOVE} levels"
    return "" if is_json(value) else "it is no JSON, but has NaN, an infinity or the like"


def _fail_fast(schema: Any) -> Any:
    """The schema with lists that stop at the first wrong item."""
    if isinstance(schema, list):
        return [_fail_fast(part) for part in schema]
    if not isinstance(schema, dict):
        return schema
    made = {name: _fail_fast(part) for name, part in schema.items()}
    return made | {"fail_fast": True} if made.get("type") == "list" else made


class _Field(NamedTuple):
    optional: bool
    """Whether null counts as absent."""
    holds: type[BaseModel] | None
    """The model in the field, or in the field's list."""


@cache
def _fields(model: type[BaseModel]) -> Mapping[str, _Field]:
    found: dict[str, _Field] = {}
    for name, field in model.model_fields.items():
        optional = not field.is_required() and field.annotation is not bool
        found[name] = found[field.alias or name] = _Field(optional, _model_in(field.annotation))
    return found


def _model_in(annotation: Any) -> type[BaseModel] | None:
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return annotation
    return next(filter(None, map(_model_in, get_args(annotation))), None)


def without_nulls(model: type[BaseModel], value: Any) -> Any:
    """`value`, which is to become a `model`, without null for optional fields."""
    if isinstance(value, list):
        return [without_nulls(model, item) for item in value]
    if not isinstance(value, dict):
        return value
    fields, kept = _fields(model), {}
    for name, item in value.items():
        field = fields.get(name)
        if field is None or not (item is None and field.optional):
            holds = field.holds if field is not None else None
            kept[name] = without_nulls(holds, item) if holds is not None else item
    return kept


_DEEPEST = 100
"""Most levels of a value that are converted; anything deeper becomes text."""


def dump_json(value: Any) -> bytes:
    """`value` as JSON, UTF-8. Only user code can produce values that JSON cannot hold; they are
    converted.

    Infinities, NaN and endless integers become null, lone surrogates "?", bytes their UTF-8 text,
    and other objects their `str()`. Self-referencing containers also become their `str()`.
    """
    try:
        raw = to_json(value, inf_nan_mode="null")
    except PydanticSerializationError:
        return to_json(json_values(value), inf_nan_mode="null")
    if may_hold_endless(raw):
        return to_json(json_values(value), inf_nan_mode="null")
    return raw


def may_hold_endless(raw: bytes) -> bool:
    """Whether a JSON text may contain such an integer; a string of digits looks like one."""
    if len(raw) <= DIGITS:
        return False
    # An endless integer fills at least one of these pieces.
    piece = DIGITS // 2
    return any(raw[n : n + piece].isdigit() for n in range(0, len(raw) - piece + 1, piece))


def encodable(text: str) -> str:
    """`text` as a plain `str` with "?" for lone surrogates, which JSON cannot hold, and which names
    of files that are not UTF-8 contain; `text` itself if there are none."""
    if type(text) is str and _encodes(text):
        return text
    return text.encode("utf-8", "replace").decode()


def _encodes(text: str) -> bool:
    if text.isascii():
        return True
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def json_values(value: Any, within: tuple[int, ...] = ()) -> Any:
    """`value` as JSON values, as `dump_json` writes it; `within` are the ids of its containers."""
    match value:
        case float() if not isfinite(value):
            return None
        case int() if is_endless(value):
            return None
        case None | bool() | int() | float():
            return value
        case str():
            return encodable(value)
        case bytes() | bytearray():
            return value.decode("utf-8", "replace")
        case BaseModel():
            return json_values(value.model_dump(warnings=False), within)
    text = f"<{type(value).__name__}>"
    inner = (*within, id(value))
    match value:
        case _ if id(value) in within or len(within) >= _DEEPEST:
            return json_values(text)
        case dict():
            return {
                json_values(_name(key)): json_values(item, inner) for key, item in value.items()
            }
        case list() | tuple() | set() | frozenset():
            return [json_values(item, inner) for item in value]
        case _ if is_dataclass(value) and not isinstance(value, type):
            return {f.name: json_values(getattr(value, f.name, None), inner) for f in fields(value)}
    if (number := own_number(value)) is not None:
        return json_values(number)
    try:
        made = to_jsonable_python(value, inf_nan_mode="null")
    except Exception:
        made = text
    # The text of a path may have half of a surrogate pair.
    return json_values(made, inner)


def own_number(value: Any) -> int | float | bool | None:
    """A single number of NumPy or a similar library as Python's own; None for anything else."""
    if getattr(value, "shape", None) != () or not hasattr(value, "dtype"):
        return None
    try:
        number = value.item()
    except Exception:
        return None
    return number if isinstance(number, int | float) else None


def _name(key: object) -> str:
    try:
        return str(key)
    except Exception:
        # An endless integer, or an object whose `str()` fails.
        return f"<{type(key).__name__}>"
