"""Running services on loopback ports, for tests over real sockets."""

from __future__ import annotations

import asyncio
import itertools
import json
import threading
import time
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx
import uvicorn

from sayso import (
    Agent,
    Ask,
    Call,
    Config,
    LocalShell,
    Reply,
    Result,
    Text,
    TextDelta,
    Turn,
    create_app,
    tool,
)

AGENT = Path(__file__).resolve().parents[3] / "examples" / "a2a_fixture" / "agent.py"
Serve = Callable[..., "Service"]
PATIENCE = 120.0
"""Seconds that a test waits for what must come."""


class Scripted:
    """A model whose replies are made by a function of the conversation."""

    provider = "scripted"
    name = "scripted-1"

    def __init__(self, answer: Callable[[Ask], str | Call]) -> None:
        self.answer = answer
        self.asks: list[Ask] = []

    async def stream(self, ask: Ask) -> AsyncIterator[Any]:
        self.asks.append(ask)
        given = self.answer(ask)
        if isinstance(given, Call):
            yield Reply(Turn("assistant", [given]), "tool_use")
            return
        for word in given.split(" "):
            yield TextDelta(word if word == given.split(" ")[0] else f" {word}")
        yield Reply(Turn("assistant", [Text(given)]), "end_turn")

    async def aclose(self) -> None:
        pass


class Service:
    """A service on a loopback port, with an HTTP client."""

    def __init__(self, app: Any, port: int) -> None:
        self.app = app
        self.host = app.host
        self.url = f"http://127.0.0.1:{port}"
        self.http = httpx.Client(base_url=self.url, timeout=PATIENCE)

    def send(self, message: Any, **fields: Any) -> dict[str, Any]:
        """The task after `POST /a2a/tasks/send`."""
        answer = self.http.post("/a2a/tasks/send", json={"message": message, **fields})
        assert answer.status_code == 200, answer.text
        task: dict[str, Any] = answer.json()
        return task


@contextmanager
def running(agent: object, config: Config | None = None, **options: Any) -> Iterator[Service]:
    """`agent` served in a thread until the block ends."""
    app = create_app(agent, config=config or Config(plugins=["a2a"]), **options)
    settings = uvicorn.Config(
        app,
        host="127.0.0.1",
        port=0,
        log_level="warning",
        ws="none",
        lifespan="on",
        timeout_graceful_shutdown=2,
        # A client that pauses must find its connection open.
        timeout_keep_alive=600,
    )
    server = uvicorn.Server(settings)
    thread = threading.Thread(target=lambda: asyncio.run(server.serve()))
    thread.start()
    try:
        wait_for(lambda: server.started or not thread.is_alive())
        assert server.started, "the service did not start"
        service = Service(app, server.servers[0].sockets[0].getsockname()[1])
        with service.http:
            yield service
    finally:
        server.should_exit = True
        thread.join(PATIENCE)
        assert not thread.is_alive()


def wait_for(condition: Callable[[], Any], seconds: float = PATIENCE) -> Any:
    """The first true value of `condition`; fails after `seconds`."""
    deadline = time.monotonic() + seconds
    while not (found := condition()):
        assert time.monotonic() < deadline, "the condition did not come true in time"
        time.sleep(0.01)
    return found


TOKENS = {"ann": "token-of-ann", "bob": "token-of-bob"}
"""The callers of a service with authentication."""


def bearer(name: str) -> dict[str, str]:
    """The header by which a caller authenticates."""
    return {"authorization": f"Bearer {TOKENS[name]}"}


def configured(
    tmp_path: Path, ledger: str = "memory://", *, guarded: bool = False, **a2a: Any
) -> Config:
    """A configuration with agent-to-agent and V2, its state below `tmp_path`; `guarded` by bearer
    tokens."""
    return Config.model_validate(
        {
            "plugins": ["a2a", "v2"],
            "server": {
                "state_dir": tmp_path / "state",
                "host": "127.0.0.1",
                "start_timeout": PATIENCE,
            },
            "approvals": {"ledger": ledger},
            "auth": {"scheme": "bearer", "tokens": TOKENS} if guarded else {},
            "plugin": {"a2a": a2a},
        }
    )


class Cluster:
    """An agent with a gated tool, and a record of its tools' calls."""

    def __init__(self) -> None:
        self.deleted: list[str] = []
        self.holding = threading.Event()
        self.began = threading.Event()

        @tool
        def list_pods() -> str:
            """List the pods."""
            return "web, db"

        @tool(requires_approval=True)
        def delete_pod(name: str) -> str:
            """Delete a pod."""
            self.deleted.append(name)
            return f"deleted {name}"

        @tool(timeout=2 * PATIENCE)
        def hold() -> str:
            """Wait until the test lets it go on."""
            self.began.set()
            self.holding.wait(PATIENCE)
            return "held"

        self.model = Scripted(answer)
        self.agent = Agent(
            name="kube",
            description="Looks after a cluster",
            model=self.model,
            tools=[list_pods, delete_pod, hold],
            commands=LocalShell(),
        )


class Pause:
    """Replaces the agent's `asyncio`: a sleep ends when the test says so."""

    def __init__(self) -> None:
        self.asked: list[float] = []
        self.over = threading.Event()

    async def sleep(self, seconds: float) -> None:
        """Sleep until released, however long was asked for."""
        self.asked.append(seconds)
        assert await asyncio.to_thread(self.over.wait, PATIENCE)


def answer(ask: Ask) -> str | Call:
    """Call the tool whose name the newest text begins with, or else repeat the text."""
    newest = ask.turns[-1]
    results = [block.output for block in newest.blocks if isinstance(block, Result)]
    if results:
        return f"The tool says: {results[-1]}"
    said = " ".join(block.text for block in newest.blocks if isinstance(block, Text))
    match said.split():
        case ["delete", name, *_]:
            return Call("call-1", "delete_pod", {"name": name})
        case ["hold", *_]:
            return Call("call-1", "hold", {})
        case ["list", *_]:
            return Call("call-1", "list_pods", {})
        case ["run", *words]:
            return Call("call-1", "suggest_commands", {"commands": [{"command": " ".join(words)}]})
    return f"You said: {said}"


V1 = {"A2A-Version": "1.0"}


class Rpc:
    """JSON-RPC calls of A2A 1.0 against a service."""

    def __init__(self, service: Service, **headers: str) -> None:
        self.service = service
        self.headers = {**V1, **headers}

    def __call__(self, method: str, **params: Any) -> dict[str, Any]:
        """The whole answer to a call."""
        body = {"jsonrpc": "2.0", "id": 1, "method": method, "params": params}
        reply = self.service.http.post("/a2a/rpc", json=body, headers=self.headers)
        assert reply.status_code == 200, reply.text
        answered: dict[str, Any] = reply.json()
        return answered

    def send(self, *parts: Any, id: str = "", **fields: Any) -> dict[str, Any]:
        """The result of SendMessage; strings are text parts, objects data parts."""
        result: dict[str, Any] = self("SendMessage", message=message(*parts, id=id, **fields))
        assert "result" in result, result
        found: dict[str, Any] = result["result"]
        return found

    def task(self, *parts: Any, **fields: Any) -> dict[str, Any]:
        """The task that SendMessage answers with."""
        task: dict[str, Any] = self.send(*parts, **fields)["task"]
        return task


_numbers = itertools.count(1)


def message(*parts: Any, id: str = "", **fields: Any) -> dict[str, Any]:
    """An A2A 1.0 message; strings are text parts, objects data parts."""
    shown = [{"text": part} if isinstance(part, str) else {"data": part} for part in parts]
    message_id = id or f"message-{next(_numbers)}"
    return {"messageId": message_id, "role": "ROLE_USER", "parts": shown, **fields}


def proposals(task: dict[str, Any]) -> list[dict[str, Any]]:
    """The data parts of an official task's status message."""
    return [part["data"] for part in task["status"]["message"]["parts"] if "data" in part]


def reply_of(task: dict[str, Any]) -> str:
    """The text of a completed task's reply, which is an artifact; it has no status message."""
    assert "message" not in task["status"], task["status"]
    found = [each for each in task["artifacts"] if each["name"] == "reply"]
    return "".join(part["text"] for part in found[-1]["parts"])


def coming(service: Service, path: str, body: Any) -> Iterator[dict[str, Any]]:
    """The objects of a server-sent stream, as they arrive."""
    with service.http.stream("POST", path, json=body, headers=V1) as reply:
        assert reply.headers["content-type"].startswith("text/event-stream")
        for line in reply.iter_lines():
            if line.startswith("data:"):
                yield json.loads(line.removeprefix("data:"))


def events(service: Service, path: str, body: Any) -> list[dict[str, Any]]:
    """The objects of a server-sent stream, once it has ended."""
    return list(coming(service, path, body))
