"""Commands, matched without an id (interface.md, "Command lifecycle"; design, section 6)."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from agents import scripted, suggest
from serving import Json, Serve, Service, approved, assistant, said, user

from sayso import LocalShell

FILE = {"file_path": "sub/a.txt", "file_content": "hello"}


@pytest.fixture
def shell(tmp_path: Path) -> LocalShell:
    return LocalShell(workdir=tmp_path / "work")


class Round:
    """A service whose model suggested commands, and the reply with them."""

    def __init__(self, served: Serve, shell: LocalShell, *steps: Any, **settings: Any) -> None:
        agent, self.model = scripted([*steps, *["ran", "more", "again"]], commands=shell)
        self.service: Service = served(agent, **settings)
        self.first = user("do it")
        self.reply = self.service.chat(self.first)

    def bare(self, n: int = 0) -> Json:
        command = self.reply["data"]["cmds"][n]
        return {k: v for k, v in command.items() if k in ("command", "files")}

    def send(self, *commands: Json, content: str = "", **rest: Any) -> Any:
        data = {"cmds": list(commands), **rest}
        return self.service.ask(self.first, said(self.reply), user(content, data=data))

    def outputs(self, *commands: Json, **rest: Any) -> list[str]:
        answer = self.send(*commands, **rest)
        assert answer.status == 200, answer.raw
        return [e["output"].strip() for e in answer.json()["data"]["executed_cmds"]]


def test_suggested_command_is_not_run(served: Serve, shell: LocalShell, tmp_path: Path) -> None:
    r = Round(served, shell, [suggest(f"touch {tmp_path}/ran")])
    (command,) = r.reply["data"]["cmds"]
    assert (command["execute"], command["files"]) == (False, None)
    assert command["command"] == f"touch {tmp_path}/ran"
    assert r.reply["data"]["tool_calls"] == []
    assert [a["type"] for a in r.reply["data"]["approvals"]] == ["command"]
    assert not (tmp_path / "ran").exists()
    assert r.outputs(approved(command)) == [""]
    assert (tmp_path / "ran").exists()


def test_command_is_decided_by_its_id_alone(served: Serve, shell: LocalShell) -> None:
    r = Round(served, shell, [suggest("echo one", "echo two")])
    one, two = r.reply["data"]["approvals"]
    decided = [{"id": one["id"], "execute": True}, {"id": two["id"], "rejection_reason": "no"}]
    answer = r.send(approvals=decided)
    assert answer.status == 200, answer.raw
    assert [(e["type"], e["output"]) for e in answer.json()["data"]["executed_approvals"]] == [
        ("command", "one\n"),
        ("command", "Rejected: no"),
    ]
    other = [{**decided[0], "type": "tool_call"}]
    assert r.send(approvals=other).types == {"approval_not_issued"}


def test_of_commands_that_the_model_is_refused_none_is_suggested(
    served: Serve, shell: LocalShell
) -> None:
    agent, model = scripted([[suggest("echo one", "echo hunter2-token")], "I see."], commands=shell)
    message = user("go", platform_context={"platform_token": "hunter2-token"})
    reply = served(agent).chat(message)
    assert (reply["content"], reply["data"]["cmds"]) == ("I see.", [])
    (result,) = model.asks[-1].turns[-1].blocks
    assert result.is_error and "secret" in result.output


@pytest.mark.parametrize("unissued", [False, True])
def test_model_is_not_told_that_a_command_approved_by_its_text_never_ran(
    served: Serve, shell: LocalShell, unissued: bool
) -> None:
    settings = {"approvals": {"accept_unissued": unissued}}
    r = Round(served, shell, ["hello"] if unissued else [suggest("echo one")], **settings)
    by_text = {"id": "", "type": "command", "name": "command", "input": {"command": "echo one"}}
    decision = user("", data={"approvals": [{**by_text, "execute": True}]})
    talk = [r.first, said(r.reply), decision]
    reply = r.service.chat(*talk)
    assert [e["output"] for e in reply["data"]["executed_approvals"]] == ["one\n"]
    r.service.chat(*talk, said(reply), user("go on"))
    at_once, later = [str([t.blocks for t in ask.turns]) for ask in r.model.asks[1:]]
    assert "one" in at_once.replace("echo one", "")
    assert "never" not in at_once + later


@pytest.mark.parametrize("files", [None, [], "absent"])
def test_command_is_matched_by_its_text(served: Serve, shell: LocalShell, files: Any) -> None:
    r = Round(served, shell, [suggest("echo one")])
    command = {"command": "echo one", "execute": True}
    if files != "absent":
        command["files"] = files
    assert r.outputs(command) == ["one"]
    assert r.outputs(command) == ["one"]
    assert len(r.model.asks) == 2


def test_files_are_written_and_matched(served: Serve, shell: LocalShell) -> None:
    r = Round(served, shell, [suggest({"command": "cat sub/a.txt", "files": [FILE]})])
    assert r.reply["data"]["cmds"][0]["files"] == [FILE]
    changed = {**r.bare(), "files": [{**FILE, "file_content": "other"}], "execute": True}
    assert r.send(changed).types <= {"approval_not_issued", "approval_changed"}
    assert r.send({"command": "cat sub/a.txt", "execute": True}).status == 422
    assert r.outputs(approved(r.bare())) == ["hello"]


@pytest.mark.parametrize("text", ["echo two", "echo one ", "echo one; id", "ECHO one", ""])
def test_other_command_is_refused(
    served: Serve, shell: LocalShell, text: str, tmp_path: Path
) -> None:
    r = Round(served, shell, [suggest("echo one")])
    assert r.send({"command": text, "execute": True}).types == {"approval_not_issued"}
    with_id = {**r.reply["data"]["cmds"][0], "command": text, "execute": True}
    assert r.send(with_id).types == {"approval_changed"}


def test_command_nobody_suggested_is_refused(served: Serve, shell: LocalShell) -> None:
    agent, model = scripted(["x"], commands=shell)
    service = served(agent)
    command = {"command": "id", "execute": True}
    assert service.ask(user("", data={"cmds": [command]})).types == {"approval_not_issued"}
    (event,) = service.stream(user("", data={"cmds": [command]}), path="v1")
    assert event["type"] == "error"
    assert model.asks == []


def test_two_equal_commands_each_run_once(served: Serve, shell: LocalShell, tmp_path: Path) -> None:
    line = f"echo x >> {tmp_path}/log"
    r = Round(served, shell, [suggest(line, line)])
    assert len(r.reply["data"]["cmds"]) == 2
    bare = {"command": line, "execute": True}
    for _ in range(2):
        assert len(r.outputs(bare, bare)) == 2
        assert (tmp_path / "log").read_text() == "x\nx\n"


def test_commands_run_in_the_order_in_which_they_were_suggested(
    served: Serve, shell: LocalShell, tmp_path: Path
) -> None:
    r = Round(served, shell, [suggest("sleep 0.3; echo one > made", "cat made")])
    assert r.outputs(*map(approved, r.reply["data"]["cmds"])) == ["", "one"]


def test_rejected_command_is_not_run(served: Serve, shell: LocalShell, tmp_path: Path) -> None:
    r = Round(served, shell, [suggest(f"touch {tmp_path}/ran")])
    assert r.outputs({**r.bare(), "execute": False, "rejection_reason": "no"}) == []
    assert not (tmp_path / "ran").exists()
    result = r.model.asks[-1].turns[-1].blocks[0]
    assert result.is_error
    assert "no" in result.output
    assert r.send(approved(r.bare())).types == {"approval_conflict"}
    assert not (tmp_path / "ran").exists()


def test_model_reads_why_a_forgotten_command_was_rejected(served: Serve, shell: LocalShell) -> None:
    """The service that proposed it had another ledger; the rejection has no effect, and is
    reported."""
    agent, model = scripted(["I see"], commands=shell)
    before = assistant("", data={"cmds": [{"command": "rm -r x"}]})
    rejected = {"command": "rm -r x", "rejection_reason": "move it instead"}
    served(agent).chat(user("tidy up"), before, user("", data={"cmds": [rejected]}))
    (*_, last) = model.asks[-1].turns[-1].blocks
    assert "Rejected by the user: move it instead" in last.text
    assert "Nobody has" not in last.text


def test_new_text_leaves_commands_open(served: Serve, shell: LocalShell) -> None:
    r = Round(served, shell, [suggest("echo one")])
    second = r.service.ask(r.first, said(r.reply), user("what does it do?"))
    assert second.status == 200
    assert second.json()["content"] == "ran"
    results = [b for t in r.model.asks[-1].turns for b in t.blocks if hasattr(b, "call_id")]
    assert ["not decided" in b.output for b in results] == [True]
    later = r.service.ask(
        r.first,
        said(r.reply),
        user("what does it do?"),
        said(second.json()),
        user("", data={"cmds": [{"command": "echo one", "execute": True}]}),
    )
    assert later.status == 200, later.raw
    assert [e["output"].strip() for e in later.json()["data"]["executed_cmds"]] == ["one"]
    text = " ".join(b.text for b in r.model.asks[-1].turns[-1].blocks if hasattr(b, "text"))
    assert "one" in text


def test_outcome_of_a_command_left_open_when_another_was_approved_beside_a_text_is_news(
    served: Serve, shell: LocalShell
) -> None:
    r = Round(served, shell, [suggest("echo one", "echo $((1 + 1))")])
    one, two = r.reply["data"]["cmds"]
    first = user("just the first", data={"cmds": [approved(one)]})
    second = r.service.chat(r.first, said(r.reply), first)
    assert second["content"] == "ran"
    decision = user("", data={"cmds": [approved(two)]})
    r.service.chat(r.first, said(r.reply), first, said(second), decision)
    turns = r.model.asks[-1].turns
    texts = [b.text for b in turns[-1].blocks if hasattr(b, "text")]
    assert [text.endswith("2\n") for text in texts] == [True]
    (result,) = (b for t in turns for b in t.blocks if hasattr(b, "call_id"))
    assert "one\n" in result.output and "not decided" in result.output


def test_empty_message_states_the_commands_again(served: Serve, shell: LocalShell) -> None:
    r = Round(served, shell, [suggest("echo one")])
    answer = r.service.ask(r.first, said(r.reply), user(""))
    assert answer.json()["data"]["cmds"] == r.reply["data"]["cmds"]
    assert len(r.model.asks) == 1


@pytest.mark.parametrize("session", [True, False], ids=["with its session", "without a session"])
def test_empty_message_states_commands_again_that_came_back_without_their_ids(
    served: Serve, shell: LocalShell, session: bool
) -> None:
    other = suggest({"command": "cat sub/a.txt", "files": [FILE]}, id_="c2")
    r = Round(served, shell, [suggest("echo one", "echo one"), other])
    stated = r.reply["data"]["cmds"]
    data = {"cmds": [{**r.bare(n), "execute": False} for n in range(3)]}
    if session:
        data["session"] = r.reply["data"]["session"]
    talk = [r.first, assistant(r.reply["content"], data=data)]
    again = r.service.chat(*talk, user(""))
    assert again["data"]["cmds"] == stated
    r.send(*({**r.bare(n), "rejection_reason": "no"} for n in range(3)))
    assert r.service.ask(*talk, user("")).types == {"nothing_to_answer"}


def test_stream_states_commands_and_outcomes(served: Serve, shell: LocalShell) -> None:
    agent, _ = scripted([[suggest("echo one")], "ran"], commands=shell)
    service = served(agent)
    events = service.stream(user("go"))
    assert [e["type"] for e in events if e["type"] != "intermittent_update"] == [
        "approvals",
        "commands",
        "done",
    ]
    commands = next(e["commands"] for e in events if e["type"] == "commands")
    session = events[-1]["session"]
    assert "_sayso" in session
    history = assistant("", data={"cmds": commands, "session": session})
    events = service.stream(user("go"), history, user("", data={"cmds": [approved(commands[0])]}))
    assert events[0]["type"] == "executed_commands"
    assert events[0]["executed_cmds"][0]["output"].strip() == "one"


def test_exit_code_and_standard_error_are_told(served: Serve, shell: LocalShell) -> None:
    r = Round(served, shell, [suggest("echo oh >&2; exit 3")])
    (output,) = r.outputs(approved(r.bare()))
    assert "oh" in output
    assert "3" in output
    assert not output.startswith("Error:")


def test_timed_out_command_is_failed(served: Serve, tmp_path: Path) -> None:
    r = Round(served, LocalShell(workdir=tmp_path, timeout=0.3), [suggest("sleep 300")])
    (output,) = r.outputs(approved(r.bare()))
    assert output.startswith("Error:")


def test_without_commands_the_model_has_no_tool_for_them(served: Serve) -> None:
    agent, model = scripted([[suggest("id")], "ok"])
    reply = served(agent).chat(user("x"))
    assert model.asks[0].tools == []
    assert reply["data"]["cmds"] == []
    assert model.asks[1].turns[-1].blocks[0].is_error


def test_two_conversations_share_no_directory(served: Serve, shell: LocalShell) -> None:
    script = [suggest("pwd")]
    agent, _ = scripted([script, script, "a", "b"], commands=shell)
    service = served(agent)
    outputs = []
    replies = [service.chat(user("one")), service.chat(user("two"))]
    for first, reply in zip(("one", "two"), replies, strict=True):
        data = {"cmds": [approved(reply["data"]["cmds"][0])]}
        got = service.chat(user(first), said(reply), user("", data=data))
        outputs.append(got["data"]["executed_cmds"][0]["output"].strip())
    assert outputs[0] != outputs[1]


def test_id_of_another_conversation_still_counts_for_its_own_call(
    served: Serve, shell: LocalShell
) -> None:
    agent, _ = scripted([[suggest("echo a")], [suggest("echo b")], "ran"], commands=shell)
    service = served(agent)
    one = service.chat(user("one"))
    two = service.chat(user("two"))
    # The text of the first conversation's command, in the second conversation.
    command = {"command": "echo a", "execute": True}
    answer = service.ask(user("two"), said(two), user("", data={"cmds": [command]}))
    assert answer.types == {"approval_not_issued"}
    assert one["data"]["session"] != two["data"]["session"]


def test_trimmed_history_finds_the_command_by_its_session(served: Serve, shell: LocalShell) -> None:
    r = Round(served, shell, [suggest("echo one")])
    data = {
        "cmds": [{"command": "echo one", "execute": True}],
        "session": r.reply["data"]["session"],
    }
    got = r.service.chat(user("", data=data))
    assert [e["output"].strip() for e in got["data"]["executed_cmds"]] == ["one"]


def test_session_free_history_finds_the_command_by_its_reference(
    served: Serve, shell: LocalShell
) -> None:
    r = Round(served, shell, [suggest("echo one")])
    got = r.service.chat(
        r.first,
        assistant(r.reply["content"]),
        user("", data={"cmds": [{"command": "echo one", "execute": True}]}),
    )
    assert [e["output"].strip() for e in got["data"]["executed_cmds"]] == ["one"]


def test_sent_again_without_session_equal_commands_of_an_earlier_turn_stay_open(
    served: Serve, shell: LocalShell, tmp_path: Path
) -> None:
    line = f"echo x >> {tmp_path}/log; echo ran"
    script = [[suggest(line)], [suggest(line, line)], "done"]
    agent, _ = scripted(script, commands=shell)
    service = served(agent)
    open_ = {"command": line, "execute": False}
    history = [user("one")]
    service.chat(*history)
    history += [assistant(data={"cmds": [open_]}), user("two")]
    service.chat(*history)
    decided = user("", data={"cmds": [approved(open_), approved(open_)]})
    history += [assistant(data={"cmds": [open_, open_]}), decided]
    first = service.chat(*history)
    assert [e["output"] for e in first["data"]["executed_cmds"]] == ["ran\n", "ran\n"]
    assert service.chat(*history) == first
    assert (tmp_path / "log").read_text() == "x\nx\n"


def test_command_whose_request_was_sent_twice_is_that_of_the_newer_reply(
    served: Serve, shell: LocalShell
) -> None:
    lines = ["echo $((1 + 1))", "echo other"]
    script = [[suggest("echo one")], "ok", [suggest(*lines)], [suggest(*lines)], "ran"]
    agent, _ = scripted(script, commands=shell)
    service = served(agent)
    talk = [user("one")]
    talk += [said(service.chat(*talk)), user("never mind")]
    talk += [said(service.chat(*talk)), user("two")]
    lost, reply = service.chat(*talk), service.chat(*talk)
    bare = [{"command": line, "execute": True} for line in lines]
    decided = [said(reply), user("", data={"cmds": bare[:1]})]
    first = service.chat(*talk, *decided)
    assert [e["output"] for e in first["data"]["executed_cmds"]] == ["2\n"]
    assert [c["id"] for c in first["data"]["cmds"]] == [reply["data"]["cmds"][1]["id"]]
    assert service.chat(*talk, *decided) == first
    by_id = user("", data={"cmds": [approved(lost["data"]["cmds"][0])]})
    assert service.ask(*talk, said(lost), by_id).status == 200


@pytest.mark.parametrize("keeps_session", [True, False])
def test_command_whose_request_was_sent_twice_is_that_of_the_reply_in_the_history(
    served: Serve, shell: LocalShell, keeps_session: bool
) -> None:
    lines = ["echo one", "echo other"]
    script = [[suggest("echo zero")], [suggest(*lines)], [suggest(*lines)], "ran"]
    agent, _ = scripted(script, commands=shell)
    service = served(agent)
    started = service.chat(user("zero"))
    talk = [user("zero"), said(started), user("go")]
    if not keeps_session:
        del started["data"]["session"]
    reply, _ = service.chat(*talk), service.chat(*talk)
    if not keeps_session:
        del reply["data"]["session"]
    one, other = reply["data"]["cmds"]
    bare = {"command": "echo one", "execute": True}
    got = service.chat(*talk, said(reply), user("", data={"cmds": [bare]}))
    assert [e["id"] for e in got["data"]["executed_cmds"]] == [one["id"]]
    assert [c["id"] for c in got["data"]["cmds"]] == [other["id"]]


@pytest.mark.parametrize("keeps_session", [True, False])
@pytest.mark.parametrize("carrier", ["user", "assistant"])
def test_sent_again_an_approval_leaves_the_equal_command_proposed_after_it_open(
    served: Serve, shell: LocalShell, tmp_path: Path, carrier: str, keeps_session: bool
) -> None:
    line = f"echo x >> {tmp_path}/log; echo ran"
    agent, model = scripted([[suggest(line)], [suggest(line)]], commands=shell)
    service = served(agent)
    first = service.chat(user("do it twice"))
    session = {"session": first["data"]["session"]} if keeps_session else {}
    data = {"cmds": [{"command": line, "execute": True}], **session}
    stated = {"cmds": [{"command": line, "execute": False}], **session}
    messages = [user("do it twice"), assistant(data=stated), user("", data=data)]
    if carrier == "assistant":
        messages[1:] = [assistant(data=data), user("")]
    reply = service.chat(*messages)
    (second,) = reply["data"]["cmds"]
    assert second["id"] != first["data"]["cmds"][0]["id"]
    assert service.chat(*messages) == reply
    assert (tmp_path / "log").read_text() == "x\n"
    assert len(model.asks) == 2
