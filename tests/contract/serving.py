"""A real service on a loopback port, and a client that speaks V1, V2 and WebSocket to it."""

from __future__ import annotations

import http.client
import json
import socket
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import uvicorn
from websockets.sync.client import ClientConnection, connect

from sayso import create_app, load_config
from sayso.decisions.settling import NOTHING_DECIDED, Settled
from sayso.listener.listener import uvicorn_config

DEADLINE = 120.0
PATHS = {
    "v1": ("/api/sendMessage", "/api/sendMessageStream"),
    "v2": ("/api/chat", "/api/chat-stream"),
}
Json = dict[str, Any]


def strict(raw: str | bytes) -> Any:
    """The JSON value of `raw`; NaN and Infinity, which Python's parser accepts, are refused."""
    return json.loads(raw, parse_constant=_refuse)


def _refuse(name: str) -> None:
    raise ValueError(f"{name} is no JSON")


def until(holds: Callable[[], Any], what: str = "the condition") -> Any:
    """The value of `holds` once it is true."""
    deadline = time.monotonic() + DEADLINE
    while not (value := holds()):
        assert time.monotonic() < deadline, f"{what} did not come true in time"
        time.sleep(0.01)
    return value


def user(content: str = "", **fields: Any) -> Json:
    """A user message; `data` and the like are keywords."""
    return {"role": "user", "content": content, **fields}


def assistant(content: str = "", **fields: Any) -> Json:
    """An assistant message of the history."""
    return {"role": "assistant", "content": content, **fields}


def said(reply: Json) -> Json:
    """A reply as the history message that a client sends back."""
    return {"role": "assistant", "content": reply["content"], "data": reply["data"]}


def approved(call: Json, **changes: Any) -> Json:
    """The call as a caller approves it."""
    return {**call, "execute": True, **changes}


def rejected(call: Json, reason: str = "too risky", **changes: Any) -> Json:
    """The call as a caller rejects it."""
    return {**call, "rejection_reason": reason, **changes}


@dataclass(frozen=True)
class Answer:
    """A reply over HTTP."""

    status: int
    headers: Mapping[str, str]
    raw: bytes

    def json(self) -> Any:
        return strict(self.raw)

    @property
    def events(self) -> list[Json]:
        assert self.raw.endswith(b"\n"), "a stream's last line has its line end"
        return [strict(line) for line in self.raw.splitlines()]

    @property
    def items(self) -> list[Json]:
        """The items of the 422 list form."""
        assert self.status == 422, (self.status, self.raw)
        detail = self.json()["detail"]
        assert isinstance(detail, list), detail
        assert detail
        for item in detail:
            assert {"loc", "msg", "type"} <= item.keys(), item
            assert isinstance(item["loc"], list), item
        return detail

    @property
    def types(self) -> set[str]:
        return {item["type"] for item in self.items}


class Socket:
    """A WebSocket connection whose `turn` sends one frame and reads up to the terminal event."""

    def __init__(self, connection: ClientConnection) -> None:
        self.raw = connection

    def send(self, frame: str | bytes | Json) -> None:
        self.raw.send(json.dumps(frame) if isinstance(frame, dict) else frame)

    def turn(self, frame: str | bytes | Json) -> list[Json]:
        self.send(frame)
        return self.read()

    def read(self) -> list[Json]:
        events: list[Json] = []
        while not events or events[-1]["type"] not in ("done", "error"):
            frame = self.raw.recv(timeout=DEADLINE)
            assert isinstance(frame, str), "events leave as text frames"
            events.append(strict(frame))
        return events


class Service:
    """One served application and the client of it."""

    def __init__(self, app: Any, port: int) -> None:
        self.app = app
        self.port = port

    def request(
        self,
        method: str,
        path: str,
        body: bytes | str | Iterator[bytes] | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> Answer:
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=2 * DEADLINE)
        try:
            connection.request(method, path, body, dict(headers or {}))
            got = connection.getresponse()
            names = {name.lower(): value for name, value in got.getheaders()}
            return Answer(got.status, names, got.read())
        finally:
            connection.close()

    def post(self, path: str, body: Any, **headers: str) -> Answer:
        """POST `body`, as JSON unless it is bytes; header names have `_` for `-`."""
        named = {name.replace("_", "-"): value for name, value in headers.items()}
        raw = body if isinstance(body, bytes) else json.dumps(body).encode()
        return self.request("POST", path, raw, {"Content-Type": "application/json", **named})

    def ask(self, *messages: Json, path: str = "v2", stream: bool = False, **rest: Any) -> Answer:
        """Post a conversation; `headers` is a mapping, other keywords are top-level fields."""
        headers = rest.pop("headers", {})
        return self.post(PATHS[path][stream], {"messages": list(messages), **rest}, **headers)

    def chat(self, *messages: Json, path: str = "v2", **rest: Any) -> Json:
        """The reply of the synchronous endpoint, which must be a 200."""
        answer = self.ask(*messages, path=path, **rest)
        assert answer.status == 200, (answer.status, answer.raw)
        reply: Json = answer.json()
        return reply

    def stream(self, *messages: Json, path: str = "v2", **rest: Any) -> list[Json]:
        """The events of the streaming endpoint, which must be a 200."""
        answer = self.ask(*messages, path=path, stream=True, **rest)
        assert answer.status == 200, (answer.status, answer.raw)
        return answer.events

    @contextmanager
    def ws(self, **options: Any) -> Iterator[Socket]:
        # Allow a slow machine time to shake hands and to answer a ping.
        options = {"max_size": None, "open_timeout": DEADLINE, "ping_timeout": DEADLINE, **options}
        with connect(f"ws://127.0.0.1:{self.port}/api/chat-ws", **options) as connection:
            yield Socket(connection)


Serve = Callable[..., Service]
"""The type of the fixture `served`: `(agent, given=(), **settings) -> Service`."""


@contextmanager
def service(
    agent: Any, folder: Path, given: Sequence[object] = (), **settings: Any
) -> Iterator[Service]:
    """Serve `agent` and plugin objects `given`; `settings` are dotted keys, `__` for the dot."""
    overrides = {"approvals.ledger": "memory://", "server.state_dir": str(folder / "state")}
    overrides |= {name.replace("__", "."): value for name, value in settings.items()}
    config = load_config(environ={}, directory=folder, overrides=overrides)
    app = create_app(agent, config=config, plugins=given)
    listener = socket.create_server(("127.0.0.1", 0), backlog=256)
    server = uvicorn.Server(uvicorn_config(app, config))
    thread = threading.Thread(target=server.run, kwargs={"sockets": [listener]}, daemon=True)
    thread.start()
    try:
        until(lambda: server.started or not thread.is_alive(), "the start")
        assert server.started, "the service did not start"
        yield Service(app, listener.getsockname()[1])
    finally:
        server.should_exit = True
        thread.join(DEADLINE)
        listener.close()
        assert not thread.is_alive(), "the service did not end"
        assert NOTHING_DECIDED == Settled(), "a turn has written into what all turns share"


def text_of(events: Sequence[Json]) -> str:
    return "".join(e["text"] for e in events if e["type"] == "text_delta")


def folded(events: Sequence[Json]) -> Json:
    """The synchronous reply that a stream corresponds to, folded by the contract's words alone."""
    assert events[-1]["type"] == "done", events[-1]
    done = events[-1]
    data: Json = {
        "cmds": [],
        "executed_cmds": [],
        "tool_calls": [],
        "executed_tool_calls": [],
        "approvals": [],
        "executed_approvals": [],
        "url_configs": [],
    }
    fields = {
        "tool_calls": "tool_calls",
        "approvals": "approvals",
        "commands": "cmds",
        "executed_tool_calls": "executed_tool_calls",
        "executed_commands": "executed_cmds",
        "executed_approvals": "executed_approvals",
    }
    for event in events:
        if name := fields.get(event["type"]):
            data[name] = event["commands" if event["type"] == "commands" else name]
    data |= done.get("data") or {}
    if "session" in done:
        data["session"] = done["session"]
    return {
        "role": "assistant",
        "content": text_of(events),
        "data": data,
        "meta_data": done["meta_data"] | _stated(done["stop_reason"]),
        "timestamp": done.get("timestamp"),
        "user": done.get("user"),
        "agent": done.get("agent"),
    }


def _stated(stop_reason: str) -> Json:
    """The place where the synchronous V2 reply says why a turn stopped early (design, section
    7)."""
    return {} if stop_reason == "end_turn" else {"stop_reason": stop_reason}
