"""Calls as the inbox shows them; times are ISO-8601 in UTC."""

import json
from collections.abc import Sequence
from datetime import UTC, datetime
from hashlib import sha256
from typing import Any, Literal

from typing_extensions import TypedDict

from sayso import Caller, Host, Proposal, Vote

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
    """The decision: its author, the protocol, and whether the author's name is only claimed."""

    approved: bool
    who: str | None
    claimed: bool
    protocol: str
    reason: str | None
    at: str


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
    `decision` and `finished` are null while there is no decision and no end.
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
    decision: DecisionShown | None
    finished: str | None


class Item(Common):
    """A call in a list; an `input` above 2 KiB is null, and `input_begin` has its first part."""

    input: dict[str, Any] | None
    input_truncated: bool
    input_begin: str | None
    comments: int


class Detail(Common):
    """A call with all its fields; `edited` is the input that runs if an approver has changed it,
    `output` the outcome, `preview` the text that the tool has made of the input."""

    input: dict[str, Any]
    edited: dict[str, Any] | None
    editable: bool | Sequence[str]
    input_description: dict[str, Any]
    preview: str | None
    voted: Sequence[VoteShown]
    rule: RuleShown | None
    output: str | None
    comments: Sequence[CommentShown]
    links: dict[str, str]


def item(host: Host, row: Proposal, caller: Caller) -> Item:
    """The call in the form in which a list shows it to this caller."""
    text = json.dumps(row.runs, ensure_ascii=False)
    short = len(text.encode("utf-8", "surrogatepass")) <= LARGEST
    return {
        **_common(host, row, caller),
        "input": row.runs if short else None,
        "input_truncated": not short,
        "input_begin": None if short else text[:LARGEST],
        "comments": len(row.comments),
    }


def detail(host: Host, row: Proposal, caller: Caller) -> Detail:
    """The whole call in the form in which this caller sees it."""
    tool = host.agent.tools.get(row.name) if row.kind == "tool_call" else None
    here = f"/approvals/{row.id}"
    return {
        **_common(host, row, caller),
        "input": row.input,
        "edited": row.edited,
        "editable": tool is not None and tool.editable,
        "input_description": row.input_description,
        "preview": row.preview,
        "voted": [_vote(vote) for vote in row.votes],
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


def _common(host: Host, row: Proposal, caller: Caller) -> Common:
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
        "own": is_own(row, caller),
        "mine": is_mine(host, row, caller),
        "barred": host.record.barred(row, caller) or None,
        "seen": seen(row),
        "decision": _decision(row),
        "finished": None if row.finished is None else iso(row.finished),
    }


def votes(row: Proposal) -> Votes:
    """The number of approvals that the call needs, and the number that it has."""
    needed = row.terms.quorum if row.terms is not None else 1
    decided = row.decision is not None and row.decision.approved
    return {"needed": needed, "given": needed if decided else len(row.votes)}


def seen(row: Proposal) -> str:
    """The digest of everything that an approver reads before the decision: the input that would
    run, the other bound fields, and the demands of the rule."""
    said = [row.id, row.runs, row.bound, row.terms.rule if row.terms else "", votes(row)["needed"]]
    text = json.dumps(said, sort_keys=True)
    return f"sha256:{sha256(text.encode()).hexdigest()}"


def etag(row: Proposal) -> str:
    """The entity tag of a call; it differs after each change of the call."""
    said = [row.state, seen(row), len(row.votes), len(row.comments), row.fence, row.expires]
    return f'"{sha256(json.dumps(said).encode()).hexdigest()[:32]}"'


def is_own(row: Proposal, caller: Caller) -> bool:
    """Whether the caller asked for the call."""
    return row.principal == caller.principal


def is_mine(host: Host, row: Proposal, caller: Caller) -> bool:
    """Whether the call waits for this caller, who may approve it and has not."""
    voted = any(vote.who == caller.principal for vote in row.votes if caller.principal is not None)
    return row.state == "PENDING" and not voted and not host.record.barred(row, caller)


def iso(seconds: float) -> str:
    """A time of the store's clock; times after the year 9999 are cut to it."""
    return datetime.fromtimestamp(min(seconds, _LAST), UTC).isoformat(timespec="milliseconds")


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
        "reason": given.reason,
        "at": iso(given.at),
    }
