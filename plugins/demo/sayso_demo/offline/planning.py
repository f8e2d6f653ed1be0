"""From the user's message to calls: actions in order, and questions where arguments are missing."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace

from sayso import ToolDefinition
from sayso_demo.offline import prose
from sayso_demo.offline.explicit import Wanted, explicit, written_out
from sayso_demo.offline.filling import FILENAME, PATH, answer, fill, mask
from sayso_demo.offline.matching import match
from sayso_demo.offline.words import action_of, verb_of, without_politeness

_THEN = re.compile(
    r"\s*(?:[;,.]|\band\b)?\s*\b(?:and then|then|after that|afterwards)\b[\s,]*", re.IGNORECASE
)
_AND = re.compile(
    r"\s*(?:[,;]\s*(?:and\b|but\b)?|\band also\b|\band\b|\bbut\b|[.!?]\s)\s*", re.IGNORECASE
)
_CANCEL = re.compile(
    r"^\s*(?:no|nope|never ?mind|cancel|stop|forget it|nothing|none|abort)\b[\s.!,]*(?:thanks?)?",
    re.IGNORECASE,
)


@dataclass(slots=True)
class Plan:
    """Stages of calls that may run together; `question` instead when words are missing.

    `remarks` are said beside the calls; `cancelled` and `negated` explain an empty plan.
    """

    stages: list[list[Wanted]] = field(default_factory=list)
    question: str | None = None
    remarks: list[str] = field(default_factory=list)
    negated: bool = False
    cancelled: bool = False


class _Missing(Exception):
    """A question must be asked before anything is done."""


def plan(text: str, tools: Sequence[ToolDefinition], answers: Sequence[str] = ()) -> Plan:
    """What `text` asks for, with the answers to the questions that it raised so far.

    An answer that is a request of its own makes a new plan; one that calls off ends it.
    """
    left = list(answers)
    while True:
        made = Plan()
        try:
            for stage in actions(text, tools):
                wanted = [call for clause in stage for call in _calls(clause, tools, left, made)]
                if wanted:
                    made.stages.append(wanted)
        except _Missing as missing:
            return replace(made, stages=[], question=str(missing))
        except _Cancelled:
            return Plan(cancelled=True)
        except _Anew as anew:
            text = str(anew)
        else:
            return made


class _Cancelled(Exception):
    """The answer to a question calls the request off."""


class _Anew(Exception):
    """The answer to a question is another request: its text."""


def actions(text: str, tools: Sequence[ToolDefinition]) -> Iterator[list[str]]:
    """The stages of `text`, each a list of clauses; `then` parts stages, `and` clauses."""
    if explicit(text, tools) is not None:
        yield [text]
        return
    for part in _split(text, _THEN):
        clauses: list[str] = []
        for clause in _split(part, _AND):
            if clauses and not _begins_action(clause, tools):
                clauses[-1] = part[part.find(clauses[-1]) : part.find(clause) + len(clause)]
            else:
                clauses.append(clause)
        yield clauses


def _split(text: str, separator: re.Pattern[str]) -> list[str]:
    # Quotes, paths and file names hold separators that are none; JSON and calls likewise.
    shut = re.sub(r"\{.*\}|\([^()]*\)", lambda m: "x" * len(m[0]), text, flags=re.DOTALL)
    hidden = mask(shut, "x")
    parts, start = [], 0
    for found in separator.finditer(hidden):
        parts.append(text[start : found.start()])
        start = found.end()
    parts.append(text[start:])
    return [part.strip() for part in parts if part.strip()]


def _begins_action(clause: str, tools: Sequence[ToolDefinition]) -> bool:
    if written_out(clause, tools) is not None:
        return True
    if re.match(r"(?:do not|don'?t|never)\b", clause, re.IGNORECASE):
        return True
    verb = verb_of(clause)
    rest = without_politeness(clause)
    first_parts = {tool.name.split("_")[0].lower() for tool in tools}
    asks = re.match(r"(?:what|which|who|how|where|when)\b", rest, re.IGNORECASE)
    return bool(asks) or (verb is not None and (action_of(verb) is not None or verb in first_parts))


def _calls(
    clause: str, tools: Sequence[ToolDefinition], left: list[str], made: Plan
) -> list[Wanted]:
    found = written_out(clause, tools)
    if found is None:
        tool = _tool(clause, tools, left, made)
        if tool is None:
            return []
        return [_whole(Wanted(tool, fill(tool, each)), left, tools) for each in _each(tool, clause)]
    if found.problem:
        raise _Missing(prose.sentence(found.problem))
    return [_whole(found, left, tools)]


def _tool(
    clause: str, tools: Sequence[ToolDefinition], left: list[str], made: Plan
) -> ToolDefinition | None:
    found = match(clause, tools)
    if found.negated:
        made.negated = True
        return None
    if not found.tools:
        made.remarks.append(prose.no_tool(clause))
        return None
    if found.tool is not None:
        return found.tool
    names = [tool.name for tool in found.tools[:4]]
    if not left:
        raise _Missing(prose.which(names))
    chosen = left.pop(0)
    if _CANCEL.match(chosen):
        raise _Cancelled
    picked = _picked(chosen, found.tools[:4])
    if picked is None:
        raise _Anew(chosen)
    return picked


def _picked(chosen: str, tools: Sequence[ToolDefinition]) -> ToolDefinition | None:
    ordinals = ("first", "second", "third", "fourth")
    said = chosen.lower().replace(" ", "_")
    for place, tool in enumerate(tools):
        if tool.name.lower() in said or ordinals[place] in said:
            return tool
    return match(chosen, tools).tool


def _whole(wanted: Wanted, left: list[str], tools: Sequence[ToolDefinition]) -> Wanted:
    while missing := wanted.missing:
        if not left:
            raise _Missing(prose.missing(wanted.tool.name, missing[0]))
        said = left.pop(0)
        if _CANCEL.match(said):
            raise _Cancelled
        if _is_request(said, tools):
            raise _Anew(said)
        given = answer(wanted.tool, missing, said)
        wanted = replace(wanted, values={**wanted.values, **given})
    return wanted


def _is_request(said: str, tools: Sequence[ToolDefinition]) -> bool:
    if written_out(said, tools) is not None or said.rstrip().endswith("?"):
        return True
    verb = verb_of(said)
    return verb is not None and action_of(verb) is not None and match(said, tools).tool is not None


def _each(tool: ToolDefinition, clause: str) -> list[str]:
    """One clause for each of several files, where the tool takes one: `delete a.txt and b.txt`."""
    for pattern in (FILENAME, PATH):
        one = pattern.pattern
        listed = re.search(rf"{one}(?:\s*(?:,\s*(?:and\b)?|\band\b)\s*{one})+", clause)
        if listed and not _takes_several(tool):
            places = [found[0] for found in pattern.finditer(listed[0])]
            return [clause[: listed.start()] + p + clause[listed.end() :] for p in places]
    return [clause]


def _takes_several(tool: ToolDefinition) -> bool:
    inputs = tool.input_schema.get("properties", {}).values()
    strings = [i for i in inputs if isinstance(i, dict) and i.get("type") == "string"]
    return len(strings) != 1 or any(i.get("type") == "array" for i in inputs)
