"""Notices: the events of a call as channels send them."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from fnmatch import fnmatchcase
from hashlib import sha256
from typing import Any, Protocol

from sayso import Proposal

TYPES: Mapping[str, str] = {
    "proposed": "approval.requested",
    "voted": "approval.voted",
    "edited": "approval.edited",
    "approved": "approval.approved",
    "rejected": "approval.rejected",
    "expired": "approval.expired",
    "claimed": "call.started",
    "done": "call.done",
    "failed": "call.failed",
    "indeterminate": "call.indeterminate",
}
"""The type of a notice, by the entry of the log."""
STATES: Mapping[str, str] = {
    "proposed": "PENDING",
    "voted": "PENDING",
    "edited": "PENDING",
    "approved": "APPROVED",
    "unclaimed": "APPROVED",
    "claimed": "EXECUTING",
    **dict.fromkeys(("rejected", "expired", "done", "failed", "indeterminate"), "ENDED"),
}
"""The state of a call after an entry of the log. The row may be further than the log was read."""
REQUESTED, REMINDER, ESCALATED = "approval.requested", "approval.reminder", "approval.escalated"
ALL = (*TYPES.values(), REMINDER, ESCALATED)
"""The types of all notices."""
ASKING = frozenset({REQUESTED, REMINDER, ESCALATED, "approval.voted", "approval.edited"})
"""Notices that ask for a decision, or tell of a pending call: they are sent only while it is
pending."""
LATE = frozenset({"approval.expired", "call.done", "call.failed", "call.indeterminate"})
"""Notices that come after the time of the call."""
_LAST = datetime(9999, 12, 31, 23, 59, 59, tzinfo=UTC).timestamp()
_LARGEST = 2_048
"""Characters of one field of an input; a longer one is sent as its beginning."""


@dataclass(frozen=True, slots=True)
class Notice:
    """One event of a call. `id` is the same each time that it is sent.

    `row` is the call in its present state, `who` the author of the event. `remote` is what the
    channel returned for an earlier notice of this call, such as the id of its message. `link` leads
    to the page where people decide.
    """

    id: str
    type: str
    at: float
    row: Proposal
    who: str | None = None
    remote: str | None = None
    link: str | None = None


class Channel(Protocol):
    """A way to people, and its settings.

    `events` and `tools` are patterns such as "approval.*". `reminders` says whether the channel
    gets a reminder at a third and at two thirds of the time that a call may wait. A channel with
    `after` hears only of calls that are still pending after that many seconds.
    """

    @property
    def events(self) -> Sequence[str]:
        """Patterns of the types of notices."""
        ...

    @property
    def tools(self) -> Sequence[str]:
        """Patterns of the names of tools."""
        ...

    @property
    def reminders(self) -> bool:
        """Whether it gets reminders."""
        ...

    @property
    def after(self) -> float | None:
        """The seconds before an escalation."""
        ...

    async def send(self, notice: Notice) -> str | None:
        """Send the notice; return its `remote`, None to keep that of the notices before.

        An exception makes it be sent again later. Its attribute `retry_after` may name the seconds
        until then; with an attribute `gone` that is true, nothing more is sent on the channel.
        """
        ...


class Gone(Exception):
    """The receiver wants no more notices."""

    gone = True


def fits(patterns: Sequence[str], name: str) -> bool:
    """Whether one of the patterns is for this name."""
    return any(fnmatchcase(name, each) for each in patterns)


def made_id(call: str, type_: str, number: int = 0) -> str:
    """The id of a notice that no row of the log has, always the same for the same event."""
    return sha256(f"{call} {type_} {number}".encode()).hexdigest()[:32]


def iso(seconds: float) -> str:
    """A time of the store's clock, in UTC."""
    return datetime.fromtimestamp(min(seconds, _LAST), UTC).isoformat(timespec="seconds")


def data(notice: Notice, inputs: Sequence[str]) -> dict[str, Any]:
    """The content of a notice for programs: of the input only the fields `inputs`."""
    row, terms = notice.row, notice.row.terms
    shown: dict[str, Any] = {
        "id": row.id,
        "type": row.kind,
        "name": row.name,
        "state": row.state,
        "agent": row.agent,
        "principal": row.principal,
        "person": row.person,
        "user": row.user,
        "created": iso(row.created),
        "expires": iso(row.expires),
        "revision": row.revision,
        "approvers": list(terms.approvers) if terms is not None else [],
        "needed": terms.quorum if terms is not None else 1,
        "given": len(row.votes),
        "who": notice.who,
        "link": notice.link,
    }
    given = {name: _cut(row.runs[name]) for name in inputs if name in row.runs}
    return {**shown, "input": given} if inputs else shown


def _cut(value: Any) -> Any:
    text = json.dumps(value, ensure_ascii=False)
    return value if len(text) <= _LARGEST else f"{text[:_LARGEST]}..."
