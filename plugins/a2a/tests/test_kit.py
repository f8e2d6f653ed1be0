"""The checks of the protocol's test kit (1.0), over both bindings, against the kit's agent.

The agent's own behaviour is tested in `test_fixture.py`; checks that need other options of the
service in `test_kit_options.py`.
"""

from __future__ import annotations

import re
import threading
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from a2a.types import AgentCard
from a2a_kit import ROUTES, TERMINAL, Binding, state_of
from a2a_services import (
    PATIENCE,
    V1,
    Pause,
    Service,
    configured,
    message,
    reply_of,
    running,
    wait_for,
)
from google.protobuf.json_format import ParseDict


@pytest.fixture(scope="module")
def service(
    kit_agent: Callable[..., Any], tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Service]:
    """The kit's agent, served."""
    with running(kit_agent, configured(tmp_path_factory.mktemp("kit"), adapter="a2a")) as served:
        yield served


@pytest.fixture(scope="module", params=["JSONRPC", "HTTP+JSON"])
def call(request: pytest.FixtureRequest, service: Service) -> Iterator[Binding]:
    """Calls over one binding."""
    binding = Binding(service, request.param)
    with binding.http:
        yield binding


def test_card_has_every_required_field(service: Service) -> None:
    card = service.http.get("/.well-known/agent-card.json").json()
    required = {"name", "description", "version", "capabilities", "skills", "supportedInterfaces"}
    assert {*required, "defaultInputModes", "defaultOutputModes"} <= {*card}
    for interface in card["supportedInterfaces"]:
        assert set(interface) == {"url", "protocolBinding", "protocolVersion"}
        assert interface["protocolBinding"] in ("JSONRPC", "HTTP+JSON")


def test_message_without_content_is_refused(call: Binding) -> None:
    assert call.refusal("SendMessage")[0] == -32602


def test_unknown_method_has_a_code_and_a_message(service: Service) -> None:
    binding = Binding(service, "JSONRPC")
    with binding.http as http:
        error = http.send(binding.request("NoSuchMethod", {})).json()["error"]
    assert error["code"] == -32601
    assert error["message"]


@pytest.mark.parametrize(
    ("operation", "fields", "code"),
    [
        ("CreateTaskPushNotificationConfig", {"url": "https://example.com"}, -32003),
        ("GetTaskPushNotificationConfig", {"id": "c"}, -32003),
        ("ListTaskPushNotificationConfigs", {}, -32003),
        ("DeleteTaskPushNotificationConfig", {"id": "c"}, -32003),
    ],
)
def test_notifications_are_refused_when_the_card_lacks_them(
    call: Binding, operation: str, fields: dict[str, str], code: int
) -> None:
    assert call.refusal(operation, taskId="t", **fields)[0] == code


def test_extended_card_is_refused_when_the_card_lacks_it(call: Binding) -> None:
    assert call.refusal("GetExtendedAgentCard")[0] == -32004


def test_unknown_version_is_refused_and_a_patch_version_is_not(call: Binding) -> None:
    said = message("hi", id="tck-version")
    assert call.refusal("SendMessage", {"A2A-Version": "99.0"}, message=said)[0] == -32009
    answer = call.http.send(call.request("SendMessage", {"A2A-Version": "1.0.1"}, message=said))
    assert answer.status_code == 200
    assert "error" not in answer.json()


def test_empty_version_is_no_failure_of_the_server(call: Binding) -> None:
    request = call.request("SendMessage", {"A2A-Version": ""}, message=message("hi"))
    answer = call.http.send(request)
    assert answer.status_code < 500
    assert {"result", "error", "task"} & set(answer.json())


def test_unknown_extensions_are_no_obstacle(call: Binding) -> None:
    header = {"A2A-Extensions": "https://example.com/ext/v1,https://example.com/ext/v2"}
    answer = call.http.send(call.request("SendMessage", header, message=message("hi")))
    assert answer.status_code == 200
    assert "error" not in answer.json()


def test_unknown_fields_are_ignored(call: Binding) -> None:
    said = {**message("hi"), "unknownField": "x"}
    assert "task" in call("SendMessage", message=said, unknownParameter=42)


@pytest.mark.parametrize("operation", ["GetTask", "CancelTask", "SubscribeToTask"])
def test_unknown_task_is_not_found(call: Binding, operation: str) -> None:
    assert call.refusal(operation, id="nobody-s") == (-32001, "TASK_NOT_FOUND")


def test_message_to_an_unknown_task_is_not_found(call: Binding) -> None:
    assert call.refusal("SendMessage", message=message("hi", taskId="nobody-s"))[0] == -32001


def test_media_type_outside_the_card_is_refused(call: Binding) -> None:
    part = {"raw": "dGNr", "mediaType": "application/x-unsupported"}
    said = {**message(), "parts": [part]}
    assert call.refusal("SendMessage", message=said)[0] == -32005


def test_wrong_content_type_is_refused(call: Binding) -> None:
    header = {"content-type": "text/plain"}
    assert call.refusal("SendMessage", header, message=message("hi"))[0] == -32005


def test_ended_task_takes_nothing_more(call: Binding) -> None:
    task = call.task("tck-complete-task")
    assert state_of(call("GetTask", id=task["id"])) == "TASK_STATE_COMPLETED"
    assert call.refusal("CancelTask", id=task["id"])[0] == -32002
    assert call.refusal("SubscribeToTask", id=task["id"])[0] == -32004
    assert call.refusal("SendMessage", message=message("more", taskId=task["id"]))[0] == -32004


@pytest.mark.parametrize("prefix", ["tck-complete-task", "tck-input-required"])
def test_context_of_another_task_is_refused(call: Binding, prefix: str) -> None:
    task = call.task(prefix)
    said = message("hi", taskId=task["id"], contextId="another")
    assert call.refusal("SendMessage", message=said)[0] in (-32602, -32004)


def test_context_is_kept_inferred_or_made(call: Binding) -> None:
    assert call.task("tck-complete-task")["contextId"]
    kept = call("SendMessage", message=message("hi", contextId="context-of-mine"))["task"]
    assert kept["contextId"] == "context-of-mine"
    task = call.task("tck-input-required")
    said = message("hi", id="tck-complete-task-k", taskId=task["id"])
    done = call("SendMessage", message=said)["task"]
    assert (done["id"], done["contextId"]) == (task["id"], task["contextId"])


def test_sender_waits_for_the_end_unless_it_asks_not_to(call: Binding, pause: Pause) -> None:
    said = message("hi", id="tck-delayed-complete-k")
    now = call("SendMessage", message=said, configuration={"returnImmediately": True})["task"]
    assert state_of(now) not in TERMINAL
    wait_for(lambda: pause.asked)
    pause.over.set()
    waited = call("SendMessage", message=said, configuration={"returnImmediately": False})["task"]
    assert state_of(waited) == "TASK_STATE_COMPLETED"
    assert reply_of(waited) == "Done after delay"


@pytest.mark.parametrize("kind", ["input", "auth"])
def test_interrupted_task_is_returned_at_once_and_can_be_canceled(call: Binding, kind: str) -> None:
    task = call.task(f"tck-{kind}-required")
    assert state_of(task) == f"TASK_STATE_{kind.upper()}_REQUIRED"
    assert state_of(call("GetTask", id=task["id"])) == state_of(task)
    canceled = call("CancelTask", id=task["id"])
    assert (canceled["id"], state_of(canceled)) == (task["id"], "TASK_STATE_CANCELED")


def test_history_is_as_long_as_asked_for(call: Binding) -> None:
    task = call.task("tck-input-required")
    said = message("more", id="tck-complete-task-k", taskId=task["id"])
    done = call("SendMessage", message=said, configuration={"historyLength": 0})["task"]
    assert not done.get("history")
    assert not call("GetTask", id=task["id"], historyLength=0).get("history")
    assert len(call("GetTask", id=task["id"], historyLength=1)["history"]) == 1
    history = call("GetTask", id=task["id"], historyLength=10)["history"]
    assert [m["messageId"] for m in history if m["role"] == "ROLE_USER"] == [
        "tck-input-required-k",
        "tck-complete-task-k",
    ]


def test_list_is_sorted_paged_and_without_artifacts(call: Binding) -> None:
    context = f"list-{call.rpc}"
    for _ in range(3):
        said = message("hi", id="tck-artifact-text-k", contextId=context)
        call("SendMessage", message=said)
    first = call("ListTasks", contextId=context, pageSize=2)
    assert first["nextPageToken"]
    last = call("ListTasks", contextId=context, pageSize=2, pageToken=first["nextPageToken"])
    assert last["nextPageToken"] == ""
    tasks = [*first["tasks"], *last["tasks"]]
    stamps = [task["status"]["timestamp"] for task in tasks]
    assert len({task["id"] for task in tasks}) == 3
    assert stamps == sorted(stamps, reverse=True)
    assert not any("artifacts" in task for task in tasks)
    # In a query string it is a word.
    wanted: Any = True if call.rpc else "true"
    assert all(
        task["artifacts"]
        for task in call("ListTasks", contextId=context, includeArtifacts=wanted)["tasks"]
    )


def _walk(value: Any) -> Iterator[tuple[str, Any]]:
    if isinstance(value, dict):
        for name, inner in value.items():
            yield name, inner
            yield from _walk(inner)
    elif isinstance(value, list):
        for inner in value:
            yield from _walk(inner)


@pytest.mark.parametrize("prefix", ["tck-complete-task", "tck-artifact-file", "tck-anything"])
def test_json_is_written_as_the_protocol_says(call: Binding, prefix: str) -> None:
    task = call.task(prefix)
    found = list(_walk(task))
    assert [name for name, _ in found if re.fullmatch(r"[a-z]+(_[a-z]+)+", name)] == []
    assert all(isinstance(v, str) for name, v in found if name in ("state", "role"))
    stamps = [v for name, v in found if name == "timestamp"]
    assert stamps
    assert all(re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?Z", v) for v in stamps)
    for said in [*task["history"], *[v for k, v in found if k == "message"]]:
        assert said["messageId"]
        assert said["role"] in ("ROLE_USER", "ROLE_AGENT")
        assert said["parts"]


def test_states_of_a_stream_never_go_back(call: Binding) -> None:
    said = message("hi", id="tck-stream-ordering-001-k")
    found = list(call.stream("SendStreamingMessage", message=said))
    assert all(len(event) == 1 for event in found)
    assert set(found[0]) == {"task"}
    order = ["TASK_STATE_SUBMITTED", "TASK_STATE_WORKING", "TASK_STATE_COMPLETED"]
    statuses = [e.get("task") or e.get("statusUpdate") for e in found]
    ranks = [order.index(state_of(each)) for each in statuses if each]
    assert ranks == sorted(ranks)
    assert state_of(found[-1]["statusUpdate"]) == order[-1]


def _follow(call: Binding, id: str, seen: list[dict[str, Any]]) -> threading.Thread:
    """A subscriber in a thread, after its first event has arrived."""

    def follow() -> None:
        for event in call.stream("SubscribeToTask", id=id):
            seen.append(event)

    thread = threading.Thread(target=follow)
    thread.start()
    wait_for(lambda: seen)
    return thread


@pytest.mark.parametrize("first_leaves", [False, True])
def test_every_subscriber_of_a_waiting_task_sees_it_end(call: Binding, first_leaves: bool) -> None:
    task = call.task("tck-input-required")
    left: list[dict[str, Any]] = []
    one: list[dict[str, Any]] = []
    two: list[dict[str, Any]] = []
    threads = [_follow(call, task["id"], seen) for seen in (one, two)]
    if first_leaves:
        leaving = call.stream("SubscribeToTask", id=task["id"])
        left.append(next(leaving))
        leaving.close()
    call("SendMessage", message=message("x", id="tck-complete-task-k", taskId=task["id"]))
    for thread in threads:
        thread.join(PATIENCE)
        assert not thread.is_alive()
    assert one == two
    assert len(one) >= 2
    assert (one[0]["task"]["id"], state_of(one[0]["task"])) == (task["id"], state_of(task))
    assert state_of(one[-1]["statusUpdate"]) == "TASK_STATE_COMPLETED"
    assert all(event == one[0] for event in left)


def test_every_operation_has_its_method_and_its_route(call: Binding) -> None:
    for operation in ROUTES:
        fields = {"id": "x", "taskId": "x", "url": "https://example.com"}
        answer = call.http.send(call.request(operation, {}, **fields))
        shown = answer.json()
        if "error" not in shown:
            assert operation == "ListTasks"
            continue
        # An unknown path or method has no reason of the protocol.
        assert shown["error"]["code"] not in (-32601, 405), operation
        details = shown["error"]["data" if call.rpc else "details"]
        assert details[0]["reason"] != "METHOD_NOT_FOUND"


def test_each_task_has_an_id_of_its_own(call: Binding) -> None:
    tasks = [call.task("tck-complete-task") for _ in range(3)]
    assert len({task["id"] for task in tasks}) == len({task["contextId"] for task in tasks}) == 3


def test_stream_of_a_message_has_one_event(call: Binding) -> None:
    for id in ("tck-stream-002-k", "tck-message-response-k"):
        (event,) = call.stream("SendStreamingMessage", message=message("hi", id=id))
        assert set(event) == {"message"}


@pytest.mark.parametrize(
    "prefix", ["tck-stream-001", "tck-stream-003", "tck-stream-artifact-text", "anything"]
)
def test_stream_of_a_task_begins_with_it_and_closes_at_its_end(call: Binding, prefix: str) -> None:
    found = list(call.stream("SendStreamingMessage", message=message("hi", id=f"{prefix}-k")))
    assert set(found[0]) == {"task"}
    task = found[0]["task"]
    for event in found[1:]:
        (changed,) = event.values()
        assert (changed["taskId"], changed["contextId"]) == (task["id"], task["contextId"])
    assert state_of(found[-1]["statusUpdate"]) in TERMINAL


def test_stream_closes_where_input_is_required(call: Binding) -> None:
    sent = message("hi", id="tck-input-required-k")
    found = list(call.stream("SendStreamingMessage", message=sent))
    assert state_of(found[-1]["statusUpdate"]) == "TASK_STATE_INPUT_REQUIRED"


def test_resubscribed_task_is_streamed_to_its_end(call: Binding, pause: Pause) -> None:
    sent = message("hi", id="test-resubscribe-message-id-k")
    started = call("SendMessage", message=sent, configuration={"returnImmediately": True})["task"]
    stream = call.stream("SubscribeToTask", id=started["id"])
    found = [next(stream)]
    pause.over.set()
    found += stream
    assert found[0]["task"]["id"] == started["id"]
    assert state_of(found[-1]["statusUpdate"]) == "TASK_STATE_COMPLETED"


def test_list_is_filtered_by_state_and_time(call: Binding) -> None:
    context = f"filtered-{call.rpc}"
    for prefix in ("tck-complete-task", "tck-input-required"):
        call("SendMessage", message=message("hi", id=f"{prefix}-k", contextId=context))
    waiting = call("ListTasks", contextId=context, status="TASK_STATE_INPUT_REQUIRED")
    assert [state_of(task) for task in waiting["tasks"]] == ["TASK_STATE_INPUT_REQUIRED"]
    assert (waiting["totalSize"], waiting["nextPageToken"]) == (1, "")
    later = "2999-01-01T00:00:00Z"
    assert call("ListTasks", contextId=context, statusTimestampAfter=later)["tasks"] == []
    both = call("ListTasks", contextId=context, historyLength=0)
    assert (both["totalSize"], any(task.get("history") for task in both["tasks"])) == (2, False)
    for unknown in ("TASK_STATE_NONSENSE", "input-required"):
        assert call.refusal("ListTasks", status=unknown)[0] == -32602
    assert call.refusal("ListTasks", pageToken="nonsense")[0] == -32602
    assert call.refusal("ListTasks", pageSize=101)[0] == -32602


def test_both_bindings_tell_the_same_of_a_task(service: Service) -> None:
    rpc, rest = Binding(service, "JSONRPC"), Binding(service, "HTTP+JSON")
    with rpc.http, rest.http:
        task = rpc.task("tck-artifact-data")
        assert rest("GetTask", id=task["id"]) == rpc("GetTask", id=task["id"])
        listed = [b("ListTasks", contextId=task["contextId"]) for b in (rpc, rest)]
        assert listed[0] == listed[1]
        for operation in ("GetTask", "CancelTask", "SubscribeToTask"):
            assert rpc.refusal(operation, id="none") == rest.refusal(operation, id="none")


def test_versions_differ_on_one_address(service: Service) -> None:
    old = {
        "kind": "message",
        "messageId": "tck-complete-task-old",
        "role": "user",
        "parts": [{"kind": "text", "text": "hi"}],
    }
    body = {"jsonrpc": "2.0", "id": 1, "method": "message/send", "params": {"message": old}}
    # An empty version means 0.3, and so does none.
    for headers in ({"A2A-Version": "0.3"}, {"A2A-Version": ""}, {}):
        task = service.http.post("/a2a/rpc", json=body, headers=headers).json()["result"]
        assert (task["kind"], task["status"]["state"]) == ("task", "completed")
    new = {"jsonrpc": "2.0", "id": 1, "method": "SendMessage", "params": {"message": message("x")}}
    answer = service.http.post("/a2a/rpc", json=new, headers=V1).json()
    assert state_of(answer["result"]["task"]) == "TASK_STATE_COMPLETED"


def test_media_type_of_rest_is_json_or_as_asked_for(service: Service) -> None:
    binding = Binding(service, "HTTP+JSON")
    sent = {"message": message("hi")}
    with binding.http as http:
        for accepted, reported in (
            ({}, "application/json"),
            ({"accept": "application/json"}, "application/json"),
            ({"accept": "application/a2a+json"}, "application/a2a+json"),
        ):
            answer = http.send(binding.request("SendMessage", accepted, **sent))
            assert answer.headers["content-type"] == reported


def test_card_is_found_valid_and_cached(service: Service) -> None:
    first = service.http.get("/.well-known/agent-card.json")
    assert first.headers["content-type"] == "application/json"
    ParseDict(first.json(), AgentCard(), ignore_unknown_fields=True)
    assert int(re.findall(r"max-age=(\d+)", first.headers["cache-control"])[0]) > 0
    assert first.headers["etag"]
    assert first.headers["last-modified"].endswith("GMT")
