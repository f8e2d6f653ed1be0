import json
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from sayso import Agent, ConfigError
from sayso.testing import Served, scripted, served

TICKET = {"title": "Disk full", "owner": "Ann"}


@pytest.fixture
def tickets(tmp_path: Path) -> Path:
    (tmp_path / "tickets.json").write_text(json.dumps({"OPS-17": TICKET}), "utf-8")
    (tmp_path / "sayso.toml").write_text('[plugin.ticket_context]\nsource = "tickets.json"\n')
    return tmp_path / "sayso.toml"


class _Service(BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        status = {"OPS-17": 200, "OPS-18": 404}.get(self.path.removeprefix("/api/"), 500)
        self.send_response(status)
        self.end_headers()
        self.wfile.write(json.dumps(TICKET).encode())

    def log_message(self, *arguments: object) -> None:
        pass


@pytest.fixture
def service_url() -> Iterator[str]:
    with ThreadingHTTPServer(("127.0.0.1", 0), _Service) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield f"http://127.0.0.1:{server.server_port}/api/{{id}}"
        server.shutdown()
        thread.join()


def test_named_ticket_reaches_the_model_for_one_request_only(tickets: Path) -> None:
    model = scripted("Ann has it.", "Hello.")
    with served(Agent(model=model), config=tickets) as service:
        service.chat("who has OPS-17, and OPS-17 again?")
        service.chat("hello")
    assert model.asks[0].context == f"Ticket OPS-17: {json.dumps(TICKET)}"
    assert model.asks[1].context == ""


def test_service_is_asked_and_its_failures_harm_nothing(
    sayso_served: Served, service_url: str
) -> None:
    model = scripted("fine")
    config = f'[plugin.ticket_context]\nsource = "{service_url}"\ntimeout = "60s"\n'
    service = sayso_served(Agent(model=model), config=config)
    assert service.chat("compare OPS-17, OPS-18 and OPS-19")["content"] == "fine"
    assert model.asks[0].context == f"Ticket OPS-17: {json.dumps(TICKET)}"


def test_service_that_is_away_harms_nothing(sayso_served: Served) -> None:
    config = '[plugin.ticket_context]\nsource = "http://127.0.0.1:9/{id}"\ntimeout = "1s"\n'
    service = sayso_served(Agent(model=scripted("fine")), config=config)
    assert service.chat("look at OPS-17")["content"] == "fine"


def test_file_that_is_no_object_harms_nothing(sayso_served: Served, tmp_path: Path) -> None:
    (tmp_path / "list.json").write_text("[]")
    config = f'[plugin.ticket_context]\nsource = "{tmp_path}/list.json"\n'
    service = sayso_served(Agent(model=scripted("fine")), config=config)
    assert service.chat("look at OPS-17")["content"] == "fine"


def test_source_must_be_set() -> None:
    config = '[plugin.ticket_context]\ntimeout = "1s"\n'
    with pytest.raises(ConfigError, match="source"):
        with served(Agent(model=scripted()), config=config):
            pass
