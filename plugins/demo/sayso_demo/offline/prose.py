"""The sentences of the offline model, and the recognition of its own questions."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from sayso import Call, Result, ToolDefinition
from sayso_demo.offline.explicit import COMMANDS
from sayso_demo.offline.filling import properties, required

HONEST = "I am the offline responder, not a language model: I match your words to tools."
NOTHING = "I did nothing, as you said not to."
_NOT_RUN = re.compile(
    r"\b(?:reject\w*|refus\w*|declin\w*|denied|never decided|"
    r"not (?:run|decided|approved|executed))\b",
    re.IGNORECASE,
)
_GREETING = re.compile(
    r"^\W*(?:hi|hello|hey|good (?:morning|afternoon|evening|day)|thanks?|help|what can you do|"
    r"what do you do|who are you|what are you)\b",
    re.IGNORECASE,
)


def sentence(text: str) -> str:
    """`text` with a capital and a full stop."""
    text = text.strip()
    return text[:1].upper() + text[1:] + ("" if text.endswith((".", "?", "!")) else ".")


def missing(tool: ToolDefinition, name: str) -> str:
    """The text that asks for a required argument."""
    return f"To use `{tool.name}` I still need `{name}`. For example: {example(tool)}."


def which(names: Sequence[str]) -> str:
    """The text that asks which of several tools is meant."""
    quoted = [f"`{name}`" for name in names]
    return f"I could use {', '.join(quoted[:-1])} or {quoted[-1]}. Write its name to call it."


def later(text: str) -> str:
    """The remark on a part that is to be done after something else."""
    return f"One thing after another: when it is done, say {json.dumps(text, ensure_ascii=False)}."


def no_tool(clause: str) -> str:
    """The remark on a part of a request that matches no tool."""
    return f"I found no tool for {json.dumps(clause, ensure_ascii=False)}."


def introduction(text: str, tools: Sequence[ToolDefinition]) -> str:
    """The answer to a greeting, and to a text that matches no tool."""
    if not tools:
        return f"{HONEST} This agent has no tools, so there is nothing I can do."
    known = _GREETING.match(text) or not text.strip()
    lines = [
        f"- `{tool.name}`: {_first_sentence(tool)} For example: {example(tool)}" for tool in tools
    ]
    opening = HONEST if known else f"{HONEST} I found no tool that fits your words."
    return "\n".join([f"{opening} I can use:", *lines])


def example(tool: ToolDefinition) -> str:
    """A form of the call that the offline model takes literally."""
    if tool.name == COMMANDS:
        return "run `df -h`"
    inputs = properties(tool.input_schema)
    needed = required(tool.input_schema) or list(inputs)[:1]
    given = ", ".join(f"{name}={_sample(inputs[name])}" for name in needed)
    return f"`{tool.name}({given})`"


def summary(calls: Mapping[str, Call], results: Iterable[Result]) -> str:
    """Each outcome in a plain sentence, with its whole output."""
    return "\n\n".join(_outcome(calls.get(result.call_id), result) for result in results)


def _outcome(call: Call | None, result: Result) -> str:
    name = f"`{call.name}`" if call else "An earlier call"
    output = result.output.strip()
    if call and call.name == COMMANDS:
        name = "The command" if len(call.input.get("commands", ())) == 1 else "The commands"
    if not result.is_error:
        return f"{name} returned {_shown(output)}"
    reason = output.removeprefix("Error:").strip()
    if reason.startswith("Outcome unknown"):
        return f"{name} did not end as far as anyone knows. {reason}"
    verb = "was not run" if _NOT_RUN.search(reason[:80]) else "failed"
    if name == "The commands":
        verb = verb.replace("was", "were")
    return f"{name} {verb}: {reason}"


def _shown(output: str) -> str:
    if not output:
        return "nothing."
    if "\n" in output:
        return f"this:\n\n{output}"
    return output if output.endswith((".", "!", "?")) else f"{output}."


def _first_sentence(tool: ToolDefinition) -> str:
    line = re.split(r"(?<=[.!?])\s|\n", tool.description.strip(), maxsplit=1)[0]
    return sentence(line) if line else "no description."


def _sample(schema: Mapping[str, Any]) -> str:
    if choices := schema.get("enum"):
        return json.dumps(choices[0])
    if schema.get("default") is not None:
        return json.dumps(schema["default"])
    samples = {"integer": "1", "number": "1.5", "boolean": "true", "array": "[]", "object": "{}"}
    return samples.get(str(schema.get("type")), '"…"')
