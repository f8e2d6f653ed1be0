"""Spans for turns, model calls, tools and approvals."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from opentelemetry import context as contexts
from opentelemetry import trace
from opentelemetry.context import Context
from opentelemetry.trace import Link, Span, SpanKind, Status, StatusCode, Tracer
from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

from sayso import (
    ApprovalChange,
    Host,
    ModelCallBegan,
    ModelCallEnded,
    Observer,
    Proposal,
    ToolCallBegan,
    ToolCallEnded,
    TurnBegan,
    TurnEnded,
    Usage,
    mask,
)
from sayso_telemetry import contents, names

_SHOWN = {"proposed", "voted", "approved", "rejected", "expired", "indeterminate"}
_propagator = TraceContextTextMapPropagator()


class Spans(Observer):
    """Starts and ends spans; an SDK that the user sets up exports them."""

    def __init__(self, host: Host, tracer: Tracer) -> None:
        self._agent = host.agent
        self._tracer = tracer
        self._contents = contents.wanted()

    def turn(self, began: TurnBegan) -> Callable[[TurnEnded], None]:
        """`invoke_agent`; one that came over a WebSocket begins a trace, with a link to the
        connection's span, since that lasts as long as the connection."""
        attributes = {
            names.OPERATION: "invoke_agent",
            names.AGENT: began.agent,
            names.PROTOCOL: began.caller.protocol,
            names.TURN: began.id,
        }
        if began.conversation:
            attributes[names.CONVERSATION] = began.conversation
        apart = began.caller.socket
        span = self._tracer.start_span(
            f"invoke_agent {began.agent}",
            context=Context() if apart else None,
            links=_links_to_current() if apart else None,
            attributes=attributes,
        )
        leave = _entered(span)

        def ended(end: TurnEnded) -> None:
            if span.is_recording():
                span.set_attributes(_used(end.usage))
                if end.stop is not None:
                    span.set_attribute(names.STOP, end.stop)
            _failed(span, end.error)
            leave()

        return ended

    def model_call(self, began: ModelCallBegan) -> Callable[[ModelCallEnded], None]:
        """`chat`; one for all retries of a call."""
        remote = began.provider != "offline"
        span = self._tracer.start_span(
            f"chat {began.model}" if began.model else "chat",
            kind=SpanKind.CLIENT if remote else SpanKind.INTERNAL,
            attributes={
                names.OPERATION: "chat",
                names.PROVIDER: began.provider,
                names.REQUEST_MODEL: began.model,
                names.REQUEST_STREAM: True,
                names.AGENT: self._agent.name,
            },
        )
        if span.is_recording():
            for key, value in began.ask.config.items():
                if key in names.REQUEST_CONFIG and isinstance(value, str | int | float):
                    span.set_attribute(names.REQUEST_CONFIG[key], value)
            if self._contents:
                span.set_attributes(contents.asked(began))
        leave = _entered(span)

        def ended(end: ModelCallEnded) -> None:
            if span.is_recording() and end.reply is not None:
                span.set_attributes(_used(end.reply.usage))
                span.set_attribute(names.FINISH_REASONS, [end.reply.stop])
                if self._contents:
                    span.set_attributes(contents.answered(end.reply, began.ask.secrets))
            if end.first is not None:
                span.set_attribute(names.FIRST_CHUNK, end.first)
            _failed(span, end.error)
            leave()

        return ended

    def tool_call(self, began: ToolCallBegan) -> Callable[[ToolCallEnded], None]:
        """`execute_tool`; that of an approved call has links to its proposal and its decision."""
        row = began.proposal
        attributes = {
            names.OPERATION: "execute_tool",
            names.TOOL: began.name,
            names.TOOL_TYPE: "function" if began.kind == "tool_call" else "extension",
            names.AGENT: self._agent.name,
        }
        if began.call_id:
            attributes[names.TOOL_CALL] = began.call_id
        if row is not None:
            attributes[names.APPROVAL] = row.id
        span = self._tracer.start_span(
            f"execute_tool {began.name}", attributes=attributes, links=_links_of(row)
        )
        if self._contents and span.is_recording():
            given = contents.written(dict(began.input), began.secrets)
            span.set_attribute(names.ARGUMENTS, given)
        leave = _entered(span)

        def ended(end: ToolCallEnded) -> None:
            if self._contents and end.output:
                span.set_attribute(names.RESULT, contents.written(end.output, began.secrets))
            _failed(span, end.error)
            leave()

        return ended

    def approval(self, change: ApprovalChange) -> None:
        """A span without a length for each decision; waiting for one is no error."""
        if change.event not in _SHOWN:
            return
        row, entry = change.row, change.entry
        attributes: dict[str, Any] = {
            names.APPROVAL: row.id,
            names.TOOL: row.name,
            names.DECISION: change.event,
            names.WAITED: change.waited,
            names.PROTOCOL: str(entry.get("protocol") or row.protocol),
            names.INPUT_DIGEST: str(entry.get("input", "")),
        }
        if who := entry.get("who"):
            attributes[names.DECIDER] = str(mask(who, ()))
        links = () if change.event == "proposed" else _links_of(row)
        span = self._tracer.start_span(
            f"{names.EVENT}{change.event}", attributes=attributes, links=links
        )
        if change.event == "indeterminate":
            _failed(span, "outcome_unknown")
        span.end()

    def trace(self) -> str:
        """The `traceparent` of the current span."""
        carrier: dict[str, str] = {}
        _propagator.inject(carrier)
        return carrier.get("traceparent", "")


def _entered(span: Span) -> Callable[[], None]:
    """Make `span` the current one; returns the way to end it.

    `start_as_current_span` takes ten times as long.
    """
    token = contexts.attach(trace.set_span_in_context(span))

    def leave() -> None:
        contexts.detach(token)
        span.end()

    return leave


def _failed(span: Span, error: str) -> None:
    if error:
        span.set_attribute(names.ERROR, error)
        # Without a text, which could quote what the user said.
        span.set_status(Status(StatusCode.ERROR))


def _used(usage: Usage) -> dict[str, int]:
    read = usage.input_tokens + usage.cache_read_tokens + usage.cache_write_tokens
    counts = {
        names.INPUT_TOKENS: read,
        names.OUTPUT_TOKENS: usage.output_tokens,
        names.CACHE_READ: usage.cache_read_tokens,
        names.CACHE_WRITE: usage.cache_write_tokens,
        names.REASONING: usage.reasoning_tokens,
    }
    return {name: count for name, count in counts.items() if count}


def _links_to_current() -> Sequence[Link]:
    current = trace.get_current_span().get_span_context()
    return [Link(current)] if current.is_valid else []


def _links_of(row: Proposal | None) -> Sequence[Link]:
    """Links to the requests that proposed and decided the call."""
    if row is None:
        return []
    traces = [row.trace, row.decision.trace if row.decision else ""]
    found = [
        trace.get_current_span(_propagator.extract({"traceparent": one})).get_span_context()
        for one in dict.fromkeys(filter(None, traces))
    ]
    return [Link(one) for one in found if one.is_valid]
