"""Helpers of the tests of `sayso chat`."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from sayso import Agent, Call, Session, Text, cli, tool
from sayso.testing import Service, scripted, served
from terminal import Terminal, terminal

PLUGINS = 'plugins = ["v1", "v2"]\n'


QUESTION = "later? [a/r/d/l] "


DELETE = [Text("The disk is full."), Call("1", "delete", {"name": "a"})]


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    for name in [name for name in os.environ if name.startswith("SAYSO_")]:
        monkeypatch.delenv(name)
    return tmp_path


class Deletes:
    """An agent whose gated tool `delete` keeps the names that it was called with."""

    def __init__(self, *steps: Any, **fields: Any) -> None:
        self.names: list[str] = []
        self.model = scripted(*steps)

        @tool(requires_approval=True)
        def delete(name: str, session: Session) -> str:
            """Delete a thing for good."""
            self.names.append(name)
            session.set("deleted", name)
            return f"deleted {name}"

        @tool
        def last(session: Session) -> str:
            """The thing that was deleted last."""
            return f"last was {session.get('deleted')}"

        self.agent = Agent(model=self.model, tools=[delete, last], **fields)

    def received(self, call: int = -1) -> str:
        """All text that the model got in one of its calls."""
        return repr(self.model.asks[call].turns)


@contextlib.contextmanager
def at_terminal(
    agent: Any, folder: Path, *arguments: str, config: str = PLUGINS, **environ: str
) -> Iterator[Terminal]:
    """`sayso chat` at a terminal, talking to `agent`."""
    with served(agent, config=config) as service:
        command = ["-m", "sayso", "chat", service.url, *arguments]
        with terminal(command, folder, environ) as person:
            yield person


def chat(
    capsys: pytest.CaptureFixture[str], service: Service, *arguments: str
) -> tuple[int, str, str]:
    """The exit code and outputs of `sayso chat` without a person."""
    code = cli.run(["chat", service.url, *arguments])
    out, err = capsys.readouterr()
    return code, out, err


class Silences:
    """An agent whose gated tool lets its approver change the hours."""

    def __init__(self, *steps: Any, editable: Any = ("hours",)) -> None:
        self.ran: list[tuple[str, int]] = []
        self.model = scripted(*steps)

        @tool(requires_approval=True, editable=editable)
        def silence(host: str, hours: int = 2) -> str:
            """Silence the alarms of a host."""
            self.ran.append((host, hours))
            return f"silenced {host} for {hours} hours"

        self.agent = Agent(model=self.model, tools=[silence])


SILENCE = [Call("1", "silence", {"host": "web-1"})]


EDIT = "later? [a/r/e/d/l] "


BACK = "\x08" * 40
