"""`sayso health`: the check of an image, or of a person, whether a service is running."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path

import pytest

from sayso.cli import run
from sayso.testing import served


@contextmanager
def answering(status: int, body: bytes) -> Iterator[int]:
    """The port of a server that gives this answer to each request."""

    class Answer(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(status)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, format: str, *args: object) -> None:
            pass

    with HTTPServer(("127.0.0.1", 0), Answer) as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.01,))
        thread.start()
        try:
            yield server.server_port
        finally:
            server.shutdown()
            thread.join()


@pytest.fixture(autouse=True)
def _no_configuration(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def test_a_service_that_lives_is_healthy(capsys: pytest.CaptureFixture[str]) -> None:
    with served(lambda messages, context: "") as service:
        assert run(["health", "--port", str(service.port)]) == 0
    assert capsys.readouterr().out == f"127.0.0.1:{service.port}/health answers 200\n"


def test_port_and_address_come_from_the_configuration(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with answering(200, b"{}") as port:
        Path(tmp_path, "sayso.toml").write_text(f'[server]\nhost = "0.0.0.0"\nport = {port}\n')
        assert run(["health"]) == 0
    assert f"127.0.0.1:{port}" in capsys.readouterr().out


def test_one_that_is_not_ready_says_why_in_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    with answering(503, b'{"detail": "the ledger does not answer:\\n\\u001b[2J"}') as port:
        assert run(["health", "--ready", "--port", str(port)]) == 1
    said = capsys.readouterr().err
    assert "/ready answers 503: the ledger does not answer:" in said
    assert "\x1b" not in said
    assert said.count("\n") == 1


def test_a_service_without_ready_names_the_setting(capsys: pytest.CaptureFixture[str]) -> None:
    with served(lambda messages, context: "") as service:
        assert run(["health", "--ready", "--port", str(service.port)]) == 1
    assert "server.ready = true" in capsys.readouterr().err


def test_where_nobody_listens_the_check_fails(capsys: pytest.CaptureFixture[str]) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        port = taken.getsockname()[1]
        assert run(["health", "--port", str(port)]) == 1
    assert f"127.0.0.1:{port} does not answer" in capsys.readouterr().err


def test_one_that_says_nothing_fails_in_time(capsys: pytest.CaptureFixture[str]) -> None:
    with socket.create_server(("127.0.0.1", 0)) as mute:
        port = str(mute.getsockname()[1])
        assert run(["health", "--port", port, "--timeout", "0.2"]) == 1
    assert "does not answer: timed out" in capsys.readouterr().err


def test_a_free_port_has_to_be_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    Path(tmp_path, "sayso.toml").write_text("[server]\nport = 0\n")
    assert run(["health"]) == 2
    assert "--port" in capsys.readouterr().err


def test_name_that_cannot_be_looked_up_is_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["health", "--port", "1", "--host", ".x"]) == 1
    assert ".x:1 does not answer: " in capsys.readouterr().err
