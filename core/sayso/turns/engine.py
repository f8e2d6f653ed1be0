"""What the turns of a service share, and how a turn is run."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, TypeVar

from sayso.agent import Agent
from sayso.config.settings import ApprovalSettings, LimitSettings
from sayso.errors import Busy, RequestError, TurnTimeout
from sayso.events import AgentEvent
from sayso.ledger.record import Ledger
from sayso.messages import ChatRequest, Message
from sayso.models import Ask, Model, ModelEvent
from sayso.plugins.discovery import AGENT
from sayso.traces import hidden_trace, hide
from sayso.turns.execution import Unrecorded
from sayso.turns.gate import Gate
from sayso.turns.output import Sink
from sayso.turns.slots import Slots
from sayso.turns.tool_loop import stream_of
from sayso.turns.turn import Caller, RunningTurn
from sayso.workers.code import UserCode

if TYPE_CHECKING:
    from sayso.plugins import Plugins

logger = logging.getLogger("sayso.turn")
_HANDLER_SECONDS = 10.0
T = TypeVar("T")


@dataclass(slots=True)
class Engine:
    """What every turn of a service shares."""

    agent: Agent
    model: Model
    model_config: Mapping[str, Any]
    ledger: Ledger
    gate: Gate
    code: UserCode
    plugins: Plugins
    host: Any
    limits: LimitSettings
    slots: Slots
    approvals: ApprovalSettings
    stream: Callable[[Ask], AsyncIterator[ModelEvent]] | None = field(init=False)
    intercepts: bool = field(init=False)
    """Whether there are request interceptors, `holds` response interceptors, `events_on` event
    handlers."""
    holds: bool = field(init=False)
    events_on: bool = field(init=False)
    background: set[asyncio.Task[Any]] = field(default_factory=set)

    def __post_init__(self) -> None:
        self.stream = stream_of(self.model, self.code)
        # The plugins of a service do not change, and each turn asks.
        self.intercepts = bool(self.plugins.implementations("intercept_request"))
        self.holds = bool(self.plugins.implementations("intercept_response"))
        self.events_on = bool(self.plugins.implementations("on_event"))

    async def run(
        self,
        request: ChatRequest,
        more: Sequence[Message],
        caller: Caller,
        sink: Sink,
        *,
        involved: bool,
        timed: bool,
    ) -> None:
        """Run one turn into `sink`, ending with one `done`; `timed` enforces its time limit here.

        `more` are the request's messages that carry more than text (`beyond_text`); `involved` says
        that one of them shows or decides a call (`carries_calls`).

        Raises RequestError when the request is refused, TurnError and whatever user code raised
        when the turn failed; then the caller sends the terminal `error`.
        """
        if self.host.stopping:
            raise Busy("the service is stopping")
        # With as few coroutines as can be: each takes its part of every piece of a stream.
        slot = self.slots.take_now() or await self.slots.take()
        try:
            turn = RunningTurn(self, request, more, caller, sink, slot, involved=involved)
            try:
                if not timed:
                    await turn.run()
                    return
                at = asyncio.get_running_loop().time() + turn.left() + 0.5
                async with asyncio.timeout_at(at):
                    await turn.run()
            except TimeoutError:
                await turn.failing()
                raise TurnTimeout(self.limits.turn_time) from None
            except Exception as error:
                hide(error, turn.secrets)
                raise
            finally:
                turn.out.close()
        finally:
            slot.end()

    async def carried(self, work: Awaitable[T], unrecorded: Unrecorded) -> T:
        """The result of `work`, which runs to its end even if its turn is cancelled; raises the
        error of `unrecorded` if that comes first."""
        task = self.keep(work)
        await asyncio.wait((task, unrecorded), return_when=asyncio.FIRST_COMPLETED)
        if task.done():
            return task.result()
        raise unrecorded.result()

    def keep(self, work: Awaitable[T]) -> asyncio.Task[T]:
        """Run `work` to its end whatever becomes of the turn that began it."""
        task = asyncio.ensure_future(work)
        assert isinstance(task, asyncio.Task)
        self.background.add(task)
        task.add_done_callback(self._kept)
        return task

    def _kept(self, task: asyncio.Task[Any]) -> None:
        self.background.discard(task)
        error = None if task.cancelled() else task.exception()
        if error is not None and not isinstance(error, RequestError):
            logger.info("background work of a turn failed: %s", type(error).__name__)

    def call_hook(self, bound: Callable[[], Any], plugin: str) -> Awaitable[Any]:
        """The result of a hook of `plugin`.

        The agent's own plugin is Sayso's code, which calls each of the user's functions elsewhere.
        On a worker loop it would wait for their threads behind whatever blocks that loop.
        """
        own = plugin == AGENT and self.agent.has_hooks
        return bound() if own else self.code.call(bound)

    async def fire(self, event: AgentEvent, secrets: Sequence[str] = ()) -> None:
        """Tell every handler; what one raises is logged, without `secrets`, and harms nothing."""
        for impl in self.plugins.implementations("on_event"):
            bound = impl.bound(event=event, host=self.host)
            try:
                async with asyncio.timeout(_HANDLER_SECONDS):
                    await self.call_hook(bound, impl.plugin)
            except Exception as error:
                trace = hidden_trace(error, secrets)
                logger.error("plugin %s: on_event failed\n%s", impl.plugin, trace)
