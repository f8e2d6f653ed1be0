"""A client of the inbox, and the service that its tests ask."""

from __future__ import annotations

import asyncio
from typing import Any

from sayso import Agent, Caller, Principal, Proposal, tool
from sayso.testing import Answer, Service, scripted

ANN, BOB, EVE, BOT = "ann", "bob", "eve", "bot"
"""Two principals of one tenant, one of another, and an agent."""
AUTH = """
[auth]
scheme = "bearer"
auditors = ["audit"]
[auth.tokens]
ann = "token-of-ann"
bob = "token-of-bob"
eve = "token-of-eve"
bot = "token-of-bot"
[auth.principals.ann]
kind = "person"
tenant = "acme"
[auth.principals.bob]
kind = "person"
tenant = "acme"
groups = ["audit", "sre"]
[auth.principals.eve]
tenant = "other"
[auth.principals.bot]
kind = "agent"
tenant = "acme"
"""
RAN: list[str] = []


def configured(more: str = "", *, auth: str = AUTH, deciders: str = "any") -> str:
    """The text of a sayso.toml; `more` continues its `[approvals]`."""
    plugins = 'plugins = ["v2", "approvals"]\n'
    return f'{plugins}[approvals]\nrun = "caller"\ndeciders = "{deciders}"\n{more}{auth}'


def deleting(**options: Any) -> Agent:
    """An agent with a gated tool; `options` are those of the agent."""
    RAN.clear()

    @tool(requires_approval=True, editable=True)
    def delete(path: str) -> str:
        """Delete a file."""
        RAN.append(path)
        return f"deleted {path}"

    @tool(requires_approval=True)
    def wipe() -> str:
        """Wipe the disk."""
        RAN.append("disk")
        return "wiped"

    return Agent(**{"name": "files", "model": scripted(), "tools": [delete, wipe], **options})


class Inbox:
    """A client that calls the inbox as each of these principals."""

    def __init__(self, service: Service) -> None:
        self.service = service

    def headers(self, who: str | None) -> dict[str, str]:
        """The credentials of one of these principals."""
        return {"Authorization": f"Bearer token-of-{who}"} if who else {}

    def get(self, path: str = "", who: str | None = ANN, **headers: str) -> Answer:
        """The answer to a GET of `/approvals` and what follows."""
        given = {name.replace("_", "-"): value for name, value in headers.items()}
        return self.service.get(f"/approvals{path}", self.headers(who) | given)

    def post(self, path: str, body: Any, who: str | None = ANN) -> Answer:
        """The answer to a POST."""
        return self.service.post(f"/approvals{path}", body, self.headers(who))

    def propose(self, path: str = "x", who: str | None = ANN, name: str = "delete") -> Proposal:
        """A call that one of these principals proposes, recorded."""
        known = {str(one): one for one in self.service.host.tokens}
        principal: Principal | None = known[who] if who else None
        given = {"path": path} if name == "delete" else {}
        work = self.service.host.calls.propose(name, given, Caller("mcp", principal, "10.0.0.1"))
        return asyncio.run(work)

    def seen(self, id: str, who: str | None = ANN) -> str:
        """The digest of what an approver reads before the decision."""
        seen: str = self.get(f"/{id}", who).json()["seen"]
        return seen

    def decide(self, id: str, approve: bool, who: str | None = BOB, **more: Any) -> Answer:
        """The answer to a decision of a principal that has read the call."""
        body = {"approve": approve, "seen": self.seen(id, who), **more}
        return self.post(f"/{id}/decision", body, who)
