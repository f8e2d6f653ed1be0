"""What plugins may ask of the host that serves them: the whole of it, as protocols.

Each hook that takes `host` is given an object of this kind, and so are tool sources. `sayso.Host`
is the name to annotate with. Whatever else the object has is the service's own and may change.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple, Protocol, TypeVar

from sayso.agent import Agent
from sayso.config import Config
from sayso.context import Caller
from sayso.gate import Outcome
from sayso.hosting.streams import Begun, EventStream, Sink
from sayso.ledger import Proposal, Transaction
from sayso.ledger.outbox import LogPage
from sayso.models import Model
from sayso.policy import Policy, Verdict
from sayso.tools.sources import WorkerLoops
from sayso.wire.events import IntermittentUpdate
from sayso.wire.failures import Failure
from sayso.wire.messages import AgentMessage, ChatRequest, Kind, PlatformContext
from sayso.wire.session import Session

Update = Callable[[IntermittentUpdate], None]
Ran = Callable[[Outcome], None]
T = TypeVar("T")


PAGE_SIZE = 2**20
"""Bytes of the calls in a page of what waits for a decision."""


class Page(NamedTuple):
    """Some of the calls that wait, and what `after` is for those behind them; None at the end."""

    calls: list[Proposal]
    after: str | None


class Calls(Protocol):
    """The door for single tool calls, of protocols that have no conversation."""

    def check(
        self, name: str, input: Mapping[str, Any], platform: PlatformContext | None = None
    ) -> Verdict:
        """What a call needs: "allow" runs at once, "require" waits for approval, "deny" never.

        Raises ToolInputError, with a message for the model, for an unknown tool or wrong input.
        It calls the tool's validators, which are user code: not for an event loop.
        """
        ...

    async def verdict(
        self, name: str, input: Mapping[str, Any], platform: PlatformContext | None = None
    ) -> Verdict:
        """What `check` says, asked from a loop; event handlers hear of a call that is refused."""
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
        """Record a gated call as PENDING and give it; only then show it to anybody.

        It can be decided over every protocol by its id. Raises ToolInputError for wrong input, and
        where a rule forbids the call.
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
        session: Session | None = None,
        platform: PlatformContext | None = None,
        update: Update | None = None,
        wait: float = 600.0,
        run: bool = True,
        ran: Ran | None = None,
    ) -> Proposal:
        """Decide the call `id`, run it when approved, and give its row with the outcome.

        At most once: a decided call gives its recorded outcome, one that runs elsewhere is waited
        for at most `wait` seconds (StillRunning). `input`, when given, must be what was proposed;
        `edited` is the input to run instead, where the tool is editable and takes it. With
        `run` false an approval is only recorded, for the protocol that proposed the call to run.
        `ran` gets the outcome with its raw value when it is this request that runs the call.
        Raises InvalidRequest with `approval_not_issued`, `approval_changed`,
        `approval_expired` or `approval_conflict`.
        """
        ...

    async def withdraw(self, ids: Sequence[str], caller: Caller, reason: str) -> None:
        """Reject the calls and commands that nobody waits for any more.

        That includes approved ones that have not begun to run. What is running, has ended, or is
        not visible to this caller stays as it is.
        """
        ...

    async def look(self, id: str, caller: Caller) -> Proposal | None:
        """The call `id` as it stands, or None if it is not visible to this caller."""
        ...

    async def pending(
        self, caller: Caller, limit: int = 100, *, size: int = PAGE_SIZE, after: str | None = None
    ) -> Page:
        """The calls and commands that wait for a decision and are visible to this caller: a page of
        at most `limit` with at most `size` bytes, or of one that is larger.

        The newest of each principal come first, then the second of each: nobody's calls hide
        anybody else's. `after` is that of the page before. Expired ones are settled and left out.
        """
        ...

    async def proposed(self, caller: Caller) -> list[Proposal]:
        """The calls that `propose` recorded for just this caller and that have no outcome: what
        waits for a decision, then what is approved, then what runs, or did when its process died;
        each the oldest first."""
        ...


class Ruling(NamedTuple):
    """One of several decisions, and why."""

    id: str
    approved: bool
    reason: str | None = None


class Record(Protocol):
    """The record of proposals, for plugins that list them and follow what becomes of them."""

    async def read(self, work: Callable[[Transaction], T]) -> T:
        """The result of `work`, which reads as of one moment and writes nothing."""
        ...

    async def settle(self, ids: Sequence[str]) -> dict[str, Proposal]:
        """These rows by id, updated for what has expired and for owners that have died."""
        ...

    def visible(self, row: Proposal, caller: Caller) -> bool:
        """Whether the call exists for this caller."""
        ...

    def barred(self, row: Proposal, caller: Caller) -> str:
        """Why this caller may not approve the call: "AGENT", "NOT_AN_APPROVER", "OWN_REQUEST" or,
        where nothing forbids it, an empty text."""
        ...

    def standing(self, row: Proposal) -> str:
        """Who has approved a call that waits for others, and who is still needed, in words; empty
        for one that nobody has approved."""
        ...

    async def log(self, cursor: str | None, limit: int = 100) -> LogPage:
        """The next rows of the log behind `cursor`; None begins with the oldest. Raises ValueError
        for a text that is no cursor."""
        ...

    async def log_end(self) -> str:
        """The cursor behind the newest rows, for a reader that begins now."""
        ...

    async def decide_all(self, rulings: Sequence[Ruling], caller: Caller) -> list[Proposal]:
        """Record all of these decisions in one transaction, or none; gives the rows in their order.

        Raises InvalidRequest whose items point at `["body", "decisions", index]`.
        """
        ...

    async def comment(self, id: str, caller: Caller, text: str) -> Proposal | None:
        """The call with one comment more, or None if it is not visible to this caller.

        Raises InvalidRequest where it has too many.
        """
        ...


class ActivePlugins(Protocol):
    """The plugins that are active."""

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
    """Calls what users wrote, off the loop of the caller."""

    async def call(self, fn: Callable[..., Any], *args: Any) -> Any:
        """The result of `fn(*args)`, awaited if it is awaitable; what it raises passes."""
        ...


class Host(Protocol):
    """One service, as its plugins see it: read what is served, run turns and single calls.

    `extras` holds the options that are objects, such as `channel_router`. `stopping` is true from
    the beginning of the drain on. `guarded` says whether callers have to say who they are,
    `shares_ledger` whether other processes may decide the same approvals.
    """

    stopping: bool
    extras: dict[str, Any]

    @property
    def agent(self) -> Agent:
        """The agent that is served."""
        ...

    @property
    def config(self) -> Config:
        """The configuration of the service."""
        ...

    @property
    def state_dir(self) -> Path:
        """The folder for what the agent's services keep; it may not exist yet."""
        ...

    @property
    def model(self) -> Model:
        """The model that answers; of a callable agent one that is only named."""
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
    def code(self) -> Code:
        """How to call what users wrote."""
        ...

    @property
    def workers(self) -> WorkerLoops:
        """Where async user code runs."""
        ...

    @property
    def guarded(self) -> bool:
        """Whether callers have to say who they are."""
        ...

    @property
    def shares_ledger(self) -> bool:
        """Whether other processes may decide the approvals of this one."""
        ...

    def stream(self, request: ChatRequest, caller: Caller) -> EventStream:
        """Start one turn; its events come from the EventStream, ending with one terminal event."""
        ...

    async def chat(self, request: ChatRequest, caller: Caller) -> AgentMessage:
        """Run one turn and give its reply: the fold of its events.

        Raises RequestError when the request is refused, TurnError or what user code raised when
        the turn failed; `failure` says how to show either. Cancelling it cancels the turn.
        """
        ...

    def begin(self, request: ChatRequest, caller: Caller, sink: Sink) -> Begun:
        """Start one turn whose events go into `sink`; wait for it with `end_of`."""
        ...

    async def end_of(self, begun: Begun) -> None:
        """Return when the turn has ended; raises as `chat` does."""
        ...

    def failure_of(self, begun: Begun) -> BaseException | None:
        """Why a turn that has ended gave no answer; None for one that did."""
        ...

    def failure(self, error: BaseException) -> Failure:
        """How to show `error` to a caller; what is not the caller's fault is logged."""
        ...

    def time_to_end(self) -> float:
        """Seconds that what runs beside the turns may still take at the end of the service."""
        ...

    def time_to_record(self) -> float:
        """Seconds that approved calls may still take, at the end, to end and be recorded."""
        ...
