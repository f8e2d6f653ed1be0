"""Suggested commands: the model's tool for them, and reading its calls."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pydantic import BaseModel, ConfigDict, Field, TypeAdapter

from sayso.commands.folders import PathRefused, relative_parts
from sayso.errors import ToolInputError
from sayso.models import ToolDefinition
from sayso.tools.values import validated
from sayso.wire.messages import Command, CommandFile


class _Closed(BaseModel):
    # Built at the first suggestion, since many agents have no commands.
    model_config = ConfigDict(extra="forbid", defer_build=True)


class _File(_Closed):
    file_path: str
    file_content: str


class _Suggested(_Closed):
    command: str = Field(min_length=1)
    files: list[_File] | None = None
    intent: str | None = None


class _Suggestion(_Closed):
    commands: list[_Suggested] = Field(min_length=1)


_suggestion = TypeAdapter(_Suggestion)

SUGGEST_COMMANDS = ToolDefinition(
    name="suggest_commands",
    description=(
        "Suggest shell commands to run on the machine. A person sees them and approves or rejects "
        "each one; only then it runs, and you get its output. Commands run with `bash -c`, without "
        "standard input, in a working directory that this conversation keeps. Suggest one command "
        "for each step that can be approved by itself."
    ),
    input_schema={
        "type": "object",
        "properties": {
            "commands": {
                "type": "array",
                "minItems": 1,
                "description": "The commands, in the order in which they should run.",
                "items": {
                    "type": "object",
                    "properties": {
                        "command": {"type": "string", "description": "The shell command."},
                        "files": {
                            "type": "array",
                            "description": "Files to write before the command runs.",
                            "items": {
                                "type": "object",
                                "properties": {
                                    "file_path": {
                                        "type": "string",
                                        "description": "Path relative to the working directory.",
                                    },
                                    "file_content": {"type": "string"},
                                },
                                "required": ["file_path", "file_content"],
                                "additionalProperties": False,
                            },
                        },
                        "intent": {
                            "type": "string",
                            "description": "Why, in one sentence for the person who approves.",
                        },
                    },
                    "required": ["command"],
                    "additionalProperties": False,
                },
            }
        },
        "required": ["commands"],
        "additionalProperties": False,
    },
)
"""The model's tool for suggesting commands; it exists only for agents with `commands`."""


def read_suggestion(input: Mapping[str, Any]) -> list[Command]:
    """The commands that a call of `suggest_commands` suggests, none of them approved.

    Raises ToolInputError, with a message for the model, also for file paths that would be refused.
    """
    suggestion = validated(_suggestion, input, ["commands"])
    return [_command(index, item) for index, item in enumerate(suggestion.commands)]


def _command(index: int, item: _Suggested) -> Command:
    if not item.command.strip() or "\0" in item.command:
        raise ToolInputError(f"parameter 'commands.{index}.command': there is no command in it")
    try:
        for file in item.files or ():
            relative_parts(file.file_path)
    except PathRefused as error:
        raise ToolInputError(f"parameter 'commands.{index}.files': {error}") from None
    files = [CommandFile(**file.model_dump()) for file in item.files or ()]
    return Command(command=item.command, files=files or None, intent=item.intent)
