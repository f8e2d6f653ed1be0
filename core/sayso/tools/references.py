"""The references in a JSON schema, and the schemas that they refer to."""

from __future__ import annotations

from typing import Any
from urllib.parse import unquote

from sayso.trees import walk


class References:
    """The references within one document. Raises ValueError for a reference outside of it."""

    def __init__(self, root: dict[str, Any]) -> None:
        self._root = root
        old = "draft-04" in str(root.get("$schema", "")) or "draft-03" in str(root.get("$schema"))
        self._id = "id" if old else "$id"
        own = root.get(self._id)
        self._own = own.rstrip("#") if isinstance(own, str) else ""
        self._anchors: dict[str, list[dict[str, Any]]] = {}
        for schema in walk(root):
            if not isinstance(schema, dict):
                continue
            for keyword in ("$anchor", "$dynamicAnchor"):
                if isinstance(name := schema.get(keyword), str):
                    self._anchors.setdefault(name, []).append(schema)

    def check_base(self, schema: dict[str, Any]) -> None:
        """Raise ValueError if references in `schema` are relative to another address."""
        if schema is not self._root and isinstance(schema.get(self._id), str):
            raise ValueError(f"a schema in it has an address of its own ({self._id!r})")

    def targets(self, schema: dict[str, Any]) -> list[dict[str, Any]]:
        """The schemas that `schema` refers to."""
        return [target for reference in _references(schema) for target in self._targets(reference)]

    def _targets(self, reference: str) -> list[dict[str, Any]]:
        place = reference.removeprefix(self._own)
        if place in ("", "#"):
            return [self._root]
        if place.startswith("#/"):
            return self._at(unquote(place[2:]).split("/"))
        if (found := self._anchors.get(place[1:])) and place.startswith("#"):
            return found
        raise ValueError(
            f"it refers to {reference[:100]!r}; references to other documents are not followed"
        )

    def _at(self, steps: list[str]) -> list[dict[str, Any]]:
        found: Any = self._root
        for step in steps:
            key = step.replace("~1", "/").replace("~0", "~")
            if isinstance(found, dict):
                self.check_base(found)
                found = found.get(key)
            elif isinstance(found, list) and key.isdecimal() and int(key) < len(found):
                found = found[int(key)]
            else:
                found = None
        if isinstance(found, bool):
            return []
        if not isinstance(found, dict):
            raise ValueError(f"it refers to '#/{'/'.join(steps)[:100]}', which is not in it")
        return [found]


def _references(schema: dict[str, Any]) -> list[str]:
    values = (schema.get(key) for key in ("$ref", "$dynamicRef", "$recursiveRef"))
    return [value for value in values if isinstance(value, str)]
