"""Tasks whose calls are decided elsewhere, and adapters on which decisions over A2A do not
count."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from a2a_services import (
    Cluster,
    Rpc,
    Scripted,
    Serve,
    Service,
    bearer,
    configured,
    events,
    message,
    proposals,
    reply_of,
    running,
    wait_for,
)

from sayso import Agent, Ask, Call, Caller, Config, Proposal, tool
from sayso_a2a.watching import Watch

APPROVED: dict[str, Any] = {"execute": True}
REJECTED: dict[str, Any] = {"rejection_reason": "not today"}


@pytest.fixture
def service(serve: Serve, cluster: Cluster) -> Service:
    """The cluster's agent over both adapters."""
    return serve(cluster.agent, adapter="both")


def decide(service: Service, id: str, decision: dict[str, Any]) -> None:
    """Decide a call over V2."""
    data = {"approvals": [{"id": id, **decision}]}
    body = {"messages": [{"role": "user", "content": "", "data": data}]}
    answer = service.http.post("/api/chat", json=body)
    assert answer.status_code == 200, answer.text


def state(rpc: Rpc, task: dict[str, Any]) -> str:
    """The state of a task now."""
    return str(rpc("GetTask", id=task["id"])["result"]["status"]["state"])


@pytest.mark.parametrize(
    ("decision", "words"), [(APPROVED, "deleted web"), (REJECTED, "not today")]
)
def test_task_goes_on_at_once_when_its_call_is_decided_elsewhere(
    service: Service, cluster: Cluster, decision: dict[str, Any], words: str
) -> None:
    rpc = Rpc(service)
    task = rpc.task("delete web")
    (call,) = proposals(task)
    decide(service, call["id"], decision)
    wait_for(lambda: state(rpc, task) == "TASK_STATE_COMPLETED")
    done = rpc("GetTask", id=task["id"])["result"]
    assert words in reply_of(done)
    assert cluster.deleted == (["web"] if decision is APPROVED else [])


@pytest.mark.parametrize("idempotent", [True, False])
def test_task_goes_on_with_an_unknown_outcome_and_runs_nothing_again(idempotent: bool) -> None:
    unknown = Proposal(
        *("a", "tool_call", "delete", {}, "t", 0, "a", 0.0, 1.0),
        state="INDETERMINATE",
        idempotent=idempotent,
    )
    given: list[Any] = []

    class Calls:
        async def settled(self, ids: Any, caller: Caller, wait: float) -> list[Proposal]:
            return [unknown]

    async def watched() -> None:
        ended = asyncio.Event()

        async def go_on(owner: str, task: str, decisions: list[dict[str, Any]]) -> None:
            given.extend(decisions)
            ended.set()

        host: Any = SimpleNamespace(calls=Calls())
        watch = Watch(host, go_on)
        watch.take_up("task", "ann", ["a"])
        await asyncio.wait_for(ended.wait(), 30)
        await watch.aclose()

    asyncio.run(watched())
    # An approval would run an idempotent call a second time.
    assert [(one["id"], one["execute"]) for one in given] == [("a", not idempotent)]


def test_subscriber_of_a_waiting_task_sees_it_go_on(service: Service) -> None:
    rpc = Rpc(service)
    task = rpc.task("delete web")
    (call,) = proposals(task)
    with service.http.stream(
        "POST", f"/a2a/rest/tasks/{task['id']}:subscribe", headers={"A2A-Version": "1.0"}
    ) as reply:
        lines = (line for line in reply.iter_lines() if line.startswith("data:"))
        assert "INPUT_REQUIRED" in next(lines)
        decide(service, call["id"], APPROVED)
        assert any("TASK_STATE_COMPLETED" in line for line in lines)


def test_task_of_the_contracts_protocol_goes_on_as_well(service: Service, cluster: Cluster) -> None:
    task = service.send("delete web")
    (call,) = task["metadata"]["tool_calls"]
    decide(service, call["id"], APPROVED)
    path = f"/a2a/tasks/{task['task_id']}"
    wait_for(lambda: service.http.get(path).json()["status"] == "completed")
    assert service.http.get(path).json()["text"] == "The tool says: deleted web"
    assert cluster.deleted == ["web"]


@pytest.mark.parametrize("database", [False, True], ids=["file", "database"])
def test_task_goes_on_after_a_restart_and_a_decision_on_the_command_line(
    tmp_path: Path, cluster: Cluster, database: bool
) -> None:
    ledger = f"sqlite:///{tmp_path}/ledger.db"
    options: dict[str, Any] = {"adapter": "both"}
    if database:
        pytest.importorskip("aiosqlite")
        options["database"] = f"sqlite+aiosqlite:///{tmp_path}/tasks.db"
    config = configured(tmp_path, ledger=ledger, **options)
    (tmp_path / "sayso.toml").write_text(f'[approvals]\nledger = "{ledger}"\n')
    with running(cluster.agent, config) as service:
        task = Rpc(service).task("delete web")
        simple = service.send("delete db")
    with running(cluster.agent, config) as service:
        rpc = Rpc(service)
        for call in (*proposals(task), *simple["metadata"]["tool_calls"]):
            approve = [sys.executable, "-m", "sayso", "approvals", "approve", call["id"]]
            subprocess.run(approve, cwd=tmp_path, check=True, capture_output=True)
        wait_for(lambda: state(rpc, task) == "TASK_STATE_COMPLETED")
        path = f"/a2a/tasks/{simple['task_id']}"
        wait_for(lambda: service.http.get(path).json()["status"] == "completed")
    assert sorted(cluster.deleted) == ["db", "web"]


def test_task_of_two_processes_goes_on_once(tmp_path: Path, cluster: Cluster) -> None:
    config = configured(tmp_path, ledger=f"sqlite:///{tmp_path}/ledger.db", adapter="a2a")
    with running(cluster.agent, config) as here:
        task = Rpc(here).task("delete web")
        with running(cluster.agent, config) as there:
            (call,) = proposals(task)
            decide(there, call["id"], APPROVED)
            for service in (here, there):
                rpc = Rpc(service)
                wait_for(lambda rpc=rpc: state(rpc, task) == "TASK_STATE_COMPLETED")
            done = Rpc(there)("GetTask", id=task["id"])["result"]
    assert cluster.deleted == ["web"]
    assert [said["role"] for said in done["history"]] == ["ROLE_USER", "ROLE_AGENT", "ROLE_USER"]


@pytest.mark.parametrize("database", [False, True], ids=["file", "database"])
def test_task_of_a_process_that_is_gone_goes_on_soon_in_another_one(
    tmp_path: Path, cluster: Cluster, database: bool
) -> None:
    options: dict[str, Any] = {"adapter": "both"}
    if database:
        pytest.importorskip("aiosqlite")
        options["database"] = f"sqlite+aiosqlite:///{tmp_path}/tasks.db"
    config = configured(tmp_path, ledger=f"sqlite:///{tmp_path}/ledger.db", **options)
    with running(cluster.agent, config) as there:
        rpc, path = Rpc(there), "/a2a/tasks"
        # It has looked through the store by now.
        wait_for(lambda: rpc("GetTask", id="unknown")["error"])
        with running(cluster.agent, config) as here:
            task = Rpc(here).task("delete web")
            simple = here.send("delete db")
        for call in (*proposals(task), *simple["metadata"]["tool_calls"]):
            decide(there, call["id"], APPROVED)
        # Much sooner than the next look at all tasks, after a minute.
        wait_for(lambda: state(rpc, task) == "TASK_STATE_COMPLETED", 25)
        url = f"{path}/{simple['task_id']}"
        wait_for(lambda: there.http.get(url).json()["status"] == "completed", 25)
    assert sorted(cluster.deleted) == ["db", "web"]


@pytest.mark.parametrize("approvals", ["inbox", "deny"])
def test_caller_cannot_decide_where_decisions_are_made_elsewhere(
    serve: Serve, cluster: Cluster, approvals: str
) -> None:
    service = serve(cluster.agent, adapter="both", approvals=approvals)
    rpc = Rpc(service)
    body = {"messages": [{"role": "user", "content": "delete other"}]}
    (call,) = service.http.post("/api/chat", json=body).json()["data"]["approvals"]
    decision = {"id": call["id"], "execute": True}
    refused = rpc("SendMessage", message=message(decision))
    assert refused["error"]["code"] == -32004
    sent = {"message": "", "data": {"approvals": [decision]}}
    answer = service.http.post("/a2a/tasks/send", json=sent)
    assert (answer.status_code, answer.json()["code"]) == (403, "NOT_DECIDED_HERE")
    assert cluster.deleted == []


def test_task_goes_on_after_a_decision_in_the_inbox(serve: Serve, cluster: Cluster) -> None:
    service = serve(cluster.agent, adapter="both", approvals="inbox")
    rpc = Rpc(service)
    task, simple = rpc.task("delete web"), service.send("delete db")
    (call,), (other,) = proposals(task), simple["metadata"]["tool_calls"]
    said = "".join(part.get("text", "") for part in task["status"]["message"]["parts"])
    assert "sayso approvals approve" in said
    assert '"execute"' not in said
    decide(service, call["id"], APPROVED)
    decide(service, other["id"], APPROVED)
    wait_for(lambda: state(rpc, task) == "TASK_STATE_COMPLETED")
    path = f"/a2a/tasks/{simple['task_id']}"
    wait_for(lambda: service.http.get(path).json()["status"] == "completed")
    assert sorted(cluster.deleted) == ["db", "web"]


@pytest.mark.parametrize("streams", [False, True], ids=["whole", "streamed"])
def test_gated_call_is_rejected_where_nothing_is_approved_over_a2a(
    serve: Serve, cluster: Cluster, streams: bool
) -> None:
    service = serve(cluster.agent, adapter="both", approvals="deny")
    if streams:
        found = events(service, "/a2a/rest/message:stream", {"message": message("delete web")})
        status = found[-1]["statusUpdate"]["status"]
    else:
        status = Rpc(service).task("delete web")["status"]
    assert status["state"] == "TASK_STATE_REJECTED"
    (call,) = proposals({"status": status})
    body = {"messages": [{"role": "user", "content": "", "data": {"approvals": [call | APPROVED]}}]}
    refused = service.http.post("/api/chat", json=body)
    assert refused.json()["detail"][0]["type"] == "approval_conflict"
    simple = service.send("delete db")
    assert (simple["status"], simple["error"]["code"]) == ("failed", "REJECTED")
    assert cluster.deleted == []


def test_task_goes_on_with_the_input_that_its_approver_changed(serve: Serve) -> None:
    ran: list[str] = []

    @tool(requires_approval=True, editable=True)
    def scale(name: str) -> str:
        """Scale something."""
        ran.append(name)
        return f"scaled {name}"

    def answer(ask: Ask) -> str | Call:
        return Call("c", "scale", {"name": "web"}) if len(ask.turns) == 1 else "done"

    agent = Agent(name="scaler", model=Scripted(answer), tools=[scale])
    service = serve(agent, adapter="both")
    rpc = Rpc(service)
    task, simple = rpc.task("scale web"), service.send("scale web")
    (call,), (other,) = proposals(task), simple["metadata"]["tool_calls"]
    for id in (call["id"], other["id"]):
        asyncio.run(
            service.host.calls.decide(
                id,
                Caller("console"),
                approved=True,
                input={"name": "web"},
                edited={"name": "db"},
                run=False,
            )
        )
    wait_for(lambda: state(rpc, task) == "TASK_STATE_COMPLETED")
    path = f"/a2a/tasks/{simple['task_id']}"
    wait_for(lambda: service.http.get(path).json()["status"] == "completed")
    assert ran == ["db", "db"]


def test_rule_on_approvers_holds_over_a2a_and_the_task_goes_on_after_their_decision(
    tmp_path: Path, cluster: Cluster
) -> None:
    base = configured(tmp_path, guarded=True, adapter="a2a").model_dump(exclude_unset=True)
    rules = [{"tool": "delete_pod", "approvers": ["bob"]}]
    approvals = {**base["approvals"], "rules": rules}
    config = Config.model_validate({**base, "approvals": approvals})
    with running(cluster.agent, config) as service:
        ann = Rpc(service, **bearer("ann"))
        task = ann.task("delete web")
        (call,) = proposals(task)
        after = ann.task({"id": call["id"], **APPROVED}, taskId=task["id"])
        assert after["status"]["state"] == "TASK_STATE_INPUT_REQUIRED"
        assert "others who may approve" in after["status"]["message"]["parts"][0]["text"]
        assert cluster.deleted == []
        data = {"approvals": [{"id": call["id"], **APPROVED}]}
        body = {"messages": [{"role": "user", "content": "", "data": data}]}
        assert service.http.post("/api/chat", json=body, headers=bearer("bob")).status_code == 200
        wait_for(lambda: state(ann, task) == "TASK_STATE_COMPLETED")
    assert cluster.deleted == ["web"]
