"""Asking a model in tests: one call, its events, on an event loop of its own."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Coroutine, Sequence
from typing import Any, TypeVar

from sayso.models import (
    Ask,
    Block,
    Call,
    Model,
    ModelEvent,
    Reply,
    Text,
    TextDelta,
    ToolDefinition,
    Turn,
)
from sayso.workers.mailbox import mailbox

T = TypeVar("T")

WEATHER = ToolDefinition(
    "get_weather",
    "Get the weather of a city.",
    {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]},
)


def run(work: Coroutine[Any, Any, T]) -> T:
    """The result of `work`, on a new loop whose clients are closed with it."""

    async def closing() -> T:
        try:
            async with asyncio.timeout(120):
                return await work
        finally:
            await mailbox().close_objects(60)

    return asyncio.run(closing())


def user(*blocks: Block | str) -> Turn:
    return Turn("user", tuple(Text(b) if isinstance(b, str) else b for b in blocks))


def assistant(*blocks: Block | str, raw: Any = None) -> Turn:
    said = tuple(Text(b) if isinstance(b, str) else b for b in blocks)
    return Turn("assistant", said, raw)


async def events(model: Model, ask: Ask) -> list[ModelEvent]:
    return [event async for event in model.stream(ask)]


def asked(model: Model, *turns: Turn, **fields: Any) -> list[ModelEvent]:
    """The events of one call; by default one user turn and the weather tool."""
    fields.setdefault("tools", (WEATHER,))
    return run(events(model, Ask(turns or (user("hello"),), **fields)))


def reply_of(found: Sequence[ModelEvent]) -> Reply:
    replies = [event for event in found if isinstance(event, Reply)]
    assert len(replies) == 1 and found[-1] is replies[0], "exactly one Reply, last"
    return replies[0]


def said(found: Sequence[ModelEvent]) -> str:
    return "".join(event.text for event in found if isinstance(event, TextDelta))


def text_of(turn: Turn) -> str:
    return "".join(block.text for block in turn.blocks if isinstance(block, Text))


def calls_of(turn: Turn) -> list[Call]:
    return [block for block in turn.blocks if isinstance(block, Call)]


async def until(iterator: AsyncIterator[ModelEvent], kind: type) -> ModelEvent:
    """The first event of `kind`; the iterator is left open after it."""
    async for event in iterator:
        if isinstance(event, kind):
            return event
    raise AssertionError(f"no {kind.__name__} came")
