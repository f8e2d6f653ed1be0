"""Standing grants of one service: given by persons, listed, revoked, and used."""

from __future__ import annotations

import glob
import secrets
from collections.abc import Awaitable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

from sayso.context import Caller
from sayso.conversation import approvals
from sayso.decisions.deed import PLAIN, proposal, requester, tool_deed
from sayso.engine import Engine
from sayso.errors import InvalidRequest, NotGranted, ToolInputError
from sayso.hosting.grants import Grantable
from sayso.ledger import Proposal
from sayso.ledger.choices import Requester
from sayso.ledger.grants import StandingGrant, place_of
from sayso.principals import Principal, is_agent, person_of
from sayso.tools import Tool
from sayso.wire.messages import PlatformContext

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Grants:
    """The standing grants of one service; `host.grants`."""

    engine: Engine

    async def give(self, wanted: Grantable, caller: Caller) -> StandingGrant:
        """Record a standing grant of this caller. See `hosting.grants.Grants`."""
        who = caller.principal
        if not self.engine.approvals.grants:
            raise NotGranted("GRANTS_OFF")
        if is_agent(who):
            raise NotGranted("AGENT")
        if not isinstance(who, Principal) or who.person is None:
            raise NotGranted("NOT_A_PERSON")
        tool = self.engine.agent.tools.get(wanted.tool)
        if tool is None:
            text = f"the agent has no tool {wanted.tool!r}"
            raise InvalidRequest.at(["body", "tool"], "value_error", text)
        arguments = await self._arguments(tool, wanted)
        platform = _platform(wanted.context)
        self._check_rules(tool, arguments, platform)
        grant = StandingGrant(
            id=secrets.token_hex(16),
            agent=self.engine.agent.id,
            tool=tool.name,
            deed=tool.digest,
            arguments=arguments,
            pattern=wanted.pattern,
            holder=wanted.holder,
            context={n: value for n, value in place_of(wanted.context).items() if value},
            uses=wanted.uses,
            ends=0.0,
            reason=wanted.reason,
            who=str(who),
            person=person_of(who),
            tenant=who.tenant,
            kind=who.kind,
            groups=sorted(who.groups),
        )
        if why := self.engine.ledger.grants.why_not(grant, self._example(grant)):
            raise NotGranted(why)
        return await self._run(self.engine.ledger.grants.give(grant, wanted.seconds))

    async def listed(self, caller: Caller) -> tuple[list[StandingGrant], float]:
        """The grants that exist for this caller. See `hosting.grants.Grants`."""
        found, now = await self._run(self.engine.ledger.grants.listed())
        return [one for one in found if self._is_visible(one, caller)], now

    async def revoke(self, id: str, caller: Caller) -> StandingGrant | None:
        """End a grant at once. See `hosting.grants.Grants`."""
        found, _ = await self.listed(caller)
        if not (same := [one for one in found if one.id == id]):
            return None
        if is_agent(caller.principal):
            raise NotGranted("AGENT")
        return await self._run(self.engine.ledger.grants.revoke(same[0].id, str(caller.principal)))

    async def approved(
        self, rows: Sequence[Proposal], platform: PlatformContext | None
    ) -> list[Proposal]:
        """Those of the proposals that standing grants approve, as recorded; empty if there are no
        grants here. The others are not recorded yet."""
        if not self.engine.approvals.grants:
            return []
        may = [row for row in rows if self._is_grantable(row, platform)]
        approved = await self.engine.ledger.grants.approve(may) if may else []
        for row in approved:
            by = row.decision.who if row.decision else None
            await self.engine.fire(approvals.decision_event(row, by))
        return approved

    def _is_grantable(self, row: Proposal, platform: PlatformContext | None) -> bool:
        tool = self.engine.agent.tools.get(row.name)
        if row.kind != "tool_call" or tool is None:
            return False
        return self.engine.gate.policy.grantable(tool, row.asked, row.input, platform)

    def _is_visible(self, grant: StandingGrant, caller: Caller) -> bool:
        who = requester(caller)
        if who.principal is None or grant.holder == who.principal or grant.who == who.principal:
            return True
        if grant.tenant is not None and who.tenant is not None and grant.tenant != who.tenant:
            return False
        return self.engine.ledger.visible(self._example(grant), who)

    def _example(self, grant: StandingGrant) -> Proposal:
        """A call that the grant would approve."""
        tool = self.engine.agent.tools.get(grant.tool)
        policy, given = self.engine.gate.policy, grant.arguments
        terms = policy.terms(grant.tool, tool, given, given, _platform(grant.context))
        who = Requester(self._known(grant.holder), grant.tenant)
        fields = {"kind": "tool_call", "name": grant.tool, "input": given, "call_id": ""}
        return proposal(who, agent=grant.agent, tool=grant.deed, terms=terms, **fields)

    def _known(self, holder: str) -> Principal:
        """The holder with the facts that the configuration has about it."""
        host = self.engine.host
        same = (one for one in host.tokens if one == holder)
        known: Principal = next(same, None) or host.directory.known(holder)
        return known

    def _check_rules(
        self, tool: Tool[..., Any], arguments: Mapping[str, Any], platform: PlatformContext
    ) -> None:
        policy = self.engine.gate.policy
        if policy.verdict(tool, arguments, platform) == "deny":
            raise NotGranted("DENIED")
        if not policy.grantable(tool, arguments, arguments, platform):
            raise NotGranted("NOT_GRANTABLE")

    async def _arguments(self, tool: Tool[..., Any], wanted: Grantable) -> dict[str, Any]:
        """The input that a call must have, in the form in which calls record theirs."""
        if wanted.pattern:
            return _pattern(tool, wanted.arguments)
        try:
            deed = await self.engine.code.check(tool_deed, tool, wanted.arguments)
        except ToolInputError as error:
            raise InvalidRequest.at(["body", "arguments"], "value_error", error.bare) from None
        recorded: dict[str, Any] = deed["input"]
        return recorded

    async def _run(self, work: Awaitable[T]) -> T:
        async def run() -> T:
            return await work

        return await self.engine.code.workers.on_engine_loop(run)


def _platform(context: Mapping[str, Any]) -> PlatformContext:
    return PlatformContext(**{name: context[name] for name in PLAIN if name in context})


def _pattern(tool: Tool[..., Any], given: Mapping[str, Any]) -> dict[str, Any]:
    """The pattern with each argument that a call has: one that it leaves out has to have its
    default. Otherwise somebody who forgets an argument would approve every value of it."""
    properties: Mapping[str, Any] = tool.input_schema.get("properties", {})
    if unknown := [name for name in given if name not in properties]:
        text = f"the tool {tool.name!r} has no argument {unknown[0]!r}"
        raise InvalidRequest.at(["body", "arguments"], "value_error", text)
    whole = dict(given)
    for name, schema in properties.items():
        if name in whole or name in tool.secret_defaults:
            continue  # A secret that the service sets is in no input.
        if "default" not in schema:
            text = f"the pattern leaves out {name!r}; '*' stands for any value"
            raise InvalidRequest.at(["body", "arguments"], "value_error", text)
        default = schema["default"]
        whole[name] = glob.escape(default) if isinstance(default, str) else default
    return whole
