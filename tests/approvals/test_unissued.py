"""Approvals of calls that this service never proposed, with `approvals.accept_unissued` (section
6)."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from agents import Counted, delete, scripted, suggest
from serving import Json, Serve, Service, approved, said, user

from sayso import Blocked, LocalShell, RequestContext

UNISSUED = {"approvals__accept_unissued": True}
CALL = {"id": "theirs-1", "name": "delete", "input": {"name": "a"}}
APPROVED = {**CALL, "execute": True}


def outputs(service: Service, *messages: Json) -> list[str]:
    data = service.chat(*messages)["data"]
    return [e["output"] for name in data if name.startswith("executed_") for e in data[name]]


def command(text: str, **rest: Any) -> Json:
    return {"command": text, "execute": True, **rest}


def test_unissued_call_is_given_once_to_a_callable_to_carry_out(served: Serve) -> None:
    given: list[Any] = []

    def answer(messages: Any, context: RequestContext) -> str:
        given.extend((d.id, d.name, d.input, d.approved) for d in context.decisions)
        return "carried out"

    service = served(answer, **UNISSUED)
    messages = [user("wipe"), user("", data={"tool_calls": [APPROVED]})]
    for _ in range(2):
        assert outputs(service, *messages) == ["carried out"]
    assert given == [("theirs-1", "delete", {"name": "a"}, True)]


@pytest.mark.parametrize("carrier", ["tool_calls", "approvals"])
@pytest.mark.parametrize("shown", [False, True])
def test_unissued_call_runs_once_and_the_model_reads_its_result(
    served: Serve, carrier: str, shown: bool
) -> None:
    tools = Counted()
    agent, model = scripted(["gone", "still gone"], tools.tools)
    service = served(agent, **UNISSUED)
    before = [user("wipe")]
    if shown:
        before.append({"role": "assistant", "content": "may I?", "data": {"tool_calls": [CALL]}})
    messages = [*before, user("", data={carrier: [APPROVED]})]
    assert outputs(service, *messages) == ["deleted a"]
    assert "deleted a" in str(model.asks[-1].turns)
    assert outputs(service, *messages) == ["deleted a"]
    assert tools.names == ["a"]
    changed = {**APPROVED, "input": {"name": "b"}}
    refused = service.ask(*before, user("", data={carrier: [changed]}))
    assert refused.types == {"approval_changed"}


def test_unissued_command_without_an_id_runs_once_and_the_model_reads_its_output(
    served: Serve, tmp_path: Path
) -> None:
    agent, model = scripted(["one", "two", "three"], commands=LocalShell())
    service = served(agent, **UNISSUED)
    line = f"echo x >> {tmp_path}/runs; wc -l < {tmp_path}/runs"
    messages = [user("count"), user("", data={"cmds": [command(line)]})]
    assert outputs(service, *messages) == ["1\n"]
    assert f"The command `{line}` was run:\n1\n" in str(model.asks[-1].turns[-1].blocks[-1].text)
    assert outputs(service, *messages) == ["1\n"]
    twice = user("", data={"cmds": [command(line), command(line)]})
    assert outputs(service, user("count"), twice) == ["1\n", "2\n"]


def test_reply_to_an_unissued_command_is_no_news_to_the_model(served: Serve) -> None:
    agent, model = scripted(["ran", "again"], commands=LocalShell())
    service = served(agent, **UNISSUED)
    messages = [user("say"), user("", data={"cmds": [command("echo hi")]})]
    reply = service.chat(*messages)
    service.chat(*messages, said(reply), user("and now?"))
    reported = "".join(b.text for turn in model.asks[-1].turns for b in turn.blocks)
    assert reported.count("`echo hi` was run") == 1
    assert "not decided" not in reported


def test_unissued_commands_of_one_message_share_a_directory_and_no_other(served: Serve) -> None:
    agent, _ = scripted(["a", "b"], commands=LocalShell())
    service = served(agent, **UNISSUED)
    made = user("", data={"cmds": [command("echo kept > f"), command("cat f")]})
    assert outputs(service, user("one"), made) == ["", "kept\n"]
    (other,) = outputs(service, user("two"), user("", data={"cmds": [command("cat f")]}))
    assert "No such file" in other


def test_blocked_unissued_approval_leaves_nothing_that_waits(served: Serve) -> None:
    tools = Counted()

    def stop(request: Any, context: Any) -> None:
        if context.has_decision and request.messages[-1].content:
            raise Blocked("wait")

    agent, _ = scripted(["fine", "gone"], tools.tools, request_interceptors=stop)
    service = served(agent, **UNISSUED)
    shown = {"role": "assistant", "content": "may I?", "data": {"tool_calls": [CALL]}}
    before = [user("wipe"), shown]
    blocked = service.chat(*before, user("do it", data={"tool_calls": [APPROVED]}))
    assert blocked["content"] == "wait"
    assert service.chat(*before, user("never mind"))["content"] == "fine"
    assert outputs(service, *before, user("", data={"tool_calls": [APPROVED]})) == ["deleted a"]


@pytest.mark.parametrize(
    "item",
    [
        {"id": "x", "execute": True},
        {"id": "x", "type": "command", "execute": True},
        {"id": "x", "type": "command", "input": {"command": 5}, "execute": True},
        {"id": "x", "type": "command", "input": {"command": "ls", "files": 5}, "execute": True},
        {**APPROVED, "id": ""},
    ],
)
def test_approval_that_does_not_say_what_to_run_is_refused(served: Serve, item: Json) -> None:
    agent, _ = scripted(["never"], Counted().tools, commands=LocalShell())
    service = served(agent, **UNISSUED)
    answer = service.ask(user("go"), user("", data={"approvals": [item]}))
    assert answer.types == {"approval_not_issued"}


@pytest.mark.parametrize("files", [5, "abc", {"a": 1}, ["x"]])
@pytest.mark.parametrize("keeps_id", [True, False])
def test_approval_of_a_command_with_strange_files_is_refused(
    served: Serve, files: Any, keeps_id: bool
) -> None:
    agent, _ = scripted([[suggest("echo hi"), delete("a")]], Counted().tools, commands=LocalShell())
    service = served(agent)
    reply = service.chat(user("go"))
    (item,) = [a for a in reply["data"]["approvals"] if a["type"] == "command"]
    changed = {**item, "input": {"command": "echo hi", "files": files}, "execute": True}
    changed["id"] = item["id"] if keeps_id else ""
    answer = service.ask(user("go"), said(reply), user("", data={"approvals": [changed]}))
    assert answer.types == {"approval_changed" if keeps_id else "approval_not_issued"}


def test_an_unissued_call_beside_one_already_told_is_news_to_the_model(served: Serve) -> None:
    agent, model = scripted([[delete("a")], "gone", "both gone"], Counted().tools)
    service = served(agent, **UNISSUED)
    reply = service.chat(user("wipe"))
    (call,) = reply["data"]["tool_calls"]
    first = approved(call)
    service.chat(user("wipe"), said(reply), user("", data={"tool_calls": [first]}))
    theirs = {**APPROVED, "input": {"name": "b"}}
    last = service.chat(user("wipe"), said(reply), user("", data={"tool_calls": [first, theirs]}))
    assert last["content"] == "both gone"
    assert "deleted b" in str(model.asks[-1].turns)


ENDED = {
    "tool_calls": {
        "tool_calls": [APPROVED],
        "executed_tool_calls": [{**CALL, "output": "deleted a"}],
    },
    "approvals": {
        "approvals": [APPROVED],
        "executed_approvals": [{**CALL, "output": "deleted a"}],
    },
    "rejected": {
        "approvals": [{"id": "theirs-1", "rejection_reason": "no"}],
        "executed_approvals": [{**CALL, "output": "Rejected: no"}],
    },
    "commands": {
        "cmds": [command("touch ran")],
        "executed_cmds": [{"command": "touch ran", "output": "ok"}],
    },
}


@pytest.mark.parametrize("settings", [{}, UNISSUED], ids=["refused", "accepted"])
@pytest.mark.parametrize("data", ENDED.values(), ids=ENDED)
def test_what_another_service_has_carried_out_is_history_and_no_decision(
    served: Serve, tmp_path: Path, data: Json, settings: Json
) -> None:
    tools = Counted()
    agent, model = scripted(["fine"], tools.tools, commands=LocalShell(workdir=tmp_path / "work"))
    service = served(agent, **settings)
    history = [user("wipe"), {"role": "assistant", "content": "It is done.", "data": data}]
    assert service.chat(*history, user("thanks"))["content"] == "fine"
    assert tools.runs == []
    assert not (tmp_path / "work" / "ran").exists()
    assert len(model.asks) == 1
