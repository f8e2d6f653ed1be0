"""A rolling restart of two services behind the nginx of deploy/nginx.conf: nobody is refused."""

from __future__ import annotations

import http.client
import json
import os
import sys
import threading
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack, closing, contextmanager
from pathlib import Path

import pytest

from nginx import CONFIGURATION, fronted, needs_nginx
from ports import quiet_port
from programs import DEADLINE, Program, until

AGENT = """
import asyncio


async def agent(messages, context):
    await asyncio.sleep(0.3)
    return "answered"
"""
pytestmark = needs_nginx


class Service(Program):
    """One of the services; restarted on its port, it is another process."""

    def __init__(self, folder: Path, port: int, *, workers: int) -> None:
        (folder / "agent.py").write_text(AGENT)
        command = [sys.executable, "-m", "sayso", "serve", "agent.py", "--host", "127.0.0.1"]
        command += ["--port", str(port), "--workers", str(workers)]
        environ = {
            "SAYSO_SERVER__STATE_DIR": str(folder / "state"),
            "SAYSO_SERVER__LAME_DUCK": "0.5s",
            "SAYSO_SERVER__READY": "true",
        }
        super().__init__(command, folder, os.environ | environ)


@contextmanager
def proxy(folder: Path, ports: list[int]) -> Iterator[int]:
    """nginx before these ports; gives its own."""
    own = quiet_port()
    text = CONFIGURATION.read_text().replace("listen 80;", f"listen 127.0.0.1:{own};")
    for address, port in zip(("10.0.0.11:8000", "10.0.0.12:8000"), ports, strict=True):
        assert address in text
        text = text.replace(address, f"127.0.0.1:{port}")
    with fronted(folder, text, lambda: status(own, "GET", "/health") == 200):
        yield own


def status(port: int, method: str = "POST", path: str = "/api/chat") -> int | str:
    """The status of a request over a connection of its own, or what happened instead."""
    body = json.dumps({"messages": [{"role": "user", "content": "hello"}]})
    with closing(http.client.HTTPConnection("127.0.0.1", port, timeout=DEADLINE)) as connection:
        try:
            given = body if method == "POST" else None
            connection.request(method, path, given, {"Content-Type": "application/json"})
            response = connection.getresponse()
            response.read()
        except OSError as error:
            return type(error).__name__
    return response.status


def restarted(running: Service, folder: Path, port: int, workers: int) -> Service:
    running.process.terminate()
    until(lambda: status(port, "GET", "/ready") in (503, "ConnectionRefusedError"))
    assert running.end() == 0, running.said
    return Service(folder, port, workers=workers)


@pytest.mark.parametrize("workers", [1, 2])
def test_rolling_restart_behind_nginx_refuses_nobody(tmp_path: Path, workers: int) -> None:
    folders = [tmp_path / name for name in ("one", "other", "nginx")]
    for folder in folders:
        folder.mkdir()
    ports = [quiet_port(), quiet_port()]
    answers: Counter[int | str] = Counter()
    done = threading.Event()

    def ask(port: int) -> None:
        while not done.is_set():
            answers[status(port)] += 1

    with ExitStack() as stack:
        services = [
            Service(folder, port, workers=workers)
            for folder, port in zip(folders[:2], ports, strict=True)
        ]
        stack.callback(lambda: [service.close() for service in services])
        assert [service.port for service in services] == ports
        front = stack.enter_context(proxy(folders[2], ports))
        callers = [threading.Thread(target=ask, args=(front,)) for _ in range(6)]
        stack.callback(done.set)
        for caller in callers:
            caller.start()
        for number, port in enumerate(ports):
            services[number] = restarted(services[number], folders[number], port, workers)
            assert services[number].port == port
        seen = answers.total()
        until(lambda: answers.total() > seen + 12)
        done.set()
        for caller in callers:
            caller.join()
    assert set(answers) == {200}, answers


def test_a_service_that_will_end_says_so_first_and_takes_turns_meanwhile(tmp_path: Path) -> None:
    with closing(Service(tmp_path, port := quiet_port(), workers=1)) as service:
        assert service.port == port
        assert status(port, "GET", "/ready") == 200
        service.process.terminate()
        until(lambda: status(port, "GET", "/ready") == 503)
        assert status(port) == 200
        assert service.end() == 0
    assert "new turns are taken for 0.5 s more (lame_duck)" in service.said
