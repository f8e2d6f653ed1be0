"""The filters of lists of calls, in the inbox and on the command line."""

from __future__ import annotations

import json
from dataclasses import dataclass

from sayso.ledger import Proposal


@dataclass(frozen=True, slots=True)
class CallFilter:
    """The calls that a list has: those with all of these values; None admits every value.

    `requester` is the principal, person or user that asked, `rule` the digest of a rule, `text` a
    part of the name, input, description or intent, `created_after` a time of the store's clock.
    """

    state: str | None = None
    tool: str | None = None
    kind: str | None = None
    requester: str | None = None
    rule: str | None = None
    text: str | None = None
    created_after: float | None = None

    def fits(self, row: Proposal) -> bool:
        """Whether the list has this call."""
        return (
            self.state in (None, row.state)
            and self.tool in (None, row.name)
            and self.kind in (None, row.kind)
            and self.requester in (None, row.principal, row.person, row.user)
            and self.rule in (None, row.terms.rule if row.terms else None)
            and (self.created_after is None or row.created > self.created_after)
            and (self.text is None or _holds(row, self.text))
        )


def _holds(row: Proposal, text: str) -> bool:
    said = [row.name, row.intent, row.description, json.dumps(row.runs, ensure_ascii=False)]
    return any(text.casefold() in one.casefold() for one in said if one)
