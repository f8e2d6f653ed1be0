"""The README's instructions for a newcomer work: its blocks run in order, in one folder.

A fence says what its block is: `sh` is run, `sh service` is a service that runs until the next one,
`python NAME`, `toml NAME` are files, `python run` is run; `not-run` and `text` are only read.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from sayso.config import load_config

sys.path.insert(0, str(Path(__file__).parent))

from ports import quiet_port

ROOT = Path(__file__).resolve().parent.parent
README = ROOT / "README.md"
PORT = "8000"
DEADLINE = 300.0
_FENCE = re.compile(r"^( *)```(\w+)([^\n]*)\n(.*?)^\1```$", re.MULTILINE | re.DOTALL)
EPILOGUE = "declare -p reply id > session 2>/dev/null || true"
NEEDS = ("bash", "curl", "grep")


@dataclass(frozen=True)
class Block:
    language: str
    words: list[str]
    text: str
    line: int


def blocks() -> Iterator[Block]:
    readme = README.read_text("utf-8")
    for found in _FENCE.finditer(readme):
        line = readme.count("\n", 0, found.start()) + 1
        yield Block(found[2], found[3].split(), found[4], line)


@dataclass
class Newcomer:
    """Follows the README in `folder`; a free port replaces 8000."""

    folder: Path
    port: str
    said: dict[int, str] = field(default_factory=dict)
    service: subprocess.Popen[str] | None = None

    def environ(self) -> dict[str, str]:
        kept = {k: v for k, v in os.environ.items() if not k.startswith(("SAYSO_", "ANTHROPIC_"))}
        programs = self.folder / "programs"
        return kept | {
            "PATH": f"{programs}{os.pathsep}{kept['PATH']}",
            "HOME": str(self.folder / "home"),
            "XDG_STATE_HOME": str(self.folder / "state"),
            "TMPDIR": str(self.folder),
        }

    def install(self) -> None:
        """Put `sayso` on the path, as an activated environment would."""
        (self.folder / "programs").mkdir()
        program = self.folder / "programs" / "sayso"
        program.write_text(f'#!/bin/sh\nexec "{sys.executable}" -m sayso "$@"\n', "utf-8")
        program.chmod(0o755)

    def follow(self, block: Block) -> None:
        text = block.text.replace(f"127.0.0.1:{PORT}", f"127.0.0.1:{self.port}")
        match block.language, block.words:
            case _, ["not-run", *_]:
                return
            case "python" | "toml", [name] if name != "run":
                (self.folder / name).write_text(text, "utf-8")
            case "python", ["run"]:
                self.run(block, [sys.executable, "-W", "error", "-c", text])
            case "sh", ["service", *_]:
                self.start(text)
            case "sh", []:
                script = "\n".join([self.prelude(), text, EPILOGUE])
                self.run(block, ["bash", "-euo", "pipefail", "-c", script])
            case "json", _:
                json.loads(text)
            case "text", _:
                return
            case _:
                raise AssertionError(f"line {block.line}: nobody knows what this block is")

    def prelude(self) -> str:
        """The variables of the newcomer's shell from earlier blocks, and a chat that finds the
        port."""
        address = f"127.0.0.1:{self.port}"
        return (
            ". ./session\n"
            'sayso() { if [ "$1" = chat ]; then shift; command sayso chat '
            f'{address} "$@"; else command sayso "$@"; fi; }}'
        )

    def run(self, block: Block, command: list[str]) -> None:
        done = subprocess.run(
            command,
            cwd=self.folder,
            env=self.environ(),
            text=True,
            timeout=DEADLINE,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            check=False,
        )
        assert done.returncode == 0, f"line {block.line}: {done.stdout}{done.stderr}"
        assert "Traceback" not in done.stderr
        self.said[block.line] = done.stdout

    def start(self, text: str) -> None:
        self.stop()
        *before, command = text.strip().splitlines()
        script = "\n".join([*before, f"exec {command} --port {self.port}"])
        self.service = subprocess.Popen(
            ["bash", "-euo", "pipefail", "-c", script],
            cwd=self.folder,
            env=self.environ(),
            stderr=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            text=True,
        )
        deadline = time.monotonic() + DEADLINE
        while not self.answers():
            assert self.service.poll() is None and time.monotonic() < deadline, text
            time.sleep(0.02)

    def answers(self) -> bool:
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{self.port}/health", timeout=5) as got:
                return json.loads(got.read()) == {"status": "ok"}
        except OSError:
            return False

    def stop(self) -> None:
        if self.service is not None:
            self.service.send_signal(signal.SIGTERM)
            _, said = self.service.communicate(timeout=DEADLINE)
            assert self.service.returncode == 0, said
            self.service = None


@pytest.fixture(scope="module")
def newcomer(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Newcomer]:
    missing = [name for name in NEEDS if shutil.which(name) is None]
    if missing and os.environ.get("CI") != "true":
        pytest.skip(f"not installed: {', '.join(missing)}")
    one = Newcomer(tmp_path_factory.mktemp("readme"), str(quiet_port()))
    one.install()
    (one.folder / "session").touch()
    try:
        one.start("sayso demo")
        for block in blocks():
            one.follow(block)
        yield one
    finally:
        if one.service is not None:
            one.service.terminate()
            one.service.communicate()


def said_after(newcomer: Newcomer, text: str) -> str:
    """The output of the block that contains `text`."""
    (block,) = [b for b in blocks() if text in b.text and b.line in newcomer.said]
    return newcomer.said[block.line]


def test_first_question_is_answered(newcomer: Newcomer) -> None:
    reply = json.loads(said_after(newcomer, "what fills the disk"))
    assert "Largest files:" in reply["content"]


def test_own_agent_looks_and_asks(newcomer: Newcomer) -> None:
    lines = said_after(newcomer, '-m "stop process 1" --reject')
    assert "`load` returned (" in lines
    assert "was not run" in lines and "that would be everything" in lines
    events = [json.loads(line) for line in lines.splitlines() if line.startswith('{"type"')]
    assert events[-1]["stop_reason"] == "approval_required"


def test_call_is_proposed_then_runs_when_approved(newcomer: Newcomer) -> None:
    proposal = json.loads(said_after(newcomer, 'echo "$reply"\n'))["data"]["tool_calls"][0]
    assert (proposal["name"], proposal["execute"]) == ("delete_file", False)
    executed = json.loads(said_after(newcomer, '"execute": true}'))["data"]["executed_tool_calls"]
    assert executed[0]["id"] == proposal["id"]
    assert executed[0]["output"].startswith("Deleted notes.txt")


def test_shown_reply_has_the_shape_of_the_real_one(newcomer: Newcomer) -> None:
    (shown,) = [json.loads(block.text) for block in blocks() if block.language == "json"]
    real = json.loads(said_after(newcomer, 'echo "$reply"\n'))
    (call,) = shown["data"]["tool_calls"]
    assert shown.keys() <= real.keys()
    assert call.keys() - {"..."} <= real["data"]["tool_calls"][0].keys()


def test_rejected_call_of_v1_never_runs(newcomer: Newcomer) -> None:
    reply = json.loads(said_after(newcomer, '"rejection_reason"'))
    assert reply["data"]["executed_tool_calls"] == [] and "not done yet" in reply["content"]
    assert (newcomer.folder / f"sayso-demo-{os.geteuid()}" / "todo.txt").is_file()


def test_stream_and_websocket_end_with_done(newcomer: Newcomer) -> None:
    lines = said_after(newcomer, "curl -sN").splitlines()
    assert [json.loads(line)["type"] for line in lines][-1] == "done"
    assert "'type': 'done'" in said_after(newcomer, "chat-ws").splitlines()[-1]


def test_ledger_tells_what_happened(newcomer: Newcomer) -> None:
    listed = said_after(newcomer, "sayso approvals list  ")
    for expected in ("DONE", "REJECTED", "delete_file", "stop_process"):
        assert expected in listed
    log = (newcomer.folder / "approvals.jsonl").read_text("utf-8").splitlines()
    assert len(log) > 5 and all(json.loads(line) for line in log)


def test_configuration_shows_its_origins_and_is_valid(newcomer: Newcomer) -> None:
    shown = said_after(newcomer, "sayso config  ")
    assert "9000" in shown and "environment SAYSO_SERVER__PORT" in shown
    config = load_config(newcomer.folder / "sayso.toml", environ={})
    assert config.limits.turn_time == 300 and config.plugins == ["v1", "v2"]


def test_plugins_are_listed_and_made(newcomer: Newcomer) -> None:
    assert "v2" in said_after(newcomer, "sayso plugins  ")
    assert (newcomer.folder / "shout" / "pyproject.toml").is_file()


def test_token_opens_the_guarded_service(newcomer: Newcomer) -> None:
    said = said_after(newcomer, "SAYSO_TOKEN=")
    assert said.count("`load` returned (") == 2


def test_links_lead_to_files() -> None:
    links = re.findall(r"\]\(([^)#]+)[^)]*\)", README.read_text("utf-8"))
    assert [link for link in links if not (ROOT / link).is_file()] == []


def test_numbers_of_the_limits_are_the_defaults() -> None:
    limits = load_config(environ={}, directory=ROOT / "docs").limits
    readme = " ".join(README.read_text("utf-8").split())
    assert (limits.body, limits.frame) == (10 * 2**20, 10 * 2**20)
    for text in (
        f"{limits.messages:,} messages",
        f"{limits.values:,} JSON values",
        f"nesting {limits.nesting}",
        f"{limits.model_calls} model calls",
        f"{limits.tool_calls} tool calls",
        f"{limits.turns} turns in flight",
        f"a turn {limits.turn_time / 60:.0f} minutes",
        f"output {limits.tool_output >> 20} MiB",
        f"{limits.command_output >> 10} KiB",
    ):
        assert text in readme


def test_settings_on_the_page_about_approvals_are_valid(tmp_path: Path) -> None:
    page = (ROOT / "docs" / "approvals.md").read_text("utf-8")
    blocks = [found[4] for found in _FENCE.finditer(page) if found[2] == "toml"]
    assert len(blocks) == 3
    # The first two need people, who need authentication; the test of the pages runs them.
    (tmp_path / "sayso.toml").write_text(blocks[2], "utf-8")
    approvals = load_config(tmp_path / "sayso.toml", environ={}).approvals
    assert (approvals.ttl, approvals.rules[0].action) == (8 * 3600, "require")
