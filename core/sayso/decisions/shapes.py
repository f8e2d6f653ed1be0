"""Calls and standing grants as people see them, over HTTP and on the command line.

Times are ISO-8601 in UTC.
"""

# Without `from __future__ import annotations`, since the OpenAPI document reads these types.

from datetime import UTC, datetime
from typing import Any, Literal

from typing_extensions import TypedDict

from sayso.ledger.grants import StandingGrant

_LAST = datetime(9999, 12, 31, 23, 59, 59, tzinfo=UTC).timestamp()
GrantState = Literal["open", "revoked", "used up", "ended"]


class GrantShown(TypedDict):
    """A standing grant. `who` has given it to `holder`; `used` of its `uses` are used."""

    id: str
    state: GrantState
    tool: str
    arguments: dict[str, Any]
    match: Literal["exact", "pattern"]
    holder: str
    context: dict[str, Any]
    uses: int
    used: int
    created: str
    ends: str
    reason: str
    who: str
    person: str | None
    claimed: bool
    revoked: str | None
    revoked_by: str | None


def iso(seconds: float) -> str:
    """A time of the store's clock; times after the year 9999 are cut to it."""
    return datetime.fromtimestamp(min(seconds, _LAST), UTC).isoformat(timespec="milliseconds")


def shown_grant(grant: StandingGrant, now: float) -> GrantShown:
    """The grant as people see it, at this time of the store."""
    return {
        "id": grant.id,
        "state": _state(grant, now),
        "tool": grant.tool,
        "arguments": grant.arguments,
        "match": "pattern" if grant.pattern else "exact",
        "holder": grant.holder,
        "context": grant.context,
        "uses": grant.uses,
        "used": grant.used,
        "created": iso(grant.created),
        "ends": iso(grant.ends),
        "reason": grant.reason,
        "who": grant.who,
        "person": grant.person,
        "claimed": grant.claimed,
        "revoked": None if grant.revoked is None else iso(grant.revoked),
        "revoked_by": grant.revoked_by,
    }


def _state(grant: StandingGrant, now: float) -> GrantState:
    if grant.revoked is not None:
        return "revoked"
    if grant.left <= 0:
        return "used up"
    return "open" if grant.holds(now) else "ended"
