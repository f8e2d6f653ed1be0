"""Tasks of the official protocol that are canceled through another process than their own."""

from __future__ import annotations

import asyncio
import json
import threading
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from a2a_services import (
    PATIENCE,
    V1,
    Cluster,
    Rpc,
    Scripted,
    Service,
    configured,
    message,
    proposals,
    running,
    wait_for,
)
from test_notifications import Listener, listener

from sayso import Agent, Ask, Call, Config, Reply, Text, TextDelta, Turn, tool

__all__ = ["listener"]


class Talker:
    """A model that says one word at once, and another when the test lets it."""

    provider = "talker"
    name = "talker-1"

    def __init__(self) -> None:
        self.goes_on = threading.Event()

    async def stream(self, ask: Ask) -> AsyncIterator[Any]:
        yield TextDelta("one ")
        await asyncio.to_thread(self.goes_on.wait, PATIENCE)
        yield TextDelta("two")
        yield Reply(Turn("assistant", [Text("one two")]), "end_turn")

    async def aclose(self) -> None:
        pass


@pytest.fixture
def config(tmp_path: Path) -> Config:
    """The configuration of services that share their tasks, each of which runs its own."""
    pytest.importorskip("aiosqlite")
    return configured(
        tmp_path,
        ledger=f"sqlite:///{tmp_path}/ledger.db",
        adapter="a2a",
        database=f"sqlite+aiosqlite:///{tmp_path}/tasks.db",
        push_notifications=True,
        push_hosts=["127.0.0.1"],
    )


@pytest.fixture(params=["file", "database"])
def either(request: pytest.FixtureRequest, config: Config, tmp_path: Path) -> Config:
    """The configuration of services that keep tasks in a file, or in a database."""
    if request.param == "database":
        return config
    return configured(tmp_path, ledger=f"sqlite:///{tmp_path}/ledger.db", adapter="a2a")


def test_task_that_is_canceled_after_a_restart_is_changed_then_and_states_no_proposal(
    either: Config, cluster: Cluster
) -> None:
    with running(cluster.agent, either) as service:
        task = Rpc(service).task("delete web")
        other = Rpc(service).task("hello")
    with running(cluster.agent, either) as service:
        rpc = Rpc(service)
        canceled = rpc("CancelTask", id=task["id"])["result"]
        kept = rpc("GetTask", id=task["id"])["result"]
        since = other["status"]["timestamp"]
        everybodys = Rpc(service, authorization=f"Bearer {service.host.start_token}")
        found = everybodys("ListTasks", statusTimestampAfter=since)["result"]["tasks"]
    for shown in (canceled, kept):
        assert shown["status"]["state"] == "TASK_STATE_CANCELED"
        assert "message" not in shown["status"]
        assert shown["status"]["timestamp"] > since
        assert [said["role"] for said in shown["history"]] == ["ROLE_USER", "ROLE_AGENT"]
    assert found[0]["id"] == task["id"]
    assert proposals(task)


def test_cancellation_is_notified_through_whichever_process_it_comes(
    config: Config, cluster: Cluster, listener: Listener
) -> None:
    with running(cluster.agent, config) as here, running(cluster.agent, config) as there:
        wanted = {"taskPushNotificationConfig": {"url": listener.url}}
        sent = Rpc(here)("SendMessage", message=message("delete web"), configuration=wanted)
        Rpc(there)("CancelTask", id=sent["result"]["task"]["id"])
        wait_for(lambda: "TASK_STATE_CANCELED" in listener.states())


def test_stream_of_a_task_that_another_process_cancels_ends_with_a_change_of_its_state(
    config: Config, monkeypatch: pytest.MonkeyPatch
) -> None:
    # The process that runs the task learns of it only with its next chunk.
    for module in ("", ".stores", ".database"):
        monkeypatch.setattr(f"sayso_a2a.official{module}.LEASE", 600.0)
    talker = Talker()
    agent = Agent(name="talker", model=talker)
    with running(agent, config) as here, running(agent, config) as there:
        sent, sending = _streamed(here, "/a2a/rest/message:stream", {"message": message("talk")})
        wait_for(lambda: any("artifactUpdate" in event for event in sent))
        task_id = sent[0]["task"]["id"]
        seen, following = _streamed(here, f"/a2a/rest/tasks/{task_id}:subscribe", {})
        wait_for(lambda: seen)
        Rpc(there)("CancelTask", id=task_id)
        talker.goes_on.set()
        sending.join(PATIENCE)
        following.join(PATIENCE)
    for events in (sent, seen):
        assert not any("task" in event for event in events[1:])
        assert events[-1]["statusUpdate"]["status"]["state"] == "TASK_STATE_CANCELED"


def _streamed(
    service: Service, path: str, body: dict[str, Any]
) -> tuple[list[dict[str, Any]], threading.Thread]:
    """The events of a stream as they arrive, and the thread that reads them."""
    seen: list[dict[str, Any]] = []

    def read() -> None:
        with service.http.stream("POST", path, json=body, headers=V1) as reply:
            for line in reply.iter_lines():
                if line.startswith("data:"):
                    seen.append(json.loads(line.removeprefix("data:")))

    thread = threading.Thread(target=read)
    thread.start()
    return seen, thread


@pytest.mark.parametrize("there_too", [False, True], ids=["here", "elsewhere"])
def test_canceled_task_tells_the_outcome_of_an_approved_call_that_had_begun(
    either: Config, there_too: bool
) -> None:
    cluster = Slow()
    with running(cluster.agent, either) as here, running(Slow().agent, either) as there:
        rpc = Rpc(here)
        canceling = Rpc(there) if there_too else rpc
        task = rpc.task("deploy web")
        (call,) = proposals(task)
        decision = message({"id": call["id"], "execute": True}, taskId=task["id"])
        approved: list[Any] = []
        approving = threading.Thread(
            target=lambda: approved.append(rpc("SendMessage", message=decision))
        )
        approving.start()
        assert cluster.began.wait(PATIENCE)
        canceled = canceling("CancelTask", id=task["id"])["result"]
        assert "Outcome unknown" in words(canceled)
        assert "Outcome unknown" in words(rpc("GetTask", id=task["id"])["result"])
        cluster.holding.set()
        approving.join(PATIENCE)
        wait_for(lambda: "deployed web" in words(rpc("GetTask", id=task["id"])["result"]))
        for service in (here, there):
            wanted = {"contextId": task["contextId"], "includeArtifacts": True}
            found = Rpc(service)("ListTasks", **wanted)["result"]["tasks"]
            assert [words(each) for each in found] == [
                words(rpc("GetTask", id=task["id"])["result"])
            ]
            assert found[0]["status"]["state"] == "TASK_STATE_CANCELED"
        (reported,) = approved
        assert reported["result"]["task"]["status"]["state"] == "TASK_STATE_CANCELED"
        # The conversation knows the outcome, but not the words about it.
        rpc.task("and now?", contextId=task["contextId"])
        assert "deployed web" in str(cluster.model.asks[-1].turns)
        assert "Outcome unknown" not in str(cluster.model.asks[-1].turns)


def test_canceled_task_of_the_contracts_protocol_tells_the_outcome(tmp_path: Path) -> None:
    cluster = Slow()
    with running(cluster.agent, configured(tmp_path)) as service:
        task = service.send("deploy web")
        (call,) = task["metadata"]["tool_calls"]
        path = f"/a2a/tasks/{task['task_id']}"
        decided = {"id": task["task_id"], "data": {"tool_calls": [{**call, "execute": True}]}}
        sent = {"message": "", **decided}
        service.http.post("/a2a/tasks/send?async=true", json=sent)
        assert cluster.began.wait(PATIENCE)
        canceled = service.http.post(f"{path}/cancel").json()
        assert canceled["status"] == "canceled"
        assert "Outcome unknown" in canceled["text"]
        cluster.holding.set()
        wait_for(lambda: "deployed web" in service.http.get(path).json()["text"])
        assert service.http.get(path).json()["status"] == "canceled"


class Slow(Cluster):
    """A cluster whose gated tool holds until the test lets go."""

    def __init__(self) -> None:
        super().__init__()

        @tool(requires_approval=True, timeout=2 * PATIENCE)
        def deploy(name: str) -> str:
            """Deploy something."""
            self.began.set()
            self.holding.wait(PATIENCE)
            return f"deployed {name}"

        self.model = Scripted(self._answer)
        self.agent = Agent(name="kube", model=self.model, tools=[deploy])

    def _answer(self, ask: Ask) -> str | Call:
        newest = ask.turns[-1].blocks[-1]
        text = getattr(newest, "text", "")
        if text.startswith("deploy "):
            return Call("call-1", "deploy", {"name": text.split()[1]})
        return f"You said: {text or newest}"


def words(task: dict[str, Any]) -> str:
    """The words of a task's status message."""
    # For a moment the status may have none, while another process moves the task on.
    message = task["status"].get("message", {"parts": []})
    return "".join(part.get("text", "") for part in message["parts"])
