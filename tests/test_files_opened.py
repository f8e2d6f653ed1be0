"""The number of files that one has to open to follow a turn: a ratchet, which only ever goes
down."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path
from types import FrameType
from typing import Any

import pytest

from sayso import Agent, Ask, Call, Reply, Text, TextDelta, Turn, tool
from sayso.models import ModelEvent
from sayso.testing import Service, served, user

ROOT = Path(__file__).resolve().parent.parent
OURS = (str(ROOT / "core"), str(ROOT / "plugins"))
DEADLINE = 60.0

# Raise a bound only in a commit whose body says why. The goals are 20 and 45.
TEXT_TURN = 23
APPROVAL = 57


class Trace:
    """Records our files whose functions run in threads started since, while it is `on`."""

    def __init__(self) -> None:
        self.on = False
        self.files: set[str] = set()

    def __call__(self, frame: FrameType, event: str, argument: object) -> None:
        if self.on and event == "call" and frame.f_code.co_filename.startswith(OURS):
            self.files.add(frame.f_code.co_filename)

    def of(self, act: Callable[[], object], service: Service) -> set[str]:
        """The files that run from the request that `act` sends to the end of its turn."""
        settle(service)
        self.files = set()
        self.on = True
        try:
            act()
            settle(service)
        finally:
            self.on = False
        return self.files


def settle(service: Service) -> None:
    """Wait until no turn runs, and no result of one has still to be recorded."""
    deadline = time.monotonic() + DEADLINE
    while service.host.turns_running or service.host.engine.background:
        assert time.monotonic() < deadline, "a turn did not end in time"
        time.sleep(0.01)


@pytest.fixture
def trace() -> Iterator[Trace]:
    """A trace of all threads started within the test, including those of a service."""
    made = Trace()
    threading.setprofile(made)
    try:
        yield made
    finally:
        threading.setprofile(None)


class Deletes:
    """A model that calls its tool if it is asked to delete, and otherwise answers."""

    provider = "stand-in"
    name = "deletes"

    async def stream(self, ask: Ask) -> AsyncIterator[ModelEvent]:
        last = ask.turns[-1].blocks[-1]
        if isinstance(last, Text) and "delete" in last.text:
            yield Reply(Turn("assistant", [Call("call-1", "delete", {"name": "web"})]), "tool_use")
            return
        yield TextDelta("done")
        yield Reply(Turn("assistant", [Text("done")]), "end_turn")


@tool(requires_approval=True)
async def delete(name: str) -> str:
    """Delete something."""
    return f"{name} is gone"


def smallest(act: Callable[[], set[str]], bound: int) -> set[str]:
    """The smallest of some sets, or the first one within `bound`: on a busy machine a timer of the
    service may run beside a turn, and open files as well."""
    files = act()
    for _ in range(19):
        if len(files) <= bound:
            break
        files = min(files, act(), key=len)
    return files


def listed(files: set[str]) -> str:
    """The list of files, for somebody who has to find the additional one."""
    return "\n".join(sorted(str(Path(name).relative_to(ROOT)) for name in files))


@pytest.fixture
def service(trace: Trace, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> Iterator[Service]:
    """A service on SQLite, which was started under the trace and writes no line for a turn."""
    caplog.set_level(logging.WARNING, "sayso")
    agent: Any = Agent(model=Deletes(), tools=[delete])
    config = f'[approvals]\nledger = "sqlite:///{tmp_path / "approvals.db"}"\n'
    with served(agent, config=config) as running:
        yield running


def test_a_text_turn_opens_no_more_files_than_before(trace: Trace, service: Service) -> None:
    service.chat("hello")
    files = smallest(lambda: trace.of(lambda: service.chat("hello"), service), TEXT_TURN)
    assert len(files) <= TEXT_TURN, listed(files)


def test_an_approval_opens_no_more_files_than_before(trace: Trace, service: Service) -> None:
    def approved() -> set[str]:
        talk = service.conversation()
        talk.say("please delete web")
        assert [call["name"] for call in talk.pending] == ["delete"]
        files = trace.of(talk.approve, service)
        assert talk.messages[-1]["content"] == "done"
        return files

    approved()
    files = smallest(approved, APPROVAL)
    assert len(files) <= APPROVAL, listed(files)


def test_the_trace_sees_the_files_of_a_turn(trace: Trace, service: Service) -> None:
    files = trace.of(lambda: service.post("/api/chat", {"messages": [user("hello")]}), service)
    assert str(ROOT / "core" / "sayso" / "turns" / "turn.py") in files
