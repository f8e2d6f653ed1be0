"""Pending calls, and decisions on them, as JSON; the page uses it where the inbox is not active.

A decision is only recorded here. The call runs where its caller waits for it: over MCP by itself,
in a conversation with the next request that carries the approved call.
"""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, Field
from pydantic_core import to_json
from starlette.requests import Request
from starlette.responses import Response

from sayso import (
    BodyReader,
    Caller,
    Host,
    Proposal,
    RequestError,
    caller_of,
    check_access,
    read_body,
)
from sayso import standard_error as shape
from sayso_console.about import about
from sayso_console.asked import Asked
from sayso_console.page import HEADERS

PROTOCOL = "console"
LIMIT = 100
"""Most proposals in one answer."""
_LAST = datetime(9999, 12, 31, 23, 59, 59, tzinfo=UTC).timestamp()
"""The last second that ISO-8601 can write with a year of four digits."""


class ForeignPage(RequestError):
    """403: the request comes from a page that is not the console's own."""

    status = 403
    code = "FOREIGN_ORIGIN"

    def __init__(self) -> None:
        super().__init__("only the console's own page may do this; see server.cors_origins")


class NotPending(RequestError):
    """404: there is no such proposal for this caller."""

    status = 404
    code = "NOT_FOUND"

    def __init__(self) -> None:
        super().__init__("there is no such proposal")


class Verdict(BaseModel):
    """The body of a decision; the `reason` of a rejection goes to the model and into the ledger.

    `input` is the changed input in an approval of an editable tool's call; `seen` is the digest
    of what the page showed.
    """

    model_config = ConfigDict(extra="forbid", strict=True)

    approve: bool
    reason: Annotated[str, Field(max_length=4_000)] | None = None
    input: dict[str, Any] | None = None
    seen: Annotated[str, Field(max_length=200)] | None = None


_verdicts = BodyReader(Verdict, unique=True)


@dataclass(frozen=True, slots=True)
class Approvals:
    """The endpoints of pending approvals."""

    host: Host
    asked: Asked | None = None

    async def listed(self, request: Request) -> Response:
        """`{"agent": {name, description, editable}, "approvals": [...], "next": str | null}`.

        The newest call of each principal comes first, then the second of each. `next` is the query
        parameter `after` of the next page.

        The caller who proposed a call may change its input on approval if its tool allows that:
        `editable` has true, or the names of parameters, for each such tool.
        """
        return await self._answered(request, self._list)

    async def one(self, request: Request) -> Response:
        """A call as the list has it, with `{"state", "decision", "edited"}`, after a POST's
        decision; 404 if it does not exist for this caller."""
        # With two routes for one path, `Allow` would list only the first one's methods.
        decides = request.method == "POST"
        return await self._answered(request, self._decide if decides else self._look)

    async def agent(self, request: Request) -> Response:
        """The agent, its tools, and the caller, see `about`."""
        return await self._answered(request, self._about, decides=False)

    async def prompt(self, request: Request) -> Response:
        """The model calls of the caller's newest turn, for developers."""
        return await self._answered(request, self._prompt)

    async def _prompt(self, request: Request, caller: Caller) -> dict[str, Any]:
        return {"calls": self.asked.of(caller) if self.asked else []}

    async def _about(self, request: Request, caller: Caller) -> dict[str, Any]:
        return about(self.host, caller)

    async def _answered(
        self,
        request: Request,
        answer: Callable[[Request, Caller], Awaitable[dict[str, Any]]],
        decides: bool = True,
    ) -> Response:
        try:
            if decides:
                check_access(self.host, request.scope)
            self._refuse_foreign(request)
            return _answer(await answer(request, caller_of(request.scope, PROTOCOL)))
        except Exception as error:
            failure = self.host.failure(error)
            status, body = shape(error, failure)
            response = _answer(body, status)
            response.raw_headers += failure.headers
            return response

    async def _list(self, request: Request, caller: Caller) -> dict[str, Any]:
        page = await self.host.calls.pending(caller, LIMIT, after=request.query_params.get("after"))
        agent = self.host.agent
        # Sent once, not with each call: calls in the page's own chat may be missing from a long
        # list.
        editable = {tool.name: tool.editable for tool in agent.tools.values() if tool.editable}
        return {
            "agent": {"name": agent.name, "description": agent.description, "editable": editable},
            "approvals": [shown(row) for row in page.calls],
            "next": page.after,
        }

    async def _look(self, request: Request, caller: Caller) -> dict[str, Any]:
        row = await self._found(request, caller)
        return {**shown(row), **standing(row)}

    async def _decide(self, request: Request, caller: Caller) -> dict[str, Any]:
        limits = self.host.config.limits
        body = await read_body(request.scope, request.receive, limits.body)
        verdict = _verdicts.read(body, limits.nesting, limits.values)
        row = await self._found(request, caller)
        decided = await self.host.calls.decide(
            row.id,
            caller,
            approved=verdict.approve,
            kind=row.kind,
            reason=None if verdict.approve else verdict.reason or None,
            edited=verdict.input,
            seen=verdict.seen,
            run=False,
        )
        return standing(decided)

    async def _found(self, request: Request, caller: Caller) -> Proposal:
        row = await self.host.calls.look(request.path_params["id"], caller)
        if row is None:
            raise NotPending
        return row

    def _refuse_foreign(self, request: Request) -> None:
        """Raise ForeignPage unless this page sent the request (design, section 6, "Web pages").

        Browsers send `Origin` with each POST; a request without it comes from no page.
        """
        headers = request.headers
        origin = headers.get("origin")
        if origin is None:
            site = headers.get("sec-fetch-site", "none")
            foreign = request.method == "POST" or site not in ("same-origin", "none")
        else:
            # "*" allows any page to chat, but not to read the list of pending calls.
            listed = origin in self.host.config.server.cors_origins
            own = origin.partition("://")[2].lower() == headers.get("host", "").lower()
            foreign = origin == "null" or not (listed or own)
        if foreign:
            raise ForeignPage


def shown(row: Proposal) -> dict[str, Any]:
    """A proposal as the page lists it; times are ISO-8601 in UTC, none after the year 9999."""
    return {
        "id": row.id,
        "type": row.kind,
        "name": row.name,
        "input": row.runs,
        "revision": row.revision,
        "seen": row.seen,
        "description": row.description,
        "input_description": row.input_description,
        "intent": row.intent,
        "bound": row.bound,
        "preview": row.preview,
        "protocol": row.protocol,
        "client": row.client,
        "principal": row.principal,
        "user": row.user,
        "address": row.address,
        "created": _time(row.created),
        "expires": _time(row.expires),
    }


def standing(row: Proposal) -> dict[str, Any]:
    """The state of a proposal; `decision` is null if there is none, `edited` unless the approval
    changed the input. `who` is the authenticated principal, or the name that somebody claims."""
    decision = row.decision
    return {
        "id": row.id,
        "state": row.state,
        "edited": row.edited,
        "decision": decision
        and {
            "approved": decision.approved,
            "who": decision.who,
            "claimed": decision.claimed,
            "protocol": decision.protocol,
            "reason": decision.reason,
            "at": _time(decision.at),
        },
    }


def _time(seconds: float) -> str:
    return datetime.fromtimestamp(min(seconds, _LAST), UTC).isoformat(timespec="seconds")


def _answer(body: dict[str, Any], status: int = 200) -> Response:
    return Response(to_json(body), status, HEADERS, "application/json")
