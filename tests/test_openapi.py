"""The OpenAPI document is true: each route, reply and refusal."""

from __future__ import annotations

import asyncio
import json
import os
import shutil
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import jsonschema_rs
import openapi_spec_validator
import pytest
from fastapi import APIRouter
from pydantic import BaseModel

from sayso import Agent, Call, Message, ModelError, PlatformContext, RequestContext, tool
from sayso.testing import Service, scripted, served, user

CHATS = ["/api/chat", "/api/sendMessage"]
STREAMS = ["/api/chat-stream", "/api/sendMessageStream"]
BEARER = 'plugins = ["v1", "v2", "console"]\n[auth]\nscheme = "bearer"\ntokens = {desk = "word"}\n'


class Event(BaseModel):
    """A model of a user's own route."""

    when: str


def mine(event: Event) -> Event:
    return event


async def answer(messages: Sequence[Message], context: RequestContext) -> str:
    match messages[-1].content:
        case "fail":
            raise OSError("it failed")
        case "provider":
            raise ModelError("server", "the provider failed")
        case "overload":
            raise ModelError("overloaded", "the provider has too much to do")
        case "wait":
            await asyncio.sleep(600)
    return "fine"


def document_of(service: Service, **headers: str) -> dict[str, Any]:
    document: dict[str, Any] = service.get("/openapi.json", headers).json()
    return document


def fields_of(node: Any) -> Iterator[tuple[str, dict[str, Any]]]:
    """Each property of each schema within `node`."""
    if isinstance(node, dict):
        given = node.get("properties")
        if isinstance(given, dict):
            yield from given.items()
        node = list(node.values())
    if isinstance(node, list):
        for each in node:
            yield from fields_of(each)


def test_every_property_and_operation_of_the_contract_is_described() -> None:
    agent = Agent(name="kube", description="Looks after a cluster.", model=scripted("fine"))
    config = 'plugins = ["v1", "v2"]\n' + BEARER.partition("\n")[2]
    with served(agent, config=config, docs=True, ready=True) as service:
        document = document_of(service, Authorization="Bearer word")
    assert document["info"]["title"] == "kube"
    assert document["info"]["description"] == "Looks after a cluster."
    lacking = [name for name, field in fields_of(document) if not field.get("description")]
    assert lacking == []
    schemas = document["components"]["schemas"]
    assert [name for name, schema in schemas.items() if not schema.get("description")] == []
    for path, operations in document["paths"].items():
        for operation in operations.values():
            assert operation["summary"] and operation["description"], path
    for path in (*CHATS, *STREAMS):
        operation = document["paths"][path]["post"]
        body = operation["requestBody"]["content"]["application/json"]
        assert {"question", "approval"} <= body["examples"].keys()
        assert (
            "code"
            in operation["responses"]["422"]["content"]["application/json"]["schema"]["properties"]
        )


EVERY = f"""
plugins = [
    "v1", "v2", "console", "approvals", "agui", "openai_api", "ui_stream", "resume", "metrics",
    "slack", "notify", "a2a", "oidc",
]
[server]
docs = true
ready = true
{BEARER.partition(chr(10))[2]}
[plugin.ui_stream]
resume = true
[plugin.a2a]
adapter = "both"
[auth.jwt]
issuer = "https://login.example.com/realms/staff"
[plugin.oidc]
client_id = "sayso"
[plugin.slack]
bot_token = "xoxb-1"
signing_secret = "s"
channel = "C1"
teams = ["T1"]
"""


@pytest.fixture(scope="module")
def whole() -> dict[str, Any]:
    """The document of a service with each plugin that has paths over HTTP."""
    with served(Agent(name="kube", model=scripted("fine")), config=EVERY) as service:
        return document_of(service, Authorization="Bearer word")


def test_every_plugin_describes_its_routes_and_their_fields(whole: dict[str, Any]) -> None:
    lacking = [name for name, field in fields_of(whole) if not field.get("description")]
    assert lacking == []
    ids = []
    for path, operations in whole["paths"].items():
        for method, operation in operations.items():
            ids.append(operation["operationId"])
            assert operation["summary"] and operation["description"], path
            # A route that nobody has described is called by its method and path.
            assert not operation["summary"].startswith(method.upper()), path
            assert any(status >= "400" for status in operation["responses"]), path
            for one in operation.get("parameters", []):
                assert one["description"], path
            if "requestBody" in operation:
                assert operation["requestBody"]["content"], path
    assert len(ids) == len(set(ids)) > 40


def test_each_json_body_that_is_taken_has_an_example(whole: dict[str, Any]) -> None:
    for path, operations in whole["paths"].items():
        for operation in operations.values():
            content = operation.get("requestBody", {}).get("content", {})
            if shown := content.get("application/json"):
                given = [one["value"] for one in shown.get("examples", {}).values()]
                given += [shown["example"]] if "example" in shown else []
                assert given, path
                for one in given:
                    validator(whole, shown["schema"])(one)


def test_each_path_that_can_stream_says_so(whole: dict[str, Any]) -> None:
    streams = {
        path
        for path, operations in whole["paths"].items()
        for operation in operations.values()
        if "text/event-stream" in operation["responses"].get("200", {}).get("content", {})
    }
    assert {"/v1/chat/completions", "/v1/responses", "/v1/responses/{id}"} <= streams
    assert {"/agui", "/agui/connect", "/ai/chat", "/approvals/events"} <= streams


def test_each_bound_of_a_number_is_a_keyword_of_json_schema(whole: dict[str, Any]) -> None:
    text = json.dumps(whole)
    assert [word for word in ("ge", "gt", "le", "lt", "strict") if f'"{word}": ' in text] == []
    for model in ("Approval-Input", "Approval-Output"):
        forms = whole["components"]["schemas"][model]["properties"]["revision"]["anyOf"]
        assert forms == [{"type": "integer", "minimum": 1}, {"type": "null"}]


def test_a_time_is_described_by_its_form_alone(whole: dict[str, Any]) -> None:
    schemas = whole["components"]["schemas"]
    for model in ("Message", "AgentMessage"):
        forms = schemas[model]["properties"]["timestamp"]["anyOf"]
        assert forms == [{"type": "string", "format": "date-time"}, {"type": "null"}]


def test_the_whole_document_is_valid_openapi(whole: dict[str, Any]) -> None:
    openapi_spec_validator.validate(whole)


def test_signed_and_public_paths_ask_for_no_token(whole: dict[str, Any]) -> None:
    free = {
        path
        for path, operations in whole["paths"].items()
        for operation in operations.values()
        if operation.get("security") == []
    }
    assert {"/health", "/slack/events", "/.well-known/agent-card.json"} <= free
    assert "/approvals" not in free and "/metrics" not in free


def test_the_examples_are_requests_that_the_service_takes() -> None:
    with served(Agent(model=scripted("fine")), docs=True) as service:
        document = document_of(service)
        examples = document["paths"]["/api/chat"]["post"]["requestBody"]["content"][
            "application/json"
        ]["examples"]
        assert service.post("/api/chat", examples["question"]["value"]).status == 200
        refused = service.post("/api/chat", examples["approval"]["value"])
        # Nobody has proposed this call; its form is right.
        assert "approval_not_issued" in refused.text


def test_the_page_of_the_interface_works_offline_and_with_a_token() -> None:
    chromium = shutil.which("chromium")
    if chromium is None:
        why = "there is no chromium on the path; on Debian: apt-get install chromium"
        pytest.fail(why) if os.environ.get("CI") == "true" else pytest.skip(why)
    playwright = pytest.importorskip("playwright.sync_api")
    asked: list[str] = []
    with (
        served(Agent(name="kube", model=scripted("fine")), config=EVERY) as service,
        playwright.sync_playwright() as driver,
    ):
        browser = driver.chromium.launch(executable_path=chromium, args=["--no-sandbox"])
        page = browser.new_page()
        page.on("request", lambda request: asked.append(request.url))
        page.goto(f"{service.url}/docs")
        page.get_by_label("Token").fill("wrong")
        page.get_by_role("button").click()
        page.get_by_text("The service answers 401.").wait_for()
        page.get_by_label("Token").fill("word")
        page.get_by_role("button").click()
        page.get_by_role("heading", name="kube").wait_for()
        page.get_by_text("POST /api/chat-stream").click()
        page.get_by_text("Each line is one event").locator("visible=true").first.wait_for()
        page.get_by_text("POST /approvals/{id}/decision").click()
        page.get_by_text("True approves the call").locator("visible=true").first.wait_for()
        page.get_by_text("as planned").locator("visible=true").first.wait_for()
        browser.close()
        assert service.get("/openapi.json").status == 401
    assert {url.split("/")[2] for url in asked} == {f"127.0.0.1:{service.port}"}


def test_openapi_lists_every_plain_route() -> None:
    with served(answer, docs=True, ready=True, a2a=True) as service:
        document = document_of(service)
    paths = document["paths"]
    assert paths.keys() >= {*CHATS, *STREAMS, "/health", "/ready", "/a2a/tasks/send"}
    (parameter,) = paths["/a2a/tasks/{id}"]["get"]["parameters"]
    assert (parameter["name"], parameter["in"], parameter["required"]) == ("id", "path", True)
    assert {"/docs", "/openapi.json"}.isdisjoint(paths)
    assert list(paths["/api/chat"]) == ["post"]
    for path in ("/health", "/ready"):
        content = paths[path]["get"]["responses"]["200"]["content"]
        status = content["application/json"]["schema"]["properties"]["status"]
        assert status["type"] == "string"
    assert "security" not in document


def test_openapi_tells_when_the_service_is_not_ready() -> None:
    with served(answer, docs=True, ready=True) as service:
        document = document_of(service)
    no = document["paths"]["/ready"]["get"]["responses"]["503"]["content"]["application/json"]
    reported = validator(document, no["schema"])
    for body in ({"status": "stopping"}, {"status": "not ready", "detail": "no room"}):
        reported(body)
    assert "503" not in document["paths"]["/health"]["get"]["responses"]


def test_openapi_says_that_the_paths_of_v1_are_deprecated() -> None:
    with served(answer, docs=True) as service:
        paths = document_of(service)["paths"]
    deprecated = {path for path in paths if paths[path].get("post", {}).get("deprecated")}
    assert deprecated == {"/api/sendMessage", "/api/sendMessageStream"}


def test_openapi_names_who_must_say_who_calls_and_leaves_files_out() -> None:
    with served(answer, docs=True, config=BEARER) as service:
        document = document_of(service, Authorization="Bearer word")
    paths = document["paths"]
    assert document["security"] == [{"bearer": []}]
    assert document["components"]["securitySchemes"]["bearer"]["scheme"] == "bearer"
    assert paths["/health"]["get"]["security"] == []
    assert "security" not in paths["/api/chat"]["post"]
    assert [path for path in paths if path.startswith("/console")] == [
        "/console/agent",
        "/console/approvals",
        "/console/approvals/{id}",
    ]


def validator(document: dict[str, Any], schema: dict[str, Any]) -> Callable[[Any], None]:
    """A validator that raises for values that `schema` of `document` does not allow."""
    made = jsonschema_rs.validator_for({**schema, "components": document["components"]})
    return made.validate


def test_openapi_leaves_models_of_other_routes_what_they_are() -> None:
    router = APIRouter()
    router.post("/mine")(mine)
    with served(answer, docs=True, additional_routers=[router]) as service:
        document = document_of(service)
    schemas, paths = document["components"]["schemas"], document["paths"]
    assert list(schemas["Event"]["properties"]) == ["when"]
    stream = paths["/api/chat-stream"]["post"]["responses"]["200"]["content"]
    ours = stream["application/x-ndjson"]["schema"]["$ref"].rpartition("/")[2]
    named = {one["$ref"].rpartition("/")[2] for one in schemas[ours]["oneOf"]}
    assert ours != "Event" and named <= schemas.keys()


CALL = {"id": "1", "name": "drop", "input": {}}
EVERY_FIELD = {
    "source": "x",
    "messages": [
        {
            "role": "user",
            "content": "hi",
            "timestamp": "2026-01-01T00:00:00Z",
            "user": {"name": "Ann", "id": "1"},
            "agent": {"name": "kube", "id": "2"},
            "platform_context": dict.fromkeys(PlatformContext.model_fields, "x")
            | {"aws_credentials": {}},
            "data": {
                "cmds": [
                    {"command": "ls", "execute": False, "id": "1", "intent": "x", "reason": "x"}
                    | {"files": [{"file_path": "x", "file_content": "x"}], "seen": "x"}
                ],
                "executed_cmds": [{"command": "ls", "output": "x", "id": "1"}],
                "tool_calls": [
                    {**CALL, "execute": False, "tool_description": "x", "input_description": {}}
                    | {"intent": "x", "reason": "x", "seen": "x"}
                ],
                "executed_tool_calls": [{**CALL, "output": "x"}],
                "approvals": [
                    {**CALL, "execute": False, "type": "tool_call", "description": "x"}
                    | {"intent": "x", "reason": "x", "seen": "x", "input_description": {}}
                    | {"bound": {}, "revision": 1, "editable": True, "votes": {}, "preview": "x"}
                ],
                "executed_approvals": [{**CALL, "output": "x", "type": "tool_call"}],
                "url_configs": [{"url": "x", "description": "x"}],
                "session": {},
            },
        },
        {"role": "user", "content": "hi"},
    ],
}


def with_one_null(value: Any) -> Iterator[Any]:
    """`value` with null in place of each part of it, one at a time."""
    parts = value.items() if isinstance(value, dict) else enumerate(value)
    for key, part in parts:
        inner = with_one_null(part) if isinstance(part, (dict, list)) else ()
        for one in (None, *inner):
            changed = value.copy()
            changed[key] = one
            yield changed


def test_null_is_taken_for_just_those_fields_that_openapi_says() -> None:
    with served(Agent(model=scripted(*["fine"] * 200)), docs=True) as service:
        document = document_of(service)
        request = document["paths"]["/api/chat"]["post"]["requestBody"]["content"]
        allows = validator(document, request["application/json"]["schema"])
        allows(EVERY_FIELD)
        assert service.post("/api/chat", EVERY_FIELD).status == 200
        taken = 0
        for body in with_one_null(EVERY_FIELD):
            answer = service.post("/api/chat", body)
            if answer.status == 200:
                allows(body)
                taken += 1
            else:
                with pytest.raises(jsonschema_rs.ValidationError):
                    allows(body)
                    raise AssertionError(f"{answer.body} answers {body}")
    assert taken > 50


def test_replies_and_events_are_what_openapi_says() -> None:
    @tool(requires_approval=True)
    def drop(name: str) -> str:
        """Drop a table."""
        return f"dropped {name}"

    call = Call("1", "drop", {"name": "users"})
    agent = Agent(model=scripted([call], "well", [call], "well"), tools=[drop])
    with served(agent, docs=True) as service:
        document = document_of(service)
        talk = service.conversation()
        replies = [talk.say("drop users"), talk.approve()]
        events = service.stream("drop users")
        decided = {**events[-2]["tool_calls"][0], "execute": True}
        asked = {"role": "assistant", "content": "", "data": {"tool_calls": [decided]}}
        events += service.stream("drop users", asked, user("", data={"tool_calls": [decided]}))
    check = validator(document, {"$ref": "#/components/schemas/AgentMessage"})
    for reply in replies:
        check(reply)
    check = validator(document, {"$ref": "#/components/schemas/Event"})
    for event in events:
        check(event)
    assert {"approvals", "tool_calls", "executed_tool_calls", "text_delta", "done"} <= {
        event["type"] for event in events
    }
    for wrong in ({"type": "text_delta"}, {"text": "x"}, {"type": "end", "text": "x"}):
        with pytest.raises(jsonschema_rs.ValidationError):
            check(wrong)


@pytest.mark.parametrize("path", CHATS + STREAMS)
@pytest.mark.parametrize(
    ("body", "headers", "status"),
    [
        (b"{}", {}, 400),
        (b'{"messages": [{"content": "hi"}]}', {}, 422),
        (b"{}", {"Content-Type": "text/plain"}, 415),
        (b'{"messages": "' + b"x" * 2000 + b'"}', {}, 413),
        (b"{}", {"Authorization": "Bearer wrong"}, 401),
        (b'{"messages": [{"role": "user", "content": "fail"}]}', {}, 500),
        (b'{"messages": [{"role": "user", "content": "provider"}]}', {}, 502),
        (b'{"messages": [{"role": "user", "content": "overload"}]}', {}, 503),
        (b'{"messages": [{"role": "user", "content": "wait"}]}', {}, 504),
    ],
)
def test_refusals_are_those_that_openapi_shows(
    path: str, body: bytes, headers: dict[str, str], status: int
) -> None:
    limits = f"[limits]\nbody = 1024\nturn_time = {0.2 if status == 504 else 600}\n"
    with served(answer, docs=True, config=BEARER + limits) as service:
        token = {"Authorization": "Bearer word"}
        responses = document_of(service, **token)["paths"][path]["post"]["responses"]
        got = service.post(path, body, token | headers)
    expected = min(status, 500) if "sendMessage" in path else status
    if path in STREAMS and expected >= 500:
        assert got.status == 200
        assert got.events[-1]["type"] == "error"
        return
    assert got.status == expected
    content = responses[str(got.status)]["content"]["application/json"]
    assert got.json().keys() <= content["schema"]["properties"].keys()
    examples = content["examples"].values()
    shown = [(example["value"].keys(), example["value"].get("code")) for example in examples]
    assert (got.json().keys(), got.json().get("code")) in shown
