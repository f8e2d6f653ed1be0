"""One step of the offline model: from the turns of an ask to the blocks of its reply."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from dataclasses import dataclass

from sayso import Ask, Call, Result, Text, Turn
from sayso.models.adapters import Block
from sayso_demo.offline import prose
from sayso_demo.offline.documents import document
from sayso_demo.offline.explicit import Wanted, unknown_name
from sayso_demo.offline.planning import Plan, plan
from sayso_demo.offline.words import is_stop, words

_APPROVING = frozenset("approve approved yes ok okay go ahead please do it thanks run".split())


def answer(ask: Ask) -> list[Block]:
    """Texts and calls that answer `ask`; the same ask has the same answer, ids included."""
    if ask.schema is not None:
        return [Text(json.dumps(document(ask), ensure_ascii=False))]
    turns = [turn for turn in ask.turns if turn.blocks]
    last = turns[-1] if turns and turns[-1].role == "user" else Turn("user", ())
    results = [block for block in last.blocks if isinstance(block, Result)]
    said = _text(last)
    if not results:
        notes = [b.text for b in last.blocks if isinstance(b, Text) and b.note]
        if notes and _only_decides(said):
            return [Text("\n\n".join(notes).strip())]
        return _requested(said, turns, ask)
    blocks: list[Block] = [Text(prose.summary(_calls_before(turns), results))]
    if said:
        return blocks + _beside_results(said, ask)
    return blocks + _next_stage(turns, results, ask)


@dataclass(frozen=True, slots=True)
class _Request:
    """The user's words, the answers to questions about them, and the stages already called."""

    text: str
    answers: Sequence[str]
    done: int


def _requested(said: str, turns: Sequence[Turn], ask: Ask) -> list[Block]:
    request = _request(turns)
    made = plan(request.text, ask.tools, request.answers)
    if made.question:
        return [Text(" ".join([*made.remarks, made.question]))]
    if made.stages:
        remarks: list[Block] = [Text(" ".join(made.remarks))] if made.remarks else []
        return remarks + _called(made.stages[0], ask)
    return [Text(_unmatched(said, made, ask))]


def _unmatched(said: str, made: Plan, ask: Ask) -> str:
    if made.cancelled:
        return prose.CANCELLED
    if made.negated:
        return prose.NOTHING
    if (name := unknown_name(said)) and ask.tools:
        known = ", ".join(f"`{tool.name}`" for tool in ask.tools)
        return f"There is no tool `{name}`. The tools are: {known}."
    return prose.introduction(said, ask.tools)


def _beside_results(said: str, ask: Ask) -> list[Block]:
    if _only_decides(said):
        return []
    made = plan(said, ask.tools)
    if made.question:
        return [Text(f"\n\n{made.question}")]
    return _called(made.stages[0], ask) if made.stages else []


def _only_decides(said: str) -> bool:
    """Whether the words merely accompany a decision, such as "yes, go ahead"."""
    return all(is_stop(word) or word in _APPROVING for word in words(said))


def _next_stage(turns: Sequence[Turn], results: Sequence[Result], ask: Ask) -> list[Block]:
    request = _request(turns)
    stages = plan(request.text, ask.tools, request.answers).stages[request.done :]
    if not stages or not request.done:
        return []
    if not any(result.is_error for result in results):
        return _called(stages[0], ask)
    rest = ", ".join(f"`{wanted.tool.name}`" for stage in stages for wanted in stage)
    return [Text(f"\n\nI stop here; not called: {rest}.")]


def _request(turns: Sequence[Turn]) -> _Request:
    """The request that the last turn belongs to, found behind results and questions."""
    place, done = len(turns) - 1, 0
    while place >= 2 and not _text(turns[place]) and _has_calls(turns[place - 1]):
        place, done = place - 2, done + 1
    answers: list[str] = []
    while place >= 2 and prose.is_question(_text(turns[place - 1])):
        answers.insert(0, _text(turns[place]))
        place -= 2
    text = _text(turns[place]) if place >= 0 else ""
    return _Request(text, answers, done)


def _has_calls(turn: Turn) -> bool:
    return turn.role == "assistant" and any(isinstance(block, Call) for block in turn.blocks)


def _calls_before(turns: Sequence[Turn]) -> dict[str, Call]:
    before = turns[-2].blocks if len(turns) > 1 else ()
    return {block.id: block for block in before if isinstance(block, Call)}


def _called(stage: Sequence[Wanted], ask: Ask) -> list[Block]:
    # Ids are unique in the conversation, and the same when the same ask is sent again.
    spoken = repr([(turn.role, turn.blocks) for turn in ask.turns]).encode()
    mark = hashlib.blake2s(spoken, digest_size=6).hexdigest()
    return [
        Call(f"offline_{mark}_{number}", wanted.tool.name, dict(wanted.values))
        for number, wanted in enumerate(stage, 1)
    ]


def _text(turn: Turn) -> str:
    said = (b.text for b in turn.blocks if isinstance(b, Text) and not b.note)
    return "\n".join(said).strip()
