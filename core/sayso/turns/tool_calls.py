"""The tool calls of one model reply: some run at once, some become proposals."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any

from sayso.commands.suggestions import SUGGEST_COMMANDS, read_suggestion
from sayso.conversation import approvals
from sayso.conversation.hidden import input_holds_secret
from sayso.conversation.wording import spoken
from sayso.decisions.deed import tool_deed
from sayso.errors import ToolInputError
from sayso.gate import Outcome
from sayso.ledger import Proposal
from sayso.models import Call, Result, Text, Turn
from sayso.policy import forbidden
from sayso.tools import Tool
from sayso.tools.results import ToolResult, images_of
from sayso.turns.state import RunningTurn
from sayso.wire.events import IntermittentUpdate
from sayso.wire.masking import mask
from sayso.wire.messages import Approval


class RequestedCalls:
    """The calls of one model reply: some run at once, some become proposals."""

    __slots__ = ("calls", "proposals", "results", "said", "turn")

    def __init__(self, turn: RunningTurn, calls: Sequence[Call], said: Turn) -> None:
        self.turn = turn
        self.calls = calls
        self.said = said
        self.results: list[Result] = []
        self.proposals: list[Proposal] = []

    async def run(self) -> None:
        gate, context = self.turn.engine.gate, self.turn.context
        now: list[tuple[Call, Tool[..., Any]]] = []
        refused: list[Result] = []
        for call in self.calls:
            try:
                if (tool := self._tool_of(call)) is None:
                    self._suggest(call)
                    continue
                verdict = gate.known(tool, context) or await gate.verdict(tool, call.input, context)
                if verdict == "deny":
                    raise ToolInputError(forbidden(tool.name))
                if verdict == "require":
                    await self._propose_call(call, tool)
                else:
                    # The gate validates the input where the tool runs, at the price of one
                    # hand-over.
                    now.append((call, tool))
            except ToolInputError as error:
                outcome = Outcome("FAILED", f"Error: {mask(str(error), self.turn.secrets)}")
                if self.turn.events_on:
                    await self._tell(call, outcome)
                refused.append(_result(call, outcome))
        ran: list[Result] = []
        if len(now) == 1:
            # Without a task of its own, a tool's code can run where it is called.
            ran.append(await self._run(*now[0]))
        elif now:
            ran = await asyncio.gather(*(self._run(call, tool) for call, tool in now))
        self.results = ran if not refused else self._in_order([*ran, *refused])

    def _in_order(self, results: Sequence[Result]) -> list[Result]:
        known = {result.call_id: result for result in results}
        return [known[call.id] for call in self.calls if call.id in known]

    async def _run(self, call: Call, tool: Tool[..., Any]) -> Result:
        turn = self.turn
        if turn.out.shows_status:
            words = f"Running {tool.name}"
            content = {"kind": "tool_call", "tool": tool.name, "id": call.id}
            turn.out.update(IntermittentUpdate(words, content), words)
        outcome = await turn.engine.gate.run(
            tool, call.input, turn.session, turn.context, call_id=call.id
        )
        if turn.events_on:
            await self._tell(call, outcome)
        return _result(call, outcome)

    async def _tell(self, call: Call, outcome: Outcome) -> None:
        given = mask(dict(call.input), self.turn.secrets)
        item = Approval(id=call.id, name=call.name, input=given, execute=True)
        await self.turn.fire(outcome.event(item))

    def _tool_of(self, call: Call) -> Tool[..., Any] | None:
        """The tool of the call, None for a suggestion of commands; raises ToolInputError."""
        turn, agent = self.turn, self.turn.engine.agent
        turn.calls_made += 1
        if turn.calls_made > turn.engine.limits.tool_calls:
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
        # Validators are user code.
        deed = await self.turn.engine.code.check(tool_deed, tool, call.input)
        proposal = self.turn.new_proposal(call_id=call.id, intent=_intent(self.said), **deed)
        self._propose([proposal])

    def _suggest(self, call: Call) -> None:
        commands = read_suggestion(call.input)
        intent = _intent(self.said)
        # All or none: the model reads one result of them, and would not learn that some have run.
        self._propose([self.turn.new_command(c, call.id, c.intent or intent) for c in commands])

    def _propose(self, proposals: Sequence[Proposal]) -> None:
        for proposal in proposals:
            if why := approvals.unsendable(proposal.input, self.turn.engine.limits.nesting):
                raise ToolInputError(f"nobody could send the input back to approve it: {why}")
            if input_holds_secret(proposal, self.turn.secrets):
                raise ToolInputError("the input holds a secret of the platform context")
        self.proposals += proposals


def _result(call: Call, outcome: Outcome) -> Result:
    output = spoken(outcome.output)
    if type(outcome.value) is not ToolResult:
        return Result(call.id, output, outcome.failed)
    return Result(call.id, output, outcome.failed, images_of(outcome.value))


def _intent(said: Turn) -> str | None:
    texts = [b.text.strip() for b in said.blocks if isinstance(b, Text)]
    return " ".join(texts) or None
