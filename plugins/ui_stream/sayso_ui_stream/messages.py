"""The request of a page: its messages, part by part, and the decisions in them."""

from dataclasses import dataclass, field
from typing import Any

from pydantic import BaseModel, ConfigDict, Field

from sayso import Approval, BodyReader, InvalidRequest, Shown

Json = dict[str, Any]
SHELL = "shell"
"""The name under which a command is shown."""
MARK = "~"
"""Before the number of a question that is asked again: a page sends no second answer under the same
id."""
_OWN = {"id", "messages", "trigger", "messageId", "system", "tools", "callSettings", "config"}
_REPORTED = ("output-available", "output-error", "output-denied")


class UIMessage(BaseModel):
    """One message; parts of unknown kinds are skipped."""

    model_config = ConfigDict(extra="ignore", hide_input_in_errors=True)

    id: str = ""
    role: str
    parts: list[Json] = []
    metadata: Json | None = None


class Body(BaseModel):
    """The body of a request; further fields reach the agent as its request fields."""

    model_config = ConfigDict(extra="allow", hide_input_in_errors=True)

    id: str = Field(default="", max_length=200)
    messages: list[UIMessage]

    @property
    def fields(self) -> Json:
        """The request fields."""
        return {k: v for k, v in (self.__pydantic_extra__ or {}).items() if k not in _OWN}


bodies = BodyReader(Body, unique=True)


@dataclass
class Read:
    """A request after reading.

    `continues` is the id of the message that the reply continues, "" for a new one, and `known` the
    calls in that message with the ids of their questions; `asked` counts how often each call was
    shown.
    """

    shown: list[Shown] = field(default_factory=list)
    decisions: list[Approval] = field(default_factory=list)
    reported: set[str] = field(default_factory=set)
    session: Json | None = None
    continues: str = ""
    known: dict[str, str] = field(default_factory=dict)
    asked: dict[str, int] = field(default_factory=dict)


def read(body: Body) -> Read:
    """The request; raises InvalidRequest for a decision that is neither true nor false."""
    found = Read()
    spoken = [n for n, message in enumerate(body.messages) if message.role == "assistant"]
    last = spoken[-1] if spoken else -1
    for number, message in enumerate(body.messages):
        if message.role == "user":
            found.shown.append(Shown("user", _text(message)))
        elif message.role == "assistant":
            _assistant(found, message)
            session = (message.metadata or {}).get("session")
            found.session = session if isinstance(session, dict) else found.session
        if number == last:
            loc: list[str | int] = ["body", "messages", number]
            found.decisions = [_decision(part, loc) for part in _decided(message)]
    if last == len(body.messages) - 1 and last >= 0:
        message = body.messages[last]
        found.continues = message.id
        found.known = {_id(p): _question(p) for p in message.parts if _is_call(p)}
    return found


def _assistant(found: Read, message: UIMessage) -> None:
    """Add the replies in the message; a decided call begins a new one."""
    texts: list[str] = []
    ids: list[str] = []

    def end() -> None:
        if texts or ids:
            found.shown.append(Shown("assistant", "\n\n".join(texts), [*ids]))
        texts.clear()
        ids.clear()

    for part in message.parts:
        if part.get("type") == "text" and isinstance(part.get("text"), str):
            texts.append(part["text"])
        elif part.get("type") == "step-start" and ids:
            end()
        elif _is_call(part):
            ids.append(_id(part))
            found.asked[_id(part)] = found.asked.get(_id(part), 0) + 1
            if part.get("state") in _REPORTED:
                found.reported.add(_id(part))
    end()


def _decided(message: UIMessage) -> list[Json]:
    parts = [part for part in message.parts if _is_call(part)]
    return [part for part in parts if part.get("state") == "approval-responded"]


def _decision(part: Json, loc: list[str | int]) -> Approval:
    approval = part.get("approval")
    given = approval if isinstance(approval, dict) else {}
    approved, reason = given.get("approved"), given.get("reason")
    if not isinstance(approved, bool):
        raise InvalidRequest.at(loc, "bool_type", "a decision is true or false")
    decision: Json = {"id": _question(part).partition(MARK)[0], "execute": approved}
    if not approved:
        said = reason.strip() if isinstance(reason, str) else ""
        decision["rejection_reason"] = said or "no reason given"
    if isinstance(part.get("input"), dict):
        decision["input"] = part["input"]
    return Approval.model_validate(decision)


def _text(message: UIMessage) -> str:
    texts = [part.get("text") for part in message.parts if part.get("type") == "text"]
    return "\n\n".join(text for text in texts if isinstance(text, str))


def _is_call(part: Json) -> bool:
    kind = part.get("type")
    named = isinstance(kind, str) and (kind == "dynamic-tool" or kind.startswith("tool-"))
    return named and isinstance(part.get("toolCallId"), str)


def _id(part: Json) -> str:
    return str(part["toolCallId"])


def _question(part: Json) -> str:
    approval = part.get("approval")
    given = approval.get("id") if isinstance(approval, dict) else None
    return given if isinstance(given, str) else _id(part)
