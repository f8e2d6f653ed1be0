"""Decisions as requests carry them, and their results (design, section 6)."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from hashlib import sha256
from typing import Any, NamedTuple

from pydantic import ValidationError

from sayso.errors import InvalidRequest, ToolInputError
from sayso.ledger import OPEN, Decision, Proposal, SuspendedTurn
from sayso.ledger.beginnings import Beginnings, CallNotStarted, boottime
from sayso.trees import canonical
from sayso.wire.messages import Command, Kind


class Requester(NamedTuple):
    """The requester: the authenticated `principal`, or what the messages claim (`tenant`, `user`).

    A `Proposal` has the same fields.
    """

    principal: str | None = None
    tenant: str | None = None
    user: str | None = None
    protocol: str = ""
    address: str | None = None
    client: str | None = None


@dataclass(frozen=True, slots=True)
class Choice:
    """One decision as a caller sent it.

    - `id`: None for a command, which is matched by its text.
    - `loc`: its place in the request; `newest`: whether that is in the last message.
    - `kind`, `name`, `input`: None if the caller did not state them.
    - `reason`: why it is rejected; `why`: why it is approved.
    - `copy`: it repeats an earlier message of the history, and decides nothing.
    - `message`: the index of the message with a command; `ordinal`: the number of equal commands
      before it there.
    - `seen`: the digest of what its approver was shown (`Proposal.seen`), if the caller states it.
    """

    id: str | None
    kind: Kind | None
    approved: bool
    loc: tuple[str | int, ...]
    newest: bool
    reason: str | None = None
    name: str | None = None
    input: dict[str, Any] | None = None
    through_approvals: bool = False
    copy: bool = False
    message: int = 0
    ordinal: int = 0
    why: str | None = None
    seen: str | None = None


class Conversation(NamedTuple):
    """The keys by which the rows of a conversation are found: its own id if the session carries
    one, and the digest of each prefix of its messages, shortest first."""

    id: str = ""
    references: Sequence[str] = ()


MINT = object()
"""The key with which only the ledger makes grants."""


class Grant:
    """The right to run one approved call once; only the ledger makes one.

    `token` is that of the claim, by which the store knows this run from every other. `again` is
    true for an idempotent call whose earlier run has an unknown outcome. The call may start before
    `until` (`boottime`).
    """

    __slots__ = (
        "_known",
        "_withdrawn",
        "_word",
        "again",
        "fence",
        "proposal",
        "spent",
        "token",
        "until",
    )

    def __init__(
        self,
        proposal: Proposal,
        _mint: object,
        *,
        until: float,
        known: Beginnings,
        token: str,
        again: bool = False,
    ) -> None:
        if _mint is not MINT:
            raise TypeError("a Grant comes from the ledger only")
        self.proposal = proposal
        self.fence = proposal.fence
        self.token = token
        self.again = again
        self.until = until
        self.spent = False
        self._known = known
        # Acquired once: by the start of the call, or by its withdrawal.
        self._word = threading.Lock()
        self._withdrawn = False

    def spend(self) -> None:
        """Use the right; a second use raises RuntimeError."""
        if self.spent:
            raise RuntimeError(f"the grant for call {self.proposal.id!r} is spent")
        self.spent = True

    @property
    def in_time(self) -> bool:
        """Whether the call may still start: no other process considers this one dead yet."""
        return boottime() < self.until

    def begin(self) -> None:
        """Record that the call starts; the caller's next step must be the tool. Raises
        CallNotStarted if it is too late, or the grant was withdrawn."""
        if not self.in_time or not self._word.acquire(blocking=False):
            raise CallNotStarted
        self._known.add(self.proposal.id)

    def withdraw(self) -> bool:
        """Withdraw the grant. True if the call has not started, so that it never will on this
        grant."""
        if not self._withdrawn:
            self._withdrawn = self._word.acquire(blocking=False)
            self.spent |= self._withdrawn
        return self._withdrawn


def begin_all(grants: Sequence[Grant]) -> None:
    """Record that all these calls start, which are carried out in one step. If it is too late for
    one, raises CallNotStarted, and none starts."""
    if not all(grant.in_time for grant in grants):
        raise CallNotStarted
    for grant in grants:
        grant.begin()


@dataclass(slots=True)
class Decided:
    """The result of a request's decisions.

    - `rows`: the visible proposals that the request shows or decides, and all others of their
      turns.
    - `turns`: the suspended turns of the requester's own principal.
    - `callables`: the ids of all turns of a plain callable.
    - `chosen`: each choice with its row.
    - `fresh`: the ids of the rows decided by this request.
    - `starts`: those of `chosen` that are to be started.
    - `acknowledged`: the rejected calls that this request acknowledges to a callable.
    """

    rows: dict[str, Proposal] = field(default_factory=dict)
    turns: dict[str, SuspendedTurn] = field(default_factory=dict)
    callables: set[str] = field(default_factory=set)
    chosen: list[tuple[Choice, Proposal]] = field(default_factory=list)
    fresh: list[str] = field(default_factory=list)
    starts: list[tuple[Choice, Proposal]] = field(default_factory=list)
    hinders: Hinders | None = None
    """A reason for this request not to start a call; see `sayso.decisions.deed`."""
    grants: list[Grant] = field(default_factory=list)
    acknowledged: list[Proposal] = field(default_factory=list)
    resting: dict[str, float] = field(default_factory=dict)
    """For how many seconds the calls of `starts` rest that were not granted for that reason."""
    _inputs: dict[str, list[bytes]] = field(default_factory=dict)

    def changed(self, choice: Choice, row: Proposal) -> bool:
        """Whether the choice states another name or input than the row has, unless a purge removed
        that."""
        if renamed(choice, row):
            return True
        if choice.input is None or row.purged or (row.state == "EXPIRED" and not row.input):
            return False
        # Encoded once: a large input may be stated a thousand times.
        if row.id not in self._inputs:
            self._inputs[row.id] = [_compared(row, input) for input in _inputs(row)]
        stated = _compared(row, choice.input)
        if stated in self._inputs[row.id]:
            return False
        digests = [row.edit] if _waits(row) else [row.edit, *row.earlier]
        return sha256(stated).hexdigest() not in digests

    def outdated(self, choice: Choice, row: Proposal) -> bool:
        """Whether the decision would start the call and is of an earlier revision than the one that
        would run, by the `seen` or the input that it states."""
        if not would_start(choice, row) or renamed(choice, row):
            return False
        if choice.input is not None and not self.changed(choice, row):
            return False
        if choice.seen is not None:
            return choice.seen != row.seen
        return choice.input is not None and _digest(row, choice.input) in row.earlier

    def unseen(self) -> set[str]:
        """The calls of a later revision that this request would start without saying which one its
        approver was shown."""
        later = [(c, row) for c, row in self.chosen if not c.copy and row.revision > 1]
        seen = {row.id for c, row in later if c.seen is not None or c.input is not None}
        return {row.id for choice, row in later if would_start(choice, row)} - seen

    def hindered(self, rows: Iterable[Proposal]) -> list[str]:
        """The approved calls that this request may not start."""
        hinders = self.hinders
        return [r.id for r in rows if hinders and r.state == "APPROVED" and hinders(r)]

    def by_turn(self) -> dict[str, list[Proposal]]:
        """The rows of each suspended turn, in their order."""
        found: dict[str, list[Proposal]] = {}
        for row in sorted(self.rows.values(), key=lambda row: row.index):
            found.setdefault(row.turn, []).append(row)
        return found

    def keep_turns(self, turns: Iterable[SuspendedTurn], who: Requester) -> None:
        """Add the rows' turns; of another principal's turn, only whether a callable made it."""
        for turn in turns:
            if turn.from_callable:
                self.callables.add(turn.id)
            if turn.principal == who.principal:
                self.turns[turn.id] = turn


@dataclass(frozen=True, slots=True)
class Continuation:
    """The right to continue suspended turns, each with its fence, for one deciding message;
    `token` is that of the claim."""

    turns: Sequence[tuple[str, int]]
    request: str
    token: str = ""


Edit = Callable[[Proposal, dict[str, Any]], dict[str, Any] | None]
"""Returns the input to run if the change is allowed, else None. Raises ToolInputError for an
allowed change that does not match the tool's schema."""


Hinders = Callable[[Proposal], tuple[str, str] | None]
"""Returns why a request may not start a call here, as an error type and a message, else None."""
WAITS = ""
"""Used instead of an error type: the request is not refused, and the approved call waits for
another."""


def revise(row: Proposal, stated: dict[str, Any], runs: dict[str, Any] | None) -> None:
    """Make a changed input the next revision of the call: `stated` as its approver sent it, `runs`
    as the tool gets it. Decisions on earlier revisions no longer count."""
    row.earlier = [*row.earlier, _digest(row, row.runs), *([row.edit] if row.edit else [])]
    row.edited, row.edit = runs, _digest(row, stated)
    row.preview = None  # of the input before
    row.revision += 1


def _digest(row: Proposal, input: dict[str, Any]) -> str:
    """The digest by which an input is recognised when it is sent again."""
    return sha256(_compared(row, input)).hexdigest()


def unknown_outcome(why: str, *, idempotent: bool) -> str:
    """The output of a call whose outcome is unknown."""
    then = "approving it again runs it again" if idempotent else "it is not run again"
    return f"Outcome unknown: {why}. It may or may not have taken effect; {then}."


def contradiction(choice: Choice, row: Proposal) -> tuple[str, str] | None:
    """The conflict of the decision with the row's state, as an error type and a message; None if
    there is none."""
    if choice.approved and choice.reason is not None:
        return "approval_conflict", "the call is both approved and rejected"
    if row.state == "EXPIRED":
        late = choice.approved and choice.newest
        return ("approval_expired", "the proposal has expired") if late else None
    if choice.approved and row.state == "REJECTED":
        return "approval_conflict", "the call was rejected before"
    if not choice.approved and row.state not in ("PENDING", "REJECTED"):
        return "approval_conflict", "the call was approved before"
    return None


def would_start(choice: Choice, row: Proposal) -> bool:
    """Whether the decision starts the call, or starts it again."""
    return choice.approved and _waits(row) and not row.purged


def wrong_edit(choice: Choice, row: Proposal, edit: Edit | None) -> str:
    """Why an approval may not change the call as the choice does; empty if it may."""
    allowed = None
    if edit and choice.input is not None and not renamed(choice, row) and row.state == "PENDING":
        try:
            allowed = edit(row, choice.input)
        except ToolInputError as error:
            return f"the changed input does not fit the tool: {error.bare}"
    return "the name or input differs from what was proposed" if allowed is None else ""


def renamed(choice: Choice, row: Proposal) -> bool:
    """Whether the choice names another tool; no edited input can justify that."""
    if row.kind == "command" and not choice.through_approvals:
        return False
    return choice.name is not None and choice.name != row.name


def complete(choice: Choice) -> bool:
    """Whether the choice states everything needed to run a call that was never proposed."""
    if choice.kind != "command":
        return bool(choice.id and choice.name)
    try:
        Command.model_validate(choice.input)
    except ValidationError:
        return False
    return True


def may_be_issued(choice: Choice) -> bool:
    """Whether the choice may run a call that this service never proposed, if that is allowed."""
    return choice.approved and not choice.copy and complete(choice)


def _waits(row: Proposal) -> bool:
    """Whether an approval may still start the call."""
    return row.state in OPEN or (row.state == "INDETERMINATE" and row.idempotent)


def _inputs(row: Proposal) -> list[dict[str, Any]]:
    """The inputs by which a decision may name the call. If it would start now, only the input that
    runs: an approver who still sees an earlier one has not approved that."""
    return [row.runs] if row.edited is None or _waits(row) else [row.input, row.edited]


def edited_twice(found: Decided) -> set[str]:
    """The ids of calls for which this request states two different inputs to run."""
    stated: dict[str, set[bytes]] = {}
    for choice, row in found.chosen:
        decides = not choice.copy and choice.input is not None
        if decides and row.kind == "tool_call" and row.state == "PENDING":
            stated.setdefault(row.id, set()).add(canonical(choice.input))
    return {id_ for id_, inputs in stated.items() if len(inputs) > 1}


def command_identity(given: Mapping[str, Any]) -> dict[str, Any]:
    """The part of a command's input that identifies it; a caller may add anything else."""
    files = given.get("files") or []
    if isinstance(files, list):
        files = [_file(f) if isinstance(f, dict) else f for f in files]
    return {"command": given.get("command"), "files": files}


def command_key(given: Mapping[str, Any]) -> bytes:
    """The same for all inputs of an equal command, as the key of a dict."""
    return canonical(command_identity(given))


def _compared(row: Proposal, input: dict[str, Any]) -> bytes:
    return command_key(input) if row.kind == "command" else canonical(input)


def _file(given: dict[str, Any]) -> dict[str, Any]:
    return {"file_path": given.get("file_path"), "file_content": given.get("file_content")}


def decision_of(choice: Choice, who: Requester, now: float) -> Decision:
    """The decision in the form in which the row records it."""
    by = name_of(who)
    reason = choice.why if choice.approved else choice.reason
    return Decision(choice.approved, now, *by, reason, choice.through_approvals)


def name_of(who: Requester) -> tuple[str | None, bool, str, str | None]:
    """The approver: name, whether only claimed, protocol, address."""
    if who.principal is not None:
        return who.principal, False, who.protocol, who.address
    return who.user, who.user is not None, who.protocol, who.address


def refused(choice: Choice, kind: str, message: str) -> dict[str, Any]:
    """The item of a 422 that points at the choice."""
    return {"loc": list(choice.loc), "msg": message, "type": kind}


def not_issued(choice: Choice) -> dict[str, Any]:
    """The item of a 422 for a decision on a call that was never proposed."""
    return refused(choice, "approval_not_issued", "this service did not propose this call")


def refuse(items: Sequence[dict[str, Any]]) -> None:
    """Raise InvalidRequest if there is any item."""
    if items:
        raise InvalidRequest(items)
