"""Spans and metrics of real turns, as an SDK exports them."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from typing import Any

import pytest
from opentelemetry import metrics, trace
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.trace import SpanKind, StatusCode
from websockets.sync.client import connect

from sayso import Agent, Call, ModelError, Reply, Text, Turn, Usage, tool
from sayso.testing import Served, scripted, user
from sayso_telemetry import Telemetry
from sayso_telemetry.names import CAPTURE

REMOTE = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
SECRET = "hunter2-hunter2-hunter2"
exporter = InMemorySpanExporter()
reader = InMemoryMetricReader()


@pytest.fixture(scope="module", autouse=True)
def sdk() -> Iterator[None]:
    provider = TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    # The SDK sets them for good, and then the services of later test files are traced as well.
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(trace, "_TRACER_PROVIDER", provider)
        patch.setattr(metrics._internal, "_METER_PROVIDER", MeterProvider([reader]))
        yield


@pytest.fixture(autouse=True)
def _fresh(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.delenv(CAPTURE, raising=False)
    exporter.clear()
    yield


def spans(name: str) -> list[ReadableSpan]:
    """The finished spans whose names begin so, of Sayso's scope."""
    done = exporter.get_finished_spans()
    ours = [s for s in done if s.instrumentation_scope and s.instrumentation_scope.name == "sayso"]
    return [span for span in ours if span.name.startswith(name)]


@tool
def look(name: str) -> str:
    """Look something up."""
    trace.get_tracer("of-the-tool").start_span("inside").end()
    return f"{name} is here, {SECRET}"


@tool(requires_approval=True)
def delete(name: str) -> str:
    """Delete something."""
    return f"{name} is gone"


def counted(*blocks: Any) -> Reply:
    stop = "tool_use" if any(isinstance(b, Call) for b in blocks) else "end_turn"
    return Reply(Turn("assistant", [*blocks]), stop, Usage(7, 3, 2, 1))  # type: ignore[arg-type]


def test_a_turn_has_the_spans_of_the_conventions(sayso_served: Served) -> None:
    steps = counted(Call("c1", "look", {"name": "web"})), counted(Text("fine"))
    agent = Agent(name="kube", model=scripted(*steps), tools=[look])
    service = sayso_served(agent, [Telemetry()])
    service.ask("where is web?", headers={"traceparent": REMOTE})
    (turn,) = spans("invoke_agent")
    first, second = spans("chat")
    (call,) = spans("execute_tool")
    assert turn.name == "invoke_agent kube"
    assert call.name == "execute_tool look"
    assert turn.attributes is not None and first.attributes is not None
    assert turn.attributes["gen_ai.operation.name"] == "invoke_agent"
    assert turn.attributes["gen_ai.usage.input_tokens"] == 20
    assert turn.attributes["sayso.stop_reason"] == "end_turn"
    assert first.kind is SpanKind.CLIENT
    assert first.attributes["gen_ai.usage.input_tokens"] == 10
    assert first.attributes["gen_ai.usage.cache_read.input_tokens"] == 2
    assert first.attributes["gen_ai.response.finish_reasons"] == ("tool_use",)
    assert turn.context is not None and call.context is not None
    for child in (first, second, call):
        assert child.parent is not None and child.parent.span_id == turn.context.span_id
    (inside,) = [s for s in exporter.get_finished_spans() if s.name == "inside"]
    assert inside.parent is not None and inside.parent.span_id == call.context.span_id
    said = json.dumps([json.loads(span.to_json()) for span in exporter.get_finished_spans()])
    assert "where is web" not in said and SECRET not in said and "fine" not in said


def test_a_trace_goes_on_from_the_request(sayso_served: Served) -> None:
    service = sayso_served(Agent(model=scripted("fine")), [Telemetry()])
    service.ask("hello", headers={"traceparent": REMOTE})
    (turn,) = spans("invoke_agent")
    assert turn.context is not None
    assert f"{turn.context.trace_id:032x}" == REMOTE.split("-")[1]


def test_an_approved_call_has_links_to_its_proposal_and_decision(sayso_served: Served) -> None:
    steps = [Call("c1", "delete", {"name": "web"})], "done"
    service = sayso_served(Agent(model=scripted(*steps), tools=[delete]), [Telemetry()])
    talk = service.conversation()
    talk.say("delete web")
    talk.approve()
    first, second = spans("invoke_agent")
    assert first.attributes is not None
    assert first.attributes["sayso.stop_reason"] == "approval_required"
    assert first.status.status_code is StatusCode.UNSET
    (call,) = spans("execute_tool")
    ids = [link.context.trace_id for link in call.links]
    assert first.context is not None and second.context is not None
    assert ids == [first.context.trace_id, second.context.trace_id]
    assert [span.name for span in spans("sayso.approval.")] == [
        "sayso.approval.proposed",
        "sayso.approval.approved",
    ]
    decided = spans("sayso.approval.approved")[0]
    assert [link.context.trace_id for link in decided.links][0] == first.context.trace_id


def test_a_failure_has_a_type_and_no_text(sayso_served: Served) -> None:
    failure = ModelError("overloaded", f"the model said {SECRET}")
    service = sayso_served(Agent(model=scripted(failure)), [Telemetry()])
    service.ask("hello")
    for span, kind in ((spans("chat")[0], "overloaded"), (spans("invoke_agent")[0], None)):
        assert span.attributes is not None
        assert span.status.status_code is StatusCode.ERROR and not span.status.description
        assert span.attributes["error.type"] == (kind or "MODEL_OVERLOADED")
    assert SECRET not in "".join(str(span.to_json()) for span in spans(""))


def test_contents_come_only_with_the_standard_variable_and_without_secrets(
    sayso_served: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(CAPTURE, "SPAN_ONLY")
    steps = [Call("c1", "look", {"name": "web"})], "fine"
    agent = Agent(model=scripted(*steps), tools=[look], system_prompt=f"Use {SECRET}.")
    service = sayso_served(agent, [Telemetry()])
    message = user(f"where? {SECRET}", platform_context={"platform_token": SECRET})
    service.chat(message)
    first = spans("chat")[0]
    assert first.attributes is not None
    asked = json.loads(str(first.attributes["gen_ai.input.messages"]))
    assert asked[0]["role"] == "user" and asked[0]["parts"][0]["content"].startswith("where?")
    assert "gen_ai.output.messages" in first.attributes
    call = spans("execute_tool")[0]
    assert call.attributes is not None
    assert json.loads(str(call.attributes["gen_ai.tool.call.arguments"])) == {"name": "web"}
    assert "is here" in str(call.attributes["gen_ai.tool.call.result"])
    assert SECRET not in "".join(str(span.to_json()) for span in spans(""))


def test_each_turn_of_a_websocket_is_a_trace_of_its_own(sayso_served: Served) -> None:
    service = sayso_served(Agent(model=scripted("one", "two")), [Telemetry()])
    path = next(r.split()[1] for r in service.routes if r.startswith("WEBSOCKET"))
    with connect(f"ws://127.0.0.1:{service.port}{path}") as socket:
        for _ in range(2):
            socket.send(json.dumps({"messages": [user("hello")]}))
            while json.loads(socket.recv(timeout=20))["type"] != "done":
                pass
    first, second = spans("invoke_agent")
    assert first.parent is None and second.parent is None
    assert first.context is not None and second.context is not None
    assert first.context.trace_id != second.context.trace_id


def recorded() -> dict[str, list[dict[str, Any]]]:
    """The points of each metric."""
    found: dict[str, list[dict[str, Any]]] = {}
    for of_resource in json.loads(reader.get_metrics_data().to_json())["resource_metrics"]:
        for scope in of_resource["scope_metrics"]:
            if scope["scope"]["name"] == "sayso":
                for metric in scope["metrics"]:
                    found[metric["name"]] = metric["data"]["data_points"]
    return found


def test_metrics_have_the_names_of_the_conventions_and_no_person(sayso_served: Served) -> None:
    config = '[auth]\nscheme = "bearer"\n[auth.tokens]\nana = "t0ken-of-ana-that-is-long"\n'
    steps = counted(Call("c1", "delete", {"name": "web"})), "done"
    agent = Agent(name="measured", model=scripted(*steps), tools=[delete])
    service = sayso_served(agent, [Telemetry()], config=config)
    talk = service.conversation(token="t0ken-of-ana-that-is-long")
    talk.say("delete web")
    talk.approve()
    service.host.delivered("slack", "sent", 1.5)
    assert service.ask("hello", headers={"Authorization": "Bearer wr0ng"}).status == 401
    found = recorded()
    (refused,) = found["sayso.authentication.refused"]
    assert refused["attributes"] == {"sayso.protocol": "v2", "sayso.reason": "wrong"}
    assert refused["value"] == 1
    assert {
        "gen_ai.invoke_agent.duration",
        "gen_ai.invoke_agent.tool_calls",
        "gen_ai.execute_tool.duration",
        "gen_ai.client.inference.duration",
        "gen_ai.client.inference.usage.input_tokens",
        "sayso.turns",
        "sayso.approvals",
        "sayso.approval.wait",
        "sayso.approvals.pending",
        "sayso.ledger.duration",
        "sayso.outbox.lag",
        "sayso.threads",
    } <= found.keys()
    outcomes = {p["attributes"]["sayso.outcome"] for p in found["sayso.turns"]}
    assert {"approval_required", "end_turn"} <= outcomes
    assert "ana" not in json.dumps(found)


def test_it_imports_the_api_alone_and_ends_the_spans_of_the_sdks() -> None:
    script = (
        "import sys, os, sayso_telemetry, sayso_a2a; sayso_telemetry.Telemetry();"
        "assert not [m for m in sys.modules if m.startswith('opentelemetry.sdk')];"
        "assert os.environ['ANTHROPIC_OPEN_TELEMETRY'] == 'false';"
        "assert os.environ['OTEL_INSTRUMENTATION_A2A_SDK_ENABLED'] == 'false'"
    )
    bare = {k: v for k, v in os.environ.items() if not k.startswith(("OTEL_", "ANTHROPIC_"))}
    subprocess.run([sys.executable, "-c", script], check=True, timeout=120, env=bare)
