"""The application that `serve` builds: without FastAPI, and answering as with it."""

from __future__ import annotations

import json
import sys
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from fastapi import APIRouter, FastAPI
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response
from starlette.routing import Mount, Route, Router
from starlette.testclient import TestClient

from environments import serving
from sayso import Config, Plugin, PluginError, create_app, hookimpl
from sayso.app import app_to_serve
from sayso.host import ServiceHost
from sayso.testing import Service, user
from sayso.threaded import running

REQUEST = {"messages": [user("hello")]}
AGENT = """
import sys
{first}

def agent(messages, context):
    return "loaded" if "fastapi" in sys.modules else "not loaded"
"""


# The tests of `telemetry` have the SDK installed.
NO_SDK = "import sys; sys.modules['opentelemetry.sdk'] = None"


@pytest.mark.parametrize(
    ("first", "environment", "options", "loaded"),
    [
        (NO_SDK, {}, (), False),
        ("import fastapi", {}, (), True),
        ("import opentelemetry.trace", {}, (), True),
        ("", {"FASTAPI_OTEL_AUTO_CONFIGURE": "true"}, (), True),
        ("", {"SAYSO_SERVER__DOCS": "true"}, (), True),
    ],
    ids=["alone", "fastapi", "opentelemetry", "traced", "docs"],
)
def test_service_imports_fastapi_only_where_something_asks_for_it(
    first: str,
    environment: Mapping[str, str],
    options: tuple[str, ...],
    loaded: bool,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    (tmp_path / "own.py").write_text(AGENT.format(first=first))
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    with serving(Path(sys.executable), tmp_path, "own:agent", *options) as service:
        said = service.post("/api/chat", REQUEST).json()["content"]
        assert said == ("loaded" if loaded else "not loaded")
        assert service.get("/docs").status == (200 if "SAYSO_SERVER__DOCS" in environment else 404)


def test_service_is_a_fastapi_where_a_lifespan_may_set_up_traces(tmp_path: Path) -> None:
    # FastAPI makes spans of its own, from the first request after the SDK is set up.
    (tmp_path / "own.py").write_text(AGENT.format(first=""))
    (tmp_path / "opentelemetry" / "sdk").mkdir(parents=True)
    (tmp_path / "opentelemetry" / "sdk" / "__init__.py").touch()
    with serving(Path(sys.executable), tmp_path, "own:agent") as service:
        assert service.post("/api/chat", REQUEST).json()["content"] == "loaded"


TRACING = """
import fastapi
import starlette.applications

told = 0

class Tracer:
    def __init__(self, app):
        self.app = app

    async def __call__(self, scope, receive, send):
        global told
        told += scope["type"] == "http"
        await self.app(scope, receive, send)

def traced(framework):
    class Traced(framework):
        def __init__(self, *args, **options):
            super().__init__(*args, **options)
            self.add_middleware(Tracer)
    return Traced

starlette.applications.Starlette = traced(starlette.applications.Starlette)
fastapi.FastAPI = traced(fastapi.FastAPI)

def agent(messages, context):
    return str(told)
"""


def test_request_is_traced_once_where_a_tracer_replaces_both_frameworks(tmp_path: Path) -> None:
    # The effect of `opentelemetry-instrument` if both of its instrumentations are installed.
    (tmp_path / "own.py").write_text(TRACING)
    with serving(Path(sys.executable), tmp_path, "own:agent") as service:
        before = int(service.post("/api/chat", REQUEST).json()["content"])
        assert service.post("/api/chat", REQUEST).json()["content"] == str(before + 1)


def answer(messages: Any, context: Any) -> str:
    return "fine"


async def mine(request: Request) -> Response:
    return PlainTextResponse(str(getattr(request.state, "pool", "none")))


async def refusing(request: Request) -> Response:
    raise HTTPException(int(request.query_params["status"]), "no", {"x-why": "because"})


async def failing(request: Request) -> Response:
    raise RuntimeError("secret")


class Routes(Plugin):
    """Routes of a plugin in a router of Starlette's, with a lifespan of its own."""

    name = "routes"

    def __init__(self, **options: Any) -> None:
        super().__init__()
        self.options = options
        self.noted: list[str] = []

    @asynccontextmanager
    async def life(self, app: object) -> AsyncIterator[dict[str, str]]:
        self.noted.append("in")
        yield {"pool": "open"}
        self.noted.append("out")

    @hookimpl
    def register_routes(self) -> Router:
        own = Route("/mine", mine)
        routes = [own, Route("/refusing", refusing), Route("/failing", failing)]
        return Router(
            [*routes, Mount("/mounted", routes=[own])], lifespan=self.life, **self.options
        )


ASKED = [
    ("GET", "/health"),
    ("HEAD", "/health"),
    ("POST", "/health"),
    ("OPTIONS", "/health"),
    ("GET", "/nope"),
    ("GET", "/health/"),
    ("GET", "/api/chat"),
    ("GET", "/api/chat-ws"),
    ("POST", "/api/chat"),
    ("POST", "/api/chat-stream"),
    ("POST", "/api/sendMessage"),
    ("GET", "/mine"),
    ("GET", "/mounted/mine"),
    ("GET", "/mounted/nope"),
    ("GET", "/refusing?status=418"),
    ("GET", "/refusing?status=304"),
    ("GET", "/failing"),
]


@pytest.mark.parametrize("cors", [[], ["https://example.com"]], ids=["plain", "cors"])
def test_service_without_fastapi_answers_as_the_one_with_it(
    cors: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = Config.model_validate({"server": {"state_dir": tmp_path, "cors_origins": cors}})
    reported = {}
    for kind in (True, False):
        monkeypatch.setattr("sayso.app._asks_for_fastapi", lambda host, kind=kind: kind)
        plugin = Routes()
        monkeypatch.setattr("sayso.host.ServiceHost.create", created_with(plugin))
        app = app_to_serve(answer, config, {})
        assert isinstance(app, FastAPI) == kind
        with running(app, config) as port:
            service = Service(app.host, port)
            reported[kind] = [asked(service, method, path) for method, path in ASKED]
        assert plugin.noted == ["in", "out"]
        monkeypatch.undo()
    assert reported[True] == reported[False]
    statuses = {
        path: status for (_, path), (status, *_) in zip(ASKED, reported[False], strict=True)
    }
    assert statuses["/nope"] == 404 and statuses["/refusing?status=418"] == 418
    assert reported[False][ASKED.index(("GET", "/mine"))][-1] == b"open"


def created_with(plugin: Plugin) -> Any:
    create = ServiceHost.create

    def made(agent: object, config: Config, extras: Any) -> ServiceHost:
        return create(agent, config, [plugin], extras)

    return made


def asked(service: Service, method: str, path: str) -> tuple[int, list[Any], bytes]:
    body = json.dumps(REQUEST) if method == "POST" else None
    headers = {"origin": "https://example.com", "content-type": "application/json"}
    reply = service.request(method, path, body, headers)
    return reply.status, [h for h in reply.headers.items() if h[0] != "date"], reply.body


class Closed:
    """A middleware that admits nobody."""

    def __init__(self, app: Any) -> None:
        self.app = app

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        await PlainTextResponse("closed", 403)(scope, receive, send)


def test_middleware_of_a_plugin_s_router_is_refused_and_not_dropped(tmp_path: Path) -> None:
    plugin = Routes(middleware=[Middleware(Closed)])
    with pytest.raises(PluginError, match=r"'routes'.*: a Starlette Router's middleware .*Mount\("):
        create_app(answer, state_dir=str(tmp_path), plugins=[plugin])


def test_app_for_others_is_a_fastapi_that_takes_their_routes(tmp_path: Path) -> None:
    app = create_app(answer, state_dir=str(tmp_path), plugins=[Routes()])
    router = APIRouter()
    router.add_api_route("/other", lambda: {"other": 1})
    app.include_router(router)

    @app.get("/further")
    def further() -> int:
        return 2

    with TestClient(app, base_url="http://127.0.0.1") as client:
        found = [client.get(path).text for path in ("/mine", "/other", "/further")]
    assert found == ["open", '{"other":1}', "2"]
