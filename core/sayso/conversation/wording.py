"""The outcomes of a conversation's calls, as the model reads them."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence

from sayso.ledger import Proposal
from sayso.ledger.choices import Decided
from sayso.models import Result
from sayso.wire.messages import (
    Data,
    ExecutedApproval,
    ExecutedCommand,
    ExecutedToolCall,
    Message,
)

_NO_OUTPUT = "(no output)"
NOT_DECIDED = "Not run: not decided. Nobody has approved or rejected this yet."
NEVER_DECIDED = "Not run: never decided. The proposal is no longer open."
LOST = "No result of this call is known."
_TOO_LATE = "Not run: approved, but the approval expired before its caller asked."
_WITHOUT_RESULT: Mapping[str, str] = {
    "PENDING": NOT_DECIDED,
    "APPROVED": "Not run yet: approved, and runs when its caller asks.",
    "EXECUTING": "No result yet: approved, and still running.",
    "EXPIRED": NEVER_DECIDED,
}
_FAILURES = ("Error:", "Rejected:", "Outcome unknown:")
"""The beginnings of the output of a call that did not succeed."""


def spoken(output: str | None) -> str:
    """A call's output as the model reads it; providers do not accept a blank one."""
    return output if output and output.strip() else _NO_OUTPUT


def outcome_text(row: Proposal) -> tuple[str, bool]:
    """A proposal's state as the model reads it, and whether it is an error."""
    if row.state == "DONE" and row.purged:
        return LOST, False
    changed = ""
    if row.edited is not None:
        changed = f"(The approver changed the input to {json.dumps(row.edited)}.)"
    if row.state == "DONE":
        return f"{changed}\n{spoken(row.output)}" if changed else spoken(row.output), False
    if row.state == "REJECTED":
        reason = row.decision.reason if row.decision and row.decision.reason else "no reason given"
        return f"Rejected by the user: {reason}", True
    if row.state in ("FAILED", "INDETERMINATE"):
        # It begins with its kind: `Error:` or `Outcome unknown:`.
        output = row.output or LOST
        return f"{output}\n{changed}" if changed else output, True
    if row.state == "EXPIRED" and row.decision is not None:
        return _TOO_LATE, True
    # A newer Sayso may have further states.
    return _WITHOUT_RESULT.get(row.state, LOST), True


def known_since(data: Data, rows: Mapping[str, Proposal]) -> str:
    """The addition to a recorded reply that reported unknown outcomes of which some are known by
    now: they are stated with it, and the addition corrects its text."""
    stated = [*data.outcomes, *data.executed_cmds]
    unknown = [rows.get(d.id or "") for d in stated if d.output.startswith("Outcome unknown:")]
    known = [r for r in unknown if r and r.state in ("DONE", "FAILED") and not r.purged]
    if not known:
        return ""
    names = ", ".join(dict.fromkeys(map(_what, known)))
    return f"Since this was written it has become known how {names} ended: see its outcome."


def _what(row: Proposal) -> str:
    return str(row.input.get("command")) if row.kind == "command" else row.name


def late_note(row: Proposal) -> str:
    """The note about an outcome that came after the model was told that there is none."""
    what = row.input.get("command") if row.kind == "command" else json.dumps(row.input)
    return f"The earlier call {row.name} {what} has now ended: {outcome_text(row)[0]}"


class KnownOutcomes:
    """The outcome of each call as the model reads it, and whether as an error.

    The ledger takes precedence over the messages, unless a purge has removed the outcome.
    """

    def __init__(self, messages: Sequence[Message], found: Decided) -> None:
        self._outcomes: dict[str, tuple[str, bool]] = {}
        self.reported: set[str] = set()
        """The calls whose outcome a message reports."""
        self.commands: set[str] = set()
        """The commands whose outcome a message reports, by their text."""
        for message in messages:
            if message.data is not None:
                self._read(message.data)
        for row in found.rows.values():
            if not row.purged or row.id not in self._outcomes:
                self._outcomes[row.id] = outcome_text(row)

    def of(self, id_: str) -> tuple[str, bool]:
        """The outcome of a call, and whether it is an error."""
        return self._outcomes.get(id_, (NEVER_DECIDED, True))

    def result(self, id_: str) -> Result:
        """The result of a call for the model."""
        return Result(id_, *self.of(id_))

    def _read(self, data: Data) -> None:
        for done in data.outcomes:
            failed = done.output.startswith(_FAILURES)
            self._outcomes.setdefault(done.id, (spoken(done.output), failed))
            self.reported.add(done.id)
        self.commands |= {ran.command for ran in commands_run(data)}
        for item in data.stated:
            if item.rejection_reason:
                rejected = f"Rejected by the user: {item.rejection_reason}"
                self._outcomes.setdefault(item.id, (rejected, True))


def calls_run(data: Data) -> list[ExecutedToolCall | ExecutedApproval]:
    """The tool calls whose outcome the message reports."""
    if not data.executed_approvals:
        return [*data.executed_tool_calls]
    approved = [e for e in data.executed_approvals if e.type == "tool_call"]
    return [*data.executed_tool_calls, *approved]


def commands_run(data: Data) -> list[ExecutedCommand]:
    """The commands whose outcome the message reports."""
    if not data.executed_approvals:
        return [*data.executed_cmds]
    approved = [
        ExecutedCommand(command=str(e.input.get("command")), output=e.output, id=e.id)
        for e in data.executed_approvals
        if e.type == "command"
    ]
    return [*data.executed_cmds, *approved]
