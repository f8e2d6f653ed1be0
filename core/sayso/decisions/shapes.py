"""Calls and standing grants as people see them, over HTTP and on the command line, and the filters
of their lists.

Times are ISO-8601 in UTC.
"""

# Without `from __future__ import annotations`, since the OpenAPI document reads these types.

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, Literal

from typing_extensions import TypedDict

from sayso.ledger import Proposal
from sayso.ledger.grants import StandingGrant
from sayso.ledger.people import Vote

LARGEST = 2048
"""Bytes of an input that a list shows."""
_LAST = datetime(9999, 12, 31, 23, 59, 59, tzinfo=UTC).timestamp()


class Votes(TypedDict):
    """The number of approvals that the call needs, and the number that it has."""

    needed: int
    given: int


class VoteShown(TypedDict):
    """One approval."""

    who: str | None
    person: str | None
    claimed: bool
    protocol: str
    at: str


class DecisionShown(TypedDict):
    """The decision: its author, the protocol, and whether the author's name is only claimed;
    `grant` is the id of the standing grant that made it."""

    approved: bool
    who: str | None
    claimed: bool
    protocol: str
    address: str | None
    reason: str | None
    at: str
    grant: str | None


class CommentShown(TypedDict):
    """A remark about the call; the model does not get it."""

    who: str | None
    claimed: bool
    text: str
    at: str


class RuleShown(TypedDict):
    """The demands of the rule that applied when the call was proposed."""

    approvers: Sequence[str]
    quorum: int
    not_requester: bool
    reason: bool
    run_within: float | None
    digest: str


class Common(TypedDict):
    """The fields that lists and single calls share.

    `barred` says why the caller may not approve it, `own` that the caller asked for it, `mine` that
    it waits for the caller. `seen` is the digest of what an approver reads before the decision.
    An `unattended` call needs nothing of its caller's: the service may start it.
    """

    id: str
    type: Literal["tool_call", "command"]
    name: str
    state: str
    description: str
    intent: str | None
    bound: dict[str, Any]
    principal: str | None
    person: str | None
    user: str | None
    protocol: str
    client: str | None
    address: str | None
    created: str
    expires: str
    revision: int
    votes: Votes
    own: bool
    mine: bool
    barred: str | None
    seen: str
    purged: bool
    unattended: bool
    voted: Sequence[VoteShown]
    decision: DecisionShown | None
    finished: str | None


class ShownItem(Common):
    """A call in a list; an `input` above 2 KiB is null, and `input_begin` has its first part."""

    input: dict[str, Any] | None
    input_truncated: bool
    input_begin: str | None
    comments: int


class ShownCall(Common):
    """A call with all its fields; `edited` is the input that runs if an approver has changed it,
    `output` the outcome, `preview` the text that the tool has made of the input."""

    input: dict[str, Any]
    edited: dict[str, Any] | None
    editable: bool | Sequence[str]
    input_description: dict[str, Any]
    preview: str | None
    rule: RuleShown | None
    output: str | None
    comments: Sequence[CommentShown]
    links: dict[str, str]


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


def _nobody(row: Proposal) -> str:
    return ""


def _fixed(row: Proposal) -> bool:
    return False


@dataclass(frozen=True, slots=True)
class View:
    """The reader of calls: the `principal`, the reason why it may not approve a call, and the
    parameters that it may change. The defaults are those of the command line, where nothing says
    who reads."""

    principal: str | None = None
    barred: Callable[[Proposal], str] = _nobody
    editable: Callable[[Proposal], bool | Sequence[str]] = _fixed

    def owns(self, row: Proposal) -> bool:
        """Whether the reader asked for the call."""
        return row.principal == self.principal

    def may_decide(self, row: Proposal) -> bool:
        """Whether the call waits for the reader, who may approve it and has not."""
        voters = [vote.who for vote in row.votes if self.principal is not None]
        return row.state == "PENDING" and self.principal not in voters and not self.barred(row)


def shown_item(row: Proposal, view: View) -> ShownItem:
    """The call in the form in which a list shows it to its reader."""
    text = json.dumps(row.runs, ensure_ascii=False)
    short = len(text.encode("utf-8", "surrogatepass")) <= LARGEST
    return {
        **_common(row, view),
        "input": row.runs if short else None,
        "input_truncated": not short,
        "input_begin": None if short else text[:LARGEST],
        "comments": len(row.comments),
    }


def shown_call(row: Proposal, view: View) -> ShownCall:
    """The whole call in the form in which its reader sees it."""
    here = f"/approvals/{row.id}"
    return {
        **_common(row, view),
        "input": row.input,
        "edited": row.edited,
        "editable": view.editable(row),
        "input_description": row.input_description,
        "preview": row.preview,
        "rule": _rule(row),
        "output": row.output,
        "comments": [
            {"who": one.who, "claimed": one.claimed, "text": one.text, "at": iso(one.at)}
            for one in row.comments
        ],
        "links": {
            "self": here,
            **{what: f"{here}/{what}" for what in ("decision", "comments", "withdraw")},
        },
    }


def _common(row: Proposal, view: View) -> Common:
    return {
        "id": row.id,
        "type": row.kind,
        "name": row.name,
        "state": row.state,
        "description": row.description,
        "intent": row.intent,
        "bound": row.bound,
        "principal": row.principal,
        "person": row.person,
        "user": row.user,
        "protocol": row.protocol,
        "client": row.client,
        "address": row.address,
        "created": iso(row.created),
        "expires": iso(row.expires),
        "revision": row.revision,
        "votes": votes(row),
        "own": view.owns(row),
        "mine": view.may_decide(row),
        "barred": view.barred(row) or None,
        "seen": row.seen,
        "purged": row.purged or is_lost(row),
        "unattended": row.unattended,
        "voted": [_vote(vote) for vote in row.votes],
        "decision": _decision(row),
        "finished": None if row.finished is None else iso(row.finished),
    }


def is_lost(row: Proposal) -> bool:
    """Whether a purge has removed the input of an expired call, which has no output to tell from:
    if its parameters are described, it had an input."""
    return row.state == "EXPIRED" and not row.input and bool(row.input_description)


def votes(row: Proposal) -> Votes:
    """The number of approvals that the call needs, and the number that it has."""
    needed = row.terms.quorum if row.terms is not None else 1
    decided = row.decision is not None and row.decision.approved
    return {"needed": needed, "given": needed if decided else len(row.votes)}


def _vote(vote: Vote) -> VoteShown:
    return {
        "who": vote.who,
        "person": vote.person,
        "claimed": vote.claimed,
        "protocol": vote.protocol,
        "at": iso(vote.at),
    }


def _rule(row: Proposal) -> RuleShown | None:
    if (terms := row.terms) is None:
        return None
    return {
        "approvers": terms.approvers,
        "quorum": terms.quorum,
        "not_requester": terms.not_requester,
        "reason": terms.reason,
        "run_within": terms.run_within,
        "digest": terms.rule,
    }


def _decision(row: Proposal) -> DecisionShown | None:
    if (given := row.decision) is None:
        return None
    return {
        "approved": given.approved,
        "who": given.who,
        "claimed": given.claimed,
        "protocol": given.protocol,
        "address": given.address,
        "reason": given.reason,
        "at": iso(given.at),
        "grant": given.grant or None,
    }


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
