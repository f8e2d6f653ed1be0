"""A web page under a name that is not the service's neither decides nor sees the console.

design, section 6, "Web pages": without [auth], on an address that others reach.
"""

from __future__ import annotations

import asyncio
import json
import socket
from collections.abc import Iterator
from typing import Any

import pytest
from websockets.sync.client import ClientConnection, connect
from websockets.typing import Origin

from sayso import Agent, Call, Caller, ConfigError, tool
from sayso.app import app_to_serve
from sayso.config import load_config
from sayso.config.options import Extras
from sayso.testing import Service, scripted, served

OPEN = (
    "plugins = ['v1', 'v2', 'a2a', 'console']\n[server]\nhost = '0.0.0.0'\nhosts = ['own.test']\n"
)
EVIL = {"Host": "evil.example:8000"}
PAGES: list[dict[str, str]] = [
    {"Origin": "http://evil.example:8000"},
    {"Sec-Fetch-Site": "same-origin"},
    {"Origin": "null"},
]
ran: list[str] = []


@tool(requires_approval=True)
def delete(name: str) -> str:
    """Delete a file."""
    ran.append(name)
    return "gone"


@pytest.fixture
def service() -> Iterator[Service]:
    ran.clear()
    model = scripted([Call("1", "delete", {"name": "a"})], *["gone"] * 5)
    with served(Agent(model=model, tools=[delete], name="asks"), config=OPEN) as given:
        yield given


def decision(call: dict[str, Any], **fields: Any) -> list[dict[str, Any]]:
    data = {"tool_calls": [{**call, **fields}]}
    return [
        {"role": "user", "content": "delete a"},
        {"role": "user", "content": "", "data": data},
    ]


@pytest.mark.parametrize("page", PAGES, ids=str)
@pytest.mark.parametrize("path", ["/api/chat", "/api/chat-stream", "/api/sendMessage"])
def test_page_under_a_foreign_name_chats_and_decides_nothing(
    service: Service, path: str, page: dict[str, str]
) -> None:
    asked = {"messages": [{"role": "user", "content": "delete a"}]}
    assert service.post("/api/chat", asked, {**EVIL, **page}).status == 200
    (call,) = _calls(service)
    for fields in ({"execute": True}, {"rejection_reason": "no"}):
        refused = service.post(path, {"messages": decision(call, **fields)}, {**EVIL, **page})
        assert "server.hosts" in refused.text
        assert ran == []
    for host in ("own.test:8000", "192.0.2.7:8000", "[2001:db8::1]", "localhost"):
        headers = {**page, "Host": host}
        assert service.post(path, {"messages": decision(call, execute=True)}, headers).status == 200
    assert ran == ["a"]


def _calls(service: Service) -> list[dict[str, Any]]:
    page = asyncio.run(service.host.calls.pending(Caller("test")))
    return [{"id": row.id, "name": row.name, "input": row.input} for row in page.calls]


def test_client_that_is_no_page_decides_under_any_name(service: Service) -> None:
    service.chat("delete a")
    (call,) = _calls(service)
    body = {"messages": decision(call, execute=True)}
    assert service.post("/api/chat", body, EVIL).status == 200
    assert ran == ["a"]


def test_page_decides_nothing_over_a_websocket(service: Service) -> None:
    service.chat("delete a")
    (call,) = _calls(service)
    body = json.dumps({"messages": decision(call, execute=True)})
    with _socket(service) as opened:
        opened.send(body)
        said = json.loads(opened.recv(60))
    assert (said["type"], said["code"]) == ("error", "UNKNOWN_HOST")
    assert ran == []


def _socket(service: Service) -> ClientConnection:
    # The name is only in `Host`; its real address does not matter.
    reached = socket.create_connection(("127.0.0.1", service.port))
    where = f"ws://evil.example:{service.port}/api/chat-ws"
    return connect(where, sock=reached, origin=Origin(f"http://evil.example:{service.port}"))


@pytest.mark.parametrize(
    "path", ["/console", "/console/app.js", "/console/approvals", "/console/approvals/x"]
)
def test_console_is_opened_under_known_names_alone(service: Service, path: str) -> None:
    for headers in (EVIL, {**EVIL, **PAGES[1]}):
        refused = service.get(path, headers)
        assert (refused.status, refused.json()["code"]) == (421, "UNKNOWN_HOST")
    for host in ("own.test", "192.0.2.7:8000", "127.0.0.1"):
        assert service.get(path, {"Host": host}).status in (200, 403)


def test_names_do_not_matter_where_callers_say_who_they_are() -> None:
    config = f"{OPEN}[auth]\nscheme = 'bearer'\ntokens = {{ ann = 'a-token-of-anns' }}\n"
    with served(lambda messages, context: "fine", config=config) as service:
        assert service.get("/console", EVIL).status == 200


@pytest.mark.parametrize("host", ["0.0.0.0", "::", "192.0.2.7"])
def test_console_on_an_open_address_stops_the_start(host: str) -> None:
    def start(**more: Any) -> None:
        given = {"plugins": ["v2", "console"], "server.host": host, **more}
        config = load_config(environ={}, overrides={**given, "approvals.ledger": "memory://"})
        app_to_serve(lambda messages, context: "fine", config, Extras())

    with pytest.raises(ConfigError, match=r"on the console.* set \[auth\].*server\.hosts.*127"):
        start()
    start(**{"server.hosts": ["own.test"]})
    start(**{"server.host": "127.0.0.1"})
    start(**{"auth.scheme": "bearer", "auth.tokens": {"ann": "a-token-of-anns"}})
    start(plugins=["v2"])
