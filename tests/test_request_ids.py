"""`X-Request-ID` is taken from the request, repeated in its answer, and stands in the log."""

from __future__ import annotations

import json
import logging
from typing import Any

import pytest

from sayso import Agent, Call, tool
from sayso.service.lines import JsonFormatter, LineFormatter, adding_fields
from sayso.testing import Served, Service, scripted, user

ID = {"X-Request-ID": "req-7.A_b"}
MESSAGES = {"messages": [user("hi")]}


@pytest.fixture
def service(sayso_served: Served) -> Service:
    return sayso_served(Agent(model=scripted(*["Hello."] * 9)), config="[server]\nready = true\n")


@pytest.mark.parametrize("path", ["/api/chat", "/api/chat-stream", "/api/v1/chat", "/nowhere"])
def test_each_answer_repeats_the_id_of_its_request(service: Service, path: str) -> None:
    for body in (MESSAGES, {"messages": "wrong"}):
        assert service.post(path, body, ID).headers["x-request-id"] == ID["X-Request-ID"]
    assert "x-request-id" not in service.post(path, MESSAGES).headers


@pytest.mark.parametrize("path", ["/health", "/ready"])
def test_health_checks_repeat_it_too(service: Service, path: str) -> None:
    assert service.get(path, ID).headers["x-request-id"] == ID["X-Request-ID"]


@pytest.mark.parametrize("given", ["a b", "x" * 129, "", 'a"b', "ä"])
def test_an_id_that_could_forge_a_line_is_replaced(service: Service, given: str) -> None:
    answer = service.post("/api/chat", MESSAGES, {"X-Request-ID": given})
    assert answer.status == 200
    made = answer.headers["x-request-id"]
    assert made != given
    assert len(made) == 32
    assert made.isalnum()


def test_a_refused_caller_gets_its_id_back(sayso_served: Served) -> None:
    config = '[auth]\nscheme = "bearer"\ntokens = { ann = "s3cret" }\n'
    service = sayso_served(Agent(model=scripted()), config=config)
    answer = service.post("/api/chat", MESSAGES, ID)
    assert answer.status == 401
    assert answer.headers["x-request-id"] == ID["X-Request-ID"]


def test_what_a_tool_logs_has_the_id_of_its_request(sayso_served: Served) -> None:
    lines: list[str] = []

    class Kept(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            lines.append(self.format(record))

    handler = Kept()
    handler.setFormatter(JsonFormatter())
    logger = logging.getLogger("sayso.test_request_ids")
    logger.addHandler(handler)

    @tool
    def look() -> str:
        """Look."""
        logger.warning("looking")
        return "seen"

    model = scripted([Call("1", "look", {})], "Done.", [Call("2", "look", {})], "Done.")
    service = sayso_served(Agent(model=model, tools=[look]))
    try:
        service.post("/api/chat", MESSAGES, ID)
        service.post("/api/chat", MESSAGES)
    finally:
        logger.removeHandler(handler)
    first, second = (json.loads(line) for line in lines)
    assert first["request_id"] == ID["X-Request-ID"]
    assert "request_id" not in second


def test_a_field_of_the_record_wins_over_that_of_the_request() -> None:
    said: Any = logging.makeLogRecord({"msg": "said", "name": "mine", "request_id": "b"})
    with adding_fields(request_id="a"):
        assert LineFormatter().format(said) == "said request_id=b"
