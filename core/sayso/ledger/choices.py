"""Decisions as requests carry them, the rows that they mean, and their results (design, section
6)."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from hashlib import sha256
from typing import Any, NamedTuple

from sayso.ledger import OPEN, Decision, Proposal, SuspendedTurn, Transaction
from sayso.ledger.claims import Grant
from sayso.trees import canonical
from sayso.wire.messages import Kind

_ByText = dict[bytes, list[Proposal]]


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
    _known: dict[str, set[str]] = field(default_factory=dict)
    _stated: dict[int, tuple[Choice, str]] = field(default_factory=dict)

    def changed(self, choice: Choice, row: Proposal) -> bool:
        """Whether the choice states another name or input than the row has, unless a purge removed
        that."""
        if renamed(choice, row):
            return True
        if choice.input is None or row.purged or (row.state == "EXPIRED" and not row.input):
            return False
        # Encoded once: a large input may be stated a thousand times.
        if row.id not in self._known:
            self._known[row.id] = {_digest(row, input) for input in _inputs(row)}
        earlier = [] if _waits(row) else row.earlier
        return self.stated(choice, row) not in {*self._known[row.id], row.edit, *earlier}

    def stated(self, choice: Choice, row: Proposal) -> str:
        """The digest of the input that the choice states, by which it is recognised."""
        if id(choice) not in self._stated:
            self._stated[id(choice)] = choice, _digest(row, choice.input or {})
        return self._stated[id(choice)][1]

    def outdated(self, choice: Choice, row: Proposal) -> bool:
        """Whether the decision would start the call and is of an earlier revision than the one that
        would run, by the `seen` or the input that it states."""
        if not would_start(choice, row) or renamed(choice, row):
            return False
        if choice.input is not None and not self.changed(choice, row):
            return False
        if choice.seen is not None:
            return choice.seen != row.seen
        return choice.input is not None and self.stated(choice, row) in row.earlier

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


def would_start(choice: Choice, row: Proposal) -> bool:
    """Whether the decision starts the call, or starts it again."""
    return choice.approved and _waits(row) and not row.purged


def renamed(choice: Choice, row: Proposal) -> bool:
    """Whether the choice names another tool; no edited input can justify that."""
    if row.kind == "command" and not choice.through_approvals:
        return False
    return choice.name is not None and choice.name != row.name


def _waits(row: Proposal) -> bool:
    """Whether an approval may still start the call."""
    return row.state in OPEN or row.runs_again


def _inputs(row: Proposal) -> list[dict[str, Any]]:
    """The inputs by which a decision may name the call. If it would start now, only the input that
    runs: an approver who still sees an earlier one has not approved that."""
    return [row.runs] if row.edited is None or _waits(row) else [row.input, row.edited]


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


class Lookup:
    """The rows that the commands of one request mean, which have no id (design, section 6,
    "Commands"); in one transaction.

    No search is repeated: a request may have thousands of commands, and thousands of messages
    before them. `shown` are the rows that its ids name and their turns'; `visible` and `settle` are
    those of the rules.
    """

    def __init__(
        self,
        tx: Transaction,
        who: Requester,
        conversation: Conversation,
        shown: Collection[str],
        visible: Callable[[Proposal, Requester], bool],
        settle: Callable[[Transaction, Proposal], Proposal],
    ) -> None:
        self._tx = tx
        self._who = who
        self._conversation = conversation
        # Rows found here are added.
        self._shown = frozenset(shown)
        self._visible = visible
        self._settle = settle
        self._found: dict[tuple[bytes, int], Sequence[Proposal]] = {}
        self._own: _ByText | None = None
        self._walked: dict[int, _ByText] = {}
        # The places where something may have been proposed; places without a proposal are removed.
        self._left = list(range(len(conversation.references)))

    def row(self, choice: Choice) -> Proposal | None:
        """The row that the command means; equal commands of one turn are matched in their order."""
        wanted = command_key(choice.input or {})
        place = (wanted, choice.message)
        if place not in self._found:
            by_id = bool(self._conversation.id)
            self._found[place] = self._in_conversation(*place) if by_id else self._nearest(*place)
        same = self._found[place]
        return same[min(choice.ordinal, len(same) - 1)] if same else None

    def _in_conversation(self, wanted: bytes, message: int) -> Sequence[Proposal]:
        if self._own is None:
            # If there is more than one page, read the newest rows.
            found = self._tx.find(conversation=self._conversation.id, newest=True)
            self._own = self._by_text(reversed(found))
        rows = self._own.get(wanted, [])
        near = {row.reference for row in rows}
        places = sorted(self._places[one] for one in near if one in self._places)
        if places:
            # Asked for twice, for instance after a lost reply: take the decided one, or else the
            # newer one.
            reference = self._conversation.references[_nearest_first(places, message)[0]]
            same = self._received([row for row in rows if row.reference == reference])
            return _of_turn(same, [row for row in same if row.decision] or same)
        return _of_turn(rows, rows)

    @cached_property
    def _places(self) -> dict[str, int]:
        return {one: place for place, one in enumerate(self._conversation.references)}

    def _nearest(self, wanted: bytes, message: int) -> Sequence[Proposal]:
        for rows in self._near(message):
            if wanted not in rows:
                continue
            equal = [self._settle(self._tx, row) for row in self._received(rows[wanted])]
            open_ = [row for row in equal if row.state in OPEN]
            same = _of_turn(equal, open_ or equal)
            # If several turns have ended, it is unclear whose outcome is asked for.
            return same if open_ or len(same) == len(equal) else []
        return []

    def _received(self, rows: Sequence[Proposal]) -> Sequence[Proposal]:
        """Of rows proposed at one place, those whose reply the client has, if its messages have any
        id from that place."""
        return [row for row in rows if row.id in self._shown] or rows

    def _near(self, message: int) -> Iterator[_ByText]:
        """The proposals to this user after each reference, the nearest to the message first."""
        for place in _nearest_first(self._left, message):
            if place not in self._walked:
                reference = self._conversation.references[place]
                # Everybody whose messages are the same has this reference.
                found = self._tx.find(reference=reference, newest=True)
                own = (row for row in reversed(found) if row.user == self._who.user)
                self._walked[place] = self._by_text(own)
            if rows := self._walked[place]:
                yield rows
            else:
                del self._left[bisect_left(self._left, place)]

    def _by_text(self, rows: Iterable[Proposal]) -> _ByText:
        found: _ByText = {}
        for row in rows:
            if row.kind == "command" and self._visible(row, self._who):
                found.setdefault(command_key(row.input), []).append(row)
        return found


def _nearest_first(places: Sequence[int], message: int) -> list[int]:
    """The ascending `places` in the order of the search for a message's decision: proposals made
    before the message, the latest first; then those made in answer to it."""
    after = bisect_left(places, message)
    return [*reversed(places[:after]), *reversed(places[after:])]


def _of_turn(rows: Sequence[Proposal], stated: Sequence[Proposal]) -> Sequence[Proposal]:
    """The rows in the turn of the last row in `stated`."""
    turn = max(stated, key=lambda row: row.created).turn if stated else None
    return [row for row in rows if row.turn == turn]


def name_of_unissued(choice: Choice, who: Requester, conversation: Conversation) -> str:
    """The id for a command that was never proposed and has none."""
    place = [conversation.id, *conversation.references[choice.message : choice.message + 1]]
    wanted = command_identity(choice.input or {})
    parts = [place, wanted, choice.ordinal, who.principal, who.tenant, who.user]
    return sha256(canonical(parts)).hexdigest()[:32]
