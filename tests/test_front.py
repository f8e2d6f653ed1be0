"""The answer at `/`: none for V1 alone, a redirect to the console, or the endpoints' names."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, cast

import pytest
from fastapi import APIRouter, FastAPI
from starlette.responses import PlainTextResponse
from starlette.routing import Mount, Route, Router

from sayso import Agent, create_app, running
from sayso.config import load_config
from sayso.testing import Service

TOKEN = {"Authorization": "Bearer s3cret"}
GUARDED = {"auth.scheme": "bearer", "auth.tokens": {"ann": "env:TOKEN_OF_ANN"}}


@pytest.fixture(autouse=True)
def token(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TOKEN_OF_ANN", "s3cret")


def made(folder: Path, plugins: list[str], settings: dict[str, Any], *routers: Any) -> FastAPI:
    overrides = {"plugins": plugins, "server.state_dir": str(folder), "server.host": "127.0.0.1"}
    config = load_config(overrides=overrides | settings)
    agent = Agent(name="kube", model="offline")
    return create_app(agent, config=config, additional_routers=[*routers])


@contextmanager
def serving(app: Any) -> Iterator[Service]:
    with running(app, app.host.config) as port:
        yield Service(cast(Any, None), port)


@pytest.mark.parametrize("plugins", [["v1"], ["v1", "router"], ["router"], []])
def test_service_of_v1_alone_or_without_endpoints_has_none(
    tmp_path: Path, plugins: list[str]
) -> None:
    with serving(made(tmp_path, plugins, {})) as service:
        assert service.get("/").status == 404


@pytest.mark.parametrize(
    ("plugins", "named"),
    [
        (["v2"], "POST /api/chat"),
        (["v1", "v2"], "POST /api/sendMessage"),
        (["a2a"], "POST /a2a/tasks/send"),
        (["v1", "a2a"], "GET /.well-known/agent.json"),
    ],
)
def test_endpoints_are_named(tmp_path: Path, plugins: list[str], named: str) -> None:
    with serving(made(tmp_path, plugins, {})) as service:
        endpoints = service.get("/").json()["endpoints"]
        assert {"GET /health", named} <= set(endpoints)
        assert service.request("POST", "/").status == 405


def test_mcp_alone_has_no_endpoints_to_name(tmp_path: Path) -> None:
    settings = {"plugin.mcp.port": 0, "plugin.mcp.host": "127.0.0.1"}
    with serving(made(tmp_path, ["mcp"], settings)) as service:
        assert service.get("/").status == 404


@pytest.mark.parametrize("protocol", ["v1", "v2"])
def test_way_to_the_console_is_shown_to_everybody(tmp_path: Path, protocol: str) -> None:
    with serving(made(tmp_path, [protocol, "console"], GUARDED)) as service:
        answer = service.get("/")
        # A relative address: the service may be below a prefix of a proxy.
        assert (answer.status, answer.headers["location"]) == (307, "console")


def test_names_of_the_endpoints_are_for_callers(tmp_path: Path) -> None:
    with serving(made(tmp_path, ["v2"], GUARDED)) as service:
        assert service.get("/").status == 401
        assert service.get("/", TOKEN).status == 200


async def own(_: Any) -> PlainTextResponse:
    return PlainTextResponse("mine")


@pytest.mark.parametrize(
    "router",
    [
        Router([Route("/", own)]),
        Router([Route("/{rest:path}", own)]),
        Router([Mount("/", Route("/", own))]),
    ],
    ids=["route", "wildcard", "mount"],
)
@pytest.mark.parametrize("plugin", ["v2", "console"])
def test_it_gives_way_to_what_the_deployer_serves_there(
    tmp_path: Path, plugin: str, router: Router
) -> None:
    with serving(made(tmp_path, ["v1", plugin], GUARDED, router)) as service:
        # It does not make the page public either.
        assert service.get("/").status == 401
        assert service.get("/", TOKEN).body == b"mine"


@pytest.mark.parametrize("nested", [True, False])
def test_it_gives_way_to_what_is_added_to_the_app_later(tmp_path: Path, nested: bool) -> None:
    app = made(tmp_path, ["v2", "console"], GUARDED)
    router = APIRouter() if nested else app.router
    router.add_api_route("/", lambda: "mine")
    if nested:
        app.include_router(router)
    with serving(app) as service:
        assert service.get("/").status == 401
        assert service.get("/", TOKEN).json() == "mine"
