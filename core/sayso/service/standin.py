"""The replacement for a reloading service whose code does not start."""

from __future__ import annotations

import json
import re
import socket
from http.server import BaseHTTPRequestHandler
from ipaddress import ip_address
from socketserver import BaseServer, ThreadingTCPServer
from threading import Thread

POLL = 0.05
"""Seconds between two checks whether it is closed."""
_OWN_NAME = re.compile(r"(localhost|127\.[\d.]+|\[::1\])(:\d+)?", re.IGNORECASE)
UNTOLD = "its terminal says why"


class StandIn(ThreadingTCPServer):
    """Answers each request on `listening` with 503, from threads of its own, until it is closed.

    A client on this machine that uses its own name is shown the cause.
    """

    daemon_threads = True

    def __init__(self, listening: socket.socket, cause: str | None) -> None:
        # Not the next class's, which would make a socket.
        BaseServer.__init__(self, listening.getsockname(), _Refusal)
        self.cause = cause or UNTOLD
        self.socket = listening.dup()
        # A client that left before it was accepted must not delay the end.
        self.socket.setblocking(False)
        Thread(target=self.serve_forever, args=(POLL,), daemon=True).start()

    def close(self) -> None:
        """Answer no more requests; the socket of the service stays open."""
        self.shutdown()
        self.server_close()

    def handle_error(self, request: object, client_address: object) -> None:
        """Log nothing for a client that breaks off."""


class _Refusal(BaseHTTPRequestHandler):
    timeout = 10.0
    server: StandIn

    def refuse(self) -> None:
        # With an unread body the connection would be reset.
        self.rfile.read(int(self.headers.get("Content-Length", 0)))
        detail = f"the service could not start: {self._cause()}; it starts again after a change"
        body = json.dumps({"detail": detail}).encode()
        self.send_response_only(503)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)

    do_GET = do_HEAD = do_POST = do_PUT = do_PATCH = do_DELETE = do_OPTIONS = refuse

    def _cause(self) -> str:
        near = ip_address(self.client_address[0]).is_loopback
        own = _OWN_NAME.fullmatch(self.headers.get("Host", ""))
        return self.server.cause if near and own else UNTOLD

    def log_message(self, format: str, *args: object) -> None:
        """Log nothing: the cause was already reported."""
