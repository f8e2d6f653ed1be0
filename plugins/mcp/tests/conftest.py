"""Agents with counted tools, MCP servers over real sockets, and clients of both eras."""

from __future__ import annotations

import asyncio
import itertools
import sys
import threading
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx2
import mcp_types as types
import pytest
from mcp import Client
from mcp.client.sse import sse_client

from sayso import Agent, Config, RequestContext, ServiceHost, Session, tool
from sayso_mcp.running import beside

sys.path.insert(0, str(Path(__file__).parent))
sys.path.insert(0, str(Path(__file__).parents[3] / "tests"))

MODERN = "2026-07-28"
PATIENCE = 60.0
"""Seconds that a test waits for what must come."""
HEADERS = {"accept": "application/json, text/event-stream", "content-type": "application/json"}


@dataclass
class Ran:
    """Records of the gated tool's arguments; the events that say that the slow tool has begun, and
    let it end."""

    calls: list[dict[str, Any]] = field(default_factory=list)
    started: threading.Event = field(default_factory=threading.Event)
    go: threading.Event = field(default_factory=threading.Event)


@dataclass
class Served:
    """A running MCP server."""

    url: str
    host: ServiceHost
    ran: Ran

    def client(self, mode: str = MODERN, **options: Any) -> Client:
        """A client of the official SDK; `legacy` or the modern version."""
        sse = self.url.endswith("/sse")
        server: Any = sse_client(self.url, timeout=PATIENCE) if sse else self.url
        return Client(server, mode=mode, **options)

    async def proposals(self) -> list[Any]:
        """The ledger's rows."""
        return await self.host.ledger.store.run(lambda tx: tx.find())


def counted(ran: Ran) -> Agent:
    """An agent with a gated tool that counts its runs, and some that run at once."""

    @tool(requires_approval=True, destructive=True)
    def delete_pod(name: str, namespace: str = "default") -> str:
        """Delete a pod."""
        ran.calls.append({"name": name, "namespace": namespace})
        return f"deleted {namespace}/{name}"

    @tool(read_only=True, idempotent=True, title="Add two numbers")
    def add(a: int, b: int) -> int:
        """Remember a word, and return the previous one."""
        return a + b

    @tool
    def remember(session: Session, word: str = "") -> str:
        """Remember a word, and say the one before."""
        before = session.get("word", "nothing")
        session.set("word", word)
        return str(before)

    @tool
    def slow(context: RequestContext) -> str:
        """Run until the test lets it end."""
        context.update("begun")
        ran.started.set()
        assert ran.go.wait(2 * PATIENCE)
        context.update("ended")
        return "slept"

    @tool
    async def forever() -> str:
        """Never end."""
        await asyncio.Event().wait()
        return ""

    return Agent(name="counted", model="offline", tools=[delete_pod, add, remember, slow, forever])


@asynccontextmanager
async def serving(
    folder: Path, agent: Agent | None = None, ran: Ran | None = None, **settings: Any
) -> AsyncIterator[Served]:
    """An MCP server on a free port; settings are those of `[plugin.mcp]` and whole sections."""
    ran = Ran() if ran is None else ran
    sections = {k: settings.pop(k) for k in ("auth", "limits", "approvals_") if k in settings}
    drain = settings.pop("drain_timeout", 2.0)
    plugins = settings.pop("plugins", ["mcp"])
    given = {"port": 0, "transport": "streamable-http", **settings}
    server = {
        "host": "127.0.0.1",
        "state_dir": folder,
        "drain_timeout": drain,
        "start_timeout": 3 * PATIENCE,
        # A client's pooled connection must not expire just as a slow test uses it again.
        "timeout_keep_alive": 600,
    }
    config = Config.model_validate(
        {
            "plugins": plugins,
            "plugin": {"mcp": given},
            "server": server,
            "approvals": sections.pop("approvals_", {}),
            **sections,
        }
    )
    host = ServiceHost.create(agent or counted(ran), config)
    plugin: Any = host.plugins.get("mcp")
    async with host.life(only=()), beside(host, plugin.settings) as url:
        yield Served(url, host, ran)


@pytest.fixture
def serve(tmp_path: Path) -> Callable[..., AbstractAsyncContextManager[Served]]:
    """`async with serve(approvals="deny") as served`."""

    def make(**settings: Any) -> AbstractAsyncContextManager[Served]:
        return serving(tmp_path, **settings)

    return make


class Started:
    """A server in a task of its own, to be stopped while a client is connected."""

    def __init__(self, serving: Any) -> None:
        self._serving = serving
        self._stop = asyncio.Event()
        self._ready: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        self._task = asyncio.create_task(self._run())

    async def _run(self) -> None:
        async with self._serving as served:
            self._ready.set_result(served)
            await self._stop.wait()

    async def served(self) -> Any:
        return await self._ready

    async def stop(self) -> None:
        """Stop it, which must not take long."""
        self._stop.set()
        async with asyncio.timeout(PATIENCE):
            await self._task


@pytest.fixture
def in_task() -> type[Started]:
    """`started = in_task(serve())`; then `await started.served()` and `await started.stop()`."""
    return Started


@dataclass
class Human:
    """Answers questions as configured, and records them."""

    answer: types.ElicitResult
    asked: list[Any] = field(default_factory=list)

    async def __call__(self, context: Any, params: Any) -> types.ElicitResult:
        self.asked.append(params)
        return self.answer


@pytest.fixture
def human() -> Callable[..., Human]:
    """`human("accept", approve=True)`: an elicitation callback."""

    def make(action: Any, **content: Any) -> Human:
        return Human(types.ElicitResult(action=action, content=content or None))

    return make


class Raw:
    """A modern client that can send anything, one request at a time."""

    def __init__(self, url: str, **headers: str) -> None:
        self._url = url
        self._headers = headers
        self._ids: Iterator[int] = itertools.count(1)

    async def call(
        self, name: str, arguments: dict[str, Any], *, elicits: bool = True, **params: Any
    ) -> dict[str, Any]:
        """The whole JSON-RPC answer to a `tools/call`."""
        capabilities = {"elicitation": {"form": {}, "url": {}}} if elicits else {}
        meta = {
            "io.modelcontextprotocol/protocolVersion": MODERN,
            "io.modelcontextprotocol/clientCapabilities": capabilities,
            "io.modelcontextprotocol/clientInfo": {"name": "raw", "version": "7"},
        }
        body = {
            "jsonrpc": "2.0",
            "id": next(self._ids),
            "method": "tools/call",
            "params": {"name": name, "arguments": arguments, "_meta": meta, **params},
        }
        headers = {
            **HEADERS,
            "mcp-protocol-version": MODERN,
            "mcp-method": "tools/call",
            "mcp-name": name,
            **self._headers,
        }
        async with httpx2.AsyncClient(timeout=PATIENCE) as http:
            answer = await http.post(self._url, json=body, headers=headers)
        result: dict[str, Any] = answer.json()
        return result


@pytest.fixture
def raw() -> Callable[..., Raw]:
    """`raw(url, authorization="Bearer ...")`."""
    return Raw


@pytest.fixture
def eventually() -> Callable[..., Awaitable[None]]:
    """`await eventually(lambda: condition)`: wait for it, at most a minute."""

    async def wait(condition: Callable[[], Any]) -> None:
        deadline = time.monotonic() + PATIENCE
        while True:
            result = condition()
            if asyncio.iscoroutine(result):
                result = await result
            if result:
                return
            assert time.monotonic() < deadline, "the condition did not come true"
            await asyncio.sleep(0.02)

    return wait
