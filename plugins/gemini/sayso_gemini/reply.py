"""The Reply that the chunks of one Gemini stream add up to."""

from __future__ import annotations

import json
import uuid
from collections.abc import Iterator, Mapping
from typing import Any

from sayso import Call, Reply, Text, TextDelta, Thought, ToolStart, Turn, Usage
from sayso.models.adapters import Block, ModelEvent, Stop, encodable, read_input, stop_of
from sayso_gemini.request import raw_key

_REFUSED = (
    "SAFETY",
    "RECITATION",
    "LANGUAGE",
    "BLOCKLIST",
    "PROHIBITED_CONTENT",
    "SPII",
    "MODEL_ARMOR",
)
_BROKEN = (
    "MALFORMED_FUNCTION_CALL",
    "UNEXPECTED_TOOL_CALL",
    "TOO_MANY_TOOL_CALLS",
    "MALFORMED_RESPONSE",
    "OTHER",
)
"""Reasons of a message that the provider itself could not end; the next try mostly succeeds."""


class Accumulator:
    """Feed it each chunk with the SDK's names of its fields; `whole()` gives the Reply.

    Raises KeyError, TypeError or ValueError for a chunk of another form.
    """

    def __init__(self, names: Mapping[str, str], model: str, *, hold_text: bool) -> None:
        self._names = names
        self._model = model
        self._hold_text = hold_text
        self._text: list[str] = []
        self._blocks: list[Block] = []
        self._signatures: list[str] = []
        self._finish = ""
        self._usage = Usage()
        self.started = False

    def feed(self, chunk: Mapping[str, Any]) -> Iterator[ModelEvent]:
        """The deltas of `chunk`."""
        self.started = self.started or bool(chunk.get("candidates") or chunk.get("prompt_feedback"))
        if usage := chunk.get("usage_metadata"):
            self._usage = _usage(usage)
        if (chunk.get("prompt_feedback") or {}).get("block_reason"):
            self._finish = "SAFETY"
        for candidate in chunk.get("candidates") or ():
            if candidate.get("index"):
                continue
            for part in (candidate.get("content") or {}).get("parts") or ():
                yield from self._part(part)
            self._finish = candidate.get("finish_reason") or self._finish

    @property
    def ended(self) -> bool:
        """Whether the provider has said why it stopped."""
        return bool(self._finish)

    def whole(self) -> Reply | None:
        """The Reply, or None when the stream ended before the message did."""
        if not self._finish or self._finish in _BROKEN:
            return None
        self._said()
        stop: Stop = "end_turn"
        if self._finish == "MAX_TOKENS":
            stop = "max_tokens"
        elif self._finish in _REFUSED:
            stop = "refusal"
        raw = {raw_key(self._model): self._signatures} if any(self._signatures) else None
        turn = Turn("assistant", tuple(self._blocks), raw)
        return Reply(turn, stop_of(stop, self._blocks), self._usage)

    def _part(self, part: Mapping[str, Any]) -> Iterator[ModelEvent]:
        if call := part.get("function_call"):
            yield from self._call(call, part.get("thought_signature") or "")
        elif text := part.get("text"):
            if part.get("thought"):
                yield Thought(text)
                return
            self._text.append(text)
            if not self._hold_text:
                yield TextDelta(text)

    def _call(self, call: Mapping[str, Any], signature: str) -> Iterator[ModelEvent]:
        self._said()
        name = self._names.get(call["name"], call["name"])
        yield ToolStart(name)
        given = call.get("args")
        # Convert it to JSON once more: a number that JSON cannot represent is refused.
        value, error = ({}, None) if given is None else _checked(given)
        self._blocks.append(Call(call.get("id") or f"call_{uuid.uuid4().hex}", name, value, error))
        self._signatures.append(signature)

    def _said(self) -> None:
        text = encodable("".join(self._text))
        if text.strip():
            self._blocks.append(Text(text))
        self._text = []


def _checked(given: Any) -> tuple[dict[str, Any], str | None]:
    return read_input(json.dumps(given))


def _usage(usage: Mapping[str, Any]) -> Usage:
    cached = usage.get("cached_content_token_count") or 0
    thoughts = usage.get("thoughts_token_count") or 0
    prompt = (usage.get("prompt_token_count") or 0) + (
        usage.get("tool_use_prompt_token_count") or 0
    )
    output = (usage.get("candidates_token_count") or 0) + thoughts
    return Usage(max(0, prompt - cached), output, cached, reasoning_tokens=thoughts)
