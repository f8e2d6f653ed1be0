"""The git reference server as a source of tools: gated, approved over HTTP, and run once."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path
from typing import Any

import pytest
from mcp_programs import git_server

from sayso import Agent, Call, Result
from sayso.testing import scripted, served
from sayso_mcp import mcp_server

CONFIG = 'plugins = ["v2"]\n[server]\nstart_timeout = 180\n'
# Ignore personal git settings: no signing, no hooks, no other default branch.
ALONE = {"GIT_CONFIG_GLOBAL": os.devnull, "GIT_CONFIG_SYSTEM": os.devnull}
READING = {"git_status", "git_log", "git_show", "git_branch", "git_diff"}
WRITING = {"git_add", "git_commit", "git_reset", "git_checkout", "git_create_branch"}


@pytest.fixture(autouse=True)
def patient(monkeypatch: pytest.MonkeyPatch) -> None:
    """Give a server more time to start than the service does by default."""
    monkeypatch.setattr("sayso_mcp.connection.FIRST", 120.0)


def git(folder: Path, *arguments: str) -> str:
    ran = subprocess.run(
        ["git", *arguments],
        cwd=folder,
        env=os.environ | ALONE,
        capture_output=True,
        text=True,
        check=True,
    )
    return ran.stdout.strip()


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    """A repository with one commit and one file that is staged."""
    folder = tmp_path / "repository"
    folder.mkdir()
    git_server(folder)
    git(folder, "init", "--quiet", "--initial-branch=trunk")
    git(folder, "config", "user.name", "Tester")
    git(folder, "config", "user.email", "tester@example.org")
    (folder / "first.txt").write_text("one\n")
    git(folder, "add", "first.txt")
    git(folder, "commit", "--quiet", "--message", "The first commit")
    (folder / "second.txt").write_text("two\n")
    git(folder, "add", "second.txt")
    return folder


def executed(reply: dict[str, Any]) -> list[str]:
    return [call["output"] for call in reply["data"]["executed_tool_calls"]]


@pytest.mark.slow
def test_a_commit_waits_for_approval_and_is_made_once(repository: Path) -> None:
    there = {"repo_path": str(repository)}
    call = Call("1", "git_commit", {**there, "message": "The second commit"})
    agent = Agent(
        model=scripted([call], "It is committed."),
        tools=[mcp_server(git_server(repository), env=ALONE)],
    )
    with served(agent, config=CONFIG) as service:
        tools = service.host.agent.tools
        assert set(tools) >= READING | WRITING
        assert {service.host.calls.check("git_status", there)} == {"require"}
        talk = service.conversation()
        reply = talk.say("commit what is staged")
        (proposed,) = reply["data"]["tool_calls"]
        assert proposed["input"] == {**there, "message": "The second commit"}
        assert "message" in proposed["input_description"]
        assert git(repository, "log", "--format=%s") == "The first commit"
        reply = talk.approve()
        assert reply["content"] == "It is committed."
        (output,) = executed(reply)
        assert git(repository, "rev-parse", "HEAD") in output
        again = service.chat(*talk.messages[:3])
        assert again["content"] == "It is committed."
        assert executed(again) == [output]
    assert git(repository, "log", "--format=%s").splitlines() == [
        "The second commit",
        "The first commit",
    ]


def test_a_rejected_commit_is_not_made(repository: Path) -> None:
    call = Call("1", "git_commit", {"repo_path": str(repository), "message": "No"})
    agent = Agent(
        model=scripted([call], "I left it."),
        tools=[mcp_server(git_server(repository), env=ALONE)],
    )
    with served(agent, config=CONFIG) as service:
        talk = service.conversation()
        talk.say("commit what is staged")
        assert talk.reject("not yet")["content"] == "I left it."
    assert git(repository, "log", "--format=%s") == "The first commit"


def test_reading_tools_run_inside_the_turn_when_only_writing_is_gated(repository: Path) -> None:
    there = {"repo_path": str(repository)}
    outside = {"repo_path": str(repository.parent)}
    model = scripted(
        [
            Call("1", "git_status", there),
            Call("2", "git_log", {**there, "max_count": 1}),
            Call("3", "git_status", outside),
            Call("4", "git_log", {**there, "max_count": "many"}),
        ],
        "One file is staged.",
    )
    gated = sorted(WRITING)
    source = mcp_server(git_server(repository), env=ALONE, requires_approval=gated)
    with served(Agent(model=model, tools=[source]), config=CONFIG) as service:
        reply = service.chat("how does it stand?")
        assert reply["content"] == "One file is staged."
        assert not reply["data"]["tool_calls"]
    last = model.asks[-1].turns[-1]
    results = {block.call_id: block for block in last.blocks if isinstance(block, Result)}
    assert "On branch trunk" in results["1"].output
    assert "second.txt" in results["1"].output
    assert git(repository, "rev-parse", "HEAD") in results["2"].output
    assert "outside the allowed repository" in results["3"].output
    assert results["3"].is_error
    assert "max_count" in results["4"].output
