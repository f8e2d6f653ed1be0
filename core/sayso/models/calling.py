"""Calling a model: directly if it never blocks, otherwise as code that may block."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable

from sayso.errors import ModelError
from sayso.models import Ask, Model, ModelEvent, never_blocks
from sayso.workers.code import UserCode, is_async_generator_function


def stream_of(model: Model, code: UserCode) -> Callable[[Ask], AsyncIterator[ModelEvent]] | None:
    """The way to call `model`; None for a user's model whose `stream` may block before its events.
    Call this once per service: it takes as long as the call of a small tool."""
    if never_blocks(model):
        return model.stream
    if is_async_generator_function(model.stream):
        return code.streaming(model.stream)
    return None


async def events_later(ask: Ask, model: Model, code: UserCode) -> AsyncIterator[ModelEvent]:
    """The events of `events_of`, called only when the first event is requested."""
    async for event in await events_of(model, ask, code):
        yield event


async def events_of(model: Model, ask: Ask, code: UserCode) -> AsyncIterator[ModelEvent]:
    """The events of a user's model whose `stream` may block before its events."""

    async def begin() -> AsyncIterator[ModelEvent]:
        return model.stream(ask)

    try:
        return code.items(*await code.begin(begin))
    except (ModelError, asyncio.CancelledError):
        raise
    except Exception as error:
        raise ModelError("server", "the model failed") from error
