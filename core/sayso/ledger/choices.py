"""Decisions as requests carry them, and what becomes of them (design, section 6)."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from hashlib import sha256
from typing import Any, NamedTuple

from pydantic import ValidationError

from sayso.errors import InvalidRequest, ToolInputError
from sayso.ledger import OPEN, Decision, Proposal, SuspendedTurn
from sayso.ledger.beginnings import Beginnings, NotBegun, boottime
from sayso.wire.canonical import canonical
from sayso.wire.messages import Command, Kind


class Requester(NamedTuple):
    """Who asks: the authenticated `principal`, else what the messages claim (`tenant`, `user`).

    A `Proposal` keeps the same fields.
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

    `id` is None for a command that is matched by its text. `loc` is where it stands in the request,
    `newest` whether that is in the last message. `kind`, `name` and `input` are None when the
    caller did not state them. A `copy` stands further back in the history and decides nothing.
    `message` is the index of the message that carries a command, `ordinal` the number of
    equal commands before it there.
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


class Conversation(NamedTuple):
    """How the rows of a conversation are found: by its own id, if the session carries one, and by
    the digest of each prefix of its messages, shortest first."""

    id: str = ""
    references: Sequence[str] = ()


MINT = object()
"""What the ledger alone makes grants with."""


class Grant:
    """The right to run one approved call once; only the ledger makes one.

    `token` is that of the claim, by which the store knows this run from every other; `again` is
    true for an idempotent call of which an earlier run has an unknown outcome. The call
    may begin before `until` (`boottime`), and `begun` says when it did (`time.monotonic`).
    """

    __slots__ = (
        "_known",
        "_word",
        "again",
        "begun",
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
        self.begun: float | None = None
        self.spent = False
        self._known = known
        # Whoever acquires it decides whether the call begins or is withdrawn.
        self._word = threading.Lock()

    def spend(self) -> None:
        """Use the right; a second use is a RuntimeError."""
        if self.spent:
            raise RuntimeError(f"the grant for call {self.proposal.id!r} is spent")
        self.spent = True

    @property
    def in_time(self) -> bool:
        """Whether the call may still begin: no other process takes this one for dead yet."""
        return boottime() < self.until

    def begin(self) -> None:
        """Say that the call begins: the caller's next step is the tool. Raises NotBegun when it is
        too late, or the grant was withdrawn."""
        if not self.in_time or not self._word.acquire(blocking=False):
            raise NotBegun
        self.begun = time.monotonic()
        self._known.add(self.proposal.id)

    def withdraw(self) -> bool:
        """Whether the call has not begun, and from now on never will on this grant."""
        if not self._word.acquire(blocking=False):
            return False
        self.spent = True
        return True


def begin_all(grants: Sequence[Grant]) -> None:
    """Say that all these calls begin, which one step carries out. Raises NotBegun, of all, when it
    is too late for one."""
    if not all(grant.in_time for grant in grants):
        raise NotBegun
    for grant in grants:
        grant.begin()


@dataclass(slots=True)
class Decided:
    """The result of a request's decisions.

    `rows` are the visible proposals that the request shows or decides, and all others of their
    turns; `turns` are those of the requester's own principal, `callables` the ids of all turns of a
    plain callable; `chosen` pairs each choice with its row; `fresh` are the rows decided by this
    request, `starts` those of `chosen` that are to be started, `told` the rejected ones that it
    tells a callable.
    """

    rows: dict[str, Proposal] = field(default_factory=dict)
    turns: dict[str, SuspendedTurn] = field(default_factory=dict)
    callables: set[str] = field(default_factory=set)
    chosen: list[tuple[Choice, Proposal]] = field(default_factory=list)
    fresh: list[str] = field(default_factory=list)
    starts: list[tuple[Choice, Proposal]] = field(default_factory=list)
    hinders: Hinders | None = None
    """What keeps this request from starting a call; see `sayso.decisions.deed`."""
    grants: list[Grant] = field(default_factory=list)
    told: list[Proposal] = field(default_factory=list)
    _inputs: dict[str, list[bytes]] = field(default_factory=dict)

    def changed(self, choice: Choice, row: Proposal) -> bool:
        """Whether the choice states another name or input than the row has, unless a purge removed
        that."""
        if renamed(choice, row):
            return True
        if choice.input is None or row.purged or (row.state == "EXPIRED" and not row.input):
            return False
        # Written once: a large input may be stated a thousand times.
        if row.id not in self._inputs:
            self._inputs[row.id] = [_compared(row, input) for input in _revisions(row)]
        stated = _compared(row, choice.input)
        if row.edit and sha256(stated).hexdigest() == row.edit:
            return False
        return stated not in self._inputs[row.id]

    def by_turn(self) -> dict[str, list[Proposal]]:
        """The rows of each suspended turn, in their order."""
        found: dict[str, list[Proposal]] = {}
        for row in sorted(self.rows.values(), key=lambda row: row.index):
            found.setdefault(row.turn, []).append(row)
        return found

    def keep_turns(self, turns: Iterable[SuspendedTurn], who: Requester) -> None:
        """Add the turns of the rows; of another principal's turn only whether a callable made
        it."""
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
"""Gives the input to run when a changed one is allowed, else None; raises ToolInputError for one
that is and does not fit."""


Hinders = Callable[[Proposal], tuple[str, str] | None]
"""Gives why a request does not start a call here, as an error type and a message, else None."""
WAITS = ""
"""In place of the type: the request is not refused, and the approved call waits for another."""


def edit_digest(stated: Mapping[str, Any]) -> str:
    """The digest by which a changed input is known when it is sent again."""
    return sha256(canonical(stated)).hexdigest()


def unknown_outcome(why: str, *, idempotent: bool) -> str:
    """The output of a call whose end is unknown."""
    then = "approving it again runs it again" if idempotent else "it is not run again"
    return f"Outcome unknown: {why}. It may or may not have taken effect; {then}."


def contradiction(choice: Choice, row: Proposal) -> tuple[str, str] | None:
    """Why the decision conflicts with the state of the row: an error type and a message."""
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
    """Whether the decision has the call start, or start again."""
    again = row.state == "INDETERMINATE" and row.idempotent and not row.purged
    return choice.approved and (row.state in OPEN or again)


def wrong_edit(choice: Choice, row: Proposal, edit: Edit | None) -> str:
    """Why an approval may not change the call as the choice does; empty where it may."""
    allowed = None
    if edit and choice.input is not None and not renamed(choice, row) and row.state == "PENDING":
        try:
            allowed = edit(row, choice.input)
        except ToolInputError as error:
            return f"the changed input does not fit the tool: {error.bare}"
    return "the name or input differs from what was proposed" if allowed is None else ""


def renamed(choice: Choice, row: Proposal) -> bool:
    """Whether the choice names another tool, which no edited input can justify."""
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


def _revisions(row: Proposal) -> list[dict[str, Any]]:
    """The inputs by which a decision may name the call: of one that would start now only the input
    that runs, since who still sees an earlier one has not approved that."""
    if row.edited is None:
        return [row.input]
    starts = row.state == "APPROVED" or (row.state == "INDETERMINATE" and row.idempotent)
    return [row.edited] if starts else [row.input, row.edited]


def edited_twice(found: Decided) -> set[str]:
    """The calls for which this request states two different inputs to run."""
    stated: dict[str, set[bytes]] = {}
    for choice, row in found.chosen:
        decides = not choice.copy and choice.input is not None
        if decides and row.kind == "tool_call" and row.state == "PENDING":
            stated.setdefault(row.id, set()).add(canonical(choice.input))
    return {id_ for id_, inputs in stated.items() if len(inputs) > 1}


def command_identity(given: Mapping[str, Any]) -> dict[str, Any]:
    """The part of a command's input by which two are the same; a caller's may hold anything."""
    files = given.get("files") or []
    if isinstance(files, list):
        files = [_file(f) if isinstance(f, dict) else f for f in files]
    return {"command": given.get("command"), "files": files}


def _compared(row: Proposal, input: dict[str, Any]) -> bytes:
    return canonical(command_identity(input) if row.kind == "command" else input)


def _file(given: dict[str, Any]) -> dict[str, Any]:
    return {"file_path": given.get("file_path"), "file_content": given.get("file_content")}


def decision_of(choice: Choice, who: Requester, now: float) -> Decision:
    """The decision as the row records it."""
    by = name_of(who)
    return Decision(choice.approved, now, *by, choice.reason, choice.through_approvals)


def name_of(who: Requester) -> tuple[str | None, bool, str, str | None]:
    """Who decides: name, whether only claimed, protocol, address."""
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
