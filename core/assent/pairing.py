"""Calls and results in the pairs that model providers take."""

from __future__ import annotations

from collections.abc import Sequence

from assent.models import Block, Call, Result, Text, Turn
from assent.wording import LOST


def paired(turns: Sequence[Turn]) -> list[Turn]:
    """The turns made fit for any provider: alternating, beginning and ending with the user,
    each call answered in the next turn exactly once, ids unique, nothing blank, none dropped."""
    # Not by a new list for each turn: a history may have thousands of one role in a row.
    blocks: list[Block] = []
    merged = [Turn("user", blocks)]
    for turn in turns:
        last = merged[-1]
        if last.role == turn.role:
            last.raw = last.raw if not turn.blocks else turn.raw if not blocks else None
            blocks += turn.blocks
        else:
            blocks = [*turn.blocks]
            merged.append(Turn(turn.role, blocks, turn.raw))
    if merged[-1].role == "assistant":
        merged.append(Turn("user", []))
    if len(merged) > 1 and not merged[0].blocks:
        merged[0] = Turn("user", [Text("(The beginning of the conversation is not shown.)")])
    seen: set[str] = set()
    for index in range(1, len(merged) - 1, 2):
        merged[index], merged[index + 1] = _pair(merged[index], merged[index + 1], seen)
    first = [b for b in merged[0].blocks if not isinstance(b, Result)]
    merged[0] = Turn("user", first or [Text("(continue)")])
    return merged


def _pair(asking: Turn, answering: Turn, seen: set[str]) -> tuple[Turn, Turn]:
    calls = [b for b in asking.blocks if isinstance(b, Call)]
    fresh = []
    for call in calls:
        if call.id not in seen:
            seen.add(call.id)
            fresh.append(call)
    given = {b.call_id: b for b in reversed(answering.blocks) if isinstance(b, Result)}
    results = [given.get(c.id) or Result(c.id, LOST, True) for c in fresh]
    # Not one by one: a client's history may hold thousands of calls.
    kept = {id(call) for call in fresh}
    blocks: list[Block] = [
        b for b in asking.blocks if (isinstance(b, Text) and b.text.strip()) or id(b) in kept
    ]
    if not blocks:
        blocks = [Text("(no reply)")]
    whole = len(blocks) == len(asking.blocks)
    after = [b for b in answering.blocks if isinstance(b, Text) and b.text.strip()]
    told: list[Block] = [*results, *after]
    return (
        Turn("assistant", blocks, asking.raw if whole else None),
        Turn("user", told or [Text("(continue)")]),
    )
