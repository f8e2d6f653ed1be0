"""`sayso approvals watch`, as a process beside a service."""

from __future__ import annotations

import asyncio
import json
import queue
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from sayso import Agent, Caller, Principal, tool
from sayso.testing import scripted, served, user

DEADLINE = 30.0


def agent() -> Agent:
    @tool(requires_approval=True)
    def delete(path: str) -> str:
        """Delete a file."""
        return f"deleted {path}"

    return Agent(name="files", id="files", model=scripted(), tools=[delete])


class Lines:
    """The lines that a process writes, as they come."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self.process = process
        self._came: queue.Queue[str] = queue.Queue()
        threading.Thread(target=self._read, daemon=True).start()

    def _read(self) -> None:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            self._came.put(line)

    def until(self, *words: str) -> str:
        """The next line that has all these words."""
        end = time.monotonic() + DEADLINE
        while True:
            line = self._came.get(timeout=max(0.1, end - time.monotonic()))
            if all(word in line for word in words):
                return line


@contextmanager
def watching(config: Path, *options: str) -> Iterator[Lines]:
    command = [sys.executable, "-m", "sayso", "approvals", "watch", "--config", str(config)]
    with subprocess.Popen([*command, *options], stdout=subprocess.PIPE, text=True) as process:
        try:
            yield Lines(process)
        finally:
            process.send_signal(signal.SIGINT)
            assert process.wait(DEADLINE) == 130


def test_the_terminal_shows_what_waits_and_each_change_and_expiry(tmp_path: Path) -> None:
    config = tmp_path / "sayso.toml"
    ledger = f'ledger = "sqlite:///{tmp_path}/approvals.db"\nttl = "12s"\n'
    config.write_text(f'[approvals]\ndeciders = "any"\n{ledger}')
    with served(agent(), config=config) as service:
        calls = service.host.calls

        def propose(path: str) -> str:
            work = calls.propose("delete", {"path": path}, Caller("mcp", Principal("ann")))
            return asyncio.run(work).id

        early = propose("early")
        with watching(config) as plain, watching(config, "--json") as machine:
            shown = plain.until("pending", early)
            assert 'delete {"path": "early"}' in shown and "asked by ann" in shown
            assert json.loads(machine.until(early))["event"] == "pending"
            id_ = propose("a\x1b[31m\nb")
            shown = plain.until("proposed", id_)
            assert "\x1b" not in shown
            bob = Caller("mcp", Principal("bob"))
            asyncio.run(calls.decide(id_, bob, approved=True))
            plain.until("approved", id_, "by bob")
            plain.until("done", id_)
            event = json.loads(machine.until(id_, '"approved"'))
            assert event["who"] == "bob" and event["name"] == "delete"
            id_ = propose("c")
            said = {"id": id_, "name": "delete", "input": {"path": "c"}, "rejection_reason": "no"}
            boss = {"user": {"name": "boss", "id": "boss"}}
            service.post("/api/chat", {"messages": [user("", data={"tool_calls": [said]}, **boss)]})
            plain.until("rejected", id_, "by boss (claimed)")
            plain.until("expired", early)
