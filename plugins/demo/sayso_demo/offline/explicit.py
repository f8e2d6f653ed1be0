"""Calls that the user writes out: `NAME {json}`, `NAME(key=value)`, `/NAME …`, and commands."""

from __future__ import annotations

import ast
import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from sayso import ToolDefinition
from sayso_demo.offline.filling import answer, coerce, fill, properties, required

COMMANDS = "suggest_commands"
_FORM = re.compile(
    r"^\s*(?:(?:please\s+)?(?:use|call|invoke|run)\s+)?(?P<slash>/)?`?(?P<name>[A-Za-z_][\w.-]*)`?"
    r"(?P<rest>.*?)\s*$",
    re.DOTALL | re.IGNORECASE,
)
_RUN = re.compile(
    r"^\s*(?:please\s+|can you\s+|could you\s+)*"
    r"(?:(?:run|execute)\b(?:\s+the\s+commands?)?\s*:?|\$\s)\s*(?P<rest>.+)$",
    re.DOTALL | re.IGNORECASE,
)
_FENCE = re.compile(r"```(?:\w+\n)?(.*?)```", re.DOTALL)
_NO_COMMAND = frozenset("the a an my your this that it these those all some".split())


@dataclass(frozen=True, slots=True)
class Wanted:
    """A call as far as the user's words state it; `problem` says why they cannot be read."""

    tool: ToolDefinition
    values: Mapping[str, Any] = field(default_factory=dict)
    problem: str | None = None

    @property
    def missing(self) -> list[str]:
        """The required arguments that are not stated yet."""
        return [name for name in required(self.tool.input_schema) if name not in self.values]


def explicit(text: str, tools: Sequence[ToolDefinition]) -> Wanted | None:
    """The one call that the whole of `text` writes out; None if it has no such form."""
    form = _FORM.match(text)
    if form is None:
        return None
    tool = next((tool for tool in tools if tool.name == form["name"]), None)
    if tool is None:
        return None
    rest = form["rest"].strip().removeprefix("with ").strip()
    if rest.startswith("{"):
        return _with_json(tool, rest)
    if rest.startswith("(") and rest.endswith(")"):
        return _with_keywords(tool, rest)
    if not rest:
        return Wanted(tool)
    return _with_words(tool, rest) if form["slash"] else None


def unknown_name(text: str) -> str | None:
    """The name in a `/NAME …` text; the caller knows that no tool has it."""
    found = re.match(r"^\s*/([A-Za-z_][\w-]*)(?:\s|$)", text)
    return found[1] if found else None


def written_out(text: str, tools: Sequence[ToolDefinition]) -> Wanted | None:
    """The call or the shell commands that `text` writes out; None when it is neither."""
    return explicit(text, tools) or _commands(text, tools)


def _commands(text: str, tools: Sequence[ToolDefinition]) -> Wanted | None:
    """The shell commands that `text` asks to run, when the agent may suggest any."""
    tool = next((tool for tool in tools if tool.name == COMMANDS), None)
    found = _RUN.match(text)
    if tool is None or found is None:
        return None
    lines = _command_lines(found["rest"].strip())
    if not lines:
        return None
    return Wanted(tool, {"commands": [{"command": line} for line in lines]})


def _command_lines(rest: str) -> list[str]:
    if fenced := _FENCE.findall(rest):
        return [line.strip() for block in fenced for line in block.splitlines() if line.strip()]
    if quoted := re.findall(r"`([^`]+)`", rest):
        return [line.strip() for line in quoted if line.strip()]
    if whole := re.fullmatch(r"\"([^\"]+)\"|'([^']+)'", rest):
        return [whole[1] or whole[2]]
    first = rest.split()[0]
    if first.lower() in _NO_COMMAND or not re.fullmatch(r"[\w./~-]+", first):
        return []
    return [rest.rstrip("?!").rstrip()]


def _with_json(tool: ToolDefinition, text: str) -> Wanted:
    try:
        value = json.loads(text)
    except ValueError as error:
        place = f" at character {error.pos + 1}" if isinstance(error, json.JSONDecodeError) else ""
        return Wanted(tool, problem=f"the arguments of `{tool.name}` are not valid JSON{place}")
    return Wanted(tool, value)


def _with_keywords(tool: ToolDefinition, text: str) -> Wanted:
    wrong = f"the arguments of `{tool.name}` cannot be read; write them as key=value"
    try:
        call = ast.parse("f" + text.replace("\n", " "), mode="eval").body
    except (SyntaxError, ValueError):
        return _with_words(tool, text[1:-1])
    if not isinstance(call, ast.Call) or any(keyword.arg is None for keyword in call.keywords):
        return Wanted(tool, problem=wrong)
    inputs = properties(tool.input_schema)
    if len(call.args) > len(inputs):
        return Wanted(tool, problem=wrong)
    given = [*zip(inputs, call.args, strict=False)]
    given += [(str(keyword.arg), keyword.value) for keyword in call.keywords]
    values = {name: _literal(node, inputs.get(name, {})) for name, node in given}
    return Wanted(tool, {name: value for name, value in values.items() if value is not _UNREAD})


_UNREAD = object()


def _literal(node: ast.expr, schema: Mapping[str, Any]) -> Any:
    try:
        value = ast.literal_eval(node)
        json.dumps(value)
    except (ValueError, TypeError):
        word = ast.unparse(node)
        value = {"true": True, "false": False, "null": None}.get(word, _UNREAD)
        if value is _UNREAD:
            read = coerce(word, schema)
            value = _UNREAD if read is None else read
    return value


def _with_words(tool: ToolDefinition, text: str) -> Wanted:
    values = fill(tool, text)
    missing = Wanted(tool, values).missing
    if len(missing) == 1 and not values:
        values |= answer(tool, missing, text)
    return Wanted(tool, values)
