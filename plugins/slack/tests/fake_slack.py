"""A local Slack: its Web API over HTTP, Socket Mode over a WebSocket, and signed requests.

Payloads have the shapes that Slack documents for `block_actions`, `view_submission` and the events
`message` and `app_mention`.
"""

from __future__ import annotations

import hmac
import itertools
import json
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from hashlib import sha256
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qs, urlencode, urlsplit

from websockets.exceptions import ConnectionClosed
from websockets.sync.server import Server, ServerConnection, serve

from sayso.testing import Answer, Service

DEADLINE = 20.0
TEAM, BOT, CHANNEL = "T0TEAM", "U0BOT", "C0OPS"
SECRET = "8f742231b10e8888abcd99yyyzzz85a5"
Json = dict[str, Any]


def until(condition: Callable[[], Any], what: str = "it") -> Any:
    """The first true value of the condition."""
    end = time.monotonic() + DEADLINE
    while not (value := condition()):
        assert time.monotonic() < end, f"{what} did not happen within {DEADLINE} s"
        time.sleep(0.02)
    return value


class FakeSlack:
    """A workspace with one app; `messages` are those of each channel by their time stamps."""

    def __init__(self) -> None:
        self.calls: list[tuple[str, Json]] = []
        self.messages: dict[str, dict[str, Json]] = {}
        self.edits: list[str] = []
        self.shown: list[tuple[str, str, str]] = []
        self.acks: list[str] = []
        self.limited = 0
        """The number of further calls that are refused with 429."""
        self.refused: set[str] = set()
        self.failing: dict[str, int] = {}
        """The number of further calls of a method that are answered with a page and 503."""
        self._sockets: list[ServerConnection] = []
        self._numbers = itertools.count(1)
        self._web = self._made_web()
        self._socket: Server = serve(self._connected, "127.0.0.1", 0)
        port = self._socket.socket.getsockname()[1]
        self._socket_url = f"ws://127.0.0.1:{port}/link/?ticket=1234&app_id=A0APP"
        self.api = f"http://127.0.0.1:{self._web.server_port}/api/"

    def start(self) -> None:
        """Serve both."""
        for served in (lambda: self._web.serve_forever(0.05), self._socket.serve_forever):
            threading.Thread(target=served, daemon=True).start()

    def close(self) -> None:
        """End both."""
        self._web.shutdown()
        self._web.server_close()
        self._socket.shutdown()

    def _made_web(self) -> ThreadingHTTPServer:
        slack = self

        class Api(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                raw = self.rfile.read(int(self.headers.get("content-length", 0)))
                self._answer(raw.decode())

            def do_GET(self) -> None:
                self._answer(urlsplit(self.path).query)

            def _answer(self, raw: str) -> None:
                method = urlsplit(self.path).path.removeprefix("/api/")
                kind = self.headers.get("content-type", "")
                given = json.loads(raw) if "json" in kind and raw else _form(raw)
                status, body, more = slack.answer(method, given)
                text = b"<html>" if status == 503 else json.dumps(body).encode()
                self.send_response(status)
                self.send_header("content-type", "application/json")
                self.send_header("content-length", str(len(text)))
                for name, value in more.items():
                    self.send_header(name, value)
                self.end_headers()
                self.wfile.write(text)

            def log_message(self, format: str, *args: Any) -> None:
                pass

        return ThreadingHTTPServer(("127.0.0.1", 0), Api)

    def answer(self, method: str, given: Json) -> tuple[int, Json, dict[str, str]]:
        """The answer of a method of the Web API."""
        if self.limited and method.startswith("chat."):
            self.limited -= 1
            return 429, {"ok": False, "error": "ratelimited"}, {"Retry-After": "1"}
        if self.failing.get(method):
            self.failing[method] -= 1
            return 503, {}, {}
        self.calls.append((method, given))
        if method in self.refused:
            return 200, {"ok": False, "error": "fatal_error"}, {}
        name = f"_{method.replace('.', '_')}"
        found: Json = getattr(self, name)(given) if hasattr(self, name) else {}
        return 200, {"ok": True, **found}, {}

    def _auth_test(self, given: Json) -> Json:
        return {"user_id": BOT, "team_id": TEAM, "bot_id": "B0BOT"}

    def _apps_connections_open(self, given: Json) -> Json:
        return {"url": self._socket_url}

    def _chat_postMessage(self, given: Json) -> Json:
        ts = self.stamp()
        message = {"type": "message", "user": BOT, "bot_id": "B0BOT", **given, "ts": ts}
        self.messages.setdefault(given["channel"], {})[ts] = message
        for button in buttons(message).values():
            id_ = button.get("value", button.get("url", "")).rpartition("#")[2].split(" ")[0]
            self.shown.append((given["channel"], ts, id_))
        return {"channel": given["channel"], "ts": ts, "message": message}

    def _chat_update(self, given: Json) -> Json:
        self.messages[given["channel"]][given["ts"]] |= given
        self.edits.append(given["text"])
        return {"channel": given["channel"], "ts": given["ts"]}

    def _conversations_replies(self, given: Json) -> Json:
        found = self.messages.get(given["channel"], {}).values()
        return {"messages": [m for m in found if given["ts"] in (m["ts"], m.get("thread_ts"))]}

    def _conversations_history(self, given: Json) -> Json:
        found = [*self.messages.get(given["channel"], {}).values()]
        top = [m for m in found if m.get("thread_ts") in (None, m["ts"])]
        return {"messages": top[::-1][: int(given["limit"])]}

    def stamp(self) -> str:
        """A new time stamp."""
        return f"{int(time.time())}.{next(self._numbers):06d}"

    def of(self, method: str) -> list[Json]:
        """The arguments of the calls of a method."""
        return [given for name, given in self.calls if name == method]

    def card(self, call: str) -> Json | None:
        """The message that shows a call, or did when it was posted."""
        return next((self.messages[c][ts] for c, ts, id_ in self.shown if id_ == call), None)

    def texts(self, channel: str) -> list[str]:
        """The texts of the bot in a channel."""
        return [m["text"] for m in self.messages.get(channel, {}).values() if m["user"] == BOT]

    def _connected(self, socket: ServerConnection) -> None:
        hello = {"type": "hello", "num_connections": 1, "connection_info": {"app_id": "A0APP"}}
        socket.send(json.dumps(hello))
        self._sockets.append(socket)
        try:
            for frame in socket:
                self.acks.append(json.loads(frame)["envelope_id"])
        except ConnectionClosed:
            pass
        finally:
            self._sockets.remove(socket)

    def send(self, kind: str, payload: Json) -> str:
        """Send a payload over Socket Mode; returns the id of its envelope."""
        until(lambda: self._sockets, "the connection")
        id_ = f"envelope-{next(self._numbers)}"
        envelope = {"envelope_id": id_, "payload": payload, "type": kind}
        self._sockets[0].send(json.dumps({**envelope, "accepts_response_payload": False}))
        return id_

    def says(self, text: str, user: str = "U1ANN", channel: str = CHANNEL, **more: Any) -> Json:
        """A message of a user, kept in the channel, as an event."""
        ts = self.stamp()
        message = {"type": "message", "user": user, "text": text, "ts": ts, **more}
        self.messages.setdefault(channel, {})[ts] = message
        kind = "im" if channel.startswith("D") else "channel"
        event = {"channel": channel, "channel_type": kind, "team": TEAM, **message}
        return {
            "token": "verification",
            "team_id": TEAM,
            "api_app_id": "A0APP",
            "type": "event_callback",
            "event_id": f"Ev{ts}",
            "event_time": int(time.time()),
            "event": event,
        }


def _form(raw: str) -> Json:
    return {name: values[0] for name, values in parse_qs(raw).items()}


def press(message: Json, action: Json, user: str = "U2BOB", team: str = TEAM) -> Json:
    """The payload of a press of a button on a message."""
    channel = message["channel"]
    return {
        "type": "block_actions",
        "user": {"id": user, "username": "bob", "name": "bob", "team_id": team},
        "api_app_id": "A0APP",
        "token": "verification",
        "container": {
            "type": "message",
            "message_ts": message["ts"],
            "channel_id": channel,
            "is_ephemeral": False,
        },
        "trigger_id": "13345224609.738474920.8088930838d88f008e0",
        "team": {"id": team, "domain": "acme"},
        "channel": {"id": channel, "name": "ops"},
        "message": message,
        "response_url": "https://hooks.slack.com/actions/T0TEAM/1/x",
        "actions": [{**action, "type": "button", "block_id": "sayso", "action_ts": "1.2"}],
    }


def submit(view: Json, reason: str | None, user: str = "U2BOB", team: str = TEAM) -> Json:
    """The payload of a submitted modal."""
    return {
        "type": "view_submission",
        "team": {"id": team, "domain": "acme"},
        "user": {"id": user, "username": "bob", "name": "bob", "team_id": team},
        "api_app_id": "A0APP",
        "token": "verification",
        "trigger_id": "13345224609.738474920.8088930838d88f008e0",
        "view": {
            "id": "V0VIEW",
            "team_id": TEAM,
            **view,
            "hash": "1.x",
            "state": {
                "values": {"reason": {"reason": {"type": "plain_text_input", "value": reason}}}
            },
        },
        "response_urls": [],
    }


def buttons(message: Json) -> dict[str, Json]:
    """The buttons of a message by their texts."""
    found = [block for block in message.get("blocks") or [] if block["type"] == "actions"]
    return {one["text"]["text"]: one for block in found for one in block["elements"]}


def post(service: Service, path: str, body: Json | str, *, at: float | None = None) -> Answer:
    """The answer to a signed request of Slack."""
    raw = json.dumps(body) if path.endswith("events") else urlencode({"payload": json.dumps(body)})
    headers = signed(raw, at=at)
    if path.endswith("interactions"):
        headers["Content-Type"] = "application/x-www-form-urlencoded"
    return service.request("POST", path, raw, headers)


def signed(raw: str, *, at: float | None = None) -> dict[str, str]:
    """The headers of a signed request with this body."""
    stamp = str(int(time.time() if at is None else at))
    digest = hmac.digest(SECRET.encode(), f"v0:{stamp}:{raw}".encode(), sha256).hex()
    return {
        "Content-Type": "application/json",
        "X-Slack-Request-Timestamp": stamp,
        "X-Slack-Signature": f"v0={digest}",
    }


@contextmanager
def slack() -> Iterator[FakeSlack]:
    """A local Slack for the length of the block."""
    made = FakeSlack()
    made.start()
    try:
        yield made
    finally:
        made.close()
