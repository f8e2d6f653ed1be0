"""The test kit's agent, `examples/a2a_fixture/agent.py`, over both bindings."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from a2a_services import (
    PATIENCE,
    V1,
    Pause,
    Rpc,
    Service,
    coming,
    configured,
    events,
    message,
    reply_of,
    running,
    wait_for,
)

Send = Callable[[str], dict[str, Any]]
Stream = Callable[[str], list[dict[str, Any]]]


@pytest.fixture(scope="module")
def service(
    kit_agent: Callable[..., Any], tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Service]:
    """The kit's agent, served."""
    config = configured(tmp_path_factory.mktemp("state"), adapter="a2a")
    with running(kit_agent, config) as served:
        yield served


@pytest.fixture(params=["rpc", "rest"])
def send(request: pytest.FixtureRequest, service: Service) -> Send:
    """Sends a message with this id, and returns the answer's task or message."""

    def over_rpc(id: str) -> dict[str, Any]:
        return Rpc(service).send("hi", id=id)

    def over_rest(id: str) -> dict[str, Any]:
        body = {"message": message("hi", id=id)}
        answer = service.http.post("/a2a/rest/message:send", json=body, headers=V1)
        assert answer.status_code == 200, answer.text
        found: dict[str, Any] = answer.json()
        return found

    return over_rpc if request.param == "rpc" else over_rest


@pytest.fixture(params=["rpc", "rest"])
def stream(request: pytest.FixtureRequest, service: Service) -> Stream:
    """Sends a message with this id, and returns the events of the answer."""

    def over_rpc(id: str) -> list[dict[str, Any]]:
        body = {
            "jsonrpc": "2.0",
            "id": 1,
            "method": "SendStreamingMessage",
            "params": {"message": message("hi", id=id)},
        }
        return [event["result"] for event in events(service, "/a2a/rpc", body)]

    def over_rest(id: str) -> list[dict[str, Any]]:
        return events(service, "/a2a/rest/message:stream", {"message": message("hi", id=id)})

    return over_rpc if request.param == "rpc" else over_rest


def state_of(answer: dict[str, Any]) -> str:
    state: str = answer["task"]["status"]["state"]
    return state


def test_complete_task_completes_with_a_message(send: Send) -> None:
    answer = send("tck-complete-task-1")
    assert state_of(answer) == "TASK_STATE_COMPLETED"
    assert reply_of(answer["task"]) == "Hello from TCK"


@pytest.mark.parametrize(
    ("id", "part"),
    [
        ("tck-artifact-text", {"text": "Generated text content"}),
        ("tck-artifact-file", {"raw": "dGNr", "mediaType": "text/plain", "filename": "output.txt"}),
        (
            "tck-artifact-file-url",
            {
                "url": "https://example.com/output.txt",
                "mediaType": "text/plain",
                "filename": "output.txt",
            },
        ),
        ("tck-artifact-data", {"data": {"key": "value", "count": 42}}),
    ],
)
def test_artifact_has_one_part(send: Send, id: str, part: dict[str, Any]) -> None:
    answer = send(f"{id}-1")
    assert state_of(answer) == "TASK_STATE_COMPLETED"
    (artifact,) = answer["task"]["artifacts"]
    assert artifact["parts"] == [part]
    assert artifact["artifactId"]


def test_message_response_is_one_message_without_a_task(send: Send, stream: Stream) -> None:
    answer = send("tck-message-response-1")
    assert set(answer) == {"message"}
    said = answer["message"]
    assert said["parts"] == [{"text": "Direct message response"}]
    assert (said["role"], bool(said["contextId"]), "taskId" in said) == ("ROLE_AGENT", True, False)
    (event,) = stream("tck-message-response-2")
    assert event["message"]["parts"] == said["parts"]


def test_input_required_waits_and_goes_on(send: Send, service: Service) -> None:
    answer = send("tck-input-required-1")
    assert state_of(answer) == "TASK_STATE_INPUT_REQUIRED"
    done = Rpc(service).task("more", id="tck-complete-task-2", taskId=answer["task"]["id"])
    assert done["status"]["state"] == "TASK_STATE_COMPLETED"
    assert [m["messageId"] for m in done["history"] if m["role"] == "ROLE_USER"] == [
        "tck-input-required-1",
        "tck-complete-task-2",
    ]
    assert {m["contextId"] for m in done["history"]} == {answer["task"]["contextId"]}


def test_reject_task_rejects(send: Send) -> None:
    assert state_of(send("tck-reject-task-1")) == "TASK_STATE_REJECTED"


@pytest.mark.parametrize(
    ("id", "part"),
    [
        ("tck-stream-001", {"text": "Stream hello from TCK"}),
        ("tck-stream-003", {"text": "Stream task lifecycle"}),
        ("tck-stream-ordering-001", {"text": "Ordered output"}),
        ("tck-stream-artifact-text", {"text": "Streamed text content"}),
        (
            "tck-stream-artifact-file",
            {"raw": "dGNr", "mediaType": "text/plain", "filename": "output.txt"},
        ),
    ],
)
def test_stream_works_sends_an_artifact_and_completes(
    stream: Stream, id: str, part: dict[str, Any]
) -> None:
    found = stream(f"{id}-1")
    kinds = [next(iter(event)) for event in found]
    assert kinds == [
        "task",
        *["statusUpdate"] * kinds[1:].index("artifactUpdate"),
        "artifactUpdate",
        "statusUpdate",
    ]
    working = [e["statusUpdate"]["status"]["state"] for e in found if "statusUpdate" in e]
    assert set(working[:-1]) == {"TASK_STATE_WORKING"}
    assert working[-1] == "TASK_STATE_COMPLETED"
    assert found[-2]["artifactUpdate"]["artifact"]["parts"] == [part]


def test_chunked_artifact_comes_in_two_chunks(stream: Stream) -> None:
    chunks = [
        e["artifactUpdate"]
        for e in stream("tck-stream-artifact-chunked-1")
        if "artifactUpdate" in e
    ]
    assert [c["artifact"]["parts"] for c in chunks] == [
        [{"text": "chunk-1 "}],
        [{"text": "chunk-2"}],
    ]
    assert [(bool(c.get("append")), bool(c.get("lastChunk"))) for c in chunks] == [
        (False, False),
        (True, True),
    ]
    assert len({c["artifact"]["artifactId"] for c in chunks}) == 1


def test_resubscribed_task_works_four_seconds_and_completes(service: Service, pause: Pause) -> None:
    answer = Rpc(service)(
        "SendMessage",
        message=message("hi", id="test-resubscribe-message-id-1"),
        configuration={"returnImmediately": True},
    )
    # The answer and the subscribers' first events arrive while the agent still works.
    task_id = answer["result"]["task"]["id"]
    body = {"jsonrpc": "2.0", "id": 2, "method": "SubscribeToTask", "params": {"id": task_id}}
    seen: list[list[dict[str, Any]]] = [[], []]

    def follow(found: list[dict[str, Any]]) -> None:
        for event in coming(service, "/a2a/rpc", body):
            found.append(event["result"])

    threads = [threading.Thread(target=follow, args=(found,)) for found in seen]
    for thread in threads:
        thread.start()
    wait_for(lambda: all(seen) and pause.asked)
    assert Rpc(service)("GetTask", id=task_id)["result"]["status"]["state"] == "TASK_STATE_WORKING"
    pause.over.set()
    for thread in threads:
        thread.join(PATIENCE)
        assert not thread.is_alive()
    order = ["TASK_STATE_SUBMITTED", "TASK_STATE_WORKING", "TASK_STATE_COMPLETED"]
    for found in seen:
        assert found[0]["task"]["id"] == task_id
        states = [(e.get("task") or e["statusUpdate"])["status"]["state"] for e in found]
        ranks = [order.index(state) for state in states]
        assert ranks == sorted(ranks)
        assert (ranks[0] < 2, states[-1]) == (True, "TASK_STATE_COMPLETED")
    assert pause.asked == [4]
