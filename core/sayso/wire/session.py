"""The key-value state of a conversation, passed from turn to turn (interface.md, "Data")."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Mapping, MutableMapping
from typing import Any, TypeVar, overload

from pydantic import BaseModel, TypeAdapter
from pydantic_core import to_json, to_jsonable_python

from sayso.trees import rebuilt
from sayso.wire.bodies import problem
from sayso.wire.canonical import holds_endless

T = TypeVar("T")

RESERVED = "_sayso"
"""The key for the conversation's own id; never shown to user code."""
_ABOVE = 5
"""Levels of a request above a value of its session: body, messages, message, data, session."""


def plain(value: Any) -> Any:
    """`value` as JSON values: models and dataclasses become objects, the rest stays as given."""
    return rebuilt(value, _plain_leaf)


def _plain_leaf(value: Any) -> Any:
    if isinstance(value, BaseModel):
        return value.model_dump(mode="json")
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return to_jsonable_python(dataclasses.asdict(value))
    return value


class Session(MutableMapping[str, Any]):
    """State shared by the tools of one conversation; the caller sends it back with the next turn.

    Values are JSON values; typed models and dataclasses are stored as plain objects and read back
    with `as_type` (interface.md, "Session operations"). `nesting` is how many levels of JSON a
    request of the caller may have.
    """

    def __init__(self, state: Mapping[str, Any] | None = None, *, nesting: int = 64) -> None:
        self._levels = nesting - _ABOVE
        given = dict(state) if state else {}
        self._hidden: Any = given.pop(RESERVED, None) if given else None
        self._state: dict[str, Any] = given
        self.stated = state is not None
        """Whether it began with a state, even an empty one."""

    @overload
    def get(self, key: str, default: Any = None) -> Any: ...
    @overload
    def get(self, key: str, default: T | None = None, *, as_type: type[T]) -> T | None: ...
    def get(self, key: str, default: Any = None, as_type: type[Any] | None = None) -> Any:
        """The value under `key`, else `default`; with `as_type` validated as that type.

        Raises pydantic's ValidationError if a stored value is invalid for `as_type`.
        """
        if key not in self._state:
            return default
        value = self._state[key]
        if as_type is None:
            return value
        # Validate JSON, since a strict type accepts times and dataclasses only from JSON. Both
        # names and aliases: `set` writes names, a caller may have written aliases.
        return TypeAdapter(as_type).validate_json(to_json(value), by_alias=True, by_name=True)

    def set(self, key: str, value: Any) -> None:
        """Store `value`; raises ValueError for the reserved key and for a value that is not JSON.

        A key that is no text raises TypeError: as JSON it would come back as a different key.
        """
        if not isinstance(key, str):
            raise TypeError(f"a session key must be text, not {type(key).__name__}; try str()")
        if key == RESERVED:
            raise ValueError(f"the session key {RESERVED!r} is reserved")
        try:
            stored = to_jsonable_python(plain(value))
        except UnicodeEncodeError:
            raise ValueError(
                f"the session value {key!r} has a key with half a surrogate pair, which is no text"
            ) from None
        if holds_endless(stored):
            raise ValueError(
                f"the session value {key!r} holds an integer of more than 4,300 digits, which no "
                "caller could send back; try str()"
            )
        if problem(self._levels, stored) == "too_deep":
            raise ValueError(
                f"the session value {key!r} is nested deeper than {self._levels} levels, which no "
                "caller could send back; try json.dumps()"
            )
        self._state[key] = stored

    def delete(self, key: str) -> None:
        """Remove `key`; a missing key is no error."""
        self._state.pop(key, None)

    def update(self, *args: Any, **values: Any) -> None:
        """Store several values at once, from a mapping, pairs or keywords."""
        for key, value in dict(*args, **values).items():
            self.set(key, value)

    def setdefault(self, key: str, default: Any = None) -> Any:
        """The value under `key`; if there is none, `default` is stored."""
        if key not in self._state:
            self.set(key, default)
        return self._state[key]

    def clear(self) -> None:
        """Remove every key."""
        self._state.clear()

    def __getitem__(self, key: str) -> Any:
        return self._state[key]

    def __setitem__(self, key: str, value: Any) -> None:
        self.set(key, value)

    def __delitem__(self, key: str) -> None:
        del self._state[key]

    def __iter__(self) -> Iterator[str]:
        return iter(self._state)

    def __len__(self) -> int:
        return len(self._state)

    def __repr__(self) -> str:
        return f"Session({sorted(self._state)})"

    @property
    def conversation(self) -> str | None:
        """The conversation's id; None before the first command proposal."""
        return self._hidden if isinstance(self._hidden, str) and self._hidden else None

    @conversation.setter
    def conversation(self, value: str) -> None:
        self._hidden = value

    def shown(self) -> dict[str, Any] | None:
        """The state as user code sees it: `dump` without the reserved key."""
        return dict(self._state) if self._state or self.stated else None

    def dump(self) -> dict[str, Any] | None:
        """The state for the wire; None if it was never set."""
        if self._hidden is not None:
            return {**self._state, RESERVED: self._hidden}
        return self.shown()
