from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from sayso import Agent, LocalShell, Session, Tool, ToolInputError
from sayso_demo import machine as demo

linux = pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")


class Updates(list[str]):
    def update(self, text: str) -> None:
        self.append(text)


def call(made: Tool, context: Any = None, **input: Any) -> str:
    result = made.call(made.validate(input), Session(), Updates() if context is None else context)
    assert isinstance(result, str)
    return result


@pytest.fixture
def agent(tmp_path: Path) -> Agent:
    return demo.demo_agent(tmp_path / "work" / "space")


def test_disk_usage_tells_size_and_free_space(tmp_path: Path) -> None:
    text = call(demo.disk_usage, path=str(tmp_path))
    assert "% full" in text and "free" in text
    assert "file system of / " in call(demo.disk_usage)
    with pytest.raises(ValueError, match="no '/nowhere' on this machine"):
        call(demo.disk_usage, path="/nowhere")


def test_largest_files_come_first_with_their_folders(tmp_path: Path) -> None:
    (tmp_path / "deep" / "er").mkdir(parents=True)
    (tmp_path / "deep" / "er" / "big").write_bytes(b"x" * 900_000)
    (tmp_path / "deep" / "middle").write_bytes(b"x" * 500_000)
    (tmp_path / "small").write_bytes(b"x" * 100)
    os.link(tmp_path / "deep" / "er" / "big", tmp_path / "again")
    (tmp_path / "loop").symlink_to(tmp_path)
    os.mkfifo(tmp_path / "fifo")
    lines = call(demo.largest_files, path=str(tmp_path), count=2).splitlines()
    files = lines[lines.index("Largest files:") + 1 :]
    assert len(files) == 2
    assert files[0].endswith(("/deep/er/big", "/again")) and files[1].endswith("/deep/middle")
    assert any(line.endswith("/deep") for line in lines) and "loop" not in "".join(lines)
    assert lines[0].startswith("1.3 MiB on disk")


def test_search_stops_at_its_limit_and_says_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for number in range(20):
        (tmp_path / f"f{number}").touch()
    monkeypatch.setattr(demo, "SCAN_ENTRIES", 5)
    monkeypatch.setattr(demo, "_UPDATE_SECONDS", 0.0)
    updates = Updates()
    text = call(demo.largest_files, updates, path=str(tmp_path))
    assert "5 entries. There are more" in text and len(updates) == 5
    monkeypatch.setattr(demo, "SCAN_SECONDS", -1.0)
    assert "1 entries. There are more" in call(demo.largest_files, path=str(tmp_path))


def test_unreadable_folder_is_skipped_and_counted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "closed").mkdir()
    (tmp_path / "open").write_text("x")
    scandir = os.scandir

    def refusing(path: str) -> Any:
        if path.endswith("closed"):
            raise PermissionError(path)
        return scandir(path)

    monkeypatch.setattr(os, "scandir", refusing)
    text = call(demo.largest_files, path=str(tmp_path))
    assert "1 could not be read" in text and text.endswith("/open")


def test_largest_files_needs_a_folder_and_a_count_within_bounds(tmp_path: Path) -> None:
    (tmp_path / "f").touch()
    with pytest.raises(ValueError, match="not a folder"):
        call(demo.largest_files, path=str(tmp_path / "f"))
    with pytest.raises(ToolInputError, match="count"):
        call(demo.largest_files, path="/", count=0)


@linux
def test_busy_process_is_first_by_cpu() -> None:
    with subprocess.Popen([sys.executable, "-c", "while True: pass"]) as busy:
        try:
            deadline = time.monotonic() + 60
            while not (found := cpu_of_processes()).get(busy.pid):
                assert time.monotonic() < deadline, found
        finally:
            busy.kill()
    assert list(found.values()) == sorted(found.values(), reverse=True)


def cpu_of_processes() -> dict[int, float]:
    rows = call(demo.processes, sort_by="cpu", count=100).splitlines()[2:]
    return {int(row.split()[0]): float(row.split()[1]) for row in rows}


@linux
def test_memory_and_processes_by_memory_are_told() -> None:
    assert "available" in call(demo.memory)
    lines = call(demo.processes, sort_by="memory", count=3).splitlines()
    assert len(lines) == 5 and "by memory" in lines[0]


def test_other_systems_are_told_that_it_needs_linux(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "platform", "plan9")
    for made in (demo.processes, demo.memory):
        with pytest.raises(RuntimeError, match="plan9"):
            call(made)


def test_tail_reads_the_last_lines(tmp_path: Path) -> None:
    log = tmp_path / "app.log"
    log.write_text("".join(f"line {n}\n" for n in range(50_000)) + "no newline ü")
    assert call(demo.tail_log, path=str(log), lines=2) == "line 49999\nno newline ü"
    assert call(demo.tail_log, path=str(log), lines=1000).startswith("line 49001\n")
    log.write_text("only\n")
    assert call(demo.tail_log, path=str(log)) == "only\n"
    log.write_text("")
    assert "is empty" in call(demo.tail_log, path=str(log))


def test_tail_of_one_endless_line_is_bounded(tmp_path: Path) -> None:
    log = tmp_path / "app.log"
    log.write_bytes(b"x" * 5_000_000)
    assert len(call(demo.tail_log, path=str(log))) <= 2_000_000


def test_tail_takes_regular_files_only(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "fifo")
    outcome: list[BaseException] = []

    def read() -> None:
        try:
            call(demo.tail_log, path=str(tmp_path / "fifo"))
        except ValueError as error:
            outcome.append(error)

    reader = threading.Thread(target=read, daemon=True)
    reader.start()
    reader.join(60)
    assert outcome and "not a regular file" in str(outcome[0])
    with pytest.raises((ValueError, IsADirectoryError)):
        call(demo.tail_log, path=str(tmp_path))
    with pytest.raises(ValueError, match="there is no"):
        call(demo.tail_log, path=str(tmp_path / "missing"))


def test_agent_gates_deletion_and_commands_alone(agent: Agent) -> None:
    gated = {name for name, made in agent.tools.items() if made.requires_approval}
    assert gated == {"delete_file"}
    assert set(agent.tools) - gated == {
        "disk_usage",
        "largest_files",
        "processes",
        "memory",
        "tail_log",
    }
    assert isinstance(agent.commands, LocalShell)


def test_deletion_takes_a_file_of_the_workspace(agent: Agent, tmp_path: Path) -> None:
    space = tmp_path / "work" / "space"
    delete = agent.tools["delete_file"]
    assert (space.stat().st_mode & 0o777) == 0o700
    assert call(delete, path="notes.txt") == "Deleted notes.txt (57 B)."
    assert call(delete, path=f"{space}/logs/app.log").startswith("Deleted")
    assert not (space / "notes.txt").exists() and (space / "todo.txt").exists()
    with pytest.raises(ValueError, match=r"no file 'notes.txt'; .*: report.csv, todo.txt"):
        call(delete, path="notes.txt")


def test_nothing_outside_the_workspace_is_deleted(agent: Agent, tmp_path: Path) -> None:
    space = tmp_path / "work" / "space"
    victim = tmp_path / "victim"
    victim.mkdir()
    (victim / "kept").write_text("x")
    (space / "door").symlink_to(victim)
    (space / "link").symlink_to(victim / "kept")
    for path in (
        str(victim / "kept"),
        "../../victim/kept",
        "door/kept",
        "link",
        "door",
        "logs",
        "/",
        "",
        f"{space}/../../victim/kept",
    ):
        with pytest.raises(ValueError):
            call(agent.tools["delete_file"], path=path)
    assert (victim / "kept").exists() and (space / "link").is_symlink()


def test_deleted_samples_come_back_and_changed_ones_stay(agent: Agent, tmp_path: Path) -> None:
    space = tmp_path / "work" / "space"
    (space / "notes.txt").unlink()
    (space / "todo.txt").write_text("mine")
    demo.demo_agent(space)
    assert (space / "notes.txt").exists() and (space / "todo.txt").read_text() == "mine"


def test_module_gives_the_agent_as_a_target(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    monkeypatch.delitem(vars(demo), "agent", raising=False)
    try:
        assert isinstance(demo.agent, Agent)
        assert demo.agent is demo.agent and demo.agent.model == "offline"
        assert list(tmp_path.glob("sayso-demo-*/notes.txt"))
    finally:
        vars(demo).pop("agent", None)
    with pytest.raises(AttributeError, match="no attribute 'other'"):
        _ = demo.other


def test_descriptions_hold_the_words_of_users() -> None:
    words: dict[Tool, list[str]] = {
        demo.largest_files: ["what fills the disk", "largest", "biggest", "big"],
        demo.disk_usage: ["free space", "full"],
        demo.processes: ["cpu", "memory", "running"],
        demo.memory: ["memory", "ram", "swap"],
        demo.tail_log: ["log", "last lines", "tail"],
        demo.Workspace.delete_file: ["delete", "remove", "file"],
    }
    for made, expected in words.items():
        assert all(word in made.description.lower() for word in expected), made
        assert all(entry["description"] for entry in made.input_description.values())


def test_shell_of_the_demo_knows_the_workspace(agent: Agent, tmp_path: Path) -> None:
    assert agent.commands is not None
    context = SimpleNamespace(platform=None)
    assert agent.commands._added(context) == {"WORKSPACE": str(tmp_path / "work" / "space")}
