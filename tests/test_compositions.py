"""Compositions by configuration alone: `sayso serve` answers on all their routes and no more."""

from __future__ import annotations

import http.client
import json
import re
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
from websockets.exceptions import InvalidStatus
from websockets.sync.client import connect

from environments import ROOT, serving
from sayso import Agent, tool
from sayso.app import create_app
from sayso.config import load_config
from sayso.installing import install_line
from sayso.plugins.routes import claims
from sayso.testing import Service, user

FOLDER = ROOT / "examples" / "deployments"
V1 = {"POST /api/sendMessage", "POST /api/sendMessageStream"}
V2 = {"POST /api/chat", "POST /api/chat-stream", "WEBSOCKET /api/chat-ws"}
HEALTH = {"GET /health"}
FRONT = {"GET /"}
A2A = {"GET /.well-known/agent.json", "POST /a2a/tasks/send", "GET /a2a/tasks/{id}"}
OFFICIAL_A2A = {
    "GET /.well-known/agent-card.json",
    "POST /a2a/rpc",
    "POST /a2a/rpc/",
    "POST /a2a/tasks/{id}/cancel",
}
STATIC = ROOT / "plugins" / "console" / "sayso_console" / "static"
CONSOLE = {
    "GET /console",
    "GET /console/agent",
    "GET /console/approvals",
    "GET /console/approvals/{id}",
    "POST /console/approvals/{id}",
    *(f"GET /console/{file.name}" for file in STATIC.iterdir() if file.suffix in (".css", ".js")),
}
DOCS = {"GET /docs", "GET /openapi.json"}
PROMPT = {"GET /console/prompt"}
"""With the console, where the documentation is on."""
TICKETS = {"POST /auth/ticket"}
"""A service with `[auth]` has them for browsers."""
KNOWN = TICKETS | HEALTH | FRONT | {"GET /ready"} | V1 | V2 | A2A | OFFICIAL_A2A | CONSOLE | DOCS
KNOWN |= PROMPT
TOKEN = {"Authorization": "Bearer token-of-the-desk"}
HELLO = {"messages": [user("list the pods of staging")]}
PATIENCE = 120.0
"""Seconds that a test waits for what must come."""


@pytest.fixture
def service(
    request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Service]:
    """The deployment that the test's parameter names, as a process; its servers on free ports."""
    monkeypatch.setenv("SAYSO_TOKEN_DESK", "token-of-the-desk")
    file = FOLDER / request.param
    options = ["--mcp-port", "0"] if "mcp" in file.read_text() else []
    with serving(Path(sys.executable), tmp_path, "--config", str(file), *options) as made:
        app = create_app(Agent(name="kube"), config=load_config(file))
        made.routes = [f"{method} {path}" for method, path in claims(app.router)]
        yield made


def table(service: Service, headers: Mapping[str, str] | None = None) -> set[str]:
    """All routes that the process answers on, except those for all methods; HEAD comes with each
    GET."""
    found = {route for route in service.routes if not route.startswith(("HEAD ", "* "))}
    assert found <= KNOWN
    assert found == {route for route in KNOWN if is_answered(service, route, headers or {})}
    return found


def is_answered(service: Service, route: str, headers: Mapping[str, str]) -> bool:
    """Whether a process has a route; a method that no route has shows the methods of the path."""
    method, path = route.split()
    if method == "WEBSOCKET":
        try:
            url = f"ws://127.0.0.1:{service.port}{path}"
            with connect(url, additional_headers=headers, open_timeout=PATIENCE):
                return True
        except InvalidStatus as refusal:
            assert refusal.response.status_code in (403, 404)
            return False
    answer = service.request("PROPFIND", re.sub(r"{\w+}", "1", path), headers=headers)
    allowed = answer.headers.get("allow", "").split(", ")
    assert (answer.status, allowed) == (404, [""]) or answer.status == 405
    return method in allowed


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
    for path in (
        "/docs",
        "/openapi.json",
        "/ready",
        "/.well-known/agent.json",
        "/api/chat-ws",
        "/",
    ):
        assert service.get(path).status == 404


@pytest.mark.parametrize("service", ["v2_only.toml"], indirect=True)
def test_v2_only(service: Service) -> None:
    assert table(service, TOKEN) == HEALTH | FRONT | V2 | TICKETS | {"GET /ready"}
    assert service.get("/health").status == 200
    assert service.get("/ready").json() == {"status": "ready"}
    assert service.post("/api/chat", HELLO).status == 401
    assert service.post("/api/sendMessage", HELLO, TOKEN).status == 404
    assert "web-0" in service.post("/api/chat", HELLO, TOKEN).json()["content"]
    assert service.post("/api/chat-stream", HELLO, TOKEN).events[-1]["type"] == "done"
    assert talked(service, TOKEN)[-1]["type"] == "done"


def talked(service: Service, headers: dict[str, str]) -> list[dict[str, Any]]:
    """The events of one turn over WebSocket."""
    events: list[dict[str, Any]] = []
    url = f"ws://127.0.0.1:{service.port}/api/chat-ws"
    with connect(url, additional_headers=headers, open_timeout=PATIENCE) as connection:
        connection.send(json.dumps(HELLO))
        while not events or events[-1]["type"] not in ("done", "error"):
            events.append(json.loads(connection.recv(timeout=PATIENCE)))
    return events


@pytest.mark.parametrize("service", ["everything.toml"], indirect=True)
def test_everything(service: Service, tmp_path: Path) -> None:
    protocols = V1 | V2 | A2A | OFFICIAL_A2A | CONSOLE | PROMPT
    assert table(service) == HEALTH | FRONT | protocols | DOCS | {"GET /ready"}
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
    found = re.search(r"on http://127\.0\.0\.1:(\d+)/mcp$", log_in(tmp_path), re.MULTILINE)
    assert found and mcp_tools(int(found[1])) >= {"list_pods", "delete_pod"}


def log_in(folder: Path) -> str:
    """The output of the process."""
    return (folder / "serve.log").read_text("utf-8")


def mcp_tools(port: int) -> set[str]:
    """The tools that the MCP server on the second port lists."""
    headers = {
        "Content-Type": "application/json",
        "Accept": "application/json, text/event-stream",
    }

    def post(method: str, session: str | None, **body: Any) -> tuple[str | None, bytes]:
        connection = http.client.HTTPConnection("127.0.0.1", port, timeout=PATIENCE)
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
def test_router_in_front(service: Service, tmp_path: Path) -> None:
    assert table(service) == HEALTH | FRONT | V2
    assert "; plugins: router, v2;" in log_in(tmp_path)
    said = user("lunch was good", user={"name": "Ann", "id": "1"})
    for source in ("team-chat", "incident-room"):
        assert service.chat(said, source=source)["content"] == ""
        assert "web-0" in service.chat("kube, list the pods of staging", source=source)["content"]
    (event,) = service.stream(said, source="team-chat")
    assert (event["type"], event["stop_reason"]) == ("done", "silent")
    assert service.chat(said)["content"] != ""


def test_start_says_in_plain_words_what_is_served(tmp_path: Path) -> None:
    @tool
    def look() -> None:
        """Look."""

    overrides = {"plugins": ["v2"], "server.state_dir": str(tmp_path)}
    config = load_config(environ={}, overrides=overrides)
    app = create_app(Agent(name="kube", model="offline", tools=[look]), config=config)
    assert "agent 'kube' with model offline, 1 tool; plugins: v2;" in app.host.describe()[0]


def test_start_tells_of_variables_that_are_no_settings_but_not_of_a_callers_token(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SAYSO_COLOUR", "red")
    monkeypatch.setenv("SAYSO_OF_ANN", "s3cret")
    overrides = {
        "server.state_dir": str(tmp_path),
        "auth.scheme": "bearer",
        "auth.tokens": {"ann": "env:SAYSO_OF_ANN"},
    }
    app = create_app(Agent(model="offline"), config=load_config(overrides=overrides))
    reported = [line for line in app.host.describe() if "is no setting" in line]
    assert reported == ["warning: environment SAYSO_COLOUR is no setting"]


def not_used(**given: Any) -> list[str]:
    app = create_app(Agent(model="offline"), **given)
    return [line for line in app.host.describe() if "is not used" in line]


def test_start_tells_of_options_of_a_plugin_that_nobody_switched_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    overrides = {"server.state_dir": str(tmp_path), "plugin.mcp.transport": "stdio"}
    assert not_used(config=load_config(overrides=overrides)) == [
        "warning: flag --mcp-transport is not used: plugin 'mcp' is not active; "
        "switch it on by --mcp"
    ]
    assert not_used(config=load_config(overrides=overrides | {"server.mcp": False})) == []
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("SAYSO_SERVER__STATE_DIR", str(tmp_path))
    reported = not_used(a2a_adapter="both", a2a_agent_card={"name": "Kube"})
    assert [line.partition(":")[2].strip() for line in reported] == [
        "keyword a2a_adapter is not used: plugin 'a2a' is not active; switch it on by a2a=True",
        "keyword a2a_agent_card is not used: plugin 'a2a' is not active; switch it on by a2a=True",
    ]
    monkeypatch.setenv("SAYSO_PLUGIN__ROUTER__TIMEOUT", "5s")
    monkeypatch.setenv("SAYSO_PLUGIN__MCP__PORT", "8002")
    first, second = not_used()
    assert first.endswith("; switch it on by SAYSO_SERVER__MCP=true")
    assert second.endswith("plugin 'router' is not active; name it in plugins")
    assert len(not_used(mcp=True)) == 1


@pytest.mark.parametrize(
    ("plugins", "served"),
    [([], False), (["console"], False), (["router"], False), (["v1"], True), (["mcp"], True)],
)
def test_service_that_nobody_can_talk_to_says_what_to_install(
    tmp_path: Path, plugins: list[str], served: bool
) -> None:
    overrides = {"plugins": plugins, "server.state_dir": str(tmp_path)}
    app = create_app(Agent(name="kube"), config=load_config(environ={}, overrides=overrides))
    reported = [line for line in app.host.describe() if install_line("sayso[v1,v2]") in line]
    assert bool(reported) is not served
