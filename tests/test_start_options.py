"""Start-up options, tried from outside: CORS, model config, limits, secrets, lifespans."""

from __future__ import annotations

import errno
import json
import os
import socket
import sys
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager, closing
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from click.testing import CliRunner
from fastapi import APIRouter, FastAPI
from starlette.middleware import Middleware
from starlette.middleware.base import BaseHTTPMiddleware
from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response
from starlette.routing import Mount, Route, Router
from starlette.testclient import TestClient

from programs import Program, until
from sayso import (
    Agent,
    Call,
    ConfigError,
    LocalShell,
    Plugin,
    PluginError,
    RequestContext,
    create_app,
    hookimpl,
    load_config,
    tool,
)
from sayso.cli.group import cli, run
from sayso.http.asgi import App
from sayso.testing import scripted, served
from sayso.testing.script import Scripted

PAGE = {"Origin": "https://page.example"}
REQUEST = {"messages": [{"role": "user", "content": "hi"}]}


def app_of(folder: Path, agent: object, **options: Any) -> App:
    overrides = {"approvals.ledger": "memory://", "server.state_dir": str(folder / "state")}
    config = load_config(environ={}, directory=folder, overrides=overrides)
    return create_app(agent, config=config, **options)


async def mine(request: Request) -> PlainTextResponse:
    return PlainTextResponse(getattr(request.state, "pool", "closed"))


class Closed(BaseHTTPMiddleware):
    """Admits nobody."""

    async def dispatch(self, request: Request, call_next: object) -> Response:
        return PlainTextResponse("closed", 403)


def answer(messages: Sequence[object], context: RequestContext) -> str:
    return "fine"


@pytest.mark.parametrize("path", ["/health", "/ready"])
def test_cors_headers_of_one_request_are_not_in_the_next(path: str) -> None:
    with served(answer, cors_origins=["https://page.example"], ready=True) as service:
        for _ in range(3):
            service.get(path, PAGE)
        foreign = service.get(path, {"Origin": "https://evil.example"})
    named = {name.lower(): value for name, value in foreign.headers.items()}
    assert "access-control-allow-origin" not in named
    assert named["vary"] == "Origin"


@pytest.mark.parametrize(
    "wrong", [{"temp": 0.5}, {"temperature": 2}, {"max_tokens": "x"}, {"thinking_level": "medium"}]
)
def test_wrong_model_config_of_an_agent_stops_the_start(
    wrong: dict[str, object], tmp_path: Path
) -> None:
    with pytest.raises((ValueError, TypeError), match=next(iter(wrong))):
        app_of(tmp_path, Agent(model="offline", model_config=wrong))


def test_output_of_a_command_is_cut_at_the_limit() -> None:
    limit = 1024
    command = f"head -c {limit + 5000} /dev/zero | tr '\\0' x"
    model = scripted([Call("1", "suggest_commands", {"commands": [{"command": command}]})], "done")
    config = f"[limits]\ncommand_output = {limit}\n"
    with served(Agent(model=model, commands=LocalShell()), config=config) as service:
        talk = service.conversation()
        talk.say("go")
        output = talk.approve()["data"]["executed_cmds"][0]["output"]
    assert output.count("x") == pytest.approx(limit, abs=16)


@pytest.mark.parametrize(
    "url",
    ["postgresql://u@127.0.0.1/db?password=hunter2", "host=127.0.0.1 password=hunter2"],
)
def test_password_of_the_store_is_not_shown(url: str, tmp_path: Path) -> None:
    file = tmp_path / "sayso.toml"
    file.write_text(f'[approvals]\nledger = "{url}"\n')
    shown = CliRunner().invoke(cli, ["--config", str(file), "config"])
    assert "127.0.0.1" in shown.output
    assert "hunter2" not in shown.output


def test_app_without_its_lifespan_says_so_and_ends_its_stream(tmp_path: Path) -> None:
    outer = FastAPI()
    outer.mount("/agent", app_of(tmp_path, answer))
    client = TestClient(outer, raise_server_exceptions=False)
    streamed = client.post("/agent/api/chat-stream", json=REQUEST)
    last = json.loads(streamed.text.splitlines()[-1])
    assert last["type"] == "error"
    assert "lifespan" in last["error"]
    assert "lifespan" in client.post("/agent/api/chat", json=REQUEST).json()["detail"]


class Guard(Plugin):
    """Identifies callers who state a name; one of its pages is public."""

    name = "guard"
    public_paths = ("/page",)

    @hookimpl
    def authenticate(self, headers: Mapping[str, str]) -> str | None:
        return headers.get("x-user")

    @hookimpl
    def register_routes(self) -> APIRouter:
        return APIRouter(routes=[Route("/page", mine), Route("/agent/page", mine)])


def test_what_is_public_is_so_in_an_app_that_mounts_it(tmp_path: Path) -> None:
    app = app_of(tmp_path, answer, plugins=[Guard()], a2a=True)
    outer = FastAPI(lifespan=lambda _: app.router.lifespan_context(app))
    outer.mount("/agent", app)
    with TestClient(outer, base_url="http://127.0.0.1") as client:

        def status(path: str) -> int:
            return client.get(f"/agent{path}").status_code

        assert [status(p) for p in ("/health", "/.well-known/agent.json", "/page")] == [200] * 3
        assert status("/agent/page") == status("/a2a/tasks/1") == status("/nope") == 401
        assert client.post("/agent/api/chat", json=REQUEST).status_code == 401
        named = client.post("/agent/api/chat", json=REQUEST, headers={"x-user": "ann"})
        assert named.json()["content"] == "fine"


def test_what_looks_like_a_preflight_reaches_no_route_without_credentials(tmp_path: Path) -> None:
    whole = Mount("/whole", app=PlainTextResponse("for those who are known"))
    app = app_of(
        tmp_path,
        answer,
        plugins=[Guard()],
        additional_routers=[whole],
        cors_origins=["https://page.example"],
    )
    asked = {"Access-Control-Request-Method": "POST"}
    with TestClient(app, base_url="http://127.0.0.1") as client:
        assert client.options("/whole/", headers=asked).status_code == 401
        assert client.options("/whole/", headers={**asked, "x-user": "ann"}).status_code == 200
        preflight = client.options("/api/chat", headers={**asked, **PAGE})
        assert preflight.status_code == 200
        assert preflight.headers["access-control-allow-origin"] == PAGE["Origin"]


def test_app_can_live_twice(tmp_path: Path) -> None:
    app = app_of(tmp_path, answer)
    for _ in range(2):
        with TestClient(app) as client:
            assert client.post("/api/chat", json=REQUEST).json()["content"] == "fine"


def test_additional_router_that_is_none_is_refused_at_the_start(tmp_path: Path) -> None:
    with pytest.raises((ValueError, TypeError), match="additional_routers"):
        app_of(tmp_path, answer, additional_routers=[5])


def test_serving_object_that_is_no_agent_is_no_internal_error(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "number.py").write_text("agent = 5\n")
    assert run(["serve", str(tmp_path / "number.py"), "--port", "0"]) == 1
    reported = capsys.readouterr().err
    assert "number.py" in reported
    assert "internal error" not in reported


def test_additional_router_that_claims_a_taken_path_is_refused(tmp_path: Path) -> None:
    router = APIRouter()
    router.add_api_route("/api/chat", lambda: "mine", methods=["POST"])
    with pytest.raises(ValueError, match="POST /api/chat is served already"):
        app_of(tmp_path, answer, additional_routers=[router])
    # With another name for its parameter it would never be reached.
    tasks = [Route("/a2a/tasks/{name}", mine)]
    with pytest.raises(ValueError, match=r"GET /a2a/tasks/\{name\} is served already"):
        app_of(tmp_path, answer, additional_routers=[Router(tasks)], a2a=True)


def test_additional_route_that_another_covers_is_refused_and_one_that_covers_all_comes_last(
    tmp_path: Path,
) -> None:
    tasks = Router([Route("/a2a/tasks/mine", mine)])
    with pytest.raises(ConfigError, match="GET /a2a/tasks/mine is served already by .*/{"):
        app_of(tmp_path, answer, additional_routers=[tasks], a2a=True)
    mounts = [Mount("/own", app=Router()), Route("/own/page", mine)]
    with pytest.raises(ConfigError, match="GET /own/page is served already by MOUNT /own"):
        app_of(tmp_path, answer, additional_routers=mounts)
    app = app_of(tmp_path, answer, additional_routers=[Route("/{rest:path}", mine)])
    with TestClient(app, base_url="http://127.0.0.1") as client:
        assert client.get("/any/page").text == "closed"
        assert client.get("/health").json() == {"status": "ok"}


def test_additional_route_of_all_methods_claims_each_of_them(tmp_path: Path) -> None:
    async def everything(scope: Any, receive: Any, send: Any) -> None:
        await PlainTextResponse("mine")(scope, receive, send)

    for path in ("/api/chat", "/health"):
        route = Route(path, type("Mine", (), {"__call__": staticmethod(everything)})())
        with pytest.raises(ConfigError, match=f" {path} is served already"):
            app_of(tmp_path, answer, additional_routers=[route])


@pytest.mark.parametrize("paths", ["/page", ("page",), [b"/page"], None])
def test_public_paths_that_are_no_list_of_paths_are_refused(tmp_path: Path, paths: Any) -> None:
    guard = Guard()
    guard.public_paths = paths
    with pytest.raises(PluginError, match="public_paths that are no list of paths"):
        app_of(tmp_path, answer, plugins=[guard])


def test_middleware_of_an_additional_router_is_refused_and_not_dropped(tmp_path: Path) -> None:
    guarded = Router([Route("/mine", mine)], middleware=[Middleware(Closed)])
    with pytest.raises(ConfigError, match=r"additional_routers: .*middleware.* Mount\("):
        app_of(tmp_path, answer, additional_routers=[guarded])
    app = app_of(tmp_path, answer, additional_routers=[Mount("/own", app=guarded)])
    with TestClient(app, base_url="http://127.0.0.1") as client:
        assert client.get("/own/mine").status_code == 403


@pytest.mark.parametrize("kind", [Router, APIRouter])
def test_lifespan_of_an_additional_router_is_part_of_the_services_life(
    kind: type[Router], tmp_path: Path
) -> None:
    reported: list[str] = []

    @asynccontextmanager
    async def life(app: object) -> AsyncIterator[dict[str, str]]:
        reported.append("in")
        yield {"pool": "open"}
        reported.append("out")

    router = kind(routes=[Route("/mine", mine)], lifespan=life)
    app = app_of(tmp_path, answer, additional_routers=[router])
    with TestClient(app, base_url="http://127.0.0.1") as client:
        assert client.get("/mine").text == "open"
    assert reported == ["in", "out"]


LIFE = """
import asyncio, contextlib, pathlib, sys
from starlette.routing import Router
from sayso import serve

ready = asyncio.Event()

async def fails():
    await ready.wait()
    raise OSError("the connection is lost")

@contextlib.asynccontextmanager
async def life(app):
    {}

serve(
    lambda messages, context: "",
    host="127.0.0.1",
    port=0,
    additional_routers=[Router(lifespan=life)],
    on_ready=lambda url: ready.set(),
)
"""


def serving_with(life: str, tmp_path: Path, workers: int = 1) -> Program:
    environ = os.environ | {
        "SAYSO_SERVER__STATE_DIR": str(tmp_path),
        "SAYSO_SERVER__WORKERS": str(workers),
    }
    return Program([sys.executable, "-c", LIFE.format(life)], tmp_path, environ)


def failed_with(life: str, tmp_path: Path) -> str:
    """The output of a service with this lifespan until it has failed."""
    with closing(serving_with(life, tmp_path)) as running:
        assert running.end() == 1
    return running.said


@pytest.mark.slow
@pytest.mark.parametrize(
    "raises",
    [
        "sys.exit('no database')",
        "asyncio.current_task().cancel(); await asyncio.sleep(0)",
        "raise BaseExceptionGroup('', [asyncio.CancelledError()])",
    ],
)
def test_start_fails_whatever_a_lifespan_raises(tmp_path: Path, raises: str) -> None:
    said = failed_with(f"{raises}; yield", tmp_path)
    assert "sayso: the start failed: " in said
    assert "listening" not in said


@pytest.mark.slow
def test_service_ends_with_a_lifespan_whose_own_task_fails(tmp_path: Path) -> None:
    said = failed_with(
        "async with asyncio.TaskGroup() as g:\n        g.create_task(fails())\n        yield",
        tmp_path,
    )
    assert "listening" in said
    assert "OSError: the connection is lost" in said


def test_service_that_ends_with_a_lifespan_says_so_where_that_has_raised_nothing(
    tmp_path: Path,
) -> None:
    said = failed_with(
        "try:\n        async with asyncio.TaskGroup() as g:\n"
        "            g.create_task(fails())\n            yield\n"
        "    except* OSError: pass",
        tmp_path,
    )
    assert "listening" in said
    assert "ERROR sayso.server: a lifespan has ended before the service; stopping" in said


@pytest.mark.parametrize("workers", [1, 2])
def test_port_of_a_service_is_closed_while_a_lifespan_takes_its_time_to_end(
    tmp_path: Path, workers: int
) -> None:
    slow = (
        "yield\n    while not pathlib.Path('end').exists(): await asyncio.sleep(0.01)\n"
        "    pathlib.Path('ended').touch()"
    )

    def refused() -> bool:
        with closing(socket.socket()) as client:
            return client.connect_ex(("127.0.0.1", port)) == errno.ECONNREFUSED

    with closing(serving_with(slow, tmp_path, workers)) as running:
        port = running.port
        running.process.terminate()
        until(refused)
        (tmp_path / "end").touch()
        assert running.end() == 0
    # It was not killed, which would close the port as well.
    assert (tmp_path / "ended").exists()


def test_additional_router_with_a_route_without_a_path_is_refused(tmp_path: Path) -> None:
    router = APIRouter()
    router.add_api_route("", lambda: "mine")
    with pytest.raises(ConfigError, match="additional_routers: a route without a path"):
        app_of(tmp_path, answer, additional_routers=[router])


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        (
            {"request_interceptors": lambda request: None},
            r"request_interceptors: .* cannot be called with \(request, context\): too many",
        ),
        (
            {"response_interceptors": [lambda a, b: None, 5]},
            r"response_interceptors: 5 is no function of \(response, context\)",
        ),
        ({"on_event": lambda: None}, r"on_event: .* cannot be called with \(event\): too many"),
        ({"on_event": 5}, r"on_event: 5 is no function of \(event\)"),
        ({"commands": True}, r"commands takes a LocalShell, not True"),
        ({"commands": LocalShell}, r"commands takes a LocalShell, not <class .*LocalShell'>"),
        ({"name": 5}, "name takes a text, not 5"),
        ({"description": 5}, "description takes a text, not 5"),
        ({"system_prompt": ["a"]}, r"system_prompt takes a text, not \['a'\]"),
        ({"system_context": 5}, r"system_context: 5 is no function of \(context\)"),
        ({"system_context": lambda: "x"}, r"system_context: .* cannot be called with \(context\)"),
        ({"tools": answer}, "tools takes a list of tools, not <function answer"),
        ({"tools": None}, "tools takes a list of tools, not None"),
        ({"tools": {"answer": answer}}, "tools takes a list of tools, not {'answer': <function"),
        ({"tools": "answer"}, "tools takes a list of tools, not 'answer'"),
        ({"model_config": 5}, "model_config takes a dict, not 5"),
    ],
)
def test_wrong_option_of_an_agent_is_told_where_it_is_made(
    options: dict[str, Any], expected: str
) -> None:
    with pytest.raises(TypeError, match=expected):
        Agent(model="offline", **options)


def test_tools_may_come_from_a_generator() -> None:
    agent = Agent(model="offline", tools=(made for made in [tool(answer)]))  # type: ignore[arg-type]
    assert list(agent.tools) == ["answer"]


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ({"requires_approval": "no"}, "requires_approval must be true or false, not 'no'"),
        ({"requires_approval": None}, "requires_approval must be true or false, not None"),
        ({"idempotent": 1}, "idempotent must be true or false, not 1"),
        ({"description": 5}, "description must be a text or None, not 5"),
        ({"title": 5}, "title must be a text or None, not 5"),
        ({"read_only": "x"}, "read_only must be true, false or None, not 'x'"),
        ({"destructive": 1}, "destructive must be true, false or None, not 1"),
        ({"editable": 5}, "editable takes a list of names, not 5"),
    ],
)
def test_wrong_option_of_a_tool_is_told_where_it_is_made(
    options: dict[str, Any], expected: str
) -> None:
    with pytest.raises(TypeError, match=f"tool 'answer': {expected}"):
        tool(**options)(answer)


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ({"workdir": 5}, "workdir must be a path, not 5"),
        ({"timeout": "60"}, "timeout must be seconds, not '60'"),
        ({"timeout": True}, "timeout must be seconds, not True"),
        ({"max_output": 1.5}, "max_output must be a number of bytes, not 1.5"),
        ({"env": "A=b"}, "env must be a dict or a function of the context, not 'A=b'"),
    ],
)
def test_wrong_option_of_a_shell_is_told_where_it_is_made(
    options: dict[str, Any], expected: str
) -> None:
    with pytest.raises(TypeError, match=f"LocalShell: {expected}"):
        LocalShell(**options)


def test_configuration_that_is_none_is_told(tmp_path: Path) -> None:
    wrong: Any = {"server": {"port": 8000}}
    with pytest.raises(TypeError, match=r"config takes a Config.*, not dict"):
        create_app(answer, config=wrong)


@pytest.mark.parametrize(
    ("plugins", "expected"),
    [
        (5, "plugins takes a list of plugin objects, not 5"),
        ("v1", "plugins takes a list of plugin objects, not 'v1'"),
        (["v1"], r"not \['v1'\]; installed ones are chosen by name .*Config\(plugins="),
        ([5], r"plugin 'int' has no hooks; mark its functions with @hookimpl"),
    ],
)
def test_given_plugins_that_are_none_are_told(tmp_path: Path, plugins: Any, expected: str) -> None:
    with pytest.raises((TypeError, PluginError), match=expected):
        app_of(tmp_path, answer, plugins=plugins)


@pytest.mark.parametrize(
    ("model", "named"),
    [
        (7, "int"),
        (Scripted, r"the class Scripted; give an instance: Scripted\(\)"),
        (SimpleNamespace(stream=print), "give SimpleNamespace a text as 'provider'"),
        (SimpleNamespace(stream=print, provider="own"), "give SimpleNamespace a text as 'name'"),
    ],
)
def test_what_is_no_model_stops_the_start(tmp_path: Path, model: Any, named: str) -> None:
    with pytest.raises(ValueError, match=f"the agent's model is no Model: {named}"):
        app_of(tmp_path, Agent(model=model))


class Returning(Scripted):
    """A model whose author awaits where a generator yields."""

    async def stream(self, ask: Any) -> Any:  # type: ignore[override]
        return []


def test_model_that_does_not_stream_is_told_where_the_agent_is_made() -> None:
    with pytest.raises(TypeError, match="'stream' of .* must be an async generator"):
        Agent(model=Returning([]))


def test_configuration_wins_over_the_model_config_of_the_agent(tmp_path: Path) -> None:
    overrides = {"approvals.ledger": "memory://", "server.state_dir": str(tmp_path / "state")}
    config = load_config(
        environ={"SAYSO_MODEL__TEMPERATURE": "0.2"}, directory=tmp_path, overrides=overrides
    )
    agent = Agent(model="offline", model_config={"temperature": 0.7, "max_tokens": 100})
    merged = create_app(agent, config=config).host.engine.model_config
    assert merged == {"temperature": 0.2, "max_tokens": 100}
