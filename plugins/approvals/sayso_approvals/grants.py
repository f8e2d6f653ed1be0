"""Standing grants over HTTP: given, listed and revoked."""

from dataclasses import dataclass
from typing import Any

from starlette.requests import Request
from starlette.responses import Response

from sayso import Caller, Grantable, Host, InvalidRequest, shown_grant
from sayso_approvals.bodies import GRANT, GrantBody
from sayso_approvals.reading import body_of
from sayso_approvals.refusals import NotFound
from sayso_approvals.replies import reply


@dataclass(frozen=True, slots=True)
class GrantPaths:
    """The handlers of one service."""

    host: Host

    async def listed(self, request: Request, caller: Caller) -> Response:
        """The grants that exist for the caller, the newest first."""
        found, now = await self.host.grants.listed(caller)
        return reply({"grants": [shown_grant(one, now) for one in found]})

    async def give(self, request: Request, caller: Caller) -> Response:
        """The caller approves future calls of somebody else."""
        body: GrantBody = await body_of(self.host, request, GRANT)
        made = await self.host.grants.give(await self._wanted(body, caller), caller)
        return reply(shown_grant(made, made.created))

    async def revoke(self, request: Request, caller: Caller) -> Response:
        """End a grant at once."""
        made = await self.host.grants.revoke(request.path_params["id"], caller)
        if made is None:
            raise NotFound
        return reply(shown_grant(made, made.created))

    async def _wanted(self, body: GrantBody, caller: Caller) -> Grantable:
        like = {} if body.call is None else await self._like(body.call, caller)
        own = {"tool": body.tool, "arguments": body.arguments, "holder": body.holder}
        said = like | {name: value for name, value in own.items() if value is not None}
        if body.context is not None:
            said["context"] = body.context.model_dump(exclude_none=True)
        if missing := [name for name in own if name not in said]:
            text = f"say {missing[0]!r}, or the 'call' that is meant"
            raise InvalidRequest.at(["body", missing[0]], "missing", text)
        pattern = body.match == "pattern"
        more: dict[str, Any] = {"uses": body.uses, "seconds": body.seconds, "reason": body.reason}
        return Grantable(**said, **more, pattern=pattern)

    async def _like(self, id: str, caller: Caller) -> dict[str, Any]:
        row = await self.host.calls.look(id, caller)
        if row is None or row.kind != "tool_call" or row.principal is None:
            raise NotFound
        context = row.context or {}
        return {
            "tool": row.name,
            "arguments": row.input,
            "holder": str(row.principal),
            "context": context,
        }
