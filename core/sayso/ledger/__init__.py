"""What the ledger keeps, and what a store must do to keep it (design, section 6).

The rules (who may decide, what may run, once) are in `sayso.ledger.rules`, written once over a
`Store`. A store gives atomic transactions over proposals, suspended turns and the log; `memory`,
`sqlite` and `postgres` beside this file are built in, others come by entry point in the group
`sayso.ledgers`: a factory `(url: str) -> Store` named after the URL's scheme.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Generic, Literal, NamedTuple, Protocol, TypeVar

from sayso.wire.messages import Kind

T = TypeVar("T")

State = Literal[
    "PENDING", "APPROVED", "REJECTED", "EXPIRED", "EXECUTING", "DONE", "FAILED", "INDETERMINATE"
]
OPEN: frozenset[State] = frozenset({"PENDING", "APPROVED"})
"""States in which a call can still be rejected or expire: it has not begun to run."""
RAN: frozenset[State] = frozenset({"DONE", "FAILED", "INDETERMINATE"})
"""States of a call that was run, or may have been."""
ENDED: frozenset[State] = RAN | {"REJECTED", "EXPIRED"}
"""States from which nothing runs any more (an idempotent INDETERMINATE call excepted)."""


@dataclass(slots=True)
class Owner:
    """The process that executes a call, continues a turn, or has told a callable of a rejection.

    `id` is random for each process; `boot` is the kernel's boot id; `fence` grows with each claim
    of the row, and only the current fence may finish it; `lease` is a time of the store's clock.
    `claim` is random for each attempt to claim, so that one whose commit is in doubt is known.
    """

    id: str
    boot: str
    fence: int
    lease: float
    claim: str = ""


@dataclass(slots=True)
class Decision:
    """Who decided, when, over which protocol, from which address.

    `who` is the authenticated principal, else the message's `user`, then `claimed` is true.
    """

    approved: bool
    at: float
    who: str | None = None
    claimed: bool = False
    protocol: str = ""
    address: str | None = None
    reason: str | None = None
    through_approvals: bool = False


@dataclass(slots=True)
class Proposal:
    """A tool call or command that waits, or waited, for a decision.

    Times are seconds of the store's clock since the epoch. `input` of a command is
    `{"command": str, "files": [...] or null}`. `edited` is the changed input of an approval, and
    what runs when it is set. `session` is the change that the call made to the session.

    The deed (design, section 6): `agent` is the id of the agent that proposed it; `input` is what
    the tool gets, `sent` what was sent where that differs; `tool` is the digest of the tool,
    `source` where it is from; `context` is where it acts. `edit` is the
    digest of a changed input as its approver sent it.
    """

    id: str
    kind: Kind
    name: str
    input: dict[str, Any]
    turn: str
    index: int
    call_id: str
    created: float
    expires: float
    conversation: str = ""
    reference: str = ""
    description: str = ""
    input_description: dict[str, Any] = field(default_factory=dict)
    intent: str | None = None
    principal: str | None = None
    tenant: str | None = None
    user: str | None = None
    protocol: str = ""
    address: str | None = None
    client: str | None = None
    state: State = "PENDING"
    idempotent: bool = False
    decision: Decision | None = None
    edited: dict[str, Any] | None = None
    owner: Owner | None = None
    fence: int = 0
    finished: float | None = None
    duration: float | None = None
    output: str | None = None
    session: dict[str, Any] | None = None
    sent: dict[str, Any] | None = None
    agent: str = ""
    tool: str = ""
    source: str = ""
    context: dict[str, Any] | None = None
    edit: str = ""

    @property
    def asked(self) -> dict[str, Any]:
        """The input in the words of the one who asked."""
        return self.input if self.sent is None else self.sent

    @property
    def bound(self) -> dict[str, Any]:
        """What an approval binds beside the input, as every surface shows it."""
        given = {"agent": self.agent, "tool": self.source, "context": self.context}
        return {name: value for name, value in given.items() if value}

    @property
    def runs(self) -> dict[str, Any]:
        """The input that runs, or ran."""
        return self.input if self.edited is None else self.edited

    @property
    def order(self) -> tuple[float, int]:
        """What proposals are sorted by: as they were made, those of one turn as it made them."""
        return (self.created, self.index)

    @property
    def ended(self) -> float | None:
        """When it ended, or will end by itself: an undecided one ends when it expires.

        None while it runs, since nobody knows. `Transaction.purge` goes by it.
        """
        if self.state in ENDED and self.finished is not None:
            return self.finished
        return None if self.state == "EXECUTING" else self.expires

    @property
    def startable(self) -> bool:
        """Whether an approval that has waited for its end is to start it: nobody runs it any more.

        Its claim was given back, or its process died and it may run twice. Only a process that has
        died stays the owner; a timeout is an outcome like any other.
        """
        died = self.state == "INDETERMINATE" and self.owner is not None
        return self.state == "APPROVED" or (died and self.idempotent)

    @property
    def unissued(self) -> bool:
        """Whether this service never proposed the call: its id is its caller's own."""
        return self.call_id == self.id

    @property
    def purged(self) -> bool:
        """Whether a purge has removed its outcome; an expired one had none."""
        return self.output is None and self.state in ENDED - {"EXPIRED"}

    def without_contents(self) -> Proposal:
        """A copy of what a purge leaves of it, for stores of others (`Transaction.purge`)."""
        decision = self.decision and replace(self.decision, reason=None)
        return replace(
            self,
            input={},
            edited=None,
            output=None,
            session=None,
            intent=None,
            sent=None,
            decision=decision,
        )


@dataclass(slots=True)
class SuspendedTurn:
    """A turn that waits for decisions, and later the reply that its continuation gave.

    `transcript` holds the turns since the last user message as `dump_turns` makes them; `prefix`
    is the digest of the model, system prompt, context, tools and earlier turns that its thinking is
    bound to.
    `request` is the digest of the message that continued it and `reply` the recorded events;
    `ended` is when.
    """

    id: str
    created: float
    conversation: str = ""
    reference: str = ""
    principal: str | None = None
    tenant: str | None = None
    user: str | None = None
    transcript: list[dict[str, Any]] = field(default_factory=list)
    prefix: str = ""
    calls: list[str] = field(default_factory=list)
    from_callable: bool = False
    state: Literal["SUSPENDED", "RESUMING", "ENDED"] = "SUSPENDED"
    request: str | None = None
    reply: dict[str, Any] | None = None
    owner: Owner | None = None
    fence: int = 0
    ended: float | None = None


@dataclass(slots=True)
class LogRow:
    """One row of the append-only log: `hash` is over `previous`, `seq`, `at` and `entry`.

    The log has several chains (`sayso.ledger.log`); `seq` counts the rows of each from 1.
    `entry` holds digests of contents, never contents, so a purge keeps the chain verifiable.
    """

    seq: int
    at: float
    entry: dict[str, Any]
    previous: str
    hash: str
    chain: int = 0


class Head(NamedTuple):
    """Number and hash of the newest row of a chain."""

    seq: int
    hash: str


class Transaction(Protocol):
    """Rows as of one atomic transaction; everything it read is locked until it ends.

    `now` is the store's clock. Rows returned are the caller's own copies; only `put` changes the
    store. Lists come in the order of `created`, then `index`.
    """

    now: float

    def proposals(self, ids: Sequence[str]) -> dict[str, Proposal]:
        """The proposals with these ids, by id; unknown ids are left out."""
        ...

    def find(
        self,
        *,
        turn: str | None = None,
        conversation: str | None = None,
        reference: str | None = None,
        state: State | None = None,
        owner: str | None = None,
        after: str | None = None,
        limit: int = 10_000,
        newest: bool = False,
    ) -> list[Proposal]:
        """The proposals with all of these values; `after` is the last id of the page before.

        With `newest` they come in the opposite order, the newest first.

        `conversation` and `reference` are for commands, which carry no id: a store need not find
        other calls by them.
        """
        ...

    def put(self, proposal: Proposal) -> None:
        """Insert the proposal, or replace the one with its id."""
        ...

    def turns(self, ids: Sequence[str]) -> dict[str, SuspendedTurn]:
        """The suspended turns with these ids, by id; unknown ids are left out."""
        ...

    def put_turn(self, turn: SuspendedTurn) -> None:
        """Insert the suspended turn, or replace the one with its id."""
        ...

    def append_log(self, chain: int, entry: dict[str, Any]) -> None:
        """Append a row at `now` to a chain of the log: the one that `log_row` makes of the chain's
        newest row. Nothing but the row of that chain need be locked for it."""
        ...

    def heads(self) -> dict[int, Head]:
        """The newest row of each chain that ever had one, by the chain's number, as of one moment.

        A store should keep them apart from the rows, or a tail that was cut off shows only where a
        summary names it.
        """
        ...

    def log(self, after: Mapping[int, int], limit: int = 1_000) -> list[LogRow]:
        """The rows of these chains with `seq` above the one given for each, at most `limit` of
        each, sorted by chain and `seq`.

        The result of the work leaves only when they are on the disk.
        """
        ...

    def purge(
        self,
        *,
        contents_before: float | None,
        turns_before: float | None,
        log_before: float | None = None,
        limit: int = 1_000,
    ) -> tuple[int, int, int]:
        """Forget, oldest first and at most `limit` of each: contents (input, edited, output,
        session, reason, intent) of ended proposals finished before the first time; turns ended
        before the second, and those created before it that nobody continues: no lease lasts until
        then, and no call waits, runs or ended later; before the third log rows, which are the
        oldest of their chains, with a `checkpoint` for each chain, and proposals without contents
        that ended. Returns the three counts, the last one of log rows and proposals together. A
        purged proposal stays until then as `without_contents` has it, its digests in the log."""
        ...


@dataclass(frozen=True, slots=True)
class Reading(Generic[T]):
    """Work that names the rows it reads first: these proposals and their turns, or turns alone.

    A store for which each query is a round trip may fetch them in advance; others just call it.
    With `flushed` false the result need not wait for the disk: a loss of power within the next
    moments may undo the work, the death of the process never does. With `only` the work most
    likely writes nothing: a store may run it without locks, and once more with them if it does
    write. With `alone` it begins when all that this store has begun before is decided, also what
    nobody waits for any more.
    """

    work: Callable[[Transaction], T]
    proposals: Sequence[str] = ()
    turns: Sequence[str] = ()
    flushed: bool = True
    only: bool = False
    alone: bool = False

    def __call__(self, tx: Transaction) -> T:
        return self.work(tx)


class Store(Protocol):
    """Where the ledger's rows live. Used from several event loops and threads at once."""

    url: str
    """For people: without a password."""
    shared: bool
    """Whether other processes see the same rows; false for `memory://`."""

    async def open(self) -> None:
        """Connect, make or migrate the schema. Raises ConfigError naming the store and the way
        out when it is corrupt, read-only, or of a newer schema."""
        ...

    async def close(self) -> None:
        """Release everything; idempotent."""
        ...

    async def run(self, work: Callable[[Transaction], T]) -> T:
        """Run `work` in one atomic transaction and commit it; what it raises rolls back and passes.

        `work`, a `Reading` perhaps, may run on another thread, and again when the store asks for a
        retry, so it has no other effects. Raises LedgerUnavailable when the store cannot answer or
        commit.
        """
        ...

    async def check(self) -> None:
        """Raise LedgerUnavailable where the store would not take a proposal now: asked every few
        seconds, so it may write something small and remember what it found."""
        ...

    def renew(self, owner: str, seconds: float, ids: Collection[str]) -> None:
        """Extend the lease of the calls and turns among `ids` that `owner` holds; called from a
        thread of its own. Its other rows it does not run any more, whatever the store says."""
        ...

    def hold(self, owner: str) -> None:
        """Mark `owner` as alive for as long as this process lives (an OS lock where possible)."""
        ...

    def dead(self, owner: Owner) -> bool:
        """Whether `owner` is surely dead although its lease may still run; blocks briefly."""
        ...
