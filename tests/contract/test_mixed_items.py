"""Items of a streaming callable beside text: whole messages and events (design, section 8)."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime
from typing import Any

import pytest
from serving import Json, Serve, folded, text_of, user

from sayso import (
    AgentMessage,
    Commands,
    Data,
    Done,
    ExecutedCommand,
    ExecutedCommands,
    ExecutedToolCall,
    ExecutedToolCalls,
    ToolCall,
    ToolCalls,
    URLConfig,
)
from sayso.wire.messages import Command

BOOT = ToolCall(id="mine-1", name="reboot", input={"host": "a"})
HALT = ToolCall(id="mine-2", name="halt", input={"host": "b"})
OUTCOME = ExecutedToolCall(id="x", name="look", input={}, output="seen")
RAN = ExecutedCommand(command="ls", output="a b")


def yielding(*items: Any) -> Any:
    def agent(messages: Any, context: Any) -> Iterator[Any]:
        yield from items

    return agent


def both(served: Serve, *items: Any) -> tuple[Json, list[Json]]:
    """The synchronous reply and the stream's events, with the same content."""
    service = served(yielding(*items))
    reply, events = service.chat(user("go")), service.stream(user("go"))
    again = folded(events)
    for name in ("content", "meta_data", "timestamp", "user", "agent"):
        assert again[name] == reply[name]
    assert [c["name"] for c in again["data"]["approvals"]] == [
        c["name"] for c in reply["data"]["approvals"]
    ]
    return reply, events


@pytest.mark.parametrize(
    ("items", "text"),
    [
        ((AgentMessage(content="AB"), "c"), "ABc"),
        (("x", {"content": "y"}, "z"), "xyz"),
        ((AgentMessage(content="AB"), AgentMessage(content="CD"), "E"), "ABCDE"),
    ],
)
def test_text_keeps_its_order_around_whole_messages(
    served: Serve, items: tuple[Any, ...], text: str
) -> None:
    reply, events = both(served, *items)
    assert reply["content"] == text_of(events) == text


def test_whole_message_drops_nothing_that_came_before(served: Serve) -> None:
    first = AgentMessage(content="one ", data=Data(tool_calls=[HALT]), meta_data={"a": 1})
    links = [URLConfig(url="https://a.example")]
    reply, _ = both(
        served,
        ToolCalls([BOOT]),
        first,
        Commands([Command(command="ls")]),
        AgentMessage(content="two", data=Data(url_configs=links, session={"k": 1})),
        Done(meta_data={"b": 2}),
    )
    data = reply["data"]
    assert reply["content"] == "one two"
    assert [c["name"] for c in data["tool_calls"]] == ["reboot", "halt"]
    assert [c["command"] for c in data["cmds"]] == ["ls"]
    assert [link["url"] for link in data["url_configs"]] == ["https://a.example"]
    assert data["session"]["k"] == 1
    assert reply["meta_data"] == {"a": 1, "b": 2, "stop_reason": "approval_required"}


def test_done_of_a_callable_is_passed_on_whole(served: Serve) -> None:
    last = Done(
        data={"url_configs": [{"url": "https://a.example"}], "more": {"x": 1}},
        timestamp="2026-01-01T00:00:00Z",
    )
    reply, _ = both(served, "so far", last)
    assert [link["url"] for link in reply["data"]["url_configs"]] == ["https://a.example"]
    assert reply["data"]["more"] == {"x": 1}
    assert reply["timestamp"] == "2026-01-01T00:00:00Z"


def test_done_of_a_callable_may_hold_what_a_reply_may(served: Serve) -> None:
    stated: Any = {"timestamp": datetime(2026, 1, 5), "user": {"name": "Ann", "id": "u1"}}
    reply, events = both(served, "so far", Done(**stated))
    assert (reply["timestamp"], reply["user"]) == ("2026-01-05T00:00:00", stated["user"])
    # Clients send a reply back unchanged.
    history = {k: reply[k] for k in ("role", "content", "timestamp", "user")}
    again = served(yielding("on")).chat(user("go"), history, user("on"))
    assert again["content"] == "on"


def test_outcomes_that_come_before_text_leave_before_it(served: Serve) -> None:
    reply, events = both(served, ExecutedToolCalls([OUTCOME]), ExecutedCommands([RAN]), "text")
    assert [e["type"] for e in events] == [
        "executed_tool_calls",
        "executed_commands",
        "text_delta",
        "done",
    ]
    assert [c["output"] for c in reply["data"]["executed_tool_calls"]] == ["seen"]
    assert [c["output"] for c in reply["data"]["executed_cmds"]] == ["a b"]


def test_outcomes_one_by_one_are_one_event(served: Serve) -> None:
    other = OUTCOME.model_copy(update={"id": "y"})
    _, events = both(served, ExecutedToolCalls([OUTCOME]), ExecutedToolCalls([other]), "text")
    assert [e["type"] for e in events] == ["executed_tool_calls", "text_delta", "done"]
    assert [c["id"] for c in events[0]["executed_tool_calls"]] == ["x", "y"]


def test_outcomes_of_a_whole_message_leave_before_its_text(served: Serve) -> None:
    whole = AgentMessage(content="text", data=Data(executed_tool_calls=[OUTCOME]))
    _, events = both(served, whole, " and more")
    assert [e["type"] for e in events] == [
        "executed_tool_calls",
        "text_delta",
        "text_delta",
        "done",
    ]


@pytest.mark.parametrize("given", [{"command": "ls"}, {"command": "ls", "files": []}])
def test_command_proposed_as_an_approval_needs_no_files(served: Serve, given: Json) -> None:
    item = {"id": "a", "type": "command", "name": "run", "input": given}
    service = served(lambda messages, context: {"content": "", "data": {"approvals": [item]}})
    (command,) = service.chat(user("go"))["data"]["cmds"]
    assert (command["command"], command["files"]) == ("ls", None)


def test_command_approval_without_a_command_is_an_invalid_message(served: Serve) -> None:
    item = {"id": "a", "type": "command", "name": "run", "input": {}}
    service = served(lambda messages, context: {"content": "", "data": {"approvals": [item]}})
    answer = service.ask(user("go"), path="v1")
    assert answer.status == 500
    assert "neither text nor a message" in answer.json()["detail"]
