"""The checks of the protocol's test kit (1.0) on services with other options than its agent's."""

from __future__ import annotations

import runpy
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
from a2a.types import StreamResponse
from a2a_kit import Binding, conforms, state_of
from a2a_services import AGENT, Service, bearer, configured, message, running, wait_for
from test_notifications import Listener

Offer = Callable[..., Binding]


@pytest.fixture(params=["JSONRPC", "HTTP+JSON"])
def offer(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Offer]:
    """Serves the kit's agent with options, and returns the calls over one binding."""
    with ExitStack() as stack:

        def serve(**options: Any) -> Binding:
            agent = runpy.run_path(str(AGENT))["agent"]
            config = configured(tmp_path, adapter="a2a", **options)
            binding = Binding(stack.enter_context(running(agent, config)), request.param)
            stack.enter_context(binding.http)
            return binding

        yield serve


def test_notification_of_a_task_is_kept_listed_and_deleted_twice(offer: Offer) -> None:
    more = offer(push_notifications=True, push_hosts=["127.0.0.1"])
    at = {"taskId": more.task("tck-complete-task")["id"]}
    config = {**at, "id": "mine", "url": "http://127.0.0.1:9/hook"}
    assert more("CreateTaskPushNotificationConfig", **config) == config
    assert more("GetTaskPushNotificationConfig", **at, id="mine") == config
    assert more("ListTaskPushNotificationConfigs", **at) == {"configs": [config]}
    for _ in range(2):
        assert not more("DeleteTaskPushNotificationConfig", **at, id="mine")
    assert more.refusal("GetTaskPushNotificationConfig", **at, id="mine")[0] == -32001


def test_notifications_are_delivered_with_their_credentials(offer: Offer) -> None:
    more = offer(push_notifications=True, push_hosts=["127.0.0.1"])
    listener = Listener()
    try:
        auth = {"scheme": "Bearer", "credentials": "of-the-kit"}
        wanted = {"id": "push", "url": listener.url, "authentication": auth}
        task = more(
            "SendMessage",
            message=message("hi", id="tck-input-required-k"),
            configuration={"taskPushNotificationConfig": wanted},
        )["task"]
        more("SendMessage", message=message("x", id="tck-complete-task-k", taskId=task["id"]))
        wait_for(lambda: "TASK_STATE_COMPLETED" in listener.states())
        for headers, event in listener.got:
            assert headers["authorization"] == "Bearer of-the-kit"
            conforms(StreamResponse, event)
            assert len(event) == 1
    finally:
        listener.server.shutdown()
        listener.server.server_close()


def test_extended_card_has_the_fields_of_1_0_only(offer: Offer) -> None:
    # The kit's schema of this card knows no other fields.
    call = offer(guarded=True, extended_card={"description": "For those who know us"})
    call.http.headers.update(bearer("ann"))
    assert call("GetExtendedAgentCard")["description"] == "For those who know us"


def test_extended_card_that_is_declared_only_is_not_configured(offer: Offer) -> None:
    card = {"capabilities": {"streaming": True, "extendedAgentCard": True}}
    assert offer(agent_card=card).refusal("GetExtendedAgentCard")[0] == -32007


def test_streams_are_refused_when_the_card_lacks_them(offer: Offer) -> None:
    call = offer(agent_card={"capabilities": {"streaming": False}})
    waiting = call.task("tck-input-required")
    assert call.refusal("SendStreamingMessage", message=message("hi"))[0] == -32004
    assert call.refusal("SubscribeToTask", id=waiting["id"])[0] == -32004
    assert state_of(call.task("tck-complete-task")) == "TASK_STATE_COMPLETED"


def test_required_extension_must_be_asked_for(offer: Offer) -> None:
    uri = "urn:a2a:tck:required-extension"
    extensions = [{"uri": uri, "required": True}]
    call = offer(agent_card={"capabilities": {"streaming": True, "extensions": extensions}})
    said = message("hi", id="tck-complete-task-k")
    assert call.refusal("SendMessage", message=said)[0] == -32008
    answer = call.http.send(call.request("SendMessage", {"A2A-Extensions": uri}, message=said))
    assert answer.status_code == 200
    assert "error" not in answer.json()


@pytest.fixture(params=["JSONRPC", "HTTP+JSON"])
def guarded(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[tuple[Service, str]]:
    """The kit's agent for two principals, and the name of a binding."""
    agent = runpy.run_path(str(AGENT))["agent"]
    with running(agent, configured(tmp_path, guarded=True, adapter="a2a")) as service:
        yield service, request.param


def test_callers_are_authenticated_and_see_what_is_theirs(guarded: tuple[Service, str]) -> None:
    service, name = guarded
    nobody, ann, bob = (Binding(service, name) for _ in range(3))
    ann.http.headers.update(bearer("ann"))
    bob.http.headers.update(bearer("bob"))
    with nobody.http, ann.http, bob.http:
        for headers in ({}, {"authorization": "Bearer wrong"}):
            sent = nobody.request("SendMessage", headers, message=message("hi"))
            assert nobody.http.send(sent).status_code == 401
        task = ann.task("tck-input-required")
        for operation in ("GetTask", "CancelTask", "SubscribeToTask"):
            assert bob.refusal(operation, id=task["id"])[0] == -32001
        said = message("mine", taskId=task["id"])
        assert bob.refusal("SendMessage", message=said)[0] == -32001
        assert bob.refusal("SendStreamingMessage", message=said)[0] == -32001
        assert bob("ListTasks")["tasks"] == []
        # A context of hers does not show him her messages either.
        fresh = bob("SendMessage", message=message("hi", contextId=task["contextId"]))["task"]
        assert bob("ListTasks", contextId=task["contextId"])["totalSize"] == 1
        assert fresh["id"] != task["id"]
        assert state_of(ann("GetTask", id=task["id"])) == "TASK_STATE_INPUT_REQUIRED"
