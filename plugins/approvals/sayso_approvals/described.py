"""The inbox in the OpenAPI document; it is made only when somebody requests the document."""

from collections.abc import Mapping
from typing import Any, NotRequired

from typing_extensions import TypedDict

from sayso import GrantShown, ShownCall, ShownItem, openapi_operation, openapi_query, openapi_shape
from sayso_approvals import bodies


class Listed(TypedDict):
    """A page of calls; `next` is the `cursor` of the following page, null at the end."""

    approvals: list[ShownItem]
    next: str | None


class FrozenShown(TypedDict):
    """A stop of all starts: its author, time and reason."""

    who: str | None
    at: str
    reason: str


class Freeze(TypedDict):
    """Whether all starts are stopped now."""

    frozen: bool


class Summary(TypedDict):
    """The number of calls in each open state; `mine` of them wait for the caller, the oldest since
    `oldest`."""

    counts: dict[str, int]
    mine: int
    oldest: str | None
    frozen: FrozenShown | None


class Granted(TypedDict):
    """The standing grants that exist for the caller, the newest first."""

    grants: list[GrantShown]


class Result(TypedDict):
    """The result of one of several decisions: the call, or the error that this decision alone would
    get."""

    id: str
    status: int
    approval: NotRequired[ShownItem]
    error: NotRequired[dict[str, Any]]


class Results(TypedDict):
    """The results in the order of the decisions."""

    results: list[Result]


class Row(TypedDict):
    """A row of the log: its place in its chain, its entry, and the hashes that chain it."""

    id: str
    chain: int
    seq: int
    at: str
    entry: dict[str, Any]
    previous: str
    hash: str


class Rows(TypedDict):
    """A page of the log; `gap` is the number of rows that a purge removed before they were read."""

    rows: list[Row]
    next: str
    more: bool
    gap: int


_LIST = [
    openapi_query(
        "state",
        "The state, ALL, or DECIDED for all that is not PENDING; PENDING unless it is given.",
    ),
    openapi_query("sort", "By when they expire, or the newest first.", enum=["expires", "created"]),
    openapi_query("limit", "The most calls of the page.", type="integer", minimum=1, maximum=100),
    openapi_query("cursor", "The `next` of the page before."),
    openapi_query("tool", "The name of the tool."),
    openapi_query("kind", "Tool calls or commands alone.", enum=["tool_call", "command"]),
    openapi_query("requester", "The principal, person or user that asked."),
    openapi_query("mine", "Only what waits for the caller.", type="boolean"),
    openapi_query("own", "Only what the caller asked for.", type="boolean"),
    openapi_query("rule", "The digest of the rule."),
    openapi_query("q", "A text in the name, input, description or intent."),
    openapi_query("created_after", "A time such as 2027-01-31T12:00:00Z.", type="string"),
]
_WAIT = [
    openapi_query("wait", "Seconds to wait for a change, at most 60.", type="integer", minimum=0),
    {
        "name": "If-None-Match",
        "in": "header",
        "required": False,
        "description": "The ETag that is known: with `wait`, the answer comes when it is another.",
        "schema": {"type": "string"},
    },
]
_RESUME = {
    "name": "Last-Event-ID",
    "in": "header",
    "required": False,
    "description": "The id that came last: the events since then come first.",
    "schema": {"type": "string"},
}
_REFUSALS = {
    "403": "AUTH_REQUIRED without authentication on an address that others reach; else AGENT, "
    "NOT_AN_APPROVER, OWN_REQUEST, NOT_THE_REQUESTER, NOT_A_PERSON or NOT_AN_AUDITOR; for "
    "grants also GRANTS_OFF, QUORUM, DENIED, NOT_GRANTABLE or NOT_FOUND.",
    "404": "There is no such call for this caller.",
    "413": "The body is larger than `limits.body`.",
    "415": "The body is not `application/json`.",
    "422": "A parameter, the body or the decision is refused: approval_changed, "
    "approval_expired, approval_conflict, approval_not_allowed, approval_reason_required.",
    "428": "An approval without `seen`.",
    "503": "BUSY: as many wait as may; LEDGER_UNAVAILABLE: nothing was recorded.",
}
_FIELDS: Mapping[str, str] = {
    "address": "The network address, if it is known.",
    "approved": "Whether the call was approved.",
    "approve": "True approves the call, false rejects it.",
    "approvers": "The people and groups that may approve the call.",
    "approvals": "The calls.",
    "arguments": "The arguments that calls must have.",
    "at": "The time, in ISO 8601.",
    "barred": "Why the caller may not approve the call; null if it may.",
    "bound": "The agent, tool and place that an approval binds beside the input.",
    "call": "The id of a recorded call whose tool, input, requester and context are meant.",
    "chain": "The number of the chain.",
    "claimed": "Whether the name is only claimed, and not proven by credentials.",
    "client": "The program that asked.",
    "comment": "A remark for the other approvers.",
    "comments": "The remarks about the call, or their number.",
    "context": "The fields of the platform context that calls must state.",
    "counts": "The number of calls by state.",
    "created": "When the object was made, in ISO 8601.",
    "decision": "The decision; null while there is none.",
    "decisions": "The decisions.",
    "description": "The description of the tool.",
    "digest": "The digest of the rule.",
    "edited": "The input that runs, if an approver has changed it.",
    "editable": "Whether an approver may change the input, or the names of the arguments.",
    "ends": "When the grant ends, in ISO 8601.",
    "entry": "The entry: its event and its fields.",
    "error": "The error that this decision alone would get.",
    "expires": "When the proposal expires, in ISO 8601.",
    "finished": "When the call ended; null if it has not.",
    "frozen": "The stop of all starts, or whether there is one.",
    "gap": "The number of rows that a purge removed before they were read.",
    "given": "The number of approvals so far.",
    "grant": "The id of the standing grant that decided.",
    "grants": "The standing grants.",
    "hash": "The hash of this row.",
    "holder": "The principal whose calls the grant allows.",
    "id": "The id.",
    "input": "The arguments of the call, or the command with its files.",
    "input_begin": "The beginning of an input that is too long for a list.",
    "input_description": "The meaning of each argument.",
    "input_truncated": "Whether the input is too long for a list.",
    "intent": "The sentence with which the agent explains why it wants the call.",
    "k8s_namespace": "The namespace in Kubernetes.",
    "links": "The addresses of what can be done with the call.",
    "match": "How arguments are compared: whole, or by patterns.",
    "mine": "Whether the call waits for the caller, or how many do.",
    "mode": "`all` records all decisions or none, `each` records every one by itself.",
    "more": "Whether there are further rows now.",
    "name": "The name of the tool, or `command`.",
    "needed": "The number of approvals that the call needs.",
    "next": "The cursor of the following page.",
    "not_requester": "Whether the requester may not approve.",
    "oldest": "Since when the oldest call has waited for the caller.",
    "output": "The outcome.",
    "own": "Whether the caller asked for the call.",
    "person": "The person, as the credentials prove.",
    "platform_base_url": "The address of the platform.",
    "preview": "The effect that the call would have, as the tool foretells it.",
    "previous": "The hash of the row before.",
    "principal": "The authenticated name of the requester.",
    "protocol": "The protocol over which it came.",
    "purged": "Whether the texts have been erased.",
    "quorum": "The number of people who must approve.",
    "reason": "The reason.",
    "RuleShown.reason": "Whether a decision needs a reason.",
    "results": "The results in the order of the decisions.",
    "revision": "The number of the input: 1 is the proposed one.",
    "revoked": "When the grant was revoked; null if it was not.",
    "revoked_by": "The principal that revoked it.",
    "rows": "The rows.",
    "rule": "The rule that applied when the call was proposed.",
    "run_within": "Seconds after an approval within which the call must start.",
    "seconds": "How long the grant is valid.",
    "seen": "The digest of what the approver was shown; send it back to approve exactly that.",
    "seq": "The place of the row in its chain.",
    "state": "The state.",
    "status": "The HTTP status that this decision alone would get.",
    "approval": "The call after the decision.",
    "tenant_name": "The tenant.",
    "text": "The text.",
    "tool": "The name of the tool.",
    "type": "A tool call or a command.",
    "unattended": "Whether the service may start the call without its caller.",
    "used": "The number of calls that the grant has allowed.",
    "user": "The person who asked, by their own account.",
    "uses": "The number of calls that the grant allows.",
    "voted": "The approvals so far.",
    "votes": "The approvals so far, and how many the call needs.",
    "who": "The name of the person or program.",
}
_DECIDES = (
    "A decision binds what `seen` names: read the call, show it to a person, and send its `seen` "
    "back. An approval starts the call where its caller waits for it, or with the caller's next "
    "request."
)
_PATHS: Mapping[tuple[str, str], tuple[str, str, Any, Any, list[dict[str, Any]]]] = {
    ("/approvals", "get"): (
        *("List calls", "A page of calls that exist for the caller; pending ones by default."),
        *(Listed, None, _LIST),
    ),
    ("/approvals/summary", "get"): (
        *("Count open calls", "How many calls are in each open state, and how many wait for you."),
        *(Summary, None, []),
    ),
    ("/approvals/log", "get"): (
        *("Read the log", "The ledger's log in its order; for principals that may audit."),
        *(Rows, None, [openapi_query("after", "The `next` of the page before.")]),
    ),
    ("/approvals/decisions", "post"): (
        *("Decide several calls", f"Up to a hundred decisions in one request. {_DECIDES}"),
        *(Results, bodies.DecisionsBody, []),
    ),
    ("/approvals/freeze", "post"): (
        *("Stop or allow all starts", "While starts are stopped, approved calls do not run."),
        *(Freeze, bodies.FreezeBody, []),
    ),
    ("/approvals/grants", "get"): (
        *("List standing grants", "The grants that exist for the caller, the newest first."),
        *(Granted, None, []),
    ),
    ("/approvals/grants", "post"): (
        *("Give a standing grant", "Equal calls of the holder then run without a decision each."),
        *(GrantShown, bodies.GrantBody, []),
    ),
    ("/approvals/grants/{id}", "delete"): (
        *("Revoke a standing grant", "It allows no further call; running calls go on."),
        *(GrantShown, None, []),
    ),
    ("/approvals/{id}", "get"): (
        *("Show one call", "The call with all its fields; with `wait`, when it has changed."),
        *(ShownCall, None, _WAIT),
    ),
    ("/approvals/{id}/decision", "post"): (
        *("Decide a call", _DECIDES),
        *(ShownCall, bodies.DecisionBody, []),
    ),
    ("/approvals/{id}/comments", "post"): (
        *("Add a comment", "A remark for the others who decide; the model does not get it."),
        *(ShownCall, bodies.CommentBody, []),
    ),
    ("/approvals/{id}/withdraw", "post"): (
        *("Withdraw a call", "The requester takes the call back; it can no longer be approved."),
        *(ShownCall, bodies.WithdrawBody, []),
    ),
}
_EXAMPLES: Mapping[str, Any] = {
    "/approvals/{id}/decision": {"approve": True, "seen": "sha256:9f2c", "comment": "as planned"},
    "/approvals/decisions": {
        "mode": "each",
        "decisions": [{"id": "8f0c", "approve": False, "reason": "not before Monday"}],
    },
    "/approvals/freeze": {"frozen": True, "reason": "incident 4711"},
    "/approvals/grants": {
        "tool": "restart_pod",
        "arguments": {"name": "web-*"},
        "match": "pattern",
        "uses": 5,
        "seconds": 3600,
        "reason": "rollout of web",
    },
    "/approvals/{id}/comments": {"text": "the disk is at 92 %"},
    "/approvals/{id}/withdraw": {"reason": "done by hand"},
}


def openapi_paths() -> dict[str, dict[str, Any]]:
    """The operations of the inbox, by path and method."""
    events = openapi_operation(
        "Follow the changes of calls",
        "Server-sent events: each one is a change of a call that exists for the caller. After a "
        "broken connection, `Last-Event-ID` brings what has happened since.",
        answers={"type": "string", "description": "Server-sent events."},
        media="text/event-stream",
        parameters=[_RESUME],
        refusals=_REFUSALS,
    )
    found: dict[str, dict[str, Any]] = {"/approvals/events": {"get": events}}
    for (path, method), (summary, description, answer, body, parameters) in _PATHS.items():
        made = found.setdefault(path, {})[method] = openapi_operation(
            summary,
            description,
            answers=openapi_shape(answer, _FIELDS),
            takes=openapi_shape(body, _FIELDS, "validation") if body is not None else None,
            example=_EXAMPLES.get(path),
            parameters=parameters,
            refusals=_REFUSALS,
        )
        if parameters is _WAIT:
            made["responses"]["304"] = {"description": "Nothing has changed."}
    return found
