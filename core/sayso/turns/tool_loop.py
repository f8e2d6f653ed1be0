"""The tool loop: it calls the model and its tools in turn, until there is a text or a proposal."""

from __future__ import annotations

import asyncio
import hashlib
import json
import logging
import time
from collections.abc import AsyncIterator, Callable, Sequence, Set
from dataclasses import replace
from functools import partial
from typing import Any

from sayso.agent import Agent
from sayso.conversation.attachments import checked
from sayso.conversation.continued import continued_turns
from sayso.conversation.history import bound_to, model_turns
from sayso.conversation.window import Window
from sayso.decisions.settling import Settled
from sayso.errors import AgentError, ModelError, ReplyTooLarge
from sayso.ledger.choices import Decided
from sayso.models import (
    Ask,
    Block,
    Call,
    ModelEvent,
    Reply,
    Text,
    Thought,
    ToolDefinition,
    ToolStart,
    Turn,
    Usage,
    bound_to_model,
    unused_id,
)
from sayso.models.calling import events_of
from sayso.models.usage import called
from sayso.observing.observers import current
from sayso.turns.ending import Answer, suspended
from sayso.turns.journal import Noted, reply_of
from sayso.turns.output import Output
from sayso.turns.request import Request
from sayso.turns.tool_calls import RequestedCalls
from sayso.wire.events import IntermittentUpdate, ModelCalled, StopReason, TextDelta
from sayso.wire.masking import hidden_trace
from sayso.wire.messages import history_of
from sayso.workers import cancelled_here, let_cancel
from sayso.workers.running import Running

logger = logging.getLogger("sayso.turn")
_STOPS: dict[str, StopReason] = {"max_tokens": "max_tokens", "refusal": "refusal"}
_EMPTY: dict[StopReason, str] = {
    "max_tokens": "The model reached its output limit (max_tokens) before it had said anything.",
    "refusal": "The model declined to answer this.",
}
"""The text that replaces an empty reply, by the reason why the reply stopped."""
_CUT: dict[StopReason, str] = {
    "max_tokens": "The model reached its output limit (max_tokens) within a tool call, which was "
    "not run.",
    "refusal": "The model declined to go on within a tool call, which was not run.",
}
"""The text behind an incomplete tool call, by the reason why the reply stopped."""


async def ask_model(request: Request, settled: Settled, out: Output) -> Answer:
    """Call the model and run its tools until it answers, proposes, or reaches a limit."""
    engine = request.engine
    agent, limits = engine.agent, engine.limits
    cancelled = cancelled_here()
    given, added = agent.system_context, request.context._additions
    context = await _computed(request, given) if callable(given) else given or ""
    if added:
        context = "\n\n".join([text for text in [context, *added] if text])
    system, tools = agent.system_prompt, [*agent.definitions] if request.caller.tools else []
    # Only suspended turns need the digest.
    prefix = _prefix(request, system, context, tools) if settled.decided.turns else ""
    if any(message.data and message.data.model_extra for message in request.seen.messages):
        checked(request.seen.messages, engine.model, limits.attachment_hosts)
    turns = _turns(request, settled.decided, prefix)
    transcript: list[Turn] = []
    used: dict[str, int] = {}
    made = 0
    window = Window(engine.window, (system, context), tools, reads=request.caller.tools)
    for number in range(limits.model_calls):
        asked = [*turns, *transcript]
        ask = partial(_answer, request, window, asked, system, context, cancelled, out)
        if (journal := request.caller.journal) is None:
            reply = await ask()
        else:
            bound = bound_to(prefix or _prefix(request, system, context, tools), asked)
            reply, kept = await reply_of(journal, request, number, bound, ask)
            if kept:
                _say_whole(out, reply.turn)
        said = reply.turn
        calls = [b for b in said.blocks if isinstance(b, Call) and request.caller.tools]
        if calls:
            used = used or _ids_of_calls(turns)
            said, calls = _with_unused_ids(said, calls, used)
        if transcript and transcript[-1].role == "assistant":
            transcript[-1] = _joined(transcript[-1], said)
        else:
            transcript.append(said)
        if reply.stop == "pause":
            continue
        if not calls or reply.stop in _STOPS:
            stop = _STOPS.get(reply.stop, "end_turn")
            reasons = _CUT if calls else _EMPTY
            await _explain(out, reasons.get(stop), always=bool(calls))
            return Answer(stop, settled)
        reading, calls = window.parted(calls)
        noted = Noted(journal, request, number, said) if journal is not None else None
        requested = RequestedCalls(request, calls, said, out, made, noted)
        await requested.run()
        requested.results += map(window.read, reading)
        made = requested.made
        transcript.append(Turn("user", requested.results))
        if requested.recorded:
            return Answer("approval_required", settled, requested.recorded)
        if requested.proposals:
            if not requested.results:
                transcript.pop()
            before = [*turns, *transcript[: -2 if requested.results else -1]]
            bound = bound_to(prefix or _prefix(request, system, context, tools), before)
            return await suspended(request, settled, requested.proposals, out, transcript, bound)
    words = f"I stopped after {limits.model_calls} model calls without coming to an end."
    await out.send(TextDelta(f"\n\n{words}" if out.text else words))
    return Answer("max_steps", settled)


async def _explain(out: Output, words: str | None, *, always: bool) -> None:
    """Say `words` in a reply that has said nothing, or `always` behind what it has said."""
    silent = not any(piece.strip() for piece in out.text)
    if words and (silent or always):
        await out.send(TextDelta(words if silent else f"\n\n{words}"))


async def _answer(
    request: Request,
    window: Window,
    turns: Sequence[Turn],
    system: str,
    context: str,
    cancelled: Set[Running[Any]],
    out: Output,
) -> Reply:
    """The reply to what the model is shown of the conversation; to less of it where the provider
    says that it is too long."""
    chosen, config = request.context, request.engine.model_config
    for last in (False, True):
        ask = Ask(
            window.fitted(turns),
            system,
            context,
            window.tools,
            config,
            model=chosen._model,
            key=chosen._key,
            secrets=request.secrets,
        )
        try:
            return await _counted(request, ask, cancelled, out)
        except ModelError as error:
            if last or error.kind != "context" or not window.shrink(error.reason, turns):
                raise
    raise AssertionError("the last attempt returns or raises")


async def _counted(request: Request, ask: Ask, cancelled: Set[Running[Any]], out: Output) -> Reply:
    """The reply to one call of the model, which is noted for usage and handlers."""
    engine, model = request.engine, request.engine.model
    name, begin = ask.model or model.name, time.monotonic()
    try:
        events = engine.stream(ask) if engine.stream else await events_of(model, ask, engine.code)
        reply = await _reply(request, events, cancelled, out)
    except BaseException as error:
        _count(None, None)
        if isinstance(error, ModelError):
            took = time.monotonic() - begin
            await request.fire(ModelCalled(model.provider, name, took, error=error.kind))
        raise
    if reply.usage.output_tokens or reply.usage.input_tokens:
        took = time.monotonic() - begin
        call = called(model.provider, name, reply, took, engine.price)
        _count(reply.usage, call.price)
        out.model_called(call)
        await request.fire(call)
    else:
        _count(reply.usage, None)
    return reply


def _count(usage: Usage | None, price: float | None) -> None:
    """Count a call of the model for the log; without `usage` it failed."""
    if (tally := current.get()) is not None:
        tally.asked(usage, price)


async def _computed(request: Request, context: Callable[..., Any]) -> str:
    try:
        return str(await request.engine.code.call(context, request.context) or "")
    except Exception as error:
        raise AgentError("the system context could not be computed") from error


async def _reply(
    request: Request,
    events: AsyncIterator[ModelEvent],
    cancelled: Set[Running[Any]],
    out: Output,
) -> Reply:
    """The Reply that ends one model call; its text is sent while it arrives."""
    before = len(out.text)
    separate = before > 0
    try:
        async for event in events:
            # This is no `match`: class patterns take longer, and a reply may have thousands of
            # pieces.
            if isinstance(event, TextDelta):
                text = event.text
                if separate and text.strip():
                    out.say("\n\n")
                    separate = False
                if out.say(text):
                    await out.caught_up()
            elif isinstance(event, Reply):
                if len(event.turn.blocks) > request.engine.limits.blocks:
                    raise ReplyTooLarge(request.engine.limits.blocks, "texts and tool calls")
                for block in event.turn.blocks:
                    if not isinstance(block, Block):
                        raise _wrong("a turn holds Text and Call", block)
                if len(out.text) == before:
                    _say_whole(out, event.turn)
                return event
            elif not isinstance(event, Thought | ToolStart):
                raise _wrong("a model yields TextDelta, Thought, ToolStart and one Reply", event)
            elif out.shows_status:
                _show(out, event, request.engine.agent)
            if cancelled:
                await let_cancel(cancelled)
    except (ModelError, asyncio.CancelledError):
        raise
    except Exception as error:
        raise ModelError("server", "the model failed") from error
    finally:
        # An error while closing the stream changes neither the reply nor the failure.
        if (close := getattr(events, "aclose", None)) is not None:
            try:
                await close()
            except Exception as error:
                trace = hidden_trace(error, request.secrets)
                logger.warning("the model failed as its reply was closed\n%s", trace)
    raise ModelError("protocol", "the model's reply ended without an end")


def _wrong(rule: str, given: object) -> TypeError:
    """The cause that the log shows for a wrong value of an author's model."""
    return TypeError(f"{rule}, not {type(given).__name__}")


def _say_whole(out: Output, said: Turn) -> None:
    """Send the text of a reply that arrived without deltas (interface.md, "Endpoints", rule 5)."""
    text = "".join([block.text for block in said.blocks if isinstance(block, Text)])
    if text:
        out.say(f"\n\n{text}" if out.text else text)


def _show(out: Output, event: ModelEvent, agent: Agent) -> None:
    match event:
        case Thought(text=text):
            out.update(IntermittentUpdate(text, {"kind": "thinking"}), "Thinking")
        case ToolStart(name=name):
            words = f"Preparing {name}"
            # If no tool has this name, it is the model's own text, so it is not shown.
            known = any(tool.name == name for tool in agent.definitions)
            fixed = words if known else "Preparing a tool"
            out.update(IntermittentUpdate(words, {"kind": "tool_call", "tool": name}), fixed)


def _ids_of_calls(turns: Sequence[Turn]) -> dict[str, int]:
    found: dict[str, int] = {}
    for turn in turns:
        if turn.role == "assistant":
            found.update([(block.id, 1) for block in turn.blocks if isinstance(block, Call)])
    return found


def _with_unused_ids(
    said: Turn, calls: list[Call], used: dict[str, int]
) -> tuple[Turn, list[Call]]:
    """The turn and its calls, with ids that no call of the conversation has."""
    ids = [unused_id(call.id, used) for call in calls]
    if ids == [call.id for call in calls]:
        return said, calls
    fresh = [replace(call, id=id_) for call, id_ in zip(calls, ids, strict=True)]
    rest = iter(fresh)
    blocks = [next(rest) if isinstance(block, Call) else block for block in said.blocks]
    return Turn(said.role, blocks, bound_to_model(said.raw)), fresh


def _turns(request: Request, decided: Decided, prefix: str) -> list[Turn]:
    """The conversation as the model gets it."""
    messages, history = request.seen.messages, history_of(request.seen)
    if history is not None and not decided.rows and not decided.turns:
        turns = continued_turns(messages, history)
        if turns is not None:
            return turns
    return model_turns(messages, decided, request.references, prefix)


def _prefix(request: Request, system: str, context: str, tools: Sequence[ToolDefinition]) -> str:
    shown = [[t.name, t.description, t.input_schema] for t in tools]
    model = request.engine.model
    read_by = [model.provider, request.context._model or model.name]
    text = json.dumps([read_by, system, context, shown], sort_keys=True, default=str)
    return hashlib.sha256(text.encode()).hexdigest()[:32]


def _joined(first: Turn, second: Turn) -> Turn:
    raw = None
    if first.raw and second.raw and first.raw.keys() == second.raw.keys():
        raw = {k: [*first.raw[k], *second.raw[k]] for k in first.raw}
    return Turn("assistant", [*first.blocks, *second.blocks], raw)
