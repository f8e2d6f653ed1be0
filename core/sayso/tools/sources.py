"""Tools that are known only once something outside answers, such as those of an MCP server.

    agent = Agent(tools=[list_pods, mcp_server("https://tools.example/mcp")])

A source is an entry of the agent's tools. It is opened on the home loop before the first request
and closed after the last; whenever its list changes, the agent reads it again.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Callable, Coroutine, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Any, Protocol, TypeVar, runtime_checkable

from sayso.tools import Tool

logger = logging.getLogger("sayso.sources")
T = TypeVar("T")


class WorkerLoops(Protocol):
    """The loops where async user code runs."""

    async def at_home(self, work: Callable[[], Coroutine[Any, Any, T]]) -> T:
        """The result of `work()`, run on the home loop, where `resources` live."""
        ...


class SourceHost(Protocol):
    """The parts of the service that a tool source may use."""

    @property
    def workers(self) -> WorkerLoops:
        """The loops where async user code runs."""
        ...

    @property
    def calls(self) -> Any:
        """Single tool calls, in the form that plugins have (`Host.calls`)."""
        ...


@runtime_checkable
class ToolSource(Protocol):
    """The protocol of an object that takes the place of tools in `Agent(tools=[...])`."""

    async def open(self, host: SourceHost, changed: Callable[[], None]) -> None:
        """Connect, and keep connected; called once, on the home loop.

        Call `changed()`, from that loop, when `tools` returns another list than before. If the
        server is merely away, do not raise: the service starts without its tools.
        """
        ...

    def tools(self) -> Sequence[Tool]:
        """The tools as currently known; called from any thread."""
        ...

    async def close(self) -> None:
        """Release everything; on the home loop."""
        ...


@asynccontextmanager
async def opened(
    sources: Sequence[ToolSource], host: SourceHost, changed: Callable[[], None]
) -> AsyncIterator[None]:
    """Open the sources concurrently; close them at the end."""
    are_open = False

    def on_change() -> None:
        # If two sources have tools of one name, the first source in the list wins, not the first to
        # answer.
        if are_open:
            changed()

    async with AsyncExitStack() as stack:
        for source in sources:
            stack.push_async_callback(_close, source)
        await asyncio.gather(*(source.open(host, on_change) for source in sources))
        are_open = True
        changed()
        yield


async def _close(source: ToolSource) -> None:
    try:
        await source.close()
    except Exception:
        logger.exception("the tool source %r failed at its end", source)
