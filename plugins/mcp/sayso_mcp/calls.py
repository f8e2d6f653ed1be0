"""The tool calls over MCP of one service: those that wait for a person, and those that go on with
nobody waiting."""

from __future__ import annotations

import asyncio
import logging
import re
from collections.abc import Callable, Coroutine, Iterable
from functools import partial
from typing import Any

import mcp_types as types
from starlette.requests import Request

from sayso import Host
from sayso_mcp import waiting
from sayso_mcp.peers import Context, Remembered, caller_of, peer_of
from sayso_mcp.person import Person
from sayso_mcp.progress import Progress
from sayso_mcp.waiting import Waiting

logger = logging.getLogger("sayso.mcp")
Result = types.CallToolResult | types.InputRequiredResult
WithCard = Callable[[Context, types.CallToolResult, Iterable[Any]], types.CallToolResult]
_TIMED_OUT = re.compile(r"tim(e|ed)[\s_-]*out", re.IGNORECASE)


class ToolCalls:
    """Calls of the agent's tools. A gated call is recorded before anybody is asked. The ledger
    makes sure that it runs at most once, however often the request is sent."""

    def __init__(self, host: Host, settings: Any) -> None:
        self.host = host
        self.settings = settings
        self.with_card: WithCard = _without_card
        """Adds the approval card of pending calls to a result, if the client shows it."""
        self.stopping = asyncio.Event()
        self.running = 0
        self.waiting = Remembered(Waiting)
        self._tasks: set[asyncio.Task[Any]] = set()

    def person(self, context: Context, sending: Progress | None) -> Person:
        """The person at the client of this request."""
        gone = partial(self.is_gone, context)
        caller = caller_of(context)
        return Person(self.host, self.settings, self.stopping, context, caller, sending, gone)

    async def is_gone(self, context: Context) -> bool:
        """Whether the client has closed the connection on which the result would be sent."""
        request: Request | None = context.request
        # Over sse the request is answered at once; the result is sent on another connection.
        if request is None or self.settings.transport == "sse":
            return False
        return await request.is_disconnected()

    async def cancelled(self, context: Context, params: types.CancelledNotificationParams) -> None:
        """Withdraw the calls of a cancelled request whose person is still being asked. They stay
        open if the client only stopped waiting: the reason then says that it timed out."""
        asked = peer_of(context).asked
        ids = asked.get(str(params.request_id))
        if ids is None or _TIMED_OUT.search(params.reason or ""):
            return
        del asked[str(params.request_id)]
        caller = caller_of(context)
        for id_ in ids:
            self.waiting.get(waiting.who(caller)).drop(id_)
            logger.info("the client has cancelled call %s while its person was asked", id_)
        await self.keep(self.host.calls.withdraw(ids, caller, waiting.CANCELLED))

    def keep(self, work: Coroutine[Any, Any, Any]) -> asyncio.Task[Any]:
        """Run `work` to its end even if nobody waits for it."""
        task = asyncio.ensure_future(work)
        self._tasks.add(task)
        task.add_done_callback(self._ended)
        return task

    def _ended(self, task: asyncio.Task[Any]) -> None:
        self._tasks.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            logger.debug("a call over MCP ended with an error", exc_info=error)

    async def close(self, seconds: float) -> None:
        """Wait for decisions that are carried out with nobody waiting; used when the service
        stops."""
        if self._tasks:
            await asyncio.wait(set(self._tasks), timeout=seconds)


def _without_card(_: Context, result: types.CallToolResult, __: Any) -> types.CallToolResult:
    return result
