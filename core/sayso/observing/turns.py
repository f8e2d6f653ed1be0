"""A turn as its observers see it."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Sequence
from functools import partial
from itertools import count
from secrets import token_hex
from time import perf_counter
from typing import Any

from sayso.context import Caller, Session
from sayso.errors import AgentError, RequestError, TurnError
from sayso.hosting.streams import Sink
from sayso.observing import TurnBegan, TurnEnded
from sayso.observing.observers import Observers, Tally, current
from sayso.wire.events import Approvals, Done, Event, StopReason, TextDelta
from sayso.wire.messages import ChatRequest, Message

Run = Callable[..., Coroutine[Any, Any, None]]
_PROCESS = token_hex(4)
_numbers = count()
"""Counts the turns of this process: random numbers from the system would cost each turn a call of
it."""


async def observed_turn(
    observers: Observers,
    agent: str,
    run: Run,
    received: ChatRequest,
    more: Sequence[Message],
    caller: Caller,
    sink: Sink,
    **how: Any,
) -> None:
    """Run a turn by `run`, which takes `received`, `more`, `caller`, a sink and `how`."""
    assert observers.turn is not None
    tally = Tally(f"{_PROCESS}{next(_numbers):08x}")
    listening = _Listening(sink, tally)
    token = current.set(tally)
    ended = observers.turn(TurnBegan(tally.id, agent, caller, _conversation(more), received))
    failure: BaseException | None = None
    try:
        await run(received, more, caller, listening, **how)
    except BaseException as error:
        failure = error
        raise
    finally:
        ended(listening.end(failure))
        current.reset(token)


def turn_of(observers: Observers, agent: str, run: Run) -> Run:
    """`run`, or the observed one if an observer sees turns."""
    return run if observers.turn is None else partial(observed_turn, observers, agent, run)


class _Listening:
    """The sink of an observed turn, which remembers its first piece of text and its end."""

    def __init__(self, sink: Sink, tally: Tally) -> None:
        self._sink = sink
        self._tally = tally
        self._began = perf_counter()
        self._first: float | None = None
        self._stop: StopReason | None = None
        self.space = sink.space
        self.shows_status = getattr(sink, "shows_status", True)

    def put_nowait(self, item: Event, /) -> bool:
        """Pass the event on."""
        match item:
            case TextDelta(text=text):
                return self.say(text)
            case Approvals(approvals=approvals):
                self._tally.proposals = len(approvals)
            case Done(stop_reason=stop):
                self._stop = stop
        return self._sink.put_nowait(item)

    def say(self, piece: str, /) -> bool:
        """Pass the piece on."""
        if self._first is None:
            self._first = perf_counter() - self._began
        return self._sink.say(piece)

    def end(self, failure: BaseException | None) -> TurnEnded:
        """The end of the turn, which failed with `failure`, if it did."""
        tally = self._tally
        return TurnEnded(
            duration=perf_counter() - self._began,
            first=self._first,
            stop=None if failure is not None else self._stop,
            error=code_of(failure) if failure is not None else "",
            failure=failure,
            model_calls=tally.model_calls,
            tool_calls=tally.tool_calls,
            proposals=tally.proposals,
            usage=tally.usage,
            price=sum(tally.prices) if tally.prices else None,
        )


def code_of(failure: BaseException) -> str:
    """The code with which the failure of a turn is shown to its caller."""
    if isinstance(failure, RequestError | TurnError):
        return failure.code
    return "CANCELLED" if isinstance(failure, asyncio.CancelledError) else AgentError.code


def _conversation(more: Sequence[Message]) -> str:
    for message in reversed(more):
        if message.data is not None and message.data.session is not None:
            return Session(message.data.session).conversation or ""
    return ""
