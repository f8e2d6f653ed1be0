"""A server over TLS whose certificate nobody trusts yet."""

from __future__ import annotations

import shutil
import ssl
import subprocess
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

needs_openssl = pytest.mark.skipif(shutil.which("openssl") is None, reason="no openssl here")


class Failing(BaseHTTPRequestHandler):
    def do_POST(self) -> None:
        self.send_error(500)

    def log_message(self, *_: object) -> None:
        return


class Https(ThreadingHTTPServer):
    """A server with a certificate of its own, in `folder`; each request gets a 500."""

    def __init__(self, folder: Path) -> None:
        super().__init__(("127.0.0.1", 0), Failing)
        self.certificate, key = folder / "certificate.pem", folder / "key.pem"
        command = "openssl req -x509 -newkey rsa:2048 -nodes -days 2 -subj /CN=localhost".split()
        command += ["-addext", "subjectAltName=IP:127.0.0.1"]
        command += ["-keyout", str(key), "-out", str(self.certificate)]
        subprocess.run(command, check=True, capture_output=True)
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(self.certificate, key)
        self.socket = context.wrap_socket(
            self.socket, server_side=True, do_handshake_on_connect=False
        )

    @property
    def url(self) -> str:
        return f"https://127.0.0.1:{self.server_address[1]}"

    def handle_error(self, request: object, client_address: object) -> None:
        return


@contextmanager
def untrusted(folder: Path) -> Iterator[Https]:
    """A running `Https` with its certificate in `folder`."""
    with Https(folder) as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.02,))
        thread.start()
        try:
            yield server
        finally:
            server.shutdown()
            thread.join()
