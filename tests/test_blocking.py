"""User code that blocks delays neither `/health` nor other turns (design, section 9)."""

from __future__ import annotations

import asyncio
import json
import os
import re
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

TURNS = 64
DEADLINE = 120.0
KINDS = ["callable", "coroutine", "tool", "interceptor"]

SCRIPT = """
import os
import sys
import time
from pathlib import Path
from sayso import Agent, serve, tool

folder = Path(sys.argv[2])

def block():
    file = os.open(folder / "blocked", os.O_WRONLY | os.O_APPEND | os.O_CREAT)
    os.write(file, b".")
    os.close(file)
    while not (folder / "go").exists():
        time.sleep(0.1)

def plain(messages, context):
    block()
    return "done"

async def coroutine(messages, context):
    block()
    return "done"

@tool
async def wait_here() -> str:
    "Wait here for a while."
    block()
    return "done"

async def interceptor(request, context):
    block()

agents = {
    "callable": plain,
    "coroutine": coroutine,
    "tool": Agent(name="waiting", model="offline", tools=[wait_here]),
    "interceptor": Agent(name="waiting", model="offline", request_interceptors=[interceptor]),
}

if __name__ == "__main__":
    serve(agents[sys.argv[1]], host="127.0.0.1", port=0, state_dir=sys.argv[2])
"""


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder in which each service has a folder of its own, named like its kind of blocking
    code."""
    return tmp_path_factory.mktemp("blocking")


@pytest.fixture(scope="module")
def ports(folder: Path) -> Iterator[dict[str, int]]:
    """The port of a service for each kind of blocking code; they start side by side."""
    (folder / "service.py").write_text(SCRIPT)
    environ = {key: value for key, value in os.environ.items() if not key.startswith("SAYSO_")}
    services = {kind: start(folder, kind, environ) for kind in KINDS}
    try:
        yield {kind: port_in(folder / f"{kind}.log", services[kind]) for kind in services}
    finally:
        for service in services.values():
            service.terminate()
        assert [service.wait(DEADLINE) for service in services.values()] == [0] * len(services)


def start(folder: Path, kind: str, environ: dict[str, str]) -> subprocess.Popen[bytes]:
    with (folder / f"{kind}.log").open("w") as log:
        return subprocess.Popen(
            [sys.executable, "service.py", kind, str(folder / kind)],
            cwd=folder,
            env=environ,
            stderr=log,
        )


def port_in(log: Path, service: subprocess.Popen[bytes]) -> int:
    deadline = time.monotonic() + DEADLINE
    while not (found := re.search(r"listening on http://127.0.0.1:(\d+)", log.read_text())):
        assert service.poll() is None and time.monotonic() < deadline, log.read_text()
        time.sleep(0.05)
    return int(found[1])


async def ask(port: int, path: str, body: bytes = b"") -> bytes:
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    head = (
        f"{'POST' if body else 'GET'} {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n"
        f"Content-Type: application/json\r\nContent-Length: {len(body)}\r\n\r\n"
    )
    writer.write(head.encode() + body)
    answer = await reader.read()
    writer.close()
    await writer.wait_closed()
    return answer


async def until_blocked(folder: Path) -> None:
    """Return when all turns are in the blocking code."""
    blocked = folder / "blocked"
    while not (blocked.exists() and blocked.stat().st_size == TURNS):  # noqa: ASYNC110
        await asyncio.sleep(0.02)


async def block(port: int, folder: Path) -> None:
    body = json.dumps({"messages": [{"role": "user", "content": "wait here"}]}).encode()
    turns = asyncio.gather(*[ask(port, "/api/chat", body) for _ in range(TURNS)])
    try:
        await until_blocked(folder)
        for _ in range(20):
            assert b'"status":"ok"' in await ask(port, "/health")
        assert not turns.done()
    finally:
        (folder / "go").touch()
    answers = await turns
    assert all(answer.startswith(b"HTTP/1.1 200") for answer in answers), answers[0]


@pytest.mark.parametrize("kind", KINDS)
def test_64_turns_block_side_by_side_while_health_answers(
    ports: dict[str, int], folder: Path, kind: str
) -> None:
    async def bounded() -> None:
        async with asyncio.timeout(DEADLINE):
            await block(ports[kind], folder / kind)

    asyncio.run(bounded())
