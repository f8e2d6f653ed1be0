"""A reply says how its turn ended, and which calls it has carried out (design, sections 6 and
7)."""

from __future__ import annotations

import json
import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from agents import Counted, delete, scripted, suggest
from serving import Json, Serve, Service, approved, folded, said, text_of, user

from sayso import (
    Agent,
    AgentMessage,
    Call,
    Command,
    Data,
    LocalShell,
    ModelError,
    Reply,
    Text,
    ToolCall,
    ToolStart,
    Turn,
)

PATHS = pytest.mark.parametrize("path", ["v1", "v2"])


def down(ask: Any) -> Any:
    """Proposes a deletion, then fails."""
    if any(turn.role == "assistant" for turn in ask.turns):
        raise ModelError("server", "the provider is down")
    return [delete("a")]


class Approved:
    """A conversation whose approved call runs before the model fails."""

    def __init__(self, served: Serve, path: str, **fields: Any) -> None:
        self.tools = Counted()
        agent, _ = scripted(down, self.tools.tools, **fields)
        self.service: Service = served(agent)
        self.path = path
        first = user("delete a")
        reply = self.service.chat(first, path=path)
        self.call: Json = reply["data"]["tool_calls"][0]
        deciding = user("", data={"tool_calls": [approved(self.call)]})
        self.messages = [first, said(reply), deciding]


def test_failed_v2_turn_states_the_call_that_it_carried_out(served: Serve) -> None:
    r = Approved(served, "v2")
    answer = r.service.ask(*r.messages, path="v2")
    assert answer.status == 502
    body = answer.json()
    assert body["code"] == "MODEL_ERROR"
    assert r.tools.names == ["a"]
    [ran] = body["data"]["executed_tool_calls"]
    assert (ran["id"], ran["output"]) == (r.call["id"], "deleted a")


def test_failed_v1_turn_says_in_words_what_it_carried_out(served: Serve) -> None:
    r = Approved(served, "v1")
    answer = r.service.ask(*r.messages, path="v1")
    assert answer.status == 500
    detail = answer.json()["detail"]
    assert detail.startswith("Agent returned an invalid message")
    assert "delete" in detail
    assert "deleted a" in detail
    assert set(answer.json()) == {"detail"}


@PATHS
def test_failed_stream_states_the_call_before_its_error(served: Serve, path: str) -> None:
    r = Approved(served, path)
    events = r.service.stream(*r.messages, path=path)
    assert [e["type"] for e in events] == ["executed_tool_calls", "error"]


@pytest.mark.parametrize("stream", [False, True])
def test_failed_turn_states_what_it_carried_out_as_response_interceptors_leave_it(
    served: Serve, stream: bool
) -> None:
    def redact(response: AgentMessage, context: Any) -> None:
        for call in response.data.executed_tool_calls:
            call.output = call.output.replace("deleted", "[redacted]")

    r = Approved(served, "v2", response_interceptors=redact)
    if stream:
        first, last = r.service.stream(*r.messages)
        assert last["type"] == "error"
        assert first["executed_tool_calls"][0]["output"] == "[redacted] a"
    else:
        body = r.service.ask(*r.messages).json()
        assert body["data"]["executed_tool_calls"][0]["output"] == "[redacted] a"


def test_outcome_that_no_interceptor_could_see_is_not_stated(served: Serve) -> None:
    def fail(response: AgentMessage, context: Any) -> None:
        if response.data.executed_tool_calls:
            raise RuntimeError("no redaction today")

    r = Approved(served, "v2", response_interceptors=fail)
    answer = r.service.ask(*r.messages)
    assert answer.json()["code"] == "MODEL_ERROR"
    assert "deleted" not in answer.raw.decode()


def test_failed_turn_of_a_callable_states_what_it_raised_for(served: Serve) -> None:
    def agent(messages: Any, context: Any) -> AgentMessage:
        if context.decisions:
            raise ValueError("it cannot be rebooted")
        call = ToolCall(id="mine", name="reboot", input={"host": "a"})
        return AgentMessage(data=Data(tool_calls=[call]))

    service = served(agent)
    first = user("reboot a")
    reply = service.chat(first)
    [call] = reply["data"]["tool_calls"]
    answer = service.ask(first, said(reply), user("", data={"tool_calls": [approved(call)]}))
    assert answer.status == 500
    [ran] = answer.json()["data"]["executed_tool_calls"]
    assert ran["output"].startswith("Error:")


def test_failed_turn_states_the_command_that_it_carried_out(served: Serve, tmp_path: Any) -> None:
    def script(ask: Any) -> Any:
        if any(turn.role == "assistant" for turn in ask.turns):
            raise ModelError("server", "the provider is down")
        return [suggest("echo here")]

    agent, _ = scripted(script, commands=LocalShell(workdir=tmp_path))
    service = served(agent)
    first = user("look")
    reply = service.chat(first)
    [command] = reply["data"]["cmds"]
    deciding = user("", data={"cmds": [approved(command)], "session": reply["data"]["session"]})
    body = service.ask(first, said(reply), deciding).json()
    assert [ran["output"].strip() for ran in body["data"]["executed_cmds"]] == ["here"]
    v1 = service.ask(first, said(reply), deciding, path="v1").json()["detail"]
    assert Command(command="echo here").command in v1


def test_refused_request_that_carried_nothing_out_has_no_data(served: Serve) -> None:
    def fails(ask: Any) -> Any:
        raise ModelError("server", "the provider is down")

    agent, _ = scripted(fails)
    assert set(served(agent).ask(user("hi")).json()) == {"detail", "code", "incident"}


@pytest.mark.parametrize("stop", ["max_tokens", "refusal"])
def test_empty_reply_says_in_a_sentence_why_it_is_empty(served: Serve, stop: Any) -> None:
    agent, _ = scripted([Reply(Turn("assistant", []), stop)] * 3)
    service = served(agent)
    reply = service.chat(user("go"))
    assert reply["content"]
    assert reply["meta_data"] == {"stop_reason": stop}
    events = service.stream(user("go"))
    assert text_of(events) == reply["content"]
    assert "stop_reason" not in events[-1]["meta_data"]
    v1 = service.chat(user("go"), path="v1")
    assert v1["content"] == reply["content"]
    assert v1["meta_data"] == {}


def test_call_that_was_cut_at_the_output_limit_is_said_not_to_have_run(served: Serve) -> None:
    tools = Counted()
    cut = Reply(Turn("assistant", [delete("a")]), "max_tokens")
    agent, _ = scripted([cut], tools.tools)
    reply = served(agent).chat(user("go"))
    assert "not run" in reply["content"]
    assert tools.runs == []


def test_text_that_was_cut_stays_as_it_is(served: Serve) -> None:
    agent, _ = scripted([Reply(Turn("assistant", [Text("half")]), "max_tokens")] * 2)
    service = served(agent)
    reply = service.chat(user("go"))
    assert reply["content"] == "half"
    assert reply["meta_data"] == {"stop_reason": "max_tokens"}
    assert folded(service.stream(user("go"))) == reply


def test_reply_with_a_proposal_says_that_it_waits_for_approval(served: Serve) -> None:
    agent, _ = scripted([[delete("a")]] * 2, Counted().tools)
    service = served(agent)
    assert service.chat(user("go"))["meta_data"] == {"stop_reason": "approval_required"}
    assert service.chat(user("go"), path="v1")["meta_data"] == {}


def hushed(response: AgentMessage, context: Any) -> None:
    response.content = response.content.replace("hunter2", "***")


@pytest.mark.parametrize("path", ["v1", "v2"])
def test_intent_of_a_proposal_leaves_only_as_response_interceptors_leave_it(
    served: Serve, path: str, tmp_path: Path
) -> None:
    events: list[Any] = []
    agent, _ = scripted(
        [["I log in with hunter2 now.", delete("a")]] * 2,
        Counted().tools,
        response_interceptors=hushed,
        on_event=events.append,
    )
    service = served(agent, approvals__ledger=f"sqlite:///{tmp_path / 'calls.db'}")
    [call] = service.chat(user("go"), path=path)["data"]["tool_calls"]
    assert call["intent"] == "I log in with *** now."
    assert "hunter2" not in json.dumps(service.stream(user("go"), path=path))
    assert "hunter2" not in repr(events)
    with closing(sqlite3.connect(tmp_path / "calls.db")) as store:
        contents = store.execute("SELECT doc FROM sayso_contents").fetchall()
    assert len(contents) == 2
    assert "hunter2" not in repr(contents)


def test_name_of_an_unknown_tool_is_in_no_update_that_interceptors_do_not_see(
    served: Serve,
) -> None:
    class Streaming:
        provider, name = "test", "streaming"

        async def stream(self, ask: Any) -> Any:
            if len(ask.turns) == 1:
                yield ToolStart("hunter2")
                yield Reply(Turn("assistant", [Call("c1", "hunter2", {})]), "tool_use")
            else:
                yield Reply(Turn("assistant", [Text("done")]), "end_turn")

    agent = Agent(model=Streaming(), tools=Counted().tools, response_interceptors=hushed)
    assert "hunter2" not in json.dumps(served(agent).stream(user("go")))
