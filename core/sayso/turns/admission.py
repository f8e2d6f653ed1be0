"""Turns that a plugin may refuse before they begin (the hook `admit`)."""

from __future__ import annotations

from collections.abc import Sequence

from sayso.context import Caller
from sayso.conversation import approvals
from sayso.engine import Engine
from sayso.hosting.streams import Sink
from sayso.turns.turn import run_turn
from sayso.wire.messages import ChatRequest, Message


async def admitted_turn(
    engine: Engine,
    received: ChatRequest,
    more: Sequence[Message],
    caller: Caller,
    sink: Sink,
    *,
    involved: bool,
    timed: bool,
) -> None:
    """`run_turn`, as soon as every plugin lets it in. Raises TooMany."""
    choices = approvals.choices(received.messages) if involved else ()
    decides = any(not choice.copy for choice in choices)
    async with engine.admitted(caller, "decision" if decides else "turn"):
        await run_turn(engine, received, more, caller, sink, involved=involved, timed=timed)
