"""The body of one call of an OpenAI-compatible chat completions endpoint."""

from __future__ import annotations

import json
import logging
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from sayso import Ask, Call, Result, Text, ToolDefinition, Turn
from sayso.models.adapters import (
    closed,
    encodable,
    plain_object,
    sent_names,
    transcript,
    with_items,
)
from sayso_openai.reply import raw_key

log = logging.getLogger("sayso.models")

DEFAULT_TEMPERATURE = 0.1
DEFAULT_MAX_TOKENS = 4096
_ID_LENGTH = 40
_CLASSIC = re.compile(r"(gpt-3\.5|gpt-4|chatgpt-4o|ft:gpt-[34])")


def request(ask: Ask, model: str, *, official: bool) -> dict[str, Any]:
    """The body of one streaming call; `official` if it goes to OpenAI's own host."""
    limit = "max_completion_tokens" if official else "max_tokens"
    body: dict[str, Any] = {
        "model": model,
        "messages": _messages(ask, model),
        "stream": True,
        "stream_options": {"include_usage": True},
        limit: ask.config.get("max_tokens", DEFAULT_MAX_TOKENS),
    }
    if ask.tools:
        body["tools"] = [_tool(name, tool) for name, tool in sent_names(ask.tools).items()]
    if ask.schema is not None:
        body["response_format"] = _format(ask.schema)
    return body | _sampling(ask.config, model, official=official)


def explain_config(config: Mapping[str, Any], model: str, *, official: bool) -> None:
    """Log the model-config keys that this model does not accept."""
    refused: set[str] = set()
    if official:
        others = {"temperature", "top_p"} if _reasons(model, official) else {"thinking_level"}
        refused = {"top_k", *others}
    if wished := sorted(refused & config.keys()):
        log.warning("model %r takes no %s; left out", model, ", ".join(map(repr, wished)))
    elif "temperature" in refused:
        log.info("model %r takes no 'temperature'; the default is left out", model)


def _reasons(model: str, official: bool) -> bool:
    return official and not _CLASSIC.match(model)


def _sampling(config: Mapping[str, Any], model: str, *, official: bool) -> dict[str, Any]:
    reasons = _reasons(model, official)
    values: dict[str, Any] = {}
    if config.get("thinking_level") and (reasons or not official):
        values["reasoning_effort"] = config["thinking_level"]
    if reasons:
        return values
    keys = ("temperature", "top_p") if official else ("temperature", "top_p", "top_k")
    values |= {key: config[key] for key in keys if config.get(key) is not None}
    if "top_p" not in values:
        values.setdefault("temperature", DEFAULT_TEMPERATURE)
    return values


def _format(schema: Mapping[str, Any]) -> dict[str, Any]:
    shut = closed(schema)
    strict = set(shut.get("required", ())) == set(shut.get("properties", {}))
    return {
        "type": "json_schema",
        "json_schema": {"name": "reply", "schema": shut, "strict": strict},
    }


def _tool(name: str, tool: ToolDefinition) -> dict[str, Any]:
    schema = plain_object(tool.input_schema)
    # OpenAI refuses these two at the top, as it does combinators; the engine validates with them.
    schema = with_items({k: v for k, v in schema.items() if k not in ("enum", "not")})
    function: dict[str, Any] = {"name": name, "parameters": schema}
    if tool.description.strip():
        function["description"] = tool.description
    return {"type": "function", "function": function}


def _messages(ask: Ask, model: str) -> list[dict[str, Any]]:
    messages: list[dict[str, Any]] = []
    system = "\n\n".join(part for part in (ask.system, ask.context) if part.strip())
    if system:
        messages.append({"role": "system", "content": encodable(system)})
    for turn in transcript(ask.turns, tools=bool(ask.tools), id_length=_ID_LENGTH):
        if turn.role == "assistant":
            messages.append(_assistant(turn, model))
        else:
            messages += _user(turn)
    if any("reasoning_content" in message for message in messages):
        # DeepSeek refuses a conversation in which a message lacks it, also one without any
        # reasoning.
        for message in messages:
            if message["role"] == "assistant":
                message.setdefault("reasoning_content", "")
    return messages


def _assistant(turn: Turn, model: str) -> dict[str, Any]:
    message: dict[str, Any] = {"role": "assistant", "content": _text(turn)}
    calls = [_call(block) for block in turn.blocks if isinstance(block, Call)]
    if calls:
        for own in _own(turn, model):
            # These fields are matched to the calls by their order.
            for call, more in zip(calls, own.get("tool_calls", ()), strict=False):
                call |= more
            message |= own
            if details := own.get("reasoning_details"):
                message["reasoning_details"] = [_detail(each, calls) for each in details]
        message["tool_calls"] = calls
    return message


def _own(turn: Turn, model: str) -> Sequence[Mapping[str, Any]]:
    """The model's own fields of its message; another's are left out."""
    raw = turn.raw or {}
    own: Sequence[Mapping[str, Any]] = raw.get(raw_key(model)) or raw.get("openai", ())
    return own


def _detail(detail: Mapping[str, Any], calls: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """The reasoning detail as it arrived; instead of the id of a call it has the call's index."""
    at = detail.get("id")
    if isinstance(at, int) and at < len(calls):
        return {**detail, "id": calls[at]["id"]}
    return dict(detail)


def _user(turn: Turn) -> Iterator[dict[str, Any]]:
    for block in turn.blocks:
        if isinstance(block, Result):
            yield {"role": "tool", "tool_call_id": block.call_id, "content": _outcome(block)}
    if text := _text(turn):
        yield {"role": "user", "content": text}


def _outcome(result: Result) -> str:
    # The wire format has no mark for a failed call. An unknown outcome is none: it may have worked.
    if result.is_error and not result.output.startswith(("Error", "Outcome unknown:")):
        return f"Error: {result.output}"
    return result.output


def _text(turn: Turn) -> str | None:
    texts = [block.text for block in turn.blocks if isinstance(block, Text)]
    return "\n\n".join(texts) or None


def _call(call: Call) -> dict[str, Any]:
    arguments = json.dumps(dict(call.input), ensure_ascii=False)
    return {
        "id": call.id,
        "type": "function",
        "function": {"name": call.name, "arguments": arguments},
    }
