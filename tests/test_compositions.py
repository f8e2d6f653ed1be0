"""Compositions by configuration alone: each starts, serves its whole route table and no more."""

from __future__ import annotations

import http.client
import json
import socket
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from websockets.sync.client import connect

from assent.testing import Service, served, user

FOLDER = Path(__file__).resolve().parent.parent / "examples" / "deployments"
V1 = {"POST /api/sendMessage", "POST /api/sendMessageStream"}
V2 = {"POST /api/chat", "POST /api/chat-stream", "WEBSOCKET /api/chat-ws"}
HEALTH = {"GET /health"}
A2A = {"GET /.well-known/agent.json", "POST /a2a/tasks/send", "GET /a2a/tasks/{id}"}
OFFICIAL_A2A = {
    "GET /.well-known/agent-card.json",
    "POST /a2a/rpc",
    "POST /a2a/rpc/",
    "POST /a2a/tasks/{id}/cancel",
}
STATIC = FOLDER.parent.parent / "plugins" / "console" / "assent_console" / "static"
CONSOLE = {
    "GET /console",
    "GET /console/approvals",
    "POST /console/approvals/{id}",
    *(f"GET /console/{file.name}" for file in STATIC.iterdir() if file.suffix in (".css", ".js")),
}
DOCS = {"GET /docs", "GET /docs/oauth2-redirect", "GET /openapi.json"}
HELLO = {"messages": [user("list the pods of staging")]}


@pytest.fixture
def service(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[Service]:
    """The deployment that the test's parameter names, its MCP server on a free port."""
    monkeypatch.setenv("ASSENT_TOKEN_DESK", "token-of-the-desk")
    options: dict[str, Any] = {}
    if "mcp" in (FOLDER / request.param).read_text():
        with socket.create_server(("127.0.0.1", 0)) as free:
            options = {"mcp_port": free.getsockname()[1]}
    with served(config=FOLDER / request.param, **options) as made:
        yield made


def table(service: Service) -> set[str]:
    """All routes; HEAD comes with each GET."""
    return {route for route in service.routes if not route.startswith("HEAD ")}


def test_each_deployment_is_tested() -> None:
    names = {path.name for path in FOLDER.glob("*.toml")}
    assert names == {"v1_only.toml", "v2_only.toml", "everything.toml", "router_in_front.toml"}


@pytest.mark.parametrize("service", ["v1_only.toml"], indirect=True)
def test_v1_only(service: Service) -> None:
    assert table(service) == HEALTH | V1
    assert service.get("/health").json() == {"status": "ok"}
    assert "web-0" in service.post("/api/sendMessage", HELLO).json()["content"]
    assert service.post("/api/sendMessageStream", HELLO).events[-1]["type"] == "done"
    for path in ("/api/chat", "/api/chat-stream", "/a2a/tasks/send"):
        assert service.post(path, HELLO).status == 404
    for path in ("/docs", "/openapi.json", "/ready", "/.well-known/agent.json", "/api/chat-ws"):
        assert service.get(path).status == 404


@pytest.mark.parametrize("service", ["v2_only.toml"], indirect=True)
def test_v2_only(service: Service) -> None:
    assert table(service) == HEALTH | V2 | {"GET /ready"}
    token = {"Authorization": "Bearer token-of-the-desk"}
    assert service.get("/health").status == 200
    assert service.get("/ready").json() == {"status": "ready"}
    assert service.post("/api/chat", HELLO).status == 401
    assert service.post("/api/sendMessage", HELLO, token).status == 404
    assert "web-0" in service.post("/api/chat", HELLO, token).json()["content"]
    assert service.post("/api/chat-stream", HELLO, token).events[-1]["type"] == "done"
    assert talked(service, token)[-1]["type"] == "done"


def talked(service: Service, headers: dict[str, str]) -> list[dict[str, Any]]:
    """The events of one turn over WebSocket."""
    events: list[dict[str, Any]] = []
    url = f"ws://127.0.0.1:{service.port}/api/chat-ws"
    with connect(url, additional_headers=headers) as connection:
        connection.send(json.dumps(HELLO))
        while not events or events[-1]["type"] not in ("done", "error"):
            events.append(json.loads(connection.recv(timeout=10)))
    return events


@pytest.mark.parametrize("service", ["everything.toml"], indirect=True)
def test_everything(service: Service) -> None:
    protocols = V1 | V2 | A2A | OFFICIAL_A2A | CONSOLE
    assert table(service) == HEALTH | protocols | DOCS | {"GET /ready"}
    for path in (
        "/health",
        "/ready",
        "/docs",
        "/openapi.json",
        "/.well-known/agent.json",
        "/console",
    ):
        assert service.get(path).status == 200, path
    for path in ("/api/sendMessage", "/api/chat"):
        assert "web-0" in service.post(path, HELLO).json()["content"]
    for path in ("/api/sendMessageStream", "/api/chat-stream"):
        assert service.post(path, HELLO).events[-1]["type"] == "done"
    assert talked(service, {})[-1]["type"] == "done"
    task = service.post("/a2a/tasks/send", {"message": "list the pods of staging"}).json()
    assert (task["status"], "web-0" in task["text"]) == ("completed", True)
    assert service.get(f"/a2a/tasks/{task['task_id']}").status == 200
    card = service.get("/.well-known/agent.json").json()
    assert set(card["skills"]) == {"list_pods", "delete_pod"}
    assert mcp_tools(service) >= {"list_pods", "delete_pod"}


def mcp_tools(service: Service) -> set[str]:
    """The tools that the MCP server on the second port lists."""
    port = service.host.config.plugin["mcp"]["port"]
    headers = {
        "Content-Type": "application/json",
        "Accept": "application/json, text/event-stream",
    }

    def post(method: str, session: str | None, **body: Any) -> tuple[str | None, bytes]:
        connection = http.client.HTTPConnection("127.0.0.1", port, timeout=10)
        extra = {"Mcp-Session-Id": session} if session else {}
        message = json.dumps({"jsonrpc": "2.0", "method": method, **body})
        try:
            connection.request("POST", "/mcp", message, headers | extra)
            answer = connection.getresponse()
            return answer.getheader("Mcp-Session-Id"), answer.read()
        finally:
            connection.close()

    client = {"name": "test", "version": "1"}
    asked = {"protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": client}
    session, _ = post("initialize", None, id=1, params=asked)
    post("notifications/initialized", session)
    _, body = post("tools/list", session, id=2, params={})
    lines = [line.removeprefix("data:") for line in body.decode().splitlines() if "{" in line]
    return {tool["name"] for tool in json.loads(lines[-1])["result"]["tools"]}


@pytest.mark.parametrize("service", ["router_in_front.toml"], indirect=True)
def test_router_in_front(service: Service) -> None:
    assert table(service) == HEALTH | V2
    assert service.host.plugins.names == ("router", "v2")
    said = user("lunch was good", user={"name": "Ann", "id": "1"})
    for source in ("team-chat", "incident-room"):
        assert service.chat(said, source=source)["content"] == ""
        assert "web-0" in service.chat("kube, list the pods of staging", source=source)["content"]
    (event,) = service.stream(said, source="team-chat")
    assert (event["type"], event["stop_reason"]) == ("done", "silent")
    assert service.chat(said)["content"] != ""
