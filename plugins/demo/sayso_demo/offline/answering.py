"""One step of the offline model: from the turns of an ask to the blocks of its reply.

Each message of the user is read by itself, without the earlier ones.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence

from sayso import Ask, Call, Result, Text, Turn
from sayso.models.adapters import Block
from sayso_demo.offline import prose
from sayso_demo.offline.explicit import unknown_name
from sayso_demo.offline.planning import Plan, plan
from sayso_demo.offline.routing import decision
from sayso_demo.offline.words import is_stop, words

_APPROVING = frozenset("approve approved yes ok okay go ahead please do it thanks run".split())


def answer(ask: Ask) -> list[Block]:
    """Texts and calls that answer `ask`; the same ask has the same answer, ids included."""
    if ask.schema is not None:
        return [Text(json.dumps(decision(ask)))]
    turns = [turn for turn in ask.turns if turn.blocks]
    last = turns[-1] if turns and turns[-1].role == "user" else Turn("user", ())
    results = [block for block in last.blocks if isinstance(block, Result)]
    notes = [b.text for b in last.blocks if isinstance(b, Text) and b.note]
    said = _text(last)
    blocks: list[Block] = []
    if results:
        blocks.append(Text(prose.summary(_calls_before(turns), results)))
    elif notes:
        blocks.append(Text("\n\n".join(notes).strip()))
    if blocks and all(is_stop(word) or word in _APPROVING for word in words(said)):
        # The words only accompany a decision, such as "yes, go ahead".
        return blocks
    asked = _requested(said, ask)
    return asked if notes and not results else [*blocks, *asked]


def _requested(said: str, ask: Ask) -> list[Block]:
    made = plan(said, ask.tools)
    if made.question:
        return [Text(" ".join([*made.remarks, made.question]))]
    if not made.calls:
        return [Text(_unmatched(said, made, ask))]
    # Ids are unique in the conversation, and the same if the same ask is sent again.
    spoken = repr([(turn.role, turn.blocks) for turn in ask.turns]).encode()
    mark = hashlib.blake2s(spoken, digest_size=6).hexdigest()
    return [
        *([Text(" ".join(made.remarks))] if made.remarks else []),
        *(
            Call(f"offline_{mark}_{number}", wanted.tool.name, dict(wanted.values))
            for number, wanted in enumerate(made.calls, 1)
        ),
    ]


def _unmatched(said: str, made: Plan, ask: Ask) -> str:
    if made.negated:
        return prose.NOTHING
    if (name := unknown_name(said)) and ask.tools:
        known = ", ".join(f"`{tool.name}`" for tool in ask.tools)
        return f"There is no tool `{name}`. The tools are: {known}."
    return prose.introduction(said, ask.tools)


def _calls_before(turns: Sequence[Turn]) -> dict[str, Call]:
    before = turns[-2].blocks if len(turns) > 1 else ()
    return {block.id: block for block in before if isinstance(block, Call)}


def _text(turn: Turn) -> str:
    said = (b.text for b in turn.blocks if isinstance(b, Text) and not b.note)
    return "\n".join(said).strip()
