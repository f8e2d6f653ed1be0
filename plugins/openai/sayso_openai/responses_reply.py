"""The Reply that the events of one Responses stream add up to."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from sayso import Call, Reply, Text, TextDelta, Thought, ToolStart, Turn, Usage
from sayso.models.adapters import Block, ModelEvent, Stop, encodable, read_input, stop_of
from sayso_openai.responses_request import adapter_key

_THOUGHTS = ("response.reasoning_summary_text.delta", "response.reasoning_text.delta")
_TEXTS = ("response.output_text.delta", "response.refusal.delta")
_STOPS: Mapping[str, Stop] = {"max_output_tokens": "max_tokens", "content_filter": "refusal"}


class Accumulator:
    """Feed it each event as a JSON object; it gives the deltas, and the Reply once it is whole.

    `failed` holds the error of a response that failed at the provider. Raises KeyError, TypeError
    or ValueError for an event that is not of the wire format.
    """

    def __init__(self, names: Mapping[str, str], model: str, *, hold_text: bool) -> None:
        self._names = names
        self._model = model
        self._hold_text = hold_text
        self._items: dict[int, dict[str, Any]] = {}
        self._thought = False
        self.started = False
        self.failed: Mapping[str, Any] | None = None
        self.reply: Reply | None = None

    def feed(self, event: Mapping[str, Any]) -> Iterator[ModelEvent]:
        """The deltas of `event`; unknown kinds of events are passed over."""
        kind = event["type"]
        self.started = True
        if kind in _TEXTS:
            if event["delta"] and not self._hold_text:
                yield TextDelta(_text(event["delta"]))
        elif kind in _THOUGHTS:
            if event["delta"]:
                yield Thought(_text(event["delta"]))
        elif kind == "response.output_item.added":
            item = event["item"]
            if item["type"] == "function_call":
                yield ToolStart(self._names.get(item["name"], item["name"]))
        elif kind == "response.output_item.done":
            self._items[event["output_index"]] = event["item"]
        elif kind in ("response.completed", "response.incomplete"):
            self.reply = self._whole(event["response"])
        elif kind == "response.failed":
            self.failed = event["response"].get("error") or {}
        elif kind == "error":
            self.failed = event.get("error") or event

    def _whole(self, response: Mapping[str, Any]) -> Reply:
        items = [item for _, item in sorted(self._items.items())] or list(response["output"])
        blocks: list[Block] = []
        refused = False
        for item in items:
            if item["type"] == "function_call":
                blocks.append(self._call(item))
            elif item["type"] == "message":
                refused |= any(part["type"] == "refusal" for part in item["content"])
                blocks += _texts(item["content"])
        stop: Stop = "refusal" if refused else "end_turn"
        if response.get("status") == "incomplete":
            details = response.get("incomplete_details") or {}
            stop = _STOPS.get(str(details.get("reason")), "max_tokens")
        whole = bool(items) and stop not in ("max_tokens", "refusal")
        raw = {adapter_key(self._model): [_sent(item) for item in items]} if whole else None
        turn = Turn("assistant", tuple(blocks), raw)
        return Reply(turn, stop_of(stop, blocks), _usage(response.get("usage") or {}))

    def _call(self, item: Mapping[str, Any]) -> Call:
        if not item["call_id"] or not item["name"]:
            raise ValueError("a tool call without its id or name")
        value, error = read_input(item["arguments"])
        return Call(item["call_id"], self._names.get(item["name"], item["name"]), value, error)


def _texts(parts: Sequence[Mapping[str, Any]]) -> Iterator[Block]:
    text = "".join(part.get("text") or part.get("refusal") or "" for part in parts)
    if text.strip():
        yield Text(encodable(text))


def _sent(item: Mapping[str, Any]) -> dict[str, Any]:
    """An item of the answer as it goes back."""
    return {key: value for key, value in item.items() if key != "status" and value is not None}


def _text(delta: Any) -> str:
    if not isinstance(delta, str):
        raise TypeError("a delta that is no text")
    return delta


def _usage(usage: Mapping[str, Any]) -> Usage:
    given = usage.get("input_tokens_details") or {}
    cached, written = given.get("cached_tokens") or 0, given.get("cache_write_tokens") or 0
    return Usage(
        max(0, (usage.get("input_tokens") or 0) - cached - written),
        usage.get("output_tokens") or 0,
        cached,
        written,
        (usage.get("output_tokens_details") or {}).get("reasoning_tokens") or 0,
    )
