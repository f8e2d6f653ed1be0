"""The adapter `a2a`: the official protocol over JSON-RPC and HTTP+JSON (A2A 1.0)."""

from __future__ import annotations

import asyncio
import json
import threading
import time
from collections.abc import AsyncIterator, Iterator, Sequence
from pathlib import Path
from typing import Any

import httpx
import pytest
from a2a.utils.errors import UnsupportedOperationError
from a2a_services import (
    PATIENCE,
    V1,
    Cluster,
    Rpc,
    Scripted,
    Serve,
    Service,
    answer,
    configured,
    events,
    message,
    proposals,
    reply_of,
    running,
    wait_for,
)

from sayso import (
    Agent,
    AgentMessage,
    Ask,
    Blocked,
    Call,
    Caller,
    ChatRequest,
    Config,
    Data,
    Message,
    RequestContext,
    Silence,
    Text,
    tool,
)
from sayso_a2a import Artifact, incoming, reply, send_artifact, working
from sayso_a2a.official.mends import Mended


@pytest.fixture
def service(serve: Serve, cluster: Cluster) -> Service:
    """The cluster's agent over the official protocol."""
    return serve(cluster.agent, adapter="a2a")


@pytest.fixture
def rpc(service: Service) -> Rpc:
    """JSON-RPC calls against the service."""
    return Rpc(service)


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Rpc, Cluster]]:
    """One service for the tests that only provoke errors; notifications are on."""
    made = Cluster()
    folder = tmp_path_factory.mktemp("shared")
    config = configured(folder, adapter="a2a", push_notifications=True)
    with running(made.agent, config) as served:
        yield Rpc(served), made


def code_of(answer: dict[str, Any]) -> int:
    code: int = answer["error"]["code"]
    return code


def test_message_completes_a_task(rpc: Rpc) -> None:
    task = rpc.task("hello")
    assert task["status"]["state"] == "TASK_STATE_COMPLETED"
    assert reply_of(task) == "You said: hello"
    assert rpc("GetTask", id=task["id"])["result"]["id"] == task["id"]
    assert "history" not in rpc("GetTask", id=task["id"], historyLength=0)["result"]


def test_context_goes_on_with_the_conversation(rpc: Rpc, cluster: Cluster) -> None:
    task = rpc.task("first")
    again = rpc.task("second", contextId=task["contextId"])
    assert again["contextId"] == task["contextId"]
    assert again["id"] != task["id"]
    assert len(cluster.model.asks[-1].turns) == 3
    rpc.task("elsewhere")
    assert len(cluster.model.asks[-1].turns) == 1


def test_decision_goes_on_with_the_conversation_of_the_context(rpc: Rpc, cluster: Cluster) -> None:
    context = rpc.task("first")["contextId"]
    task = rpc.task("delete web", contextId=context)
    (call,) = proposals(task)
    rpc.task({"id": call["id"], "execute": True}, taskId=task["id"])
    before, after = (ask.turns for ask in cluster.model.asks[-2:])
    assert len(before) == 3
    assert [turn.blocks for turn in after[:3]] == [turn.blocks for turn in before]
    assert len(after) == 5


def test_refused_message_of_a_new_task_is_no_part_of_the_conversation(
    rpc: Rpc, cluster: Cluster
) -> None:
    task = rpc.task("delete web")
    (call,) = proposals(task)
    wrong = {"id": "f" * 32, "execute": True}
    for part in ("meanwhile", wrong):
        refused = rpc.task(part, contextId=task["contextId"])
        assert refused["status"]["state"] == "TASK_STATE_REJECTED"
    done = rpc.task({"id": call["id"], "execute": True}, contextId=task["contextId"])
    assert reply_of(done) == "The tool says: deleted web"
    assert len(cluster.model.asks[-1].turns) == 3


def test_failure_of_a_task_is_nothing_that_the_agent_said(serve: Serve) -> None:
    said: list[list[tuple[str, str]]] = []

    def agent(messages: Sequence[Message]) -> str:
        said.append([(message.role, message.content) for message in messages])
        if messages[-1].content == "fail":
            raise RuntimeError("no")
        return "well"

    rpc = Rpc(serve(agent, adapter="a2a"))
    failed = rpc.task("fail")
    assert failed["status"]["state"] == "TASK_STATE_FAILED"
    rpc.task("more", contextId=failed["contextId"])
    assert said[-1] == [("user", "fail"), ("user", "more")]


def test_message_that_another_task_still_answers_is_not_answered_twice(
    rpc: Rpc, cluster: Cluster
) -> None:
    body = {"message": message("hold"), "configuration": {"returnImmediately": True}}
    context = rpc("SendMessage", **body)["result"]["task"]["contextId"]
    wait_for(cluster.began.is_set)
    rpc.task("hello", contextId=context)
    cluster.holding.set()
    (turn,) = next(ask for ask in reversed(cluster.model.asks) if "hello" in str(ask)).turns
    assert [getattr(block, "text", None) for block in turn.blocks] == ["hello"]


def test_session_goes_on_with_the_context_as_it_was(serve: Serve) -> None:
    kept = {"count": 1, "id": 9007199254740993, "ratio": 2.0, "list": [1, {"a": None}]}
    seen: list[Any] = []

    def agent(messages: list[Message], context: RequestContext) -> str:
        seen.append({name: context.session.get(name) for name in kept})
        if messages[-1].content == "keep":
            context.session.update(kept)
        else:
            context.session.clear()
        return "ok"

    rpc = Rpc(serve(agent, adapter="a2a"))
    first = rpc.task("keep")
    rpc.task("clear", contextId=first["contextId"])
    rpc.task("look", contextId=first["contextId"])
    assert json.dumps(seen[1]) == json.dumps(kept)
    assert seen[2] == dict.fromkeys(kept)


def test_edited_whole_number_stays_whole(serve: Serve) -> None:
    schema = {"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"]}
    ran: list[Any] = []

    @tool(requires_approval=True, editable=True, input_schema=schema)
    def scale(n: int) -> str:
        """Scale."""
        ran.append(n)
        return "scaled"

    rpc = Rpc(serve(Agent(name="scaler", model=Scripted(scaling), tools=[scale]), adapter="a2a"))
    task = rpc.task("scale")
    (call,) = proposals(task)
    rpc.task({"id": call["id"], "execute": True, "input": {"n": 9}}, taskId=task["id"])
    assert [repr(n) for n in ran] == ["9"]


def test_whole_numbers_that_the_caller_sent_are_whole_for_the_agent(serve: Serve) -> None:
    seen: list[Any] = []

    def agent(messages: Any, context: RequestContext) -> str:
        sent = incoming(context)
        assert sent is not None
        seen.extend([sent.parts[0]["data"], sent.metadata])
        return "done"

    Rpc(serve(agent, adapter="a2a")).task({"order": 7}, metadata={"order": 7})
    assert json.dumps(seen) == '[{"order": 7}, {"order": 7}]'


def scaling(ask: Ask) -> str | Call:
    return Call("c", "scale", {"n": 3}) if len(ask.turns) == 1 else "done"


def test_approval_by_a_data_part_runs_the_call_once(rpc: Rpc, cluster: Cluster) -> None:
    task = rpc.task("delete web")
    assert task["status"]["state"] == "TASK_STATE_INPUT_REQUIRED"
    (call,) = proposals(task)
    assert (call["name"], call["input"], call["execute"]) == ("delete_pod", {"name": "web"}, False)
    done = rpc.task({"id": call["id"], "execute": True}, taskId=task["id"])
    assert done["status"]["state"] == "TASK_STATE_COMPLETED"
    assert reply_of(done) == "The tool says: deleted web"
    assert cluster.deleted == ["web"]
    again = rpc(
        "SendMessage", message=message({"id": call["id"], "execute": True}, taskId=task["id"])
    )
    assert code_of(again) == -32004, "the task has ended"
    assert cluster.deleted == ["web"]


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
    rpc = Rpc(serve(cluster.agent, adapter="a2a"))
    task = rpc.task("delete web")
    (call,) = proposals(task)
    decision = {"id": call["id"], "execute": True}
    after = rpc.task(text or decision, taskId=task["id"])
    assert after["status"]["state"] == "TASK_STATE_INPUT_REQUIRED"
    assert proposals(after) == [call]
    done = rpc.task(decision, taskId=task["id"])
    assert done["status"]["state"] == "TASK_STATE_COMPLETED"
    assert reply_of(done) == "The tool says: deleted web"


def test_decision_on_the_call_of_another_task_leaves_this_one_waiting(
    rpc: Rpc, cluster: Cluster
) -> None:
    (other,) = proposals(rpc.task("delete db"))
    task = rpc.task("delete web")
    (call,) = proposals(task)
    after = rpc.task({"id": other["id"], "execute": True}, taskId=task["id"])
    assert cluster.deleted == ["db"]
    assert after["status"]["state"] == "TASK_STATE_INPUT_REQUIRED"
    assert after["status"]["message"]["parts"][0] == {"text": "The tool says: deleted db"}
    assert proposals(after) == [call]
    done = rpc.task({"id": call["id"], "execute": True}, taskId=task["id"])
    assert done["status"]["state"] == "TASK_STATE_COMPLETED"
    assert reply_of(done) == "The tool says: deleted web"
    assert cluster.deleted == ["db", "web"]


def test_task_waits_on_where_an_interceptor_answers(serve: Serve, cluster: Cluster) -> None:
    def greet(request: ChatRequest, context: RequestContext) -> AgentMessage | None:
        said = request.messages[-1].content
        return AgentMessage(content="good day") if said == "hello" else None

    cluster.agent.request_interceptors = (greet,)
    rpc = Rpc(serve(cluster.agent, adapter="a2a"))
    task = rpc.task("delete web")
    (call,) = proposals(task)
    after = rpc.task("hello", taskId=task["id"])
    assert after["status"]["state"] == "TASK_STATE_INPUT_REQUIRED"
    assert after["status"]["message"]["parts"][0] == {"text": "good day"}
    assert proposals(after) == [call]
    done = rpc.task({"id": call["id"], "execute": True}, taskId=task["id"])
    assert reply_of(done) == "The tool says: deleted web"


def test_rejection_by_a_data_part_runs_nothing(rpc: Rpc, cluster: Cluster) -> None:
    task = rpc.task("delete web")
    (call,) = proposals(task)
    done = rpc.task({"id": call["id"], "rejection_reason": "not today"}, taskId=task["id"])
    assert done["status"]["state"] == "TASK_STATE_COMPLETED"
    assert "not today" in reply_of(done)
    assert cluster.deleted == []


@pytest.mark.parametrize("parts", [["yes"], ["approve"], [{"execute": True}], [{"yes": 1}]])
def test_what_is_no_decision_approves_nothing(rpc: Rpc, cluster: Cluster, parts: list[Any]) -> None:
    task = rpc.task("delete web")
    after = rpc.task(*parts, taskId=task["id"])
    assert after["status"]["state"] == "TASK_STATE_INPUT_REQUIRED"
    assert proposals(after) == proposals(task)
    assert cluster.deleted == []
    (call,) = proposals(after)
    done = rpc.task({"id": call["id"], "execute": True}, taskId=task["id"])
    assert reply_of(done) == "The tool says: deleted web"


def test_refused_message_that_is_sent_again_leaves_the_proposal_in_its_place(
    rpc: Rpc, cluster: Cluster
) -> None:
    task = rpc.task("delete web")
    for id in ("again", "again", "another"):
        after = rpc.task("more", id=id, taskId=task["id"])
        assert proposals(after) == proposals(task)
    (call,) = proposals(task)
    done = rpc.task({"id": call["id"], "execute": True}, taskId=task["id"])
    assert reply_of(done) == "The tool says: deleted web"


def test_changed_arguments_run_nothing(rpc: Rpc, cluster: Cluster) -> None:
    task = rpc.task("delete web")
    (call,) = proposals(task)
    changed = {**call, "execute": True, "input": {"name": "db"}}
    after = rpc.task(changed, taskId=task["id"])
    assert after["status"]["state"] == "TASK_STATE_INPUT_REQUIRED"
    ours = after["status"]["message"]["metadata"]["sayso"]
    assert ours["error"]["code"] == "APPROVAL_CHANGED"
    assert cluster.deleted == []
    assert rpc.task({**call, "execute": True}, taskId=task["id"])["status"]["state"] == (
        "TASK_STATE_COMPLETED"
    )


@pytest.mark.parametrize(
    "wrong",
    [
        {"execute": "yes"},
        {"execute": 1},
        {"execute": True, "input": "x"},
        {"rejection_reason": 7},
    ],
)
def test_malformed_decision_is_refused_and_the_task_waits_on(
    shared: tuple[Rpc, Cluster], wrong: dict[str, Any]
) -> None:
    rpc, cluster = shared
    task = rpc.task("delete web")
    (call,) = proposals(task)
    refused = rpc("SendMessage", message=message({"id": call["id"], **wrong}, taskId=task["id"]))
    assert code_of(refused) == -32602
    state = rpc("GetTask", id=task["id"])["result"]["status"]["state"]
    assert state == "TASK_STATE_INPUT_REQUIRED"
    assert cluster.deleted == []


def test_refused_decision_states_no_call_that_expired(
    serve: Serve, cluster: Cluster, tmp_path: Path
) -> None:
    base = configured(tmp_path, adapter="a2a").model_dump(exclude_unset=True)
    short = {**base["approvals"], "ttl": 0.2}
    service = serve(cluster.agent, config=Config.model_validate({**base, "approvals": short}))
    rpc = Rpc(service)
    task = rpc.task("delete web")
    proposed = time.monotonic()
    (call,) = proposals(task)
    wait_for(lambda: time.monotonic() > proposed + short["ttl"])
    after = rpc.task({"id": call["id"], "execute": True}, taskId=task["id"])
    assert after["status"]["state"] == "TASK_STATE_INPUT_REQUIRED"
    assert "expired" in after["status"]["message"]["parts"][0]["text"]
    assert proposals(after) == []
    assert cluster.deleted == []


@pytest.mark.parametrize(
    ("method", "params", "code"),
    [
        ("SendMessage", {"message": message("x", taskId="unknown")}, -32001),
        ("GetTask", {"id": "unknown"}, -32001),
        ("CancelTask", {"id": "unknown"}, -32001),
        ("SubscribeToTask", {"id": "unknown"}, -32001),
        ("GetExtendedAgentCard", {}, -32004),
        ("NoSuchMethod", {}, -32601),
        ("SendMessage", {"message": "x"}, -32602),
        ("SendMessage", {}, -32602),
        ("GetTask", {"id": "x", "historyLength": -1}, -32602),
        ("ListTasks", {"pageSize": 1000}, -32602),
        ("ListTasks", {"pageToken": "wrong"}, -32602),
    ],
)
def test_error_codes(
    shared: tuple[Rpc, Cluster], method: str, params: dict[str, Any], code: int
) -> None:
    rpc, _ = shared
    answer = rpc(method, **params)
    assert (code_of(answer), answer["id"]) == (code, 1)


def test_notifications_are_off_by_default(rpc: Rpc) -> None:
    wanted = {"taskId": rpc.task("hello")["id"], "url": "https://example.com"}
    assert code_of(rpc("CreateTaskPushNotificationConfig", **wanted)) == -32003


def test_nothing_leaves_before_a_response_interceptor_saw_it(
    serve: Serve, caplog: pytest.LogCaptureFixture
) -> None:
    def agent(messages: list[Message], context: RequestContext) -> AgentMessage:
        working(context, "the secret is out")
        send_artifact(context, Artifact("secret"))
        return reply("a secret", artifacts=[Artifact("for you")])

    def alter(response: AgentMessage, context: RequestContext) -> str:
        return response.content.replace("secret", "rose")

    given = Agent(name="careful", response_interceptors=alter)
    given.function = agent
    service = serve(given, adapter="both")
    found = events(service, "/a2a/rest/message:stream", {"message": message("go")})
    shown = json.dumps([event for event in found if "task" not in event])
    assert "secret" not in shown
    assert found[-2]["artifactUpdate"]["artifact"]["parts"] == [{"text": "a rose"}]
    task = service.send("go")
    assert task["text"] == "a rose"
    assert [artifact["parts"] for artifact in task["artifacts"]] == [[{"text": "for you"}]]
    reported = [record.getMessage() for record in caplog.records if record.name == "sayso.a2a"]
    assert len(reported) == 2
    assert all("a response interceptor is installed" in line for line in reported)


def test_interceptors_see_and_change_the_artifacts_of_a_reply(serve: Serve) -> None:
    def agent(messages: list[Message], context: RequestContext) -> AgentMessage:
        return reply("two", artifacts=[Artifact("hunter2", id="a"), Artifact("fine", id="b")])

    def intercept(response: AgentMessage, context: RequestContext) -> AgentMessage:
        kept = response.data.model_dump()["a2a"]
        kept["artifacts"] = [a for a in kept["artifacts"] if "hunter2" not in json.dumps(a)]
        response.data = Data.model_validate({"a2a": kept})
        return response

    given = Agent(name="careful", response_interceptors=intercept)
    given.function = agent
    service = serve(given, adapter="both")
    artifact, said = Rpc(service).task("go")["artifacts"]
    assert artifact["parts"] == [{"text": "fine"}]
    assert said["name"] == "reply"
    assert [a["artifactId"] for a in service.send("go")["artifacts"]] == ["b"]


def test_artifacts_have_their_name_and_description(serve: Serve) -> None:
    def agent(messages: Any, context: RequestContext) -> AgentMessage:
        send_artifact(context, Artifact("1", id="page", name="Page", description="The first"))
        return reply(artifacts=[Artifact("2", id="rows", name="Rows", description="All")])

    task = Rpc(serve(agent, adapter="a2a")).task("report")
    shown = [(each["name"], each["description"], each["parts"]) for each in task["artifacts"]]
    assert shown == [("Page", "The first", [{"text": "1"}]), ("Rows", "All", [{"text": "2"}])]


def test_tools_of_an_agent_send_artifacts_too(serve: Serve) -> None:
    @tool
    def report(context: RequestContext) -> str:
        """Write a report."""
        working(context, "Writing")
        send_artifact(context, Artifact("page 1", name="report"))
        return "written"

    def answer(ask: Ask) -> str | Call:
        return "Done" if len(ask.turns) > 1 else Call("c", "report", {})

    service = serve(Agent(name="writer", tools=[report], model=Scripted(answer)), adapter="a2a")
    task = Rpc(service).task("go")
    artifact, said = task["artifacts"]
    assert (artifact["name"], artifact["parts"]) == ("report", [{"text": "page 1"}])
    assert (said["name"], said["parts"]) == ("reply", [{"text": "Done"}])
    assert "Writing" in json.dumps(task["history"])


def test_required_extension_must_be_asked_for(serve: Serve, cluster: Cluster) -> None:
    extension = {"uri": "urn:example:needed", "required": True}
    card = {"capabilities": {"streaming": True, "extensions": [extension]}}
    service = serve(cluster.agent, adapter="a2a", agent_card=card)
    assert code_of(Rpc(service)("SendMessage", message=message("hello"))) == -32008
    knowing = Rpc(service, **{"A2A-Extensions": "urn:example:needed"})
    assert knowing.task("hello")["status"]["state"] == "TASK_STATE_COMPLETED"


def test_rest_refuses_an_empty_message(shared: tuple[Rpc, Cluster]) -> None:
    rpc, _ = shared
    answer = rpc.service.http.post("/a2a/rest/message:send", json={}, headers=V1)
    assert answer.status_code == 400
    assert answer.json()["error"]["status"] == "INVALID_ARGUMENT"


def test_unsupported_media_type_of_a_part_is_refused(rpc: Rpc) -> None:
    sent = message()
    sent["parts"] = [{"raw": "dGNr", "mediaType": "application/x-unknown"}]
    assert code_of(rpc("SendMessage", message=sent)) == -32005


def test_media_type_of_a_part_goes_without_its_case_and_parameters(
    serve: Serve, cluster: Cluster
) -> None:
    skill = {"id": "s", "name": "s", "description": "s", "tags": ["s"], "inputModes": ["audio/ogg"]}
    card = {"defaultInputModes": ["Text/Plain", "image/*"], "skills": [skill]}
    rpc = Rpc(serve(cluster.agent, adapter="a2a", agent_card=card))

    def refused(media_type: str) -> bool:
        sent = message("hello")
        sent["parts"].append({"raw": "dGNr", "mediaType": media_type})
        answer = rpc("SendMessage", message=sent)
        return "error" in answer and code_of(answer) == -32005

    taken = ["", "text/plain; charset=utf-8", "TEXT/PLAIN", "image/png", "audio/ogg;codecs=opus"]
    assert not any(map(refused, taken))
    assert all(map(refused, ["text/html", "audio/mpeg", "application/x; text/plain"]))


def test_message_to_an_ended_task_or_a_wrong_context_is_refused(rpc: Rpc) -> None:
    ended = rpc.task("hello")
    assert code_of(rpc("SendMessage", message=message("x", taskId=ended["id"]))) == -32004
    assert code_of(rpc("CancelTask", id=ended["id"])) == -32002
    waiting = rpc.task("delete web")
    wrong = message("x", taskId=waiting["id"], contextId="other")
    assert code_of(rpc("SendMessage", message=wrong)) == -32602


def test_wrong_content_type_has_its_own_error(service: Service) -> None:
    headers = {**V1, "content-type": "text/plain"}
    for path in ("/a2a/rpc", "/a2a/rpc/"):
        answer = service.http.post(path, content=b"{}", headers=headers)
        assert (answer.status_code, code_of(answer.json())) == (200, -32005)
    answer = service.http.post("/a2a/rest/message:send", content=b"{}", headers=headers)
    assert answer.status_code == 400
    reasons = [detail["reason"] for detail in answer.json()["error"]["details"]]
    assert reasons == ["CONTENT_TYPE_NOT_SUPPORTED"]


def test_broken_and_large_bodies_are_refused(
    serve: Serve, cluster: Cluster, tmp_path: Path
) -> None:
    base = configured(tmp_path, adapter="a2a").model_dump(exclude_unset=True)
    service = serve(cluster.agent, config=Config.model_validate({**base, "limits": {"body": 500}}))
    headers = {**V1, "content-type": "application/json"}
    answer = service.http.post("/a2a/rpc", content=b"{", headers=headers)
    assert code_of(answer.json()) == -32700
    answer = service.http.post("/a2a/rpc", content=b"[]", headers=headers)
    assert code_of(answer.json()) == -32600
    large = b'"' + b"x" * 1000 + b'"'
    assert code_of(service.http.post("/a2a/rpc", content=large, headers=headers).json()) == -32600
    answer = service.http.post("/a2a/rest/message:send", content=large, headers=headers)
    assert (answer.status_code, answer.json()["error"]["code"]) == (413, 413)


@pytest.mark.parametrize("rest", [False, True])
def test_body_that_breaks_off_is_no_request_although_what_came_is_whole_json(rest: bool) -> None:
    body = b'{"jsonrpc": "2.0", "id": 1, "method": "GetTask", "params": {}}'
    started: list[bool] = []

    async def app(scope: Any, receive: Any, send: Any) -> None:
        started.append(True)

    async def call() -> None:
        coming = [
            {"type": "http.request", "body": body, "more_body": True},
            {"type": "http.disconnect"},
        ]
        headers = [(b"content-type", b"application/json"), (b"a2a-version", b"1.0")]
        scope = {"type": "http", "method": "POST", "query_string": b"", "headers": headers}

        async def receive() -> Any:
            return coming.pop(0)

        async def send(sent: Any) -> None:
            raise AssertionError("nobody is there to be answered")

        await Mended(app, limit=1000, nesting=64, rest=rest)(scope, receive, send)

    asyncio.run(call())
    assert started == []


def test_unknown_protocol_version_is_refused(service: Service) -> None:
    headers = {"A2A-Version": "99.0"}
    body = {"jsonrpc": "2.0", "id": 1, "method": "GetTask", "params": {"id": "x"}}
    answer = service.http.post("/a2a/rpc", json=body, headers=headers)
    assert code_of(answer.json()) == -32009
    assert service.http.get("/a2a/rest/tasks/x", headers=headers).status_code == 400


def test_minor_version_that_the_card_does_not_name_is_refused(service: Service) -> None:
    cases = (
        ("GetTask", "1.1", -32009, 400),
        ("GetTask", "1.99", -32009, 400),
        ("GetTask", "1.0.7", -32001, 404),
        ("tasks/get", "0.2", -32009, 400),
        ("tasks/get", "0.30", -32009, 400),
        ("tasks/get", "0.3.0", -32001, 404),
    )
    for method, given, code, status in cases:
        body = {"jsonrpc": "2.0", "id": 1, "method": method, "params": {"id": "x"}}
        headers = {"A2A-Version": given}
        answer = service.http.post("/a2a/rpc", json=body, headers=headers)
        assert (answer.json()["id"], code_of(answer.json())) == (1, code)
        path = "/a2a/rest/tasks/x" if method == "GetTask" else "/a2a/rest/v1/tasks/x"
        assert service.http.get(path, headers=headers).status_code == status


def test_version_may_be_a_parameter_of_the_request(service: Service) -> None:
    body = {"jsonrpc": "2.0", "id": 1, "method": "GetTask", "params": {"id": "x"}}
    for given, headers, code, status in (
        ("1.0", {}, -32001, 404),
        ("99.0", {}, -32009, 400),
        ("99.0", V1, -32001, 404),
    ):
        query = {"A2A-Version": given}
        answer = service.http.post("/a2a/rpc", json=body, params=query, headers=headers)
        assert code_of(answer.json()) == code
        answer = service.http.get("/a2a/rest/tasks/x", params=query, headers=headers)
        assert answer.status_code == status


def test_rest_answers_application_json(service: Service) -> None:
    http = service.http
    answer = http.post("/a2a/rest/message:send", json={"message": message("hello")}, headers=V1)
    task = answer.json()["task"]
    for got in (
        answer,
        http.get(f"/a2a/rest/tasks/{task['id']}", headers=V1),
        http.get("/a2a/rest/tasks", headers=V1),
        http.get("/a2a/rest/tasks/unknown", headers=V1),
        http.get("/a2a/rest/acme/tasks", headers=V1),
    ):
        assert got.headers["content-type"] == "application/json"
    assert http.get("/a2a/rest/tasks/unknown", headers=V1).status_code == 404
    assert http.post(f"/a2a/rest/tasks/{task['id']}:cancel", headers=V1).status_code == 400
    asked = http.get(
        "/a2a/rest/tasks?contextId=x", headers={**V1, "accept": "application/a2a+json"}
    )
    assert asked.headers["content-type"] == "application/a2a+json"
    kind = {**V1, "content-type": "application/a2a+json"}
    sent = json.dumps({"message": message("hello")}).encode()
    assert http.post("/a2a/rest/message:send", content=sent, headers=kind).status_code == 200


@pytest.mark.parametrize(("headers", "version"), [(V1, ""), ({"A2A-Version": "0.3"}, "/v1")])
def test_stream_that_is_refused_has_the_status_of_its_error(
    service: Service, headers: dict[str, str], version: str
) -> None:
    answer = service.http.post(f"/a2a/rest{version}/tasks/unknown:subscribe", headers=headers)
    assert answer.status_code == 404
    assert answer.headers["content-type"] == "application/json"
    assert answer.json()["error"]["status"] == "NOT_FOUND"


@pytest.mark.parametrize("binding", ["rpc", "rest"])
def test_stream_begins_with_the_task_and_ends_with_its_state(
    service: Service, binding: str
) -> None:
    sent = {"message": message("hello there world")}
    if binding == "rest":
        found = events(service, "/a2a/rest/message:stream", sent)
    else:
        body = {"jsonrpc": "2.0", "id": 7, "method": "SendStreamingMessage", "params": sent}
        found = [event["result"] for event in events(service, "/a2a/rpc", body)]
    assert found[0]["task"]["status"]["state"] == "TASK_STATE_SUBMITTED"
    assert found[1]["statusUpdate"]["status"]["state"] == "TASK_STATE_WORKING"
    chunks = [e["artifactUpdate"] for e in found if "artifactUpdate" in e]
    text = "".join(part["text"] for c in chunks for part in c["artifact"]["parts"])
    assert text == "You said: hello there world"
    assert [bool(c.get("append")) for c in chunks] == [False] + [True] * (len(chunks) - 1)
    last = found[-1]["statusUpdate"]["status"]
    assert last["state"] == "TASK_STATE_COMPLETED"
    assert "message" not in last, "the reply is the artifact"


@pytest.mark.parametrize("binding", ["rpc", "rest"])
def test_stream_reaches_a_client_that_ends_lines_as_python_does(serve: Serve, binding: str) -> None:
    odd = "a\x85b\u2028c\u2029d"
    service = serve(lambda messages: odd, adapter="a2a")
    sent: dict[str, Any] = {"message": message(odd)}
    path = "/a2a/rest/message:stream"
    if binding == "rpc":
        path = "/a2a/rpc"
        sent = {"jsonrpc": "2.0", "id": 7, "method": "SendStreamingMessage", "params": sent}
    with service.http.stream("POST", path, json=sent, headers=V1) as reply:
        lines = [line for line in reply.iter_lines() if line]
    reported = [json.loads(line.removeprefix("data: ")) for line in lines]
    # Once in the message of the task, and once in the reply.
    assert json.dumps(reported, ensure_ascii=False).count(odd) >= 2


def test_last_chunk_of_a_reply_says_so_also_where_the_end_is_known_later(serve: Serve) -> None:
    seen = threading.Event()

    async def agent(messages: object) -> AsyncIterator[str]:
        yield "one "
        yield "two"
        assert await asyncio.to_thread(seen.wait, PATIENCE)

    service = serve(agent, adapter="a2a")
    chunks: list[dict[str, Any]] = []
    text = ""
    sent = {"message": message("go")}
    with service.http.stream("POST", "/a2a/rest/message:stream", json=sent, headers=V1) as reply:
        for line in reply.iter_lines():
            event = json.loads(line.removeprefix("data:")) if line.startswith("data:") else {}
            if chunk := event.get("artifactUpdate"):
                chunks.append(chunk)
                text += chunk["artifact"]["parts"][0]["text"]
            if text == "one two":
                seen.set()
    assert text == "one two"
    assert [bool(c.get("lastChunk")) for c in chunks] == [False] * (len(chunks) - 1) + [True]
    assert {c["artifact"]["artifactId"] for c in chunks} == {chunks[0]["artifact"]["artifactId"]}


def test_stream_ends_where_input_is_required(service: Service) -> None:
    found = events(service, "/a2a/rest/message:stream", {"message": message("delete web")})
    assert found[-1]["statusUpdate"]["status"]["state"] == "TASK_STATE_INPUT_REQUIRED"


OLD_STREAMS = {
    "JSONRPC": (
        "/a2a/rpc",
        {
            "jsonrpc": "2.0",
            "id": 1,
            "method": "message/stream",
            "params": {
                "message": {
                    "kind": "message",
                    "messageId": "old",
                    "role": "user",
                    "parts": [{"kind": "text", "text": "delete web"}],
                }
            },
        },
    ),
    "HTTP+JSON": (
        "/a2a/rest/v1/message:stream",
        {"message": {"messageId": "old", "role": "ROLE_USER", "content": [{"text": "delete web"}]}},
    ),
}


@pytest.mark.parametrize("binding", OLD_STREAMS)
@pytest.mark.parametrize("version", [{"A2A-Version": "0.3"}, {}], ids=["stated", "unstated"])
def test_last_event_of_a_stream_of_0_3_is_final_where_input_is_required(
    service: Service, binding: str, version: dict[str, str]
) -> None:
    path, body = OLD_STREAMS[binding]
    with service.http.stream("POST", path, json=body, headers=version) as reply:
        lines = [line for line in reply.iter_lines() if line.startswith("data:")]
    found = [json.loads(line.removeprefix("data:")) for line in lines]
    shown = [event.get("result", event) for event in found]
    *before, last = [event.get("statusUpdate", event) for event in shown]
    assert last["status"]["state"] in ("input-required", "TASK_STATE_INPUT_REQUIRED")
    assert last["final"] is True
    assert not any(event.get("final") for event in before)


def test_stream_of_0_3_that_fails_after_its_begin_ends_with_an_error_event() -> None:
    sent: list[Any] = []

    async def app(scope: Any, receive: Any, send: Any) -> None:
        headers = [(b"content-type", b"text/event-stream")]
        await send({"type": "http.response.start", "status": 200, "headers": headers})
        await send({"type": "http.response.body", "body": b"data: {}\r\n\r\n", "more_body": True})
        raise UnsupportedOperationError(message="the task has ended")

    async def receive() -> Any:
        return {"type": "http.request", "body": b"", "more_body": False}

    async def send(message: Any) -> None:
        sent.append(message)

    path = "/a2a/rest/v1/tasks/1:subscribe"
    scope = {"type": "http", "method": "GET", "path": path, "headers": [], "query_string": b""}
    asyncio.run(Mended(app, limit=1000, nesting=64, rest=True)(scope, receive, send))
    *_, last = sent
    name, _, data = last["body"].decode().partition("\r\n")
    assert name == "event: error" and not last.get("more_body")
    assert json.loads(data.removeprefix("data: "))["error"]["status"] == "FAILED_PRECONDITION"


def test_call_without_a_method_is_refused_whatever_its_params_say(service: Service) -> None:
    body = {"jsonrpc": "2.0", "id": 1, "params": {"method": "message/stream"}}
    answer = service.http.post("/a2a/rpc", json=body)
    assert answer.status_code == 200
    assert answer.json()["error"]["code"] == -32600


def test_sender_that_does_not_wait_gets_a_working_task(rpc: Rpc, cluster: Cluster) -> None:
    answer = rpc("SendMessage", message=message("hold"), configuration={"returnImmediately": True})
    task = answer["result"]["task"]
    assert task["status"]["state"] in ("TASK_STATE_SUBMITTED", "TASK_STATE_WORKING")
    assert cluster.began.wait(PATIENCE)

    def state() -> str:
        return str(rpc("GetTask", id=task["id"])["result"]["status"]["state"])

    assert state() == "TASK_STATE_WORKING"
    cluster.holding.set()
    wait_for(lambda: state() == "TASK_STATE_COMPLETED")


def test_subscriber_sees_a_running_task_end(rpc: Rpc, service: Service, cluster: Cluster) -> None:
    answer = rpc("SendMessage", message=message("hold"), configuration={"returnImmediately": True})
    task_id = answer["result"]["task"]["id"]
    assert cluster.began.wait(PATIENCE)
    path = f"/a2a/rest/tasks/{task_id}:subscribe"
    found: list[dict[str, Any]] = []
    with service.http.stream("POST", path, headers=V1) as reply:
        for line in reply.iter_lines():
            if line.startswith("data:"):
                found.append(json.loads(line.removeprefix("data:")))
                cluster.holding.set()
    assert found[0]["task"]["id"] == task_id
    assert found[-1]["statusUpdate"]["status"]["state"] == "TASK_STATE_COMPLETED"
    assert code_of(rpc("SubscribeToTask", id=task_id)) == -32004


def test_running_task_is_canceled(rpc: Rpc, cluster: Cluster) -> None:
    answer = rpc("SendMessage", message=message("hold"), configuration={"returnImmediately": True})
    task_id = answer["result"]["task"]["id"]
    assert cluster.began.wait(PATIENCE)
    canceled = rpc("CancelTask", id=task_id)["result"]
    assert canceled["status"]["state"] == "TASK_STATE_CANCELED"
    cluster.holding.set()
    state = rpc("GetTask", id=task_id)["result"]["status"]["state"]
    assert state == "TASK_STATE_CANCELED"


def test_calls_of_a_canceled_task_cannot_be_approved(
    rpc: Rpc, service: Service, cluster: Cluster
) -> None:
    task = rpc.task("delete web")
    assert rpc("CancelTask", id=task["id"])["result"]["status"]["state"] == "TASK_STATE_CANCELED"
    (call,) = proposals(task)
    decided = {"approvals": [{"id": call["id"], "execute": True}]}
    body = {"messages": [{"role": "user", "content": "", "data": decided}]}
    refused = service.http.post("/api/chat", json=body)
    assert refused.json()["detail"][0]["type"] == "approval_conflict"
    assert cluster.deleted == []


def test_call_that_was_approved_before_its_task_was_canceled_does_not_run(
    rpc: Rpc, service: Service, cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    # The task would go on by itself.
    monkeypatch.setattr("sayso_a2a.watching.MOST", 0)
    task = rpc.task("delete web")
    (call,) = proposals(task)
    decide = service.host.calls.decide
    asyncio.run(decide(call["id"], Caller("console"), approved=True, run=False))
    rpc("CancelTask", id=task["id"])
    decided = {"approvals": [{"id": call["id"], "execute": True}]}
    body = {"messages": [{"role": "user", "content": "", "data": decided}]}
    refused = service.http.post("/api/chat", json=body)
    assert refused.json()["detail"][0]["type"] == "approval_conflict"
    assert cluster.deleted == []


def test_commands_of_a_canceled_task_cannot_be_approved(
    rpc: Rpc, service: Service, tmp_path: Path
) -> None:
    task = rpc.task(f"run touch {tmp_path}/ran")
    (command,) = proposals(task)
    assert command["type"] == "command"
    rpc("CancelTask", id=task["id"])
    decided = {"approvals": [{**command, "execute": True}]}
    body = {"messages": [{"role": "user", "content": "", "data": decided}]}
    refused = service.http.post("/api/chat", json=body)
    assert refused.json()["detail"][0]["type"] == "approval_conflict"
    assert not (tmp_path / "ran").exists()


def test_list_is_paged_newest_first(rpc: Rpc) -> None:
    context = rpc.task("one")["contextId"]
    ids = [rpc.task(text, contextId=context)["id"] for text in ("two", "three")]
    rpc.task("elsewhere")
    page = rpc("ListTasks", contextId=context, pageSize=2)["result"]
    assert [task["id"] for task in page["tasks"]] == list(reversed(ids))
    assert (page["totalSize"], page["pageSize"]) == (3, 2)
    assert all("artifacts" not in task for task in page["tasks"])
    rest = rpc("ListTasks", contextId=context, pageToken=page["nextPageToken"])["result"]
    assert (len(rest["tasks"]), rest["nextPageToken"]) == (1, "")
    done = rpc("ListTasks", contextId=context, status="TASK_STATE_INPUT_REQUIRED")["result"]
    assert done["tasks"] == []


def test_tasks_belong_to_their_principal(tmp_path: Path, cluster: Cluster) -> None:
    base = configured(tmp_path, adapter="a2a").model_dump(exclude_unset=True)
    tokens = {"ann": "token-of-ann", "bob": "token-of-bob"}
    config = Config.model_validate({**base, "auth": {"scheme": "bearer", "tokens": tokens}})
    with running(cluster.agent, config) as service:
        ann, bob = (Rpc(service, authorization=f"Bearer {t}") for t in tokens.values())
        card = service.http.get("/.well-known/agent-card.json").json()
        assert card["securitySchemes"]["bearer"]["httpAuthSecurityScheme"]["scheme"] == "Bearer"
        assert service.http.post("/a2a/rpc", json={}).status_code == 401
        task = ann.task("delete web")
        (call,) = proposals(task)
        approval = message({"id": call["id"], "execute": True}, taskId=task["id"])
        assert code_of(bob("GetTask", id=task["id"])) == -32001
        assert code_of(bob("CancelTask", id=task["id"])) == -32001
        assert code_of(bob("SubscribeToTask", id=task["id"])) == -32001
        assert code_of(bob("SendMessage", message=approval)) == -32001
        assert bob("ListTasks")["result"]["tasks"] == []
        fresh = bob("SendMessage", message=message({"id": call["id"], "execute": True}))
        assert fresh["result"]["task"]["status"]["state"] == "TASK_STATE_REJECTED"
        assert cluster.deleted == []


def test_failing_agent_fails_the_task_without_its_text(serve: Serve) -> None:
    def agent(messages: list[Message], context: RequestContext) -> str:
        raise RuntimeError("the password is hunter2")

    task = Rpc(serve(agent, adapter="a2a")).task("go")
    assert task["status"]["state"] == "TASK_STATE_FAILED"
    assert task["status"]["message"]["metadata"]["sayso"]["error"]["incident"]
    assert "hunter2" not in json.dumps(task)


def test_tasks_survive_a_restart_when_the_ledger_does(tmp_path: Path, cluster: Cluster) -> None:
    config = configured(tmp_path, ledger=f"sqlite:///{tmp_path}/ledger.db", adapter="a2a")
    with running(cluster.agent, config) as service:
        task = Rpc(service).task("delete web")
    with running(cluster.agent, config) as service:
        (call,) = proposals(task)
        done = Rpc(service).task({"id": call["id"], "execute": True}, taskId=task["id"])
    assert reply_of(done) == "The tool says: deleted web"
    assert cluster.deleted == ["web"]


def test_task_canceled_through_another_process_stops(
    tmp_path: Path, cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    # On a slow machine, a process that pauses for a while must not count as dead.
    monkeypatch.setattr("sayso_a2a.official.stores.LEASE", 600.0)
    config = configured(tmp_path, ledger=f"sqlite:///{tmp_path}/ledger.db", adapter="a2a")
    with running(cluster.agent, config) as here, running(Cluster().agent, config) as there:
        rpc = Rpc(here)
        answer = rpc(
            "SendMessage", message=message("hold"), configuration={"returnImmediately": True}
        )
        task_id = answer["result"]["task"]["id"]
        assert cluster.began.wait(PATIENCE)
        canceled = Rpc(there)("CancelTask", id=task_id)["result"]
        assert canceled["status"]["state"] == "TASK_STATE_CANCELED"
        cluster.holding.set()
        handler = here.host.plugins.get("a2a")._adapter(here.host)._handler
        wait_for(lambda: not handler._active_task_registry._active_tasks)
        for service in (here, there):
            state = Rpc(service)("GetTask", id=task_id)["result"]["status"]["state"]
            assert state == "TASK_STATE_CANCELED"


def test_database_store_of_the_sdk_keeps_tasks(tmp_path: Path, cluster: Cluster) -> None:
    pytest.importorskip("aiosqlite")
    url = f"sqlite+aiosqlite:///{tmp_path}/tasks.db"
    config = configured(
        tmp_path, ledger=f"sqlite:///{tmp_path}/ledger.db", adapter="a2a", database=url
    )
    with running(cluster.agent, config) as service:
        task = Rpc(service).task("delete web")
    with running(cluster.agent, config) as service:
        (call,) = proposals(task)
        Rpc(service).task({"id": call["id"], "execute": True}, taskId=task["id"])
    assert cluster.deleted == ["web"]
    assert not (tmp_path / "state" / "a2a-tasks.db").exists()


@pytest.mark.slow
def test_many_sends_keep_a_bounded_number_of_tasks(serve: Serve, cluster: Cluster) -> None:
    service = serve(cluster.agent, adapter="a2a", max_tasks=20)
    rpc = Rpc(service)
    first = rpc.task("hello")
    for _ in range(150):
        rpc.send("hello")
    assert code_of(rpc("GetTask", id=first["id"])) == -32001
    handler = service.host.plugins.get("a2a")._adapter(service.host)._handler
    wait_for(lambda: not handler._active_task_registry._active_tasks)


@pytest.mark.parametrize("host", ["127.0.0.1", "0.0.0.0"])
def test_tool_that_fetches_addresses_finds_no_call_to_approve(
    serve: Serve, cluster: Cluster, host: str, tmp_path: Path
) -> None:
    found: list[httpx.Response] = []
    base = configured(tmp_path, adapter="a2a").model_dump(exclude_unset=True)
    config = Config.model_validate({**base, "server": {**base["server"], "host": host}})

    @tool
    def fetch(path: str) -> str:
        """Get an address, as a tool for pages of the web would."""
        found.append(httpx.get(f"{service.url}{path}", headers={"A2A-Version": "1.0"}))
        return found[-1].text

    def fetching(ask: Ask) -> str | Call:
        newest = ask.turns[-1].blocks[-1]
        if isinstance(newest, Text) and newest.text.startswith("fetch "):
            return Call("call-1", "fetch", {"path": newest.text.split()[1]})
        return answer(ask)

    agent = Agent(
        name="kube", model=Scripted(fetching), tools=[*cluster.agent.tools.values(), fetch]
    )
    service = serve(agent, config=config)
    rpc = Rpc(service)
    task = rpc.task("delete web")
    (call,) = proposals(task)
    for path in ("tasks", "tasks?status=TASK_STATE_INPUT_REQUIRED", "tasks?pageSize=1"):
        rpc.task(f"fetch /a2a/rest/{path}")
        assert found[-1].status_code == 400
        assert "contextId" in found[-1].text
        for id in (call["id"], task["id"], task["contextId"]):
            assert id not in found[-1].text
    named = rpc("ListTasks", contextId=task["contextId"])["result"]["tasks"]
    assert [each["id"] for each in named] == [task["id"]]
    reader = Rpc(service, authorization=f"Bearer {service.host.start_token}")
    everything = reader("ListTasks")
    if host == "127.0.0.1":
        assert task["id"] in [each["id"] for each in everything["result"]["tasks"]]
    else:
        assert everything["error"]["code"] == -32602
    wrong = Rpc(service, authorization="Bearer wrong")("ListTasks")
    assert wrong["error"]["code"] == -32602
