"""Calls of the model, of tools and of commands as their observers see them."""

from __future__ import annotations

import asyncio
import math
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from functools import partial
from time import perf_counter
from typing import Any

from sayso.context import RequestContext, Session
from sayso.errors import ModelError
from sayso.gate import Gate, Late, NotEnded, Outcome
from sayso.ledger import Proposal
from sayso.ledger.claims import CallNotStarted, Grant
from sayso.models import Ask, Model, ModelEvent, Reply, Usage
from sayso.models.usage import Price
from sayso.observing import ModelCallBegan, ModelCallEnded, ToolCallBegan, ToolCallEnded
from sayso.observing.observers import Observers, current, turn_id
from sayso.tools import Tool
from sayso.workers.running import Place

Stream = Callable[[Ask], AsyncIterator[ModelEvent]]


def observed_stream(
    observers: Observers, model: Model, stream: Stream, price: Price | None
) -> Stream:
    """`stream`, whose calls are observed."""

    async def events(ask: Ask) -> AsyncIterator[ModelEvent]:
        name = ask.model or model.name
        began = ModelCallBegan(turn_id(), model.provider, name, ask)
        ended = observers.model_call(began) if observers.model_call else None
        start, first, reply, error = perf_counter(), None, None, ""
        inner = stream(ask)
        try:
            async for event in inner:
                if first is None:
                    first = perf_counter() - start
                if isinstance(event, Reply):
                    reply = event
                yield event
        except BaseException as raised:
            # The reader leaves after the reply.
            error = "" if reply is not None else _kind(raised)
            raise
        finally:
            usage = reply.usage if reply is not None else Usage()
            cost = price(model.provider, name, usage) if price and reply is not None else None
            if ended is not None:
                ended(ModelCallEnded(perf_counter() - start, first, reply, error, cost))
            if (close := getattr(inner, "aclose", None)) is not None:
                await close()

    return events


def _kind(raised: BaseException) -> str:
    if isinstance(raised, ModelError):
        return raised.kind
    left = isinstance(raised, asyncio.CancelledError | GeneratorExit)
    return "cancelled" if left else type(raised).__name__


class ObservedGate(Gate):
    """A gate whose calls are observed."""

    def __init__(self, observers: Observers, *parts: Any, **how: Any) -> None:
        super().__init__(*parts, **how)
        self._observers = observers

    async def run(
        self,
        tool: Tool[..., Any],
        input: Mapping[str, Any],
        session: Session,
        context: RequestContext,
        grant: Grant | None = None,
        late: Late | None = None,
        place: Place | None = None,
        call_id: str = "",
        until: float = math.inf,
        begin: Callable[[], None] | None = None,
    ) -> Outcome:
        """Run `tool` as a gate does."""
        if (tally := current.get()) is not None:
            tally.tool_calls += 1
        work = super().run(tool, input, session, context, grant, late, place, call_id, until, begin)
        if self._observers.tool_call is None:
            return await work
        row = grant.proposal if grant else None
        began = _began(row.id if row else call_id, "tool_call", tool.name, input, row, context)
        return await observed_call(self._observers, began, work)


def gate_of(observers: Observers) -> Callable[..., Gate]:
    """The kind of gate that these observers need."""
    if observers.tool_call is None and not observers.counts:
        return Gate
    return partial(ObservedGate, observers)


async def observed_command(
    observers: Observers, row: Proposal, context: RequestContext, work: Awaitable[Outcome]
) -> Outcome:
    """The outcome of an approved command."""
    if (tally := current.get()) is not None:
        tally.tool_calls += 1
    began = _began(row.id, "command", row.name, row.input, row, context)
    return await observed_call(observers, began, work)


async def observed_call(
    observers: Observers, began: ToolCallBegan, work: Awaitable[Outcome]
) -> Outcome:
    """The outcome of `work`, which is observed."""
    ended = observers.tool_call(began) if observers.tool_call else None
    start = perf_counter()
    if ended is None:
        return await work
    try:
        outcome = await work
    except BaseException as error:
        ended(ToolCallEnded(perf_counter() - start, None, _why(error), ""))
        raise
    ended(ToolCallEnded(outcome.duration, outcome.state, _error(outcome), outcome.output))
    return outcome


def _began(
    call_id: str,
    kind: Any,
    name: str,
    input: Mapping[str, Any],
    row: Proposal | None,
    context: RequestContext,
) -> ToolCallBegan:
    stated = context.stated_platform
    return ToolCallBegan(
        turn=turn_id(),
        call_id=call_id,
        kind=kind,
        name=name,
        input=input,
        proposal=row,
        protocol=context.protocol,
        principal=context.principal,
        secrets=stated.secrets() if stated is not None else (),
    )


def _error(outcome: Outcome) -> str:
    if outcome.state == "INDETERMINATE":
        return "outcome_unknown"
    if not outcome.failed:
        return ""
    return "tool_error" if outcome.began else "not_run"


def _why(error: BaseException) -> str:
    if isinstance(error, CallNotStarted):
        return "not_started"
    if isinstance(error, NotEnded):
        return "not_ended"
    return "cancelled" if isinstance(error, asyncio.CancelledError) else type(error).__name__
