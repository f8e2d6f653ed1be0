"""From the user's message to calls, or to a question if an argument is missing."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, field

from sayso import ToolDefinition
from sayso_demo.offline import prose
from sayso_demo.offline.explicit import Wanted, explicit, written_out
from sayso_demo.offline.filling import FILENAME, PATH, fill, is_place, mask, properties
from sayso_demo.offline.matching import is_negated, match
from sayso_demo.offline.words import action_of, verb_of, without_politeness

_THEN = re.compile(
    r"\s*(?:[;,.]|\band\b)?\s*\b(?:and then|then|after that|afterwards)\b[\s,]*", re.IGNORECASE
)
_AND = re.compile(
    r"\s*(?:[,;]\s*(?:and\b|but\b)?|\band also\b|\band\b|\bbut\b|[.!?]\s)\s*", re.IGNORECASE
)


@dataclass(slots=True)
class Plan:
    """Calls that may run together; `question` if it needs more words.

    `remarks` are said beside the calls; `negated` explains an empty plan.
    """

    calls: list[Wanted] = field(default_factory=list)
    question: str | None = None
    remarks: list[str] = field(default_factory=list)
    negated: bool = False


def plan(text: str, tools: Sequence[ToolDefinition]) -> Plan:
    """The plan for `text`; the part after "then" has to be asked for again."""
    made = Plan()
    if explicit(text, tools) is not None:
        _add(made, text, tools)
        return made
    first, *later = _split(text, _THEN) or [""]
    for clause in _clauses(first, tools):
        _add(made, clause, tools)
    if later and made.calls:
        made.remarks.append(prose.later(text[text.find(later[0]) :]))
    return made


def _clauses(part: str, tools: Sequence[ToolDefinition]) -> list[str]:
    clauses: list[str] = []
    for clause in _split(part, _AND):
        if clauses and not _begins_action(clause, tools):
            clauses[-1] = part[part.find(clauses[-1]) : part.find(clause) + len(clause)]
        else:
            clauses.append(clause)
    return clauses


def _split(text: str, separator: re.Pattern[str]) -> list[str]:
    # Quotations, paths and file names may contain words that look like separators; so may JSON and
    # calls.
    shut = re.sub(r"\{.*\}|\([^()]*\)", lambda m: "x" * len(m[0]), text, flags=re.DOTALL)
    parts, start = [], 0
    for found in separator.finditer(mask(shut, "x")):
        parts.append(text[start : found.start()])
        start = found.end()
    parts.append(text[start:])
    return [part.strip() for part in parts if part.strip()]


def _begins_action(clause: str, tools: Sequence[ToolDefinition]) -> bool:
    if written_out(clause, tools) is not None:
        return True
    if re.match(r"(?:do not|don'?t|never|what|which|who|how|where|when)\b", clause, re.IGNORECASE):
        return True
    verb = verb_of(without_politeness(clause))
    first_parts = {tool.name.split("_")[0].lower() for tool in tools}
    return verb is not None and (action_of(verb) is not None or verb in first_parts)


def _add(made: Plan, clause: str, tools: Sequence[ToolDefinition]) -> None:
    """Add to `made` the calls that `clause` asks for, or the reason why there are none."""
    if wanted := written_out(clause, tools):
        calls = [wanted]
    elif is_negated(clause, tools):
        made.negated, calls = True, []
    else:
        calls = _meant(made, clause, tools)
    for call in calls:
        if call.problem:
            made.question = made.question or prose.sentence(call.problem)
        elif call.missing:
            made.question = made.question or prose.missing(call.tool, call.missing[0])
    made.calls += calls


def _meant(made: Plan, clause: str, tools: Sequence[ToolDefinition]) -> list[Wanted]:
    found = match(clause, tools)
    if len(found) == 1:
        return [Wanted(found[0], fill(found[0], each)) for each in _each(found[0], clause)]
    if found:
        made.question = made.question or prose.which([tool.name for tool in found[:4]])
    else:
        made.remarks.append(prose.no_tool(clause))
    return []


def _each(tool: ToolDefinition, clause: str) -> list[str]:
    """One clause for each of several files if the tool takes one: `delete a.txt and b.txt`."""
    one_place = [is_place(tool, name) for name in properties(tool.input_schema)] == [True]
    for one in (FILENAME, PATH) if one_place else ():
        if listed := re.search(rf"{one}(?:\s*(?:,\s*(?:and\b)?|\band\b)\s*{one})+", clause):
            places = [found[0] for found in re.finditer(one, listed[0])]
            return [clause[: listed.start()] + p + clause[listed.end() :] for p in places]
    return [clause]
