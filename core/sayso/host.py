"""The service host: one agent, its plugins and its ledger; plugins see it as `hosting.Host`.

    stream = host.stream(request, caller)     # an EventStream: the turn's events as they come
    reply = await host.chat(request, caller)  # the same turn, folded

Both run the turn off the caller's loop. A failure before or in a turn is an `error` event on the
stream and an exception of `chat`; `host.failure` says how a protocol shows it. `host.calls` is for
single tool calls, of protocols that have no conversation.
"""

from __future__ import annotations

import asyncio
import logging
import secrets
from collections.abc import AsyncIterator, Callable, Collection, Coroutine, Mapping, Sequence
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from time import monotonic
from typing import Any

from sayso.addresses import hide_credentials
from sayso.agent import Agent, as_agent
from sayso.config import Config, state_dir
from sayso.context import Caller
from sayso.conversation.approvals import concerns_calls
from sayso.decisions.direct import DirectCalls
from sayso.decisions.elsewhere import Elsewhere
from sayso.decisions.granting import Grants
from sayso.decisions.recorded import Recorded
from sayso.decisions.replicas import announced
from sayso.engine import PATIENCE, Engine, Slots, TurnWatch, goes_straight
from sayso.errors import ConfigError, NotStarted, Stopping, TurnTimeout, counted
from sayso.hosting.buffers import Buffers
from sayso.hosting.numbers import Load
from sayso.hosting.repeats import Repeats
from sayso.hosting.streams import EventStream, Sink
from sayso.impossible import check_rules
from sayso.ledger.record import Ledger
from sayso.ledger.stores import ledger_of
from sayso.ledger.sweeping import purge_regularly, sweep_regularly
from sayso.models import Model, never_blocks
from sayso.models.choosing import chosen_model
from sayso.models.prices import price_table
from sayso.observing import REASONS, CallerRefused, Delivered
from sayso.observing.calls import gate_of
from sayso.observing.record import store_of
from sayso.observing.turns import turn_of
from sayso.plugins import Plugins
from sayso.plugins.observers import observers_of
from sayso.plugins.own_hooks import agent_plugin
from sayso.plugins.resources import resources
from sayso.plugins.routes import Owners
from sayso.policy import Policy
from sayso.principals import Directory, Principal
from sayso.start_lines import start_lines
from sayso.turns.admission import admitted_turn
from sayso.turns.output import Gathered
from sayso.turns.turn import run_turn
from sayso.wire.events import fold
from sayso.wire.failures import Failure
from sayso.wire.messages import AgentMessage, ChatRequest, beyond_text
from sayso.workers import Workers
from sayso.workers.code import UserCode
from sayso.workers.running import StartedTurn

logger = logging.getLogger("sayso.host")
_TO_RECORD = 5.0


class ServiceHost:
    """One service: agent, plugins, ledger, workers. Made by `ServiceHost.create`, started once."""

    def __init__(
        self,
        agent: Agent,
        config: Config,
        plugins: Plugins,
        model: Model,
        extras: Mapping[str, Any] | None = None,
    ) -> None:
        self.extras = dict(extras or {})
        self.directory = Directory(config.auth)
        self.start_token = secrets.token_urlsafe(24)
        self.tokens = self.directory.tokens(config)
        self.agent = agent
        self.config = config
        self.plugins = plugins
        self.model = model
        self.buffers = Buffers()
        self.repeats: Repeats | None = None
        self.details: dict[str, Callable[[], Any]] = {}
        self.stopping = False
        self.leaving = False
        """Whether the service ends soon: it still takes turns, but `/ready` sends callers
        elsewhere."""
        self._drained_by: float | None = None
        self.workers = Workers(loops=config.server.worker_loops, threads=config.server.threads)
        self.code = UserCode(self.workers)
        self.policy = Policy(config.approvals.rules, guarded=self.guarded)
        self.policy.check(agent)
        check_rules(self.policy, config, self.tokens, plugins)
        self.observers = observers_of(plugins, self)
        self.owners = Owners(())
        """The plugins by the paths of the app's routes."""
        self.gate = gate_of(self.observers)(
            self.code, self.policy, output_limit=config.limits.tool_output
        )
        self.ledger = self._ledger()
        self._turns = TurnWatch()
        self._cut_off = False
        runs_own_code = agent.function is not None or not never_blocks(model)
        self._blocks_at_once = runs_own_code and goes_straight(agent, plugins)
        self.engine = Engine(
            agent=agent,
            model=model,
            model_config={**agent.model_config, **config.model.given()},
            stated_window=config.model.context_window,
            price=price_table() if config.model.prices else None,
            ledger=self.ledger,
            gate=self.gate,
            code=self.code,
            plugins=plugins,
            host=self,
            limits=config.limits,
            slots=Slots(config.limits.turns, self.observers.slot),
            approvals=config.approvals,
            observers=self.observers,
        )
        run = partial(admitted_turn if self.engine.admits else run_turn, self.engine)
        self._run_turn = turn_of(self.observers, agent.name, run)
        self.calls = DirectCalls(self.engine)
        self.record = Recorded(self.engine)
        self.grants = Grants(self.engine)

    @classmethod
    def create(
        cls,
        agent: object,
        config: Config,
        given: Sequence[object] = (),
        extras: Mapping[str, Any] | None = None,
    ) -> ServiceHost:
        """The host of `agent` as configured, not started. Raises StartupError naming the cause.

        `given` are plugins given as objects, beside the installed ones; `extras` are the options
        that are objects (`channel_router`, `a2a_agent_card`), which plugins find as `host.extras`.
        """
        hide_credentials()
        try:
            declared = as_agent(agent)
        except TypeError as error:
            raise ConfigError(str(error)) from None
        own = agent_plugin(declared)
        plugins = Plugins.load(config, [*given, *([own] if own is not None else [])])
        callable_ = declared.function is not None
        model = chosen_model(declared.model, config, plain_callable=callable_)
        return cls(declared, config, plugins, model, extras)

    @property
    def state_dir(self) -> Path:
        """The folder for the state of this agent's services; it may not exist yet."""
        return state_dir(self.config, agent=self.agent.id)

    @asynccontextmanager
    async def life(self, only: Collection[str] | None = None) -> AsyncIterator[None]:
        """The service's life on the server's loop: workers, ledger, resources, lifespans.

        `only` names the plugins whose lifespan runs in this process; None means all.
        """
        if self.workers.closed:
            self._live_again()
        await self.workers.start()
        try:
            await self.workers.on_engine_loop(self.ledger.open)
            beside = [self.workers.on_engine_loop(work) for work in self._beside()]
            async with (
                resources(self, self.plugins),
                self._ending(),
                announced(self.ledger, self.agent, self.workers),
                self.plugins.lifespans(self, only=only),
            ):
                yield
            for work in beside:
                work.cancel()
        finally:
            self.stopping = True
            # Calls that broke off when the resources were closed.
            await self._finish_background(1.0)
            await self.workers.on_engine_loop(self.ledger.close)
            # With a short drain_timeout, give abandoned code only slightly longer.
            most = min(5.0, self.config.server.drain_timeout + 1.0)
            await self.workers.close(min(most, max(1.0, self.time_to_record())))

    @asynccontextmanager
    async def _ending(self) -> AsyncIterator[None]:
        """Let running calls end while the resources, which they may use, still exist."""
        try:
            yield
        finally:
            self.stopping = True
            await self._finish_background(min(4.0, self.time_to_record()))

    def _live_again(self) -> None:
        """Create again the objects that the end of an earlier life has closed."""
        server = self.config.server
        self.workers = Workers(loops=server.worker_loops, threads=server.threads)
        self.code.workers = self.workers
        self.ledger = self.engine.ledger = self._ledger()
        self.stopping = self.leaving = self._cut_off = False
        self._drained_by = None

    def _ledger(self) -> Ledger:
        is_callable = self.agent.function is not None
        seen = store_of(self.observers)
        return ledger_of(self.config, self.agent.id, for_callable=is_callable, seen=seen)

    def _beside(self) -> list[Callable[[], Coroutine[Any, Any, None]]]:
        """The work that runs beside the turns for as long as the service lives."""
        works: list[Callable[[], Coroutine[Any, Any, None]]] = [
            partial(purge_regularly, self.ledger, self.config.approvals),
            partial(sweep_regularly, self.ledger),
        ]
        if self.config.approvals.run == "service" and self.agent.function is None:
            elsewhere = Elsewhere(self.engine)
            self.engine.on_approved = elsewhere.approved
            works.append(elsewhere.run)
        return works

    async def _finish_background(self, seconds: float) -> None:
        """Let claimed calls end and be recorded, for at most `seconds`."""
        await self.workers.on_engine_loop(partial(self.engine.finish_background, seconds))

    def known(self, principal: Principal) -> Principal:
        """The principal with all facts that the settings state about it."""
        return self.directory.known(principal)

    def stream(self, request: ChatRequest, caller: Caller) -> EventStream:
        """Start one turn; its events come from the EventStream, ending with one terminal event."""
        return EventStream(self, request, caller, self._turns.streams)

    async def chat(self, request: ChatRequest, caller: Caller) -> AgentMessage:
        """Run one turn and return its reply: the fold of its events.

        Raises RequestError if the request is refused; if the turn failed, TurnError or user code's
        exception. `failure` says how to show either. Cancelling it cancels the turn.
        """
        gathered = Gathered()
        try:
            await self.end_of(self.begin(request, caller, gathered))
        except Exception as error:
            gathered.failed(error)
            raise
        return fold(gathered.events)

    async def end_of(self, started: StartedTurn) -> None:
        """Return when the turn has ended; raises like `chat`."""
        try:
            await started.running
        except asyncio.CancelledError as error:
            raise self.cut_short(started) or error from None
        finally:
            self._turns.started.discard(started)

    def failure_of(self, started: StartedTurn) -> BaseException | None:
        """Why an ended turn gave no answer; None if it gave one."""
        self._turns.started.discard(started)
        error = started.running.failure()
        if isinstance(error, asyncio.CancelledError):
            return self.cut_short(started) or Stopping()
        return error

    def cut_short(self, started: StartedTurn) -> Exception | None:
        """Why a turn was cancelled, unless its client did it."""
        if started.overdue:
            return TurnTimeout(self.config.limits.turn_time)
        return Stopping() if self._cut_off else None

    def begin(self, request: ChatRequest, caller: Caller, sink: Sink) -> StartedTurn:
        """Start a turn on the loop that suits it best.

        Usually that is the engine loop, which no user code blocks. A turn that runs only the
        agent's own code and does not need the ledger avoids the hand-over while home is free: it
        runs at home, and the agent's code in the same task until something suspends it. Raises
        NotStarted outside the app's lifespan.
        """
        if self.workers.home is None:
            raise NotStarted
        seconds = self.config.limits.turn_time
        at_home = self._blocks_at_once and self.workers.calm and self.engine.slots.free
        more = beyond_text(request.messages)
        unissued = self.config.approvals.accept_unissued
        involved = bool(more) and concerns_calls(more, any_id=unissued)
        run = partial(self._run_turn, request, more, caller, sink, involved=involved)
        if at_home and not involved:
            work = partial(run, timed=False)
            started = StartedTurn(self.workers.spawn(work), monotonic() + seconds + 0.5)
        else:
            # The engine counts the time from when the turn has its place; ours is the last resort.
            work = partial(run, timed=True)
            started = StartedTurn(
                self.workers.on_engine_loop(work), monotonic() + seconds + PATIENCE + 1.0
            )
        self._turns.add(started)
        return started

    def check_threads(self) -> None:
        """Raise TurnError if abandoned calls that never end hold too many threads."""
        self.code.abandoned.check(self.config.server.threads, self.workers.blocked)

    async def check_ledger(self) -> None:
        """Raise LedgerUnavailable if no approval could be recorded, NotStarted before there is a
        ledger."""
        if self.workers.home is None:
            raise NotStarted
        await self.workers.on_engine_loop(self.ledger.check)

    def load(self) -> Load:
        """The present load of this process."""
        return self.engine.load()

    def delivered(self, channel: str, outcome: str, lag: float) -> None:
        """Report a notification to the observers."""
        if self.observers.delivered is not None:
            self.observers.delivered(Delivered(channel, outcome, lag))

    def refused(self, protocol: str, reason: str, address: str | None = None) -> None:
        """Report a refused caller to the observers."""
        if self.observers.refused is not None:
            known = reason if reason in REASONS else "other"
            self.observers.refused(CallerRefused(known, protocol, address))

    def failure(self, error: BaseException) -> Failure:
        """The failure to show a caller for `error`, which is logged unless it is the caller's
        fault."""
        debug, altered = self.config.server.debug, self.engine.holds
        return Failure.of(error, debug=debug, altered=altered)

    async def drain(self, timeout: float) -> None:
        """Accept no new turn, let running ones end, also single calls, and approved ones whose
        client has gone, for at most `timeout` seconds; then end every stream with one `error`."""
        self.stopping = True
        self._drained_by = deadline = monotonic() + timeout
        if any(left := self._left()):
            logger.info("stopping; %s have %g s (drain_timeout) to end", _counted(left), timeout)
        while any(self._left()) and monotonic() < deadline:  # noqa: ASYNC110
            await asyncio.sleep(0.02)
        if any(left := self._left()):
            what = "%s did not end within drain_timeout, %g s"
            logger.warning(what, _counted(left), timeout)
        self._cut_off = True
        await self._turns.end()

    def _left(self) -> tuple[int, int]:
        """The number of running turns, and of calls: approved ones, and those of `host.calls`."""
        return self.engine.slots.taken, len(self.engine.background)

    def time_to_end(self) -> float:
        """Seconds that work beside the turns may still take at the end of the service: the rest of
        `server.drain_timeout` after the drain of the turns."""
        if self._drained_by is None:
            return self.config.server.drain_timeout
        return max(0.0, self._drained_by - monotonic())

    def time_to_record(self) -> float:
        """Seconds that approved calls may still take, at the end of the service, to end and be
        recorded: five more than the drain, for all of them together."""
        if self._drained_by is None:
            return _TO_RECORD
        return max(0.0, self._drained_by + _TO_RECORD - monotonic())

    @property
    def guarded(self) -> bool:
        """Whether callers must authenticate."""
        implemented = self.plugins.implementations("authenticate")
        return self.config.auth.scheme != "none" or bool(implemented)

    @property
    def shares_ledger(self) -> bool:
        """Whether other processes may decide the approvals of this one."""
        return self.ledger.store.shared

    def describe(self) -> list[str]:
        """A description of the service for its start, line by line."""
        return start_lines(self)

    @property
    def turns_running(self) -> int:
        """The number of turns that hold a slot."""
        return self.engine.slots.taken


def _counted(left: tuple[int, int]) -> str:
    return f"{counted(left[0], 'turn')} and {counted(left[1], 'call')}"
