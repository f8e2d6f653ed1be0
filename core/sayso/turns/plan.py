"""The next step of a request, as a pure function of its messages and of the rows that the ledger
found.

A wrong plan can delay or repeat a question. It cannot make anything run, since only the ledger
grants that.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

from sayso.conversation.approvals import last_shown
from sayso.conversation.calls import Mentions
from sayso.errors import InvalidRequest
from sayso.ledger import ENDED, Proposal, SuspendedTurn
from sayso.ledger.choices import Decided
from sayso.wire.messages import Message


@dataclass(frozen=True)
class Asking:
    """A request as the plan reads it.

    - `shown`: the ids of the calls in its history;
    - `decides`: whether it carries a decision;
    - `blank`: whether its newest message had no words when it was received;
    - `empty`: whether that message has none after the request interceptors either;
    - `to_callable`: whether a plain callable answers the request.
    """

    messages: Sequence[Message]
    shown: Collection[str]
    found: Decided
    decides: bool
    blank: bool
    empty: bool
    to_callable: bool

    @cached_property
    def last_turns(self) -> set[str]:
        """The turns whose calls the newest assistant message shows."""
        rows = self.found.rows
        return {rows[id_].turn for id_ in last_shown(self.messages) if id_ in rows}

    @cached_property
    def mentions(self) -> Mentions:
        """The positions of the messages that show and decide calls."""
        return Mentions(self.messages, self.found.chosen)

    @cached_property
    def blocking(self) -> list[str]:
        """The tool calls in the history that are pending: the ledger accepts no new message before
        they are decided."""
        return [
            row.id
            for row in self.found.rows.values()
            if row.kind == "tool_call" and row.state == "PENDING" and row.id in self.shown
        ]

    @property
    def stalled(self) -> bool:
        """Whether the request decides nothing and a tool call that its history shows is pending."""
        return not self.decides and bool(self.blocking)

    @property
    def continues_at_once(self) -> bool:
        """Whether the request decides a single call, so that its turn continues as soon as that
        call ends."""
        found = self.found
        turns = {row.turn for _, row in found.chosen}
        return (
            self.decides
            and len(found.starts) == 1
            and turns == {found.starts[0][1].turn}
            and turns <= found.turns.keys()
        )

    @property
    def session_is_newer(self) -> bool:
        """Whether the session of the request is newer than the reply to its decisions: the request
        states one, and an assistant message follows the first message that makes each decision or
        reports its outcome."""
        spoken = [n for n, m in enumerate(self.messages) if m.role == "assistant"]
        stated = [
            n
            for n, m in enumerate(self.messages)
            if m.data is not None and m.data.session is not None
        ]
        newest = min(max(spoken, default=0), max(stated, default=0))
        rows = {row.id: row for choice, row in self.found.chosen if not choice.copy}.values()
        first = [decided_at(row, self.mentions) for row in rows]
        return bool(first) and all(index is not None and index < newest for index in first)


@dataclass(frozen=True, slots=True)
class Standing:
    """One suspended turn from the view of this request: its calls, and the turn itself if it is the
    requester's own."""

    id: str
    rows: Sequence[Proposal]
    suspended: SuspendedTurn | None
    from_callable: bool
    decided_here: bool
    """Whether the request decides one of its calls, or has run one."""
    hindered: Collection[str] = ()
    """The approved calls that this request may not start."""

    @property
    def unsettled(self) -> list[Proposal]:
        """The calls to restate: the pending ones, and those that were approved elsewhere and that
        their caller has yet to send back. A callable gets the latter with the others, unless
        something keeps the request from starting one."""
        open_ = {"PENDING"} if self.from_callable else {"PENDING", "APPROVED"}
        return [row for row in self.rows if row.state in open_ or row.id in self.hindered]

    def resumes(self, asking: Asking) -> bool:
        """Whether an empty message continues the turn: the history ends at it, and all its calls
        have ended."""
        return (
            not asking.decides
            and asking.blank
            and not asking.stalled
            and self.id in asking.last_turns
            and self.suspended is not None
            and self.suspended.state == "SUSPENDED"
            and all(row.state in ENDED for row in self.rows)
        )

    def unacknowledged(self, asking: Asking) -> bool:
        """Whether the callable has yet to get decisions that this conversation made, while nothing
        in the turn is pending. Another turn may have delayed them."""
        if not (asking.to_callable and self.from_callable) or asking.stalled:
            return False
        if any(r.state == "PENDING" and (r.kind != "command" or asking.blank) for r in self.rows):
            return False
        return any(
            decided_at(row, asking.mentions) is not None
            for row in self.rows
            if row.state == "APPROVED" or (row.state == "REJECTED" and row.owner is None)
        )


@dataclass(frozen=True, slots=True)
class Restate:
    """Answer with these calls, which wait for a decision or for their caller."""

    pending: Sequence[Proposal]


@dataclass(frozen=True, slots=True)
class Replay:
    """Answer with the reply that was recorded for the same decisions."""

    recorded: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class AskModel:
    """Continue the suspended turns `own` of the requester, then ask the model; without any
    suspended turn, this turn is like others."""

    own: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class AskFunction:
    """Continue the suspended turns `own` of the requester and give the plain callable the decisions
    of the turns `callables`, then ask the callable."""

    own: tuple[str, ...] = ()
    callables: tuple[str, ...] = ()
    unacknowledged: bool = field(default=False, compare=False)
    """Whether the callable gets decisions that earlier requests made."""


Step = Restate | Replay | AskModel | AskFunction


def plan(asking: Asking) -> Restate | AskModel | AskFunction:
    """The next step of the request, when its decisions are recorded and its calls have run.

    Raises InvalidRequest (`nothing_to_answer`) for an empty message if nothing waits for an answer.
    """
    standings = standings_of(asking.found)
    unacknowledged = {s.id for s in standings if s.unacknowledged(asking)}
    touched = [
        s for s in standings if s.decided_here or s.id in unacknowledged or s.resumes(asking)
    ]
    pending = _unsettled(touched)
    if any(row.kind == "tool_call" for row in pending) or (pending and asking.blank):
        return Restate(pending)
    if asking.blank and not touched and (restated := _shown(asking, standings)):
        return Restate(restated)
    own = tuple(s.id for s in touched if s.suspended is not None)
    if not asking.to_callable:
        return AskModel(own)
    callables = tuple(s.id for s in touched if s.from_callable)
    return AskFunction(own, callables, bool(unacknowledged))


def _shown(asking: Asking, standings: Iterable[Standing]) -> list[Proposal]:
    """The unsettled calls that an empty message shows, of any turn."""
    named = {*asking.shown, *(row.id for _, row in asking.found.chosen)}
    shown = [row for row in _unsettled(standings) if row.id in named]
    if not shown and not asking.decides and asking.empty:
        raise nothing_to_answer(asking.messages)
    return shown


def _unsettled(standings: Iterable[Standing]) -> list[Proposal]:
    rows = [row for standing in standings for row in standing.unsettled]
    return sorted(rows, key=lambda row: row.order)


def standings_of(found: Decided) -> list[Standing]:
    """The suspended turns of which the request shows or decides a call."""
    ran = {grant.proposal.id for grant in found.grants}
    here = {row.turn for choice, row in found.chosen if not choice.copy or row.id in ran}
    return [
        Standing(
            id_,
            rows,
            found.turns.get(id_),
            id_ in found.callables,
            id_ in here,
            found.hindered(rows) if id_ in found.callables else (),
        )
        for id_, rows in found.by_turn().items()
    ]


def decided_at(row: Proposal, mentions: Mentions) -> int | None:
    """The index of the message that decides the call, if one does."""
    # Search from the proposal onwards; an identical command may have been decided earlier.
    return mentions.decided(row, mentions.shown([row.id]) or 0)


def nothing_to_answer(messages: Sequence[Message]) -> InvalidRequest:
    """The refusal of an empty message if nothing waits for an answer."""
    loc: list[str | int] = ["body", "messages", len(messages) - 1, "content"]
    return InvalidRequest.at(
        loc, "nothing_to_answer", "the last message is empty and nothing waits for a decision"
    )
