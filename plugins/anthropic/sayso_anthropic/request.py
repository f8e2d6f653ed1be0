"""The arguments of one call of the Anthropic messages API, for each generation of models.

Plain JSON values, made without the SDK: `request(ask, model, ...)` gives the keyword arguments of
`messages.create`.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from typing import Any

from sayso import Ask, Attachment, Call, Result, Text, ToolDefinition, Turn
from sayso.models.adapters import (
    Block,
    Learned,
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
from sayso_anthropic.caching import marked, marked_last
from sayso_anthropic.models import Abilities, abilities_of

log = logging.getLogger("sayso.models")

DEFAULT_TEMPERATURE = 0.1
LIMITS = ("max_tokens",)
OPTIONAL = (
    "temperature",
    "top_p",
    "top_k",
    "thinking",
    "thinking.display",
    "output_config.effort",
    "cache_control",
)
"""The parameters that are left out once a refusal names them."""
LATE = "a system message among the others"
"""The name under which the refusal of such a message is remembered."""
_SAMPLING = ("temperature", "top_p", "top_k")


def adapter_key(model: str) -> str:
    """The key in a turn's `raw` for the blocks that only this model accepts again."""
    return f"anthropic@{model}"


def request(
    ask: Ask, model: str, learned: Learned, effort: str = "", *, late_system: bool = True
) -> dict[str, Any]:
    """The arguments of one streaming call; nothing in them that the model refuses.

    Temperature and its like stand among them, too, which the SDK takes as `extra_body` alone.
    `late_system` says whether the platform takes a system message behind the user's, as models do.
    """
    able = abilities_of(model)
    caches = bool(ask.config.get("cache_system_prompt")) and "cache_control" not in learned.left_out
    # Behind the history: what is before it stays the same from request to request, and cached.
    late = caches and late_system and able.late_system and LATE not in learned.left_out
    wished = ask.config.get("max_tokens")
    arguments: dict[str, Any] = {
        "model": model,
        "max_tokens": learned.bounded(wished if isinstance(wished, int) else able.output),
        "messages": _messages(ask, model, caches=caches, late=late),
        "stream": True,
    }
    if system := _system(ask, caches=caches, late=late):
        arguments["system"] = system
    if ask.tools:
        tools = [_tool(name, tool) for name, tool in sent_names(ask.tools).items()]
        arguments["tools"] = [*tools[:-1], marked(tools[-1])] if caches else tools
    thinking = _thinking(ask, able, effort)
    if thinking:
        arguments["thinking"] = thinking
    if output := _output(ask, able, effort):
        arguments["output_config"] = output
    sampling = _sampling(ask, able, thinking=thinking.get("type") == "adaptive")
    return learned.fitted(arguments | sampling)


def explain_config(config: Mapping[str, Any], model: str, effort: str = "") -> None:
    """Log which model-config keys this model does not take."""
    able = abilities_of(model)
    level = config.get("thinking_level")
    if level and not able.efforts:
        log.warning("model %r has no thinking levels; 'thinking_level' is ignored", model)
    if effort and _level(config, able, effort) != effort and (effort != "off" or able.thinks):
        said = "thinks always" if effort == "off" else f"has no effort {effort!r}"
        log.warning("model %r %s; it gets %r", model, said, _level(config, able, effort))
    if able.sampling and not (level and able.efforts):
        if "temperature" in config and "top_p" in config:
            log.warning("model %r takes 'temperature' or 'top_p'; 'top_p' is left out", model)
        return
    if wished := [key for key in _SAMPLING if key in config]:
        log.warning("model %r takes no %s here; left out", model, ", ".join(map(repr, wished)))
    else:
        log.info("model %r takes no 'temperature' here; the default is left out", model)


def _sampling(ask: Ask, able: Abilities, *, thinking: bool) -> dict[str, Any]:
    if thinking or not able.sampling:
        return {}
    values = {key: ask.config[key] for key in _SAMPLING if ask.config.get(key) is not None}
    if "top_p" not in values:
        values.setdefault("temperature", DEFAULT_TEMPERATURE)
    elif "temperature" in values:
        del values["top_p"]
    return values


def _level(config: Mapping[str, Any], able: Abilities, effort: str) -> str | None:
    """The effort to ask for: of those that the model has, the nearest one."""
    wished = effort or config.get("thinking_level")
    if not wished or not able.efforts or (wished == "off" and able.thinks_off):
        return None
    if wished in able.efforts:
        return str(wished)
    return {"off": "low", "minimal": "low", "xhigh": "high"}.get(wished, "high")


def _thinking(ask: Ask, able: Abilities, effort: str) -> dict[str, Any]:
    if effort == "off" and able.thinks_off:
        return {"type": "disabled"}
    wished = bool(effort or ask.config.get("thinking_level"))
    # Models that take no temperature think in any case. Text between tool calls arrives as thinking
    # with the newest ones, and is omitted unless it is asked for.
    if able.thinks and (wished or not able.sampling):
        return {"type": "adaptive", "display": "summarized"}
    return {}


def _output(ask: Ask, able: Abilities, effort: str) -> dict[str, Any]:
    output: dict[str, Any] = {}
    if level := _level(ask.config, able, effort):
        output["effort"] = level
    if ask.schema is not None:
        output["format"] = {"type": "json_schema", "schema": closed(ask.schema)}
    return output


def _system(ask: Ask, *, caches: bool, late: bool) -> list[dict[str, Any]]:
    texts = (ask.system, "" if late else ask.context)
    blocks = [{"type": "text", "text": encodable(text)} for text in texts if text.strip()]
    if caches and ask.system.strip():
        blocks[0] = marked(blocks[0])
    return blocks


def _tool(name: str, tool: ToolDefinition) -> dict[str, Any]:
    schema = plain_object(tool.input_schema)
    if keys := sent_keys(schema):
        schema = with_keys(schema, keys)
    definition: dict[str, Any] = {"name": name, "input_schema": schema}
    if tool.description.strip():
        definition["description"] = tool.description
    return definition


def _messages(ask: Ask, model: str, *, caches: bool, late: bool) -> list[dict[str, Any]]:
    messages: list[dict[str, Any]] = []
    keys = keys_of(ask.tools)
    adapter = adapter_key(model)
    turns = transcript(ask.turns, adapter=adapter, tools=bool(ask.tools))
    said = [n for n, turn in enumerate(turns) if turn.role == "user" and _says(turn)]
    last_said = said[-1] if said else 0
    for n, turn in enumerate(turns):
        content = _content(turn, keys, adapter)
        if n == last_said and caches:
            # The part that the next request repeats ends here.
            content = marked_last(content)
        if messages and messages[-1]["role"] == turn.role:
            messages[-1]["content"] += content
        else:
            messages.append({"role": turn.role, "content": content})
        if n == last_said and late and ask.context.strip():
            note = {"type": "text", "text": encodable(ask.context)}
            messages.append({"role": "system", "content": [note]})
    if caches and messages[-1]["role"] == "user" and last_said < len(turns) - 1:
        messages[-1]["content"] = marked_last(messages[-1]["content"])
    return messages


def _says(turn: Turn) -> bool:
    return any(isinstance(block, Text) for block in turn.blocks)


def keys_of(tools: Sequence[ToolDefinition]) -> dict[str, dict[str, str]]:
    """The renamed parameters of each tool that has any, by the name under which it is sent."""
    found = {
        name: sent_keys(plain_object(tool.input_schema)) for name, tool in sent_names(tools).items()
    }
    return {name: keys for name, keys in found.items() if keys}


def _content(turn: Turn, keys: Mapping[str, Mapping[str, str]], adapter: str) -> list[Any]:
    if has_raw(turn, adapter):
        return list((turn.raw or {})[adapter])
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
        case Attachment():
            return _attachment(block)
        case Result():
            text = {"type": "text", "text": block.output}
            images = [_attachment(image) for image in block.attachments]
            sent: dict[str, Any] = {
                "type": "tool_result",
                "tool_use_id": block.call_id,
                "content": [text, *images] if images else block.output,
            }
            return sent | {"is_error": True} if block.is_error else sent


def _attachment(block: Attachment) -> dict[str, Any]:
    source = {"type": "base64", "media_type": block.mime, "data": block.data}
    if block.url:
        source = {"type": "url", "url": block.url}
    kind = "image" if block.mime.startswith("image/") else "document"
    return {"type": kind, "source": source}
