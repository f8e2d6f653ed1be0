"""The Reply made from the chunks of one chat completions stream.

Servers differ: indices, ids, usage and the closing `[DONE]` may be missing, arguments arrive in one
piece or as an object, and a stop reason of `stop` may come with tool calls.
"""

from __future__ import annotations

import codecs
import json
import uuid
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import groupby
from typing import Any

from sayso import Call, Reply, Text, TextDelta, Thought, ToolStart, Turn, Usage
from sayso.models.adapters import Block, ModelEvent, Stop, encodable, read_input, stop_of

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
LARGEST_EVENT = 16 * 1024 * 1024


async def events(chunks: AsyncIterator[bytes]) -> AsyncIterator[str]:
    """The `data` of each server-sent event; a last one without its blank line is left out.

    Raises ValueError for an event over 16 MiB or one that is not UTF-8.
    """
    rest, data, started, returned = b"", list[bytes](), False, False
    async for chunk in chunks:
        # A line ends with CR, LF or both, which may arrive in two chunks. Other characters, such as
        # U+2028, are no line ends: they may be inside JSON.
        whole = rest + (chunk.removeprefix(b"\n") if returned else chunk)
        returned = chunk.endswith(b"\r") or (returned and not chunk)
        lines = whole.splitlines()
        rest = lines.pop() if whole and whole[-1] not in b"\r\n" else b""
        if lines and not started:
            started, lines[0] = True, lines[0].removeprefix(codecs.BOM_UTF8)
        for line in lines:
            if line.startswith(b"data:"):
                data.append(line[5:].removeprefix(b" "))
            elif not line and data:
                # Some servers send empty events to keep the connection.
                if text := b"\n".join(data).decode().strip():
                    yield text
                data.clear()
        if len(rest) + sum(map(len, data)) > LARGEST_EVENT:
            raise ValueError("an event that is too large")
    if data and not rest and data[-1].strip() == b"[DONE]":
        yield "[DONE]"


@dataclass
class _Slot:
    """One tool call, assembled from its fragments."""

    id: str = ""
    name: str = ""
    arguments: list[str] = field(default_factory=list)
    extra: Any = None

    def ended(self, name: str) -> bool:
        """Whether a fragment with this call's id, without an index, begins a call of `name`."""
        return bool(name) and (name != self.name or self.whole())

    def left(self, call_id: str, name: str, filled: bool) -> bool:
        """Whether a fragment with this call's index begins another call, one of `name`.

        Some gateways give every call of a message the index 0, and not all of them an id.
        `filled` says that the fragment has arguments.
        """
        if call_id and self.id:
            return call_id != self.id
        return self.name not in ("", name) or (filled and self.whole())

    def whole(self) -> bool:
        """Whether the arguments are complete."""
        closed = bool(self.arguments) and self.arguments[-1].rstrip().endswith("}")
        return closed and read_input("".join(self.arguments))[1] is None


class Accumulator:
    """Feed it each chunk as a JSON object; `whole()` returns the Reply once the stream has ended.

    Raises KeyError, TypeError, ValueError or AttributeError for a chunk of another form.
    """

    def __init__(self, names: Mapping[str, str], model: str, *, hold_text: bool) -> None:
        self._names = names
        self._model = model
        self._hold_text = hold_text
        self._text: list[str] = []
        self._reasoning: list[str] = []
        self._details: list[dict[str, Any]] = []
        self._slots: list[_Slot] = []
        self._by_index: dict[int, _Slot] = {}
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

    def whole(self, *, closed: bool) -> Reply | None:
        """The Reply; None if the stream ended before the message did.

        `closed` says that `[DONE]` came, which replaces a missing finish reason.
        """
        if self._finish in _BROKEN or (self._finish is None and not (closed and self._chosen)):
            return None
        text = "".join(self._text)
        blocks: list[Block] = [Text(text)] if text.strip() else []
        blocks += [self._call(slot) for slot in self._slots]
        stop = "refusal" if self._refused else _STOPS.get(self._finish or "stop", "end_turn")
        return Reply(
            Turn("assistant", tuple(blocks), self._raw()), stop_of(stop, blocks), self._usage
        )

    def _raw(self) -> dict[str, Any] | None:
        # DeepSeek accepts a call back only with the reasoning that led to it, Gemini only with its
        # signature of the call. Gateways pass on both, and Anthropic's thinking, as details.
        own: dict[str, Any] = {}
        if self._reasoning and self._slots:
            own["reasoning_content"] = encodable("".join(self._reasoning))
        if self._slots and (details := _whole(self._details)):
            own["reasoning_details"] = [self._placed(detail) for detail in details]
        if any(slot.extra for slot in self._slots):
            own["tool_calls"] = [_kept(slot) for slot in self._slots]
        if not own:
            return None
        bound = any(str(d.get("format")).startswith("anthropic") for d in self._details)
        return {"openai" if bound else raw_key(self._model): [own]}

    def _placed(self, detail: dict[str, Any]) -> dict[str, Any]:
        # The call may get another id.
        for n, slot in enumerate(self._slots):
            if slot.id and detail.get("id") == slot.id:
                return {**detail, "id": n}
        return detail

    def _delta(self, delta: Mapping[str, Any]) -> Iterator[ModelEvent]:
        thought = delta.get("reasoning_content") or delta.get("reasoning")
        if isinstance(thought, str) and thought:
            yield Thought(thought)
            if "reasoning_content" in delta:
                self._reasoning.append(thought)
        if isinstance(details := delta.get("reasoning_details"), list):
            self._details += [detail for detail in details if isinstance(detail, dict)]
        if refusal := delta.get("refusal"):
            self._refused = True
            yield from self._say(_spoken(refusal))
        yield from self._say(_spoken(delta.get("content")))
        pieces = delta.get("tool_calls") or ()
        if not pieces and (function := delta.get("function_call")):
            pieces = [{"index": 0, "function": function}]
        for piece in pieces:
            yield from self._piece(piece)

    def _say(self, text: str) -> Iterator[ModelEvent]:
        if text:
            self._text.append(text)
            if not self._hold_text:
                yield TextDelta(text)

    def _piece(self, piece: Mapping[str, Any]) -> Iterator[ModelEvent]:
        function = piece.get("function") or {}
        call_id = str(piece.get("id") or "")
        given = function.get("arguments")
        text = given if isinstance(given, str) else "" if given is None else json.dumps(given)
        filled = bool(text.strip())
        slot = self._slot(piece.get("index"), call_id, function.get("name") or "", filled)
        slot.id = slot.id or call_id
        slot.extra = piece.get("extra_content") or slot.extra
        if not slot.name and function.get("name"):
            slot.name = function["name"]
            yield ToolStart(self._names.get(slot.name, slot.name))
        if text:
            slot.arguments.append(text)

    def _slot(self, index: int | None, call_id: str, name: str, filled: bool) -> _Slot:
        known = self._by_index.get(index) if index is not None else None
        if index is None and call_id:
            known = next((s for s in self._slots if s.id == call_id and not s.ended(name)), None)
        if known is None and index is None and self._slots and not name:
            known = self._slots[-1]
        if index is not None and known is not None and name and known.left(call_id, name, filled):
            known = None
        if known is None:
            known = _Slot()
            self._slots.append(known)
        if index is not None:
            self._by_index[index] = known
        return known

    def _call(self, slot: _Slot) -> Call:
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


def _kept(slot: _Slot) -> dict[str, Any]:
    return {"extra_content": slot.extra} if slot.extra else {}


def _spoken(content: Any) -> str:
    if content is None or isinstance(content, str):
        return content or ""
    return "".join(part.get("text") or "" for part in content)


def _usage(usage: Mapping[str, Any]) -> Usage:
    details = usage.get("prompt_tokens_details") or {}
    cached = details.get("cached_tokens") or 0
    prompt = usage.get("prompt_tokens") or 0
    return Usage(max(0, prompt - cached), usage.get("completion_tokens") or 0, cached)
