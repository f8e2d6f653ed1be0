"""The question to a person before a gated tool runs, and the meaning of the answer."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

import mcp_types as types

from sayso import Proposal, needed_approvals, unseen
from sayso_mcp.peers import Context

FORM: dict[str, Any] = {
    "type": "object",
    "properties": {
        "approve": {
            "type": "boolean",
            "title": "Approve",
            "description": "Let this call run, once, with exactly this input.",
        },
        "reason": {
            "type": "string",
            "title": "Reason",
            # Clients that make a class of the form send null for a field without one.
            "default": "",
            "description": "Why it is rejected; recorded, and told to the model.",
        },
    },
    "required": ["approve"],
}
_LONGEST_REASON = 1000
_MARKS = {"set_by", "read_by", "default"}
"""Keys that say how a parameter's value was set; shown with the input."""
_PROSE = "\n\t\u00a0\u202f\u3000\u200c\u200d\ufe0e\ufe0f"
"""Spaces, and parts of emoji and of some scripts, that hide nothing in prose."""


@dataclass(frozen=True, slots=True)
class Answer:
    """A person's answer, the reason for it, and the digest of the call as the question
    showed it; None for the call as it was proposed."""

    approved: bool
    reason: str | None
    seen: str | None


def question(row: Proposal) -> str:
    """The question: the tool or command, its whole input, intent and description."""
    what = "this command" if row.kind == "command" else f"the tool {row.name!r}"
    lines = [f"Allow {what} to run?"]
    if row.description:
        lines.append(f"What it does: {visible(row.description, _PROSE)}")
    if row.intent:
        lines.append(f"Why: {visible(row.intent, _PROSE)}")
    shown = visible(json.dumps(row.runs, indent=2, ensure_ascii=False), "\n")
    changed = f" (revision {row.revision}, changed by an approver)" if row.revision > 1 else ""
    lines.append(f"Input{changed}: {shown}")
    marks = {name: about for name, about in row.input_description.items() if _MARKS & about.keys()}
    for name, text in [*_bound(row.bound), *(("Parameters", marks),) * bool(marks)]:
        given = text if isinstance(text, str) else json.dumps(text, ensure_ascii=False)
        lines.append(f"{name}: {visible(given, _PROSE)}")
    if needed := needed_approvals(row):
        lines.append(visible(needed, _PROSE))
    return "\n".join([*lines, f"Approval id: {row.id}"])


def _bound(bound: dict[str, Any]) -> list[tuple[str, Any]]:
    """Everything else that an approval binds: the agent, the tool's origin, and its target."""
    named = {"agent": "Agent", "tool": "Tool from", "context": "Where"}
    return [(named.get(name, name), value) for name, value in bound.items()]


def visible(text: str, ordinary: str) -> str:
    """`text` with invisible and reordering characters written as JSON escapes, except for those in
    `ordinary`."""
    return "".join(
        character if character in ordinary or not unseen(character) else json.dumps(character)[1:-1]
        for character in text
    )


def form(row: Proposal) -> types.ElicitRequest:
    """The form that asks for `approve`."""
    params = types.ElicitRequestFormParams(message=question(row), requested_schema=FORM)
    return types.ElicitRequest(params=params)


def link(row: Proposal, page: str) -> types.ElicitRequest:
    """The request to open Sayso's page, where the decision is made."""
    params = types.ElicitRequestURLParams(
        message=f"{question(row)}\nDecide on Sayso's page.",
        url=f"{page}#{row.id}",
        elicitation_id=row.id,
    )
    return types.ElicitRequest(params=params)


def answer_of(result: types.ElicitResult, seen: str | None) -> Answer:
    """The answer to `form`, which showed the call with the digest `seen`: only an accepted form
    whose `approve` is true approves."""
    content = result.content or {}
    given = content.get("reason")
    reason = given.strip()[:_LONGEST_REASON] if isinstance(given, str) and given.strip() else None
    if result.action == "accept" and content.get("approve") is True:
        return Answer(True, reason, seen)
    if result.action == "cancel":
        return Answer(False, reason or "the question was dismissed", seen)
    return Answer(False, reason, seen)


def name_of(row: Proposal) -> str:
    """The name under which a client sends the answer back: the call's id, and of an edited call
    the digest of what the question shows."""
    return row.id if row.revision == 1 else f"{row.id}:{row.seen}"


def named(name: str) -> tuple[str, str | None]:
    """The call's id in a `name_of`, and the digest if it has one."""
    id_, _, seen = name.partition(":")
    return id_, seen or None


def takes_forms(context: Context) -> bool:
    """Whether the client can ask its person by a form; a bare `elicitation: {}` also means so."""
    asking = _elicitation(context)
    return asking is not None and (asking.form is not None or asking.url is None)


def takes_links(context: Context) -> bool:
    """Whether the client can send its person to a page."""
    asking = _elicitation(context)
    return asking is not None and asking.url is not None


def _elicitation(context: Context) -> types.ElicitationCapability | None:
    capabilities = context.session.client_capabilities
    return None if capabilities is None else capabilities.elicitation
