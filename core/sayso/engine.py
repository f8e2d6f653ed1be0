"""The parts that all turns of a service share, with the slots for turns in flight and the watch
over their time."""

from __future__ import annotations

import asyncio
import logging
import threading
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from functools import partial
from time import monotonic
from typing import Any, NamedTuple, TypeVar

from sayso.agent import Agent
from sayso.config.approvals import ApprovalSettings
from sayso.config.settings import LimitSettings
from sayso.context import Caller
from sayso.errors import AgentError, Busy, LedgerUnavailable, RequestError, SaysoError
from sayso.gate import Gate
from sayso.hookspecs import Asks
from sayso.hosting.numbers import Load
from sayso.hosting.streams import EventStream
from sayso.ledger import Proposal
from sayso.ledger.record import Ledger
from sayso.models import Ask, Model, ModelEvent
from sayso.models.calling import events_later, stream_of
from sayso.models.usage import Price
from sayso.observing import SlotAwaited
from sayso.observing.calls import observed_stream
from sayso.observing.observers import Observers
from sayso.plugins import Plugins
from sayso.plugins.discovery import AGENT
from sayso.wire.events import AgentEvent
from sayso.wire.masking import hidden_trace
from sayso.workers.code import UserCode, is_async_generator_function, is_coroutine_function
from sayso.workers.mailbox import Mailbox, mailbox, wake_waiter
from sayso.workers.running import GRACE, StartedTurn

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
        if self.observers.model_call:
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
                try:
                    given = await impl(caller=caller, asks=asks, host=self.host)
                    if given is not None:
                        await stack.enter_async_context(given)
                except SaysoError:
                    raise
                except Exception as error:
                    raise AgentError(f"admit of plugin {impl.plugin!r} failed") from error
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

    async def finish_background(self, seconds: float) -> None:
        """Let the work that was kept end, for at most `seconds`."""
        if self.background:
            await asyncio.wait(list(self.background), timeout=seconds)

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


PATIENCE = 10.0
"""Seconds that a turn waits for a slot."""

Waited = Callable[[SlotAwaited], None]
"""Called for each turn that had to wait."""


class Slots:
    """A fair semaphore for turns in flight, which run on several loops."""

    def __init__(self, limit: int, waited: Waited | None = None) -> None:
        self._free = limit
        self._limit = limit
        self._waited = waited
        self._lock = threading.Lock()
        self._waiting: deque[_Waiter] = deque()

    @property
    def taken(self) -> int:
        """The number of turns that hold a slot."""
        return self._limit - self._free

    @property
    def waiting(self) -> int:
        """The number of turns that wait for a slot."""
        return len(self._waiting)

    @property
    def free(self) -> bool:
        """Whether a turn would get a slot at once."""
        return self._free > 0

    def take_now(self) -> Slot | None:
        """A free slot; None if there is none."""
        with self._lock:
            if self._free <= 0:
                return None
            self._free -= 1
        return Slot(self)

    async def take(self) -> Slot:
        """A slot, after at most ten seconds; raises Busy."""
        waiter = _Waiter(mailbox(), asyncio.get_running_loop().create_future())
        with self._lock:
            self._waiting.append(waiter)
        # A slot may have come free meanwhile.
        self.change(0)
        begin = monotonic()
        given = False
        try:
            await self._given(waiter)
            given = True
        finally:
            if self._waited is not None:
                self._waited(SlotAwaited(monotonic() - begin, refused=not given))
        return Slot(self)

    async def _given(self, waiter: _Waiter) -> None:
        try:
            # Not `wait_for`: before Python 3.12 it swallows a cancellation that arrives together
            # with the slot.
            async with asyncio.timeout(PATIENCE):
                await waiter.future
        except BaseException as error:
            with self._lock:
                too_late = waiter not in self._waiting
                if not too_late:
                    self._waiting.remove(waiter)
            if too_late:
                self.change(+1)
            if isinstance(error, TimeoutError):
                raise Busy from None
            raise

    def change(self, by: int) -> None:
        """Give slots back, to the longest waiting turns first, or take one that may not be
        there."""
        with self._lock:
            self._free += by
            if not self._waiting:
                return
            given = []
            while self._free > 0 and self._waiting:
                self._free -= 1
                given.append(self._waiting.popleft())
        for waiter in given:
            waiter.box.post(partial(wake_waiter, waiter.future))


class _Waiter(NamedTuple):
    box: Mailbox
    future: asyncio.Future[None]


class Slot:
    """A turn's slot among the turns in flight; given back while it only waits for another turn."""

    def __init__(self, slots: Slots) -> None:
        self._slots = slots
        self._held = True
        self._ended = False

    def pause(self) -> None:
        """Let another turn have the slot."""
        if self._held:
            self._held = False
            self._slots.change(+1)

    def resume(self) -> None:
        """Take the slot again."""
        if not (self._held or self._ended):
            self._held = True
            self._slots.change(-1)

    def end(self) -> None:
        """Give the slot back for good; work that outlives the turn needs none."""
        self._ended = True
        self.pause()


_LOOK = 0.1
_BEAT = 1.0
"""Seconds between two looks at the turns' time, and at which streams are silent."""


class TurnWatch:
    """Ends turns that exceed their time, and lets silent streams send a sign of life."""

    def __init__(self) -> None:
        self.started: set[StartedTurn] = set()
        self.streams: set[EventStream] = set()
        self._armed = False
        self._next_beat = 0.0

    def add(self, started: StartedTurn) -> None:
        """Watch the turn until it is no longer among `started`."""
        self.started.add(started)
        if not self._armed:
            self._arm()

    async def end(self) -> None:
        """End every stream with one `error`, and every turn, within a moment."""
        for stream in list(self.streams):
            stream.stop()
        for started in list(self.started):
            started.running.cancel()
        deadline = monotonic() + GRACE
        while (self.streams or self.started) and monotonic() < deadline:  # noqa: ASYNC110
            await asyncio.sleep(0.02)

    def _arm(self) -> None:
        self._armed = True
        asyncio.get_running_loop().call_later(_LOOK, self._look)

    def _look(self) -> None:
        now = monotonic()
        for started in list(self.started):
            started.check(now)
        if now >= self._next_beat:
            self._next_beat = now + _BEAT
            for stream in list(self.streams):
                stream.beat(now)
        self._armed = False
        if self.started:
            self._arm()
