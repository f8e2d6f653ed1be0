"""The shared parts of adapters for building a Reply."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any, NoReturn

from sayso.models import Ask, Block, Call, ModelEvent, Reply, Stop, Text, TextDelta
from sayso.models.faults import fault


def read_input(text: str) -> tuple[dict[str, Any], str | None]:
    """The arguments of a tool call, or `{}` and why they cannot be read; empty text is `{}`."""
    if not text.strip():
        return {}, None
    try:
        value = json.loads(text, parse_constant=_refuse, parse_float=_finite)
        # Half of a surrogate pair is no valid text: no request could send it back to the provider.
        (json.dumps(value, ensure_ascii=False) if "\\u" in text else text).encode()
    except (ValueError, RecursionError):
        return {}, "the arguments are not valid JSON"
    if not isinstance(value, dict):
        return {}, "the arguments are not a JSON object"
    return value, None


def stop_of(stop: Stop, blocks: Sequence[Block]) -> Stop:
    """`stop` corrected to match the blocks: `tool_use` exactly if a complete message has calls."""
    if stop not in ("end_turn", "tool_use"):
        return stop
    return "tool_use" if any(isinstance(block, Call) for block in blocks) else "end_turn"


def last_events(reply: Reply, ask: Ask, provider: str) -> Iterator[ModelEvent]:
    """The reply; before it, if `ask` wants a document, the text that was held back until now.

    Raises ModelError if the text of a complete reply is not one JSON document.
    """
    if ask.schema is not None:
        reply = _with_document(reply, provider)
        for block in reply.turn.blocks:
            if isinstance(block, Text):
                yield TextDelta(block.text)
    yield reply


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
