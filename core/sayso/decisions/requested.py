"""A proposal of a request before it is recorded, and the requester."""

from __future__ import annotations

import secrets
from typing import Any

from sayso.context import Caller
from sayso.ledger import Proposal
from sayso.ledger.choices import Requester
from sayso.wire.lenient_json import json_values

_TEXTS = ("name", "description", "input_description", "intent")
"""The fields that the approver reads next to the input."""


_LONGEST_INTENT = 500
"""Characters of an intent that are kept: one sentence, for a list of cards."""


def requester(caller: Caller, tenant: str | None = None, user: str | None = None) -> Requester:
    """The requester; `tenant` and `user` are those that the messages claim."""
    return Requester(caller.principal, tenant, user, caller.protocol, caller.address, caller.client)


def proposal(who: Requester, **fields: Any) -> Proposal:
    """A proposal for `who`; the ledger sets its times when it records it."""
    # Record texts in the form in which they can be sent, so that lists of proposals can be
    # written.
    fields |= {name: json_values(fields[name]) for name in _TEXTS if name in fields}
    if intent := fields.get("intent"):
        fields["intent"] = intent[:_LONGEST_INTENT]
    own: dict[str, Any] = {"turn": "", "index": 0, "created": 0.0, "expires": 0.0}
    return Proposal(id=secrets.token_hex(16), **own | who._asdict() | fields)
