"""The Reply made from the events of one Anthropic stream.

The SDK's own helper parses tool input again on every fragment and takes cut-off JSON for whole;
here fragments are collected and read once, and only `message_stop` makes a reply.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any

from sayso import Call, Reply, Text, TextDelta, Thought, ToolStart, Turn, Usage
from sayso.models.adapters import Block, ModelEvent, Stop, encodable, read_input, renamed, stop_of

_STOPS: Mapping[str, Stop] = {
    "end_turn": "end_turn",
    "stop_sequence": "end_turn",
    "tool_use": "tool_use",
    "max_tokens": "max_tokens",
    "model_context_window_exceeded": "max_tokens",
    "refusal": "refusal",
    "pause_turn": "pause",
}
_FIELDS = {"text_delta": "text", "thinking_delta": "thinking", "signature_delta": "signature"}
_FRAGMENTS = {**_FIELDS, "input_json_delta": "partial_json"}


class Accumulator:
    """Feed it each event as a JSON object; it returns the deltas, and the Reply once it is
    complete.

    `names` and `keys` tell the tools and their parameters that were sent under another name;
    `adapter` is where a turn's `raw` holds its blocks.
    Raises KeyError, TypeError or ValueError for an event that is not of the wire format.
    """

    def __init__(
        self,
        names: Mapping[str, str],
        keys: Mapping[str, Mapping[str, str]],
        adapter: str,
        *,
        hold_text: bool,
    ) -> None:
        self._names = names
        self._adapter = adapter
        self._keys = {
            tool: {sent: own for own, sent in found.items()} for tool, found in keys.items()
        }
        self._hold_text = hold_text
        self._blocks: dict[int, dict[str, Any]] = {}
        self._fragments: dict[int, dict[str, list[str]]] = {}
        self._calls: dict[int, Call] = {}
        self._stop = "end_turn"
        self._usage: dict[str, int] = {}
        self._thinking_tokens = 0
        self.started = False
        self.reply: Reply | None = None

    def feed(self, event: Mapping[str, Any]) -> Iterator[ModelEvent]:
        """The deltas of `event`; unknown kinds of events are ignored."""
        match event.get("type"):
            case "message_start":
                self.started = True
                self._count(event["message"].get("usage"))
            case "content_block_start":
                yield from self._start(event["index"], dict(event["content_block"]))
            case "content_block_delta":
                yield from self._delta(event["index"], event["delta"])
            case "content_block_stop":
                self._finish(event["index"])
            case "message_delta":
                self._stop = event["delta"].get("stop_reason") or self._stop
                self._count(event.get("usage"))
            case "message_stop":
                self.reply = self._whole()

    def _start(self, index: int, block: dict[str, Any]) -> Iterator[ModelEvent]:
        if not self.started or index in self._blocks:
            raise ValueError("a content block out of place")
        self._blocks[index] = block
        self._fragments[index] = {}
        if block["type"] == "tool_use":
            if isinstance(block["id"], int):
                block["id"] = str(block["id"])
            if not all(block[key] and isinstance(block[key], str) for key in ("id", "name")):
                raise ValueError("a tool call without its id or name")
            yield ToolStart(self._name(block["name"]))
        elif block["type"] == "text" and block["text"]:
            yield from self._delta(index, {"type": "text_delta", "text": block["text"]})
            block["text"] = ""

    def _delta(self, index: int, delta: Mapping[str, Any]) -> Iterator[ModelEvent]:
        kind = delta["type"]
        parts = self._fragments[index]
        if kind == "citations_delta":
            cited = self._blocks[index].get("citations") or []
            self._blocks[index]["citations"] = [*cited, delta["citation"]]
        if kind not in _FRAGMENTS:
            return
        piece = delta[_FRAGMENTS[kind]]
        if not isinstance(piece, str):
            raise TypeError("a delta that is no text")
        parts.setdefault(kind, []).append(piece)
        if piece and kind == "text_delta" and not self._hold_text:
            yield TextDelta(piece)
        elif piece and kind == "thinking_delta":
            yield Thought(piece)

    def _finish(self, index: int) -> None:
        block, parts = self._blocks[index], self._fragments.pop(index)
        for kind, field in _FIELDS.items():
            if kind in parts:
                block[field] = encodable((block.get(field) or "") + "".join(parts[kind]))
        if "input_json_delta" in parts or block["type"] == "tool_use":
            text = "".join(parts.get("input_json_delta", ()))
            value, error = read_input(text or json.dumps(block.get("input") or {}))
            block["input"] = value
            if block["type"] == "tool_use":
                own = renamed(value, self._keys.get(block["name"], {}))
                self._calls[index] = Call(block["id"], self._name(block["name"]), own, error)

    def _whole(self) -> Reply:
        if self._fragments or not self.started:
            raise ValueError("a message that ends within a block")
        blocks: list[Block] = []
        raw: list[dict[str, Any]] = []
        for index, block in sorted(self._blocks.items()):
            if block["type"] == "text" and not block["text"].strip():
                continue
            raw.append(block)
            if block["type"] == "text":
                blocks.append(Text(block["text"]))
            elif index in self._calls:
                blocks.append(self._calls[index])
        stop = stop_of(_STOPS.get(self._stop, "end_turn"), blocks)
        # The provider would not take back a broken message.
        whole = raw and stop not in ("max_tokens", "refusal")
        turn = Turn("assistant", tuple(blocks), {self._adapter: raw} if whole else None)
        return Reply(turn, stop, self._counted())

    def _name(self, sent: str) -> str:
        return self._names.get(sent, sent)

    def _count(self, usage: Mapping[str, Any] | None) -> None:
        # The counts of message_delta are totals and replace the first ones.
        for key, value in (usage or {}).items():
            if isinstance(value, int):
                self._usage[key] = value
            elif key == "output_tokens_details" and isinstance(value, Mapping):
                self._thinking_tokens = value.get("thinking_tokens") or 0

    def _counted(self) -> Usage:
        return Usage(
            self._usage.get("input_tokens", 0),
            self._usage.get("output_tokens", 0),
            self._usage.get("cache_read_input_tokens", 0),
            self._usage.get("cache_creation_input_tokens", 0),
            self._thinking_tokens,
        )
