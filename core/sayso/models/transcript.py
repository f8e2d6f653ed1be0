"""Turns in a form that every provider accepts, whatever they contain.

Providers refuse a conversation that does not begin with the user, has a call without exactly one
result directly after it, repeats an id, or has a blank text. `transcript` corrects each of these
without losing text: a result without its call becomes text.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace

from sayso.models import Attachment, Block, Call, Result, Text, ToolDefinition, Turn
from sayso.wire.json_bytes import encodable

NOT_RECORDED = "Error: no result of this call is recorded"
_BEGINNING = "(the conversation begins here)"
_CONTINUE = "(go on)"
IdForm = Callable[[str], str]
"""A function that converts a call's id to the form that a provider requires."""
_Sent = tuple[str, str]
"""A call's id in the turn, and the one that is sent."""


class _Ids:
    """Unique ids for the calls of one request."""

    def __init__(self, length: int, form: IdForm | None) -> None:
        self._length = length
        self._form = form
        self.used: dict[str, int] = {}
        """Each with the last number that was appended to it."""

    def fresh(self, call_id: str) -> str:
        """An unused id; it counts as used from now on."""
        first = fresh = self._formed(call_id, "")
        while fresh in self.used:
            self.used[first] += 1
            fresh = self._formed(call_id, f"_{self.used[first]}")
        self.used[fresh] = 1
        return fresh

    def _formed(self, call_id: str, suffix: str) -> str:
        if self._form is not None:
            return self._form(call_id + suffix)
        clean = re.sub(r"[^a-zA-Z0-9_-]", "_", call_id)[: self._length] or "call"
        return clean[: self._length - len(suffix)] + suffix


def transcript(
    turns: Sequence[Turn],
    *,
    adapter: str = "",
    tools: bool = True,
    id_length: int = 64,
    id_form: IdForm | None = None,
) -> list[Turn]:
    """`turns` with valid ids and names, paired, alternating, beginning and ending with user.

    A turn with `raw[adapter]` is kept as it is, and may also stand last: it was paused. With
    `tools` false, calls and results become text: without tools, providers refuse them. Ids have at
    most `id_length` characters, or are what `id_form` makes of them.
    """
    kept = [_readable(turn, adapter, tools) for turn in turns]
    paired = _paired(_merged(kept, adapter), adapter, _Ids(id_length, id_form))
    if paired and paired[0].role == "assistant":
        paired.insert(0, Turn("user", (Text(_BEGINNING),)))
    if not paired or (paired[-1].role == "assistant" and not has_raw(paired[-1], adapter)):
        paired.append(Turn("user", (Text(_CONTINUE),)))
    return paired


def has_raw(turn: Turn, adapter: str) -> bool:
    """Whether the adapter sends its own blocks in place of `turn.blocks`."""
    return turn.role == "assistant" and bool(turn.raw and turn.raw.get(adapter))


def clean_name(name: str) -> str:
    """`name` in a form that providers allow for tools: 1 to 64 letters, digits, `_` and `-`."""
    return re.sub(r"[^a-zA-Z0-9_-]", "_", name)[:64] or "tool"


def sent_names(tools: Iterable[ToolDefinition]) -> dict[str, ToolDefinition]:
    """Each tool under the unique name that the provider sees, in the given order."""
    named: dict[str, ToolDefinition] = {}
    for tool in tools:
        name, number = clean_name(tool.name), 2
        while name in named:
            name, number = f"{clean_name(tool.name)[:60]}_{number}", number + 1
        named[name] = tool
    return named


def _readable(turn: Turn, adapter: str, tools: bool) -> Turn:
    if has_raw(turn, adapter) and (tools or not _calls(turn)):
        return turn
    blocks = turn.blocks if tools else [_as_text(block) for block in turn.blocks]
    kept = [b for b in map(_sendable, blocks) if not isinstance(b, Text) or b.text.strip()]
    return Turn(turn.role, tuple(kept), None if has_raw(turn, adapter) else turn.raw)


def _sendable(block: Block) -> Block:
    match block:
        case Text(text=text) if (fit := encodable(text)) is not text:
            return Text(fit)
        case Result(output=output) if (fit := encodable(output)) is not output:
            return replace(block, output=fit)
    return block


def _as_text(block: Block) -> Block:
    match block:
        case Call():
            return Text(f"(called {block.name} with {json.dumps(dict(block.input))})")
        case Result():
            return Text(f"(result: {block.output})")
    return block


def _merged(turns: Iterable[Turn], adapter: str) -> list[Turn]:
    merged: list[Turn] = []
    for turn in turns:
        if not turn.blocks and not has_raw(turn, adapter):
            continue
        last = merged[-1] if merged else None
        if last is None or last.role != turn.role:
            merged.append(turn)
        elif has_raw(last, adapter) or has_raw(turn, adapter):
            merged.append(turn)
        else:
            merged[-1] = replace(last, blocks=(*last.blocks, *turn.blocks))
    return merged


def _paired(turns: Sequence[Turn], adapter: str, ids: _Ids) -> list[Turn]:
    done: list[Turn] = []
    waiting: list[_Sent] = []
    for turn in turns:
        if turn.role == "user":
            done.append(_answered(turn, waiting))
            waiting = []
            continue
        if waiting and not _goes_on(done[-1], turn, adapter):
            done.append(_answered(Turn("user", ()), waiting))
            waiting = []
        done.append(turn if has_raw(turn, adapter) else _renamed(turn, ids))
        sent = [call.id for call in _calls(done[-1])]
        for call_id in sent:
            ids.used.setdefault(call_id, 1)
        waiting += zip((call.id for call in _calls(turn)), sent, strict=True)
    if waiting:
        done.append(_answered(Turn("user", ()), waiting))
    return done


def _goes_on(last: Turn, turn: Turn, adapter: str) -> bool:
    # A paused turn continues in the next one of its role; results follow after both.
    return has_raw(last, adapter) and has_raw(turn, adapter)


def _calls(turn: Turn) -> list[Call]:
    return [block for block in turn.blocks if isinstance(block, Call)]


def _renamed(turn: Turn, ids: _Ids) -> Turn:
    blocks: list[Block] = []
    for block in turn.blocks:
        match block:
            case Result():
                blocks.append(_as_text(block))
            case Call():
                blocks.append(replace(block, id=ids.fresh(block.id), name=clean_name(block.name)))
            case Text() | Attachment():
                blocks.append(block)
    return replace(turn, blocks=tuple(blocks))


def _answered(turn: Turn, waiting: Sequence[_Sent]) -> Turn:
    results: dict[str, Result] = {}
    rest: list[Block] = []
    open_ids: dict[str, list[str]] = {}
    for original, sent in reversed(waiting):
        open_ids.setdefault(original, []).append(sent)
    for block in turn.blocks:
        if not isinstance(block, Result):
            rest.append(_as_text(block))
            continue
        if still_open := open_ids.get(block.call_id):
            sent = still_open.pop()
            results[sent] = Result(sent, _spoken(block), block.is_error, block.attachments)
        else:
            rest.append(Text(f"(outcome of an earlier call: {block.output})"))
    paired = [results.get(sent) or Result(sent, NOT_RECORDED, True) for _, sent in waiting]
    return Turn("user", (*paired, *rest))


def _spoken(result: Result) -> str:
    if result.output.strip():
        return result.output
    return "Error: the call failed" if result.is_error else "(no output)"
