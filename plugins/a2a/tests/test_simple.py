"""The adapter `simple`: the contract's endpoints (interface.md, rule 7; design, section 7)."""

from __future__ import annotations

import asyncio
import gc
import json
import sqlite3
import threading
import time
import tracemalloc
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from http.client import HTTPConnection
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import httpx
import pytest
from a2a_services import PATIENCE, Cluster, Serve, Service, configured, running, wait_for

from sayso import (
    Agent,
    AgentMessage,
    Blocked,
    Call,
    Caller,
    ChatRequest,
    Config,
    LedgerUnavailable,
    Message,
    RequestContext,
    Silence,
    TextDelta,
    ToolCall,
    tool,
)
from sayso_a2a import Artifact, incoming, reply, send_artifact, working
from sayso_a2a.rows import Rows
from sayso_a2a.task import Task
from sayso_a2a.tasks import Tasks


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Service]:
    """One service for the tests that only provoke errors."""
    with running(Cluster().agent, configured(tmp_path_factory.mktemp("shared"))) as service:
        yield service


def test_card_names_the_agent_its_tools_and_the_address(serve: Serve, cluster: Cluster) -> None:
    service = serve(cluster.agent)
    card = service.http.get("/.well-known/agent.json").json()
    assert card == {
        "name": "kube",
        "description": "Looks after a cluster",
        "url": service.url,
        "skills": ["list_pods", "delete_pod", "hold"],
        "version": "1.0",
        "metadata": {"framework": "sayso", "model": "scripted-1", "provider": "scripted"},
    }


def test_message_completes_a_task(serve: Serve, cluster: Cluster) -> None:
    service = serve(cluster.agent)
    task = service.send("hello")
    assert (task["status"], task["text"]) == ("completed", "You said: hello")
    assert set(task) == {"task_id", "text", "status", "artifacts", "metadata"}
    assert service.http.get(f"/a2a/tasks/{task['task_id']}").json() == task


def test_later_message_continues_the_conversation(serve: Serve, cluster: Cluster) -> None:
    service = serve(cluster.agent)
    task = service.send("first")
    service.send("second", id=task["task_id"])
    assert len(cluster.model.asks[-1].turns) == 3
    service.send("third", task_id=task["task_id"])
    assert len(cluster.model.asks[-1].turns) == 5


def test_task_canceled_through_another_process_stays_canceled(
    tmp_path: Path, cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    # On a slow machine, a process that pauses for a while must not count as dead.
    monkeypatch.setattr("sayso_a2a.tasks.LEASE", 600.0)
    config = configured(tmp_path, ledger=f"sqlite:///{tmp_path}/ledger.db")
    with running(cluster.agent, config) as here, running(Cluster().agent, config) as there:
        answer = here.http.post("/a2a/tasks/send?async=true", json={"message": "hold"})
        path = f"/a2a/tasks/{answer.json()['task_id']}"
        assert cluster.began.wait(PATIENCE)
        assert there.http.post(f"{path}/cancel").json()["status"] == "canceled"
        cluster.holding.set()
        wait_for(lambda: not here.host.turns_running)
        assert here.http.get(path).json()["status"] == "canceled"


def test_approved_call_runs_once_on_the_same_task(serve: Serve, cluster: Cluster) -> None:
    service = serve(cluster.agent)
    task = service.send("delete web")
    assert task["status"] == "input-required"
    (call,) = task["metadata"]["tool_calls"]
    assert (call["name"], call["input"], call["execute"]) == ("delete_pod", {"name": "web"}, False)
    approved = {"tool_calls": [{**call, "execute": True}]}
    done = service.send("", id=task["task_id"], data=approved)
    assert (done["status"], done["text"]) == ("completed", "The tool says: deleted web")
    assert done["metadata"]["executed_tool_calls"][0]["output"] == "deleted web"
    service.http.post(
        "/a2a/tasks/send", json={"message": "", "id": task["task_id"], "data": approved}
    )
    assert cluster.deleted == ["web"]


def test_rejected_call_is_not_run(serve: Serve, cluster: Cluster) -> None:
    service = serve(cluster.agent)
    task = service.send("delete web")
    (call,) = task["metadata"]["tool_calls"]
    decided = {"approvals": [{"id": call["id"], "rejection_reason": "not today"}]}
    done = service.send("", id=task["task_id"], data=decided)
    assert done["status"] == "completed"
    assert "not today" in done["text"]
    assert cluster.deleted == []


@pytest.mark.parametrize("text", ["yes", "approve", '{"execute": true}'])
def test_free_text_approves_nothing(serve: Serve, cluster: Cluster, text: str) -> None:
    service = serve(cluster.agent)
    task = service.send("delete web")
    refused = service.http.post("/a2a/tasks/send", json={"message": text, "id": task["task_id"]})
    (call,) = task["metadata"]["tool_calls"]
    assert refused.status_code == 409
    assert refused.json()["code"] == "APPROVALS_PENDING"
    assert refused.json()["pending"] == [call["id"]]
    assert cluster.deleted == []
    assert service.http.get(f"/a2a/tasks/{task['task_id']}").json()["status"] == "input-required"


def test_changed_arguments_run_nothing(serve: Serve, cluster: Cluster) -> None:
    service = serve(cluster.agent)
    task = service.send("delete web")
    (call,) = task["metadata"]["tool_calls"]
    changed = {"tool_calls": [{**call, "execute": True, "input": {"name": "db"}}]}
    body = {"message": "", "id": task["task_id"], "data": changed}
    refused = service.http.post("/a2a/tasks/send", json=body)
    assert refused.status_code == 422
    (item,) = refused.json()["detail"]
    assert item["type"] == "approval_changed"
    assert item["loc"] == ["body", "data", "tool_calls", 0]
    assert cluster.deleted == []
    unknown = {
        "tool_calls": [{"id": "made-up", "name": "delete_pod", "input": {}, "execute": True}]
    }
    refused = service.http.post("/a2a/tasks/send", json={"message": "", "data": unknown})
    assert refused.json()["detail"][0]["type"] == "approval_not_issued"


@pytest.mark.parametrize(
    ("body", "loc", "kind"),
    [
        ({}, ["body", "message"], "missing"),
        ({"message": 7}, ["body", "message"], "string_type"),
        ({"message": {"parts": []}}, ["body", "message"], "string_type"),
        ({"message": "x", "id": 1}, ["body", "id"], "string_type"),
        ({"message": "x", "data": []}, ["body", "data"], "model_type"),
        ({"message": ""}, ["body", "message"], "nothing_to_answer"),
        ([], ["body"], "model_type"),
    ],
)
def test_wrong_body_is_422_in_the_list_form(
    shared: Service, body: Any, loc: list[str], kind: str
) -> None:
    answer = shared.http.post("/a2a/tasks/send", json=body)
    assert answer.status_code == 422
    item = answer.json()["detail"][0]
    assert (item["loc"], item["type"]) == (loc, kind)
    assert set(item) == {"loc", "msg", "type"}
    assert kind != "model_type" or item["msg"] == "Input should be an object"


def test_broken_bodies_are_refused(serve: Serve, cluster: Cluster) -> None:
    http = serve(cluster.agent).http
    json_type = {"content-type": "application/json"}
    for content in (b"{", b"\xff", b'{"message": NaN}'):
        answer = http.post("/a2a/tasks/send", content=content, headers=json_type)
        assert answer.json()["detail"][0]["type"] == "json_invalid"
    deep = b'{"message": "x", "data": {"deep": ' + b"[" * 80 + b"]" * 80 + b"}}"
    answer = http.post("/a2a/tasks/send", content=deep, headers=json_type)
    assert answer.json()["detail"][0]["type"] == "too_deep"
    large = b'{"message": "x", "data": {"session": {"n": [1e999]}}}'
    answer = http.post("/a2a/tasks/send", content=large, headers=json_type)
    assert answer.json()["detail"][0]["type"] == "finite_number"
    assert http.post("/a2a/tasks/send", content=b"message=x").status_code == 415


def test_null_for_an_optional_field_says_nothing(serve: Serve, cluster: Cluster) -> None:
    http = serve(cluster.agent).http
    nulls = {"cmds": None, "tool_calls": None, "session": None}
    answer = http.post("/a2a/tasks/send", json={"message": "hello", "id": None, "data": nulls})
    assert answer.json()["status"] == "completed", answer.text


def test_unknown_task_is_404(serve: Serve, cluster: Cluster) -> None:
    http = serve(cluster.agent).http
    for answer in (
        http.get("/a2a/tasks/unknown"),
        http.post("/a2a/tasks/unknown/cancel"),
        http.post("/a2a/tasks/send", json={"message": "x", "id": "unknown"}),
    ):
        assert answer.status_code == 404
        assert answer.json() == {"detail": "there is no task of this id", "code": "TASK_NOT_FOUND"}


def test_foreign_task_is_404(tmp_path: Path, cluster: Cluster) -> None:
    base = configured(tmp_path).model_dump(exclude_unset=True)
    tokens = {"ann": "token-of-ann", "bob": "token-of-bob"}
    config = Config.model_validate({**base, "auth": {"scheme": "bearer", "tokens": tokens}})
    ann, bob = ({"authorization": f"Bearer {token}"} for token in tokens.values())
    with running(cluster.agent, config) as service:
        http = service.http
        assert http.get("/.well-known/agent.json").status_code == 200
        assert http.post("/a2a/tasks/send", json={"message": "x"}).status_code == 401
        task = http.post("/a2a/tasks/send", json={"message": "delete web"}, headers=ann).json()
        path = f"/a2a/tasks/{task['task_id']}"
        assert http.get(path, headers=ann).status_code == 200
        (call,) = task["metadata"]["tool_calls"]
        decided = {"message": "", "data": {"tool_calls": [{**call, "execute": True}]}}
        for answer in (
            http.get(path, headers=bob),
            http.post(f"{path}/cancel", headers=bob),
            http.post("/a2a/tasks/send", json={**decided, "id": task["task_id"]}, headers=bob),
        ):
            assert answer.status_code == 404
        answer = http.post("/a2a/tasks/send", json=decided, headers=bob)
        assert answer.json()["detail"][0]["type"] == "approval_not_issued"
        assert cluster.deleted == []


def test_agent_decides_nothing_on_a_task_of_its_own(tmp_path: Path, cluster: Cluster) -> None:
    base = configured(tmp_path).model_dump(exclude_unset=True)
    auth = {
        "scheme": "bearer",
        "tokens": {"bot": "token-of-bot"},
        "principals": {"bot": {"kind": "agent"}},
    }
    config = Config.model_validate({**base, "auth": auth})
    bot = {"authorization": "Bearer token-of-bot"}
    with running(cluster.agent, config) as service:
        http = service.http
        task = http.post("/a2a/tasks/send", json={"message": "delete web"}, headers=bot).json()
        (call,) = task["metadata"]["tool_calls"]
        data = {"tool_calls": [{**call, "execute": True}]}
        decided = {"message": "", "id": task["task_id"], "data": data}
        answer = http.post("/a2a/tasks/send", json=decided, headers=bot)
        assert "approval_not_allowed" in answer.text.lower()
        assert cluster.deleted == []


def test_asynchronous_task_is_pending_then_running_then_completed(
    serve: Serve, cluster: Cluster
) -> None:
    service = serve(cluster.agent)
    answer = service.http.post("/a2a/tasks/send?async=true", json={"message": "hold"})
    task = answer.json()
    assert task["status"] == "pending"
    path = f"/a2a/tasks/{task['task_id']}"

    def status() -> str:
        return str(service.http.get(path).json()["status"])

    assert cluster.began.wait(PATIENCE)
    assert status() == "running"
    again = service.http.post("/a2a/tasks/send", json={"message": "x", "id": task["task_id"]})
    assert (again.status_code, again.json()["code"]) == (409, "TASK_RUNNING")
    cluster.holding.set()
    wait_for(lambda: status() == "completed")
    assert service.http.get(path).json()["text"] == "The tool says: held"


def test_asynchronous_refusal_is_told_on_the_task(serve: Serve, cluster: Cluster) -> None:
    service = serve(cluster.agent)
    task = service.send("delete web")
    path = f"/a2a/tasks/{task['task_id']}"
    service.http.post("/a2a/tasks/send?async=true", json={"message": "yes", "id": task["task_id"]})
    after = wait_for(lambda: "error" in (t := service.http.get(path).json()) and t)
    assert (after["status"], after["error"]["code"]) == ("input-required", "APPROVALS_PENDING")
    assert after["metadata"]["tool_calls"] == task["metadata"]["tool_calls"]


def test_canceled_task_stays_canceled(serve: Serve, cluster: Cluster) -> None:
    service = serve(cluster.agent)
    answer = service.http.post("/a2a/tasks/send?async=true", json={"message": "hold"})
    path = f"/a2a/tasks/{answer.json()['task_id']}"
    assert cluster.began.wait(PATIENCE)
    assert service.http.post(f"{path}/cancel").json()["status"] == "canceled"
    cluster.holding.set()
    assert service.http.get(path).json()["status"] == "canceled"
    again = service.http.post(f"{path}/cancel")
    assert (again.status_code, again.json()["code"]) == (409, "TASK_ENDED")
    body = {"message": "x", "id": answer.json()["task_id"]}
    assert service.http.post("/a2a/tasks/send", json=body).json()["code"] == "TASK_ENDED"


def test_calls_of_a_canceled_task_cannot_be_approved(serve: Serve, cluster: Cluster) -> None:
    service = serve(cluster.agent)
    task = service.send("delete web")
    service.http.post(f"/a2a/tasks/{task['task_id']}/cancel")
    (call,) = task["metadata"]["tool_calls"]
    message = {"role": "user", "content": "", "data": {"tool_calls": [{**call, "execute": True}]}}
    refused = service.http.post("/api/chat", json={"messages": [message]})
    assert refused.json()["detail"][0]["type"] == "approval_conflict"
    assert cluster.deleted == []


def test_task_that_proposed_nothing_is_canceled_also_while_the_ledger_is_away(
    serve: Serve, cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def away(work: Any) -> None:
        raise LedgerUnavailable

    service = serve(cluster.agent)
    task = service.http.post("/a2a/tasks/send?async=true", json={"message": "hold"}).json()
    assert cluster.began.wait(PATIENCE)
    monkeypatch.setattr(service.host.ledger.store, "run", away)
    answer = service.http.post(f"/a2a/tasks/{task['task_id']}/cancel")
    assert (answer.status_code, answer.json()["status"]) == (200, "canceled")


def test_call_that_was_approved_before_its_task_was_canceled_does_not_run(
    serve: Serve, cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    # The task would go on by itself.
    monkeypatch.setattr("sayso_a2a.watching.MOST", 0)
    service = serve(cluster.agent)
    task = service.send("delete web")
    (call,) = task["metadata"]["tool_calls"]
    decide = service.host.calls.decide
    asyncio.run(decide(call["id"], Caller("console"), approved=True, run=False))
    service.http.post(f"/a2a/tasks/{task['task_id']}/cancel")
    row = asyncio.run(service.host.calls.look(call["id"], Caller("console")))
    assert (row.state, row.output) == ("REJECTED", "Rejected: the task was canceled")
    message = {"role": "user", "content": "", "data": {"tool_calls": [{**call, "execute": True}]}}
    refused = service.http.post("/api/chat", json={"messages": [message]})
    assert refused.json()["detail"][0]["type"] == "approval_conflict"
    assert cluster.deleted == []


def test_commands_of_a_canceled_task_cannot_be_approved(
    serve: Serve, cluster: Cluster, tmp_path: Path
) -> None:
    service = serve(cluster.agent)
    task = service.send(f"run touch {tmp_path}/ran")
    service.http.post(f"/a2a/tasks/{task['task_id']}/cancel")
    (command,) = task["metadata"]["cmds"]
    message = {"role": "user", "content": "", "data": {"cmds": [{**command, "execute": True}]}}
    refused = service.http.post("/api/chat", json={"messages": [message]})
    assert refused.json()["detail"][0]["type"] == "approval_conflict"
    assert not (tmp_path / "ran").exists()


def test_waiting_sender_gets_the_task_that_another_cancels(serve: Serve, cluster: Cluster) -> None:
    service = serve(cluster.agent)
    got: list[dict[str, Any]] = []
    sender = threading.Thread(target=lambda: got.append(service.send("hold")))
    sender.start()
    assert cluster.began.wait(PATIENCE)
    task_id = _only_task(service.host)
    service.http.post(f"/a2a/tasks/{task_id}/cancel")
    sender.join(PATIENCE)
    assert got[0]["status"] == "canceled"


def test_sender_that_goes_away_cancels_its_task(serve: Serve, cluster: Cluster) -> None:
    service = serve(cluster.agent)
    url = httpx.URL(service.url)
    sender = HTTPConnection(url.host, url.port, timeout=PATIENCE)
    body, headers = json.dumps({"message": "hold"}), {"content-type": "application/json"}
    sender.request("POST", "/a2a/tasks/send", body, headers)
    assert cluster.began.wait(PATIENCE)
    sender.close()
    path = f"/a2a/tasks/{_only_task(service.host)}"
    wait_for(lambda: service.http.get(path).json()["status"] == "canceled")


def test_turn_that_has_ended_is_told_although_its_sender_goes_away_while_it_is_recorded(
    serve: Serve, cluster: Cluster
) -> None:
    service = serve(cluster.agent)
    url = httpx.URL(service.url)
    sender = HTTPConnection(url.host, url.port, timeout=PATIENCE)
    body, headers = json.dumps({"message": "hold"}), {"content-type": "application/json"}
    sender.request("POST", "/a2a/tasks/send", body, headers)
    assert cluster.began.wait(PATIENCE)
    path = f"/a2a/tasks/{_only_task(service.host)}"
    tasks = service.host.plugins.get("a2a")._adapter(service.host)._tasks
    store, free = tasks._rows._thread, threading.Event()
    wait_for(store.submit(free.wait, PATIENCE).running)
    cluster.holding.set()
    wait_for(lambda: store._work_queue.qsize())
    sender.close()
    wait_for(lambda: not tasks._runs)
    free.set()
    shown = service.http.get(path).json()
    assert (shown["status"], shown["text"]) == ("completed", "The tool says: held")


def test_what_a_task_proposed_before_its_sender_went_away_is_rejected(
    serve: Serve, cluster: Cluster, tmp_path: Path
) -> None:
    suggested = {"commands": [{"command": f"touch {tmp_path}/ran"}]}
    said = iter([Call("1", "suggest_commands", suggested), Call("2", "hold", {})])
    cluster.model.answer = lambda ask: next(said)
    service = serve(cluster.agent)
    task = service.send("go on")
    (command,) = task["metadata"]["cmds"]
    url = httpx.URL(service.url)
    sender = HTTPConnection(url.host, url.port, timeout=PATIENCE)
    body = json.dumps({"id": task["task_id"], "message": "hold"})
    sender.request("POST", "/a2a/tasks/send", body, {"content-type": "application/json"})
    assert cluster.began.wait(PATIENCE)
    sender.close()
    look = service.host.calls.look
    wait_for(lambda: asyncio.run(look(command["id"], Caller("a2a"))).state == "REJECTED")
    path = f"/a2a/tasks/{task['task_id']}"
    assert service.http.get(path).json()["status"] == "canceled"


def test_approval_whose_sender_went_away_has_its_outcome_when_it_is_sent_again(
    serve: Serve, cluster: Cluster
) -> None:
    began, going_on, ran = threading.Event(), threading.Event(), list[str]()

    @tool(requires_approval=True, timeout=2 * PATIENCE)
    def delete_pod(name: str) -> str:
        """Delete a pod, slowly."""
        began.set()
        going_on.wait(PATIENCE)
        ran.append(name)
        return f"deleted {name}"

    service = serve(Agent(model=cluster.model, tools=[delete_pod]))
    task = service.send("delete web")
    (call,) = task["metadata"]["tool_calls"]
    body = {
        "id": task["task_id"],
        "message": "",
        "data": {"tool_calls": [{**call, "execute": True}]},
    }
    url = httpx.URL(service.url)
    sender = HTTPConnection(url.host, url.port, timeout=PATIENCE)
    headers = {"content-type": "application/json"}
    sender.request("POST", "/a2a/tasks/send", json.dumps(body), headers)
    assert began.wait(PATIENCE)
    sender.close()
    path = f"/a2a/tasks/{task['task_id']}"
    wait_for(lambda: service.http.get(path).json()["status"] == "input-required")
    assert service.http.get(path).json()["metadata"]["tool_calls"] == [call]
    going_on.set()
    reported = service.http.post("/a2a/tasks/send", json=body).json()
    assert (reported["status"], reported["text"]) == ("completed", "The tool says: deleted web")
    assert reported["metadata"]["executed_tool_calls"][0]["output"] == "deleted web"
    assert ran == ["web"]


def _only_task(host: Any) -> str:
    rows = host.plugins.get("a2a")._adapter(host)._tasks._rows
    found: str = rows._thread.submit(
        lambda: rows._connection.execute("select id from tasks").fetchone()[0]
    ).result(PATIENCE)
    return found


def test_tasks_survive_a_restart_when_the_ledger_does(tmp_path: Path, cluster: Cluster) -> None:
    config = configured(tmp_path, ledger=f"sqlite:///{tmp_path}/ledger.db")
    with running(cluster.agent, config) as service:
        task = service.send("delete web")
    with running(cluster.agent, config) as service:
        assert service.http.get(f"/a2a/tasks/{task['task_id']}").json() == task
        (call,) = task["metadata"]["tool_calls"]
        approved = {"tool_calls": [{**call, "execute": True}]}
        done = service.send("", id=task["task_id"], data=approved)
    assert done["text"] == "The tool says: deleted web"
    assert cluster.deleted == ["web"]
    assert (tmp_path / "state" / "a2a-tasks.db").stat().st_mode & 0o777 == 0o600


def test_running_task_fails_when_the_service_stops(tmp_path: Path, cluster: Cluster) -> None:
    config = configured(tmp_path, ledger=f"sqlite:///{tmp_path}/ledger.db")
    with running(cluster.agent, config) as service:
        answer = service.http.post("/a2a/tasks/send?async=true", json={"message": "hold"})
        assert cluster.began.wait(PATIENCE)
    cluster.holding.set()
    with running(cluster.agent, config) as service:
        task = service.http.get(f"/a2a/tasks/{answer.json()['task_id']}").json()
    assert task["status"] == "failed"
    assert task["error"]["code"] in ("STOPPING", "INTERRUPTED")


def test_task_of_a_process_that_died_has_failed_and_can_be_continued(
    serve: Serve, cluster: Cluster, tmp_path: Path
) -> None:
    service = serve(cluster.agent, ledger=f"sqlite:///{tmp_path}/ledger.db")

    async def leave_behind() -> None:
        rows = Rows("simple", tmp_path / "state" / "a2a-tasks.db", ttl=PATIENCE, most=9)
        await rows.open()
        left = Task(id="left", status="running", messages=[Message(role="user", content="hi")])
        await rows.change("", "left", lambda _: left.row())
        assert service.http.get("/a2a/tasks/left").json()["status"] == "running"
        # A lease that is not renewed runs out.
        await rows.lease(["left"], -1.0)
        await rows.close()

    asyncio.run(leave_behind())
    task = service.http.get("/a2a/tasks/left").json()
    assert (task["status"], task["error"]["code"]) == ("failed", "INTERRUPTED")
    assert "may have taken effect" in task["error"]["message"]
    assert service.send("there", id="left")["text"] == "You said: hi there"


def test_task_of_ones_own_was_not_left_behind_however_old_its_lease(
    serve: Serve, cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sayso_a2a.task.LEASE", -1.0)
    service = serve(cluster.agent)
    answer = service.http.post("/a2a/tasks/send?async=true", json={"message": "hold"})
    id = answer.json()["task_id"]
    assert cluster.began.wait(PATIENCE)
    assert service.http.get(f"/a2a/tasks/{id}").json()["status"] == "running"
    refused = service.http.post("/a2a/tasks/send", json={"message": "more", "id": id})
    assert (refused.status_code, refused.json()["code"]) == (409, "TASK_RUNNING")
    cluster.holding.set()
    wait_for(lambda: service.http.get(f"/a2a/tasks/{id}").json()["status"] == "completed")


def test_lease_of_a_running_task_is_prolonged_again_after_the_store_failed_once(
    serve: Serve, cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sayso_a2a.tasks.LEASE", 0.03)
    tries: list[str] = []
    lease = Rows.lease

    async def failing_once(self: Rows, ids: Any, seconds: float) -> None:
        tries.extend(ids)
        if len(tries) == 1:
            raise sqlite3.OperationalError("database is locked")
        await lease(self, ids, seconds)

    monkeypatch.setattr(Rows, "lease", failing_once)
    service = serve(cluster.agent)
    answer = service.http.post("/a2a/tasks/send?async=true", json={"message": "hold"})
    wait_for(lambda: len(tries) > 2, 10.0)
    assert set(tries) == {answer.json()["task_id"]}
    cluster.holding.set()


def test_tasks_in_memory_end_with_the_service(tmp_path: Path, cluster: Cluster) -> None:
    with running(cluster.agent, configured(tmp_path)) as service:
        task = service.send("hello")
    assert not (tmp_path / "state" / "a2a-tasks.db").exists()
    with running(cluster.agent, configured(tmp_path)) as service:
        assert service.http.get(f"/a2a/tasks/{task['task_id']}").status_code == 404


def test_plain_callable_is_served(serve: Serve) -> None:
    def shout(messages: list[Message], context: RequestContext) -> str:
        """Shouts."""
        return messages[-1].content.upper()

    service = serve(shout)
    assert service.send("hello")["text"] == "HELLO"
    card = service.http.get("/.well-known/agent.json").json()
    assert (card["name"], card["description"], card["skills"]) == ("shout", "Shouts.", [])
    assert card["metadata"] == {"framework": "sayso", "model": "custom", "provider": "custom"}


def test_long_reply_gives_the_garbage_collector_nothing_to_look_through(serve: Serve) -> None:
    tracked: list[int] = []

    def talkative(messages: list[Message], context: RequestContext) -> Iterator[str]:
        for _ in range(20_000):
            yield "ab"
        tracked.append(sum(type(thing) is TextDelta for thing in gc.get_objects()))

    assert serve(talkative).send("go")["text"] == "ab" * 20_000
    # Some of them are still being sent.
    assert tracked[0] < 10_000


def test_callable_proposes_and_carries_out_over_a2a(serve: Serve) -> None:
    def agent(messages: list[Message], context: RequestContext) -> AgentMessage | str:
        if context.decisions:
            return f"approved: {context.decisions[0].approved}"
        message = AgentMessage(content="May I?")
        message.data.tool_calls = [ToolCall(id="mine", name="sweep", input={"room": 1})]
        return message

    service = serve(agent)
    task = service.send("sweep")
    (call,) = task["metadata"]["tool_calls"]
    assert task["status"] == "input-required"
    done = service.send("", id=task["task_id"], data={"tool_calls": [{**call, "execute": True}]})
    assert done["text"] == "approved: True"


def test_agent_sees_the_task_and_sends_artifacts(serve: Serve) -> None:
    seen: list[str] = []

    def agent(messages: list[Message], context: RequestContext) -> AgentMessage:
        sent = incoming(context)
        assert sent is not None
        seen.append(sent.task_id)
        working(context, "Looking")
        send_artifact(context, Artifact("one ", id="a"), last=False)
        send_artifact(context, Artifact("two", id="a"), append=True)
        return reply("Done", artifacts=[Artifact({"n": 1}, name="numbers", id="b")])

    task = serve(agent).send("go")
    assert seen == [task["task_id"]]
    assert task["artifacts"] == [
        {"artifactId": "a", "parts": [{"text": "one "}, {"text": "two"}]},
        {"artifactId": "b", "parts": [{"data": {"n": 1}}], "name": "numbers"},
    ]
    assert "a2a" not in json.dumps(task["metadata"])


def test_agent_can_reject_and_ask(serve: Serve) -> None:
    def agent(messages: list[Message], context: RequestContext) -> AgentMessage:
        if messages[-1].content == "ask":
            return reply("Which one?", state="input-required")
        return reply("No", state="rejected")

    service = serve(agent)
    assert service.send("ask")["status"] == "input-required"
    task = service.send("go")
    assert (task["status"], task["error"]) == ("failed", {"message": "No", "code": "REJECTED"})


def test_failing_agent_fails_the_task_without_its_text(serve: Serve) -> None:
    def agent(messages: list[Message], context: RequestContext) -> str:
        raise RuntimeError("the password is hunter2")

    service = serve(agent)
    task = service.send("go")
    assert (task["status"], task["error"]["code"]) == ("failed", "AGENT_ERROR")
    assert task["error"]["incident"]
    assert "hunter2" not in json.dumps(task)


def test_v2_field_is_no_a2a_message(serve: Serve) -> None:
    def agent(messages: list[Message], context: RequestContext) -> str:
        return str(incoming(context))

    body = {"messages": [{"role": "user", "content": "x"}], "a2a": {"message_id": "forged"}}
    assert serve(agent).http.post("/api/chat", json=body).json()["content"] == "None"


def test_interceptor_blocks_over_a2a_too(serve: Serve, cluster: Cluster) -> None:
    def stop(request: ChatRequest, context: RequestContext) -> None:
        raise Blocked("not over here", code="NO")

    cluster.agent.request_interceptors = (stop,)
    task = serve(cluster.agent).send("hello")
    assert (task["status"], task["text"]) == ("completed", "not over here")
    assert task["metadata"]["blocked"] == {"code": "NO"}
    assert cluster.model.asks == []


@pytest.mark.parametrize("error", [Blocked("not now", code="LATER"), Silence("not now")])
@pytest.mark.parametrize("text", ["", "hello"])
def test_task_waits_on_where_an_interceptor_withholds_the_answer(
    serve: Serve, cluster: Cluster, error: Exception, text: str
) -> None:
    withheld = [error]

    def stop(request: ChatRequest, context: RequestContext) -> None:
        if len(request.messages) > 1 and withheld:
            raise withheld.pop()

    cluster.agent.request_interceptors = (stop,)
    service = serve(cluster.agent)
    task = service.send("delete web")
    (call,) = task["metadata"]["approvals"]
    decision = {"approvals": [{"id": call["id"], "execute": True}]}
    after = service.send(text, id=task["task_id"], data=None if text else decision)
    assert after["status"] == "input-required"
    assert after["text"] == ("not now" if isinstance(error, Blocked) else "")
    assert after["metadata"]["approvals"] == [call]
    assert service.http.get(f"/a2a/tasks/{task['task_id']}").json() == after
    done = service.send("", id=task["task_id"], data=decision)
    assert (done["status"], done["text"]) == ("completed", "The tool says: deleted web")


def test_decision_on_the_call_of_another_task_leaves_this_one_waiting(
    serve: Serve, cluster: Cluster
) -> None:
    service = serve(cluster.agent)
    (other,) = service.send("delete db")["metadata"]["approvals"]
    task = service.send("delete web")
    (call,) = task["metadata"]["approvals"]
    decision = {"approvals": [{"id": other["id"], "execute": True}]}
    after = service.send("", id=task["task_id"], data=decision)
    assert (after["status"], after["text"]) == ("input-required", "The tool says: deleted db")
    assert after["metadata"]["approvals"] == [call]
    assert [each["id"] for each in after["metadata"]["executed_approvals"]] == [other["id"]]
    decision = {"approvals": [{"id": call["id"], "execute": True}]}
    done = service.send("", id=task["task_id"], data=decision)
    assert (done["status"], done["text"]) == ("completed", "The tool says: deleted web")
    assert cluster.deleted == ["db", "web"]


def test_task_that_a_response_interceptor_withholds_waits_for_no_call_that_has_run(
    serve: Serve, cluster: Cluster
) -> None:
    def stop(response: AgentMessage, context: RequestContext) -> None:
        if response.data.executed_approvals:
            raise Blocked("not told")

    cluster.agent.response_interceptors = (stop,)
    service = serve(cluster.agent)
    task = service.send("delete web")
    (call,) = task["metadata"]["approvals"]
    decision = {"approvals": [{"id": call["id"], "execute": True}]}
    done = service.send("", id=task["task_id"], data=decision)
    assert (done["status"], done["text"]) == ("completed", "not told")
    assert cluster.deleted == ["web"]


def test_refused_decision_leaves_the_outcome_that_another_brought_meanwhile(
    serve: Serve, cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    came, go = threading.Event(), threading.Event()
    claim = Tasks._claim

    async def late(self: Tasks, *given: Any, **named: Any) -> Any:
        if not came.is_set():
            came.set()
            await asyncio.to_thread(go.wait, PATIENCE)
        return await claim(self, *given, **named)

    service = serve(cluster.agent)
    task = service.send("delete web")
    (call,) = task["metadata"]["approvals"]
    monkeypatch.setattr(Tasks, "_claim", late)

    def reject() -> httpx.Response:
        decision = {"approvals": [{"id": call["id"], "rejection_reason": "no"}]}
        body = {"message": "", "id": task["task_id"], "data": decision}
        return httpx.post(f"{service.url}/a2a/tasks/send", json=body, timeout=PATIENCE)

    with ThreadPoolExecutor() as pool:
        rejecting = pool.submit(reject)
        assert came.wait(PATIENCE)
        decision = {"approvals": [{"id": call["id"], "execute": True}]}
        done = service.send("", id=task["task_id"], data=decision)
        go.set()
        refused = rejecting.result()
    assert refused.json()["detail"][0]["type"] == "approval_conflict"
    assert done["text"] == "The tool says: deleted web"
    after = service.http.get(f"/a2a/tasks/{task['task_id']}").json()
    assert (after["status"], after["text"]) == ("completed", done["text"])


def test_session_goes_on_with_the_task(serve: Serve) -> None:
    def agent(messages: list[Message], context: RequestContext) -> str:
        count = int(context.session.get("count", 0)) + 1
        context.session.set("count", count)
        return str(count)

    service = serve(agent)
    task = service.send("a")
    assert service.send("b", id=task["task_id"])["text"] == "2"
    assert service.send("c")["text"] == "1"


@pytest.mark.slow
def test_many_sends_leave_memory_flat(serve: Serve, monkeypatch: pytest.MonkeyPatch) -> None:
    # On a slow machine further worker loops would start meanwhile, each with a buffer of 256 KiB.
    monkeypatch.setattr("sayso.workers.workers.LOOK", 2 * PATIENCE)

    def agent(messages: list[Message], context: RequestContext) -> str:
        return "x" * 2000

    service = serve(agent, max_tasks=50)
    for _ in range(150):
        first = service.send("y" * 2000)
    gc.collect()
    tracemalloc.start()
    try:
        before = tracemalloc.take_snapshot()
        for _ in range(300):
            service.send("y" * 2000)
        # Garbage not collected yet is no leak; objects of other tests delay the collection.
        gc.collect()
        after = tracemalloc.take_snapshot()
    finally:
        tracemalloc.stop()
    grown = sum(stat.size_diff for stat in after.compare_to(before, "filename"))
    assert grown < 400_000, grown
    assert service.http.get(f"/a2a/tasks/{first['task_id']}").status_code == 404


def test_task_expires(serve: Serve, cluster: Cluster, monkeypatch: pytest.MonkeyPatch) -> None:
    service = serve(cluster.agent, task_ttl=600)
    path = f"/a2a/tasks/{service.send('hello')['task_id']}"
    assert service.http.get(path).status_code == 200
    later = SimpleNamespace(time=lambda: time.time() + 601)
    monkeypatch.setattr("sayso_a2a.rows.time", later)
    assert service.http.get(path).status_code == 404
