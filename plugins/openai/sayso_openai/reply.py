"""The Reply made from the chunks of one chat completions stream.

Servers differ: usage and the closing `[DONE]` may be missing, a stop reason of `stop` may stand
beside tool calls, and thoughts in the text.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterator, Mapping, Sequence
from itertools import groupby
from typing import Any

from sayso import Call, Reply, Text, TextDelta, Thought, ToolStart, Turn, Usage
from sayso.models.adapters import Block, ModelEvent, Stop, encodable, read_input, stop_of
from sayso_openai.slots import Slot, Slots
from sayso_openai.thinking import Thinking

_STOPS: Mapping[str, Stop] = {
    "stop": "end_turn",
    "eos": "end_turn",
    "length": "max_tokens",
    "model_length": "max_tokens",
    "max_tokens": "max_tokens",
    "tool_calls": "tool_use",
    "function_call": "tool_use",
    "content_filter": "refusal",
    "sensitive": "refusal",
    "safety": "refusal",
    "recitation": "refusal",
    "blocklist": "refusal",
    "prohibited_content": "refusal",
    "spii": "refusal",
}
_BROKEN = (
    "error",
    "abort",
    "insufficient_system_resource",
    "network_error",
    "function_call_filter",
    "malformed_function_call",
)
"""Finish reasons of a message that the server itself could not end, or whose call it dropped."""


class Accumulator:
    """Feed it each chunk as a JSON object; once the stream has ended, `rest()` gives the deltas
    that were held back, and `whole()` the Reply.

    Raises KeyError, TypeError, ValueError or AttributeError for a chunk of another form.
    """

    def __init__(
        self,
        names: Mapping[str, str],
        model: str,
        *,
        hold_text: bool,
        thinks_first: bool = False,
    ) -> None:
        self._names = names
        self._model = model
        self._hold_text = hold_text
        self._text: list[str] = []
        self._reasoning: list[str] = []
        self._details: list[dict[str, Any]] = []
        self._thinking = Thinking(first=thinks_first)
        self._slots = Slots(names.keys())
        self._finish: str | None = None
        self._chosen = False
        self._refused = False
        self._usage = Usage()
        self.started = False

    def feed(self, chunk: Mapping[str, Any]) -> Iterator[ModelEvent]:
        """The deltas of `chunk`."""
        self.started = True
        if usage := chunk.get("usage"):
            self._usage = _usage(usage)
        for choice in chunk.get("choices") or ():
            if choice.get("index"):
                continue
            self._chosen = True
            delta = choice.get("delta")
            if delta is None and not (self._text or self._slots):
                # Some servers send the complete message, which after deltas would repeat
                # everything.
                delta = choice.get("message")
            yield from self._delta(delta or {})
            if finish := choice.get("finish_reason"):
                # Gateways write other providers' reasons in capitals, or with a detail after a
                # colon.
                self._finish = finish.lower().partition(":")[0]

    def rest(self) -> Iterator[ModelEvent]:
        """The deltas that were held back."""
        yield from self._events_of(self._thinking.rest())

    def whole(self, *, closed: bool) -> Reply | None:
        """The Reply; None if the stream ended before the message did.

        `closed` says that `[DONE]` came, which replaces a missing finish reason.
        """
        if self._finish in _BROKEN or (self._finish is None and not (closed and self._chosen)):
            return None
        text = "".join(self._text)
        blocks: list[Block] = [Text(text)] if text.strip() else []
        calls = self._slots.calls()
        blocks += [self._call(slot) for slot in calls]
        stop = "refusal" if self._refused else _STOPS.get(self._finish or "stop", "end_turn")
        return Reply(
            Turn("assistant", tuple(blocks), self._raw(calls)), stop_of(stop, blocks), self._usage
        )

    def _raw(self, calls: Sequence[Slot]) -> dict[str, Any] | None:
        # DeepSeek takes a call back only with the reasoning that led to it, Gemini only with its
        # signature of the call. Gateways hand on both, and Anthropic's thinking, as details.
        own: dict[str, Any] = {}
        if self._reasoning and calls:
            own["reasoning_content"] = encodable("".join(self._reasoning))
        if calls and (details := _whole(self._details)):
            own["reasoning_details"] = [_placed(detail, calls) for detail in details]
        if any(slot.extra for slot in calls):
            own["tool_calls"] = [_kept(slot) for slot in calls]
        if not own:
            return None
        bound = any(str(d.get("format")).startswith("anthropic") for d in self._details)
        return {"openai" if bound else raw_key(self._model): [own]}

    def _delta(self, delta: Mapping[str, Any]) -> Iterator[ModelEvent]:
        thought = delta.get("reasoning_content") or delta.get("reasoning")
        if isinstance(thought, str) and thought:
            self._thinking.plain()
            yield Thought(thought)
            if "reasoning_content" in delta:
                self._reasoning.append(thought)
        if isinstance(details := delta.get("reasoning_details"), list):
            self._details += [detail for detail in details if isinstance(detail, dict)]
        if refusal := delta.get("refusal"):
            self._refused = True
            yield from self._say(_spoken(refusal))
        content = delta.get("content")
        if thoughts := _thoughts(content):
            self._thinking.plain()
            yield Thought(thoughts)
        if text := _spoken(content):
            yield from self._events_of(self._thinking.feed(text))
        pieces = delta.get("tool_calls") or ()
        if not pieces and (function := delta.get("function_call")):
            pieces = [{"index": 0, "function": function}]
        for piece in pieces:
            for name in self._slots.feed(piece):
                yield ToolStart(self._names.get(name, name))

    def _events_of(self, parts: Iterator[tuple[str, bool]]) -> Iterator[ModelEvent]:
        for text, is_thought in parts:
            if not is_thought:
                yield from self._say(text)
            elif text:
                yield Thought(text)

    def _say(self, text: str) -> Iterator[ModelEvent]:
        if text:
            self._text.append(text)
            if not self._hold_text:
                yield TextDelta(text)

    def _call(self, slot: Slot) -> Call:
        if not slot.name:
            raise ValueError("a tool call without a name")
        value, error = read_input("".join(slot.arguments))
        call_id = slot.id or f"call_{uuid.uuid4().hex}"
        return Call(call_id, self._names.get(slot.name, slot.name), value, error)


def raw_key(model: str) -> str:
    """The key of a turn's `raw` for data that only the model of this name accepts back."""
    return f"openai:{model}"


def _whole(pieces: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Reasoning details whose texts arrived in `pieces`; an encrypted one arrives complete."""
    details: list[dict[str, Any]] = []
    for (kind, _), given in groupby(pieces, lambda p: (p.get("type"), p.get("index"))):
        run = [{k: v for k, v in piece.items() if v is not None} for piece in given]
        if kind == "reasoning.encrypted":
            details += [piece for piece in run if piece.get("data")]
            continue
        detail = {key: value for piece in run for key, value in piece.items()}
        for key in ("text", "summary"):
            if key in detail:
                detail[key] = encodable("".join(str(piece.get(key, "")) for piece in run))
        details.append(detail)
    return details


def _placed(detail: dict[str, Any], calls: Sequence[Slot]) -> dict[str, Any]:
    """The detail with the place of its call in place of the call's id, which may become another."""
    for n, slot in enumerate(calls):
        if slot.id and detail.get("id") == slot.id:
            return {**detail, "id": n}
    return detail


def _kept(slot: Slot) -> dict[str, Any]:
    return {"extra_content": slot.extra} if slot.extra else {}


def _spoken(content: Any) -> str:
    if content is None or isinstance(content, str):
        return content or ""
    return "".join(part.get("text") or "" for part in content)


def _thoughts(content: Any) -> str:
    """The thoughts among the parts of a message, as Mistral's models have them."""
    if not isinstance(content, list):
        return ""
    return "".join(_spoken(part.get("thinking")) for part in content if part.get("thinking"))


def _usage(usage: Mapping[str, Any]) -> Usage:
    cached = _detail(usage, "prompt_tokens_details", "cached_tokens")
    # DeepSeek has its own name for the number of cached tokens.
    cached = cached or usage.get("prompt_cache_hit_tokens") or 0
    prompt = usage.get("prompt_tokens") or 0
    reasoning = _detail(usage, "completion_tokens_details", "reasoning_tokens")
    return Usage(
        max(0, prompt - cached),
        usage.get("completion_tokens") or 0,
        cached,
        reasoning_tokens=reasoning,
    )


def _detail(usage: Mapping[str, Any], group: str, name: str) -> int:
    return (usage.get(group) or {}).get(name) or 0
