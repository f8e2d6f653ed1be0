"""The objects that live on the home loop: plugins' `resources` and the agent's tool sources.

One task enters and leaves them there, because their cancel scopes are bound to it.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from functools import partial
from typing import TYPE_CHECKING, Any

from sayso.errors import PluginError, SaysoError, counted
from sayso.tools.sources import opened

if TYPE_CHECKING:
    from sayso.hosting import Host
    from sayso.plugins import Plugins

logger = logging.getLogger("sayso.plugins")


@asynccontextmanager
async def resources(host: Host, plugins: Plugins) -> AsyncIterator[None]:
    """Keep resources and sources open within the block; one that blocks home is abandoned."""
    if not plugins.implementations("resources") and not host.agent.sources:
        yield
        return
    here, timeout = asyncio.get_running_loop(), plugins.start_timeout
    started: asyncio.Future[None] = here.create_future()
    blocked: asyncio.Future[PluginError] = here.create_future()
    leaving: asyncio.Future[None] = here.create_future()
    stop: list[Any] = []

    def report_blocked(error: PluginError) -> None:
        # The loop may already be closed.
        with suppress(RuntimeError):
            here.call_soon_threadsafe(_settle, blocked, error)

    async def live() -> None:
        loop, ended = asyncio.get_running_loop(), asyncio.Event()
        stop.append(partial(loop.call_soon_threadsafe, ended.set))
        sources = opened(host.agent.sources, host, host.agent.gather_tools)
        async with plugins.resources(host, report_blocked), sources:
            here.call_soon_threadsafe(_settle, started, None)
            await ended.wait()
            with suppress(RuntimeError):
                here.call_soon_threadsafe(_settle, leaving, None)

    task = asyncio.ensure_future(host.workers.at_home(live))
    await _first(task, started, blocked)
    if not started.done():
        started.cancel()
        await _ended(task, blocked)
        raise blocked.result() if blocked.done() else SaysoError("the resources ended at once")
    try:
        yield
    finally:
        stop[0]()
        await asyncio.wait({task, leaving}, timeout=timeout, return_when=asyncio.FIRST_COMPLETED)
        if not (task.done() or leaving.done()):
            # If a turn's code blocks the loop for good, nothing on that loop can notice the end.
            seconds = f"{counted(timeout, 'second')} (server.start_timeout)"
            _settle(blocked, PluginError(f"resources stay open: a turn blocks home for {seconds}"))
        await _first(task, blocked)
        await _ended(task, blocked)
        if blocked.done():
            logger.error("%s", blocked.result())


def _settle(future: asyncio.Future[Any], result: Any) -> None:
    if not future.done():
        future.set_result(result)


async def _first(*futures: asyncio.Future[Any]) -> None:
    await asyncio.wait(futures, return_when=asyncio.FIRST_COMPLETED)


async def _ended(task: asyncio.Future[None], blocked: asyncio.Future[PluginError]) -> None:
    """Wait for the end of `task`; abandon it if its loop is known to be blocked."""
    if not blocked.done():
        await task
        return
    task.cancel()
    await asyncio.wait({task})
