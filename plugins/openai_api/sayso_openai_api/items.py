"""The input of a response, item by item: texts, the calls in it, and decisions."""

import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

from sayso import Approval, InvalidRequest, Shown
from sayso_openai_api.bodies import text_of
from sayso_openai_api.cards import parts_of, reported_in

Json = dict[str, Any]
_PREFIX = "mcpr_"
"""The prefix that some clients expect of the id of a request for approval."""
SHELL = "shell"
"""The name under which a command is shown."""


@dataclass
class Input:
    """A conversation that is sent piece by piece; `inputs` has the arguments that were shown."""

    shown: list[Shown] = field(default_factory=list)
    decisions: list[Approval] = field(default_factory=list)
    reported: set[str] = field(default_factory=set)
    inputs: dict[str, Json] = field(default_factory=dict)
    instructions: list[str] = field(default_factory=list)

    def read(self, given: str | Sequence[Json]) -> None:
        """Add what a request sends; raises InvalidRequest."""
        if isinstance(given, str):
            self.shown.append(Shown("user", given))
            return
        decided: list[tuple[int, Json]] = []
        for number, item in enumerate(given):
            match item.get("type", "message"):
                case "message":
                    self._message(item)
                case "mcp_approval_request":
                    self._request(item)
                case "item_reference":
                    self._show([_id(item.get("id"))])
                case "mcp_call":
                    self.reported.add(_id(item.get("approval_request_id")))
                case "mcp_approval_response":
                    decided.append((number, item))
        # After all requests: an echoed one may be anywhere.
        self.decisions += [self._decision(number, item) for number, item in decided]

    def _message(self, item: Json) -> None:
        role, text = item.get("role"), text_of(item.get("content"))
        if role in ("system", "developer"):
            self.instructions.append(text)
        elif role == "user":
            self.shown.append(Shown("user", text))
        elif role == "assistant":
            self.reported |= reported_in(text)
            # A card beside a request says the same in words.
            self.shown += [Shown("assistant", said, ids) for said, ids in parts_of(text)]

    def _request(self, item: Json) -> None:
        id_ = _id(item.get("id"))
        self.inputs[id_] = _arguments(item.get("arguments"))
        self._show([id_])

    def _show(self, ids: Iterable[str]) -> None:
        """Have the last reply of the agent show these calls."""
        last = self.shown.pop() if self.shown and self.shown[-1].role == "assistant" else None
        before = last or Shown("assistant", "")
        self.shown.append(Shown("assistant", before.text, [*before.ids, *ids]))

    def _decision(self, number: int, item: Json) -> Approval:
        id_, approve = _id(item.get("approval_request_id")), item.get("approve")
        if not isinstance(approve, bool):
            loc: list[str | int] = ["body", "input", number, "approve"]
            raise InvalidRequest.at(loc, "bool_type", "a decision is true or false")
        decision: Json = {"id": id_, "execute": approve}
        if not approve:
            reason = item.get("reason")
            said = reason.strip() if isinstance(reason, str) else ""
            decision["rejection_reason"] = said or "no reason given"
        if id_ in self.inputs:
            decision["input"] = self.inputs[id_]
        return Approval.model_validate(decision)


def _id(given: object) -> str:
    return given.removeprefix(_PREFIX) if isinstance(given, str) else ""


def _arguments(given: object) -> Json:
    """The arguments that a client says it showed; a value that is no JSON object equals none of
    ours."""
    try:
        found = json.loads(given) if isinstance(given, str) else given
    except ValueError:
        found = None
    return found if isinstance(found, dict) else {"": "not a JSON object"}
