"""Followers of a task's stream that read slowly or leave."""

from __future__ import annotations

import asyncio
import gc
import json
import logging
import threading
from collections.abc import AsyncGenerator, Iterator
from pathlib import Path
from typing import Any

import pytest
from a2a.types import Artifact as WireArtifact
from a2a.types import Message as WireMessage
from a2a.types import (
    Part,
    Task,
    TaskArtifactUpdateEvent,
    TaskState,
    TaskStatus,
    TaskStatusUpdateEvent,
)
from a2a_services import (
    PATIENCE,
    V1,
    Cluster,
    Rpc,
    Service,
    coming,
    configured,
    message,
    running,
    wait_for,
)

from sayso import AgentMessage, Message, RequestContext
from sayso_a2a import Artifact, reply, send_artifact
from sayso_a2a.official import following
from sayso_a2a.official.stores import KeptTasks

LARGE = 500_000
"""Characters of an artifact: more than a few do not fit into the buffers of a connection."""


class Painter:
    """An agent that paints one picture repeatedly once a follower is there."""

    def __init__(self) -> None:
        self.begin = threading.Event()

    def __call__(self, messages: list[Message], context: RequestContext) -> AgentMessage:
        """Paint the picture."""
        assert self.begin.wait(PATIENCE)
        for number in range(60):
            send_artifact(context, Artifact(f"{number} ".ljust(LARGE, "."), id="picture"))
        return reply("Painted.")


def _read(lines: Iterator[str]) -> Iterator[dict[str, Any]]:
    return (json.loads(line[5:])["result"] for line in lines if line.startswith("data:"))


@pytest.mark.parametrize("method", ["SendStreamingMessage", "SubscribeToTask"])
def test_follower_that_the_task_outran_gets_what_became_of_it(tmp_path: Path, method: str) -> None:
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
    assert pictures[-1]["parts"] == [{"text": "Painted."}]


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


class Writer:
    """An agent that writes a text in three chunks."""

    def __call__(self, messages: list[Message], context: RequestContext) -> AgentMessage:
        """Write the text."""
        send_artifact(context, Artifact("one ", id="text"), last=False)
        send_artifact(context, Artifact("two ", id="text"), append=True, last=False)
        send_artifact(context, Artifact("three", id="text"), append=True)
        return reply("Written.")


def test_subscriber_who_comes_while_a_chunk_is_stored_gets_it_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    stores, subscribed = threading.Event(), threading.Event()
    save = KeptTasks.save

    async def slow(self: KeptTasks, task: Task, *given: Any, **named: Any) -> None:
        if any(len(artifact.parts) == 2 for artifact in task.artifacts):
            stores.set()
            await asyncio.to_thread(subscribed.wait, PATIENCE)
        await save(self, task, *given, **named)

    monkeypatch.setattr(KeptTasks, "save", slow)
    with running(Writer(), configured(tmp_path, adapter="a2a")) as service:
        rpc = Rpc(service)
        at_once = {"returnImmediately": True}
        sent = rpc("SendMessage", message=message("write"), configuration=at_once)
        assert stores.wait(PATIENCE)
        seen = []
        for event in coming(service, "/a2a/rpc", _subscription(sent["result"]["task"]["id"])):
            seen.append(event["result"])
            subscribed.set()
    assert _text(seen) == "one two three"


def _subscription(task_id: str) -> dict[str, Any]:
    return {"jsonrpc": "2.0", "id": 1, "method": "SubscribeToTask", "params": {"id": task_id}}


def _text(events: list[dict[str, Any]]) -> str:
    """The text of the artifact as a follower assembles it."""
    [started] = [event["task"]["artifacts"][0] for event in events if "task" in event]
    parts = list(started["parts"])
    for update in [event["artifactUpdate"] for event in events if "artifactUpdate" in event]:
        if update["artifact"]["artifactId"] != started["artifactId"]:
            continue
        parts = [*(parts if update.get("append") else ()), *update["artifact"]["parts"]]
    return "".join(part["text"] for part in parts)


@pytest.mark.parametrize("binding", ["rpc", "rest"])
def test_follower_of_a_task_that_outlives_the_process_is_told_that_it_stops(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, binding: str
) -> None:
    cluster = Cluster()
    config = configured(tmp_path, ledger=f"sqlite:///{tmp_path}/ledger.db", adapter="a2a")
    with running(cluster.agent, config) as here, running(Cluster().agent, config) as there:
        at_once = {"returnImmediately": True}
        sent = Rpc(here)("SendMessage", message=message("hold"), configuration=at_once)
        task_id = sent["result"]["task"]["id"]
        rest = f"/a2a/rest/tasks/{task_id}:subscribe"
        path, body = (rest, None) if binding == "rest" else ("/a2a/rpc", _subscription(task_id))
        events = coming(there, path, body)
        next(events)
        there.host.stopping = True
        [*_, last] = events
        assert "the service is stopping" in last["error"]["message"]
        cluster.holding.set()
    assert [record for record in caplog.records if record.levelno >= logging.ERROR] == []


def test_artifact_of_a_task_that_still_runs_is_not_said_to_be_whole(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(following, "EVERY", 0.0)
    working, completed = TaskState.TASK_STATE_WORKING, TaskState.TASK_STATE_COMPLETED
    stored = [_with_text("one ", working), _with_text("one two", completed)]

    async def look(task_id: str) -> Task | None:
        return stored.pop(0)

    async def reported() -> list[bool]:
        events = following.changes(_with_text("", working), look)
        return [e.last_chunk async for e in events if isinstance(e, TaskArtifactUpdateEvent)]

    assert asyncio.run(reported()) == [False, True]


@pytest.mark.parametrize(
    ("found", "reported"),
    [
        (["1", "2", "3"], (True, ["2", "3"])),
        (["1 and more"], (False, ["1 and more"])),
        (["0", "2"], (False, ["0", "2"])),
        ([], (False, [])),
    ],
)
def test_artifact_that_has_grown_in_the_store_is_told_by_what_was_added(
    monkeypatch: pytest.MonkeyPatch, found: list[str], reported: tuple[bool, list[str]]
) -> None:
    monkeypatch.setattr(following, "EVERY", 0.0)
    completed = TaskStatus(state=TaskState.TASK_STATE_COMPLETED)
    known = Task(id="t", status=_status("", TaskState.TASK_STATE_WORKING), artifacts=[_chunks("1")])

    async def look(task_id: str) -> Task | None:
        return Task(id="t", status=completed, artifacts=[_chunks(*found)])

    async def use() -> list[tuple[bool, list[str]]]:
        return [
            (event.append, [part.text for part in event.artifact.parts])
            async for event in following.changes(known, look)
            if isinstance(event, TaskArtifactUpdateEvent)
        ]

    assert asyncio.run(use()) == [reported]


def _with_text(text: str, state: TaskState.ValueType) -> Task:
    return Task(id="t", status=TaskStatus(state=state), artifacts=[_chunks(text)])


def test_task_that_is_ahead_of_several_changes_is_told_none_of_them_again() -> None:
    working, completed = TaskState.TASK_STATE_WORKING, TaskState.TASK_STATE_COMPLETED
    one, two, end = _status("one", working), _status("two", working), _status("end", completed)
    ahead = Task(id="t", status=two, history=[one.message], artifacts=[_chunks("1", "2")])
    stored = Task(id="t", status=end, artifacts=[_chunks("1", "2", "3")])
    changes = [one, "1", two, "2", "3", end]

    async def events() -> AsyncGenerator[Any, None]:
        yield ahead
        for change in changes:
            if isinstance(change, TaskStatus):
                yield TaskStatusUpdateEvent(task_id="t", status=change)
            else:
                yield TaskArtifactUpdateEvent(task_id="t", artifact=_chunks(change), append=True)

    async def look(task_id: str) -> Task | None:
        return stored

    async def reported() -> list[str]:
        [_, *rest] = [event async for event in following.without_repeats(events(), look)]
        return [
            event.artifact.parts[0].text
            if isinstance(event, TaskArtifactUpdateEvent)
            else event.status.message.message_id
            for event in rest
        ]

    assert asyncio.run(reported()) == ["3", "end"]


def _status(id: str, state: TaskState.ValueType) -> TaskStatus:
    return TaskStatus(state=state, message=WireMessage(message_id=id))


def _chunks(*texts: str) -> WireArtifact:
    return WireArtifact(artifact_id="a", parts=[Part(text=text) for text in texts])
