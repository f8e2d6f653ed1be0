"""Those who follow a task over a stream, and read slowly or leave."""

from __future__ import annotations

import gc
import json
import logging
import threading
from collections.abc import Iterator
from functools import partialmethod
from pathlib import Path
from typing import Any

import pytest
from a2a.server.events.event_queue_v2 import EventQueueSource
from a2a_services import (
    PATIENCE,
    V1,
    Cluster,
    Rpc,
    Service,
    configured,
    message,
    running,
    wait_for,
)

from assent import AgentMessage, Message, RequestContext
from assent_a2a import Artifact, reply, send_artifact

LARGE = 500_000
"""Characters of an artifact: more than a few do not fit into the buffers of a connection."""


class Painter:
    """An agent that paints one picture over and over, once a follower is there."""

    def __init__(self) -> None:
        self.begin = threading.Event()

    def __call__(self, messages: list[Message], context: RequestContext) -> AgentMessage:
        """Paints."""
        assert self.begin.wait(PATIENCE)
        for number in range(60):
            send_artifact(context, Artifact(f"{number} ".ljust(LARGE, "."), id="picture"))
        return reply("Painted.")


def _read(lines: Iterator[str]) -> Iterator[dict[str, Any]]:
    return (json.loads(line[5:])["result"] for line in lines if line.startswith("data:"))


@pytest.mark.parametrize("method", ["SendStreamingMessage", "SubscribeToTask"])
def test_follower_that_the_task_outran_gets_what_became_of_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, method: str
) -> None:
    # The SDK drops a follower for whom so many events wait.
    monkeypatch.setattr(EventQueueSource, "tap", partialmethod(EventQueueSource.tap, 4))
    painter = Painter()
    with running(painter, configured(tmp_path, adapter="a2a")) as service:
        rpc = Rpc(service)
        params: dict[str, Any] = {"message": message("paint")}
        if method == "SubscribeToTask":
            at_once = {"returnImmediately": True}
            sent = rpc("SendMessage", **params, configuration=at_once)
            params = {"id": sent["result"]["task"]["id"]}
        call = {"jsonrpc": "2.0", "id": 1, "method": method, "params": params}
        with service.http.stream("POST", "/a2a/rpc", json=call, headers=V1) as answer:
            events = _read(answer.iter_lines())
            task_id = next(events)["task"]["id"]
            painter.begin.set()
            wait_for(lambda: _state(rpc, task_id) == "TASK_STATE_COMPLETED")
            seen = list(events)
    pictures = [event["artifactUpdate"]["artifact"] for event in seen if "artifactUpdate" in event]
    assert len(pictures) < 60, "the follower was not slow"
    [*_, last] = [picture for picture in pictures if picture["artifactId"] == "picture"]
    assert last["parts"][0]["text"].startswith("59 ")
    status = seen[-1]["statusUpdate"]["status"]
    assert status["state"] == "TASK_STATE_COMPLETED"
    assert status["message"]["parts"] == [{"text": "Painted."}]


def _state(rpc: Rpc, task_id: str) -> str:
    return str(rpc("GetTask", id=task_id)["result"]["status"]["state"])


def test_subscriber_that_leaves_writes_no_line_into_the_log(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    cluster = Cluster()
    with running(cluster.agent, configured(tmp_path, adapter="a2a")) as service:
        rpc = Rpc(service)
        at_once = {"returnImmediately": True}
        sent = rpc("SendMessage", message=message("hold"), configuration=at_once)
        task_id = sent["result"]["task"]["id"]
        _look_and_leave(service, task_id)
        cluster.holding.set()
        wait_for(lambda: _state(rpc, task_id) == "TASK_STATE_COMPLETED")
    gc.collect()
    assert [record for record in caplog.records if record.levelno >= logging.ERROR] == []


def _look_and_leave(service: Service, task_id: str) -> None:
    params = {"id": task_id}
    call = {"jsonrpc": "2.0", "id": 1, "method": "SubscribeToTask", "params": params}
    with service.http.stream("POST", "/a2a/rpc", json=call, headers=V1) as answer:
        assert "task" in next(_read(answer.iter_lines()))
