"""The request of one call of the Responses API.

Nothing is stored at the provider: each request has the whole conversation, with the encrypted
reasoning of the turns that are still unchanged.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from sayso import Ask, Attachment, Call, Result, Text, ToolDefinition, Turn
from sayso.models.adapters import (
    Block,
    Connection,
    Learned,
    closed,
    encodable,
    has_raw,
    plain_object,
    sent_names,
    transcript,
    with_items,
)
from sayso_openai.dialects import Dialect
from sayso_openai.request import DEFAULT_TEMPERATURE, outcome, text_of

LIMITS = ("max_output_tokens",)
OPTIONAL = (
    "temperature",
    "top_p",
    "reasoning",
    "reasoning.effort",
    "reasoning.summary",
    "include",
    "prompt_cache_key",
)
"""The parameters that are left out once a refusal names them."""
_ID_LENGTH = 64


def adapter_key(model: str) -> str:
    """The key in a turn's `raw` for the items that only this model accepts again."""
    return f"openai-responses@{model}"


def request(
    ask: Ask, model: str, dialect: Dialect, learned: Learned, connection: Connection
) -> dict[str, Any]:
    """The body of one streaming call."""
    body: dict[str, Any] = {
        "model": model,
        "input": _input(ask, model),
        "stream": True,
        "store": False,
    }
    if ask.system.strip():
        body["instructions"] = encodable(ask.system)
    if ask.tools:
        body["tools"] = [_tool(name, tool) for name, tool in sent_names(ask.tools).items()]
    if ask.schema is not None:
        body["text"] = {"format": _format(ask.schema)}
    wished = ask.config.get("max_tokens")
    bound = learned.bounded(wished if isinstance(wished, int) else None)
    if bound is not None:
        body["max_output_tokens"] = bound
    body |= _reasoning(ask.config, dialect, connection.effort)
    return {**learned.fitted(body), **connection.extra_body}


def _reasoning(config: Mapping[str, Any], dialect: Dialect, effort: str) -> dict[str, Any]:
    """The settings of thinking, or the temperature of a model that does not think."""
    if dialect.sampling:
        keys = ("temperature", "top_p")
        values = {key: config[key] for key in keys if config.get(key) is not None}
        return values if "top_p" in values else {"temperature": DEFAULT_TEMPERATURE, **values}
    level = effort or config.get("thinking_level")
    reasoning = {"summary": "auto"}
    if level:
        reasoning["effort"] = "none" if level == "off" else level
    return {"reasoning": reasoning, "include": ["reasoning.encrypted_content"]}


def _input(ask: Ask, model: str) -> list[dict[str, Any]]:
    key = adapter_key(model)
    turns = transcript(ask.turns, adapter=key, tools=bool(ask.tools), id_length=_ID_LENGTH)
    said = [n for n, turn in enumerate(turns) if turn.role == "user" and text_of(turn)]
    late = said[-1] if said and ask.context.strip() else -1
    items: list[dict[str, Any]] = []
    for n, turn in enumerate(turns):
        if has_raw(turn, key):
            items += (turn.raw or {})[key]
            continue
        made = list(_items(turn))
        if n == late:
            # The part that changes with each request follows the cached part.
            made.insert(-1, {"role": "developer", "content": encodable(ask.context)})
        items += made
    return items


def _items(turn: Turn) -> Iterator[dict[str, Any]]:
    blocks: Sequence[Block] = turn.blocks
    for block in blocks:
        match block:
            case Call():
                yield {
                    "type": "function_call",
                    "call_id": block.id,
                    "name": block.name,
                    "arguments": json.dumps(dict(block.input), ensure_ascii=False),
                }
            case Result():
                output: Any = outcome(block)
                if block.attachments:
                    output = [
                        {"type": "input_text", "text": output},
                        *map(_part, block.attachments),
                    ]
                yield {"type": "function_call_output", "call_id": block.call_id, "output": output}
            case Text() if turn.role == "assistant":
                yield {"role": "assistant", "content": block.text}
    attached = [_part(block) for block in blocks if isinstance(block, Attachment)]
    if turn.role == "user" and (text := text_of(turn)):
        parts = [{"type": "input_text", "text": text}, *attached]
        yield {"role": "user", "content": parts if attached else text}
    elif attached:
        yield {"role": "user", "content": attached}


def _part(block: Attachment) -> dict[str, Any]:
    if block.mime.startswith("image/"):
        return {"type": "input_image", "detail": "auto", "image_url": block.address}
    if block.url:
        return {"type": "input_file", "file_url": block.url}
    name = block.name or "document.pdf"
    return {"type": "input_file", "filename": name, "file_data": block.address}


def _tool(name: str, tool: ToolDefinition) -> dict[str, Any]:
    schema = plain_object(tool.input_schema)
    schema = with_items({k: v for k, v in schema.items() if k not in ("enum", "not")})
    definition: dict[str, Any] = {"type": "function", "name": name, "parameters": schema}
    if tool.description.strip():
        definition["description"] = tool.description
    # Its default would have the provider rewrite the schema: each parameter becomes required.
    return definition | {"strict": False}


def _format(schema: Mapping[str, Any]) -> dict[str, Any]:
    shut = closed(schema)
    strict = set(shut.get("required", ())) == set(shut.get("properties", {}))
    return {"type": "json_schema", "name": "reply", "schema": shut, "strict": strict}
