"""Real service processes that die, are paused, and are started again."""

from __future__ import annotations

import http.client
import json
import os
import re
import secrets
import select
import signal
import sqlite3
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from serving import Answer, Json, Service, until

HERE = Path(__file__).parent
ROOT = HERE.parent.parent
SOURCES = [ROOT / "core", *sorted((ROOT / "plugins").glob("*")), HERE, HERE.parent / "contract"]
CONFIG = """
plugins = ["v1", "v2"]
[server]
state_dir = "state"
port = 0
drain_timeout = 1
[approvals]
ledger = "sqlite:///approvals.db"
"""


def environment(**more: str) -> dict[str, str]:
    """The environment of a process that imports from this checkout."""
    path = os.pathsep.join(str(source) for source in SOURCES)
    return {**os.environ, "PYTHONPATH": path, "PYTHONDONTWRITEBYTECODE": "1", **more}


class Process:
    """A service process in `folder`; `client` speaks to it."""

    def __init__(self, pid: int, said: Path) -> None:
        self.pid = pid
        self._said = said
        self._descriptor = os.pidfd_open(pid)

    @property
    def said(self) -> str:
        """The output of this process."""
        with suppress(FileNotFoundError):
            return self._said.read_text(errors="replace")
        return ""

    @property
    def ended(self) -> bool:
        return bool(select.select([self._descriptor], [], [], 0)[0])

    @property
    def client(self) -> Service:
        pattern = re.compile(r"listening on http://127.0.0.1:(\d+)")
        found = until(lambda: pattern.search(self.said) or self.ended, "the start")
        assert found is not True, self.said
        return Service(None, int(found[1]))

    def signal(self, number: int) -> None:
        signal.pidfd_send_signal(self._descriptor, number)

    def wait(self) -> None:
        until(lambda: self.ended, "the end of the process")

    def kill(self) -> None:
        with suppress(ProcessLookupError):
            self.signal(signal.SIGKILL)
        self.wait()

    def close(self) -> None:
        if self._descriptor >= 0:
            self.kill()
            os.close(self._descriptor)
            self._descriptor = -1


class Nursery:
    """Forks service processes from one that has imported everything."""

    def __init__(self) -> None:
        self._parent = subprocess.Popen(
            [sys.executable, "-W", "error", str(HERE / "nursery.py")],
            env=environment(),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        self._children: list[Process] = []

    def start(self, folder: Path, config: str = CONFIG, **environ: str) -> Process:
        """A new process in `folder`, with its own settings the first time."""
        file = folder / "sayso.toml"
        if not file.exists():
            folder.mkdir(parents=True, exist_ok=True)
            file.write_text(config)
        assert self._parent.stdin is not None and self._parent.stdout is not None
        said = _said(folder)
        order = {"folder": str(folder), "said": str(said), "environ": environ}
        self._parent.stdin.write(json.dumps(order) + "\n")
        self._parent.stdin.flush()
        child = Process(int(self._parent.stdout.readline()), said)
        # The child waits for this: a process that ends at once would be gone before it can be
        # observed.
        self._parent.stdin.write("go\n")
        self._parent.stdin.flush()
        self._children.append(child)
        return child

    def clear(self) -> None:
        """End the processes that were started."""
        for child in self._children:
            child.close()
        self._children.clear()

    def close(self) -> None:
        self.clear()
        assert self._parent.stdin is not None and self._parent.stdout is not None
        self._parent.stdin.close()
        self._parent.wait(60)
        self._parent.stdout.close()


def _said(folder: Path) -> Path:
    return folder / f"said-{secrets.token_hex(4)}"


@contextmanager
def commanded(
    folder: Path, config: str = CONFIG, before: Sequence[str] = (), **environ: str
) -> Iterator[Process]:
    """The same service from its own command line, which workers need."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "sayso.toml").write_text(config)
    with _said(folder).open("a") as said:
        child = subprocess.Popen(
            [*before, sys.executable, str(HERE / "acting.py")],
            cwd=folder,
            env=environment(**environ),
            stderr=said,
            stdin=subprocess.DEVNULL,
        )
    process = Process(child.pid, Path(said.name))
    try:
        yield process
    finally:
        child.terminate()
        try:
            child.wait(60)
        except subprocess.TimeoutExpired:
            child.kill()
            child.wait()
        process.close()


def lines(folder: Path, name: str) -> list[str]:
    """The notes in a file, line by line."""
    try:
        return (folder / name).read_text().splitlines()
    except FileNotFoundError:
        return []


def lost(client: Service, *messages: Json, **rest: Any) -> Answer | None:
    """The answer, or None if the process died before it arrived."""
    try:
        return client.ask(*messages, **rest)
    except (ConnectionError, http.client.HTTPException):
        return None


@contextmanager
def database(folder: Path, name: str = "approvals.db") -> Iterator[sqlite3.Connection]:
    """The store's file, for reading it while no service runs."""
    connection = sqlite3.connect(folder / name)
    try:
        yield connection
        connection.commit()
    finally:
        connection.close()


def states(folder: Path) -> dict[str, str]:
    """The recorded state of each proposal by its id."""
    with database(folder) as db:
        return dict(db.execute("SELECT id, state FROM sayso_proposals"))


def events_logged(folder: Path) -> list[Mapping[str, Any]]:
    """The entries of the log, in their order."""
    with database(folder) as db:
        return [json.loads(e) for (e,) in db.execute("SELECT entry FROM sayso_log ORDER BY seq")]
