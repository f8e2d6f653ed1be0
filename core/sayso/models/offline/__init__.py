"""The `offline` model: built in, deterministic, without network, and not a language model.

It matches the user's words to tools and takes arguments from them, and says so. With a script, the
same class is the model of tests.
"""

from __future__ import annotations

import inspect
from collections import deque
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping, Sequence
from importlib import import_module
from typing import Any

from sayso.models import (
    Ask,
    Block,
    Call,
    ModelError,
    ModelEvent,
    Reply,
    Result,
    Text,
    TextDelta,
    Thought,
    ToolStart,
    Turn,
)
from sayso.models.offline.words import pieces

__all__ = ["Offline", "Step", "connect"]

Outcome = Reply | str | Sequence[Block | Thought | str] | Exception
Step = Outcome | Callable[[Ask], Outcome | Awaitable[Outcome]]
"""One step of a script: what the model answers, an exception to raise, or a function of the ask."""


def connect(name: str, settings: Mapping[str, Any]) -> Offline:
    """The offline model, ready to answer; it has no settings."""
    _answerer()
    return Offline(name=name or "offline")


def _answerer() -> Callable[[Ask], Outcome]:
    # Its rules are a megabyte, and neither a script nor a callable agent needs them.
    answer: Callable[[Ask], Outcome] = import_module("sayso.models.offline.answering").answer
    return answer


class Offline:
    """A `Model` that answers by rules, or by `script`, one step a call.

    A step is a Reply, a text, a list of calls and texts, an exception to raise, or a function
    `(ask)`, plain or async, that gives one of these. A function in place of the list answers every
    call. With a script, `asks` holds each ask in the order of the calls; a call beyond its end
    raises ModelError.
    """

    provider = "offline"

    def __init__(
        self,
        script: Sequence[Step] | Callable[[Ask], Any] | None = None,
        *,
        name: str = "offline",
    ) -> None:
        self.name = name
        self.asks: list[Ask] = []
        self._always = script if callable(script) else None
        self._steps = None if script is None or callable(script) else deque(script)

    def __repr__(self) -> str:
        return f"Offline(name={self.name!r})"

    async def stream(self, ask: Ask) -> AsyncGenerator[ModelEvent, None]:
        """Deltas word by word, then exactly one Reply, last."""
        outcome = await self._outcome(ask)
        if isinstance(outcome, Exception):
            raise outcome
        if not isinstance(outcome, (Reply, Sequence)):
            raise _no_step(outcome)
        reply = outcome if isinstance(outcome, Reply) else None
        parts = reply.turn.blocks if reply else [outcome] if isinstance(outcome, str) else outcome
        assert not isinstance(parts, Reply)
        blocks: list[Block] = []
        for part in parts:
            match part:
                case Thought():
                    yield part
                case Call():
                    yield ToolStart(part.name)
                    blocks.append(part)
                case str() | Text():
                    text = part if isinstance(part, str) else part.text
                    for piece in pieces(text):
                        yield TextDelta(piece)
                    if text.strip():
                        blocks.append(Text(text))
                case Result():
                    blocks.append(part)
                case _:
                    raise _no_step(part)
        yield reply or _reply(blocks)

    async def _outcome(self, ask: Ask) -> Outcome:
        if self._always is None and self._steps is None:
            return _answerer()(ask)
        self.asks.append(ask)
        step: Any = self._always
        if self._steps is not None:
            if not self._steps:
                ended = f"the script of the model {self.name!r} has no step {len(self.asks)}"
                raise ModelError("bad_request", ended)
            step = self._steps.popleft()
        if callable(step) and not isinstance(step, (str, Reply, Exception)):
            step = step(ask)
        outcome: Outcome = await step if inspect.isawaitable(step) else step
        return outcome


def _no_step(given: object) -> ModelError:
    kind = type(given).__name__
    wanted = "Call, Text, Thought or str, a Reply or an exception"
    return ModelError("bad_request", f"a step of a script holds {kind}; give {wanted}")


def _reply(blocks: Sequence[Block]) -> Reply:
    calls = any(isinstance(block, Call) for block in blocks)
    return Reply(Turn("assistant", tuple(blocks)), "tool_use" if calls else "end_turn")
