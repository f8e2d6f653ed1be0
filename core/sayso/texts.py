"""Long conversations of texts: validated as a whole, made into messages only when looked at.

Making the messages is most of the cost of reading a long history, and most user code looks only at
the last ones. The shapes are those of the models: none is defined here.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any, Generic, TypeVar, cast, overload

from pydantic import BaseModel, TypeAdapter, ValidationError
from pydantic_core import SchemaValidator
from pydantic_core.core_schema import (
    CoreSchema,
    TypedDictField,
    list_schema,
    typed_dict_field,
    typed_dict_schema,
)

M = TypeVar("M", bound=BaseModel)


class Texts(list[M]):
    """A list of models that are made of their fields when they are looked at.

    `len`, `[index]` and `copy` make no more than they must. Anything else makes all of them
    first, and from then on this is a list like any other.
    """

    def __init__(
        self, items: Iterable[Any], make: TypeAdapter[list[M]], fields: Sequence[dict[str, Any]]
    ) -> None:
        super().__init__(items)
        self._make = make
        self.fields = fields
        """What was read, whatever became of the models."""

    @overload  # type: ignore[override]
    def __getitem__(self, index: int) -> M: ...
    @overload
    def __getitem__(self, index: slice) -> list[M]: ...
    def __getitem__(self, index: int | slice) -> M | list[M]:
        if isinstance(index, slice):
            self._make_all()
            return super().__getitem__(index)
        item: Any = super().__getitem__(index)
        if type(item) is dict:
            item = self._make.validate_python([item])[0]
            super().__setitem__(index, item)
        return cast("M", item)

    def copy(self) -> list[M]:
        """A new list of the same models, made as far as they are here."""
        return Texts(super().copy(), self._make, self.fields)

    def made(self) -> list[M]:
        """The messages that are made already."""
        items: list[Any] = super().copy()
        return [item for item in items if type(item) is not dict]

    def __radd__(self, other: list[M]) -> list[M]:
        return [*other, *self]

    def __reduce_ex__(self, protocol: Any) -> Any:
        return list, (list(self),)

    def _make_all(self) -> None:
        # The copy is a plain list: models in it pass as they are, fields become models.
        super().__setitem__(slice(None), self._make.validate_python(super().copy()))


def _of_all(name: str) -> Callable[..., Any]:
    plain = getattr(list, name)

    def method(self: Texts[Any], *args: Any, **named: Any) -> Any:
        self._make_all()
        return plain(self, *args, **named)

    method.__name__ = name
    return method


for _name in (
    "__add__ __contains__ __delitem__ __eq__ __ge__ __gt__ __iadd__ __imul__ __iter__ __le__ "
    "__lt__ __mul__ __ne__ __repr__ __reversed__ __rmul__ __setitem__ append clear count extend "
    "index insert pop remove reverse sort"
).split():
    setattr(Texts, _name, _of_all(_name))


class TextReader(Generic[M]):
    """Reads the JSON of a `whole` model whose list `name` holds models with texts in them only.

    Each of these may have the fields `texts` and no others, and so may the whole its own fields.
    Everything else, wrong input too, is left to the models themselves.
    """

    def __init__(
        self, whole: type[BaseModel], name: str, model: type[M], texts: Iterable[str]
    ) -> None:
        self._name = name
        self._make = TypeAdapter(list[model])  # type: ignore[valid-type]
        one = _only({text: _field(model, text) for text in texts})
        # The first one that has more tells that the rest need not be read this way.
        several = typed_dict_field(list_schema(one, fail_fast=True))
        fields = {field: _field(whole, field) for field in whole.model_fields if field != name}
        self._whole = SchemaValidator(_only({name: several, **fields}))

    def read(self, body: bytes | str) -> dict[str, Any] | None:
        """The fields of the whole, its list as Texts; None when they are the models' to read."""
        try:
            found: dict[str, Any] = self._whole.validate_json(body)
        except (ValidationError, UnicodeDecodeError):
            return None
        fields = found[self._name]
        found[self._name] = Texts(fields, self._make, fields)
        return found


def _only(fields: dict[str, TypedDictField]) -> CoreSchema:
    return typed_dict_schema(fields, extra_behavior="forbid")


def _field(model: type[BaseModel], name: str) -> TypedDictField:
    field = model.model_fields[name]
    schema = TypeAdapter(field.rebuild_annotation()).core_schema
    return typed_dict_field(schema, required=field.is_required())
