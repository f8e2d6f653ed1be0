"""The arguments of one call of the Anthropic messages API, for each generation of models.

Plain JSON values, made without the SDK: `request(ask, model)` returns the keyword arguments of
`messages.create`.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Mapping, Sequence
from typing import Any

from sayso import Ask, Call, Result, Text, ToolDefinition, Turn
from sayso.models.adapters import (
    Block,
    closed,
    encodable,
    has_raw,
    plain_object,
    renamed,
    sent_keys,
    sent_names,
    transcript,
    with_keys,
)

log = logging.getLogger("sayso.models")

Version = tuple[int, int]

CURRENT: Version = (5, 5)
DEFAULT_TEMPERATURE = 0.1
DEFAULT_MAX_TOKENS = 4096
_SAMPLING = ("temperature", "top_p", "top_k")
_OLD_VERSION = {"anthropic-version": "2023-06-01"}


def version_of(model: str) -> Version:
    """The generation in a model id, `(4, 6)` for `claude-opus-4-6`; an unknown id is current."""
    if found := re.search(r"claude-(?:[a-z]+-)+(\d{1,2})(?:[-.](\d{1,2}))?(?![\d])", model):
        return int(found[1]), int(found[2] or 0)
    if found := re.search(r"claude-(\d)(?:[-.](\d))?-[a-z]", model):
        return int(found[1]), int(found[2] or 0)
    return CURRENT


def request(ask: Ask, model: str) -> dict[str, Any]:
    """The arguments of one streaming call; nothing in them that the model refuses."""
    version = version_of(model)
    arguments: dict[str, Any] = {
        "model": model,
        "max_tokens": ask.config.get("max_tokens", DEFAULT_MAX_TOKENS),
        "messages": _messages(ask),
        "stream": True,
    }
    if system := _system(ask):
        arguments["system"] = system
    if ask.tools:
        arguments["tools"] = [_tool(name, tool) for name, tool in sent_names(ask.tools).items()]
    thinking = _thinking(ask, version)
    if thinking:
        arguments["thinking"] = thinking
    if output := _output(ask, version):
        arguments["output_config"] = output
    return arguments | _sampling(ask, version, thinking=bool(thinking))


def explain_config(config: Mapping[str, Any], model: str) -> None:
    """Log the model-config keys that this model does not accept."""
    version = version_of(model)
    level = config.get("thinking_level")
    if level and version < (4, 6):
        log.warning("model %r has no thinking levels; 'thinking_level' is ignored", model)
    if _takes_sampling(version) and not (level and version >= (4, 6)):
        if version == (4, 5) and "temperature" in config and "top_p" in config:
            log.warning("model %r takes 'temperature' or 'top_p'; 'top_p' is left out", model)
        return
    if wished := [key for key in _SAMPLING if key in config]:
        log.warning("model %r takes no %s here; left out", model, ", ".join(map(repr, wished)))
    else:
        log.info("model %r takes no 'temperature' here; the default is left out", model)


def _takes_sampling(version: Version) -> bool:
    return version in ((4, 5), (4, 6))


def _sampling(ask: Ask, version: Version, *, thinking: bool) -> dict[str, Any]:
    if thinking or not _takes_sampling(version):
        return {}
    values = {key: ask.config[key] for key in _SAMPLING if ask.config.get(key) is not None}
    if "top_p" not in values:
        values.setdefault("temperature", DEFAULT_TEMPERATURE)
    elif version == (4, 5) and "temperature" in values:
        del values["top_p"]
    # The SDK's own version of the API refuses these even with their default values.
    return {"extra_body": values, "extra_headers": dict(_OLD_VERSION)}


def _thinking(ask: Ask, version: Version) -> dict[str, Any] | None:
    wished = ask.config.get("thinking_level") and version >= (4, 6)
    # From 5.5 on, text between tool calls arrives as thinking, which is omitted unless asked for.
    if wished or version >= CURRENT:
        return {"type": "adaptive", "display": "summarized"}
    return None


def _output(ask: Ask, version: Version) -> dict[str, Any]:
    output: dict[str, Any] = {}
    if (level := ask.config.get("thinking_level")) and version >= (4, 6):
        output["effort"] = level
    if ask.schema is not None:
        output["format"] = {"type": "json_schema", "schema": closed(ask.schema)}
    return output


def _system(ask: Ask) -> list[dict[str, Any]]:
    blocks: list[dict[str, Any]] = [
        {"type": "text", "text": encodable(text)}
        for text in (ask.system, ask.context)
        if text.strip()
    ]
    if ask.config.get("cache_system_prompt") and ask.system.strip():
        blocks[0]["cache_control"] = {"type": "ephemeral"}
    return blocks


def _tool(name: str, tool: ToolDefinition) -> dict[str, Any]:
    schema = plain_object(tool.input_schema)
    if keys := sent_keys(schema):
        schema = with_keys(schema, keys)
    definition: dict[str, Any] = {"name": name, "input_schema": schema}
    if tool.description.strip():
        definition["description"] = tool.description
    return definition


def _messages(ask: Ask) -> list[dict[str, Any]]:
    messages: list[dict[str, Any]] = []
    keys = keys_of(ask.tools)
    for turn in transcript(ask.turns, adapter="anthropic", tools=bool(ask.tools)):
        content = _content(turn, keys)
        if messages and messages[-1]["role"] == turn.role:
            messages[-1]["content"] += content
        else:
            messages.append({"role": turn.role, "content": content})
    return messages


def keys_of(tools: Sequence[ToolDefinition]) -> dict[str, dict[str, str]]:
    """The renamed parameters of each tool that has any, by the name under which it is sent."""
    found = {
        name: sent_keys(plain_object(tool.input_schema)) for name, tool in sent_names(tools).items()
    }
    return {name: keys for name, keys in found.items() if keys}


def _content(turn: Turn, keys: Mapping[str, Mapping[str, str]]) -> list[Any]:
    if has_raw(turn, "anthropic"):
        return list((turn.raw or {})["anthropic"])
    return [_block(block, keys) for block in turn.blocks]


def _block(block: Block, keys: Mapping[str, Mapping[str, str]]) -> dict[str, Any]:
    match block:
        case Text():
            return {"type": "text", "text": block.text}
        case Call():
            return {
                "type": "tool_use",
                "id": block.id,
                "name": block.name,
                "input": renamed(block.input, keys.get(block.name, {})),
            }
        case Result():
            sent: dict[str, Any] = {
                "type": "tool_result",
                "tool_use_id": block.call_id,
                "content": block.output,
            }
            return sent | {"is_error": True} if block.is_error else sent
