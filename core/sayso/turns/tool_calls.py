"""The tool calls of one model reply: some run at once, some under a standing grant, and some become
proposals."""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

from sayso.commands.suggestions import SUGGEST_COMMANDS, read_suggestion
from sayso.conversation import approvals
from sayso.conversation.calls import spoken
from sayso.conversation.hidden import input_holds_secret
from sayso.decisions.deed import hinders, tool_deed
from sayso.decisions.execution import Ended, carry_out
from sayso.decisions.granting import Grants
from sayso.decisions.starts import Start, latest
from sayso.errors import ToolInputError
from sayso.gate import Outcome
from sayso.ledger import RAN, Proposal
from sayso.ledger.choices import Choice, Decided
from sayso.models import Call, Result, Text, Turn
from sayso.policy import forbidden
from sayso.tools import Tool
from sayso.tools.values import ToolResult, images_of
from sayso.turns.ending import alter_texts
from sayso.turns.journal import Noted
from sayso.turns.output import Output
from sayso.turns.proposals import Proposing
from sayso.turns.request import Request
from sayso.wire.events import IntermittentUpdate
from sayso.wire.json_bytes import unsendable
from sayso.wire.masking import mask
from sayso.wire.messages import Approval


@dataclass(slots=True)
class RequestedCalls:
    """The calls of one model reply: some run at once, some become proposals."""

    request: Request
    calls: Sequence[Call]
    said: Turn
    out: Output
    made: int
    """The number of calls that the turn has made."""
    noted: Noted | None
    results: list[Result] = field(default_factory=list)
    proposals: list[Proposal] = field(default_factory=list)
    recorded: list[Proposal] = field(default_factory=list)
    """Proposals that an earlier attempt to answer the request has recorded."""

    async def run(self) -> None:
        gate, context = self.request.engine.gate, self.request.context
        now: list[tuple[Call, Tool[..., Any]]] = []
        known: list[Result] = []
        for call in self.calls:
            try:
                tool = self._tool_of(call)
                match self.noted and await self.noted.kept(call, tool):
                    case Result() as result:
                        known.append(result)
                        continue
                    case list() as rows:
                        self.recorded += rows
                        continue
                if tool is None:
                    await self._suggest(call)
                    continue
                verdict = gate.known(tool, context) or await gate.verdict(tool, call.input, context)
                if verdict == "deny":
                    raise ToolInputError(forbidden(tool.name))
                if verdict == "require":
                    await self._propose_call(call, tool)
                else:
                    # The gate validates the input in the thread in which the tool runs; that needs
                    # only one hand-over.
                    now.append((call, tool))
            except ToolInputError as error:
                outcome = Outcome("FAILED", f"Error: {mask(str(error), self.request.secrets)}")
                if self.request.engine.events_on:
                    await self._fire_executed(call, outcome)
                known.append(_result(call, outcome))
        ran: list[Result] = []
        if len(now) == 1:
            # A single call needs no task: its code may then run in the calling task.
            ran.append(await self._run(*now[0]))
        elif now:
            ran = await asyncio.gather(*(self._run(call, tool) for call, tool in now))
        granted = await self._granted()
        others = [*known, *granted]
        self.results = ran if not others else self._in_order([*ran, *others])

    async def _granted(self) -> list[Result]:
        """The results of the calls that standing grants approve; the others stay proposals."""
        outcomes = await run_granted(self.request, self.proposals, self.out)
        if not outcomes:
            return []
        ran = [(p, outcomes[p.id]) for p in self.proposals if p.id in outcomes]
        self.proposals = [p for p in self.proposals if p.id not in outcomes]
        calls = {call.id: call for call in self.calls}
        return [_result(calls[p.call_id], outcome) for p, outcome in ran]

    def _in_order(self, results: Sequence[Result]) -> list[Result]:
        known = {result.call_id: result for result in results}
        return [known[call.id] for call in self.calls if call.id in known]

    async def _run(self, call: Call, tool: Tool[..., Any]) -> Result:
        if self.noted is None:
            return await self._result(call, tool)
        return await self.noted.run(call, tool, partial(self._result, call, tool))

    async def _result(
        self, call: Call, tool: Tool[..., Any], begin: Callable[[], None] | None = None
    ) -> Result:
        request = self.request
        if self.out.shows_status:
            words = f"Running {tool.name}"
            content = {"kind": "tool_call", "tool": tool.name, "id": call.id}
            self.out.update(IntermittentUpdate(words, content), words)
        outcome = await request.engine.gate.run(
            tool, call.input, request.session, request.context, call_id=call.id, begin=begin
        )
        if request.engine.events_on:
            await self._fire_executed(call, outcome)
        return _result(call, outcome)

    async def _fire_executed(self, call: Call, outcome: Outcome) -> None:
        given = mask(dict(call.input), self.request.secrets)
        item = Approval(id=call.id, name=call.name, input=given, execute=True)
        await self.request.fire(outcome.event(item))

    def _tool_of(self, call: Call) -> Tool[..., Any] | None:
        """The tool of the call, None for a suggestion of commands; raises ToolInputError."""
        agent, limits = self.request.engine.agent, self.request.engine.limits
        self.made += 1
        if self.made > limits.tool_calls:
            raise ToolInputError("too many tool calls in this turn; answer with what is known")
        if call.error is not None:
            raise ToolInputError(call.error)
        if agent.commands is not None and call.name == SUGGEST_COMMANDS.name:
            return None
        tool = agent.tools.get(call.name)
        if tool is None:
            known = ", ".join(agent.tools) or "none"
            raise ToolInputError(f"there is no tool {call.name!r}; the tools are: {known}")
        return tool

    async def _propose_call(self, call: Call, tool: Tool[..., Any]) -> None:
        # Validators are user code, so they run in a thread.
        deed = await self.request.engine.code.check(tool_deed, tool, call.input)
        proposing = Proposing(self.request)
        proposal = proposing.call(call_id=call.id, intent=_intent(self.said), **deed)
        await self._propose(call, [proposal])

    async def _suggest(self, call: Call) -> None:
        commands = read_suggestion(call.input)
        intent, proposing = _intent(self.said), Proposing(self.request)
        # Propose all or none: the model gets one result for all of them, and would not learn that
        # some have run.
        stated = [proposing.command(c, call.id, c.intent or intent) for c in commands]
        if any(map(proposing.forbids, stated)):
            raise ToolInputError(forbidden("command"))
        await self._propose(call, stated)

    async def _propose(self, call: Call, proposals: Sequence[Proposal]) -> None:
        for proposal in proposals:
            if why := unsendable(proposal.input, self.request.engine.limits.nesting):
                raise ToolInputError(f"nobody could send the input back to approve it: {why}")
            if input_holds_secret(proposal, self.request.secrets):
                raise ToolInputError("the input holds a secret of the platform context")
        self.proposals += proposals
        if self.noted is not None:
            await self.noted.proposed(call, proposals)


def _result(call: Call, outcome: Outcome) -> Result:
    output = spoken(outcome.output)
    if type(outcome.value) is not ToolResult:
        return Result(call.id, output, outcome.failed)
    return Result(call.id, output, outcome.failed, images_of(outcome.value))


def _intent(said: Turn) -> str | None:
    texts = [b.text.strip() for b in said.blocks if isinstance(b, Text)]
    return " ".join(texts) or None


_NOT_STARTED = "the call could not be started"


async def run_granted(
    request: Request, proposals: Sequence[Proposal], out: Output
) -> Mapping[str, Outcome]:
    """Run those of the proposals that standing grants approve; returns their outcomes by the ids of
    the proposals. A call that has begun ends even if the client leaves."""
    engine = request.engine
    if not engine.approvals.grants or not proposals:
        return {}
    if out.held:
        await alter_texts(request, proposals, descriptions=False)
    stated = [replace(p, turn=secrets.token_hex(16), reference=_place(request)) for p in proposals]
    platform = request.context.stated_platform
    rows = await Grants(engine).approved(stated, platform)
    running = [engine.carried(_ran(request, row, out), out.unrecorded) for row in rows]
    outcomes = await asyncio.gather(*running)
    return {row.id: outcome for row, outcome in zip(rows, outcomes, strict=True)}


def _place(request: Request) -> str:
    return request.digests()[-1]


async def _ran(request: Request, row: Proposal, out: Output) -> Outcome:
    engine = request.engine
    out.granted.append(row)
    if out.shows_status:
        words = f"Running {row.name} under a standing grant"
        content = {"kind": "tool_call", "tool": row.name, "id": row.id}
        out.update(IntermittentUpdate(words, content), f"Running {row.name}")
    choice = Choice(row.id, row.kind, True, loc=("id",), newest=True, seen=row.seen)
    why = hinders(engine.agent, engine.gate.policy, request.context)
    found = Decided({row.id: row}, hinders=why)
    start = Start(choice, row.id, found, request.who, latest(request.until), request.until)

    async def ended(end: Ended) -> None:
        await request.fire(end.outcome.event(approvals.approval(end.row, execute=True)))

    end = await carry_out(engine, start, request.context, out.unrecorded, ended)
    if end is None:
        return await _of_another(request, start)
    await ended(end)
    return end.outcome


async def _of_another(request: Request, start: Start) -> Outcome:
    """The outcome of a call that this turn has not run to its end: it runs in another process, or
    for too long, or did not start. A call that did not start is rejected, so that it never does
    without anybody who waits for it."""
    ledger = request.engine.ledger
    why = start.why or ledger.freezing.words(start.row) or _NOT_STARTED
    await ledger.reject([start.id], f"not run: {why}", request.who, approved=True)
    row = (await ledger.outcomes([start.id], request.until))[start.id]
    if row.state in RAN:
        return Outcome(row.state, row.output or "", row.duration or 0.0)
    return Outcome("FAILED", f"Error: not run: {why}", began=False)
