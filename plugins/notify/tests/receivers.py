"""Receivers of notices on loopback ports, and a service whose calls they hear of."""

from __future__ import annotations

import asyncio
import json
import socketserver
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from email import message_from_bytes
from email.message import EmailMessage
from email.policy import default
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, cast

from sayso import Agent, Caller, Principal, Proposal, tool
from sayso.testing import Service, scripted

DEADLINE = 20.0
KEY = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"


def until(condition: Callable[[], Any], what: str = "it") -> Any:
    """The first true value of the condition."""
    end = time.monotonic() + DEADLINE
    while not (value := condition()):
        assert time.monotonic() < end, f"{what} did not happen within {DEADLINE} s"
        time.sleep(0.02)
    return value


class Receiver:
    """An HTTP endpoint that keeps what it gets; `status` is its answer."""

    def __init__(self) -> None:
        self.got: list[tuple[Mapping[str, str], bytes]] = []
        self.status = 200
        self.headers: dict[str, str] = {}
        self.refused: set[str] = set()
        """The calls whose notices get 500."""
        self.endless = False
        """Whether replies have no end."""
        self.tried = 0
        self.attempts: list[str] = []
        """The call of each notice that came, taken or not."""
        receiver = self

        class Answer(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["content-length"]))
                receiver.tried += 1
                data = json.loads(body).get("data", {})
                receiver.attempts.append(data.get("id", ""))
                status = 500 if data.get("id") in receiver.refused else receiver.status
                if status == 200:
                    receiver.got.append(({k.lower(): v for k, v in self.headers.items()}, body))
                self.send_response(status)
                for name, value in receiver.headers.items():
                    self.send_header(name, value)
                self.send_header("content-length", "9" if receiver.endless else "0")
                self.end_headers()
                if receiver.endless:
                    self.wfile.flush()
                    receiver.over.wait(DEADLINE)

            def log_message(self, format: str, *args: Any) -> None:
                pass

        self.over = threading.Event()
        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Answer)
        self.url = f"http://127.0.0.1:{self.server.server_port}/hook"

    def bodies(self, call: str | None = None) -> list[Any]:
        """The bodies that came, of one call or of all."""
        found = [json.loads(body) for _, body in self.got]
        return [one for one in found if call is None or one["data"]["id"] == call]

    def types(self, call: str | None = None) -> list[str]:
        """The types of the notices that came."""
        return [one["type"] for one in self.bodies(call)]


@contextmanager
def receiving() -> Iterator[Receiver]:
    """A receiver for the length of the block."""
    made = Receiver()
    thread = threading.Thread(target=made.server.serve_forever, args=(0.05,), daemon=True)
    thread.start()
    try:
        yield made
    finally:
        made.over.set()
        made.server.shutdown()
        made.server.server_close()


class MailServer(socketserver.ThreadingTCPServer):
    """A mail server that keeps what it gets; it speaks the SMTP of RFC 5321 without extensions."""

    allow_reuse_address = True
    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Session)
        self.mails: list[tuple[list[str], EmailMessage]] = []


class _Session(socketserver.StreamRequestHandler):
    def handle(self) -> None:
        to: list[str] = []
        self.wfile.write(b"220 mail\r\n")
        while line := self.rfile.readline():
            verb = line[:4].upper()
            if verb == b"DATA":
                self.wfile.write(b"354 go on\r\n")
                text = b""
                while (line := self.rfile.readline()) != b".\r\n":
                    text += line.removeprefix(b".") if line.startswith(b"..") else line
                mail = cast(EmailMessage, message_from_bytes(text, policy=default))
                cast(MailServer, self.server).mails.append((to, mail))
                to = []
            elif verb == b"RCPT":
                to.append(line.decode().partition("<")[2].partition(">")[0])
            self.wfile.write(b"221 bye\r\n" if verb == b"QUIT" else b"250 ok\r\n")
            if verb == b"QUIT":
                return


@contextmanager
def mailing() -> Iterator[MailServer]:
    """A mail server for the length of the block."""
    with MailServer() as server:
        threading.Thread(target=server.serve_forever, args=(0.05,), daemon=True).start()
        try:
            yield server
        finally:
            server.shutdown()


def deleting() -> Agent:
    """An agent with two gated tools."""

    @tool(requires_approval=True)
    def delete(path: str, password: str = "none") -> str:
        """Delete a file."""
        return f"deleted {path}"

    @tool(requires_approval=True)
    def wipe() -> str:
        """Wipe the disk."""
        return "wiped"

    return Agent(name="files", id="files", model=scripted(), tools=[delete, wipe])


def hook(url: str, name: str = "ops", more: str = "") -> str:
    """The table of a webhook that posts to this machine."""
    return (
        f'[plugin.notify.webhooks.{name}]\nurl = "{url}"\nhosts = ["127.0.0.1"]\n'
        f'secret = "{KEY}"\n{more}\n'
    )


def configured(tables: str, approvals: str = "") -> str:
    """The text of a sayso.toml."""
    head = 'plugins = ["v2", "notify"]\n[server]\nready = true\n'
    return f'{head}[approvals]\ndeciders = "any"\n{approvals}\n{tables}'


def propose(service: Service, path: str = "x", name: str = "delete", who: str = "ann") -> Proposal:
    """A call that a principal proposes, recorded."""
    given = {"path": path, "password": "hunter2"} if name == "delete" else {}
    work = service.host.calls.propose(name, given, Caller("mcp", Principal(who), "10.0.0.1"))
    return asyncio.run(work)


def decide(service: Service, id: str, approved: bool, reason: str | None = None) -> Proposal:
    """The call after a decision of another principal."""
    caller = Caller("mcp", Principal("bob"))
    return asyncio.run(service.host.calls.decide(id, caller, approved=approved, reason=reason))
