"""`sayso demo` as a newcomer meets it: the process, its output, and its two sentences."""

from __future__ import annotations

import http.client
import json
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import threading
import time
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from terminal import terminal

DEADLINE = 120.0
FILLS = "what fills the disk under /usr?"
Json = dict[str, Any]


class Demo:
    """A running `sayso demo`; `said` is its output so far."""

    def __init__(self, folder: Path, *options: str) -> None:
        self.workspace = folder / f"sayso-demo-{os.geteuid()}"
        self.environ = environ(folder)
        self.process = subprocess.Popen(
            [sys.executable, "-m", "sayso", "demo", "--port", "0", *options],
            cwd=folder,
            env=self.environ,
            text=True,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
        )
        self.said = ""
        self._reader = threading.Thread(target=self._read)
        self._reader.start()
        deadline = time.monotonic() + DEADLINE
        while "Ctrl-C ends" not in self.said:
            assert self.process.poll() is None and time.monotonic() < deadline, self.said
            time.sleep(0.01)
        found = re.search(r"listening on http://127\.0\.0\.1:(\d+)\n", self.said)
        assert found, self.said
        self.port = int(found[1])

    def _read(self) -> None:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            self.said += line

    def post(self, path: str, *messages: Json) -> bytes:
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=DEADLINE)
        try:
            headers = {"Content-Type": "application/json"}
            connection.request("POST", path, json.dumps({"messages": messages}), headers)
            answer = connection.getresponse()
            body = answer.read()
            assert answer.status == 200, body
            return body
        finally:
            connection.close()

    def chat(self, path: str, *messages: Json) -> Json:
        reply: Json = json.loads(self.post(path, *messages))
        return reply

    def stream(self, path: str, *messages: Json) -> list[Json]:
        return [json.loads(line) for line in self.post(path, *messages).splitlines()]

    def end(self, number: int = signal.SIGTERM) -> int:
        self.process.send_signal(number)
        code = self.process.wait(DEADLINE)
        self._reader.join(DEADLINE)
        assert self.process.stdout is not None
        self.process.stdout.close()
        return code


def environ(folder: Path) -> dict[str, str]:
    """An environment whose folders for temporary files and state are below `folder`."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith("SAYSO_")}
    return kept | {"TMPDIR": str(folder), "XDG_STATE_HOME": str(folder / "state")}


def user(content: str = "", **data: Any) -> Json:
    return {"role": "user", "content": content, **({"data": data} if data else {})}


@pytest.fixture(scope="module")
def demo(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Demo]:
    running = Demo(tmp_path_factory.mktemp("demo"))
    yield running
    assert running.end() == 0, running.said


@pytest.fixture(autouse=True)
def notes(demo: Demo) -> Path:
    """The file to delete, there at the start of each test."""
    file = demo.workspace / "notes.txt"
    file.write_text("Remember to water the plants.\n", "utf-8")
    return file


def test_demo_says_what_it_serves_and_that_no_language_model_answers(demo: Demo) -> None:
    assert "model offline" in demo.said and "sqlite" in demo.said
    assert str(demo.workspace.parent / "state") in demo.said
    assert f"chat http://127.0.0.1:{demo.port}\n" in demo.said


def test_printed_page_is_there(demo: Demo) -> None:
    found = re.search(r"sayso: console http://127\.0\.0\.1:(\d+)(/\w+)", demo.said)
    assert found, demo.said
    with urllib.request.urlopen(found[0].partition(": console ")[2], timeout=DEADLINE) as page:
        assert page.headers["Content-Type"].startswith("text/html")


def pasted(said: str) -> Json:
    """The reply to the printed curl line."""
    found = re.search(r"^  (curl .*\n.*)$", said, re.MULTILINE)
    assert found, said
    done = subprocess.run(
        ["bash", "-c", found[1]], capture_output=True, text=True, timeout=DEADLINE, check=True
    )
    reply: Json = json.loads(done.stdout)
    return reply


@pytest.mark.skipif(shutil.which("curl") is None, reason="curl is not installed")
def test_printed_curl_line_works_when_pasted(demo: Demo) -> None:
    content = pasted(demo.said)["content"]
    assert "on disk under /usr" in content and "Largest files:" in content


@pytest.mark.skipif(shutil.which("curl") is None, reason="curl is not installed")
def test_printed_curl_line_works_with_v1_alone(tmp_path: Path) -> None:
    (tmp_path / "sayso.toml").write_text('plugins = ["v1"]\n', "utf-8")
    alone = Demo(tmp_path)
    try:
        assert "on disk under /usr" in pasted(alone.said)["content"]
    finally:
        assert alone.end() == 0, alone.said


def test_no_step_is_printed_that_cannot_work_without_a_protocol(tmp_path: Path) -> None:
    (tmp_path / "sayso.toml").write_text("plugins = []\n", "utf-8")
    alone = Demo(tmp_path)
    try:
        assert "no protocol plugin is active" in alone.said
        assert "curl" not in alone.said and "chat" not in alone.said
    finally:
        assert alone.end() == 0, alone.said


@pytest.mark.parametrize("path", ["/api/chat", "/api/sendMessage"])
def test_approved_deletion_happens_once(demo: Demo, notes: Path, path: str) -> None:
    asked = user("delete notes.txt")
    reply = demo.chat(path, asked)
    (call,) = reply["data"]["tool_calls"]
    assert (call["name"], call["input"], call["execute"]) == (
        "delete_file",
        {"path": "notes.txt"},
        False,
    )
    assert notes.exists()
    history = [asked, {"role": "assistant", "content": "", "data": reply["data"]}]
    approval = user(tool_calls=[{**call, "execute": True}])
    reply = demo.chat(path, *history, approval)
    (executed,) = reply["data"]["executed_tool_calls"]
    assert executed["output"].startswith("Deleted notes.txt")
    assert "Deleted notes.txt" in reply["content"] and not notes.exists()
    notes.write_text("again\n", "utf-8")
    assert demo.chat(path, *history, approval)["data"]["executed_tool_calls"] == [executed]
    assert notes.exists(), "an approval that was sent again ran again"


@pytest.mark.parametrize("path", ["/api/chat-stream", "/api/sendMessageStream"])
def test_rejected_deletion_never_happens(demo: Demo, notes: Path, path: str) -> None:
    asked = user("delete notes.txt")
    events = demo.stream(path, asked)
    assert [event["type"] for event in events][-3:] == ["approvals", "tool_calls", "done"]
    (call,) = events[-2]["tool_calls"]
    events = demo.stream(path, asked, user(tool_calls=[{**call, "rejection_reason": "mine"}]))
    text = "".join(event["text"] for event in events if event["type"] == "text_delta")
    assert "was not run" in text and "mine" in text
    assert notes.exists()


def test_status_lines_come_while_the_disk_is_searched(demo: Demo) -> None:
    events = demo.stream("/api/chat-stream", user(FILLS))
    assert any(
        event["type"] == "intermittent_update" and "largest_files" in event["text"]
        for event in events
    )
    assert events[-1] == {"type": "done", "stop_reason": "end_turn", "meta_data": {}}


def test_both_sentences_work_in_the_terminal_client(
    demo: Demo, notes: Path, tmp_path: Path
) -> None:
    arguments = ["-m", "sayso", "chat", f"http://127.0.0.1:{demo.port}"]
    with terminal(arguments, tmp_path) as person:
        person.shows("> ")
        person.keys(f"{FILLS}\n")
        person.shows("Largest files:")
        person.shows("\n> ")
        for answer, said in (("r\n", "was not run: Rejected"), ("a\n", "Deleted notes.txt")):
            assert notes.exists()
            person.keys("delete notes.txt\n")
            person.shows("[a/r/d/l] ")
            person.keys(answer)
            if answer == "r\n":
                person.shows("reason")
                person.keys("still needed\n")
            person.shows(said)
            person.shows("\n> ")
        person.keys("\x04")
        assert person.ended() == 0
    assert not notes.exists()


def test_shell_command_runs_in_the_workspace_when_approved(demo: Demo) -> None:
    reply = demo.chat("/api/chat", user("run `ls $WORKSPACE`"))
    (command,) = reply["data"]["cmds"]
    answer = demo.chat(
        "/api/chat",
        user("run `ls $WORKSPACE`"),
        {"role": "assistant", "content": "", "data": reply["data"]},
        user(cmds=[{**command, "execute": True}], session=reply["data"]["session"]),
    )
    assert "notes.txt" in answer["data"]["executed_cmds"][0]["output"]


def test_greeting_explains_what_the_agent_can_do(demo: Demo) -> None:
    content = demo.chat("/api/chat", user("hello"))["content"]
    assert "not a language model" in content and "delete_file" in content


def test_busy_port_is_one_line_with_the_way_out(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        done = subprocess.run(
            [sys.executable, "-m", "sayso", "demo", "--port", str(port)],
            cwd=tmp_path,
            env=environ(tmp_path),
            capture_output=True,
            text=True,
            timeout=DEADLINE,
            check=False,
        )
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr == (
        f"sayso: port {port} of 127.0.0.1 is in use; "
        "stop what listens there or choose another with --port\n"
    )


def test_ctrl_c_ends_the_demo_and_its_ledger_stays(tmp_path: Path) -> None:
    running = Demo(tmp_path)
    assert running.end(signal.SIGINT) == 0, running.said
    assert [*(tmp_path / "state" / "sayso").rglob("approvals.db")]
    assert "Traceback" not in running.said


def test_model_without_its_key_is_said_at_the_start(tmp_path: Path) -> None:
    hidden = {name: "" for name in os.environ if name.startswith("ANTHROPIC_")}
    done = subprocess.run(
        [sys.executable, "-m", "sayso", "demo", "--port", "0", "--model", "nobody:at-all"],
        cwd=tmp_path,
        env=environ(tmp_path) | hidden,
        capture_output=True,
        text=True,
        timeout=DEADLINE,
        check=False,
    )
    assert done.returncode == 1
    assert "nobody" in done.stderr and "Traceback" not in done.stderr
