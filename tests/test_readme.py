"""The README's instructions for a newcomer work: its blocks run in order, in one folder."""

from __future__ import annotations

import json
import os
import re
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from sayso.config import load_config

sys.path.insert(0, str(Path(__file__).parent))

from newcomer import FENCE, Newcomer, blocks, following

ROOT = Path(__file__).resolve().parent.parent
README = ROOT / "README.md"


@pytest.fixture(scope="module")
def newcomer(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Newcomer]:
    with following(README, tmp_path_factory.mktemp("readme"), demo=True) as one:
        yield one


def said_after(newcomer: Newcomer, text: str) -> str:
    """The output of the block that contains `text`."""
    (block,) = [b for b in blocks(README) if text in b.text and b.line in newcomer.said]
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
    (shown,) = [json.loads(block.text) for block in blocks(README) if block.language == "json"]
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
    blocks = [found[4] for found in FENCE.finditer(page) if found[2] == "toml"]
    assert len(blocks) == 3
    # The first two need people, who need authentication; the test of the pages runs them.
    (tmp_path / "sayso.toml").write_text(blocks[2], "utf-8")
    approvals = load_config(tmp_path / "sayso.toml", environ={}).approvals
    assert (approvals.ttl, approvals.rules[0].action) == (8 * 3600, "require")
