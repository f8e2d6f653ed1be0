"""The outcomes of a conversation's calls according to its messages and the ledger."""

from __future__ import annotations

from collections.abc import Sequence

from sayso.conversation.wording import NEVER_DECIDED, outcome_text, spoken
from sayso.ledger.choices import Decided
from sayso.models import Result
from sayso.wire.messages import (
    Data,
    ExecutedApproval,
    ExecutedCommand,
    ExecutedToolCall,
    Message,
)

_FAILURES = ("Error:", "Rejected:", "Outcome unknown:")
"""The beginnings of the output of a call that did not succeed."""


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
                text = f"Rejected by the user: {item.rejection_reason}"
                self._outcomes.setdefault(item.id, (text, True))


def calls_run(data: Data) -> list[ExecutedToolCall | ExecutedApproval]:
    """The tool calls whose outcome the message reports."""
    approved = [e for e in data.executed_approvals if e.type == "tool_call"]
    return [*data.executed_tool_calls, *approved]


def commands_run(data: Data) -> list[ExecutedCommand]:
    """The commands whose outcome the message reports."""
    approved = [
        ExecutedCommand(command=str(e.input.get("command")), output=e.output, id=e.id)
        for e in data.executed_approvals
        if e.type == "command"
    ]
    return [*data.executed_cmds, *approved]
