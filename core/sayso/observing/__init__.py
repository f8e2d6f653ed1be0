"""Observers: what telemetry, metrics and logs see of a service (docs/hooks.md, `observe`).

An observer overrides the methods of `Observer` that it needs. They are called directly where
something happens, on a worker loop or on any thread, so each has to return at once. An exception is
logged and has no other effect. Nothing is made for a method that no observer overrides.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Literal, NamedTuple, get_args

from sayso.context import Caller
from sayso.ledger import Proposal, State
from sayso.models import Ask, Reply, Usage
from sayso.wire.events import StopReason
from sayso.wire.messages import ChatRequest, Kind


class TurnBegan(NamedTuple):
    """A turn begins: one request, over any protocol.

    `id` is random, 16 hex digits. `conversation` is the id of the conversation, empty in its first
    turns. `request` is the body as it was received: it may hold secrets, and an observer must
    not change it.
    """

    id: str
    agent: str
    caller: Caller
    conversation: str
    request: ChatRequest


class TurnEnded(NamedTuple):
    """A turn has ended.

    `duration` and `first`, the time until the first piece of text, are in seconds. `stop` is the
    stop reason; None for a turn that failed, and then `error` is the code of its error, which is
    `CANCELLED` if the client left or the service stopped. `usage` counts the tokens of all its
    model calls; `price` is their price in US dollars, None if it is not known.
    """

    duration: float
    first: float | None
    stop: StopReason | None
    error: str
    failure: BaseException | None
    model_calls: int
    tool_calls: int
    proposals: int
    usage: Usage
    price: float | None


class ModelCallBegan(NamedTuple):
    """The model is asked. `turn` is the id of the turn, empty outside of one. `ask` may hold
    secrets: `ask.secrets` has those of the request."""

    turn: str
    provider: str
    model: str
    ask: Ask


class ModelCallEnded(NamedTuple):
    """The model has answered, or has failed: then `reply` is None, and `error` the kind of the
    error (`ModelError.kind`, or `cancelled`). `duration` and `first`, the time until the first
    event, are in seconds."""

    duration: float
    first: float | None
    reply: Reply | None
    error: str = ""
    price: float | None = None


class ToolCallBegan(NamedTuple):
    """A tool or an approved command begins to run, or waits for a thread to run on.

    `turn` is the id of the turn, empty outside of one. `proposal` is the row of an approved call,
    None for a call that needed no approval. `input` may hold secrets: `secrets` has those of the
    request.
    """

    turn: str
    call_id: str
    kind: Kind
    name: str
    input: Mapping[str, Any]
    proposal: Proposal | None
    protocol: str
    principal: str | None
    secrets: Sequence[str]


class ToolCallEnded(NamedTuple):
    """A tool or a command has ended, after `duration` seconds.

    `state` is None for a call that did not start, or for which nobody waits any more. `error` is
    empty, or one of `tool_error`, `outcome_unknown`, `not_run`, `not_started`, `not_ended` and
    `cancelled`. `output` is without the request's secrets.
    """

    duration: float
    state: State | None
    error: str
    output: str


class ApprovalChange(NamedTuple):
    """A change of a proposal, after the store has accepted it, once in all processes.

    `event` is that of the log: `proposed`, `unissued`, `voted`, `edited`, `approved`, `rejected`,
    `expired`, `claimed`, `unclaimed`, `done`, `failed`, `indeterminate`, `commented` or
    `not_started`. `row` is the proposal as it is now, and `entry` the log's entry. `at` is the
    store's time (seconds since the epoch). `turn` is the id of the turn in which it happened, empty
    outside of one.
    """

    event: str
    row: Proposal
    at: float
    entry: Mapping[str, Any]
    turn: str

    @property
    def waited(self) -> float:
        """Seconds since the call was proposed."""
        return max(0.0, self.at - self.row.created)


class LedgerOperation(NamedTuple):
    """A transaction of the approvals store: its name, such as `propose`, `decide`, `claim` and
    `finish`, its seconds, and the class of its error, empty without one."""

    name: str
    duration: float
    error: str


class SlotAwaited(NamedTuple):
    """A turn had to wait for its place among the turns in flight (`limits.turns`).

    `duration` is in seconds; `refused` says that it got none, and was answered with 503.
    """

    duration: float
    refused: bool


class Delivered(NamedTuple):
    """A plugin has brought a change of the log to people, or has failed to.

    `channel` is the way, such as `slack` or `webhook`, `outcome` one of `sent`, `failed` and
    `skipped`, `lag` the seconds between the change and this attempt.
    """

    channel: str
    outcome: str
    lag: float


Reason = Literal[
    "missing",
    "malformed",
    "wrong",
    "signature",
    "expired",
    "early",
    "issuer",
    "audience",
    "claims",
    "key",
    "ticket",
    "proxy",
    "foreign_page",
    "sign_in",
    "provider_unreachable",
    "unavailable",
    "failed",
    "other",
]
"""Why a request was refused at authentication (docs/monitoring.md, "Refused callers")."""
REASONS: frozenset[str] = frozenset(get_args(Reason))


class CallerRefused(NamedTuple):
    """A request was refused because nothing told who calls.

    `reason` is one of `Reason`. `protocol` is the plugin whose path was asked for, "service" for
    a path of none. `address` is the peer's, as in `Caller`. Nothing that the caller sent is in it.
    """

    reason: str
    protocol: str
    address: str | None


TurnEnd = Callable[[TurnEnded], None]
ModelCallEnd = Callable[[ModelCallEnded], None]
ToolCallEnd = Callable[[ToolCallEnded], None]


class Observer:
    """Sees what happens in a service; a subclass overrides what it needs.

    The first three methods are called when something begins, and may return a function that is
    called at its end, in the same context: a context variable that is set at the beginning is seen
    by everything in between, also on other threads. Ends come in reverse order.
    """

    def turn(self, began: TurnBegan) -> TurnEnd | None:
        """Called as a turn begins, before it has its place."""

    def model_call(self, began: ModelCallBegan) -> ModelCallEnd | None:
        """Called as the model is asked; the call has all its retries."""

    def tool_call(self, began: ToolCallBegan) -> ToolCallEnd | None:
        """Called as a tool or a command is about to run."""

    def approval(self, change: ApprovalChange) -> None:
        """Called for each change of a proposal, in the process that made it."""

    def ledger(self, operation: LedgerOperation) -> None:
        """Called after each transaction of the approvals store."""

    def slot(self, awaited: SlotAwaited) -> None:
        """Called for each turn that had to wait for its place."""

    def delivered(self, delivery: Delivered) -> None:
        """Called for each notification that a plugin reports by `host.delivered`."""

    def refused(self, refusal: CallerRefused) -> None:
        """Called for each request that is refused at authentication; a flood of them is a flood of
        these."""

    def trace(self) -> str:
        """The `traceparent` of the current span, which the ledger keeps with a proposal and with a
        decision; empty without one. At most 55 characters are kept."""
        return ""
