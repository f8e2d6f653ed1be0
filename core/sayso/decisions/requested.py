"""A proposal of a request before it is recorded, and the requester."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from sayso.agent import Agent
from sayso.context import Caller
from sayso.decisions.places import PLAIN
from sayso.ledger import Proposal, new_id
from sayso.ledger.choices import Requester
from sayso.principals import person_of, proven_tenant
from sayso.wire.json_bytes import json_values
from sayso.wire.messages import Kind, PlatformContext

_TEXTS = ("name", "description", "input_description", "intent", "preview")
"""The fields that the approver reads next to the input."""


_LONGEST_INTENT = 500
"""Characters of an intent that are kept: one sentence, for a list of cards."""


def requester(caller: Caller, tenant: str | None = None, user: str | None = None) -> Requester:
    """The requester; the messages claim `tenant` and `user`, and a proven tenant replaces the
    claimed one."""
    tenant = proven_tenant(caller.principal) or tenant
    return Requester(caller.principal, tenant, user, caller.protocol, caller.address, caller.client)


def needs_caller(agent: Agent, kind: Kind, name: str) -> bool:
    """Whether a call can read something of the request that starts it, so that only its caller may
    start it. A callable carries out its calls itself, in a conversation."""
    if agent.function is not None:
        return True
    if kind == "command":
        # A shell of the author's own may read anything, unless it says that it does not.
        return agent.commands is None or getattr(agent.commands, "reads_context", True)
    tool = agent.tools.get(name)
    return tool is None or tool.needs_caller


def stands_alone(
    agent: Agent,
    kind: Kind,
    name: str,
    platform: PlatformContext | None,
    fields: Mapping[str, Any],
) -> bool:
    """Whether a call needs nothing of the request that proposes it, so that it may start without
    that request: neither the tool's function nor a hook could miss a field of the request."""
    if needs_caller(agent, kind, name) or fields:
        return False
    if platform is None:
        return True
    stated = {**platform.model_dump(mode="python"), **(platform.model_extra or {})}
    return {name for name, value in stated.items() if value} <= {"user_id", *PLAIN}


def proposal(who: Requester, **fields: Any) -> Proposal:
    """A proposal for `who`; the ledger sets its times when it records it."""
    # Record texts in the form in which they can be sent, so that lists of proposals can be
    # written.
    fields |= {name: json_values(fields[name]) for name in _TEXTS if name in fields}
    if intent := fields.get("intent"):
        fields["intent"] = intent[:_LONGEST_INTENT]
    own: dict[str, Any] = {"turn": "", "index": 0, "created": 0.0, "expires": 0.0}
    own["person"] = person_of(who.principal)
    return Proposal(id=new_id(), **own | who._asdict() | fields)
