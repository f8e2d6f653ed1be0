"""JSON documents that fit a schema: the offline model's structured replies."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from sayso import Ask, Text, Turn
from sayso.models.adapters import resolved
from sayso_demo.offline.explicit import written_out
from sayso_demo.offline.matching import match
from sayso_demo.offline.words import is_question, without_politeness

_NAMED = [
    re.compile(form, re.IGNORECASE)
    for form in (
        r"\b(?:agent|assistant|bot)(?:'s)?\s+name\s*(?:is|:|=)\s*[\"'`]?"
        r"([\w -]+?(?:\.[\w-]+)*)[\"'`]?\s*(?:[.,;\n]|$)",
        r"\b(?:agent|assistant|bot|you are)\s*(?:is\s+)?(?:named|called|:)?\s*"
        r"[\"'`]([^\"'`\n]+)[\"'`]",
        r"(?:^|\n)\s*(?:agent|name)\s*:\s*[\"'`]?([^\n\"'`]+?)[\"'`]?\s*(?:\n|$)",
        r"\b(?:named|called)\s+[\"'`]?([\w-]+)",
    )
]


def document(ask: Ask) -> Any:
    """A value that fits `ask.schema`, decided by rules from the last message of the user."""
    schema = ask.schema or {}
    filled = _value(schema, schema, _said(ask), 0)
    if set(schema.get("properties", {})) >= {"should_respond", "reasoning"}:
        decision, reason = _routed(ask)
        return {**filled, "should_respond": decision, "reasoning": reason}
    return filled


def agent_name(system: str) -> str | None:
    """The agent's name in a system prompt, from `Agent: NAME`, `name is NAME`, `named NAME`."""
    return next((found[1].strip() for form in _NAMED if (found := form.search(system))), None)


def _said(ask: Ask) -> str:
    for turn in reversed(ask.turns):
        if turn.role == "user" and (text := _text(turn)):
            return text
    return ""


def _text(turn: Turn) -> str:
    return "\n".join(block.text for block in turn.blocks if isinstance(block, Text)).strip()


def _routed(ask: Ask) -> tuple[bool, str]:
    lines = [line for line in _said(ask).splitlines() if line.strip()]
    # A conversation told as a transcript ends with the newest message, "NAME: text".
    newest = re.sub(r"^[\w .()@-]{1,40}:\s+", "", lines[-1]) if lines else ""
    name = agent_name(f"{ask.system}\n{ask.context}")
    if name and re.search(rf"(?<!\w)@?{re.escape(name)}(?!\w)", newest, re.IGNORECASE):
        return True, f"the message mentions {name}"
    if found := re.match(r"\s*@([\w.-]+)", newest):
        return False, f"the message speaks to {found[1]}"
    if written_out(newest, ask.tools) or match(newest, ask.tools).tools:
        return True, "the message asks for what a tool of the agent does"
    if "?" in newest or is_question(without_politeness(newest)):
        return True, "the message is a question"
    return False, "the message neither mentions the agent nor asks for anything"


def _value(schema: Mapping[str, Any], root: Mapping[str, Any], said: str, depth: int) -> Any:
    schema = resolved(schema, root)
    for key in ("const", "default"):
        if key in schema:
            return schema[key]
    if choices := schema.get("enum"):
        return next((c for c in choices if str(c).lower() in said.lower()), choices[0])
    for key in ("anyOf", "oneOf", "allOf"):
        if schema.get(key):
            return _value(schema[key][0], root, said, depth)
    kind = schema.get("type", "object" if "properties" in schema else "string")
    return _of_type(kind[0] if isinstance(kind, list) else kind, schema, root, said, depth)


def _of_type(
    kind: str, schema: Mapping[str, Any], root: Mapping[str, Any], said: str, depth: int
) -> Any:
    match kind:
        case "object":
            names = schema.get("properties", {})
            if depth > 8:
                names = {name: names[name] for name in schema.get("required", ()) if name in names}
            return {name: _value(part, root, said, depth + 1) for name, part in names.items()}
        case "array":
            item = _value(schema.get("items", {}), root, said, depth + 1)
            return [item] * int(schema.get("minItems", 0))
        case "integer" | "number":
            return _number(schema, said)
        case "boolean":
            return False
        case "null":
            return None
    text = said[: schema.get("maxLength", len(said))]
    return text.ljust(schema.get("minLength", 0), ".")


def _number(schema: Mapping[str, Any], said: str) -> int | float:
    low, high = schema.get("minimum"), schema.get("maximum")
    for found in re.findall(r"-?\d+", said):
        number = int(found)
        if (low is None or number >= low) and (high is None or number <= high):
            return number
    chosen: int | float = low if low is not None else min(0, high) if high is not None else 0
    return chosen
