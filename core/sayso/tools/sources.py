"""Tools that are only known once something outside answers, such as those of an MCP server.

    agent = Agent(tools=[list_pods, mcp_server("https://tools.example/mcp")])

A source stands among the agent's tools. It is opened on the home loop before the first request
and closed after the last; whenever its list is another one, the agent takes it anew.
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
    """What a tool source may ask of the service that opens it."""

    @property
    def workers(self) -> WorkerLoops:
        """Where async user code runs."""
        ...

    @property
    def calls(self) -> Any:
        """The door for single tool calls, as plugins have it (`Host.calls`)."""
        ...


@runtime_checkable
class ToolSource(Protocol):
    """What an object must have to stand in `Agent(tools=[...])` in place of tools."""

    async def open(self, host: SourceHost, changed: Callable[[], None]) -> None:
        """Connect, and go on keeping the connection; called once, on the home loop.

        Call `changed()`, from that loop, when `tools` gives another list than before. What is
        merely away must not raise: the service starts without its tools.
        """
        ...

    def tools(self) -> Sequence[Tool]:
        """The tools as they are known now; from any thread."""
        ...

    async def close(self) -> None:
        """Give everything back; on the home loop."""
        ...


@asynccontextmanager
async def opened(
    sources: Sequence[ToolSource], host: SourceHost, changed: Callable[[], None]
) -> AsyncIterator[None]:
    """The sources, opened concurrently, and closed at the end."""
    are_open = False

    def heard() -> None:
        # Where two have a tool of one name the first in the list gets it, not the first to answer.
        if are_open:
            changed()

    async with AsyncExitStack() as stack:
        for source in sources:
            stack.push_async_callback(_close, source)
        await asyncio.gather(*(source.open(host, heard) for source in sources))
        are_open = True
        changed()
        yield


async def _close(source: ToolSource) -> None:
    try:
        await source.close()
    except Exception:
        logger.exception("the tool source %r failed at its end", source)
