"""Calls that the user writes out: `NAME {json}`, `NAME(key=value)`, `/NAME …`, and commands."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from sayso import ToolDefinition
from sayso_demo.offline.filling import fill, required

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
    tool = next((tool for tool in tools if form and tool.name == form["name"]), None)
    if form is None or tool is None:
        return None
    rest = form["rest"].strip().removeprefix("with ").strip()
    if rest.startswith("{"):
        return _with_json(tool, rest)
    if rest.startswith("(") and rest.endswith(")"):
        return Wanted(tool, fill(tool, rest[1:-1]))
    if not rest or form["slash"]:
        return Wanted(tool, fill(tool, rest))
    return None


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
    lines = _command_lines(found["rest"].strip()) if tool and found else []
    if tool is None or not lines:
        return None
    return Wanted(tool, {"commands": [{"command": line} for line in lines]})


def _command_lines(rest: str) -> list[str]:
    if fenced := _FENCE.findall(rest):
        return [line.strip() for block in fenced for line in block.splitlines() if line.strip()]
    if quoted := re.findall(r"`([^`]+)`", rest):
        return [line.strip() for line in quoted if line.strip()]
    if whole := re.fullmatch(r"([\"'])(.+)\1", rest):
        return [whole[2]]
    first = rest.split()[0]
    if first.lower() in _NO_COMMAND or not re.fullmatch(r"[\w./~-]+", first):
        return []
    return [rest.rstrip("?!").rstrip()]


def _with_json(tool: ToolDefinition, text: str) -> Wanted:
    try:
        return Wanted(tool, json.loads(text))
    except ValueError as error:
        place = f" at character {error.pos + 1}" if isinstance(error, json.JSONDecodeError) else ""
        return Wanted(tool, problem=f"the arguments of `{tool.name}` are not valid JSON{place}")
