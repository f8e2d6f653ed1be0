"""The model of tests: it answers by a script."""

from __future__ import annotations

import inspect
from collections import deque
from collections.abc import AsyncGenerator, Awaitable, Callable, Sequence
from typing import Any

from sayso.models import Ask, Block, ModelError, ModelEvent, Reply, Thought
from sayso.models.whole import streamed

Outcome = Reply | str | Sequence[Block | Thought | str] | Exception
Step = Outcome | Callable[[Ask], Outcome | Awaitable[Outcome]]
"""One step of a script: the model's answer, an exception to raise, or a function of the ask."""


class Scripted:
    """A `Model` that answers by `script`, one step a call.

    A step is a Reply, a text, a list of calls and texts, an exception to raise, or a function
    `(ask)`, plain or async, that returns one of these. A function in place of the list answers
    every call. `asks` has each ask in the order of the calls; a call beyond the script's end raises
    ModelError.
    """

    provider = "scripted"
    never_blocks = True

    def __init__(
        self, script: Sequence[Step] | Callable[[Ask], Any], *, name: str = "scripted"
    ) -> None:
        self.name = name
        self.asks: list[Ask] = []
        self._always = script if callable(script) else None
        self._steps = deque(() if callable(script) else script)

    def __repr__(self) -> str:
        return f"Scripted(name={self.name!r})"

    async def stream(self, ask: Ask) -> AsyncGenerator[ModelEvent, None]:
        """Deltas word by word, then exactly one Reply, last."""
        outcome = await self._outcome(ask)
        match outcome:
            case Exception():
                raise outcome
            case Reply():
                events = streamed(outcome.turn.blocks, outcome)
            case str():
                events = streamed([outcome])
            case Sequence():
                events = streamed(outcome)
            case _:
                events = streamed([outcome])
        for event in events:
            yield event

    async def _outcome(self, ask: Ask) -> Outcome:
        self.asks.append(ask)
        step: Any = self._always
        if step is None:
            if not self._steps:
                ended = f"the script of the model {self.name!r} has no step {len(self.asks)}"
                raise ModelError("bad_request", ended)
            step = self._steps.popleft()
        if callable(step) and not isinstance(step, (str, Reply, Exception)):
            step = step(ask)
        outcome: Outcome = await step if inspect.isawaitable(step) else step
        return outcome
