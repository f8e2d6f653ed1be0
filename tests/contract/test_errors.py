"""Bad input and failures on every path (interface.md, "Errors"; design, section 7)."""

from __future__ import annotations

import gzip
import json
import logging
import math
import socket
from collections.abc import Iterator
from typing import Any

import pytest
from agents import scripted
from serving import PATHS, Json, Serve, Service, assistant, user

from raw import rest
from sayso import AgentError, AgentMessage, Done, ModelError

EVERY = [("v1", False), ("v1", True), ("v2", False), ("v2", True)]
ALL = pytest.mark.parametrize(("path", "stream"), EVERY, ids=["v1", "v1-stream", "v2", "v2-stream"])
SECRET = "hunter2-SECRET-value"


def url(path: str, stream: bool) -> str:
    return PATHS[path][stream]


def error_body(answer: Any, stream: bool) -> Json:
    body: Json = answer.json()
    assert answer.headers["content-type"] == "application/json"
    if stream:
        assert body["type"] == "error"
        assert isinstance(body["error"], str)
        assert body["error"]
    return body


@ALL
@pytest.mark.parametrize("body", [{}, {"source": "x"}, {"message": [SECRET]}])
def test_missing_messages_is_400(echo: Service, path: str, stream: bool, body: Json) -> None:
    answer = echo.post(url(path, stream), body)
    assert answer.status == 400
    detail = error_body(answer, stream)["detail"]
    assert isinstance(detail, str)
    assert "messages" in detail
    assert "missing" in detail
    assert SECRET not in answer.raw.decode()


def deep(levels: int) -> Any:
    value: Any = 1
    for _ in range(levels):
        value = [value]
    return value


def one(**changes: Any) -> Json:
    return {"messages": [{"role": "user", "content": "hi", **changes}]}


def with_data(**data: Any) -> Json:
    return one(data=data)


CALL = {"id": "i", "name": "n", "input": {}}
BAD: dict[str, tuple[Any, list[Any]]] = {
    "role": (one(role=SECRET), ["body", "messages", 0, "role"]),
    "role-system": (one(role="system"), ["body", "messages", 0, "role"]),
    "role-null": (one(role=None), ["body", "messages", 0, "role"]),
    "role-missing": ({"messages": [{"content": "x"}]}, ["body", "messages", 0, "role"]),
    "content-null": (one(content=None), ["body", "messages", 0, "content"]),
    "content-number": (one(content=31337), ["body", "messages", 0, "content"]),
    "content-list": (one(content=[SECRET]), ["body", "messages", 0, "content"]),
    "content-missing": ({"messages": [{"role": "user"}]}, ["body", "messages", 0, "content"]),
    "messages-null": ({"messages": None}, ["body", "messages"]),
    "messages-text": ({"messages": SECRET}, ["body", "messages"]),
    "messages-object": ({"messages": {"0": SECRET}}, ["body", "messages"]),
    "messages-empty": ({"messages": []}, ["body", "messages"]),
    "message-text": ({"messages": [SECRET]}, ["body", "messages", 0]),
    "message-null": ({"messages": [None]}, ["body", "messages", 0]),
    "source-number": ({**one(), "source": 5}, ["body", "source"]),
    "data-list": (one(data=[SECRET]), ["body", "messages", 0, "data"]),
    "session-list": (with_data(session=[SECRET]), ["body", "messages", 0, "data", "session"]),
    "calls-object": (
        with_data(tool_calls={"0": CALL}),
        ["body", "messages", 0, "data", "tool_calls"],
    ),
    "call-text": (
        with_data(tool_calls=[SECRET]),
        ["body", "messages", 0, "data", "tool_calls", 0],
    ),
    "call-no-id": (
        with_data(tool_calls=[{"name": SECRET, "input": {}}]),
        ["body", "messages", 0, "data", "tool_calls", 0, "id"],
    ),
    "call-no-name": (
        with_data(tool_calls=[{"id": "x", "input": {}}]),
        ["body", "messages", 0, "data", "tool_calls", 0, "name"],
    ),
    "call-no-input": (
        with_data(tool_calls=[{"id": "x", "name": "y"}]),
        ["body", "messages", 0, "data", "tool_calls", 0, "input"],
    ),
    "call-input-text": (
        with_data(tool_calls=[{**CALL, "input": SECRET}]),
        ["body", "messages", 0, "data", "tool_calls", 0, "input"],
    ),
    "execute-text": (
        with_data(tool_calls=[{**CALL, "execute": "true"}]),
        ["body", "messages", 0, "data", "tool_calls", 0, "execute"],
    ),
    "execute-number": (
        with_data(tool_calls=[{**CALL, "execute": 1}]),
        ["body", "messages", 0, "data", "tool_calls", 0, "execute"],
    ),
    "command-execute": (
        with_data(cmds=[{"command": SECRET, "execute": "yes"}]),
        ["body", "messages", 0, "data", "cmds", 0, "execute"],
    ),
    "command-missing": (
        with_data(cmds=[{"execute": True}]),
        ["body", "messages", 0, "data", "cmds", 0, "command"],
    ),
    "approval-type": (
        with_data(approvals=[{**CALL, "type": SECRET}]),
        ["body", "messages", 0, "data", "approvals", 0, "type"],
    ),
    "token-number": (
        one(platform_context={"platform_token": 123123123}),
        ["body", "messages", 0, "platform_context", "platform_token"],
    ),
    "token-object": (
        one(platform_context={"platform_token": {"secret": SECRET}}),
        ["body", "messages", 0, "platform_context", "platform_token"],
    ),
    "aws-text": (
        one(platform_context={"aws_credentials": SECRET}),
        ["body", "messages", 0, "platform_context", "aws_credentials"],
    ),
    "timestamp": (one(timestamp=SECRET), ["body", "messages", 0, "timestamp"]),
    "user-text": (one(user=SECRET), ["body", "messages", 0, "user"]),
    "body-list": ([SECRET], ["body"]),
    "body-text": (SECRET, ["body"]),
    "body-null": (None, ["body"]),
    "body-number": (7, ["body"]),
    "last-not-user": (
        {"messages": [user("a"), assistant(SECRET)]},
        ["body", "messages", 1, "role"],
    ),
}


@ALL
@pytest.mark.parametrize("name", list(BAD))
def test_wrong_field_is_422_at_its_place(echo: Service, path: str, stream: bool, name: str) -> None:
    body, loc = BAD[name]
    answer = echo.post(url(path, stream), body)
    assert answer.status == 422, answer.raw
    error_body(answer, stream)
    assert [item["loc"] for item in answer.items] == [loc]
    text = answer.raw.decode()
    for value in (SECRET, "31337", "123123123"):
        assert value not in text


def test_one_item_for_each_wrong_field(echo: Service) -> None:
    body = {"messages": [{"role": "x", "content": None}, {"role": "user"}]}
    items = echo.post("/api/chat", body).items
    assert [tuple(i["loc"]) for i in items] == [
        ("body", "messages", 0, "role"),
        ("body", "messages", 0, "content"),
        ("body", "messages", 1, "content"),
    ]


def test_of_many_wrong_fields_a_hundred_are_listed_and_the_rest_counted(echo: Service) -> None:
    *listed, rest = echo.post("/api/chat", {"messages": [1] * 250}).items
    assert [item["loc"] for item in listed] == [["body", "messages", n] for n in range(100)]
    message = "150 more errors are not listed"
    assert rest == {"loc": ["body"], "msg": message, "type": "more_errors"}


BROKEN = {
    "empty": b"",
    "blank": b"   ",
    "cut": b'{"messages": [{"role": "user", "content": "hunter2-SECRET-value',
    "trailing": b'{"messages": []} hunter2-SECRET-value',
    "two": b'{"messages": []}{"messages": []}',
    "quotes": b"{'messages': 'hunter2-SECRET-value'}",
    "nan": b'{"messages": [{"role": "user", "content": "x"}], "limit": NaN}',
    "infinity": b'{"messages": [{"role": "user", "content": "x", "n": -Infinity}]}',
    "nan-in-input": (
        b'{"messages": [{"role": "user", "content": "", "data": {"tool_calls": '
        b'[{"id": "a", "name": "b", "input": {"x": NaN}, "execute": true}]}}]}'
    ),
    "lone-surrogate": b'{"messages": [{"role": "user", "content": "\\ud800"}]}',
    "surrogate-key": b'{"messages": [{"role": "user", "content": "x", "\\udfff": 1}]}',
    "surrogate-in-fields": b'{"messages": [{"role": "user", "content": "x"}], "f": "\\ud83d"}',
    "not-utf8": b'{"messages": [{"role": "user", "content": "\xff\xfe"}]}',
    "utf16": '{"messages": [{"role": "user", "content": "x"}]}'.encode("utf-16"),
    "control": b'{"messages": [{"role": "user", "content": "a\x00b"}]}',
    "deep": b"[" * 100_000,
    "deep-closed": b'{"messages": ' + b"[" * 5_000 + b"]" * 5_000 + b"}",
}


@ALL
@pytest.mark.parametrize("name", BROKEN)
def test_what_is_no_json_is_422_json_invalid(
    echo: Service, path: str, stream: bool, name: str
) -> None:
    answer = echo.post(url(path, stream), BROKEN[name])
    assert answer.status == 422, answer.raw
    assert answer.types <= {"json_invalid", "too_deep", "recursion_loop"}
    assert SECRET not in answer.raw.decode()
    error_body(answer, stream)


def test_byte_order_mark_is_no_crash(echo: Service) -> None:
    answer = echo.post("/api/chat", b"\xef\xbb\xbf" + json.dumps(one()).encode())
    assert answer.status in (200, 422)


@ALL
def test_too_deep_is_422(echo: Service, path: str, stream: bool) -> None:
    body = {**one(), "more": deep(70)}
    assert echo.post(url(path, stream), body).types == {"too_deep"}
    assert echo.post(url(path, stream), {**one(), "more": deep(60)}).status == 200


def test_brackets_in_text_are_no_depth(echo: Service) -> None:
    tricky = '["' + "[{" * 500 + '\\" ]'
    assert echo.post("/api/chat", one(content=tricky)).status == 200


@ALL
def test_too_many_values_is_422(served: Serve, path: str, stream: bool) -> None:
    service = served(lambda messages, context: "fine", limits__values=100)
    # Six are around these.
    fits = {**one(content='[{,"' * 500), "more": [*([[], {}, "[,", None, 1] * 18), 1, 1, 1, 1]}
    assert service.post(url(path, stream), fits).status == 200
    fits["more"].append(1)
    answer = service.post(url(path, stream), fits)
    assert answer.types == {"too_many_values"}
    assert error_body(answer, stream)["detail"][0]["msg"] == "JSON holds more than 100 values"


def test_frame_with_too_many_values_is_an_error_event(served: Serve) -> None:
    service = served(lambda messages, context: "fine", limits__values=100)
    with service.ws() as ws:
        (event,) = ws.turn({**one(content="ü"), "more": [1] * 101})
        assert (event["type"], event["code"]) == ("error", "TOO_MANY_VALUES")
        assert ws.turn(one())[-1]["type"] == "done"


@ALL
def test_too_many_messages_is_422(served: Serve, path: str, stream: bool) -> None:
    service = served(lambda messages, context: "fine", limits__messages=3)
    three = [user("a"), assistant("b"), user("c")]
    assert service.post(url(path, stream), {"messages": three}).status == 200
    answer = service.post(url(path, stream), {"messages": [assistant("z"), *three]})
    assert [i["loc"] for i in answer.items] == [["body", "messages"]]


@ALL
@pytest.mark.parametrize(
    "kind", ["text/plain", "application/x-www-form-urlencoded", "text/json", ""]
)
def test_other_media_types_are_415(echo: Service, path: str, stream: bool, kind: str) -> None:
    answer = echo.post(url(path, stream), one(), Content_Type=kind)
    assert answer.status == 415
    body = error_body(answer, stream)
    assert isinstance(body["detail"], str)
    assert ("code" in body) == (path == "v2")


@pytest.mark.parametrize(
    "kind", ["application/json; charset=utf-8", "APPLICATION/JSON", "application/json ;x=y"]
)
def test_media_type_takes_parameters(echo: Service, kind: str) -> None:
    assert echo.post("/api/chat", one(), Content_Type=kind).status == 200


@ALL
def test_a_body_in_a_content_coding_is_415(echo: Service, path: str, stream: bool) -> None:
    answer = echo.post(url(path, stream), one(), Content_Encoding="gzip")
    assert answer.status == 415
    assert "content coding" in error_body(answer, stream)["detail"]
    assert echo.post(url(path, stream), one(), Content_Encoding="Identity").status == 200


def test_no_content_type_is_415(echo: Service) -> None:
    answer = echo.request("POST", "/api/chat", json.dumps(one()))
    assert answer.status == 415


@ALL
def test_declared_length_over_the_limit_is_413(served: Serve, path: str, stream: bool) -> None:
    service = served(lambda messages, context: "fine", limits__body=1000)
    answer = service.post(url(path, stream), one(content="x" * 2000))
    assert answer.status == 413
    assert isinstance(error_body(answer, stream)["detail"], str)
    assert service.post(url(path, stream), one(content="x" * 800)).status == 200


@ALL
def test_chunked_body_over_the_limit_is_413(served: Serve, path: str, stream: bool) -> None:
    service = served(lambda messages, context: "fine", limits__body=1000)

    def chunks(count: int) -> Iterator[bytes]:
        yield b'{"messages": [{"role": "user", "content": "'
        for _ in range(count):
            yield b"x" * 100
        yield b'"}]}'

    headers = {"Content-Type": "application/json"}
    assert service.request("POST", url(path, stream), chunks(8), headers).status == 200
    answer = service.request("POST", url(path, stream), chunks(20), headers)
    assert answer.status == 413
    error_body(answer, stream)


@pytest.mark.parametrize(
    "lines", ["gzip, chunked", "GZIP ,chunked", "gzip\r\nTransfer-Encoding: chunked"]
)
def test_a_body_in_a_transfer_coding_is_415(echo: Service, lines: str) -> None:
    body = gzip.compress(json.dumps(one()).encode())
    with socket.create_connection(("127.0.0.1", echo.port), timeout=60) as raw:
        raw.sendall(
            b"POST /api/chat HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\n"
            b"Connection: close\r\nTransfer-Encoding: %b\r\n\r\n"
            % lines.encode()
            + b"%x\r\n%b\r\n0\r\n\r\n" % (len(body), body)
        )
        said = rest(raw)
    assert said.startswith(b"HTTP/1.1 415")
    assert b"must not be compressed" in said


def test_chunked_body_without_end_is_cut_off_at_the_limit(served: Serve) -> None:
    service = served(lambda messages, context: "fine", limits__body=10_000)
    with socket.create_connection(("127.0.0.1", service.port), timeout=60) as raw:
        head = (
            b"POST /api/chat HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\n"
            b"Transfer-Encoding: chunked\r\n\r\n"
        )
        raw.sendall(head + (b"1000\r\n" + b"x" * 4096 + b"\r\n") * 4)
        assert raw.recv(100).startswith(b"HTTP/1.1 413")


@pytest.mark.parametrize("path", [p for pair in PATHS.values() for p in pair])
@pytest.mark.parametrize("method", ["GET", "PUT", "DELETE", "PATCH", "HEAD"])
def test_other_methods_are_405(echo: Service, path: str, method: str) -> None:
    answer = echo.request(method, path)
    assert answer.status == 405
    assert "POST" in answer.headers["allow"]


def test_health_takes_get_alone(echo: Service) -> None:
    answer = echo.request("GET", "/health")
    assert (answer.status, answer.json()) == (200, {"status": "ok"})
    assert echo.request("POST", "/health").status == 405


@pytest.mark.parametrize(
    "path",
    [
        "/api",
        "/api/chat/",
        "/api/Chat",
        "/docs",
        "/openapi.json",
        "/ready",
        "/.well-known/agent.json",
        "/a2a/tasks/send",
        "/api/chat-stream/x",
    ],
)
def test_other_paths_are_404(echo: Service, path: str) -> None:
    assert echo.request("GET", path).status == 404
    assert echo.post(path, one()).status == 404


@pytest.mark.parametrize("path", [*PATHS["v2"], "/api/chat-ws", "/api/chat/", "/api/chat-stream/x"])
def test_other_methods_and_paths_below_those_of_v2_have_a_code(echo: Service, path: str) -> None:
    answer = echo.request("PUT", path)
    detail, code = {
        404: ("Not Found", "NOT_FOUND"),
        405: ("Method Not Allowed", "METHOD_NOT_ALLOWED"),
    }[answer.status]
    assert answer.json() == {"detail": detail, "code": code}


@pytest.mark.parametrize("path", [*PATHS["v1"], "/api/sendMessage/x", "/api", "/nothing"])
def test_other_methods_and_paths_elsewhere_have_no_code(echo: Service, path: str) -> None:
    assert echo.request("PUT", path).json().keys() == {"detail"}


def test_v1_only_server_has_health_and_two_paths(served: Serve) -> None:
    service = served(lambda messages, context: "fine", plugins=["v1"])
    assert service.chat(user("x"), path="v1")["content"] == "fine"
    assert service.post("/api/chat", one()).status == 404
    assert service.post("/api/chat-stream", one()).status == 404
    assert service.request("GET", "/api/chat-ws").status == 404
    assert service.request("GET", "/api/chat").json() == {"detail": "Not Found"}
    assert service.request("GET", "/health").status == 200


def broken(messages: Any, context: Any) -> str:
    raise KeyError(SECRET)


async def broken_async(messages: Any, context: Any) -> str:
    raise OSError(SECRET)


def broken_late(messages: Any, context: Any) -> Iterator[str]:
    yield "some "
    raise KeyError(SECRET)


AGENTS = pytest.mark.parametrize("agent", [broken, broken_async])


@AGENTS
def test_agent_exception_is_v1s_500(
    served: Serve, agent: Any, caplog: pytest.LogCaptureFixture
) -> None:
    answer = served(agent).ask(user("x"), path="v1")
    assert answer.status == 500
    assert answer.json().keys() == {"detail"}
    assert answer.json()["detail"].startswith("Agent returned an invalid message")
    assert SECRET not in answer.raw.decode()
    assert "Traceback" not in answer.raw.decode()


def test_log_says_what_a_callable_returned_in_place_of_a_message(
    served: Serve, caplog: pytest.LogCaptureFixture
) -> None:
    service = served(lambda messages, context: None)
    with caplog.at_level(logging.ERROR):
        body = service.ask(user("x")).json()
    assert "NoneType" not in body["detail"]
    (reported,) = [r.getMessage() for r in caplog.records if body["incident"] in r.getMessage()]
    assert "it gave NoneType; return a str, a dict" in reported


@AGENTS
def test_agent_exception_is_v2s_500_whose_incident_is_logged(
    served: Serve, agent: Any, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.ERROR):
        answer = served(agent).ask(user("x"))
    assert answer.status == 500
    body = answer.json()
    assert body.keys() == {"detail", "code", "incident"}
    assert body["code"] == "AGENT_ERROR"
    assert SECRET not in answer.raw.decode()
    assert any(body["incident"] in r.getMessage() for r in caplog.records)


@pytest.mark.parametrize("path", ["v1", "v2"])
@pytest.mark.parametrize("agent", [broken, broken_async, broken_late])
def test_agent_exception_is_one_error_event_on_streams(
    served: Serve, agent: Any, path: str
) -> None:
    events = served(agent).stream(user("x"), path=path)
    assert [e["type"] for e in events[:-1]] == ["text_delta"] * (len(events) - 1)
    assert len(events) == (2 if agent is broken_late else 1)
    last = events[-1]
    assert last["type"] == "error"
    assert (last["code"], bool(last["incident"])) == ("AGENT_ERROR", True)
    assert SECRET not in json.dumps(events)


@pytest.mark.parametrize(
    "result",
    [
        None,
        7,
        1.5,
        object(),
        b"bytes",
        {"role": "user", "content": "x"},
        {"content": 5},
        {"content": "x", "data": {"tool_calls": [{"id": 1}]}},
        {"something": "else"},
        [1, 2],
        {"content": None},
        {"content": "x", "timestamp": "some day"},
        AgentMessage.model_construct(content="x", timestamp=5),
        AgentMessage.model_construct(content="x", user="joe"),
        ["x", Done(timestamp="some day")],
        ["x", Done(agent="joe")],
    ],
    ids=lambda result: type(result).__name__,
)
def test_invalid_result_is_the_contracts_500(served: Serve, result: Any) -> None:
    service = served(lambda messages, context: result)
    answer = service.ask(user("x"), path="v1")
    assert answer.status == 500, answer.raw
    assert answer.json()["detail"].startswith("Agent returned an invalid message")
    assert service.ask(user("x")).json()["code"] == "AGENT_ERROR"
    assert service.stream(user("x"))[-1]["code"] == "AGENT_ERROR"


@pytest.mark.parametrize(
    ("kind", "status", "code"),
    [
        ("rate_limit", 503, "MODEL_OVERLOADED"),
        ("overloaded", 503, "MODEL_OVERLOADED"),
        ("server", 502, "MODEL_ERROR"),
        ("auth", 502, "MODEL_ERROR"),
    ],
)
def test_failing_model_is_502_or_503(served: Serve, kind: Any, status: int, code: str) -> None:
    def fails(ask: Any) -> Any:
        raise ModelError(kind, "the provider failed", retry_after=7)

    agent, _ = scripted(fails)
    service = served(agent)
    answer = service.ask(user("x"))
    assert (answer.status, answer.json()["code"]) == (status, code)
    assert answer.headers.get("retry-after") == "7"
    assert answer.json()["incident"]
    one_ = service.ask(user("x"), path="v1")
    assert one_.status == 500
    assert one_.json()["detail"].startswith("Agent returned an invalid message")
    assert service.stream(user("x"))[-1]["code"] == code


def test_provider_that_is_away_is_one_line_of_the_log_and_a_fault_behind_it_has_its_stack(
    served: Serve, caplog: pytest.LogCaptureFixture
) -> None:
    said = iter(["the provider is away", "the provider failed"])

    def fails(ask: Any) -> Any:
        if (text := next(said)) == "the provider is away":
            raise ModelError("connection", text)
        raise ModelError("server", text) from KeyError("choices")

    def reported(incident: str) -> str:
        (record,) = [r.getMessage() for r in caplog.records if incident in r.getMessage()]
        return record

    service = served(scripted(fails)[0])
    incident = service.ask(user("x")).json()["incident"]
    assert reported(incident) == f"incident {incident}: MODEL_ERROR: the provider is away"
    stack = reported(service.ask(user("x")).json()["incident"])
    assert "Traceback" in stack and "KeyError: 'choices'" in stack


def test_who_waits_as_long_as_he_is_told_does_not_come_too_early(served: Serve) -> None:
    def fails(ask: Any) -> Any:
        raise ModelError("rate_limit", "not yet", retry_after=12.4)

    answer = served(scripted(fails)[0]).ask(user("x"))
    assert answer.headers.get("retry-after") == "13"


@pytest.mark.parametrize("seconds", [math.inf, math.nan])
def test_wait_without_end_is_not_told(served: Serve, seconds: float) -> None:
    def fails(ask: Any) -> Any:
        raise ModelError("overloaded", "not today", retry_after=seconds)

    answer = served(scripted(fails)[0]).ask(user("x"))
    assert (answer.status, answer.json()["code"]) == (503, "MODEL_OVERLOADED")
    assert "retry-after" not in answer.headers


def test_debug_tells_the_cause(served: Serve) -> None:
    answer = served(broken, server__debug=True).ask(user("x"))
    assert "KeyError" in answer.json()["detail"]


def test_turn_over_its_time_is_504(served: Serve) -> None:
    import asyncio

    async def slow(messages: Any, context: Any) -> str:
        await asyncio.sleep(600)
        return "never"

    service = served(slow, limits__turn_time=0.1)
    answer = service.ask(user("x"))
    assert (answer.status, answer.json()["code"]) == (504, "TURN_TIMEOUT")
    assert service.stream(user("x"))[-1]["code"] == "TURN_TIMEOUT"


def test_turn_that_catches_its_end_is_504_all_the_same(served: Serve) -> None:
    import asyncio
    from contextlib import suppress
    from threading import Event

    over = Event()

    async def stubborn(messages: Any, context: Any) -> str:
        while messages[-1].content == "x" and not over.is_set():
            with suppress(asyncio.CancelledError):
                await asyncio.sleep(0.05)
        return "late"

    service = served(stubborn, limits__turn_time=0.1)
    try:
        answer = service.ask(user("x"))
        assert (answer.status, answer.json()["code"]) == (504, "TURN_TIMEOUT")
        assert service.stream(user("x"))[-1]["code"] == "TURN_TIMEOUT"
        assert service.ask(user("y")).json()["content"] == "late"
    finally:
        over.set()


def test_agent_error_says_its_own_message(served: Serve) -> None:
    def agent(messages: Any, context: Any) -> str:
        raise AgentError("the printer is on fire")

    assert served(agent).ask(user("x")).json()["detail"] == "the printer is on fire"


def test_service_lives_on_after_every_failure(served: Serve) -> None:
    state = iter([1, 0])

    def agent(messages: Any, context: Any) -> str:
        return f"{1 // (1 - next(state))}"

    service = served(agent)
    assert service.ask(user("x")).status == 500
    assert service.chat(user("x"))["content"] == "1"


FRAMES: dict[str, Any] = {
    "text": "hello hunter2-SECRET-value",
    "empty": "",
    "list": "[]",
    "null": "null",
    "number": "42",
    "no-messages": "{}",
    "no-messages-more": '{"source": "hunter2-SECRET-value"}',
    "wrong-role": json.dumps(one(role=SECRET)),
    "nan": '{"messages": [{"role": "user", "content": "x"}], "f": NaN}',
    "infinite": '{"messages": [{"role": "user", "content": "x"}], "f": 1e999}',
    "surrogate": '{"messages": [{"role": "user", "content": "\\ud800"}]}',
    "deep": "[" * 50_000,
    "binary": b"\x00\x01\xff",
    "binary-empty": b"",
    "assistant-last": json.dumps({"messages": [assistant("x")]}),
    "execute-text": json.dumps(with_data(tool_calls=[{**CALL, "execute": "true"}])),
}


@pytest.mark.parametrize("name", FRAMES)
def test_bad_frame_gets_one_error_and_the_connection_lives_on(echo: Service, name: str) -> None:
    with echo.ws() as ws:
        (event,) = ws.turn(FRAMES[name])
        assert event["type"] == "error"
        assert event["error"]
        assert SECRET not in json.dumps(event)
        assert ws.turn(one())[-1]["type"] == "done"


def test_missing_messages_over_websocket_names_the_field(echo: Service) -> None:
    with echo.ws() as ws:
        (event,) = ws.turn("{}")
        assert "messages" in event["error"]


def test_binary_frame_that_holds_json_is_taken(echo: Service) -> None:
    with echo.ws() as ws:
        events = ws.turn(json.dumps(one()).encode())
        assert events[0] == {"type": "text_delta", "text": "fine"}


def test_agent_exception_over_websocket_leaves_it_open(served: Serve) -> None:
    def agent(messages: Any, context: Any) -> str:
        if messages[-1].content == "bad":
            raise KeyError(SECRET)
        return "fine"

    with served(agent).ws() as ws:
        for _ in range(3):
            (event,) = ws.turn(one(content="bad"))
            assert (event["type"], event["code"]) == ("error", "AGENT_ERROR")
            assert SECRET not in json.dumps(event)
            assert ws.turn(one())[-1]["type"] == "done"


def test_frame_over_the_limit_is_an_error_event(served: Serve) -> None:
    service = served(lambda messages, context: "fine", limits__frame=1000)
    with service.ws() as ws:
        (event,) = ws.turn(one(content="x" * 2000))
        assert (event["type"], event["code"]) == ("error", "TOO_LARGE")
        assert ws.turn(one())[-1]["type"] == "done"


def test_frame_limit_counts_bytes(served: Serve) -> None:
    service = served(lambda messages, context: "fine", limits__frame=1000)
    with service.ws() as ws:
        (event,) = ws.turn(json.dumps(one(content="\u00e9" * 700), ensure_ascii=False))
        assert (event["type"], event["code"]) == ("error", "TOO_LARGE")


def test_frame_far_over_the_limit_is_an_error_event_too(served: Serve) -> None:
    service = served(lambda messages, context: "fine", limits__frame=1000)
    with service.ws() as ws:
        (event,) = ws.turn(one(content="x" * 5000))
        assert (event["type"], event["code"]) == ("error", "TOO_LARGE")
        assert ws.turn(one())[-1]["type"] == "done"


def test_many_queued_frames_are_answered_in_order(served: Serve) -> None:
    service = served(lambda messages, context: messages[-1].content)
    with service.ws() as ws:
        for n in range(100):
            ws.send(one(content=f"number {n}"))
        texts = [ws.read() for _ in range(100)]
    assert ["".join(e.get("text", "") for e in events) for events in texts] == [
        f"number {n}" for n in range(100)
    ]


def test_good_and_bad_frames_mixed_keep_their_order(echo: Service) -> None:
    with echo.ws() as ws:
        for n in range(20):
            ws.send(one() if n % 2 else "broken")
        ends = [ws.read()[-1]["type"] for _ in range(20)]
    assert ends == ["error", "done"] * 10


def test_pings_are_answered_and_do_not_disturb(echo: Service) -> None:
    with echo.ws() as ws:
        pong = ws.raw.ping(b"there?")
        assert pong.wait(60)
        assert ws.turn(one())[-1]["type"] == "done"
        assert ws.raw.ping().wait(60)


def test_pong_comes_while_a_turn_blocks(served: Serve) -> None:
    import threading

    go = threading.Event()

    async def agent(messages: Any, context: Any) -> str:
        go.wait(120)
        return "fine"

    with served(agent).ws() as ws:
        ws.send(one())
        assert ws.raw.ping().wait(60)
        go.set()
        assert ws.read()[-1]["type"] == "done"


def test_websocket_echoes_its_own_request_fields_each_turn(echo: Service) -> None:
    with echo.ws() as ws:
        first = ws.turn({**one(), "ticket": 1})
        second = ws.turn(one())
    assert first[-1]["meta_data"] == {"request_context": {"ticket": 1}}
    assert second[-1]["meta_data"] == {}


def test_plain_get_on_the_websocket_path_is_no_crash(echo: Service) -> None:
    assert echo.request("GET", "/api/chat-ws").status in (404, 405, 426)
