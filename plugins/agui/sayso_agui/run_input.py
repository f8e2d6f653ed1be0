"""The input of a run: the messages, and the answers to interrupts."""

import json
from dataclasses import dataclass, field
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field
from pydantic.alias_generators import to_camel

from sayso import Approval, BodyReader, Shown

Json = dict[str, Any]
CANCELLED = "cancelled by the user"


class _Part(BaseModel):
    model_config = ConfigDict(
        extra="ignore", hide_input_in_errors=True, alias_generator=to_camel, populate_by_name=True
    )


class Function(_Part):
    """The name and the arguments, JSON as text, of a call."""

    name: str
    arguments: str = ""


class CallMade(_Part):
    """A call in an assistant's message."""

    id: str
    function: Function


class Said(_Part):
    """One message; content is a text or a list of parts."""

    role: Literal["developer", "system", "user", "assistant", "tool", "reasoning", "activity"]
    content: Any = None
    tool_calls: list[CallMade] = []
    tool_call_id: str = ""


class Described(_Part):
    """Something that the page tells the agent about itself."""

    description: str
    value: str


class Resumed(_Part):
    """The answer to an interrupt."""

    interrupt_id: str
    status: Literal["resolved", "cancelled"]
    payload: Any = None


class RunInput(_Part):
    """The body of a run; `tools` of the page are its own, and are not called from here."""

    thread_id: str
    run_id: str
    messages: list[Said]
    state: Any = None
    context: list[Described] = []
    forwarded_props: Any = None
    resume: list[Resumed] = Field(default=[], max_length=1000)
    protocol_version: str | None = None


inputs = BodyReader(RunInput, unique=True)


class Malformed(Exception):
    """An answer that neither approves nor rejects; nothing runs."""


@dataclass
class Read:
    """A run after reading; `given` has the arguments that the page shows of each call."""

    shown: list[Shown] = field(default_factory=list)
    decisions: list[Approval] = field(default_factory=list)
    reported: set[str] = field(default_factory=set)
    given: dict[str, Json] = field(default_factory=dict)
    context: str = ""


def read(run: RunInput) -> Read:
    """The run; raises Malformed."""
    found = Read()
    words = [f"{one.description}: {one.value}" for one in run.context]
    for said in run.messages:
        text = _text(said.content)
        match said.role:
            case "user":
                found.shown.append(Shown("user", text))
            case "assistant":
                found.shown.append(Shown("assistant", text, [call.id for call in said.tool_calls]))
                found.given |= {c.id: _arguments(c.function.arguments) for c in said.tool_calls}
            case "system" | "developer":
                words.append(text)
            case "tool" if not _is_answer(text):
                found.reported.add(said.tool_call_id)
            case _:
                pass
    found.context = "\n\n".join(word for word in words if word.strip())
    found.decisions = [_decision(entry, found.given) for entry in run.resume]
    return found


def _decision(entry: Resumed, given: dict[str, Json]) -> Approval:
    id_ = entry.interrupt_id
    if entry.status == "cancelled":
        return Approval(id=id_, rejection_reason=CANCELLED)
    payload = entry.payload if isinstance(entry.payload, dict) else {}
    approved, reason, edited = (payload.get(k) for k in ("approved", "reason", "editedArgs"))
    if approved is False:
        said = reason.strip() if isinstance(reason, str) else ""
        return Approval(id=id_, rejection_reason=said or "no reason given")
    if approved is not True or not (edited is None or isinstance(edited, dict)):
        raise Malformed(
            f"the answer to {id_!r} must be an object whose 'approved' is true or false, and whose "
            "'editedArgs', if there are any, are an object; nothing has run"
        )
    stated = edited if edited is not None else given.get(id_)
    approval: Json = {"id": id_, "execute": True}
    return Approval.model_validate(approval if stated is None else {**approval, "input": stated})


def _is_answer(text: str) -> bool:
    """Whether a tool's message is the answer to an interrupt, as CopilotKit writes it beside its
    `resume`: no result of the tool, and no decision either."""
    try:
        found = json.loads(text)
    except ValueError:
        return False
    return isinstance(found, dict) and "approved" in found


def _arguments(text: str) -> Json:
    try:
        found = json.loads(text or "{}")
    except ValueError:
        found = None
    return found if isinstance(found, dict) else {"": "not a JSON object"}


def _text(content: Any) -> str:
    if isinstance(content, str):
        return content
    parts = content if isinstance(content, list) else []
    texts = [part.get("text") for part in parts if isinstance(part, dict)]
    return "\n".join(text for text in texts if isinstance(text, str))
