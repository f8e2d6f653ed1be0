"""The tool calls of one message as their fragments come.

Servers differ: an index or an id may be missing, or be that of another call; a call may come whole,
in pieces beside those of others, or a second time.
"""

from __future__ import annotations

import json
import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from sayso.models.adapters import read_input

_CHANNEL = re.compile(r"(?:.*\bto=)?(?:functions\.)?([\w-]+?)(?:<\|.*)?", re.DOTALL)
"""A tool's name among the marks of gpt-oss, which not every server takes away."""


@dataclass
class Slot:
    """One tool call."""

    id: str = ""
    name: str = ""
    arguments: list[str] = field(default_factory=list)
    extra: Any = None

    def ended(self, name: str) -> bool:
        """Whether a fragment with this call's id, without an index, begins a call of `name`."""
        return bool(name) and (name != self.name or self.whole())

    def left(self, call_id: str, name: str, filled: bool) -> bool:
        """Whether a fragment with this call's index begins another call, one of `name`.

        Some gateways give every call of a message the index 0, and not all of them an id.
        `filled` says that the fragment has arguments.
        """
        if call_id and self.id:
            return call_id != self.id
        return self.name not in ("", name) or (filled and self.whole())

    def whole(self) -> bool:
        """Whether the arguments are complete."""
        closed = bool(self.arguments) and self.arguments[-1].rstrip().endswith("}")
        return closed and read_input("".join(self.arguments))[1] is None

    def again(self, other: Slot) -> bool:
        """Whether `other` is a repetition of this call."""
        if not self.id or (self.id, self.name) != (other.id, other.name):
            return False
        return bool(_read(self) == _read(other))


class Slots:
    """The calls of one message, in their order; `tools` are the names that were sent."""

    def __init__(self, tools: Collection[str]) -> None:
        self._tools = tools
        self._all: list[Slot] = []
        self._by_index: dict[int, Slot] = {}

    def __bool__(self) -> bool:
        return bool(self._all)

    def feed(self, piece: Mapping[str, Any]) -> Iterator[str]:
        """Take a fragment; gives the name of the tool whose call begins with it, if one does."""
        function = piece.get("function") or {}
        call_id = str(piece.get("id") or "")
        given = function.get("arguments")
        text = given if isinstance(given, str) else "" if given is None else json.dumps(given)
        name = self._named(function.get("name") or "")
        slot = self._slot(piece.get("index"), call_id, name, bool(text.strip()))
        slot.id = slot.id or call_id
        slot.extra = piece.get("extra_content") or slot.extra
        if not slot.name and name:
            slot.name = name
            yield name
        if text:
            slot.arguments.append(text)

    def calls(self) -> Sequence[Slot]:
        """Each call once."""
        once: list[Slot] = []
        for slot in self._all:
            if not any(slot.again(other) for other in once):
                once.append(slot)
        return once

    def _named(self, name: str) -> str:
        if name and name not in self._tools and (found := _CHANNEL.fullmatch(name)):
            return found[1] if found[1] in self._tools else name
        return name

    def _slot(self, index: int | None, call_id: str, name: str, filled: bool) -> Slot:
        known = self._by_index.get(index) if index is not None else None
        if index is None and call_id:
            known = next((s for s in self._all if s.id == call_id and not s.ended(name)), None)
        if known is None and self._all and not name:
            known = self._unnamed(index, call_id, filled)
        if index is not None and known is not None and name and known.left(call_id, name, filled):
            known = None
        if known is None:
            known = Slot()
            self._all.append(known)
        if index is not None:
            self._by_index[index] = known
        return known

    def _unnamed(self, index: int | None, call_id: str, filled: bool) -> Slot | None:
        """The call to which a fragment belongs that names no tool, where its index says nothing:
        the one with its id, else the last one. A fragment of a new index may still be named."""
        by_id = next((s for s in self._all if call_id and s.id == call_id), None)
        if by_id is None and (index is None or (filled and not call_id)):
            return self._all[-1]
        return by_id


def _read(slot: Slot) -> Any:
    return read_input("".join(slot.arguments))
