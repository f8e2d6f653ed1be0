"""A turn as a task shows it: the reply as an artifact, and pending calls in words."""

from __future__ import annotations

import pytest
from a2a_services import Cluster, Rpc, Serve, Service, events, message, proposals, reply_of

from sayso_a2a.official.card import EXTENSION


@pytest.fixture
def service(serve: Serve, cluster: Cluster) -> Service:
    """The cluster's agent over the official protocol."""
    return serve(cluster.agent, adapter="a2a")


@pytest.fixture
def rpc(service: Service) -> Rpc:
    """JSON-RPC calls against the service."""
    return Rpc(service)


@pytest.mark.parametrize("streams", [False, True], ids=["whole", "streamed"])
def test_reply_of_a_completed_task_is_an_artifact_and_no_status_message(
    service: Service, rpc: Rpc, cluster: Cluster, streams: bool
) -> None:
    if streams:
        found = events(service, "/a2a/rest/message:stream", {"message": message("hello you")})
        task = rpc("GetTask", id=found[0]["task"]["id"])["result"]
    else:
        task = rpc.task("hello you")
    assert reply_of(task) == "You said: hello you"
    assert len(task["artifacts"]) == 1
    rpc.task("more", contextId=task["contextId"])
    asked = [
        [getattr(block, "text", "") for block in t.blocks] for t in cluster.model.asks[-1].turns
    ]
    assert asked == [["hello you"], ["You said: hello you"], ["more"]]


@pytest.mark.parametrize("streams", [False, True], ids=["whole", "streamed"])
def test_task_that_waits_says_in_words_what_waits_and_how_it_is_decided(
    service: Service, rpc: Rpc, streams: bool
) -> None:
    if streams:
        found = events(service, "/a2a/rest/message:stream", {"message": message("delete web")})
        status = found[-1]["statusUpdate"]["status"]
    else:
        status = rpc.task("delete web")["status"]
    assert status["state"] == "TASK_STATE_INPUT_REQUIRED"
    (call,) = proposals({"status": status})
    said = "\n".join(part.get("text", "") for part in status["message"]["parts"])
    for word in ('delete_pod {"name": "web"}: Delete a pod.', call["id"], '"execute": true'):
        assert word in said
    assert status["message"]["extensions"] == [EXTENSION]


def test_words_about_what_waits_are_nothing_that_the_agent_said(rpc: Rpc, cluster: Cluster) -> None:
    task = rpc.task("delete web")
    (call,) = proposals(task)
    rpc.task({"id": call["id"], "execute": True}, taskId=task["id"])
    assert "approval" not in str(cluster.model.asks[-1].turns)


def test_extension_that_is_asked_for_is_confirmed(service: Service) -> None:
    body = {"jsonrpc": "2.0", "id": 1, "method": "ListTasks", "params": {"contextId": "x"}}
    headers = {"A2A-Version": "1.0", "A2A-Extensions": f"https://example.com/other, {EXTENSION}"}
    reported = service.http.post("/a2a/rpc", json=body, headers=headers)
    assert reported.headers["a2a-extensions"] == EXTENSION
    silent = service.http.post("/a2a/rpc", json=body, headers={"A2A-Version": "1.0"})
    assert "a2a-extensions" not in silent.headers
