"""The observers of a service as one: each method calls those that override it, and never raises."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from contextvars import ContextVar
from typing import Any, NamedTuple

from sayso.models import Usage
from sayso.observing import (
    ApprovalChange,
    CallerRefused,
    Delivered,
    LedgerOperation,
    ModelCallBegan,
    ModelCallEnd,
    Observer,
    SlotAwaited,
    ToolCallBegan,
    ToolCallEnd,
    TurnBegan,
    TurnEnd,
)
from sayso.wire.masking import hidden_trace

logger = logging.getLogger("sayso.observers")
_TRACEPARENT = 55


NOTHING_USED = Usage()


class Named(NamedTuple):
    """An observer with the name of its plugin."""

    plugin: str
    observer: Observer


class Tally:
    """The counts of a running turn."""

    __slots__ = ("id", "model_calls", "prices", "proposals", "tool_calls", "usage")

    def __init__(self, id_: str) -> None:
        self.id = id_
        self.model_calls = self.tool_calls = self.proposals = 0
        self.usage = NOTHING_USED
        self.prices: list[float] = []

    def asked(self, usage: Usage | None, price: float | None) -> None:
        """Count a call of the model."""
        self.model_calls += 1
        if usage is None or usage == NOTHING_USED:
            return
        had = self.usage
        self.usage = Usage(
            had.input_tokens + usage.input_tokens,
            had.output_tokens + usage.output_tokens,
            had.cache_read_tokens + usage.cache_read_tokens,
            had.cache_write_tokens + usage.cache_write_tokens,
            had.reasoning_tokens + usage.reasoning_tokens,
        )
        if price is not None:
            self.prices.append(price)


current: ContextVar[Tally | None] = ContextVar("sayso_turn", default=None)
"""The counts of the turn in whose context code runs; kept only if a turn is observed."""


def turn_id() -> str:
    """The id of the observed turn in whose context this runs; empty outside of one."""
    tally = current.get()
    return tally.id if tally is not None else ""


class Observers:
    """All observers of a service; a method is None if no observer overrides it."""

    def __init__(self, found: Sequence[Named] = ()) -> None:
        self.turn: Callable[[TurnBegan], TurnEnd] | None = _begin(found, "turn")
        self.model_call: Callable[[ModelCallBegan], ModelCallEnd] | None = _begin(
            found, "model_call"
        )
        self.tool_call: Callable[[ToolCallBegan], ToolCallEnd] | None = _begin(found, "tool_call")
        self.approval: Callable[[ApprovalChange], None] | None = _begin(found, "approval")
        self.ledger: Callable[[LedgerOperation], None] | None = _begin(found, "ledger")
        self.slot: Callable[[SlotAwaited], None] | None = _begin(found, "slot")
        self.delivered: Callable[[Delivered], None] | None = _begin(found, "delivered")
        self.refused: Callable[[CallerRefused], None] | None = _begin(found, "refused")
        self._traces = _overriding(found, "trace")

    @property
    def counts(self) -> bool:
        """Whether the calls of turns are counted."""
        return self.turn is not None

    @property
    def record(self) -> bool:
        """Whether the approvals store is observed."""
        return bool(self.approval or self.ledger or self._traces)

    def trace(self) -> str:
        """The first `traceparent` that an observer gives; empty without one."""
        for call in self._traces:
            if given := call():
                return str(given)[:_TRACEPARENT]
        return ""


class _Call:
    """A method of an observer that is called without ever raising."""

    __slots__ = ("_failed", "_method", "_named")

    def __init__(self, named: Named, method: str) -> None:
        self._named = f"plugin {named.plugin}: {method} of its observer"
        self._method = getattr(named.observer, method)
        self._failed = False

    def __call__(self, *values: Any) -> Any:
        return self.safely(self._method, *values)

    def safely(self, function: Callable[..., Any], *values: Any) -> Any:
        """The result of the function; None if it fails, which is logged the first time."""
        try:
            return function(*values)
        except Exception as error:
            if not self._failed:
                self._failed = True
                what = "%s failed; its further failures are not logged\n%s"
                logger.error(what, self._named, hidden_trace(error, ()))
            return None


def _overriding(found: Sequence[Named], method: str) -> list[_Call]:
    base = getattr(Observer, method)
    return [_Call(n, method) for n in found if getattr(type(n.observer), method, base) is not base]


def _begin(found: Sequence[Named], method: str) -> Callable[[Any], Any] | None:
    """The call of this method of all observers, which returns the call of all ends."""
    calls = _overriding(found, method)
    if not calls:
        return None

    def began(value: Any) -> Callable[[Any], None]:
        ends = [(call, end) for call in calls if (end := call(value)) is not None]

        def ended(value: Any) -> None:
            for call, end in reversed(ends):
                call.safely(end, value)

        return ended

    return began
