"""Invalid requests: both adapters answer in their own words, and keep working."""

from __future__ import annotations

import asyncio
import base64
import copy
import json
import re
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from http.client import HTTPConnection
from itertools import pairwise
from pathlib import Path
from typing import Any

import httpx
import pytest
from a2a_services import PATIENCE, V1, Rpc, Serve, Service, configured, message, running, wait_for
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from sayso import Message, RequestContext
from sayso_a2a import incoming
from sayso_a2a.official.mends import Mended

TEXT = st.text(st.characters(exclude_categories=()), max_size=20)
KEYS = st.sampled_from(
    ["message", "id", "data", "parts", "role", "taskId", "tool_calls", "approvals", "session", "a"]
)
JSON = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.sampled_from([10**30, -(10**400), 1 << 63, 0, -1])
    | st.floats()
    | TEXT,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(KEYS | TEXT, inner, max_size=4),
    max_leaves=12,
)
DEPTHS = st.sampled_from([70, 150, 5000, 60_000])
HEADERS = st.fixed_dictionaries(
    {},
    optional={
        "A2A-Version": st.sampled_from(["1.0", "0.3", "", "1", "x", "99.0", "1.0.7", "-1"]),
        "content-type": st.sampled_from(
            ["application/json", "application/json; charset=latin-1", "text/plain", "", "x/y;;="]
        ),
        "accept": st.sampled_from(["*/*", "text/html", "application/a2a+json", ""]),
        "A2A-Extensions": st.sampled_from(["", ",", "urn:x,urn:y"]),
    },
)
SENT = {"messageId": "m", "role": "ROLE_USER", "parts": [{"text": "hi"}], "metadata": {}}
OLD = {
    "kind": "message",
    "messageId": "m",
    "role": "user",
    "parts": [{"kind": "text", "text": "hi"}],
}
CALLS: list[dict[str, Any]] = [
    {"method": "SendMessage", "params": {"message": SENT, "configuration": {"historyLength": 1}}},
    {"method": "SendMessage", "params": {"message": {**SENT, "parts": [{"data": {"id": "x"}}]}}},
    {"method": "SendStreamingMessage", "params": {"message": SENT}},
    {"method": "GetTask", "params": {"id": "x", "historyLength": 1}},
    {"method": "ListTasks", "params": {"pageSize": 1, "status": 1, "contextId": "c"}},
    {"method": "CancelTask", "params": {"id": "x"}},
    {"method": "SubscribeToTask", "params": {"id": "x"}},
    {"method": "CreateTaskPushNotificationConfig", "params": {"taskId": "x", "url": "http://x"}},
    {"method": "message/send", "params": {"message": OLD, "configuration": {"blocking": True}}},
    {"method": "message/send", "params": {"message": OLD, "configuration": {"historyLength": 1}}},
    {"method": "tasks/get", "params": {"id": "x", "historyLength": 1}},
]
SENDS: list[dict[str, Any]] = [
    {"message": "hi", "id": "x", "data": {"tool_calls": [{"id": "1", "name": "t", "input": {}}]}},
    {"message": "hi", "data": {"approvals": [{"id": "1", "execute": True}], "session": {}}},
]
FUZZ = settings(
    max_examples=150,
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)


def agent(messages: list[Message], context: RequestContext) -> str:
    """Answer with a fixed text."""
    return "ok"


@pytest.fixture(scope="module")
def service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Service]:
    """Both adapters, for a callable."""
    folder = tmp_path_factory.mktemp("bad")
    with running(agent, configured(folder, adapter="both", push_notifications=True)) as served:
        yield served


def _paths(value: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    yield path
    if isinstance(value, dict):
        for key, inner in value.items():
            yield from _paths(inner, (*path, key))
    elif isinstance(value, list):
        for index, inner in enumerate(value):
            yield from _paths(inner, (*path, index))


def _replaced(value: Any, path: tuple[Any, ...], by: Any) -> Any:
    if not path:
        return by
    value = copy.deepcopy(value)
    holder = value
    for step in path[:-1]:
        holder = holder[step]
    holder[path[-1]] = by
    return value


@st.composite
def bodies(draw: st.DrawFn, valid: list[dict[str, Any]]) -> bytes:
    """Bodies: nearly valid ones, deeply nested ones, any JSON, any bytes."""
    kind = draw(st.sampled_from(["near", "near", "near", "json", "deep", "bytes"]))
    if kind == "bytes":
        return draw(st.binary(max_size=60))
    right = draw(st.sampled_from(valid))
    path = draw(st.sampled_from(list(_paths(right))))
    if kind == "deep":
        depth = draw(DEPTHS)
        text = json.dumps(_replaced(right, path, "HERE"))
        return text.replace('"HERE"', "[" * depth + "]" * depth).encode()
    return json.dumps(draw(JSON) if kind == "json" else _replaced(right, path, draw(JSON))).encode()


def _check_rpc(answer: httpx.Response) -> None:
    assert answer.status_code == 200, answer.text
    if answer.headers["content-type"].startswith("text/event-stream"):
        return
    assert answer.headers["content-type"] == "application/json"
    shown = answer.json()
    assert shown["jsonrpc"] == "2.0"
    assert ("result" in shown) is not ("error" in shown), shown
    if "error" in shown:
        assert isinstance(shown["error"]["code"], int)
        assert shown["error"]["message"]
        assert shown["error"]["code"] != -32603, shown


@FUZZ
@given(body=bodies([{"jsonrpc": "2.0", "id": 1, **call} for call in CALLS]), headers=HEADERS)
def test_json_rpc_answers_anything(service: Service, body: bytes, headers: dict[str, str]) -> None:
    headers.setdefault("content-type", "application/json")
    _check_rpc(service.http.post("/a2a/rpc", content=body, headers=headers))


REST = ["/message:send", "/message:stream", "/tasks/x:cancel", "/tasks/x:subscribe"]
REST += ["/tasks/x/pushNotificationConfigs", "/v1/message:send", "/acme/message:send", "/tasks"]


@FUZZ
@given(
    body=bodies([call["params"] for call in CALLS]),
    headers=HEADERS,
    path=st.sampled_from(REST),
    method=st.sampled_from(["POST", "POST", "POST", "GET", "PUT", "DELETE", "PATCH"]),
)
def test_rest_answers_anything(
    service: Service, body: bytes, headers: dict[str, str], path: str, method: str
) -> None:
    headers.setdefault("content-type", "application/json")
    answer = service.http.request(method, f"/a2a/rest{path}", content=body, headers=headers)
    _check_rest(answer)


def _check_rest(answer: httpx.Response) -> None:
    assert answer.status_code < 500, answer.text
    if answer.status_code >= 400:
        assert answer.headers["content-type"] == "application/json" or (
            answer.headers["content-type"] == "application/a2a+json"
        )
        error = answer.json()["error"]
        assert error["code"] == answer.status_code
        assert error["message"]


@FUZZ
@given(
    name=st.sampled_from(
        ["pageSize", "pageToken", "status", "contextId", "historyLength", "includeArtifacts"]
    )
    | TEXT,
    value=TEXT | st.integers().map(str) | st.sampled_from(["9999-12-31T00:00:00Z", "TASK"]),
    path=st.sampled_from(["/tasks", "/tasks/x", "/tasks/\x00", "/tasks/x/pushNotificationConfigs"]),
    old=st.booleans(),
)
def test_rest_answers_any_query(
    service: Service, name: str, value: str, path: str, old: bool
) -> None:
    params = {
        text.encode("utf-8", "surrogatepass"): given.encode("utf-8", "surrogatepass")
        for text, given in ((name, value),)
    }
    query = httpx.QueryParams({k.decode("latin-1"): v.decode("latin-1") for k, v in params.items()})
    base = service.url + ("/a2a/rest/v1" if old else "/a2a/rest")
    url = httpx.URL(base + path.replace("\x00", "%00"), params=query)
    _check_rest(service.http.get(url, headers={"A2A-Version": "0.3"} if old else V1))


@FUZZ
@given(body=bodies(SENDS), headers=HEADERS)
def test_simple_adapter_answers_anything(
    service: Service, body: bytes, headers: dict[str, str]
) -> None:
    headers.setdefault("content-type", "application/json")
    answer = service.http.post("/a2a/tasks/send", content=body, headers=headers)
    assert answer.status_code in (200, 404, 409, 413, 415, 422), answer.text
    assert answer.headers["content-type"] == "application/json"
    assert ("status" if answer.status_code == 200 else "detail") in answer.json()


@FUZZ
@given(id=TEXT, method=st.sampled_from(["GET", "POST", "PUT", "DELETE"]), cancel=st.booleans())
def test_simple_adapter_answers_any_id(
    service: Service, id: str, method: str, cancel: bool
) -> None:
    quoted = "".join(f"%{byte:02x}" for byte in id.encode("utf-8", "surrogatepass"))
    path = f"/a2a/tasks/{quoted}" + ("/cancel" if cancel else "")
    answer = service.http.request(method, path)
    assert answer.status_code in (404, 405, 422), answer.text
    assert "detail" in answer.json()


@pytest.mark.parametrize(
    ("method", "params"),
    [
        ("message/send", {}),
        ("message/send", None),
        ("message/send", {"message": {**OLD, "role": "system"}}),
        ("message/stream", {"message": {**OLD, "parts": [{"kind": "song"}]}}),
        ("tasks/get", {}),
        ("tasks/cancel", {"id": 3}),
    ],
)
def test_wrong_params_of_0_3_have_the_code_of_the_specification(
    service: Service, method: str, params: Any
) -> None:
    call = {"jsonrpc": "2.0", "id": 7, "method": method, "params": params}
    for headers in ({}, {"A2A-Version": "0.3"}):
        answer = service.http.post("/a2a/rpc", json=call, headers=headers).json()
        assert (answer["id"], answer["error"]["code"]) == (7, -32602)
        no_call = {**call, "jsonrpc": "1.0"}
        answer = service.http.post("/a2a/rpc", json=no_call, headers=headers).json()
        assert (answer["id"], answer["error"]["code"]) == (7, -32600)


@pytest.mark.parametrize("id", [None, True, 1.5, [1], {"token": "a-secret"}, "absent"])
def test_no_refusal_of_0_3_repeats_what_was_sent(service: Service, id: Any) -> None:
    message = {**OLD, "parts": [{"kind": "text", "text": "a-secret"}]}
    call = {"jsonrpc": "2.0", "id": id, "method": "message/send", "params": {"message": message}}
    if id == "absent":
        del call["id"]
    answer = service.http.post("/a2a/rpc", json=call).json()
    assert answer["error"]["code"] == -32600
    assert answer["error"]["message"]
    assert "a-secret" not in str(answer) and "pydantic" not in str(answer)


@pytest.mark.parametrize("length", [2**31, -(2**31) - 1, 10**30, "abc", "9" * 5000])
def test_length_of_a_history_that_is_none_is_a_wrong_parameter_of_0_3(
    service: Service, length: Any
) -> None:
    old = {"A2A-Version": "0.3"}
    params: dict[str, Any] = {"id": "x", "historyLength": length}
    sent = {"message": OLD, "configuration": {"historyLength": length}}
    for method, stated in (("tasks/get", params), ("message/send", sent)):
        call = {"jsonrpc": "2.0", "id": 1, "method": method, "params": stated}
        answer = service.http.post("/a2a/rpc", json=call, headers=old).json()
        assert answer["error"]["code"] == -32602
    url = "/a2a/rest/v1/tasks/x"
    answer = service.http.get(url, params={"historyLength": length}, headers=old)
    assert answer.status_code == 400
    assert answer.json()["error"]["status"] == "INVALID_ARGUMENT"


def _with_file(service: Service, way: str, text: str) -> tuple[int, str]:
    """The code of the answer to a message with this file, and the text that the agent got."""
    new = {"raw": text, "mediaType": "text/plain"}
    old = {"kind": "file", "file": {"bytes": text, "mimeType": "text/plain"}}
    oldest = {"file": {"fileWithBytes": text, "mimeType": "text/plain"}}
    path, headers, sent = {
        "rpc 1.0": ("/a2a/rpc", V1, message("hi") | {"parts": [new]}),
        "rpc 0.3": ("/a2a/rpc", {"A2A-Version": "0.3"}, {**OLD, "parts": [old]}),
        "rest 1.0": ("/a2a/rest/message:send", V1, message("hi") | {"parts": [new]}),
        "rest 0.3": (
            "/a2a/rest/v1/message:send",
            {"A2A-Version": "0.3"},
            {"messageId": "m", "role": "ROLE_USER", "content": [oldest]},
        ),
    }[way]
    body: dict[str, Any] = {"message": sent}
    if path == "/a2a/rpc":
        method = "message/send" if way == "rpc 0.3" else "SendMessage"
        body = {"jsonrpc": "2.0", "id": 1, "method": method, "params": body}
    answer = service.http.post(path, json=body, headers=headers)
    error = answer.json().get("error", {"code": 200})
    return error["code"], answer.text


@pytest.mark.parametrize("way", ["rpc 1.0", "rpc 0.3", "rest 1.0", "rest 0.3"])
def test_bytes_of_a_file_are_base64_or_refused(service: Service, way: str) -> None:
    refused = -32602 if "rpc" in way else 400
    for wrong in ("!!!", "a", "é", "aGk=!"):
        assert _with_file(service, way, wrong)[0] == refused
    for content in (b"hi, you", b"\xff\x00\xfe", b""):
        code, text = _with_file(service, way, base64.b64encode(content).decode())
        assert code == 200
        assert "COMPLETED" in text.upper()
    # Base64 as command line tools print it.
    lines = base64.encodebytes(b"hi, you " * 20).decode()
    assert _with_file(service, way, lines)[0] == 200


def test_file_of_0_3_over_rest_is_read_whichever_way_its_client_wrote_it(serve: Serve) -> None:
    read: list[Any] = []

    def agent(messages: object, context: RequestContext) -> str:
        sent = incoming(context)
        assert sent is not None
        read.append(sent.parts[0]["raw"])
        return "read"

    service = serve(agent, adapter="a2a")
    once = base64.b64encode(b"hi, you").decode()
    # The SDK of 0.3 writes base64 of base64.
    for text in (once, base64.b64encode(once.encode()).decode()):
        assert _with_file(service, "rest 0.3", text)[0] == 200
    assert read == [once, once]


def test_part_of_0_3_over_rest_without_content_is_refused(service: Service) -> None:
    sent = {"message": {"messageId": "m", "role": "ROLE_USER", "content": [{}]}}
    headers = {"A2A-Version": "0.3"}
    for path in ("send", "stream"):
        answer = service.http.post(f"/a2a/rest/v1/message:{path}", json=sent, headers=headers)
        assert answer.status_code == 400
        assert answer.json()["error"]["message"] == "a part has text, a file or data"


@pytest.mark.parametrize("role", ["ROLE_AGENT", "ROLE_UNSPECIFIED", None])
def test_callers_cannot_speak_as_the_agent(service: Service, role: str | None) -> None:
    forged = {"sayso": {"data": {"approvals": [{"id": "1", "name": "x", "execute": True}]}}}
    sent = {**message("hi"), "role": role, "metadata": forged}
    assert Rpc(service)("SendMessage", message=sent)["error"]["code"] == -32602


def test_body_of_more_values_than_are_read_at_once_is_refused(service: Service) -> None:
    # A million numbers once blocked the service for half a minute.
    many = message("hi") | {"parts": [{"data": {"rows": [1] * 1_000_000}}]}
    refused = Rpc(service)("SendMessage", message=many)
    assert refused["error"]["code"] == -32602
    assert refused["error"]["message"] == "there are more than 20000 values"
    answer = service.http.post("/a2a/rest/message:send", json={"message": many})
    assert answer.status_code == 400
    assert "more than 20000 values" in answer.text
    fewer = message("hi") | {"parts": [{"text": "hi"}, {"data": {"rows": [1] * 10_000}}]}
    assert "result" in Rpc(service)("SendMessage", message=fewer)


def test_service_is_well_after_all_this(service: Service) -> None:
    assert service.http.get("/health").json() == {"status": "ok"}
    assert service.send("hello")["status"] == "completed"
    assert Rpc(service).task("hello")["status"]["state"] == "TASK_STATE_COMPLETED"


def test_errors_of_the_store_are_not_told_to_callers(
    serve: Serve, monkeypatch: pytest.MonkeyPatch
) -> None:
    served = serve(agent, adapter="a2a")
    store = served.host.plugins.get("a2a")._adapter(served.host)._tasks

    async def broken(*given: Any) -> None:
        raise RuntimeError("postgresql://user:hunter2@db")

    for name in ("get", "list"):
        monkeypatch.setattr(store, name, broken)
    for method, params in (
        ("GetTask", {"id": "x"}),
        ("ListTasks", {"contextId": "x"}),
        ("CancelTask", {"id": "x"}),
    ):
        error = Rpc(served)(method, **params)["error"]
        assert (error["code"], error["message"]) == (-32603, "the service failed")
    answer = served.http.get("/a2a/rest/tasks/x", headers=V1)
    assert (answer.status_code, "hunter2" in answer.text) == (500, False)


# One worker loop: on a slow machine more would start during the test, and use memory.
SERVER = """
import sys, uvicorn
from pathlib import Path
from sayso import Config, create_app
config = Config.model_validate({
    "plugins": ["a2a"],
    "server": {"state_dir": Path(sys.argv[2]), "worker_loops": 1},
    "approvals": {"ledger": "memory://"}, "plugin": {"a2a": {"adapter": "both", "max_tasks": 200}},
})
app = create_app(lambda messages, context: "ok " * 200, config=config)
settings = {"log_level": "warning", "timeout_keep_alive": 600}
uvicorn.run(app, host="127.0.0.1", port=int(sys.argv[1]), **settings)
"""


@pytest.mark.slow
@pytest.mark.parametrize(("adapter", "count"), [("simple", 3000), ("a2a", 1000)])
def test_thousands_of_sends_leave_memory_flat(
    tmp_path: Path, adapter: str, count: int, unused_port: int
) -> None:
    command = [sys.executable, "-c", SERVER, str(unused_port), str(tmp_path)]
    process = subprocess.Popen(command)
    url = f"http://127.0.0.1:{unused_port}"

    def ready() -> bool:
        assert process.poll() is None
        try:
            return httpx.get(f"{url}/health", timeout=5).status_code == 200
        except httpx.TransportError:
            return False

    def resident() -> int:
        status = Path(f"/proc/{process.pid}/status").read_text()
        found = re.search(r"VmRSS:\s+(\d+) kB", status)
        assert found is not None
        return int(found[1])

    def send(count: int) -> None:
        body: dict[str, Any] = {"message": "hi " * 200}
        path = "/a2a/tasks/send"
        if adapter == "a2a":
            path, body = "/a2a/rest/message:send", {"message": message("hi " * 200)}
        content, headers = json.dumps(body), {**V1, "content-type": "application/json"}
        connection = HTTPConnection("127.0.0.1", unused_port, timeout=PATIENCE)
        for _ in range(count):
            connection.request("POST", path, content, headers)
            answer = connection.getresponse()
            answer.read()
            assert answer.status == 200
        connection.close()

    def after(count: int) -> int:
        """The memory after this many sends over four connections."""
        with ThreadPoolExecutor(4) as pool:
            list(pool.map(send, [count // 4] * 4))
        return resident()

    try:
        wait_for(ready)
        warm, half, whole = after(1000), after(count), after(count)
        # A leak per send shows in both halves alike; one kilobyte a send is too much.
        assert min(half - warm, whole - half) < count, (warm, half, whole)
    finally:
        process.terminate()
        process.wait(PATIENCE)


@pytest.mark.parametrize(
    "call",
    [
        {"id": {}, "method": "GetTask", "params": {"id": "x"}},
        {"id": 1, "method": "SendMessage", "params": {"message": {**SENT, "parts": [5]}}},
    ],
)
def test_call_that_cannot_be_read_writes_no_trace(
    service: Service, caplog: pytest.LogCaptureFixture, call: dict[str, Any]
) -> None:
    answer = service.http.post("/a2a/rpc", json={"jsonrpc": "2.0", **call}, headers=V1)
    assert answer.json()["error"]["code"] in (-32600, -32602)
    assert "Traceback" not in caplog.text


def test_others_are_answered_between_two_long_bodies_that_came_together() -> None:
    long = b'{"jsonrpc": "2.0", "id": 1, "method": "GetTask", "params": {"id": "%b"}}' % (
        b"x" * 70_000
    )
    seen: list[str] = []
    read: list[bytes] = []

    async def app(scope: Any, receive: Any, send: Any) -> None:
        read.append((await receive())["body"])
        seen.append("long")

    async def receive() -> dict[str, Any]:
        return {"type": "http.request", "body": long, "more_body": False}

    async def send(message: Any) -> None:
        raise AssertionError(f"refused: {message}")

    async def together() -> None:
        reading = Mended(app, limit=10**6, nesting=64, rest=False)
        headers = [(b"content-type", b"application/json")]
        scope: dict[str, Any] = {"type": "http", "method": "POST", "path": "/"}
        scope["query_string"] = b""
        scope["headers"] = headers
        all_of_them = [asyncio.create_task(reading(scope, receive, send)) for _ in range(5)]
        while not all(one.done() for one in all_of_them):
            await asyncio.sleep(0)
            seen.append("other")
        await asyncio.gather(*all_of_them)

    asyncio.run(together())
    assert read == [long] * 5
    ends = [at for at, what in enumerate(seen) if what == "long"]
    assert all(after - before > 2 for before, after in pairwise(ends))
