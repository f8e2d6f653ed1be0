"""Bounds the cost of checking an input against a JSON schema before any library sees either.

A schema of few bytes can ask for more steps than a machine makes in a year: `allOf` with two
references to a definition that has two, and so on. The library checks in one step that cannot be
interrupted. Therefore a schema that may take too long is refused when the tool is made, and an
input that may is refused before it is checked.

The cost of a schema is the largest number of schemas on one path through an input, from the input
itself down to one value: schemas for the same value are added up; of schemas for different values
the largest counts. An input costs no more than that for each value in it.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterator, Sequence
from typing import Any
from urllib.parse import unquote

from sayso.errors import ToolInputError
from sayso.trees import inside, walk


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


VALUES = 20_000
"""Most values in a schema."""
NESTING = 64
"""How deep they may be nested, and how many schemas may apply one through another to one value."""
PATTERNS = 100
"""Most regular expressions in a schema; each takes up to ten milliseconds to compile."""
PATTERN = 1000
"""Most characters of one."""
FIRST = 2
"""The levels of an input for which a schema is judged when the tool is made. Deeper levels are
judged when the input is known, since a schema that refers to itself has no end."""
SCHEMA_COST = 2000
INPUT_COST = 1_000_000
"""Most steps; they take a second or two if each step is of the slowest kind."""
_MANY = 50
"""Entries of an `enum`, `required` or `properties` that take as long as one more schema."""
_WIDE = 16
_GOES_BACK = re.compile(r"\(\?[=!<]|\\[1-9k]")
"""Lookaround and back references; the library matches everything else in one pass."""
_TOO_LONG = "it could take too long to check an input against it"

_Costs = dict[int, tuple[int, int]]
"""By schema: the cost of checking whether a value is valid, and of that plus explaining why not."""


class Bounds:
    """The bounds of one schema. Raises ValueError if it exceeds them."""

    def __init__(self, schema: dict[str, Any]) -> None:
        check_size(schema)
        self._parts = _Parts(schema)
        self._tables: dict[int, _Table] = {}
        if self._cost(FIRST, _WIDE) > SCHEMA_COST:
            raise ValueError(_TOO_LONG)

    def check(self, input: dict[str, Any]) -> None:
        """Raise ToolInputError for an input that could take too long to check."""
        size, depth, width = _measured(input, self._parts.goes_back)
        if self._cost(depth, width) * size > INPUT_COST:
            raise ToolInputError(
                "the input is too large, or nested too deeply, to be checked against the tool's "
                "schema; send less at once"
            )

    def _cost(self, depth: int, width: int) -> int:
        # Rounded up to a power of two, so that there are few tables for any number of inputs.
        width = 1 << width.bit_length() if self._parts.repeat else 0
        if width not in self._tables:
            self._tables[width] = _Table(self._parts, width)
        return self._tables[width].cost(depth)


def check_size(schema: dict[str, Any]) -> None:
    """Raise ValueError for a schema of too many values, or nested too deeply to be walked."""
    level: list[Any] = [dict(schema)]
    count = 0
    for _ in range(NESTING):
        level = list(itertools.islice(_below(level), VALUES))
        count += len(level)
        if not level:
            return
        if count >= VALUES:
            raise ValueError(f"it holds more than {VALUES} values")
    raise ValueError(f"it is nested more than {NESTING} levels deep")


def _measured(input: Any, texts: bool) -> tuple[int, int, int]:
    """The number of values, their depth of nesting, and the most entries of one value.

    With `texts` long texts count as many values.
    """
    level, size, depth, width = [input], 1, 0, 0
    while level := list(_below(level)):
        size += len(level)
        if texts:
            size += sum(len(value) // 4 for value in level if isinstance(value, str))
        depth += 1
        width = max(width, *(len(v) if isinstance(v, dict | list) else 0 for v in level))
    return size, depth, max(width, len(input))


def _below(level: Sequence[Any]) -> Iterator[Any]:
    return itertools.chain.from_iterable(map(inside, level))


class _Part:
    """One schema: its own weight, the schemas for the same value and those for values inside it."""

    __slots__ = ("fit", "inside", "key", "names", "same", "weight", "widely")

    def __init__(self, schema: dict[str, Any], found: References) -> None:
        many = sum(len(value) for value in schema.values() if isinstance(value, list | dict))
        self.key = id(schema)
        self.weight = 1 + many // _MANY
        self.same = [
            *_all(schema, "allOf", "then", "else", "dependentSchemas", "dependencies"),
            *found.targets(schema),
        ]
        # The library first asks whether these are valid, and then what is wrong in them.
        self.fit = _all(schema, "anyOf", "oneOf", "if", "not")
        one = _all(schema, "properties", "additionalProperties")
        item = _all(schema, "items", "prefixItems", "additionalItems")
        self.names = (one, item)
        self.inside = (
            _all(schema, "patternProperties", "propertyNames", "unevaluatedProperties"),
            _all(schema, "contains", "unevaluatedItems"),
        )
        # For each value in this one, the library asks again which parts of this schema have
        # evaluated it.
        self.widely = "unevaluatedProperties" in schema or "unevaluatedItems" in schema


def _all(schema: dict[str, Any], *keywords: str) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = []
    for keyword in keywords:
        value = schema.get(keyword)
        if keyword in _MAPS and isinstance(value, dict):
            found += [part for part in value.values() if isinstance(part, dict)]
        elif isinstance(value, dict):
            found.append(value)
        elif isinstance(value, list):
            found += [part for part in value if isinstance(part, dict)]
    return found


_MAPS = {"properties", "patternProperties", "dependentSchemas", "dependencies"}


class _Parts:
    """The schemas that apply to an input, each after those that it applies to the same value."""

    def __init__(self, schema: dict[str, Any]) -> None:
        self._found = References(schema)
        self._patterns = 0
        self.goes_back = False
        """Whether a pattern is of the kind that may read a text many times."""
        self._done: dict[int, _Part] = {}
        self._open: set[int] = set()
        self._later: list[dict[str, Any]] = [schema]
        while self._later:
            self._visit(self._later.pop(), 0)
        self.root = id(schema)
        self.order = list(self._done.values())
        self.repeat = any(part.widely for part in self.order)

    def _visit(self, schema: dict[str, Any], depth: int) -> None:
        if id(schema) in self._done:
            return
        if id(schema) in self._open:
            raise ValueError("a schema in it refers to itself for the same value")
        if depth > NESTING:
            raise ValueError(f"more than {NESTING} schemas in it apply through one another")
        self._open.add(id(schema))
        self._found.check_base(schema)
        self._count_patterns(schema)
        part = _Part(schema, self._found)
        for other in (*part.same, *part.fit):
            self._visit(other, depth + 1)
        self._open.discard(id(schema))
        self._done[part.key] = part
        self._later += itertools.chain(*part.names, *part.inside)

    def _count_patterns(self, schema: dict[str, Any]) -> None:
        patterns = [schema.get("pattern"), *(schema.get("patternProperties") or ())]
        texts = [pattern for pattern in patterns if isinstance(pattern, str)]
        self._patterns += len(texts)
        self.goes_back |= any(_GOES_BACK.search(text) for text in texts)
        if self._patterns > PATTERNS or any(len(text) > PATTERN for text in texts):
            raise ValueError(
                f"it holds more than {PATTERNS} patterns, or one of more than {PATTERN} characters"
            )


class _Table:
    """The costs of a schema for inputs of each depth, computed on demand."""

    def __init__(self, parts: _Parts, width: int) -> None:
        self._parts = parts
        self._width = width
        self._levels: list[_Costs] = [self._level({})]

    def cost(self, depth: int) -> int:
        while len(self._levels) <= depth:
            last = self._levels[-1]
            level = self._level(last)
            if level == last or level[self._parts.root][1] > INPUT_COST:
                # The cost grows no more, or is already above the limit.
                return level[self._parts.root][1]
            self._levels.append(level)
        return self._levels[depth][self._parts.root][1]

    def _level(self, below: _Costs) -> _Costs:
        costs: _Costs = {}
        for part in self._parts.order:
            fits = explained = part.weight
            for other in part.same:
                fits += costs[id(other)][0]
                explained += costs[id(other)][1]
            for other in part.fit:
                fits += costs[id(other)][0]
                explained += sum(costs[id(other)])
            inside = self._inside(part, below) if below else (0, 0)
            times = 1 + self._width if part.widely else 1
            costs[part.key] = ((fits + inside[0]) * times, (explained + inside[1]) * times)
        return {key: (min(a, _CAP), min(b, _CAP)) for key, (a, b) in costs.items()}

    def _inside(self, part: _Part, below: _Costs) -> tuple[int, int]:
        kinds = [
            tuple(
                max((below[id(o)][which] for o in one), default=0)
                + sum(below[id(o)][which] for o in each)
                for which in (0, 1)
            )
            for one, each in zip(part.names, part.inside, strict=True)
        ]
        return max(kind[0] for kind in kinds), max(kind[1] for kind in kinds)


_CAP = 10 * INPUT_COST
"""Higher costs are not distinguished."""
