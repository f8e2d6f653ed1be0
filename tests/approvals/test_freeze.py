"""All starts are stopped at once, in every process, and continue after the thaw."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from databases import empty_schema
from sayso import Agent, Call, Caller, tool
from sayso.cli import run
from sayso.testing import Served, Service, scripted, user

DEADLINE = 60.0


def until(holds: Callable[[], Any]) -> Any:
    """The result of `holds` as soon as it is true."""
    deadline = time.monotonic() + DEADLINE
    while not (value := holds()):
        assert time.monotonic() < deadline, "it did not come true in time"
        time.sleep(0.02)
    return value


@pytest.fixture(params=["sqlite", "postgresql"])
def file(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Path]:
    """A configuration with a store that several processes share."""
    made = tmp_path / "sayso.toml"
    if request.param == "sqlite":
        made.write_text(f'[approvals]\nledger = "sqlite:///{tmp_path}/calls.db"\n', "utf-8")
        yield made
        return
    with empty_schema() as url:
        made.write_text(f'[approvals]\nledger = "{url}"\n', "utf-8")
        yield made


def agent(ran: list[str]) -> Agent:
    @tool(requires_approval=True)
    def wipe(what: str) -> str:
        """Wipe."""
        ran.append(what)
        return f"wiped {what}"

    @tool
    def look() -> str:
        """Look."""
        return "fine"

    proposals = [Call("1", "wipe", {"what": "disk"})]
    return Agent(model=scripted(proposals, *["done"] * 9), tools=[wipe, look])


def _looks(service: Service, call: Any) -> None:
    """Let the service look at a call, as each request with a decision does."""
    asyncio.run(service.host.calls.look(call["id"], Caller("test")))


def test_command_line_stops_every_start_and_lets_it_go_on(
    sayso_served: Served, file: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    ran: list[str] = []
    service = sayso_served(agent(ran), config=file)
    conversation = service.conversation()
    conversation.say("wipe it")
    (call,) = conversation.pending
    assert run(["approvals", "freeze", "--reason", "an attack", "--config", str(file)]) == 0
    assert "no approved call starts" in capsys.readouterr().out
    # The stop is found, whatever this process has read before.
    until(lambda: service.host.ledger.freezing.now or _looks(service, call))
    reply = conversation.approve()
    assert reply["data"]["tool_calls"][0]["execute"] is False
    assert reply["content"].startswith("wipe was approved and has not run: all starts were stopped")
    assert "an attack" in reply["content"]
    assert ran == []
    # The decisions are kept, and their calls start after the thaw.
    assert run(["approvals", "thaw", "--config", str(file)]) == 0
    assert "approved calls start again" in capsys.readouterr().out
    until(lambda: ran == ["disk"])
    again = {"messages": [user(data={"tool_calls": [{**call, "execute": True}]})]}
    answer = service.post("/api/chat", again).json()
    assert answer["data"]["executed_tool_calls"][0]["output"] == "wiped disk"
    assert ran == ["disk"]


def test_inbox_stops_all_starts(sayso_served: Served) -> None:
    ran: list[str] = []
    config = (
        'plugins = ["v2", "approvals"]\n[auth]\nscheme = "bearer"\n[auth.tokens]\n'
        'ann = "token-of-ann"\nbot = "token-of-bot"\n[auth.principals.ann]\nkind = "person"\n'
    )
    service = sayso_served(agent(ran), config=config)
    ann, bot = ({"Authorization": f"Bearer token-of-{name}"} for name in ("ann", "bot"))
    refused = service.post("/approvals/freeze", {"frozen": True}, bot)
    assert (refused.status, refused.json()["code"]) == (403, "NOT_A_PERSON")
    body = {"frozen": True, "reason": "an attack"}
    assert service.post("/approvals/freeze", body, ann).json() == {"frozen": True}
    frozen = service.get("/approvals/summary", bot).json()["frozen"]
    assert (frozen["who"], frozen["reason"]) == ("ann", "an attack")
    conversation = service.conversation(headers=ann)
    conversation.say("wipe it")
    assert "stopped by ann: an attack" in conversation.approve()["content"]
    assert service.post("/approvals/freeze", {"frozen": False}, ann).json() == {"frozen": False}
    assert service.get("/approvals/summary", ann).json()["frozen"] is None
    assert "wiped disk" in str(conversation.approve())
    assert ran == ["disk"]
