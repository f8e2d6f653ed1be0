"""The shared parts of adapters for building a Reply."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any, NoReturn

from sayso.models import Ask, Block, Call, ModelEvent, Reply, Stop, Text, TextDelta
from sayso.models.faults import fault
from sayso.models.schemas import resolved


def read_input(text: str) -> tuple[dict[str, Any], str | None]:
    """The arguments of a tool call, or `{}` and why they cannot be read; empty text is `{}`.

    Some servers send null or an empty object before the real one, the whole once more after its
    pieces, or an object as JSON in JSON: all of these are accepted.
    """
    if not text.strip():
        return {}, None
    try:
        values = [value for value in _values(text) if value is not None]
        # A lone surrogate cannot be encoded, so no request could send it back to the provider.
        (json.dumps(values, ensure_ascii=False) if "\\u" in text else text).encode()
    except (ValueError, RecursionError):
        return {}, "the arguments are not valid JSON"
    if not all(isinstance(value, dict) for value in values):
        return {}, "the arguments are not a JSON object"
    meant = [value for n, value in enumerate(values) if value and value not in values[:n]]
    if len(meant) > 1:
        return {}, "the arguments are more than one JSON object"
    return (meant or [{}])[0], None


def _values(text: str) -> list[Any]:
    """The JSON values in `text`, which may follow one another without a separator."""
    values, at = [], 0
    text = text.strip()
    while at < len(text):
        value, at = _DECODER.raw_decode(text, at)
        if isinstance(value, str) and value.lstrip().startswith("{"):
            value = _DECODER.decode(value)
        values.append(value)
        at += len(text[at:]) - len(text[at:].lstrip())
    return values


def fitted(input: Mapping[str, Any], schema: Mapping[str, Any]) -> Mapping[str, Any]:
    """`input` with lists and objects that were sent as JSON text read, where `schema` takes them
    and no text; `input` itself if there are none."""
    changed = {}
    properties = schema.get("properties")
    for name, value in input.items():
        if isinstance(value, str) and value.lstrip()[:1] in ("[", "{"):
            part = properties.get(name) if isinstance(properties, Mapping) else None
            kinds = _kinds(part, schema) if isinstance(part, Mapping) else set()
            if "string" not in kinds and (read := _read(value, kinds)) is not None:
                changed[name] = read
    return {**input, **changed} if changed else input


def _kinds(schema: Mapping[str, Any], root: Mapping[str, Any]) -> set[str]:
    """The types that `schema` names, at its top; "string" where it may be any."""
    schema = resolved(schema, root)
    branches = [b for key in ("anyOf", "oneOf") for b in schema.get(key, ())]
    if branches:
        return {kind for b in branches if isinstance(b, Mapping) for kind in _kinds(b, root)}
    kind = schema.get("type", "string")
    return {kind} if isinstance(kind, str) else set(kind)


def _read(text: str, kinds: set[str]) -> Any:
    try:
        value = json.loads(text, parse_constant=_refuse, parse_float=_finite)
    except (ValueError, RecursionError):
        return None
    kind = "array" if isinstance(value, list) else "object"
    return value if kind in kinds and isinstance(value, list | dict) else None


def stop_of(stop: Stop, blocks: Sequence[Block]) -> Stop:
    """`stop` corrected to match the blocks: `tool_use` exactly if a complete message has calls."""
    if stop not in ("end_turn", "tool_use"):
        return stop
    return "tool_use" if any(isinstance(block, Call) for block in blocks) else "end_turn"


def last_events(reply: Reply, ask: Ask, provider: str) -> Iterator[ModelEvent]:
    """The reply; before it, if `ask` wants a document, the text that was held back until now.

    Calls get lists and objects where the model sent them as JSON text. Raises ModelError when the
    text of a whole reply is not one JSON document.
    """
    if any(isinstance(block, Call) for block in reply.turn.blocks):
        reply = _with_fitted_calls(reply, ask)
    if ask.schema is not None:
        reply = _with_document(reply, provider)
        for block in reply.turn.blocks:
            if isinstance(block, Text):
                yield TextDelta(block.text)
    yield reply


def _with_fitted_calls(reply: Reply, ask: Ask) -> Reply:
    schemas = {tool.name: tool.input_schema for tool in ask.tools}
    blocks = [
        replace(block, input=fitted(block.input, schemas.get(block.name, {})))
        if isinstance(block, Call)
        else block
        for block in reply.turn.blocks
    ]
    return replace(reply, turn=replace(reply.turn, blocks=tuple(blocks)))


def _with_document(reply: Reply, provider: str) -> Reply:
    text = "".join(block.text for block in reply.turn.blocks if isinstance(block, Text)).strip()
    # Smaller servers wrap the document as Markdown.
    if fenced := re.fullmatch(r"```(?:json)?\s*(.*?)\s*```", text, re.DOTALL):
        text = fenced[1]
    try:
        json.loads(text)
    except ValueError:
        if reply.stop == "end_turn":
            broken = "it is not the JSON document that was asked for"
            raise fault(provider, "protocol", broken) from None
    rest = [block for block in reply.turn.blocks if not isinstance(block, Text)]
    blocks = (Text(text), *rest) if text else tuple(rest)
    return replace(reply, turn=replace(reply.turn, blocks=blocks))


def _finite(number: str) -> float:
    # A number that is too large reads as infinity, which JSON cannot hold.
    value = float(number)
    return value if math.isfinite(value) else _refuse(number)


def _refuse(constant: str) -> NoReturn:
    raise ValueError(f"{constant} is no JSON")


_DECODER = json.JSONDecoder(parse_float=_finite, parse_constant=_refuse)
