"""An approver reads texts in the order in which they run, and no rejection is ignored."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest
from websockets.sync.client import connect

from sayso import Agent, Call, pretty, tool, visible
from sayso.testing import Service, scripted, served
from sayso.wire.characters import escaped

RIGHT = "\u05d0 3 > 9 \u05d1"
"""A comparison between two Hebrew letters, which a screen reverses."""


@pytest.mark.parametrize("shown", [lambda text: visible(text, strict=True), pretty])
def test_text_between_right_to_left_letters_keeps_its_order_on_a_terminal(shown: Any) -> None:
    assert "\u2068\u05d0\u2069 3 > 9 \u2068\u05d1\u2069" in shown(RIGHT)
    words = "\u05d0\u05d1 \u05d2\u05d3"
    assert f"\u2068{words}\u2069" in shown(words)
    # An isolate in the model's own text does not end ours.
    assert "\u2069\u05d0" not in shown("\u2069\u05d0")


def test_json_for_a_terminal_has_no_control_characters() -> None:
    row = json.dumps({"a": "\x9b2J \u202e \u2028 \x7f"}, ensure_ascii=False)
    assert escaped(row) == '{"a": "\\u009b2J \\u202e \\u2028 \\u007f"}'
    assert json.loads(escaped(row)) == json.loads(row)


ran: list[str] = []


@tool(requires_approval=True)
def delete(name: str) -> str:
    """Delete a file."""
    ran.append(name)
    return "gone"


@pytest.fixture
def service() -> Iterator[Service]:
    ran.clear()
    model = scripted([Call("1", "delete", {"name": "a"})], *["gone"] * 3)
    with served(
        Agent(model=model, tools=[delete], name="cards"), config="[server]\na2a = true\n"
    ) as s:
        yield s


@pytest.mark.parametrize("execute", [True, False])
def test_empty_reason_of_a_rejection_is_an_error_on_every_path(
    service: Service, execute: bool
) -> None:
    (call,) = service.chat("delete a")["data"]["tool_calls"]
    decided = {**call, "execute": execute, "rejection_reason": ""}
    approval = {"id": call["id"], "execute": execute, "rejection_reason": ""}
    for data in ({"tool_calls": [decided]}, {"approvals": [approval]}):
        body = {
            "messages": [
                {"role": "user", "content": "delete a"},
                {"role": "user", "content": "", "data": data},
            ]
        }
        for path in (
            "/api/chat",
            "/api/chat-stream",
            "/api/sendMessage",
            "/api/sendMessageStream",
        ):
            refused = service.post(path, body)
            assert refused.status == 422, path
            assert "rejection_reason" in refused.text
        with connect(f"ws://127.0.0.1:{service.port}/api/chat-ws") as opened:
            opened.send(json.dumps(body))
            assert json.loads(opened.recv(60))["type"] == "error"
        sent = {"message": "", "data": data}
        assert service.post("/a2a/tasks/send", sent).status == 422
    assert ran == []


def test_callable_that_proposes_with_an_empty_reason_is_told() -> None:
    def proposes(messages: Any, context: Any) -> Any:
        call = {"id": "1", "name": "delete", "input": {}, "rejection_reason": ""}
        return {"content": "", "data": {"tool_calls": [call]}}

    with served(proposes) as service:
        assert service.ask("hej").status == 500
