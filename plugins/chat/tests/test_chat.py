"""`sayso chat` against real services: at a terminal, in scripts, and when things go wrong."""

from __future__ import annotations

import asyncio
import contextlib
import io
import json
import os
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from chat_kit import (
    BACK,
    DELETE,
    EDIT,
    PLUGINS,
    QUESTION,
    SILENCE,
    Deletes,
    Silences,
    at_terminal,
    chat,
    folder,
)

from https import needs_openssl, untrusted
from programs import until
from sayso import (
    Agent,
    Ask,
    Call,
    LocalShell,
    RequestContext,
    Text,
    cli,
    create_app,
    pretty,
    tool,
    visible,
)
from sayso.testing import scripted, served
from sayso_chat.client import ChatError, Client, as_url
from sayso_chat.edit import draft, edited
from sayso_chat.kept import Kept
from sayso_chat.talk import Proposal, Talk
from sayso_chat.text import show
from terminal import terminal

__all__ = ["folder"]


def events(out: str) -> list[dict[str, Any]]:
    return [json.loads(line) for line in out.splitlines()]


def kinds(out: str) -> list[str]:
    return [event["type"] for event in events(out)]


def says(monkeypatch: pytest.MonkeyPatch, *lines: str) -> None:
    monkeypatch.setattr(sys, "stdin", io.StringIO("".join(f"{line}\n" for line in lines)))


def test_call_is_shown_with_intent_description_and_input_and_runs_when_approved(
    folder: Path,
) -> None:
    given = Deletes(DELETE, "It is gone.")
    with at_terminal(given.agent, folder) as person:
        person.shows("> ")
        person.keys("delete a\n")
        shown = person.shows(QUESTION)
        assert given.names == []
        for part in (
            "The disk is full.\n",
            "delete waits for your decision",
            "why | The disk is full.",
            "does | Delete a thing for good.",
            '"name": "a"',
        ):
            assert part in shown
        person.keys("a\n")
        assert "delete: deleted a" in person.shows("It is gone.")
        person.shows("> ")
        person.keys("\x04")
        assert (person.ended(), given.names) == (0, ["a"])


@pytest.mark.parametrize("held", [False, True])
def test_person_is_told_how_to_decide_on_a_call_that_a_running_tool_waits_for(
    folder: Path, held: bool
) -> None:
    waits, goes_on = "0123456789abcdef" * 2, threading.Event()

    @tool
    def ask(context: RequestContext) -> str:
        context.update("not an id", {"approval": "said by the tool"})
        context.update("somebody asks", {"approval": waits})
        assert goes_on.wait(60)
        return "answered"

    interceptors = [lambda reply, _: reply] if held else []
    model = scripted([Call("1", "ask", {})], "Done.")
    agent = Agent(model=model, tools=[ask], response_interceptors=interceptors)
    with at_terminal(agent, folder) as person:
        person.shows("> ")
        person.keys("ask\n")
        shown = person.shows(f"approvals approve {waits}")
        assert ("said by the tool" in shown) is not held
        goes_on.set()
        person.shows("Done.")


def test_rejection_reaches_the_model_with_its_reason(folder: Path) -> None:
    given = Deletes(DELETE, "As you wish.")
    with at_terminal(given.agent, folder) as person:
        person.shows("> ")
        person.keys("delete a\n")
        person.shows(QUESTION)
        person.keys("r\n")
        person.shows("reason")
        person.keys("we need it\n")
        person.shows("As you wish.")
    assert given.names == []
    assert "we need it" in given.received()


def test_call_left_for_later_waits_and_enter_alone_never_approves(folder: Path) -> None:
    given = Deletes(DELETE, "Gone.")
    with at_terminal(given.agent, folder) as person:
        person.shows("> ")
        person.keys("delete a\n")
        for answer in ("\n", "x\n", "l\n"):
            person.shows(QUESTION)
            person.keys(answer)
        person.shows("(1 to decide) > ")
        person.keys("something else\n")
        assert "wait for a decision" in person.shows("empty line shows")
        person.shows("(1 to decide) > ")
        assert given.names == []
        person.keys("\n")
        person.shows(QUESTION)
        person.keys("yes\n")
        person.shows("Gone.")
    assert given.names == ["a"]


@pytest.mark.parametrize("environ", [{}, {"TERM": "dumb"}], ids=["bracketed", "at once"])
def test_paste_of_several_lines_is_one_message(folder: Path, environ: dict[str, str]) -> None:
    given = Deletes("Fine.", "Again.")
    with at_terminal(given.agent, folder, **environ) as person:
        person.shows("> ")
        pasted = "first\n  second\n\nthird"
        person.keys(f"{pasted}\n" if environ else f"\x1b[200~{pasted}\x1b[201~\n")
        person.shows("Fine.")
        assert "first\\n  second\\n\\nthird" in given.received()
        person.shows("> ")
        person.keys("next\n")
        person.shows("Again.")
    assert len(given.model.asks) == 2


def test_message_of_several_lines_can_be_typed(folder: Path) -> None:
    given = Deletes("Fine.", "Again.")
    with at_terminal(given.agent, folder) as person:
        person.shows("> ")
        person.keys("one\\\n")
        person.shows(". ")
        person.keys("two\\\n")
        person.shows(". ")
        person.keys("\x04")
        person.shows("Fine.")
        assert "one\\ntwo'" in given.received()
        person.shows("> ")
        person.keys("three\x1b\rfour\r")
        person.shows("Again.")
    assert "three\\nfour" in given.received()


def test_messages_are_remembered_in_the_next_run_and_answers_are_not(folder: Path) -> None:
    given = Deletes(DELETE, "As you wish.", "Fine.")
    with served(given.agent, config=PLUGINS) as service:
        command = ["-m", "sayso", "chat", service.url]
        with terminal(command, folder) as person:
            person.shows("> ")
            person.keys("delete a\n")
            person.shows(QUESTION)
            person.keys("r\n")
            person.shows("reason")
            person.keys("a secret reason\n")
            person.shows("As you wish.")
            person.shows("> ")
            person.keys("two\x1b\rlines\n")
            person.shows("Fine.")
        with terminal(command, folder) as person:
            person.shows("> ")
            person.keys("\x1b[A")
            person.shows("two")
            person.shows("lines")
            person.keys("\x1b[A")
            person.shows("delete a")
    file = folder / "sayso" / "chat" / "history"
    assert file.read_text("utf-8") == '"delete a"\n"two\\nlines"\n'
    assert (file.stat().st_mode & 0o777, file.parent.stat().st_mode & 0o777) == (0o600, 0o700)


def test_history_is_bounded(folder: Path) -> None:
    kept = Kept(folder / "chat")
    kept.remember("x" * 10_001)
    assert kept.history() == []
    for number in range(2_001):
        kept.remember(f"message {number}")
    assert kept.history()[0] == "message 1001" and len(kept.history()) == 1_000
    assert len((folder / "chat" / "history").read_text("utf-8").splitlines()) == 1_000
    (folder / "chat" / "history").write_bytes(b'{"a": 1}\n\xff"\n"good"\n')
    assert kept.history() == ["good"]


def test_conversation_goes_on_in_the_next_run_with_what_is_pending(folder: Path) -> None:
    given = Deletes("I am **here**.", DELETE, "It is gone.", [Call("2", "last", {})], "It was a.")
    with served(given.agent, config=PLUGINS) as service:
        command = ["-m", "sayso", "chat", service.url]
        with terminal(command, folder) as person:
            person.shows("> ")
            person.keys("hello\n")
            person.shows("I am here.")
            person.shows("> ")
            person.keys("delete a\n")
            person.shows(QUESTION)
            person.keys("/quit\n")
            assert person.ended() == 0
        with terminal([*command, "--continue"], folder) as person:
            shown = person.shows(QUESTION)
            assert "Going on with the conversation of " in shown and "/new begins" in shown
            assert (
                "> delete a\n" in shown and "The disk is full." in shown and '"name": "a"' in shown
            )
            person.keys("a\n")
            person.shows("It is gone.")
            assert "I am **here**." in given.received()
            person.shows("> ")
            person.keys("\x04")
            assert person.ended() == 0
        with terminal([*command, "-m", "what was last?", "--continue"], folder) as person:
            assert "It was a." in person.shows("It was a.")
            assert person.ended() == 0
    # The session went on, too.
    assert given.names == ["a"] and "last was a" in given.received()
    [file] = (folder / "sayso" / "chat").glob("*.json")
    assert file.stat().st_mode & 0o777 == 0o600


def test_new_begins_anew_and_only_what_was_said_then_is_gone_on_with(folder: Path) -> None:
    given = Deletes("One.", "Two.", "Three.")
    with served(given.agent, config=PLUGINS) as service:
        command = ["-m", "sayso", "chat", service.url, "--continue"]
        with terminal(command, folder) as person:
            person.shows("there is no conversation to go on with; this is a new one")
            person.shows("> ")
            person.keys("first\n")
            person.shows("One.")
            person.shows("> ")
            person.keys("/new\n")
            person.shows("a new conversation")
            person.shows("> ")
            person.keys("second\n")
            person.shows("Two.")
            # The conversation is saved before the next prompt.
            person.shows("> ")
        with terminal(command, folder) as person:
            person.shows("> second\n")
            person.shows("\n> ")
            person.keys("third\n")
            person.shows("Three.")
    assert "second" in given.received() and "first" not in given.received()


def test_script_goes_on_only_when_told_to(
    capsys: pytest.CaptureFixture[str], folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(folder))
    given = Deletes("One.", "Two.", "Three.")
    with served(given.agent, config=PLUGINS) as service:
        assert chat(capsys, service, "-m", "first") == (0, "One.\n", "")
        assert not (folder / "sayso").exists()
        code, _, err = chat(capsys, service, "-m", "second", "--continue")
        assert (code, err) == (
            0,
            "sayso: there is no conversation to go on with; this is a new one\n",
        )
        assert chat(capsys, service, "-m", "third", "--continue") == (0, "Three.\n", "")
    assert "second" in given.received() and "first" not in given.received()


def test_conversation_that_is_damaged_or_too_large_is_none(folder: Path) -> None:
    kept = Kept(folder / "chat")
    for damaged in (
        {},
        {"messages": [1], "session": None, "pending": []},
        {"messages": [], "at": 1},
    ):
        assert not Talk(Client("http://127.0.0.1:1")).go_on(damaged)
    assert kept.keep("here", {"messages": []})
    assert not kept.keep("here", {"messages": ["x" * (5 << 20)]})
    found = kept.conversation("here")
    assert found is not None and found["messages"] == []
    assert kept.conversation("there") is None
    for number in range(60):
        kept.keep(str(number), {})
    assert len(list((folder / "chat").iterdir())) == 50
    assert not Kept(None).keep("here", {}) and Kept(None).conversation("here") is None


def test_keys_pressed_before_the_question_do_not_answer_it(folder: Path) -> None:
    given = Deletes(DELETE, "Gone.")
    with at_terminal(given.agent, folder) as person:
        person.shows("> ")
        person.keys("delete a\na\n")
        person.shows(QUESTION)
        person.keys("l\n")
        person.shows("left for later")
    assert given.names == []


def test_quit_leaves_at_a_decision_and_decides_nothing(folder: Path) -> None:
    given = Deletes(DELETE, "Gone.")
    with at_terminal(given.agent, folder) as person:
        person.shows("> ")
        person.keys("delete a\n")
        person.shows(QUESTION)
        person.keys("/quit\n")
        assert person.ended() == 0
    assert given.names == []


def test_input_is_edited_in_a_line_and_approved_as_changed(folder: Path) -> None:
    given = Silences(SILENCE, "It is silent.")
    with at_terminal(given.agent, folder, EDITOR="", VISUAL="") as person:
        person.shows("> ")
        person.keys("silence web-1\n")
        person.shows(EDIT)
        person.keys("e\n")
        person.shows('input as JSON: {"hours": 2}')
        person.keys(BACK + '{"hours": 3\n')
        person.shows("that is no JSON")
        person.shows(EDIT)
        person.keys("e\n")
        # The text of the first try is still there.
        person.shows('input as JSON: {"hours": 3')
        person.keys("}\n")
        shown = person.shows(EDIT)
        assert '    before |   "hours": 2\n     after |   "hours": 3\n' in shown
        assert given.ran == []
        person.keys("a\n")
        person.shows("silence: silenced web-1 for 3 hours")
        person.shows("It is silent.")
    assert given.ran == [("web-1", 3)]


def test_refused_input_is_told_and_asked_again_with_all_other_decisions_kept(folder: Path) -> None:
    given = Silences([*SILENCE, Call("2", "silence", {"host": "web-2"})], "They are silent.")
    with at_terminal(given.agent, folder, EDITOR="", VISUAL="") as person:
        person.shows("> ")
        person.keys("silence both\n")
        person.shows("(1 of 2)")
        person.shows(EDIT)
        person.keys("a\n")
        person.shows("(2 of 2)")
        person.shows(EDIT)
        person.keys("e\n")
        person.shows('{"hours": 2}')
        person.keys(BACK + '{"hours": "long"}\n')
        person.shows("after")
        person.shows(EDIT)
        person.keys("a\n")
        lines = person.shows("\n")
        assert "error: the changed input does not fit the tool: parameter 'hours'" in lines + (
            person.shows("silence waits for your decision\n")
        )
        assert given.ran == []
        person.shows(EDIT)
        person.keys("e\n")
        person.shows('{"hours": "long"}')
        person.keys(BACK + '{"hours": 5}\n')
        person.shows(EDIT)
        person.keys("a\n")
        person.shows("They are silent.")
    assert sorted(given.ran) == [("web-1", 2), ("web-2", 5)]


def test_editor_of_the_person_gets_the_input(folder: Path) -> None:
    editor = folder / "editor"
    editor.write_text('#!/bin/sh\nsed -i s/web-1/web-9/ "$1"\n', "utf-8")
    editor.chmod(0o755)
    given = Silences(SILENCE, "It is silent.", editable=True)
    with at_terminal(given.agent, folder, VISUAL=str(editor)) as person:
        person.shows("> ")
        person.keys("silence web-1\n")
        person.shows(EDIT)
        person.keys("e\n")
        assert '     after |   "host": "web-9"' in person.shows(EDIT)
        person.keys("a\n")
        person.shows("It is silent.")
    assert given.ran == [("web-9", 2)]


def test_only_what_may_be_changed_is_offered_and_taken() -> None:
    stated = {"id": "1", "name": "silence", "input": {"host": "a\u202eb", "hours": 2}}
    some = Proposal("tool_calls", stated, {"editable": ["hours", "why"]})
    assert draft(some) == '{"hours": 2, "why": null}'
    assert edited(some, '{"hours": 3, "why": null}') == {"host": "a\u202eb", "hours": 3}
    assert edited(some, '{"why": "x"}') == {"host": "a\u202eb", "hours": 2, "why": "x"}
    for text, said in (
        ('{"host": "b"}', "'host' may not be changed"),
        ("[1]", "is a JSON object"),
        ("{", "that is no JSON"),
        ('{"hours": NaN}', "NaN"),
        ('{"hours":' * 100_000, "too deeply"),
    ):
        with pytest.raises(ValueError, match=said):
            edited(some, text)
    whole = Proposal("tool_calls", stated, {"editable": True})
    assert draft(whole) == r'{"host": "a\u202eb", "hours": 2}'
    assert edited(whole, '{"hours": 3}') == {"hours": 3}
    assert not Proposal("tool_calls", stated).editable


def test_some_of_several_calls_can_be_decided(folder: Path) -> None:
    calls = [Call("1", "delete", {"name": "a"}), Call("2", "delete", {"name": "b"})]
    given = Deletes(calls, "Both are decided.")
    with at_terminal(given.agent, folder) as person:
        person.shows("> ")
        person.keys("delete a and b\n")
        person.shows("(1 of 2)")
        person.shows(QUESTION)
        person.keys("a\n")
        person.shows("(2 of 2)")
        person.shows(QUESTION)
        person.keys("l\n")
        person.shows("deleted a")
        # It was put off, and is not asked for at once again.
        person.shows("(1 to decide) > ")
        assert given.names == ["a"]
        person.keys("\n")
        assert '"b"' in person.shows(QUESTION)
        person.keys("a\n")
        person.shows("Both are decided.")
    assert given.names == ["a", "b"]


def test_command_runs_when_approved_and_stays_open_beside_a_text(folder: Path) -> None:
    suggested = Call("1", "suggest_commands", {"commands": [{"command": "echo $((6 * 7))"}]})
    model = scripted([suggested], "I leave it open.", "Forty-two.")
    agent = Agent(model=model, commands=LocalShell())
    with at_terminal(agent, folder) as person:
        person.shows("> ")
        person.keys("what is 6 * 7\n")
        assert "echo $((6 * 7))" in person.shows(QUESTION)
        person.keys("l\n")
        person.shows("(1 to decide) > ")
        person.keys("wait a moment\n")
        person.shows("I leave it open.")
        person.shows(QUESTION)
        person.keys("a\n")
        assert "42" in person.shows("Forty-two.")
        person.shows("\n> ")


def test_escape_sequences_of_an_input_are_written_out(folder: Path) -> None:
    hidden = "a\x1b[2K\x1b[1A\u202ecod\x9b2J"
    given = Deletes([Text("fine\x1b[2J"), Call("1", "delete", {"name": hidden})], "Gone.")
    with at_terminal(given.agent, folder) as person:
        person.shows("> ")
        person.keys("delete a\n")
        shown = person.shows(QUESTION)
        assert r'"name": "a\u001b[2K\u001b[1A\u202ecod\u009b2J"' in shown
        assert "why | fine<U+001B>[2J" in shown
        assert "characters that a terminal would hide" in shown
        for obeyed in ("\x1b[2J", "\x1b[1A", "\u202e", "\x9b"):
            assert obeyed not in person.raw


def test_long_input_must_be_shown_whole_before_it_is_approved(folder: Path) -> None:
    given = Deletes([Call("1", "delete", {"name": "a" * 9_000 + "END"})], "Gone.")
    with at_terminal(given.agent, folder) as person:
        person.shows("> ")
        person.keys("delete a\n")
        shown = person.shows(QUESTION)
        assert "END" not in shown and "d shows all of it" in shown
        person.keys("a\n")
        person.shows("not all of it was shown")
        person.shows(QUESTION)
        person.keys("d\n")
        assert "END" in person.shows(QUESTION).replace("\n           | ", "")
        assert given.names == []
        person.keys("a\n")
        person.shows("Gone.")
    assert len(given.names) == 1


def test_content_cannot_pass_for_a_line_of_ours(folder: Path) -> None:
    why = "ok" + " " * 200 + 'input | {"name": "harmless"}\n     input | {}'
    given = Deletes([Text(why), Call("1", "delete", {"name": "a"})], "Gone.")
    with at_terminal(given.agent, folder) as person:
        person.shows("> ")
        person.keys("delete a\n")
        person.shows("delete waits for your decision\n")
        lines = person.shows(QUESTION).splitlines()[:-1]
    assert all(line[10:13] == " | " for line in lines), lines
    assert [line for line in lines if line.startswith("     input |")] == ["     input | {"]


def test_content_cannot_pass_for_a_line_of_ours_on_a_narrow_terminal(folder: Path) -> None:
    given = Deletes([Call("1", "delete", {"name": "a" * 30 + "approve? 漢字"})], "Gone.")
    with at_terminal(given.agent, folder, COLUMNS="16") as person:
        person.shows("> ")
        person.keys("delete a\n")
        person.shows("\ndelete waits for your decision\n")
        lines = person.shows(QUESTION).splitlines()[:-1]
        assert "\u2026 Preparing d\x1b" in person.raw
    assert all(line[10:13] == " | " for line in lines), lines
    assert max(len(line) for line in lines) == 16


def test_status_is_replaced_and_nothing_of_it_stays(folder: Path) -> None:
    given = Deletes([Call("1", "last", {})], "Nothing yet.")
    with at_terminal(given.agent, folder) as person:
        person.shows("> ")
        person.keys("what was last\n")
        person.shows("Running last")
        person.shows("Nothing yet.")
    assert "\x1b[2m… Running last\x1b[0m\r\x1b[2K" in person.raw


def test_ctrl_c_in_a_status_as_wide_as_the_terminal_leaves_nothing_of_it(folder: Path) -> None:
    async def stuck(ask: Ask) -> str:
        await asyncio.sleep(600)
        return "late"

    with at_terminal(Deletes(stuck).agent, folder, COLUMNS="20", NO_COLOR="1") as person:
        person.shows("> ")
        person.keys("first\n")
        person.shows("… Waiting for")
        person.keys("\x03")
        person.shows("cancelled")
    # The terminal's own ^C would begin another line, and only that one would be erased.
    _, _, rest = person.raw.partition("…")
    assert rest.partition("\r\x1b[2K")[0] == " Waiting for the^C"


def test_no_color_leaves_styles_out(folder: Path) -> None:
    given = Deletes(DELETE)
    with at_terminal(given.agent, folder, NO_COLOR="1") as person:
        person.shows("> ")
        person.keys("delete a\n")
        person.shows(QUESTION)
    assert "\x1b[33m" not in person.raw and "\x1b[2m" not in person.raw


def test_ctrl_c_cancels_the_turn_and_leaves_the_conversation_as_it_was(folder: Path) -> None:
    cancelled = threading.Event()

    async def stuck(ask: Ask) -> str:
        try:
            await asyncio.sleep(600)
        except asyncio.CancelledError:
            cancelled.set()
            raise
        return "late"

    given = Deletes(stuck, "Here I am.")
    with at_terminal(given.agent, folder) as person:
        person.shows("> ")
        person.keys("first\n")
        person.shows("… Waiting for the reply")
        until(lambda: given.model.asks)
        person.keys("\x03")
        person.shows("cancelled")
        person.shows("> ")
        assert cancelled.wait(60)
        person.keys("second\n")
        person.shows("Here I am.")
        assert "first" not in given.received()
        person.shows("> ")
        person.keys("\x03")
        person.shows("Ctrl-D leaves")
        person.keys("/quit\n")
        assert person.ended() == 0


def test_ctrl_c_while_an_approved_call_runs_says_that_it_goes_on(folder: Path) -> None:
    given = Deletes([Call("1", "keep", {})], "It is kept.")
    go_on = threading.Event()
    running = threading.Event()

    @tool(requires_approval=True)
    def keep() -> str:
        running.set()
        go_on.wait(60)
        return "kept"

    with at_terminal(Agent(model=given.model, tools=[keep]), folder) as person:
        person.shows("> ")
        person.keys("keep it\n")
        person.shows(QUESTION)
        person.keys("a\n")
        person.shows("… Running keep")
        assert running.wait(60)
        person.keys("\x03")
        person.shows("cancelled; what was approved goes on: approve it again to see how it ended")
        go_on.set()
        person.shows("> ")
        person.keys("\n")
        person.shows(QUESTION)
        person.keys("a\n")
        person.shows("keep: kept")
        person.shows("It is kept.")


def test_ctrl_c_at_a_question_or_a_reason_decides_nothing(folder: Path) -> None:
    calls = [Call("1", "delete", {"name": "a"}), Call("2", "delete", {"name": "b"})]
    given = Deletes(calls, "As you wish.")
    with at_terminal(given.agent, folder) as person:
        person.shows("> ")
        person.keys("delete a and b\n")
        person.shows(QUESTION)
        person.keys("a\n")
        person.shows("(2 of 2)")
        person.shows(QUESTION)
        person.keys("\x03")
        person.shows("left for later")
        person.shows("(2 to decide) > ")
        person.keys("\n")
        person.shows(QUESTION)
        person.keys("r\n")
        person.shows("reason")
        person.keys("\x03")
        person.shows("left for later")
        assert given.names == [] and len(given.model.asks) == 1
        person.shows("(2 to decide) > ")
        person.keys("\n")
        for _ in calls:
            person.shows(QUESTION)
            person.keys("r\n")
            person.shows("reason")
            person.keys("keep it\n")
        person.shows("As you wish.")
    assert "rejected without a reason" not in given.received()


def test_failed_turn_is_told_and_the_next_one_works(folder: Path) -> None:
    given = Deletes(ValueError("inner"), "Better now.")
    with at_terminal(given.agent, folder) as person:
        person.shows("> ")
        person.keys("first\n")
        assert "inner" not in person.shows("incident")
        person.shows("> ")
        person.keys("second\n")
        person.shows("Better now.")


def test_single_message_of_a_person_ends_with_the_last_decision(folder: Path) -> None:
    given = Deletes(DELETE, "Gone.")
    with at_terminal(given.agent, folder, "-m", "delete a") as person:
        person.shows(QUESTION)
        person.keys("a\n")
        person.shows("Gone.")
        assert person.ended() == 0


def test_json_mode_prints_the_events_and_decides_nothing(
    capsys: pytest.CaptureFixture[str],
) -> None:
    given = Deletes(DELETE)
    with served(given.agent, config=PLUGINS) as service:
        code, out, err = chat(capsys, service, "--json", "-m", "delete a")
    assert (code, given.names) == (0, [])
    assert kinds(out)[-3:] == ["approvals", "tool_calls", "done"]
    assert "1 left undecided" in err


def test_approve_flag_runs_each_proposal_and_goes_on(capsys: pytest.CaptureFixture[str]) -> None:
    given = Deletes(DELETE, [Call("2", "delete", {"name": "b"})], "All gone.")
    with served(given.agent, config=PLUGINS) as service:
        code, out, _ = chat(capsys, service, "--json", "-m", "delete both", "--approve")
    assert (code, given.names) == (0, ["a", "b"])
    assert kinds(out).count("executed_tool_calls") == 2
    assert events(out)[-1]["stop_reason"] == "end_turn"


def test_reject_flag_sends_its_reason(capsys: pytest.CaptureFixture[str]) -> None:
    given = Deletes(DELETE, "As you wish.")
    with served(given.agent, config=PLUGINS) as service:
        code, out, _ = chat(capsys, service, "-m", "delete a", "--reject", "not today")
    assert (code, given.names) == (0, [])
    assert "not today" in given.received()
    assert out.endswith("As you wish.\n") and "\x1b" not in out


def test_lines_of_the_input_are_one_conversation_with_its_session(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    given = Deletes(DELETE, "Gone.", [Call("2", "last", {})], "It was a.")
    says(monkeypatch, "delete a", "", "what was last")
    with served(given.agent, config=PLUGINS) as service:
        code, out, _ = chat(capsys, service, "--json", "--approve")
    assert code == 0
    assert "delete a" in given.received() and "last was a" in given.received()
    assert events(out)[-1]["session"] == {"deleted": "a"}


@pytest.mark.parametrize("errors", ["strict", "surrogateescape"])
def test_bytes_of_the_input_that_are_no_text_end_no_script(errors: str, folder: Path) -> None:
    given = Deletes("Fine.", "And you?", "Bye.")
    with served(given.agent, config=PLUGINS) as service:
        done = subprocess.run(
            [sys.executable, "-m", "sayso", "chat", service.url],
            cwd=folder,
            env={**os.environ, "PYTHONIOENCODING": f"utf-8:{errors}"},
            input=b"hello\n\xff\xfe caf\xc3\xa9\nbye\n",
            capture_output=True,
            check=False,
        )
    assert (done.returncode, done.stderr) == (0, b"")
    assert done.stdout.split() == b"Fine. And you? Bye.".split()
    assert "\ufffd\ufffd café" in given.received()


def test_script_decides_by_a_message_of_its_own(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    given = Deletes(DELETE, "Gone.")
    stated: dict[str, Any] = {}

    class Lines:
        def isatty(self) -> bool:
            return False

        def __iter__(self) -> Iterator[str]:
            yield "delete a\n"
            stated.update(events(capsys.readouterr().out)[-2]["tool_calls"][0])
            yield json.dumps({"data": {"tool_calls": [{**stated, "execute": True}]}}) + "\n"

    monkeypatch.setattr(sys, "stdin", Lines())
    with served(given.agent, config=PLUGINS) as service:
        code, out, _ = chat(capsys, service, "--json")
    assert (code, given.names) == (0, ["a"])
    assert kinds(out)[0] == "executed_tool_calls"


def test_command_that_a_script_decided_among_the_approvals_is_not_left_undecided(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    suggested = Call("1", "suggest_commands", {"commands": [{"command": "echo $((6 * 7))"}]})
    agent = Agent(model=scripted([suggested], "Forty-two.", "Bye."), commands=LocalShell())

    class Lines:
        def isatty(self) -> bool:
            return False

        def __iter__(self) -> Iterator[str]:
            yield "what is 6 * 7\n"
            out, err = capsys.readouterr()
            assert "1 left undecided" in err
            (stated,) = next(e for e in events(out) if e["type"] == "approvals")["approvals"]
            decision = {"id": stated["id"], "execute": True}
            yield json.dumps({"data": {"approvals": [decision], "cmds": None}}) + "\n"
            yield "bye\n"

    monkeypatch.setattr(sys, "stdin", Lines())
    with served(agent, config=PLUGINS) as service:
        code, out, err = chat(capsys, service, "--json")
    assert (code, err) == (0, "")
    assert "42" in events(out)[0]["executed_approvals"][0]["output"]


def test_source_and_user_are_sent(capsys: pytest.CaptureFixture[str]) -> None:
    seen: list[Any] = []

    def agent(messages: Any, context: Any) -> str:
        seen.append((context.source, messages[-1].user.name, messages[-1].user.id))
        return "fine"

    with served(agent, config=PLUGINS) as service:
        code, _, _ = chat(capsys, service, "-m", "hello", "--source", "team-chat", "--user", "Ann")
    assert (code, seen) == (0, [("team-chat", "Ann", "Ann")])


def test_line_ends_of_windows_are_line_ends(capsys: pytest.CaptureFixture[str]) -> None:
    steps = [Call("1", "delete", {"name": "a\r\nb\r\n"})], [Text("one\r\ntw\r"), Text("\n\ro\r")]
    agent = Deletes(*steps).agent
    with served(agent, config=PLUGINS) as service:
        code, out, _ = chat(capsys, service, "-m", "delete a", "--approve")
    assert code == 0
    assert out.endswith("delete:\ndeleted a\nb\none\ntw\n<U+000D>o<U+000D>\n")
    assert visible("a\r\nb", strict=True) == "a<U+000D>\nb"


def test_service_with_v1_alone_is_talked_to(capsys: pytest.CaptureFixture[str]) -> None:
    given = Deletes(DELETE, "Gone.")
    with served(given.agent, config='plugins = ["v1"]\n') as service:
        code, out, _ = chat(capsys, service, "--json", "-m", "delete a", "--approve")
    assert (code, given.names, events(out)[-1]["type"]) == (0, ["a"], "done")


def test_who_closes_the_output_of_chat_gets_its_exit_code(folder: Path) -> None:
    given = Deletes(DELETE, "Gone.")
    with served(given.agent, config=PLUGINS) as service:
        command = f"{sys.executable} -m sayso chat {service.url} -m delete --approve >&-"
        ended = subprocess.run(command, shell=True, stderr=subprocess.PIPE, timeout=60, check=False)
    assert (ended.returncode, ended.stderr, given.names) == (0, b"", ["a"])


def test_service_without_a_chat_endpoint_is_told(capsys: pytest.CaptureFixture[str]) -> None:
    with served(Deletes().agent, config="plugins = []\n") as service:
        code, out, err = chat(capsys, service, "-m", "hello")
    assert (code, out) == (1, "")
    assert "no chat endpoint" in err and "plugins/v2" in err


@pytest.mark.parametrize("token", ["sesame-7", "open sesame 7"])
def test_token_is_needed_sent_and_never_shown(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, token: str
) -> None:
    config = f'{PLUGINS}[auth]\nscheme = "bearer"\n[auth.tokens]\nann = "{token}"\n'
    with served(Deletes("Hello Ann.").agent, config=config) as service:
        code, out, _ = chat(capsys, service, "--json", "-m", "hello")
        assert (code, events(out)[0]["code"]) == (1, "UNAUTHENTICATED")
        assert "SAYSO_TOKEN" in events(out)[0]["error"]
        code, out, err = chat(capsys, service, "-m", "hello", "--token", "wrong-8")
        assert code == 1 and "wrong-8" not in out + err
        monkeypatch.setenv("SAYSO_TOKEN", token)
        assert chat(capsys, service, "-m", "hello")[:2] == (0, "Hello Ann.\n")
        assert token not in repr(Client(service.url, token))
    assert cli.run(["chat", service.url, "-m", "hello", "--token", "a\nb"]) == 1
    assert "no HTTP header may have" in capsys.readouterr().err


def test_token_in_the_environment_is_no_setting(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SAYSO_TOKEN", "sesame-7")
    assert cli.run(["config"]) == 0
    assert "sesame-7" not in capsys.readouterr().out


def test_error_of_a_turn_is_exit_code_one(capsys: pytest.CaptureFixture[str]) -> None:
    fails = ValueError("inner")
    with served(Deletes(fails, "fine", fails).agent, config=PLUGINS) as service:
        code, out, _ = chat(capsys, service, "--json", "-m", "hello")
        assert (code, events(out)[-1]["type"]) == (1, "error")
        code, out, _ = chat(capsys, service, "-m", "hello")
        assert (code, out) == (0, "fine\n")
        code, out, err = chat(capsys, service, "-m", "hello")
        assert (code, out) == (1, "")
        assert err.startswith("sayso: ")


def test_nothing_that_listens_is_said_with_the_way_out(
    capsys: pytest.CaptureFixture[str],
) -> None:
    # Bound, so that nobody else gets it, but not listening.
    with socket.socket() as bound:
        bound.bind(("127.0.0.1", 0))
        port = bound.getsockname()[1]
        assert cli.run(["chat", f"127.0.0.1:{port}", "-m", "hello"]) == 1
    out, err = capsys.readouterr()
    assert out == ""
    assert f"nothing listens at http://127.0.0.1:{port}; start a service with: sayso demo" in err
    assert err.count("\n") == 1


def take_request(connection: socket.socket) -> None:
    """Read the whole request: closing with some of it unread would be a reset."""
    with connection.makefile("rb") as reading:
        length = 0
        while line := reading.readline().strip().lower():
            if line.startswith(b"content-length:"):
                length = int(line.partition(b":")[2])
        reading.read(length)


@contextlib.contextmanager
def answering(*answers: bytes) -> Iterator[str]:
    """A server that gives each connection one answer, whatever the request, and closes."""
    with socket.create_server(("127.0.0.1", 0)) as listening:

        def serve() -> None:
            for answer in answers:
                with contextlib.suppress(OSError), listening.accept()[0] as connection:
                    take_request(connection)
                    connection.sendall(answer)

        thread = threading.Thread(target=serve, daemon=True)
        thread.start()
        yield f"http://127.0.0.1:{listening.getsockname()[1]}"
        thread.join(60)
        assert not thread.is_alive()


STREAM = b"HTTP/1.1 200 OK\r\nContent-Type: application/x-ndjson\r\n\r\n"


@pytest.mark.parametrize(
    ("answer", "said"),
    [
        (STREAM + b'{"type": "text_delta", "text": "hal', "before the turn was done"),
        (STREAM + b'{"type": "text_delta", "text": "half"}\n', "before the turn was done"),
        (STREAM + b'{"type": "text_delta", "text": "half"}\n[]\n', "a line that is no event"),
        (b"HTTP/1.1 200 OK\r\nContent-Length: 99\r\n\r\n", "before the turn was done"),
        (b"HTTP/1.1 308 Moved\r\nLocation: https://x\r\nContent-Length: 0\r\n\r\n", "https://x"),
        (b"SSH-2.0-OpenSSH_9.2\r\n", "answers, but not in HTTP"),
        (STREAM + b"[]\n", "answers, but not as a Sayso service does"),
        (STREAM + b'{"hello": "world"}\n', "answers, but not as a Sayso service does"),
        (STREAM + b"<html>\n</html>\n", "answers, but not as a Sayso service does"),
        (STREAM + b"<html></html>", "answers, but not as a Sayso service does"),
    ],
)
def test_broken_answer_is_one_error(answer: bytes, said: str) -> None:
    with answering(answer) as url, pytest.raises(ChatError, match=said):
        list(Client(url).turn([], {}))


def test_answer_of_a_stranger_commands_no_terminal(capsys: pytest.CaptureFixture[str]) -> None:
    moved = b"HTTP/1.1 308 Moved\r\nLocation: https://\x1b]0;x\x07\r\nContent-Length: 0\r\n\r\n"
    with answering(b"", moved) as url:
        assert cli.run(["chat", url, "-m", "hello"]) == 1
    assert capsys.readouterr().err == (
        f"sayso: {url} has moved to https://<U+001B>]0;x<U+0007>; give that address\n"
    )


def test_address_with_a_path_too_much_is_told_so(capsys: pytest.CaptureFixture[str]) -> None:
    refused = b"HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\n\r\n"
    with answering(b"", refused, refused) as url:
        assert cli.run(["chat", f"{url}/console", "-m", "hello"]) == 1
    err = capsys.readouterr().err
    assert f"{url}/console answers, but has no chat endpoint; try {url}, or " in err


def test_service_without_tls_is_told_from_one_that_is_away() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listening:

        def refuse() -> None:
            with listening.accept()[0] as connection:
                connection.recv(1)
                connection.sendall(b"HTTP/1.1 400 Bad Request\r\n\r\n")

        thread = threading.Thread(target=refuse, daemon=True)
        thread.start()
        url = f"https://127.0.0.1:{listening.getsockname()[1]}"
        with pytest.raises(ChatError, match="answers, but not in TLS; try http://127"):
            list(Client(url).turn([], {}))
        thread.join(60)


@needs_openssl
def test_certificate_that_is_not_trusted_is_told_with_the_way_out(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("SSL_CERT_FILE", raising=False)
    with untrusted(tmp_path) as server:
        assert cli.run(["chat", server.url, "-m", "hello"]) == 1
        err = capsys.readouterr().err
        assert "self-signed certificate; set SSL_CERT_FILE to" in err and "_ssl.c" not in err
        monkeypatch.setenv("SSL_CERT_FILE", str(server.certificate))
        assert cli.run(["chat", server.url, "-m", "hello"]) == 1
        assert "answered with status 500" in capsys.readouterr().err


def test_refusal_without_a_body_of_ours_is_an_error_event() -> None:
    with answering(b"HTTP/1.1 502 Bad\r\nContent-Length: 5\r\n\r\n<htm>") as url:
        assert list(Client(url).turn([], {})) == [
            {"type": "error", "error": "the service answered with status 502"}
        ]


def test_target_is_served_in_this_process(capsys: pytest.CaptureFixture[str], folder: Path) -> None:
    (folder / "echo_agent.py").write_text(
        "def agent(messages, context):\n    return f'you said {messages[-1].content}'\n", "utf-8"
    )
    (folder / "sayso.toml").write_text(
        f'{PLUGINS}[approvals]\nledger = "memory://"\n[server]\nport = 1\nworkers = 3\n', "utf-8"
    )
    assert cli.run(["chat", "echo_agent.py", "-m", "hi"]) == 0
    assert capsys.readouterr().out == "you said hi\n"
    assert cli.run(["chat", "echo_agent.py:missing", "-m", "hi"]) == 1
    assert "has no 'missing'" in capsys.readouterr().err


SLOW_AGENT = """
import time

from sayso import Agent, Call, tool
from sayso.testing import scripted


@tool(requires_approval=GATED)
def work() -> str:
    open("begun", "w").close()
    time.sleep(600)
    return "worked"


agent = Agent(model=scripted([Call("1", "work", {})], "Done."), tools=[work])
"""


def test_who_leaves_while_an_approved_call_runs_is_told_what_is_waited_for(folder: Path) -> None:
    (folder / "slow.py").write_text(SLOW_AGENT.replace("GATED", "True"), "utf-8")
    (folder / "sayso.toml").write_text(PLUGINS, "utf-8")
    place = {"SAYSO_SERVER__STATE_DIR": str(folder / "state")}
    with terminal(["-m", "sayso", "chat", "slow.py"], folder, place) as person:
        person.shows("> ")
        person.keys("go\n")
        person.shows(QUESTION)
        person.keys("a\n")
        until((folder / "begun").exists)
        person.keys("\x03")
        person.shows("cancelled; what was approved goes on")
        person.shows("> ")
        person.keys("\x04")
        person.shows("waiting for what still runs; Ctrl-C leaves at once")
        person.keys("\x03")
        person.ended()


def test_who_leaves_does_not_wait_for_a_tool_that_was_given_up(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (folder / "slow.py").write_text(SLOW_AGENT.replace("GATED", "False"), "utf-8")
    (folder / "sayso.toml").write_text(
        f'{PLUGINS}[approvals]\nledger = "memory://"\n[limits]\nturn_time = 1\n', "utf-8"
    )
    waited: list[float] = []
    workers: Any = type(create_app(lambda messages, context: "").host.workers)
    close = workers.close

    async def closing(self: Any, seconds: float = 5.0) -> None:
        waited.append(seconds)
        await close(self, seconds)

    monkeypatch.setattr(workers, "close", closing)
    assert cli.run(["chat", "slow.py", "-m", "go"]) == 1
    assert waited == [1.0]


def test_wrong_usage_is_exit_code_two(capsys: pytest.CaptureFixture[str]) -> None:
    for arguments in (["--approve", "--reject", "no"], ["--mesage", "x"], ["a", "b"]):
        assert cli.run(["chat", *arguments]) == 2
        assert "sayso chat --help" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("given", "url"),
    [
        ("http://a/b/", "http://a/b"),
        ("HTTPS://a", "HTTPS://a"),
        ("ws://a:8000", "ws://a:8000"),
        ("localhost:8000", "http://localhost:8000"),
        ("[::1]:8000", "http://[::1]:8000"),
        ("ops:agent", None),
        ("ops.py", None),
        ("dir/ops.py:agent", None),
    ],
)
def test_addresses_are_told_from_targets(given: str, url: str | None) -> None:
    assert as_url(given) == url


@pytest.mark.parametrize(
    "given",
    [
        "ftp://a",
        "http://",
        "http://[::1",
        "http://a b",
        "http://a..b",
        "http://a/b c",
        "http://a/\u00fc",
        "http://a:b:c",
        # This was taken for port 80 of that host, to which the token was then sent.
        "127.0.0.1:99999",
    ],
)
def test_address_that_cannot_be_is_said_and_no_other_is_asked(
    capsys: pytest.CaptureFixture[str], given: str
) -> None:
    assert cli.run(["chat", given, "-m", "hello"]) == 1
    err = capsys.readouterr().err
    assert "is no address; write http://HOST:PORT" in err
    assert err.count("\n") == 1


def test_token_that_is_empty_is_called_so() -> None:
    with pytest.raises(ChatError, match="the token is empty"):
        Client("http://127.0.0.1:1", "")


def test_nothing_that_hides_stays_hidden() -> None:
    assert visible("a\tb\nc\u0000\r\u202e\u2028") == "a\tb\nc<U+0000><U+000D><U+202E><U+2028>"
    assert visible("\u200d\u00a0") == "\u200d\u00a0"
    assert visible("\u200d\u00a0", strict=True) == "<U+200D><U+00A0>"
    assert json.loads(pretty({"a\x1b": "\U000e0041 ü\u200b"})) == {"a\x1b": "\U000e0041 ü\u200b"}
    assert pretty("\x7f\u200bü") == r'"\u007f\u200bü"'


@pytest.mark.parametrize(
    "blank", "\u034f\u115f\u1160\u17b4\u180b\u2800\u3164\ufe01\uffa0\U000e0100"
)
def test_letters_and_marks_that_show_nothing_are_written_out(blank: str) -> None:
    assert visible(f"a{blank}b") == f"a<U+{ord(blank):04X}>b"
    assert blank not in pretty({"name": f"a{blank}b"})
    assert json.loads(pretty(f"a{blank}b")) == f"a{blank}b"


def test_emoji_of_a_reply_stay_whole() -> None:
    assert visible("\u2764\ufe0f") == "\u2764\ufe0f"
    assert visible("\u2764\ufe0f", strict=True) == "\u2764<U+FE0F>"


def test_details_hold_all_that_was_stated() -> None:
    stated = {"command": "ls", "id": "7", "files": [{"file_path": "f", "file_content": "x\ny"}]}
    rows = show(Proposal("cmds", {**stated, "extra": 1}), whole=True).lines
    assert ("command", "ls") in rows and ("id", "7") in rows and ("file", "f") in rows
    assert ("", "y") in rows and any("extra" in text for _, text in rows)
