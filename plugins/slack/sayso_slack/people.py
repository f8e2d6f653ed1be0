"""The users of Slack, and the principals that they are here."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

from sayso import Caller, Host, Principal, Proposal

PROTOCOL = "slack"
UNKNOWN = (
    "You are not known here: the operator maps users of Slack to persons in [auth.people], you as "
    '"slack|{}|{}".'
)


def caller_of(host: Host, team: str, user: str) -> Caller:
    """The caller that a user of a workspace is."""
    name = f"slack|{team}|{user}"
    principal = Principal(name, issuer="slack", subject=f"{team}|{user}")
    return Caller(PROTOCOL, host.known(principal))


def decider_of(host: Host, row: Proposal) -> str:
    """The name of who decided a call: a user of Slack is shown as the person."""
    who = row.decision.who if row.decision is not None else None
    if who is None or not who.startswith("slack|"):
        return who or ""
    principal = Principal(who, issuer="slack", subject=who.removeprefix("slack|"))
    return host.known(principal).person or who


def person_of(caller: Caller) -> str | None:
    """The person that the operator has mapped the user to; None for all other users."""
    principal = caller.principal
    return principal.person if isinstance(principal, Principal) else None


def pressed_by(payload: Any, teams: Collection[str]) -> tuple[str, str] | None:
    """The workspace and id of the user of an interaction; None for a foreign workspace.

    In a channel that several workspaces share, `user.team_id` is the user's own one.
    """
    user = payload.get("user") or {}
    where = (payload.get("team") or {}).get("id") or user.get("team_id")
    team, id_ = user.get("team_id") or where, user.get("id")
    if where not in teams or team not in teams or not isinstance(id_, str):
        return None
    return str(team), id_


def written_by(payload: Any, teams: Collection[str]) -> tuple[str, str] | None:
    """The workspace and id of the author of a message; None for a foreign workspace."""
    event = payload.get("event") or {}
    where = payload.get("team_id")
    team = event.get("user_team") or event.get("team") or where
    id_ = event.get("user")
    if where not in teams or team not in teams or not isinstance(id_, str):
        return None
    return str(team), id_
