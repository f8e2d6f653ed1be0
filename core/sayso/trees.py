"""JSON values as trees of dicts and lists: walking one, and copying it with other leaves."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Any

__all__ = ["inside", "rebuilt", "walk"]

_CONTAINERS = (dict, list, tuple)


def inside(value: object) -> Iterable[Any]:
    """The values directly in a container; none for a leaf."""
    if isinstance(value, dict):
        return value.values()
    return value if isinstance(value, (list, tuple)) else ()


def walk(value: object) -> Iterator[Any]:
    """Each value in a tree, in no particular order: the containers, itself too, and the leaves.

    A container that occurs in several places, or in itself, is walked once.
    """
    rest, seen = [value], set[int]()
    while rest:
        node = rest.pop()
        if isinstance(node, _CONTAINERS):
            if id(node) in seen:
                continue
            seen.add(id(node))
            rest.extend(inside(node))
        yield node


def rebuilt(value: Any, leaf: Callable[[Any], Any], key: Callable[[Any], Any] | None = None) -> Any:
    """A copy of a tree with `leaf` of each value that is no container, and `key` of each key.

    Tuples become lists, as in JSON.
    """
    if isinstance(value, dict):
        if key is None:
            return {name: rebuilt(item, leaf) for name, item in value.items()}
        return {key(name): rebuilt(item, leaf, key) for name, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [rebuilt(item, leaf, key) for item in value]
    return leaf(value)
