"""A reader who follows the blocks of a page in order, in one folder.

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
import textwrap
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from ports import quiet_port

PORT = "8000"
DEADLINE = 300.0
FENCE = re.compile(r"^( *)```(\w+)([^\n]*)\n(.*?)^\1```$", re.MULTILINE | re.DOTALL)
EPILOGUE = "declare -p reply id seen > session 2>/dev/null || true"
NEEDS = ("bash", "curl", "grep")


@dataclass(frozen=True)
class Block:
    language: str
    words: list[str]
    text: str
    line: int


def blocks(path: Path) -> Iterator[Block]:
    page = path.read_text("utf-8")
    for found in FENCE.finditer(page):
        line = page.count("\n", 0, found.start()) + 1
        yield Block(found[2], found[3].split(), textwrap.dedent(found[4]), line)


@dataclass
class Newcomer:
    """Follows a page in `folder`; a free port replaces 8000."""

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
        """Put `sayso` and `python` on the path, as an activated environment would."""
        (self.folder / "programs").mkdir()
        for name, start in (("sayso", "-m sayso "), ("python", "")):
            program = self.folder / "programs" / name
            program.write_text(f'#!/bin/sh\nexec "{sys.executable}" {start}"$@"\n', "utf-8")
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
        return (
            ". ./session\n"
            'sayso() { case "$1" in '
            f'chat) shift; command sayso chat 127.0.0.1:{self.port} "$@";; '
            f'health) command sayso "$@" --port {self.port};; '
            '*) command sayso "$@";; esac; }'
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
                return bool(json.loads(got.read()) == {"status": "ok"})
        except OSError:
            return False

    def stop(self) -> None:
        if self.service is not None:
            self.service.send_signal(signal.SIGTERM)
            _, said = self.service.communicate(timeout=DEADLINE)
            assert self.service.returncode == 0, said
            self.service = None


@contextmanager
def following(page: Path, folder: Path, *, demo: bool = False) -> Iterator[Newcomer]:
    """The reader after the last block of `page`, and its service if it still runs."""
    missing = [name for name in NEEDS if shutil.which(name) is None]
    if missing and os.environ.get("CI") != "true":
        pytest.skip(f"not installed: {', '.join(missing)}")
    one = Newcomer(folder, str(quiet_port()))
    one.install()
    (one.folder / "session").touch()
    try:
        if demo:
            one.start("sayso demo")
        for block in blocks(page):
            one.follow(block)
        yield one
    finally:
        if one.service is not None:
            one.service.terminate()
            one.service.communicate()
