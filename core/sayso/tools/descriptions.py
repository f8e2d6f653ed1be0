"""A gated call as its approvers read it: its parameters, and the preview that the tool's author
makes of its input.

A preview is a help and not a part of the deed: an approval binds the input, and never what a
preview says.
"""

from __future__ import annotations

import inspect
import logging
import re
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from typing import Any

from sayso.workers.code import is_coroutine_function

_LONGEST = 200
"""Most characters in the name of a type."""
_DEEPEST = 30
"""Deepest nesting of types that is described."""


def describe(schema: Mapping[str, Any]) -> dict[str, dict[str, str]]:
    """`{parameter: {type, description}}` of an input schema (interface.md, "ToolCall")."""
    # Also under the older name, which an author's schema may use.
    definitions = {**schema.get("definitions", {}), **schema.get("$defs", {})}
    types: dict[str, str] = {}
    return {
        name: {
            "type": _type_name(value, definitions, types),
            "description": _description(value, definitions),
        }
        for name, value in schema.get("properties", {}).items()
    }


def _description(schema: Any, definitions: Mapping[str, Any]) -> str:
    if not isinstance(schema, Mapping):
        return ""
    below = definitions.get(_named(schema))
    layers = (layer for layer in (schema, below) if isinstance(layer, Mapping))
    return next((str(layer["description"]) for layer in layers if "description" in layer), "")


def _type_name(
    schema: Any, definitions: Mapping[str, Any], types: dict[str, str], depth: int = 0
) -> str:
    """The common name for the type of `schema`; `types` are those of the definitions so far."""
    if not isinstance(schema, Mapping) or depth > _DEEPEST:
        return "any"
    if (name := _named(schema)) in definitions:
        if name not in types:
            # The name for a reference to itself, until its own is known.
            types[name] = "any"
            # Truncated: each definition may name others twice, and the text would double with each.
            types[name] = _cut(_type_name(definitions[name], definitions, types, depth + 1))
        return types[name]
    stated = schema.get("type")
    if isinstance(stated, list):
        return " or ".join(map(str, stated))
    if stated == "array" and "items" in schema:
        return f"array of {_type_name(schema['items'], definitions, types, depth + 1)}"
    if stated:
        return str(stated)
    choices = schema.get("anyOf") or schema.get("oneOf") or []
    names = [_type_name(choice, definitions, types, depth + 1) for choice in choices]
    return " or ".join(dict.fromkeys(names)) or "any"


def _cut(words: str) -> str:
    return words if len(words) <= _LONGEST else words[: _LONGEST - 1] + "…"


def _named(schema: Mapping[str, Any]) -> str:
    return re.sub(r"^#/(\$defs|definitions)/", "", str(schema.get("$ref", "")))


logger = logging.getLogger("sayso.tools")
LONGEST = 20_000
"""Characters of a preview that are recorded."""


def check_preview(name: str, preview: object, arguments: Iterable[str]) -> None:
    """Raise TypeError, naming the tool, for an object that cannot make previews of `arguments`."""
    if preview is None:
        return
    rule = f"tool {name!r}: preview must be a plain function of the tool's own arguments"
    if not callable(preview) or is_coroutine_function(preview):
        raise TypeError(f"{rule}, not {preview!r}")
    with suppress(ValueError):  # some built-in functions have no signature
        signature = inspect.signature(preview)
        try:
            signature.bind(**dict.fromkeys(arguments))
        except TypeError as error:
            raise TypeError(f"{rule} ({', '.join(arguments)}): {error}") from None


def preview_of(preview: Callable[..., str], arguments: Mapping[str, Any]) -> str:
    """The text for these arguments; one that failed says so, and hinders nothing."""
    try:
        text = preview(**arguments)
    except BaseException as error:
        # SystemExit of user code is a failure like any other, as in tools.
        logger.warning("a preview failed", exc_info=True)
        return f"The preview failed: {type(error).__name__}."
    if not isinstance(text, str):
        return f"The preview failed: it gave {type(text).__name__} instead of a text."
    if len(text) > LONGEST:
        return f"{text[:LONGEST]}\n[{len(text) - LONGEST} more characters]"
    return text
