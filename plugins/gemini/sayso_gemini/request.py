"""The request of one call of the Gemini API."""

from __future__ import annotations

import logging
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from sayso import Ask, Attachment, Call, Result, Text, ToolDefinition, Turn
from sayso.models.adapters import (
    Connection,
    Learned,
    encodable,
    plain_object,
    sent_names,
    transcript,
)
from sayso_gemini.abilities import Abilities, abilities_of, thinking

log = logging.getLogger("sayso.models")

DEFAULT_TEMPERATURE = 0.1
LIMITS = ("max_output_tokens",)
OPTIONAL = (
    "temperature",
    "top_p",
    "top_k",
    "max_output_tokens",
    "thinking_config",
    "thinking_config.thinking_level",
    "thinking_config.thinking_budget",
    "thinking_config.include_thoughts",
)
"""The parameters that are left out once a refusal names them."""
_SAMPLING = ("temperature", "top_p", "top_k")
_UNSIGNED = "skip_thought_signature_validator"
"""The signature that Google documents for a call that the model did not make itself."""


def raw_key(model: str) -> str:
    """The key in a turn's `raw` for the signatures of its calls, in their order."""
    return f"gemini:{model}"


def names_of(tools: Sequence[ToolDefinition]) -> dict[str, ToolDefinition]:
    """Each tool under the name by which it is sent, which begins with a letter here."""
    return {
        name if re.match(r"[a-zA-Z_]", name) else f"t_{name[:62]}": tool
        for name, tool in sent_names(tools).items()
    }


def config_of(ask: Ask, model: str, learned: Learned, connection: Connection) -> dict[str, Any]:
    """The configuration of one call, as the SDK names its fields."""
    able = abilities_of(model)
    config: dict[str, Any] = _sampling(ask.config, able)
    wished = ask.config.get("max_tokens")
    bound = learned.bounded(wished if isinstance(wished, int) else None)
    if bound is not None:
        config["max_output_tokens"] = bound
    if ask.system.strip():
        config["system_instruction"] = encodable(ask.system)
    if ask.tools:
        declared = [_tool(name, tool) for name, tool in names_of(ask.tools).items()]
        config["tools"] = [{"function_declarations": declared}]
    if ask.schema is not None:
        config["response_mime_type"] = "application/json"
        config["response_json_schema"] = dict(ask.schema)
    if asked := thinking(able, ask.config, connection.effort):
        config["thinking_config"] = asked
    return learned.fitted(config)


def explain_config(config: Mapping[str, Any], model: str) -> None:
    """Log which model-config keys this model does not take."""
    able = abilities_of(model)
    if config.get("thinking_level") and not able.thinks:
        log.warning("model %r does not think; 'thinking_level' is ignored", model)
    if able.warm and "temperature" not in config:
        log.info("model %r works best at its own temperature; the default is left out", model)


def contents(ask: Ask, model: str) -> list[dict[str, Any]]:
    """The conversation; the context computed for the request stands before the user's last text,
    so that what is before it stays as it was."""
    names = {tool.name: name for name, tool in names_of(ask.tools).items()}
    turns = transcript(ask.turns, tools=bool(ask.tools))
    said = [n for n, turn in enumerate(turns) if turn.role == "user" and _text(turn)]
    late = said[-1] if said and ask.context.strip() else -1
    sent: list[dict[str, Any]] = []
    called: dict[str, str] = {}
    for n, turn in enumerate(turns):
        if turn.role == "assistant":
            called |= {b.id: names.get(b.name, b.name) for b in turn.blocks if isinstance(b, Call)}
            sent.append({"role": "model", "parts": list(_made(turn, model, names))})
            continue
        if results := list(_results(turn, called)):
            sent.append({"role": "user", "parts": results})
        parts: list[dict[str, Any]] = [{"text": text}] if (text := _text(turn)) else []
        parts += [_part(image) for image in _attachments(turn)]
        if n == late:
            parts.insert(0, {"text": _context(ask.context)})
        if parts:
            sent.append({"role": "user", "parts": parts})
    return sent


def _sampling(config: Mapping[str, Any], able: Abilities) -> dict[str, Any]:
    values = {key: config[key] for key in _SAMPLING if config.get(key) is not None}
    if "top_p" not in values and not able.warm:
        values.setdefault("temperature", DEFAULT_TEMPERATURE)
    return values


def _context(text: str) -> str:
    return f"<system-context>\n{encodable(text)}\n</system-context>"


def _tool(name: str, tool: ToolDefinition) -> dict[str, Any]:
    schema = plain_object(tool.input_schema)
    declared: dict[str, Any] = {"name": name, "parameters_json_schema": schema}
    if tool.description.strip():
        declared["description"] = tool.description
    return declared


def _made(turn: Turn, model: str, names: Mapping[str, str]) -> Iterator[dict[str, Any]]:
    """The parts of the model's own turn; each call with its signature."""
    signs = abilities_of(model).signs
    signatures = iter((turn.raw or {}).get(raw_key(model), ()))
    first = True
    for block in turn.blocks:
        match block:
            case Text():
                yield {"text": block.text}
            case Call():
                name = names.get(block.name, block.name)
                call = {"name": name, "args": dict(block.input), "id": block.id}
                signature = next(signatures, "")
                if not signature and first and signs:
                    signature = _UNSIGNED
                first = False
                yield {"function_call": call} | (
                    {"thought_signature": signature} if signature else {}
                )


def _results(turn: Turn, called: Mapping[str, str]) -> Iterator[dict[str, Any]]:
    for block in turn.blocks:
        if isinstance(block, Result):
            key = "error" if block.is_error else "output"
            response = {
                "name": called[block.call_id],
                "response": {key: block.output},
                "id": block.call_id,
            }
            yield {"function_response": response}


def _attachments(turn: Turn) -> Iterator[Attachment]:
    for block in turn.blocks:
        if isinstance(block, Result):
            yield from block.attachments
        elif isinstance(block, Attachment):
            yield block


def _part(block: Attachment) -> dict[str, Any]:
    if block.url:
        return {"file_data": {"file_uri": block.url, "mime_type": block.mime}}
    # The SDK decodes the URL-safe alphabet of base64.
    data = block.data.replace("+", "-").replace("/", "_")
    return {"inline_data": {"mime_type": block.mime, "data": data}}


def _text(turn: Turn) -> str:
    return "\n\n".join(block.text for block in turn.blocks if isinstance(block, Text))
