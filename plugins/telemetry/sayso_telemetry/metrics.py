"""Metrics of the conventions, and Sayso's own."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from opentelemetry.metrics import CallbackOptions, Histogram, Meter, Observation

from sayso import (
    ApprovalChange,
    CallerRefused,
    Delivered,
    Host,
    LedgerOperation,
    ModelCallBegan,
    ModelCallEnded,
    Observer,
    SlotAwaited,
    ToolCallBegan,
    ToolCallEnded,
    TurnBegan,
    TurnEnded,
)
from sayso_telemetry import names
from sayso_telemetry.backlog import Backlogs

_LONG = [0.1 * 2**n for n in range(13)]
_SHORT = [0.01 * 2**n for n in range(14)]
_COUNTS = [float(2**n) for n in range(8)]
_WAITS = [5.0, 30.0, 60.0, 300.0, 900.0, 3600.0, 14400.0, 86400.0]
_DECIDED = {"approved", "rejected", "expired"}


class Metrics(Observer):
    """Records metrics. Never labels: principals, conversations, ids, texts of errors."""

    def __init__(self, host: Host, meter: Meter, backlogs: Backlogs) -> None:
        self._agent = {names.AGENT: host.agent.name}
        self._tools = frozenset(host.agent.tools)

        def histogram(name: str, unit: str, buckets: list[float], what: str) -> Histogram:
            return meter.create_histogram(
                name, unit, what, explicit_bucket_boundaries_advisory=buckets
            )

        client = "gen_ai.client.inference."
        self._turn = histogram("gen_ai.invoke_agent.duration", "s", _LONG, "How long turns took.")
        self._turn_calls = histogram(
            "gen_ai.invoke_agent.inference_calls", "{call}", _COUNTS, "Model calls of a turn."
        )
        self._turn_tools = histogram(
            "gen_ai.invoke_agent.tool_calls", "{call}", _COUNTS, "Tool calls of a turn."
        )
        self._tool = histogram("gen_ai.execute_tool.duration", "s", _SHORT, "How long tools ran.")
        self._model = histogram(f"{client}duration", "s", _SHORT, "How long model calls took.")
        self._first = histogram(
            f"{client}time_to_first_chunk", "s", _SHORT, "From a model call to its first piece."
        )
        self._tokens = {
            name: meter.create_counter(f"{client}usage.{name}", "{token}", "Tokens of model calls.")
            for name in (
                "input_tokens",
                "output_tokens",
                "cache_read.input_tokens",
                "cache_write.input_tokens",
                "reasoning.output_tokens",
            )
        }
        self._turns = meter.create_counter("sayso.turns", "{turn}", "Turns by their outcome.")
        self._approvals = meter.create_counter(
            "sayso.approvals", "{change}", "Changes of proposals, by the event of the log."
        )
        self._decision = histogram(
            "sayso.approval.wait", "s", _WAITS, "The time from the proposal to its decision."
        )
        self._ledger = histogram(
            "sayso.ledger.duration", "s", _SHORT, "How long transactions of the ledger took."
        )
        self._slot = histogram(
            "sayso.queue.duration", "s", _SHORT, "How long turns waited for a place."
        )
        self._delivered = meter.create_counter(
            "sayso.notifications", "{notification}", "Notifications by channel and outcome."
        )
        self._callers = meter.create_counter(
            "sayso.authentication.refused", "{request}", "Callers refused at authentication."
        )
        self._lag = meter.create_gauge(
            "sayso.outbox.lag", "s", "The time from a change of the log to its last notification."
        )
        _gauges(meter, host, backlogs)

    def turn(self, began: TurnBegan) -> Callable[[TurnEnded], None]:
        """Record the turn at its end."""

        def ended(end: TurnEnded) -> None:
            failed = {names.ERROR: end.error} if end.error else {}
            self._turn.record(end.duration, {**self._agent, **failed})
            self._turn_calls.record(end.model_calls, self._agent)
            self._turn_tools.record(end.tool_calls, self._agent)
            outcome = end.stop or end.error
            self._turns.add(1, {names.PROTOCOL: began.caller.protocol, "sayso.outcome": outcome})

        return ended

    def model_call(self, began: ModelCallBegan) -> Callable[[ModelCallEnded], None]:
        """Record the call at its end."""

        def ended(end: ModelCallEnded) -> None:
            whose = {names.PROVIDER: began.provider, names.REQUEST_MODEL: began.model}
            failed = {names.ERROR: end.error} if end.error else {}
            self._model.record(end.duration, {**whose, **failed})
            if end.first is not None:
                self._first.record(end.first, whose)
            if end.reply is None:
                return
            usage = end.reply.usage
            read = usage.input_tokens + usage.cache_read_tokens + usage.cache_write_tokens
            counts = (
                read,
                usage.output_tokens,
                usage.cache_read_tokens,
                usage.cache_write_tokens,
                usage.reasoning_tokens,
            )
            for counter, count in zip(self._tokens.values(), counts, strict=True):
                if count:
                    counter.add(count, whose)

        return ended

    def tool_call(self, began: ToolCallBegan) -> Callable[[ToolCallEnded], None]:
        """Record the call at its end."""

        def ended(end: ToolCallEnded) -> None:
            failed = {names.ERROR: end.error} if end.error else {}
            given = {names.TOOL: began.name, names.TOOL_TYPE: "function"}
            self._tool.record(end.duration, {**given, **self._agent, **failed})

        return ended

    def approval(self, change: ApprovalChange) -> None:
        """Count the change."""
        known = change.row.kind == "command" or change.row.name in self._tools
        tool = {names.TOOL: change.row.name if known else "_unknown"}
        self._approvals.add(1, {names.DECISION: change.event, **tool})
        if change.event in _DECIDED:
            self._decision.record(change.waited, {names.DECISION: change.event, **tool})

    def ledger(self, operation: LedgerOperation) -> None:
        """Record the transaction."""
        failed = {names.ERROR: operation.error} if operation.error else {}
        given = {"sayso.ledger.operation": operation.name, **failed}
        self._ledger.record(operation.duration, given)

    def slot(self, awaited: SlotAwaited) -> None:
        """Record the wait."""
        self._slot.record(awaited.duration, {"sayso.refused": awaited.refused})

    def delivered(self, delivery: Delivered) -> None:
        """Count the notification."""
        channel = {"sayso.channel": delivery.channel}
        self._delivered.add(1, {**channel, "sayso.outcome": delivery.outcome})
        self._lag.set(delivery.lag, channel)

    def refused(self, refusal: CallerRefused) -> None:
        """Count the refused caller."""
        given = {names.PROTOCOL: refusal.protocol, "sayso.reason": refusal.reason}
        self._callers.add(1, given)


def _gauges(meter: Meter, host: Host, backlogs: Backlogs) -> None:
    """The numbers that are asked for when metrics are collected."""

    def gauge(name: str, unit: str, what: str, value: Callable[[], float]) -> None:
        def observed(options: CallbackOptions) -> Iterable[Observation]:
            return [Observation(value())]

        meter.create_observable_gauge(name, [observed], unit, what)

    gauge("sayso.turns.running", "{turn}", "Running turns.", lambda: host.load().turns)
    gauge("sayso.turns.waiting", "{turn}", "Waiting turns.", lambda: host.load().waiting)
    gauge("sayso.calls.abandoned", "{call}", "Abandoned calls.", lambda: host.load().abandoned)
    gauge("sayso.threads", "{thread}", "Threads for plain code.", lambda: host.load().threads)
    gauge("sayso.loops", "{loop}", "Event loops for async code.", lambda: host.load().loops)
    of_all = "One number for all processes: take the maximum over them, never the sum."
    latest = backlogs.latest
    gauge("sayso.approvals.pending", "{call}", of_all, lambda: latest().pending)
    gauge("sayso.approvals.approved", "{call}", of_all, lambda: latest().approved)
    gauge("sayso.approvals.oldest", "s", of_all, lambda: latest().oldest)
