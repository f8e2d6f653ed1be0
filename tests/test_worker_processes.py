"""Several worker processes behind one port: who gets a connection, and who is there meanwhile."""

from __future__ import annotations

import http.client
import json
import os
import re
import signal
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing
from pathlib import Path
from typing import Any

import pytest

DEADLINE = 120.0
AGENT = """
import os
import time
from pathlib import Path


def until_there(name):
    while not Path(name).exists():
        time.sleep(0.02)


if Path("hold-starts").exists():
    until_there("start")


def agent(messages, context):
    if messages[-1].content == "wait":
        until_there("end")
    return str(os.getpid())
"""


def until(holds: Callable[[], Any]) -> Any:
    deadline = time.monotonic() + DEADLINE
    while not (value := holds()):
        assert time.monotonic() < deadline, "the condition did not come true in time"
        time.sleep(0.02)
    return value


class Service:
    """`assent serve` with two worker processes; a turn's reply is the process that took it."""

    def __init__(self, folder: Path, port: int = 0) -> None:
        self.folder = folder
        (folder / "agent.py").write_text(AGENT)
        command = [sys.executable, "-m", "assent", "serve", "agent.py", "--workers", "2"]
        self.process = subprocess.Popen(
            [*command, "--host", "127.0.0.1", "--port", str(port)],
            cwd=folder,
            env=os.environ | {"ASSENT_SERVER__STATE_DIR": str(folder / "state")},
            stderr=subprocess.PIPE,
            text=True,
        )
        self.said = ""
        self._reader = threading.Thread(target=self._read)
        self._reader.start()

    def _read(self) -> None:
        assert self.process.stderr is not None
        for line in self.process.stderr:
            self.said += line

    @property
    def port(self) -> int:
        found = until(lambda: re.search(r"listening on http://127.0.0.1:(\d+)", self.said))
        return int(found[1])

    def connect(self) -> http.client.HTTPConnection:
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=DEADLINE)
        connection.connect()
        return connection

    def turn(self, text: str = "who?") -> int:
        """The process that took a turn over a connection of its own."""
        with closing(self.connect()) as connection:
            return turn(connection, text)

    def both(self) -> set[int]:
        """The two processes, once both answer."""
        found: set[int] = set()
        until(lambda: found.add(self.turn()) or len(found) == 2)
        return found

    def allow(self, name: str) -> None:
        """Let those go on that wait for it."""
        (self.folder / name).touch()

    def close(self) -> None:
        self.allow("start")
        self.allow("end")
        self.process.terminate()
        self.process.wait(DEADLINE)
        self._reader.join()
        assert self.process.stderr is not None
        self.process.stderr.close()


def turn(connection: http.client.HTTPConnection, text: str = "who?") -> int:
    body = json.dumps({"messages": [{"role": "user", "content": text}]})
    connection.request("POST", "/api/chat", body, {"Content-Type": "application/json"})
    response = connection.getresponse()
    raw = response.read()
    assert response.status == 200, (response.status, raw)
    return int(json.loads(raw)["content"])


@pytest.fixture
def service(tmp_path: Path) -> Iterator[Service]:
    with closing(Service(tmp_path)) as running:
        yield running


@pytest.mark.skipif(sys.platform != "linux", reason="the kernel shares connections out on Linux")
def test_connections_opened_at_once_are_shared_out_among_the_workers(service: Service) -> None:
    workers = service.both()
    with ExitStack() as stack:
        connections = [stack.enter_context(closing(service.connect())) for _ in range(64)]
        taken = Counter(turn(connection) for connection in connections)
    assert set(taken) == workers
    assert min(taken.values()) >= 12, taken


def test_renewed_worker_with_a_turn_under_way_refuses_nobody(service: Service) -> None:
    before = service.both()
    kept = {}
    with ExitStack() as stack:
        while kept.keys() != before:
            connection = stack.enter_context(closing(service.connect()))
            kept[turn(connection)] = connection
        waiting: list[int] = []
        threads = [
            threading.Thread(target=lambda: waiting.append(service.turn("wait"))) for _ in range(16)
        ]
        for thread in threads:
            thread.start()
        service.process.send_signal(signal.SIGHUP)
        seen: list[int] = []

        def only_new() -> bool:
            seen.append(service.turn())
            return len(seen) > 20 and not before & set(seen[-20:])

        until(only_new)
        assert not waiting
        for connection in kept.values():
            assert connection.sock.recv(1) == b"", "a connection without a turn is closed at once"
    service.allow("end")
    for thread in threads:
        thread.join(DEADLINE)
    assert len(waiting) == 16


def test_connections_of_a_killed_workers_share_are_taken_by_the_other(service: Service) -> None:
    victim, survivor = service.both()
    service.allow("hold-starts")
    os.kill(victim, signal.SIGKILL)
    until(lambda: "was ended by SIGKILL" in service.said)
    assert {service.turn() for _ in range(30)} == {survivor}
    service.allow("start")
    assert victim not in service.both()


def test_second_service_on_the_port_of_several_workers_is_refused(
    service: Service, tmp_path: Path
) -> None:
    service.both()
    (tmp_path / "second").mkdir()
    with closing(Service(tmp_path / "second", service.port)) as second:
        assert second.process.wait(DEADLINE) == 1
    assert f"port {service.port} of 127.0.0.1 is in use" in second.said
