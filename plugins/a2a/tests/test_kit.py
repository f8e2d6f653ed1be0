"""What the protocol's test kit (1.0) checks, over both bindings, against the kit's agent.

What the agent itself does is in `test_fixture.py`.
"""

from __future__ import annotations

import json
import re
import runpy
import threading
import time
from collections.abc import Generator, Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from a2a_services import V1, Service, configured, message, running, wait_for

AGENT = Path(__file__).resolve().parents[3] / "examples" / "a2a_fixture" / "agent.py"
TERMINAL = {f"TASK_STATE_{s}" for s in ("COMPLETED", "FAILED", "CANCELED", "REJECTED")}
REASONS = {
    -32001: (404, "TASK_NOT_FOUND"),
    -32002: (400, "TASK_NOT_CANCELABLE"),
    -32003: (400, "PUSH_NOTIFICATION_NOT_SUPPORTED"),
    -32004: (400, "UNSUPPORTED_OPERATION"),
    -32005: (400, "CONTENT_TYPE_NOT_SUPPORTED"),
    -32009: (400, "VERSION_NOT_SUPPORTED"),
    -32602: (400, "INVALID_PARAMS"),
}
"""For each JSON-RPC code the HTTP status and the reason (A2A 1.0, section 5.4)."""

ROUTES = {
    "SendMessage": ("POST", "/message:send"),
    "SendStreamingMessage": ("POST", "/message:stream"),
    "GetTask": ("GET", "/tasks/{id}"),
    "ListTasks": ("GET", "/tasks"),
    "CancelTask": ("POST", "/tasks/{id}:cancel"),
    "SubscribeToTask": ("POST", "/tasks/{id}:subscribe"),
    "CreateTaskPushNotificationConfig": ("POST", "/tasks/{taskId}/pushNotificationConfigs"),
    "GetTaskPushNotificationConfig": ("GET", "/tasks/{taskId}/pushNotificationConfigs/{id}"),
    "ListTaskPushNotificationConfigs": ("GET", "/tasks/{taskId}/pushNotificationConfigs"),
    "DeleteTaskPushNotificationConfig": (
        "DELETE",
        "/tasks/{taskId}/pushNotificationConfigs/{id}",
    ),
    "GetExtendedAgentCard": ("GET", "/extendedAgentCard"),
}
STREAMED = ("SendStreamingMessage", "SubscribeToTask")


class Binding:
    """The operations over one binding, at the address that the card states for it."""

    def __init__(self, service: Service, name: str) -> None:
        card = service.http.get("/.well-known/agent-card.json").json()
        # The kit takes the first interface of each binding.
        found = [i for i in card["supportedInterfaces"] if i["protocolBinding"] == name]
        assert found[0]["protocolVersion"] == "1.0"
        self.url = found[0]["url"]
        self.rpc = name == "JSONRPC"
        self.http = httpx.Client(timeout=15.0)

    def request(self, operation: str, headers: dict[str, str], **fields: Any) -> httpx.Request:
        """An operation as the binding writes it."""
        sent = {**V1, **headers}
        if operation in STREAMED:
            sent["accept"] = "text/event-stream"
        if self.rpc:
            call = {"jsonrpc": "2.0", "id": 7, "method": operation, "params": fields}
            return self.http.build_request("POST", self.url, json=call, headers=sent)
        method, path = ROUTES[operation]
        inside = {name for name in fields if f"{{{name}}}" in path}
        rest = {name: value for name, value in fields.items() if name not in inside}
        url = self.url + path.format(**fields)
        if method != "POST":
            return self.http.build_request(method, url, params=rest, headers=sent)
        sent.setdefault("content-type", "application/json")
        # To cancel and to subscribe needs no body.
        body = None if operation in ("CancelTask", "SubscribeToTask") else rest
        return self.http.build_request(method, url, json=body, headers=sent)

    def __call__(self, operation: str, **fields: Any) -> dict[str, Any]:
        """The result of an operation that succeeds."""
        found: dict[str, Any] = self._read(self.http.send(self.request(operation, {}, **fields)))
        return found

    def _read(self, response: httpx.Response) -> Any:
        assert response.status_code == 200, response.text
        assert response.headers["content-type"] == "application/json"
        return self._inner(response.json())

    def _inner(self, shown: dict[str, Any]) -> Any:
        if not self.rpc:
            return shown
        assert (shown["jsonrpc"], shown["id"]) == ("2.0", 7)
        assert set(shown) == {"jsonrpc", "id", "result"}, shown
        return shown["result"]

    def refusal(
        self, operation: str, headers: dict[str, str] | None = None, **fields: Any
    ) -> tuple[int, str]:
        """The JSON-RPC code of an operation that is refused, and the reason."""
        return self.refused(self.http.send(self.request(operation, headers or {}, **fields)))

    def refused(self, response: httpx.Response) -> tuple[int, str]:
        """The code and reason of a refusal, which must have the binding's form."""
        assert response.headers["content-type"] == "application/json", response.text
        error = response.json()["error"]
        assert isinstance(error["message"], str)
        assert error["message"]
        details = error["data" if self.rpc else "details"]
        (info,) = [d for d in details if d["@type"] == "type.googleapis.com/google.rpc.ErrorInfo"]
        assert info["domain"] == "a2a-protocol.org"
        reason = info["reason"]
        if self.rpc:
            assert response.status_code == 200
            assert set(error) == {"code", "message", "data"}
            assert REASONS[error["code"]][1] == reason
            return error["code"], reason
        (code,) = [c for c, (_, r) in REASONS.items() if r == reason]
        assert error["code"] == response.status_code == REASONS[code][0]
        return code, reason

    def stream(self, operation: str, **fields: Any) -> Generator[dict[str, Any], None, None]:
        """The events of a streamed operation, as they come."""
        response = self.http.send(self.request(operation, {}, **fields), stream=True)
        try:
            assert response.headers["content-type"].startswith("text/event-stream")
            for line in response.iter_lines():
                if line.startswith("data:"):
                    yield self._inner(json.loads(line.removeprefix("data:")))
        finally:
            response.close()

    def task(self, prefix: str) -> dict[str, Any]:
        """The task after a message whose id begins so."""
        found: dict[str, Any] = self("SendMessage", message=message("hi", id=f"{prefix}-k"))["task"]
        return found


@pytest.fixture(scope="module")
def service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Service]:
    """The kit's agent, served."""
    agent = runpy.run_path(str(AGENT))["agent"]
    with running(agent, configured(tmp_path_factory.mktemp("kit"), adapter="a2a")) as served:
        yield served


@pytest.fixture(scope="module", params=["JSONRPC", "HTTP+JSON"])
def call(request: pytest.FixtureRequest, service: Service) -> Iterator[Binding]:
    """Calls over one binding."""
    binding = Binding(service, request.param)
    with binding.http:
        yield binding


def state_of(task: dict[str, Any]) -> str:
    state: str = task["status"]["state"]
    return state


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


def test_sender_waits_for_the_end_unless_it_asks_not_to(call: Binding) -> None:
    said = message("hi", id="tck-delayed-complete-k")
    now = call("SendMessage", message=said, configuration={"returnImmediately": True})["task"]
    assert state_of(now) not in TERMINAL
    waited = call("SendMessage", message=said, configuration={"returnImmediately": False})["task"]
    assert state_of(waited) == "TASK_STATE_COMPLETED"
    assert waited["status"]["message"]["parts"] == [{"text": "Done after delay"}]


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
    """A subscriber in a thread, after its first event has come."""

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
    start = time.monotonic()
    call("SendMessage", message=message("x", id="tck-complete-task-k", taskId=task["id"]))
    for thread in threads:
        thread.join(10)
    assert time.monotonic() - start < 5
    assert one == two
    assert len(one) >= 2
    assert (one[0]["task"]["id"], state_of(one[0]["task"])) == (task["id"], state_of(task))
    assert state_of(one[-1]["statusUpdate"]) == "TASK_STATE_COMPLETED"
    assert all(event == one[0] for event in left)


@pytest.fixture(scope="module", params=["JSONRPC", "HTTP+JSON"])
def more(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Binding]:
    """Calls over one binding of a service with notifications and an extended card."""
    agent = runpy.run_path(str(AGENT))["agent"]
    options: dict[str, Any] = {
        "adapter": "a2a",
        "push_notifications": True,
        "push_hosts": ["127.0.0.1"],
        "extended_card": {"description": "For those who know us"},
    }
    with running(agent, configured(tmp_path_factory.mktemp("more"), **options)) as served:
        binding = Binding(served, request.param)
        with binding.http:
            yield binding


def test_notification_of_a_task_is_kept_listed_and_deleted_twice(more: Binding) -> None:
    at = {"taskId": more.task("tck-complete-task")["id"]}
    config = {**at, "id": "mine", "url": "http://127.0.0.1:9/hook"}
    assert more("CreateTaskPushNotificationConfig", **config) == config
    assert more("GetTaskPushNotificationConfig", **at, id="mine") == config
    assert more("ListTaskPushNotificationConfigs", **at) == {"configs": [config]}
    for _ in range(2):
        assert not more("DeleteTaskPushNotificationConfig", **at, id="mine")
    assert more.refusal("GetTaskPushNotificationConfig", **at, id="mine")[0] == -32001


def test_extended_card_has_the_fields_of_1_0_only(more: Binding) -> None:
    card = more("GetExtendedAgentCard")
    assert card["description"] == "For those who know us"
    assert not {"url", "preferredTransport", "additionalInterfaces", "protocolVersion"} & {*card}
