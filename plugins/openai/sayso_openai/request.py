"""The body of one call of an OpenAI-compatible chat completions endpoint."""

from __future__ import annotations

import json
import logging
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from sayso import Ask, Attachment, Call, Result, Text, ToolDefinition, Turn
from sayso.models.adapters import (
    Connection,
    Learned,
    closed,
    encodable,
    plain_object,
    sent_names,
    transcript,
    with_items,
)
from sayso_openai.dialects import Dialect
from sayso_openai.reply import raw_key

log = logging.getLogger("sayso.models")

DEFAULT_TEMPERATURE = 0.1
OPTIONAL = (
    "temperature",
    "top_p",
    "top_k",
    "stream_options",
    "reasoning_effort",
    "reasoning",
    "response_format",
)
"""The parameters that are left out once a refusal names them."""
_ID_LENGTH = 40
_IMAGES = "(images of the results)"
_JOINT = "(the results are noted)"
"""The model's own words between a tool's result and a user's text, where a server wants some."""


def request(
    ask: Ask, model: str, dialect: Dialect, learned: Learned, connection: Connection
) -> dict[str, Any]:
    """The body of one streaming call."""
    body: dict[str, Any] = {
        "model": model,
        "messages": _messages(ask, model, dialect, learned),
        "stream": True,
    }
    if dialect.usage:
        body["stream_options"] = {"include_usage": True}
    if ask.tools:
        body["tools"] = [_tool(name, tool) for name, tool in sent_names(ask.tools).items()]
    if ask.schema is not None:
        body["response_format"] = _format(ask.schema)
    body |= _limit(ask.config, dialect, learned)
    body |= _sampling(ask.config, dialect)
    body |= _effort(ask.config, dialect, connection.effort)
    return {**learned.fitted(body), **connection.extra_body}


def explain_config(config: Mapping[str, Any], dialect: Dialect, model: str) -> None:
    """Log which model-config keys this model does not take."""
    refused = {"temperature", "top_p", "top_k"} - {*dialect.sampling}
    if not dialect.effort:
        refused.add("thinking_level")
    if wished := sorted(refused & config.keys()):
        log.warning("model %r takes no %s; left out", model, ", ".join(map(repr, wished)))
    elif "temperature" in refused:
        log.info("model %r takes no 'temperature'; the default is left out", model)


def _limit(config: Mapping[str, Any], dialect: Dialect, learned: Learned) -> dict[str, Any]:
    """The limit of the answer's tokens; absent without a configured one, so that the model's own
    applies."""
    wished = config.get("max_tokens")
    bound = learned.bounded(wished if isinstance(wished, int) else None)
    taken = [name for name in dialect.limits if name not in learned.left_out]
    return {taken[0]: bound} if taken and bound is not None else {}


def _sampling(config: Mapping[str, Any], dialect: Dialect) -> dict[str, Any]:
    values = {key: config[key] for key in dialect.sampling if config.get(key) is not None}
    if dialect.sampling and "top_p" not in values:
        values.setdefault("temperature", DEFAULT_TEMPERATURE)
    return values


def _effort(config: Mapping[str, Any], dialect: Dialect, effort: str) -> dict[str, Any]:
    level = effort or config.get("thinking_level")
    if not level or not dialect.effort:
        return {}
    if dialect.effort == "reasoning":
        return {"reasoning": {"enabled": False} if level == "off" else {"effort": level}}
    return {"reasoning_effort": "none" if level == "off" else level}


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


def _messages(ask: Ask, model: str, dialect: Dialect, learned: Learned) -> list[dict[str, Any]]:
    tools = bool(ask.tools)
    turns = transcript(ask.turns, tools=tools, id_length=_ID_LENGTH, id_form=dialect.id_form)
    late = _last_said(turns) if dialect.late_context and ask.context.strip() else -1
    parts = [ask.system, ask.context if late < 0 else "", _wanted(ask, learned)]
    system = "\n\n".join(part for part in parts if part.strip())
    messages: list[dict[str, Any]] = []
    if system:
        messages.append({"role": "system", "content": encodable(system)})
    for n, turn in enumerate(turns):
        if turn.role == "assistant":
            messages.append(_assistant(turn, model))
            continue
        said = list(_user(turn))
        if n == late:
            said.insert(-1, {"role": "system", "content": encodable(ask.context)})
        if dialect.joins and len(said) > 1 and said[-1]["role"] == "user":
            said.insert(-1, {"role": "assistant", "content": _JOINT})
        messages += said
    if any("reasoning_content" in message for message in messages):
        # DeepSeek refuses a conversation in which a message lacks it, also one without any
        # reasoning.
        for message in messages:
            if message["role"] == "assistant":
                message.setdefault("reasoning_content", "")
    return messages


def _last_said(turns: Sequence[Turn]) -> int:
    """The place of the last turn in which the user says something; -1 if there is none."""
    said = (n for n, turn in enumerate(turns) if turn.role == "user" and text_of(turn))
    return max(said, default=-1)


def _wanted(ask: Ask, learned: Learned) -> str:
    """The form of the answer in words, for a server that takes it in no other way."""
    if ask.schema is None or "response_format" not in learned.left_out:
        return ""
    return f"Answer with one JSON document alone, of this schema: {json.dumps(ask.schema)}"


def _assistant(turn: Turn, model: str) -> dict[str, Any]:
    message: dict[str, Any] = {"role": "assistant", "content": text_of(turn)}
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
            yield {"role": "tool", "tool_call_id": block.call_id, "content": outcome(block)}
    images = [
        {"type": "image_url", "image_url": {"url": image.address}} for image in attachments_of(turn)
    ]
    if text := text_of(turn) or (images and _IMAGES):
        parts = [{"type": "text", "text": text}, *images]
        yield {"role": "user", "content": parts if images else text}


def attachments_of(turn: Turn) -> Iterator[Attachment]:
    """The images and documents of a turn, those of its results first."""
    for block in turn.blocks:
        if isinstance(block, Result):
            yield from block.attachments
    yield from (block for block in turn.blocks if isinstance(block, Attachment))


def outcome(result: Result) -> str:
    """The outcome of a call in the form of these APIs."""
    # The wire format cannot mark a failed call. An unknown outcome is not marked as a failure: the
    # call may have succeeded.
    if result.is_error and not result.output.startswith(("Error", "Outcome unknown:")):
        return f"Error: {result.output}"
    return result.output


def text_of(turn: Turn) -> str | None:
    """The texts of a turn, separated by blank lines; None without any."""
    texts = [block.text for block in turn.blocks if isinstance(block, Text)]
    return "\n\n".join(texts) or None


def _call(call: Call) -> dict[str, Any]:
    arguments = json.dumps(dict(call.input), ensure_ascii=False)
    return {
        "id": call.id,
        "type": "function",
        "function": {"name": call.name, "arguments": arguments},
    }
