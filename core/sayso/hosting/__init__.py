"""The host as its plugins see it: all that they may use of it, as protocols.

Each hook that takes `host` gets an object of this kind, and so do tool sources. `sayso.Host` is the
name to annotate with. Any other attribute of the object is the service's own and may change.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple, Protocol

from sayso.agent import Agent
from sayso.config import Config
from sayso.context import Caller, Session
from sayso.gate import Outcome
from sayso.hosting.buffers import Buffers
from sayso.hosting.grants import Grants
from sayso.hosting.numbers import Load
from sayso.hosting.record import Record
from sayso.hosting.repeats import Repeats
from sayso.hosting.streams import EventStream, Sink
from sayso.ledger import Proposal
from sayso.models import Model
from sayso.policy import Policy, Verdict
from sayso.principals import Principal
from sayso.tools.sources import WorkerLoops
from sayso.wire.events import IntermittentUpdate
from sayso.wire.failures import Failure
from sayso.wire.messages import AgentMessage, ChatRequest, Kind, PlatformContext
from sayso.workers.running import StartedTurn

Update = Callable[[IntermittentUpdate], None]
Ran = Callable[[Outcome], None]

PAGE_SIZE = 2**20
"""Bytes of the calls in a page of pending ones."""


class Page(NamedTuple):
    """Some of the pending calls, and the `after` for the next page; None at the end."""

    calls: list[Proposal]
    after: str | None


class Calls(Protocol):
    """Single tool calls, for protocols without conversations."""

    def check(
        self, name: str, input: Mapping[str, Any], platform: PlatformContext | None = None
    ) -> Verdict:
        """The need of a call: "allow" runs at once, "require" waits for approval, "deny" never
        runs.

        Raises ToolInputError, with a message for the model, for an unknown tool or invalid input.
        It calls the tool's validators, which are user code, so do not call it on an event loop.
        """
        ...

    async def verdict(
        self, name: str, input: Mapping[str, Any], platform: PlatformContext | None = None
    ) -> Verdict:
        """The result of `check`, for use on a loop; event handlers get an event for a refused
        call."""
        ...

    async def run(
        self,
        name: str,
        input: Mapping[str, Any],
        caller: Caller,
        *,
        session: Session,
        platform: PlatformContext | None = None,
        update: Update | None = None,
    ) -> Outcome:
        """Run a call that `check` allows. Raises ToolInputError; RuntimeError for a gated one.

        `update` gets the tool's status lines, from any thread.
        """
        ...

    async def propose(
        self,
        name: str,
        input: Mapping[str, Any],
        caller: Caller,
        *,
        intent: str | None = None,
        platform: PlatformContext | None = None,
    ) -> Proposal:
        """Record a gated call as PENDING and return it; show it to people only after that.

        It can be decided over every protocol by its id. Raises ToolInputError for invalid input,
        and if a rule forbids the call.
        """
        ...

    async def decide(
        self,
        id: str,
        caller: Caller,
        *,
        approved: bool,
        kind: Kind = "tool_call",
        reason: str | None = None,
        input: Mapping[str, Any] | None = None,
        edited: Mapping[str, Any] | None = None,
        seen: str | None = None,
        session: Session | None = None,
        platform: PlatformContext | None = None,
        update: Update | None = None,
        wait: float = 600.0,
        run: bool = True,
        ran: Ran | None = None,
    ) -> Proposal:
        """Decide the call `id`, run it if approved, and return its row with the outcome.

        - At most once: a decided call returns its recorded outcome. One that runs elsewhere is
          waited for at most `wait` seconds (StillRunning).
        - `input`: if given, must equal the input that would run.
        - `edited`: the input to run instead, if the tool is editable and accepts it.
        - `seen`: the digest of what the approver was shown (`Proposal.seen`). Once the input was
          edited, an approval has to state `input` or `seen`.
        - `run` false: an approval is only recorded, so that the proposing protocol runs the call.
        - `ran`: gets the outcome with its raw value if this request runs the call.

        Raises InvalidRequest with `approval_not_issued`, `approval_changed`, `approval_expired` or
        `approval_conflict`.
        """
        ...

    async def withdraw(self, ids: Sequence[str], caller: Caller, reason: str) -> None:
        """Reject calls and commands that nobody waits for any more.

        They include approved ones that have not started. A call that is running, has ended, or is
        not visible to this caller stays unchanged.
        """
        ...

    async def look(self, id: str, caller: Caller) -> Proposal | None:
        """The current row of the call `id`; None if it is not visible to this caller."""
        ...

    async def settled(self, ids: Sequence[str], caller: Caller, wait: float) -> list[Proposal]:
        """The calls in `ids` that are visible to this caller, once none of them is pending, or in
        their state after `wait` seconds: for protocols that hold a conversation until others have
        decided."""
        ...

    async def standing(self, ids: Sequence[str], caller: Caller) -> Mapping[str, Proposal]:
        """The calls in `ids` that are visible to this caller, by their ids, in their present
        state."""
        ...

    async def pending(
        self, caller: Caller, limit: int = 100, *, size: int = PAGE_SIZE, after: str | None = None
    ) -> Page:
        """The pending calls and commands that are visible to this caller: a page of at most `limit`
        with at most `size` bytes, or of a single larger one.

        The newest of each principal come first, then the second of each, so that nobody's calls
        hide anybody else's. `after` is that of the previous page. Expired ones are settled and left
        out.
        """
        ...

    async def proposed(self, caller: Caller) -> list[Proposal]:
        """The calls that `propose` recorded for this very caller and that have no outcome: first
        the pending ones, then the approved ones, then those that run, or ran when their process
        died; each the oldest first."""
        ...


class ActivePlugins(Protocol):
    """The active plugins."""

    @property
    def names(self) -> Sequence[str]:
        """Their names, in the configured order."""
        ...

    def get(self, name: str) -> object | None:
        """The active plugin of that name; None without one."""
        ...

    def implementations(self, hook: str) -> Sequence[object]:
        """The implementations of a hook, in the configured order; empty without any."""
        ...


class Code(Protocol):
    """Calls user code, off the loop of the caller."""

    async def call(self, fn: Callable[..., Any], *args: Any) -> Any:
        """The result of `fn(*args)`, awaited if it is awaitable; its exception is passed on."""
        ...


class Host(Protocol):
    """One service, as its plugins see it: read its settings, run turns and single calls.

    `extras` has the options that are objects, such as `channel_router`. `stopping` is true from the
    beginning of the drain on. `details` has functions, by the name of their plugin, whose results
    `/ready` shows beside the status; everybody can read them. `repeats`, which a plugin sets, knows
    the requests with an `Idempotency-Key`. `guarded` says whether callers must
    authenticate, `shares_ledger` whether other processes may decide the same approvals.
    """

    stopping: bool
    repeats: Repeats | None
    extras: dict[str, Any]
    details: dict[str, Callable[[], Any]]

    @property
    def agent(self) -> Agent:
        """The served agent."""
        ...

    @property
    def config(self) -> Config:
        """The configuration of the service."""
        ...

    @property
    def state_dir(self) -> Path:
        """The folder for the state of the agent's services; it may not exist yet."""
        ...

    @property
    def model(self) -> Model:
        """The model that answers; for a callable agent only a name."""
        ...

    @property
    def policy(self) -> Policy:
        """The rules that say which calls need approval."""
        ...

    @property
    def plugins(self) -> ActivePlugins:
        """The active plugins."""
        ...

    @property
    def calls(self) -> Calls:
        """Single tool calls."""
        ...

    @property
    def record(self) -> Record:
        """The record of proposals, and its log."""
        ...

    @property
    def grants(self) -> Grants:
        """The standing grants."""
        ...

    @property
    def code(self) -> Code:
        """Calls user code."""
        ...

    @property
    def workers(self) -> WorkerLoops:
        """The loops where async user code runs."""
        ...

    @property
    def guarded(self) -> bool:
        """Whether callers must authenticate."""
        ...

    @property
    def shares_ledger(self) -> bool:
        """Whether other processes may decide the approvals of this one."""
        ...

    @property
    def buffers(self) -> Buffers:
        """The events that turns have sent, kept for clients that reconnect; in this process
        alone."""
        ...

    def known(self, principal: Principal) -> Principal:
        """The principal with all facts that `[auth.principals]` and `[auth.people]` state about it:
        for protocols that prove by themselves who their user is."""
        ...

    def stream(self, request: ChatRequest, caller: Caller) -> EventStream:
        """Start one turn; its events come from the EventStream, ending with one terminal event."""
        ...

    async def chat(self, request: ChatRequest, caller: Caller) -> AgentMessage:
        """Run one turn and return its reply: the fold of its events.

        Raises RequestError if the request is refused; if the turn failed, TurnError or user code's
        exception. `failure` says how to show either. Cancelling it cancels the turn.
        """
        ...

    def begin(self, request: ChatRequest, caller: Caller, sink: Sink) -> StartedTurn:
        """Start one turn whose events go into `sink`; wait for it with `end_of`."""
        ...

    async def end_of(self, started: StartedTurn) -> None:
        """Return when the turn has ended; raises like `chat`."""
        ...

    def failure_of(self, started: StartedTurn) -> BaseException | None:
        """Why an ended turn gave no answer; None if it gave one."""
        ...

    def load(self) -> Load:
        """The present load of this process; from any thread."""
        ...

    def delivered(self, channel: str, outcome: str, lag: float) -> None:
        """Report to metrics and telemetry that a notification was `sent`, has `failed`, or was
        `skipped`, `lag` seconds after the change that it tells of."""
        ...

    def refused(self, protocol: str, reason: str, address: str | None = None) -> None:
        """Report to metrics, telemetry and the log that a caller was refused, since nothing told
        who it is: for protocols that prove that by themselves.

        Call it on an event loop. `reason` is a word of `sayso.observing.Reason`; any other counts
        as "other". `address` is the peer's.
        """
        ...

    def failure(self, error: BaseException) -> Failure:
        """The failure to show a caller for `error`, which is logged unless it is the caller's
        fault."""
        ...

    def time_to_end(self) -> float:
        """Seconds that work beside the turns may still take at the end of the service."""
        ...

    def time_to_record(self) -> float:
        """Seconds that approved calls may still take, at the end, to end and be recorded."""
        ...
