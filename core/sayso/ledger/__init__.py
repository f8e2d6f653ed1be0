"""The ledger's data, and the requirements for a store that keeps it (design, section 6).

The rules (who may decide, what may run, once) are in `sayso.ledger.rules`, written once over a
`Store`. A store provides atomic transactions over proposals, suspended turns and the log. `memory`
and `sqlite` beside this file are built in. Others come by entry point in the group `sayso.ledgers`:
a factory `(url: str) -> Store` named after the URL's scheme.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from hashlib import sha256
from os.path import basename, isabs
from secrets import token_hex
from typing import Any, Generic, Literal, NamedTuple, Protocol, TypeVar

from sayso.ledger.people import Comment, Terms, Vote
from sayso.trees import canonical
from sayso.wire.messages import Kind

T = TypeVar("T")

State = Literal[
    "PENDING", "APPROVED", "REJECTED", "EXPIRED", "EXECUTING", "DONE", "FAILED", "INDETERMINATE"
]
OPEN: frozenset[State] = frozenset({"PENDING", "APPROVED"})
"""States in which a call can still be rejected or expire, because it has not been claimed."""
RAN: frozenset[State] = frozenset({"DONE", "FAILED", "INDETERMINATE"})
"""States of a call that was run, or may have been."""
ENDED: frozenset[State] = RAN | {"REJECTED", "EXPIRED"}
"""States after which nothing runs any more (except an idempotent INDETERMINATE call)."""


_OWN_ID = re.compile(r"[0-9a-f]{32}")


def new_id() -> str:
    """The id of a new call, which nobody can guess."""
    return token_hex(16)


def is_own_id(id_: str) -> bool:
    """Whether it has the form of `new_id`: others are the ids of calls that were never proposed
    here."""
    return _OWN_ID.fullmatch(id_) is not None


@dataclass(slots=True)
class Owner:
    """The process that executes a call, continues a turn, or has acknowledged a rejection to a
    callable.

    - `id`: random for each process.
    - `boot`: the kernel's boot id.
    - `fence`: grows with each claim of the row; only the holder of the current fence may finish it.
    - `lease`: until when the claim holds, in the store's time.
    - `claim`: random for each attempt to claim, so that an attempt whose commit is in doubt can be
      recognised.
    """

    id: str
    boot: str
    fence: int
    lease: float
    claim: str = ""


@dataclass(slots=True)
class Decision:
    """The approver, the time, the protocol and the address of a decision.

    `who` is the authenticated principal, or else the message's `user`; then `claimed` is true.
    `grant` is the id of the standing grant that made it, if one did.
    `trace` is the `traceparent` of the request that decided, empty unless an observer gives one.
    """

    approved: bool
    at: float
    who: str | None = None
    claimed: bool = False
    protocol: str = ""
    address: str | None = None
    reason: str | None = None
    through_approvals: bool = False
    grant: str = ""
    trace: str = ""


@dataclass(slots=True)
class Proposal:
    """A tool call or command that was recorded for a decision.

    Times are seconds since the epoch, in the store's time. `input` of a command is `{"command":
    str, "files": [...] or null}`. `edited` is the input of an approval that changed it, and is what
    runs if it is set. `session` is the change that the call made to the session.
    `revision` counts the inputs from 1, the one that was proposed; `earlier` are the digests by
    which those before this one are known. After `refusals` starts that came to nothing the next one
    waits until `rests`.

    The deed (design, section 6): `agent` is the id of the proposing agent; `input` is what the tool
    gets, and `sent` what was sent if that differs; `tool` is the digest of the tool, `source` its
    origin; `context` is where it acts. `edit` is the digest of a changed input as its approver sent
    it.

    `person` is whose principal proposed it, `terms` what its rule demands, `votes` who has approved
    it while others are still needed, `editors` who has changed its input. An `unattended` call
    needs nothing of its caller's, so the service may start it. `trace` is the `traceparent` of the
    request that proposed it, empty unless an observer gives one. `preview` is the text that the
    tool's `preview` made of the proposed input; an edit removes it.
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
    person: str | None = None
    terms: Terms | None = None
    votes: list[Vote] = field(default_factory=list)
    comments: list[Comment] = field(default_factory=list)
    editors: list[str] = field(default_factory=list)
    unattended: bool = False
    revision: int = 1
    earlier: list[str] = field(default_factory=list)
    refusals: int = 0
    rests: float = 0.0
    trace: str = ""
    preview: str | None = None

    @property
    def asked(self) -> dict[str, Any]:
        """The input as it was sent by the one who asked."""
        return self.input if self.sent is None else self.sent

    @property
    def bound(self) -> dict[str, Any]:
        """Everything that an approval binds beside the input, in the form that every surface
        shows. Callers see no folder of the service's machine in the id of an agent."""
        agent = basename(self.agent) if isabs(self.agent) else self.agent
        given = {"agent": agent, "tool": self.source, "context": self.context}
        return {name: value for name, value in given.items() if value}

    @property
    def runs(self) -> dict[str, Any]:
        """The input that runs, or has run."""
        return self.input if self.edited is None else self.edited

    @property
    def seen(self) -> str:
        """The digest of everything that an approver reads before the decision: the input that would
        run and its revision, the other bound fields, and the demands of the rule. An approval names
        it to say what its author saw."""
        rule, needed = (self.terms.rule, self.terms.quorum) if self.terms else ("", 1)
        said = [self.id, self.revision, self.runs, self.bound, rule, needed]
        return f"sha256:{sha256(canonical(said)).hexdigest()}"

    @property
    def order(self) -> tuple[float, int]:
        """The sort key of proposals: by time of creation, within one turn in the turn's order."""
        return (self.created, self.index)

    @property
    def ended(self) -> float | None:
        """When it ended, or will end by itself: an undecided proposal ends when it expires.

        None while it runs, since nobody knows. `Transaction.purge` goes by this time.
        """
        if self.state in ENDED and self.finished is not None:
            return self.finished
        return None if self.state == "EXECUTING" else self.expires

    @property
    def runs_again(self) -> bool:
        """Whether an approval would run it a second time: its outcome is unknown, and it is
        idempotent. An approval that was made before is none of that."""
        return self.state == "INDETERMINATE" and self.idempotent

    @property
    def startable(self) -> bool:
        """Whether an approval that waited for the current run should start the call: nobody runs it
        any more.

        Either its claim was given back, or its process died and the call is idempotent. Only a
        process that has died remains the owner; a timeout is an outcome like any other.
        """
        return self.state == "APPROVED" or (self.runs_again and self.owner is not None)

    @property
    def unissued(self) -> bool:
        """Whether this service never proposed the call, so that its id was made up by its
        caller."""
        return self.call_id == self.id

    @property
    def purged(self) -> bool:
        """Whether a purge has removed its outcome; an expired call had none."""
        return self.output is None and self.state in ENDED - {"EXPIRED"}

    def without_contents(self) -> Proposal:
        """A copy without contents, as a purge leaves it; for stores of others
        (`Transaction.purge`)."""
        decision = self.decision and replace(self.decision, reason=None)
        return replace(
            self,
            input={},
            edited=None,
            output=None,
            session=None,
            intent=None,
            sent=None,
            comments=[],
            preview=None,
            decision=decision,
        )


@dataclass(slots=True)
class SuspendedTurn:
    """A turn that waits for decisions; later also the reply that continued it.

    `transcript` has the turns since the last user message, as `dump_turns` makes them. `prefix` is
    the digest of everything that the thinking in it is bound to: the model, system prompt, context,
    tools and earlier turns. `request` is the digest of the message that continued the turn, `reply`
    the recorded events, `ended` the time of that.
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

    The log has several chains (`sayso.ledger.log`); `seq` counts the rows of each from 1. `entry`
    has digests of contents, never contents, so the chain can be verified after a purge.
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


class Pending(NamedTuple):
    """The data of an undecided proposal that a list needs: its place in the list, and for whom it
    exists."""

    id: str
    created: float
    position: int
    expires: float
    agent: str
    principal: str | None
    tenant: str | None
    address: str | None
    terms: Terms | None = None


class Transaction(Protocol):
    """The rows as seen by one atomic transaction; every row it has read is locked until it ends.

    `now` is the store's time. Returned rows are the caller's own copies; only `put` changes the
    store. Lists are ordered by `created`, then `index`.
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
        """The proposals with all of these values; `after` is the last id of the previous page.

        With `newest` the order is reversed, the newest first.

        `conversation` and `reference` are for commands, which have no id in messages: a store need
        not find other calls by them.
        """
        ...

    def pending(self, after: tuple[float, int, str] | None, limit: int) -> list[Pending]:
        """At most `limit` proposals in the state PENDING, the newest first: those created before
        `after` (`created`, `position` and id). Their contents are not read."""
        ...

    def due(self, limit: int = 1_000) -> list[str]:
        """The ids of at most `limit` calls that time has ended: PENDING and APPROVED ones that
        expire at `now` or earlier, and EXECUTING ones whose lease does. `Ledger.settle` records
        that."""
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

    def notes(self, prefix: str) -> dict[str, str]:
        """The notes whose names begin with `prefix`, by their names."""
        ...

    def note(self, name: str, text: str | None) -> None:
        """Keep a note under this name, in place of the one before; None removes it. Names are
        printable ASCII."""
        ...

    def swap(self, name: str, old: str | None, new: str | None) -> bool:
        """Replace the note under this name if its text is still `old`, and return whether it was;
        None stands for no note, in one of the two places. If it was, nobody else can change the
        note before the transaction ends."""
        ...

    def append_log(self, chain: int, entry: dict[str, Any]) -> None:
        """Append a row at `now` to a chain of the log, made by `log_row` from the chain's newest
        row. Only that row needs to be locked."""
        ...

    def heads(self) -> dict[int, Head]:
        """The newest row of each chain that ever had one, by the chain's number, all of the same
        moment.

        A store should keep them apart from the rows. Otherwise a removed tail of a chain shows only
        if a summary names it.
        """
        ...

    def log(self, after: Mapping[int, int], limit: int = 1_000) -> list[LogRow]:
        """The rows of these chains with a `seq` above the given one, at most `limit` of each,
        sorted by chain and `seq`.

        The transaction returns only when they are on disk.
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
        """Remove old rows, oldest first, at most `limit` of each kind.

        - Before the first time: contents (input, edited, output, session, reason, intent) of
          proposals that ended.
        - Before the second: turns that ended, and turns created earlier that nobody continues. No
          lease lasts that long, and no call of theirs waits, runs or ended later.
        - Before the third: log rows, which are the oldest of their chains, with a `checkpoint` for
          each chain; and ended proposals without contents.

        Returns three counts, the last one of log rows and proposals together. Until the last step a
        purged proposal stays as `without_contents` has it, its digests in the log.
        """
        ...


@dataclass(frozen=True, slots=True)
class Reading(Generic[T]):
    """A transaction's work that names in advance the rows it reads: proposals and their turns, or
    turns.

    A store for which each query is a round trip may fetch them together; others simply call it.

    - `flushed` false: the result need not wait for the disk. A power loss within the next moments
      may undo the work; the death of the process never does.
    - `only`: the work most likely writes nothing. A store may run it without locks, and once more
      with locks if it does write.
    - `alone`: it runs after all works that this store began before, including cancelled ones.
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
    """The storage of the ledger's rows. Used from several event loops and threads at once."""

    url: str
    """The address as shown to people: without a password."""
    shared: bool
    """Whether other processes see the same rows; false for `memory://`."""

    async def open(self) -> None:
        """Connect, and create or migrate the schema. Raises ConfigError, naming the store and the
        way out, if it is corrupt, read-only, or of a newer schema."""
        ...

    async def close(self) -> None:
        """Release everything; may be called repeatedly."""
        ...

    async def run(self, work: Callable[[Transaction], T]) -> T:
        """Run `work` in one atomic transaction and commit it; its exception rolls back and is
        passed on.

        `work`, possibly a `Reading`, may run on another thread, and again if the store needs to
        retry, so it must have no other effects. Raises LedgerUnavailable if the store cannot answer
        or commit.
        """
        ...

    async def check(self) -> None:
        """Raise LedgerUnavailable if the store would not accept a proposal now. It is called every
        few seconds, so it may write something small and remember the result."""
        ...

    def renew(self, owner: str, seconds: float, ids: Collection[str]) -> None:
        """Extend the lease of the calls and turns among `ids` that `owner` holds; called from a
        thread of its own. Its other rows it does not run any more, whatever the store says."""
        ...

    def hold(self, owner: str) -> None:
        """Mark `owner` as alive for as long as this process lives (an OS lock where possible)."""
        ...

    def dead(self, owner: Owner) -> bool:
        """Whether `owner` is certainly dead although its lease may still run; blocks briefly."""
        ...
