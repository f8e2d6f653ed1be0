"""The parts that all turns of a service share."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from functools import partial
from typing import Any, TypeVar

from sayso.agent import Agent
from sayso.config.approvals import ApprovalSettings
from sayso.config.settings import LimitSettings
from sayso.context import Caller
from sayso.errors import LedgerUnavailable, RequestError
from sayso.gate import Gate
from sayso.hookspecs import Asks
from sayso.hosting.numbers import Load
from sayso.ledger import Proposal
from sayso.ledger.record import Ledger
from sayso.models import Ask, Model, ModelEvent
from sayso.models.calling import events_later, stream_of
from sayso.models.usage import Price
from sayso.observing.calls import observed_stream
from sayso.observing.observers import Observers
from sayso.plugins import Plugins
from sayso.plugins.discovery import AGENT
from sayso.slots import Slots
from sayso.wire.events import AgentEvent
from sayso.wire.traces import hidden_trace
from sayso.workers.code import UserCode, is_async_generator_function, is_coroutine_function

logger = logging.getLogger("sayso.turn")
_HANDLER_SECONDS = 10.0
T = TypeVar("T")

Unrecorded = asyncio.Future[LedgerUnavailable]
"""Done when the store has long refused to record the outcome of a call."""


def _nothing(row: Proposal) -> None:
    """Used without a service that starts calls by itself."""


@dataclass(slots=True)
class Engine:
    """The parts that every turn of a service shares."""

    agent: Agent
    model: Model
    model_config: Mapping[str, Any]
    stated_window: int | None
    """The number of tokens that the model can read, by the settings."""
    price: Price | None
    ledger: Ledger
    gate: Gate
    code: UserCode
    plugins: Plugins
    host: Any
    limits: LimitSettings
    slots: Slots
    approvals: ApprovalSettings
    observers: Observers = field(default_factory=Observers)
    stream: Callable[[Ask], AsyncIterator[ModelEvent]] | None = field(init=False)
    intercepts: bool = field(init=False)
    """Whether there are request interceptors; `holds`: response interceptors, `events_on`: event
    handlers."""
    holds: bool = field(init=False)
    events_on: bool = field(init=False)
    admits: bool = field(init=False)
    """Whether a plugin may refuse what callers ask for (`admit`)."""
    background: set[asyncio.Task[Any]] = field(default_factory=set)
    unrecorded: set[str] = field(default_factory=set)
    """The ids of ended calls whose outcomes the store has not taken yet."""
    on_approved: Callable[[Proposal], None] = _nothing
    """Called for each approval that this process records and whose call no request starts."""

    def __post_init__(self) -> None:
        self.stream = stream_of(self.model, self.code)
        if self.observers.counts or self.observers.model_call:
            stream = self.stream or partial(events_later, model=self.model, code=self.code)
            self.stream = observed_stream(self.observers, self.model, stream, self.price)
        # Computed once: the plugins of a service do not change, and each turn asks.
        self.intercepts = bool(self.plugins.implementations("intercept_request"))
        self.holds = bool(self.plugins.implementations("intercept_response"))
        self.admits = bool(self.plugins.implementations("admit"))
        self.events_on = bool(self.plugins.implementations("on_event"))

    @asynccontextmanager
    async def admitted(self, caller: Caller, asks: Asks) -> AsyncIterator[None]:
        """The plugins' context managers around what `caller` asks for; raises TooMany."""
        async with AsyncExitStack() as stack:
            for impl in self.plugins.implementations("admit"):
                given = impl.bound(caller=caller, asks=asks, host=self.host)()
                if given is not None:
                    await stack.enter_async_context(given)
            yield

    @property
    def window(self) -> int | None:
        """The number of tokens that the model can read; None while it is not known."""
        known: int | None = getattr(self.model, "context_window", None)
        return self.stated_window or known

    def load(self) -> Load:
        """The present load of this process."""
        workers = self.code.workers
        return Load(
            turns=self.slots.taken,
            waiting=self.slots.waiting,
            calls=len(self.background),
            abandoned=self.gate.abandoned.total,
            threads=workers.threads.count,
            loops=workers.loops,
            unrecorded=len(self.unrecorded),
        )

    async def carried(
        self,
        work: Awaitable[T],
        unrecorded: Unrecorded,
        unused: Callable[[T], None] | None = None,
    ) -> T:
        """The result of `work`, which runs to its end even if its turn is cancelled. Raises the
        error of `unrecorded` if that comes first. `unused` gets the result if the turn was
        cancelled meanwhile."""
        task = self.keep(work)
        try:
            await asyncio.wait((task, unrecorded), return_when=asyncio.FIRST_COMPLETED)
            if task.done():
                return task.result()
            raise unrecorded.result()
        except BaseException:
            if unused is not None:
                task.add_done_callback(partial(_give, unused))
            raise

    def keep(self, work: Awaitable[T]) -> asyncio.Task[T]:
        """Run `work` to its end, whatever happens to the turn that began it."""
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
        """The result of a hook of `plugin`; the context variables that it sets are kept.

        The agent's own plugin is Sayso's code, which calls each of the user's functions elsewhere.
        On a worker loop it would wait for their threads behind any code that blocks that loop.
        """
        own = plugin == AGENT and self.agent.has_hooks
        return bound() if own else self.code.keep_set(bound)

    async def fire(self, event: AgentEvent, secrets: Sequence[str] = ()) -> None:
        """Call every handler; an exception is logged, without `secrets`, and has no other
        effect."""
        for impl in self.plugins.implementations("on_event"):
            bound = impl.bound(event=event, host=self.host)
            try:
                async with asyncio.timeout(_HANDLER_SECONDS):
                    await self.call_hook(bound, impl.plugin)
            except Exception as error:
                trace = hidden_trace(error, secrets)
                logger.error("plugin %s: on_event failed\n%s", impl.plugin, trace)


def goes_straight(agent: Agent, plugins: Plugins) -> bool:
    """Whether no turn at home ever waits for a thread while another's async code may block home.

    It would be delayed there. Therefore the code of a turn must be all async, or one plain
    callable. There must be no event handler either: one that blocks is abandoned after a while,
    which must be detected from another loop.
    """
    if plugins.implementations("on_event"):
        return False
    hooks = ("intercept_request", "intercept_response")
    around = [impl.function for hook in hooks for impl in plugins.implementations(hook)]
    around += (*agent.request_interceptors, *agent.response_interceptors)
    if callable(agent.system_context):
        around.append(agent.system_context)
    if (function := agent.function) is None:
        # A turn waits for a call with a time limit.
        straight = all(t.is_async and t.timeout is None for t in agent.tools.values())
    else:
        is_async = is_coroutine_function(function) or is_async_generator_function(function)
        straight = not around or is_async
    return straight and all(map(is_coroutine_function, around))


def _give(unused: Callable[[T], None], task: asyncio.Task[T]) -> None:
    if not task.cancelled() and task.exception() is None:
        unused(task.result())
