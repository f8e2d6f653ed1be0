"""Asking the model: calls of it and of its tools, until text or a proposal."""

from __future__ import annotations

import asyncio
import hashlib
import json
import logging
import secrets
from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from assent import approvals
from assent.agent import Agent
from assent.commands import SUGGEST_COMMANDS, read_suggestion
from assent.ending import finish, suspend
from assent.errors import AgentError, ModelError, ToolInputError
from assent.events import IntermittentUpdate, StopReason, TextDelta
from assent.gate import Outcome
from assent.history import NO_OUTPUT, model_turns
from assent.ledger import Proposal
from assent.messages import Approval
from assent.models import Ask, Call, Model, Reply, Result, Text, Thought, ToolStart, Turn
from assent.tools import Tool

if TYPE_CHECKING:
    from assent.turn import RunningTurn

logger = logging.getLogger("assent.turn")
_STOPS: dict[str, StopReason] = {"max_tokens": "max_tokens", "refusal": "refusal"}


async def ask_model(turn: RunningTurn) -> None:
    """Ask the model and run its tools until it answers, proposes, or comes to a limit."""
    agent, limits = turn.engine.agent, turn.engine.limits
    ask = await _ask(turn)
    # Only what was suspended, or will be, needs the digest.
    prefix = _prefix(ask) if turn.involved else ""
    turns = model_turns(turn.seen.messages, turn.found, turn.references, prefix)
    transcript: list[Turn] = []
    used = {b.id for t in turns for b in t.blocks if isinstance(b, Call)}
    for _ in range(limits.model_calls):
        reply = await _model_call(turn, _with_turns(ask, [*turns, *transcript]))
        said = _with_fresh_ids(reply.turn, used)
        if transcript and transcript[-1].role == "assistant":
            transcript[-1] = _joined(transcript[-1], said)
        else:
            transcript.append(said)
        if reply.stop == "pause":
            continue
        calls = [b for b in said.blocks if isinstance(b, Call)]
        if reply.stop != "tool_use" or not calls:
            await finish(turn, _STOPS.get(reply.stop, "end_turn"))
            return
        step = await _Step(turn, calls, said).run(agent)
        transcript.append(Turn("user", step.results))
        if step.proposals:
            if not step.results:
                transcript.pop()
            await suspend(turn, step.proposals, transcript, prefix or _prefix(ask))
            return
    words = f"I stopped after {limits.model_calls} model calls without coming to an end."
    await turn.out.send(TextDelta(f"\n\n{words}" if turn.out.text else words))
    await finish(turn, "max_steps")


async def _ask(turn: RunningTurn) -> Ask:
    agent = turn.engine.agent
    given = agent.system_context
    computed = given if isinstance(given, str) else ""
    if callable(given):
        try:
            computed = str(await turn.engine.code.call(given, turn.context) or "")
        except Exception as error:
            raise AgentError("the system context could not be computed") from error
    additions = [text for text in [computed, *turn.context._additions] if text]
    tools = [tool.definition for tool in agent.tools.values()]
    if agent.commands is not None:
        tools.append(SUGGEST_COMMANDS)
    return Ask(
        turns=(),
        system=agent.system_prompt,
        context="\n\n".join(additions),
        tools=tools,
        config=turn.engine.model_config,
    )


def _with_turns(ask: Ask, turns: Sequence[Turn]) -> Ask:
    # Each model call has one; `replace` would cost three times as much.
    return Ask(turns, ask.system, ask.context, ask.tools, ask.config)


async def _model_call(turn: RunningTurn, ask: Ask) -> Reply:
    model, out = turn.engine.model, turn.out
    stream = model.stream(ask)
    events = stream if is_built_in(model) else turn.engine.code.items(stream)
    separate = bool(out.text)
    try:
        async for event in events:
            match event:
                case TextDelta(text=text):
                    if separate and text.strip():
                        out.say("\n\n")
                        separate = False
                    if out.say(text):
                        await out.caught_up()
                case Reply():
                    return event
                case Thought(text=text):
                    out.update(IntermittentUpdate(text, {"kind": "thinking"}), "Thinking")
                case ToolStart(name=name):
                    words = f"Preparing {name}"
                    content = {"kind": "tool_call", "tool": name}
                    out.update(IntermittentUpdate(words, content), words)
    except (ModelError, asyncio.CancelledError):
        raise
    except Exception as error:
        raise ModelError("server", "the model failed") from error
    finally:
        if close := getattr(events, "aclose", None):
            await close()
    raise ModelError("protocol", "the model's reply ended without an end")


def is_built_in(model: Model) -> bool:
    """Whether `model` is one of Assent's own, which blocks no loop."""
    return type(model).__module__.startswith("assent.models")


class _Step:
    """The calls of one model reply: some run at once, some become proposals."""

    def __init__(self, turn: RunningTurn, calls: Sequence[Call], said: Turn) -> None:
        self.turn = turn
        self.calls = calls
        self.said = said
        self.results: list[Result] = []
        self.proposals: list[Proposal] = []

    async def run(self, agent: Agent) -> _Step:
        now: list[tuple[Call, Tool[..., Any]]] = []
        ready: dict[str, Result] = {}
        for call in self.calls:
            try:
                if (tool := await self._sorted(call, agent)) is not None:
                    now.append((call, tool))
            except ToolInputError as error:
                text = approvals.mask(f"Error: {error}", self.turn.secrets)
                ready[call.id] = await self._told(call, Outcome("FAILED", text))
        if len(now) == 1:
            # Without a task of its own, a tool's code can run where it is called.
            results = [await self._run(*now[0])]
        else:
            results = await asyncio.gather(*(self._run(c, t) for c, t in now))
        for result in results:
            ready[result.call_id] = result
        self.results = [ready[call.id] for call in self.calls if call.id in ready]
        return self

    async def _run(self, call: Call, tool: Tool[..., Any]) -> Result:
        turn = self.turn
        words = f"Running {tool.name}"
        content = {"kind": "tool_call", "tool": tool.name, "id": call.id}
        turn.out.update(IntermittentUpdate(words, content), words)
        outcome = await turn.engine.gate.run(tool, call.input, turn.session, turn.context)
        return await self._told(call, outcome)

    async def _told(self, call: Call, outcome: Outcome) -> Result:
        if self.turn.events_on:
            given = approvals.mask(dict(call.input), self.turn.secrets)
            item = Approval(id=call.id, name=call.name, input=given, execute=True)
            await self.turn.told(item, outcome)
        return Result(call.id, outcome.output or NO_OUTPUT, outcome.failed)

    async def _sorted(self, call: Call, agent: Agent) -> Tool[..., Any] | None:
        """The tool to run now, or None for what became a proposal; raises ToolInputError."""
        turn = self.turn
        turn.calls_made += 1
        if turn.calls_made > turn.engine.limits.tool_calls:
            raise ToolInputError("too many tool calls in this turn; answer with what is known")
        if call.error is not None:
            raise ToolInputError(call.error)
        if agent.commands is not None and call.name == "suggest_commands":
            self._suggest(call)
            return None
        tool = agent.tools.get(call.name)
        if tool is None:
            known = ", ".join(agent.tools) or "none"
            raise ToolInputError(f"there is no tool {call.name!r}; the tools are: {known}")
        verdict = turn.engine.gate.policy.verdict(tool, call.input, turn.context.platform)
        if verdict == "deny":
            raise ToolInputError(f"a rule of this service forbids this call of {tool.name!r}")
        if verdict == "allow":
            # The gate validates the input where the tool runs, at the price of one hand-over.
            return tool
        # Validators are user code.
        await turn.engine.code.check(tool.validate, call.input)
        self._propose(
            call,
            kind="tool_call",
            name=tool.name,
            input=dict(call.input),
            description=tool.description,
            input_description=tool.input_description,
            intent=_intent(self.said),
            idempotent=tool.idempotent,
        )
        return None

    def _suggest(self, call: Call) -> None:
        for command in read_suggestion(call.input):
            self._propose(
                call,
                kind="command",
                name="command",
                input=approvals.command_input(command),
                description="A terminal command",
                intent=command.intent or _intent(self.said),
            )

    def _propose(self, call: Call, **fields: Any) -> None:
        if approvals.holds_secret(fields["input"], self.turn.secrets):
            raise ToolInputError("the input holds a secret of the platform context")
        fields["intent"] = approvals.mask(fields["intent"], self.turn.secrets)
        self.proposals.append(self.turn.new_proposal(call_id=call.id, **fields))


def _with_fresh_ids(said: Turn, used: set[str]) -> Turn:
    """The turn with ids that the conversation has not had; some providers count from zero."""
    blocks, same = list(said.blocks), True
    for index, block in enumerate(blocks):
        if isinstance(block, Call):
            fresh = block.id
            while fresh in used:
                fresh = f"call_{secrets.token_hex(8)}"
            used.add(fresh)
            if fresh != block.id:
                blocks[index], same = replace(block, id=fresh), False
    return said if same else Turn(said.role, blocks)


def _prefix(ask: Ask) -> str:
    tools = [[t.name, t.description, t.input_schema] for t in ask.tools]
    text = json.dumps([ask.system, ask.context, tools], sort_keys=True, default=str)
    return hashlib.sha256(text.encode()).hexdigest()[:32]


def _joined(first: Turn, second: Turn) -> Turn:
    raw = None
    if first.raw and second.raw and first.raw.keys() == second.raw.keys():
        raw = {k: [*first.raw[k], *second.raw[k]] for k in first.raw}
    return Turn("assistant", [*first.blocks, *second.blocks], raw)


def _intent(said: Turn) -> str | None:
    texts = [b.text.strip() for b in said.blocks if isinstance(b, Text)]
    return " ".join(texts)[:500] or None
