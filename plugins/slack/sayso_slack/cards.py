"""The card of a call: what Slack shows, and which buttons it has.

All foreign text is plain text or preformatted: no character of it is markup, a mention or a link.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any, NamedTuple

from sayso import Proposal, pretty, visible

APPROVE, REJECT, REVIEW = "sayso_approve", "sayso_reject", "sayso_review"
REASON = "sayso_reason"
"""The callback of the modal that asks for a reason."""
_WHOLE = 2_600
"""Characters of an input that fit a card, beside everything else on it."""
_LAST = datetime(9999, 12, 31, 23, 59, 59, tzinfo=UTC).timestamp()
_SAID = 300
_BOUND = 1_500
"""Characters of one of the facts that a decision is bound to, such as the platform context."""
Json = dict[str, Any]


class Card(NamedTuple):
    """A message: its text, which notifications show, and its blocks."""

    text: str
    blocks: list[Json]


class Shown(NamedTuple):
    """The data that a card shows beside the call itself: `inputs` are the fields that may be shown,
    `link` the page, `standing` the approvers so far; `destructive` asks once more."""

    inputs: Sequence[str]
    link: str | None = None
    standing: str = ""
    destructive: bool = True


def asking(row: Proposal, shown: Shown) -> Card:
    """The card of a pending call."""
    title = f"{name_of(row)} waits for a decision"
    is_whole = all(len(fact) <= _BOUND for fact in _bound(row))
    input = _input(row, shown.inputs) if is_whole else None
    blocks = [_section(title), *_facts(row, shown), *_why(row)]
    if input is not None:
        blocks.append(_preformatted(input))
    else:
        blocks.append(_section("The card does not show the whole call: read it on the page."))
    buttons = [*_buttons(row, shown.destructive)] if input is not None else []
    if shown.link:
        review = {"type": "button", "action_id": REVIEW, "text": _plain("Review")}
        buttons.append({**review, "url": shown.link})
    if not buttons:
        # Without a page there is nothing to review; a rejection is always safe.
        buttons.append(_reject(row))
    blocks.append({"type": "actions", "block_id": "sayso", "elements": buttons})
    return Card(escaped(title), blocks)


def decided(row: Proposal, at: float, decider: str) -> Card:
    """The card of a call that is not pending any more: who, what and when, without buttons."""
    title = f"{name_of(row)} {outcome(row, at, decider)}"
    blocks = [_section(title), *_facts(row, Shown([]))]
    return Card(escaped(title), blocks)


def outcome(row: Proposal, at: float, decider: str) -> str:
    """The state of a call that is not pending, in words; `decider` is the name to show."""
    if row.state == "EXPIRED":
        return "has expired: nobody decided in time, and it did not run"
    given = row.decision
    by = f" by {one_line(decider)}" if decider else ""
    claimed = " (the name is not proven)" if decider and given and given.claimed else ""
    when = _time(given.at if given else at)
    if row.state == "REJECTED":
        return f"was rejected{by}{claimed}, {when}"
    ends = {
        "APPROVED": "it has not run yet",
        "EXECUTING": "it runs",
        "DONE": "it has run",
        "FAILED": "it has failed",
        "INDETERMINATE": "nobody knows whether it has run",
    }
    return f"was approved{by}{claimed}, {when}; {ends.get(row.state, row.state)}"


def reason_modal(row: Proposal, value: str, approved: bool, place: str) -> Json:
    """The modal that asks for the reason of a decision; `place` is the card's."""
    verb = "Approve" if approved else "Reject"
    hint = "It is recorded." if approved else "It is recorded, and the agent reads it."
    needed = approved
    element = {"type": "plain_text_input", "action_id": "reason", "multiline": True}
    return {
        "type": "modal",
        "callback_id": REASON,
        "private_metadata": f"{verb} {place} {value}",
        "title": _plain(verb),
        "submit": _plain(verb),
        "close": _plain("Cancel"),
        "blocks": [
            _section(f"{verb} {name_of(row)}"),
            {
                "type": "input",
                "block_id": "reason",
                "optional": not needed,
                "label": _plain("Reason"),
                "hint": _plain(hint),
                "element": {**element, "max_length": 2_000},
            },
        ],
    }


def name_of(row: Proposal) -> str:
    """The name of a call in one line."""
    return "A command" if row.kind == "command" else one_line(row.name)[:100]


def one_line(text: str) -> str:
    """`text` in one line, without characters that people cannot see."""
    return " ".join(visible(text, strict=True).split())


def escaped(text: str) -> str:
    """`text` in which Slack finds no mention, link or entity."""
    return text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")


def _input(row: Proposal, fields: Sequence[str]) -> str | None:
    """The whole input as text; None if a field of it may not be shown, or it does not fit."""
    if "*" not in fields and not set(row.runs) <= set(fields):
        return None
    text = pretty(row.runs)
    return text if len(text) <= _WHOLE else None


def _facts(row: Proposal, shown: Shown) -> list[Json]:
    asked = row.person or row.principal or row.user or "somebody"
    claimed = "" if row.principal else " (the name is not proven)"
    facts = [f"Asked by {asked}{claimed}"]
    if row.state == "PENDING":
        facts.append(f"Expires {_time(row.expires)}")
        if row.terms and row.terms.approvers:
            facts.append(f"Approvers: {', '.join(row.terms.approvers)}")
        if row.terms and row.terms.quorum > 1:
            facts.append(f"Approvals: {len(row.votes)} of {row.terms.quorum}")
        if shown.standing:
            facts.append(shown.standing)
    texts = [*(one_line(fact)[:_SAID] for fact in facts), *(one[:_BOUND] for one in _bound(row))]
    return [{"type": "context", "elements": [*map(_plain, texts)][:10]}]


def _bound(row: Proposal) -> list[str]:
    """The facts that the decision is bound to beside the input."""
    return [
        one_line(f"{key}: {pretty(value) if isinstance(value, dict) else value}")
        for key, value in row.bound.items()
    ]


def _why(row: Proposal) -> list[Json]:
    """The words of the tool's author, and those of the agent, headed as such."""
    said = [_section(one_line(row.description)[:_SAID])] if row.description else []
    if row.intent:
        said.append(_section(f"The agent says: {one_line(row.intent)[:_SAID]}"))
    return said


def _buttons(row: Proposal, destructive: bool) -> list[Json]:
    approve = {
        "type": "button",
        "action_id": APPROVE,
        "style": "primary",
        "text": _plain("Approve"),
        "value": f"{row.id} {row.seen}",
    }
    if destructive:
        approve["confirm"] = {
            "title": _plain("Approve?"),
            "text": _plain(f"{name_of(row)} runs with exactly this input."),
            "confirm": _plain("Approve"),
            "deny": _plain("Cancel"),
        }
    return [approve, _reject(row)]


def _reject(row: Proposal) -> Json:
    value = f"{row.id} {row.seen}"
    button = {"type": "button", "action_id": REJECT, "style": "danger"}
    return {**button, "text": _plain("Reject"), "value": value}


def _section(text: str) -> Json:
    return {"type": "section", "text": _plain(text)}


def _plain(text: str) -> Json:
    return {"type": "plain_text", "text": text, "emoji": False}


def _preformatted(text: str) -> Json:
    inner = {"type": "rich_text_preformatted", "elements": [{"type": "text", "text": text}]}
    return {"type": "rich_text", "elements": [inner]}


def _time(at: float) -> str:
    return datetime.fromtimestamp(min(at, _LAST), UTC).strftime("%Y-%m-%d %H:%M UTC")
