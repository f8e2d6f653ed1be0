"""Single tool calls from protocols that have no conversation, such as MCP.

They pass the same gate, ledger, limits and events as the calls of a turn (design, section 10).
"""

from __future__ import annotations

import asyncio
import secrets
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

from sayso.context import Caller, RequestContext, Session, hidden_line
from sayso.conversation import approvals
from sayso.decisions.deed import place, proposal, requester, stands_alone, tool_deed
from sayso.decisions.granting import Grants
from sayso.decisions.settling import Deciding, Edits, Prepared, Settled, settle
from sayso.decisions.waiting import Waiting, settled, undone
from sayso.engine import Engine, Unrecorded
from sayso.errors import InvalidRequest, ToolInputError
from sayso.gate import Outcome
from sayso.hosting import PAGE_SIZE, Page
from sayso.ledger import Proposal, State
from sayso.ledger.choices import Choice, Conversation, Requester
from sayso.ledger.voting import not_issued
from sayso.policy import Verdict, forbidden
from sayso.tools import Tool
from sayso.wire.events import ApprovalRequested, IntermittentUpdate
from sayso.wire.masking import holds_secret, mask
from sayso.wire.messages import Approval, Kind, PlatformContext

Ran = Callable[[Outcome], None]


@dataclass(frozen=True, slots=True)
class DirectDecision:
    """One decision, with the arguments of `DirectCalls.decide`; `edits` says that it changes the
    input."""

    engine: Engine
    choice: Choice
    who: Requester
    context: RequestContext
    edits: bool
    run: bool
    ran: Ran | None

    async def check(self, input: Mapping[str, Any]) -> None:
        """Raise InvalidRequest unless `input` is the proposed input, which never changes."""
        shown = replace(self.choice, input=dict(input))
        await self.engine.ledger.decide([shown], [], self.who, Conversation(), dry=True)

    async def carried_out(self, wait: float) -> Proposal:
        """The row when it is decided and, if the call runs, when the call has ended: in this
        process, or within `wait` seconds in another one. Raises StillRunning."""
        unrecorded: Unrecorded = asyncio.get_running_loop().create_future()
        deciding = Deciding(
            self.engine,
            [self.choice],
            self.who,
            self.context,
            Edits(self.engine, self.context.platform.secrets()),
            time.monotonic() + wait,
            self._ended,
            may_edit=self.edits,
            runs=self.run,
        )
        settled = await settle(deciding, Settled(), self._known, unrecorded)
        found = settled.decided
        return found.rows[found.chosen[0][1].id]

    def _ended(self, row: Proposal, outcome: Outcome) -> None:
        if self.ran is not None:
            self.ran(outcome)

    async def _known(self, settled: Settled, starts: Sequence[str]) -> Prepared:
        """Refuse a call that the ledger does not know. In a conversation an unknown call can be
        rejected, without any effect; here there would be no row to return."""
        if not settled.decided.chosen:
            raise InvalidRequest([not_issued(self.choice)])
        return Prepared(settled)


Update = Callable[[IntermittentUpdate], None]
_PAGE = 1_000


class DirectCalls:
    """The door for single tool calls; `host.calls`."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._waiting = Waiting(engine.ledger)

    def check(
        self, name: str, input: Mapping[str, Any], platform: PlatformContext | None = None
    ) -> Verdict:
        """The policy's verdict on a call: "allow" runs at once, "require" waits for approval,
        "deny" never runs.

        Raises ToolInputError, with a message for the model, for an unknown tool or wrong input. It
        calls the tool's validators, which are user code, so no event loop may call it.
        """
        tool = self._tool(name)
        verdict = self._engine.gate.policy.verdict(tool, input, platform)
        tool.validate(input)
        return verdict

    async def verdict(
        self, name: str, input: Mapping[str, Any], platform: PlatformContext | None = None
    ) -> Verdict:
        """The verdict of `check` for a caller on an event loop; event handlers get the event of a
        refused call."""
        try:
            verdict = await self._engine.code.check(self.check, name, input, platform)
        except ToolInputError as error:
            await self._fire_refused(name, input, platform, str(error))
            raise
        if verdict == "deny":
            await self._fire_refused(name, input, platform, forbidden(name))
        return verdict

    async def _fire_refused(
        self, name: str, input: Mapping[str, Any], platform: PlatformContext | None, why: str
    ) -> None:
        secret = (platform or PlatformContext()).secrets()
        given = mask(dict(input), secret)
        call = Approval(id=secrets.token_hex(16), name=name, input=given, execute=True)
        refused = Outcome("FAILED", f"Error: {mask(why, secret)}")
        await self._engine.code.workers.on_engine_loop(
            partial(self._engine.fire, refused.event(call))
        )

    async def run(
        self,
        name: str,
        input: Mapping[str, Any],
        caller: Caller,
        *,
        session: Session,
        platform: PlatformContext | None = None,
        update: Update | None = None,
    ) -> Outcome:
        """Run a call that `check` allows. Raises ToolInputError; RuntimeError for a gated one.

        `update` gets the tool's status lines, from any thread.
        """
        if await self.verdict(name, input, platform) != "allow":
            raise RuntimeError(f"tool {name!r} needs approval")
        context = _context(caller, session, platform, update)

        async def ran() -> Outcome:
            outcome = await self._engine.gate.run(self._tool(name), input, session, context)
            given = mask(dict(input), context.platform.secrets())
            call = Approval(id=secrets.token_hex(16), name=name, input=given, execute=True)
            await self._engine.fire(outcome.event(call))
            return outcome

        async def work() -> Outcome:
            async with self._engine.admitted(caller, "call"):
                # When the service stops, it waits for this call as for an approved one; the call
                # ends with its caller.
                return await self._engine.keep(ran())

        return await self._engine.code.workers.on_engine_loop(work)

    async def propose(
        self,
        name: str,
        input: Mapping[str, Any],
        caller: Caller,
        *,
        intent: str | None = None,
        platform: PlatformContext | None = None,
    ) -> Proposal:
        """Record a gated call as PENDING and return it; nobody can see it before it is recorded.
        It is APPROVED at once if a standing grant covers it; `decide` then runs it.

        It can be decided over every protocol by its id. Raises ToolInputError for wrong input, and
        where a rule forbids the call.
        """
        if await self.verdict(name, input, platform) == "deny":
            raise ToolInputError(forbidden(name))
        tool = self._tool(name)
        given = platform or PlatformContext()
        deed = await self._engine.code.check(tool_deed, tool, input)
        if holds_secret([deed["input"], dict(input)], given.secrets()):
            raise ToolInputError("the input holds a secret of the platform context")
        deed["preview"] = mask(deed["preview"], given.secrets())
        terms = self._engine.gate.policy.terms(name, tool, input, deed["input"], platform)
        row = proposal(
            requester(caller, given.tenant_name),
            terms=terms,
            unattended=stands_alone(
                self._engine.agent, "tool_call", name, platform, caller.request_fields or {}
            ),
            turn=secrets.token_hex(16),
            call_id=secrets.token_hex(8),
            intent=mask(intent, given.secrets()),
            agent=self._engine.agent.id,
            context=place(platform),
            **deed,
        )

        async def work() -> Proposal:
            async with self._engine.admitted(caller, "proposal"):
                return await recorded()

        async def recorded() -> Proposal:
            for granted in await Grants(self._engine).approved([row], platform):
                return granted
            await self._engine.ledger.propose(None, [row])
            await self._engine.fire(ApprovalRequested([approvals.approval(row)]))
            return row

        return await self._engine.code.workers.on_engine_loop(work)

    async def decide(
        self,
        id: str,
        caller: Caller,
        *,
        approved: bool,
        kind: Kind = "tool_call",
        reason: str | None = None,
        input: Mapping[str, Any] | None = None,
        edited: Mapping[str, Any] | None = None,
        seen: str | None = None,
        session: Session | None = None,
        platform: PlatformContext | None = None,
        update: Update | None = None,
        wait: float = 600.0,
        run: bool = True,
        ran: Ran | None = None,
    ) -> Proposal:
        """Decide the call `id`, run it when approved, and return its row with the outcome.

        A call runs at most once. A call that was decided before returns its recorded outcome; for
        one that another process runs, the method waits at most `wait` seconds (StillRunning).
        `input`, if it is stated, must equal the input that would run; `edited` is the input to run
        instead, if the tool is editable and accepts it. `seen` is the digest of what the approver
        was shown: once the input was edited, an approval states `input` or `seen`. If `run` is
        false, an approval is only recorded, and the protocol that proposed the call runs it later.
        `ran` gets the outcome with its raw value if this request runs the call. Raises
        InvalidRequest with `approval_not_issued`, `approval_changed`, `approval_expired` or
        `approval_conflict`.
        """
        context = _context(caller, session, platform, update)
        who = requester(caller, context.platform.tenant_name)
        changes = approved and edited is not None
        stated = edited if changes else input
        given = None if stated is None else dict(stated)
        said = mask(reason, context.platform.secrets())
        choice = Choice(
            id,
            kind,
            approved,
            loc=("body", "id"),
            newest=True,
            reason=None if approved else said or "no reason given",
            input=given,
            seen=seen,
            why=said if approved else None,
        )
        decision = DirectDecision(self._engine, choice, who, context, changes, run, ran)

        async def work() -> Proposal:
            if changes and input is not None:
                await decision.check(input)
            return await decision.carried_out(wait)

        return await self._engine.code.workers.on_engine_loop(work)

    async def withdraw(self, ids: Sequence[str], caller: Caller, reason: str) -> None:
        """Reject the calls and commands for which no client waits any more.

        Approved ones are rejected, too, if they have not started. A call that is running, has
        ended, or is not visible to this caller stays unchanged.
        """
        who = requester(caller)

        async def reject() -> None:
            for row in await self._engine.ledger.reject(ids, reason, who, approved=True):
                await self._engine.fire(approvals.decision_event(row, who.principal))

        async def work() -> None:
            await asyncio.shield(self._engine.keep(reject()))

        await self._engine.code.workers.on_engine_loop(work)

    async def look(self, id: str, caller: Caller) -> Proposal | None:
        """The call `id` in its present state, or None if it is not visible to this caller."""
        return (await self.standing([id], caller)).get(id)

    async def standing(self, ids: Sequence[str], caller: Caller) -> Mapping[str, Proposal]:
        """The calls among `ids` that are visible to this caller, by their ids, in their present
        state."""
        who = requester(caller)

        async def work() -> Mapping[str, Proposal]:
            found = await self._engine.ledger.decide([], ids, who, Conversation(), dry=True)
            return {id_: found.rows[id_] for id_ in ids if id_ in found.rows}

        return await self._engine.code.workers.on_engine_loop(work)

    async def settled(self, ids: Sequence[str], caller: Caller, wait: float) -> list[Proposal]:
        """The calls `ids` that are visible to this caller, as soon as none of them is pending, or
        in their state after `wait` seconds."""
        look = partial(
            settled, self._engine.ledger, ids, requester(caller), time.monotonic() + wait
        )
        return await self._engine.code.workers.on_engine_loop(look)

    async def pending(
        self, caller: Caller, limit: int = 100, *, size: int = PAGE_SIZE, after: str | None = None
    ) -> Page:
        """The calls and commands that wait for a decision and are visible to this caller: a page of
        at most `limit` rows with at most `size` bytes, or of one larger row.

        The newest row of each principal comes first, then the second of each: nobody's calls hide
        anybody else's. `after` is the `after` of the page before. Expired rows are settled and left
        out.
        """
        look = partial(self._waiting.page, requester(caller), limit=limit, size=size, after=after)
        return await self._engine.code.workers.on_engine_loop(look)

    async def proposed(self, caller: Caller) -> list[Proposal]:
        """The calls that `propose` recorded for exactly this caller and that have no outcome.
        Pending calls come first, then approved ones, then those that run or that ran when their
        process ended, each group from the oldest to the newest."""
        who = requester(caller)

        async def work() -> list[Proposal]:
            states: tuple[State, ...] = ("PENDING", "APPROVED", "EXECUTING")
            return [
                row
                for state in states
                async for rows in undone(self._engine.ledger, who, state, size=_PAGE)
                for row in rows
                if _is_direct(row, caller)
            ]

        return await self._engine.code.workers.on_engine_loop(work)

    def _tool(self, name: str) -> Tool[..., Any]:
        tool = self._engine.agent.tools.get(name)
        if tool is None:
            raise ToolInputError(f"there is no tool {name!r}")
        return tool


def _is_direct(row: Proposal, caller: Caller) -> bool:
    """Whether the row is a single call of this caller; a call of a turn has the turn's
    reference."""
    by = (row.principal, row.protocol, row.address, row.client)
    is_callers = by == (caller.principal, caller.protocol, caller.address, caller.client)
    return is_callers and row.kind == "tool_call" and not row.reference


def _context(
    caller: Caller, session: Session | None, platform: PlatformContext | None, update: Update | None
) -> RequestContext:
    platform = platform or PlatformContext()
    secret = platform.secrets()
    return RequestContext(
        platform=platform,
        request_fields=caller.request_fields or {},
        session=session,
        principal=caller.principal,
        protocol=caller.protocol,
        _send=update and (lambda event: update(hidden_line(event, secret))),
    )
