"""The inbox in the OpenAPI document; it is made only when somebody requests the document."""

from collections.abc import Mapping
from typing import Any, NotRequired

from pydantic import TypeAdapter
from typing_extensions import TypedDict

from sayso import GrantShown, ShownCall, ShownItem
from sayso_approvals import bodies

Operation = dict[str, Any]


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


def _query(name: str, text: str, **schema: Any) -> dict[str, Any]:
    shape = schema or {"type": "string"}
    return {"name": name, "in": "query", "required": False, "description": text, "schema": shape}


_LIST = [
    _query(
        "state",
        "the state, ALL, or DECIDED for all that is not PENDING; PENDING unless it is given",
    ),
    _query("sort", "by when they expire, or the newest first", enum=["expires", "created"]),
    _query("limit", "the most calls of the page", type="integer", minimum=1, maximum=100),
    _query("cursor", "the `next` of the page before"),
    _query("tool", "the name of the tool"),
    _query("kind", "tool calls or commands alone", enum=["tool_call", "command"]),
    _query("requester", "the principal, person or user that asked"),
    _query("mine", "only what waits for the caller", type="boolean"),
    _query("own", "only what the caller asked for", type="boolean"),
    _query("rule", "the digest of the rule"),
    _query("q", "a text in the name, input, description or intent"),
    _query("created_after", "a time such as 2027-01-31T12:00:00Z", type="string"),
]
_WAIT = [
    _query("wait", "seconds to wait for a change, at most 60", type="integer", minimum=0),
    {
        "name": "If-None-Match",
        "in": "header",
        "required": False,
        "description": "the ETag that is known: with `wait`, the answer comes when it is another",
        "schema": {"type": "string"},
    },
]
_RESUME = {
    "name": "Last-Event-ID",
    "in": "header",
    "required": False,
    "description": "the id that came last: what has happened since comes first",
    "schema": {"type": "string"},
}
_REFUSALS = {
    "401": "the credentials are missing or wrong",
    "403": "AUTH_REQUIRED without authentication on an address that others reach; else AGENT, "
    "NOT_AN_APPROVER, OWN_REQUEST, NOT_THE_REQUESTER, NOT_A_PERSON or NOT_AN_AUDITOR; for "
    "grants also GRANTS_OFF, QUORUM, DENIED, NOT_GRANTABLE or NOT_FOUND",
    "404": "there is no such call for this caller",
    "413": "the body is larger than limits.body",
    "415": "the body is not application/json",
    "422": "a parameter, the body or the decision is refused: approval_changed, "
    "approval_expired, approval_conflict, approval_not_allowed, approval_reason_required",
    "428": "an approval without `seen`",
    "503": "BUSY: as many wait as may; LEDGER_UNAVAILABLE: nothing was recorded",
}
_PATHS: Mapping[tuple[str, str], tuple[str, Any, Any, list[dict[str, Any]]]] = {
    ("/approvals", "GET"): ("Lists calls", Listed, None, _LIST),
    ("/approvals/summary", "GET"): ("Counts what is open", Summary, None, []),
    ("/approvals/log", "GET"): (
        *("Reads the log, for auditors", Rows, None),
        [_query("after", "the `next` of the page before")],
    ),
    ("/approvals/decisions", "POST"): ("Decides several", Results, bodies.DecisionsBody, []),
    ("/approvals/freeze", "POST"): ("Stops all starts", Freeze, bodies.FreezeBody, []),
    ("/approvals/grants", "GET"): ("Lists standing grants", Granted, None, []),
    ("/approvals/grants", "POST"): ("Gives a standing grant", GrantShown, bodies.GrantBody, []),
    ("/approvals/grants/{id}", "DELETE"): ("Revokes a standing grant", GrantShown, None, []),
    ("/approvals/{id}", "GET"): (
        "Shows one call, or waits for a change",
        ShownCall,
        None,
        _WAIT,
    ),
    ("/approvals/{id}/decision", "POST"): ("Decides", ShownCall, bodies.DecisionBody, []),
    ("/approvals/{id}/comments", "POST"): ("Comments", ShownCall, bodies.CommentBody, []),
    ("/approvals/{id}/withdraw", "POST"): ("Takes back", ShownCall, bodies.WithdrawBody, []),
}


def described(path: str, method: str) -> Operation:
    """The operation object of a path, with its schemas inside."""
    if path == "/approvals/events":
        text = "What becomes of calls, as server-sent events"
        content: Any = {"text/event-stream": {"schema": {"type": "string"}}}
        return _operation(text, content, [_RESUME])
    text, answer, body, parameters = _PATHS[path, method]
    operation = _operation(text, _json(answer, "serialization"), parameters)
    if body is not None:
        operation["requestBody"] = {"required": True, "content": _json(body, "validation")}
    return operation


def _operation(text: str, content: Any, parameters: list[dict[str, Any]]) -> Operation:
    responses: dict[str, Any] = {"200": {"description": "OK", "content": content}}
    error = {"application/json": {"schema": {"type": "object"}}}
    for status, why in _REFUSALS.items():
        responses[status] = {"description": why, "content": error}
    if any(one["name"] == "wait" for one in parameters):
        responses["304"] = {"description": "nothing has changed"}
    return {"summary": text, "parameters": parameters, "responses": responses}


def _json(model: Any, mode: Any) -> dict[str, Any]:
    """The content in JSON. A reference would point into another document, so the schema that it
    names replaces it."""
    schema = TypeAdapter(model).json_schema(mode=mode)
    return {"application/json": {"schema": _whole(schema, schema.pop("$defs", {}))}}


def _whole(part: Any, known: Mapping[str, Any]) -> Any:
    if isinstance(part, list):
        return [_whole(one, known) for one in part]
    if not isinstance(part, dict):
        return part
    if "$ref" in part:
        return _whole(known[part["$ref"].rpartition("/")[2]], known)
    return {name: _whole(one, known) for name, one in part.items()}
