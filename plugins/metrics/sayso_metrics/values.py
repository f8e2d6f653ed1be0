"""The metrics, as an observer records them. Never labels: principals, conversations, ids."""

from __future__ import annotations

from collections.abc import Callable

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram

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

_WAITS = (5, 30, 60, 300, 900, 3600, 14400, 86400)
_SECONDS = (0.005, 0.025, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 300)
_UNKNOWN = "_unknown"
_DECIDED = {"approved", "rejected", "expired"}


class Values(Observer):
    """Counts what happens in this process, into `registry`."""

    def __init__(self, host: Host, registry: CollectorRegistry) -> None:
        self._host = host
        self._tools = frozenset(host.agent.tools)

        def counter(name: str, what: str, *labels: str) -> Counter:
            return Counter(f"sayso_{name}", what, labels, registry=registry)

        def histogram(
            name: str, what: str, *labels: str, buckets: tuple[float, ...] = _SECONDS
        ) -> Histogram:
            return Histogram(f"sayso_{name}", what, labels, registry=registry, buckets=buckets)

        def gauge(name: str, what: str, *labels: str) -> Gauge:
            return Gauge(
                f"sayso_{name}", what, labels, registry=registry, multiprocess_mode="livesum"
            )

        self._turns = counter(
            "turns", "Ended turns, by stop reason or error code.", "protocol", "outcome"
        )
        self._turn = histogram("turn_duration_seconds", "How long turns took.", "protocol")
        self._first = histogram(
            "turn_first_text_seconds", "From the request to the first text of a turn.", "protocol"
        )
        self._running = gauge("turns_in_flight", "Turns that run now.")
        self._waiting = gauge("turns_waiting", "Turns that wait for a place now.")
        self._refused = counter("refused", "Turns that were refused.", "reason")
        self._callers = counter(
            "authentication_refused", "Callers refused at authentication.", "protocol", "reason"
        )
        self._slot = histogram("queue_duration_seconds", "How long turns waited for a place.")
        whose = ("provider", "model")
        self._calls = counter("model_calls", "Calls of models.", *whose, "outcome")
        self._call = histogram("model_call_duration_seconds", "How long model calls took.", *whose)
        self._chunk = histogram(
            "model_first_chunk_seconds", "From a model call to its first piece.", *whose
        )
        self._tokens = counter("model_tokens", "Tokens that models read and wrote.", *whose, "type")
        self._price = counter("model_price_usd", "Estimated price of model calls, in USD.", *whose)
        self._tool_calls = counter(
            "tool_calls", "Calls of tools, by error or done.", "tool", "outcome"
        )
        self._tool = histogram("tool_duration_seconds", "How long tools ran.", "tool")
        self._changes = counter(
            "approval_changes", "Changes of calls that need approval.", "event", "tool"
        )
        self._wait = histogram(
            "approval_wait_seconds", "From proposal to decision.", "decision", buckets=_WAITS
        )
        self._ledger = histogram(
            "ledger_duration_seconds", "How long transactions of the ledger took.", "operation"
        )
        self._errors = counter("ledger_errors", "Failed transactions of the ledger.", "operation")
        self._notices = counter("notifications", "Notifications, by outcome.", "channel", "outcome")
        self._lag = gauge("outbox_lag_seconds", "From a change to its notification.", "channel")
        self._abandoned = gauge(
            "calls_abandoned", "Calls that still run although nobody waits for them."
        )
        self._background = gauge("calls_running_alone", "Approved calls that no turn waits for.")
        self._unrecorded = gauge(
            "outcomes_unrecorded", "Outcomes that the ledger has not recorded yet."
        )
        # The counts of processes that have ended remain, so further starts are restarts.
        counter("process_starts", "Processes of the service that have started.").inc()
        self._threads = gauge("threads", "Threads for plain user code.")
        self._loops = gauge("loops", "Event loops for async user code.")

    def look(self) -> None:
        """Set the gauges of this process."""
        load = self._host.load()
        self._running.set(load.turns)
        self._waiting.set(load.waiting)
        self._abandoned.set(load.abandoned)
        self._background.set(load.calls)
        self._unrecorded.set(load.unrecorded)
        self._threads.set(load.threads)
        self._loops.set(load.loops)

    def turn(self, began: TurnBegan) -> Callable[[TurnEnded], None]:
        """Count the turn at its end."""
        protocol = began.caller.protocol

        def ended(end: TurnEnded) -> None:
            self._turns.labels(protocol, end.stop or end.error).inc()
            self._turn.labels(protocol).observe(end.duration)
            if end.first is not None:
                self._first.labels(protocol).observe(end.first)
            if end.error in ("BUSY", "RATE_LIMITED", "BUDGET_EXHAUSTED"):
                self._refused.labels(end.error.lower()).inc()

        return ended

    def model_call(self, began: ModelCallBegan) -> Callable[[ModelCallEnded], None]:
        """Count the call at its end."""
        whose = began.provider, began.model

        def ended(end: ModelCallEnded) -> None:
            self._calls.labels(*whose, end.error or "ok").inc()
            self._call.labels(*whose).observe(end.duration)
            if end.first is not None:
                self._chunk.labels(*whose).observe(end.first)
            if end.price:
                self._price.labels(*whose).inc(end.price)
            if end.reply is not None:
                usage = end.reply.usage
                for kind, count in (
                    ("input", usage.input_tokens),
                    ("output", usage.output_tokens),
                    ("cache_read", usage.cache_read_tokens),
                    ("cache_write", usage.cache_write_tokens),
                ):
                    if count:
                        self._tokens.labels(*whose, kind).inc(count)

        return ended

    def tool_call(self, began: ToolCallBegan) -> Callable[[ToolCallEnded], None]:
        """Count the call at its end."""
        name = self._name(began.kind, began.name)

        def ended(end: ToolCallEnded) -> None:
            self._tool_calls.labels(name, end.error or "done").inc()
            self._tool.labels(name).observe(end.duration)

        return ended

    def approval(self, change: ApprovalChange) -> None:
        """Count the change."""
        row = change.row
        self._changes.labels(change.event, self._name(row.kind, row.name)).inc()
        if change.event in _DECIDED:
            self._wait.labels(change.event).observe(change.waited)

    def ledger(self, operation: LedgerOperation) -> None:
        """Count the transaction."""
        self._ledger.labels(operation.name).observe(operation.duration)
        if operation.error == "LedgerUnavailable":
            self._errors.labels(operation.name).inc()

    def slot(self, awaited: SlotAwaited) -> None:
        """Count the wait."""
        self._slot.observe(awaited.duration)

    def delivered(self, delivery: Delivered) -> None:
        """Count the notification."""
        self._notices.labels(delivery.channel, delivery.outcome).inc()
        self._lag.labels(delivery.channel).set(delivery.lag)

    def refused(self, refusal: CallerRefused) -> None:
        """Count the refused caller."""
        self._callers.labels(refusal.protocol, refusal.reason).inc()

    def _name(self, kind: str, name: str) -> str:
        return name if kind == "command" or name in self._tools else _UNKNOWN
