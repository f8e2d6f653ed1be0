"""Finds the tool that a clause of the user's message means."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from operator import itemgetter

from sayso import ToolDefinition
from sayso_demo.offline.filling import FILENAME, PATH, mask, properties
from sayso_demo.offline.words import action_of, is_question, related, stem, stems, verb_of, words

_NEGATION = re.compile(
    r"\b(?:(?:do not|don'?t|never|not)\s+(?:please\s+|ever\s+|you dare\s+)?|"
    r"(?:without|avoid|instead of|rather than)\s+|no\s+)(\w+)",
    re.IGNORECASE,
)
_ENOUGH = 2.0
_CLOSE = 0.75


def match(clause: str, tools: Iterable[ToolDefinition]) -> list[ToolDefinition]:
    """The tool that `clause` means; several if they score about the same; none if none is
    similar."""
    scored = [(score(clause, tool), tool) for tool in tools]
    scored.sort(key=itemgetter(0), reverse=True)
    if not scored or scored[0][0] < _ENOUGH:
        return []
    return [tool for points, tool in scored if scored[0][0] - points < _CLOSE]


def score(clause: str, tool: ToolDefinition) -> float:
    """How well the words of `clause` match the tool; 0.0 if its kind of action is another."""
    masked = mask(clause)
    if not _same_action(masked, tool):
        return 0.0
    wanted = dict.fromkeys(stems(masked))
    name, about = set(map(stem, words(tool.name))), set(stems(tool.description))
    inputs = properties(tool.input_schema)
    keys = {part for key in inputs for part in map(stem, words(key))}
    values = {stem(str(v)) for value in inputs.values() for v in value.get("enum", ())}
    asks = is_question(masked)
    points = sum(
        _points(word, None if asks else action_of(word), name, about, keys | values)
        for word in wanted
    )
    points += 1.5 * _common_pairs(stems(masked), stems(tool.description))
    placed = re.search(PATH, clause) or re.search(FILENAME, clause)
    if points and placed:
        points += (0.5 if "fil" in name else 0.0) + bool(keys & {"path", "fil", "dir"})
    return points


def _common_pairs(one: Sequence[str], other: Sequence[str]) -> int:
    """The number of pairs of neighbours, such as "fills the disk", in both."""
    return len(set(zip(one, one[1:], strict=False)) & set(zip(other, other[1:], strict=False)))


def _points(
    word: str, action: str | None, name: set[str], about: set[str], inputs: set[str]
) -> float:
    described = 0.5 if word in about else 0.0
    if word in name:
        return 1.0 if action == "read" else 2.0 if action else 3.0
    if any(related(word, part) for part in name):
        return 0.5 if action == "read" else 1.5 + described
    if word in inputs or (described and action is None):
        return 1.0
    return 0.25 if any(related(word, part) for part in about) else 0.0


def _same_action(clause: str, tool: ToolDefinition) -> bool:
    kind = tool_action(tool)
    verb = verb_of(clause)
    asked = action_of(verb) if verb else None
    parts = set(map(stem, words(tool.name)))
    if verb and stem(verb) in parts:
        return True
    if kind in (None, "read"):
        return asked in (None, "read") or (kind is None and asked is None)
    if asked == kind:
        return True
    if is_question(clause) or asked is not None:
        return False
    return any(action_of(word) == kind for word in words(clause))


def tool_action(tool: ToolDefinition) -> str | None:
    """The kind of action of a tool, from its name, or from the first word of its description."""
    named = [action_of(word) for word in words(tool.name)[:1]]
    if named and named[0]:
        return named[0]
    first = words(tool.description)[:1]
    # "Running processes" does not begin with a verb.
    return action_of(first[0]) if first and not first[0].endswith("ing") else None


def is_negated(clause: str, tools: Iterable[ToolDefinition]) -> bool:
    """Whether `clause` says not to do something."""
    parts = {part for tool in tools for part in words(tool.name)}
    for found in _NEGATION.finditer(mask(clause)):
        word = found[1].lower()
        gerund = found[0].lower().startswith(("without", "avoid", "instead", "rather"))
        exact = not word.endswith("ing") or gerund
        if word in parts or (exact and action_of(word) is not None):
            return True
    return False
