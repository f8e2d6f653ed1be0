"""Waits that are cancelled at the moment at which they end."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Coroutine
from types import SimpleNamespace
from typing import Any, cast

from sayso.engine import Engine, Slots
from sayso.ledger.memory import MemoryStore
from sayso.ledger.writes import Writes
from sayso.plugins.implementations import Impl
from sayso.wire.events import ConversationStarted


def cancelled_as_it_ends(wait: Callable[[], Coroutine[Any, Any, Any]], end: Any) -> bool:
    """Whether a cancellation directly after the end of a wait cancels it."""

    async def work() -> bool:
        task = asyncio.create_task(wait())
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        end()
        task.cancel()
        await asyncio.wait([task], timeout=30)
        return task.cancelled()

    return asyncio.run(work())


def test_a_turn_that_is_cancelled_as_it_gets_its_place_gives_it_back() -> None:
    slots = Slots(0)

    def give() -> None:
        (waiter,) = slots._waiting
        slots.change(+1)
        waiter.future.set_result(None)

    assert cancelled_as_it_ends(slots.take, give)
    assert slots._free == 1


def test_a_request_that_is_cancelled_as_its_row_changes_goes_on_no_more() -> None:
    writes = Writes(MemoryStore())

    def notify() -> None:
        ((_, event),) = writes._waiting["id"]
        event.set()

    assert cancelled_as_it_ends(lambda: writes.changed("id", time.monotonic() + 600), notify)


def test_a_turn_that_is_cancelled_as_a_handler_ends_goes_on_no_more() -> None:
    async def work() -> None:
        async def received(event: object) -> None:
            turn.cancel()

        def call_hook(bound: Callable[[], Any], plugin: str) -> Any:
            return bound()

        impl = Impl("ears", "plugin 'ears'", "on_event", received, ("event",))
        plugins = SimpleNamespace(implementations=lambda hook: [impl])
        engine = cast(Engine, SimpleNamespace(plugins=plugins, host=None, call_hook=call_hook))

        async def run() -> None:
            await Engine.fire(engine, ConversationStarted())
            await asyncio.sleep(0)

        turn = asyncio.create_task(run())
        await asyncio.wait([turn], timeout=30)
        assert turn.cancelled()

    asyncio.run(work())
