"""Calls and results in the pairs that model providers require."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from sayso.conversation.wording import LOST
from sayso.models import Attachment, Block, Call, Result, Text, Turn, bound_to_model, unused_id


def paired(turns: Sequence[Turn]) -> list[Turn]:
    """The turns in a form that every provider accepts: alternating, beginning and ending with the
    user, each call answered in the next turn exactly once, ids unique, nothing blank, none
    dropped."""
    # Not a new list for each turn: a history may have thousands of one role in a row.
    blocks: list[Block] = []
    merged = [Turn("user", blocks)]
    for turn in turns:
        last = merged[-1]
        if last.role == turn.role:
            last.raw = _raw_of_both(last, turn)
            blocks += turn.blocks
        else:
            blocks = [*turn.blocks]
            merged.append(Turn(turn.role, blocks, turn.raw))
    if merged[-1].role == "assistant":
        merged.append(Turn("user", []))
    if len(merged) > 1 and not merged[0].blocks:
        merged[0] = Turn("user", [Text("(The beginning of the conversation is not shown.)")])
    seen: dict[str, int] = {}
    for index in range(1, len(merged) - 1, 2):
        merged[index], merged[index + 1] = _pair(merged[index], merged[index + 1], seen)
    first = [b for b in merged[0].blocks if not isinstance(b, Result)]
    merged[0] = Turn("user", first or [Text("(continue)")])
    return merged


def _pair(asking: Turn, answering: Turn, seen: dict[str, int]) -> tuple[Turn, Turn]:
    if len(asking.blocks) == len(answering.blocks) == 1:
        # Nearly all turns are a text, a call or its result, and a pair already.
        said, answer = asking.blocks[0], answering.blocks[0]
        if type(said) is Call and type(answer) is Result:
            if said.id == answer.call_id and said.id not in seen:
                seen[said.id] = 1
                return asking, answering
        elif type(said) is Text and type(answer) is Text:
            if said.text.strip() and answer.text.strip():
                return asking, answering
    # A dict instead of single searches: a client's history may have thousands of calls.
    given: dict[str, Result] = {}
    after: list[Block] = []
    for block in answering.blocks:
        if isinstance(block, Result):
            given.setdefault(block.call_id, block)
        elif isinstance(block, Attachment) or (isinstance(block, Text) and block.text.strip()):
            after.append(block)
    blocks: list[Block] = []
    results: dict[str, Block] = {}
    for block in asking.blocks:
        if isinstance(block, Text) and block.text.strip():
            blocks.append(block)
        elif isinstance(block, Call) and block.id not in results:
            result = given.get(block.id) or Result(block.id, LOST, True)
            fresh = unused_id(block.id, seen)
            renamed = fresh != block.id
            results[block.id] = replace(result, call_id=fresh) if renamed else result
            blocks.append(replace(block, id=fresh) if renamed else block)
    raw = asking.raw
    if blocks != asking.blocks:
        # Provider data beside the calls is matched by their order, which is valid only if none was
        # dropped.
        none_dropped = len(results) == sum(isinstance(b, Call) for b in asking.blocks)
        raw = bound_to_model(raw) if none_dropped else None
    answers = [*results.values(), *after]
    return (
        Turn("assistant", blocks or [Text("(no reply)")], raw),
        Turn("user", answers or [Text("(continue)")]),
    )


def _raw_of_both(first: Turn, second: Turn) -> Mapping[str, Any] | None:
    """The provider blocks of two neighbours as one turn."""
    if not second.blocks:
        return first.raw
    if not first.blocks:
        return second.raw
    for turn, other in ((first, second), (second, first)):
        raw = bound_to_model(turn.raw)
        if raw and not any(isinstance(block, Call) for block in other.blocks):
            return raw
    return None
