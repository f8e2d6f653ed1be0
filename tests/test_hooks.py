"""Each hook works as documented, and a failing plugin affects nothing else."""

from __future__ import annotations

import asyncio
import inspect
import logging
import os
import subprocess
import sys
import textwrap
import threading
import time
from collections.abc import AsyncIterator, Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from fastapi import APIRouter
from websockets.exceptions import InvalidStatus
from websockets.sync.client import connect

from sayso import (
    Agent,
    AgentEvent,
    AgentMessage,
    Blocked,
    Call,
    Caller,
    ChatRequest,
    Host,
    KeptBeside,
    Message,
    Notes,
    Observer,
    Plugin,
    PluginError,
    Removed,
    RequestContext,
    ServiceHost,
    Silence,
    Subject,
    ToolExecuted,
    TooMany,
    TurnBegan,
    TurnEnded,
    Unauthenticated,
    cli,
    hookimpl,
    tool,
)
from sayso.config import Config
from sayso.hookspecs import HOOKS
from sayso.plugins import Plugins
from sayso.testing import Served, Service, scripted, served, user
from slow import few


def talkative(times: int = 20) -> Agent:
    """An agent that answers "fine" to each message."""
    return Agent(model=scripted(*["fine"] * times))


def made(name: str, **hooks: Callable[..., Any]) -> Plugin:
    """A plugin of functions."""
    marked = {hook: hookimpl(function) for hook, function in hooks.items()}
    plugin: Plugin = type("Made", (Plugin,), {"name": name, **marked})()
    return plugin


def test_each_hook_has_a_test() -> None:
    tests = {name.removeprefix("test_hook_") for name in globals() if name.startswith("test_hook_")}
    assert tests == set(HOOKS)


def test_hook_register_routes(sayso_served: Served) -> None:
    def register_routes(self: Plugin, host: Host) -> APIRouter:
        router = APIRouter()

        @router.get("/agent/{field}")
        async def about(field: str) -> dict[str, str]:
            return {field: getattr(host.agent, field)}

        return router

    def none(self: Plugin) -> None:
        return None

    plugins = [made("about", register_routes=register_routes), made("none", register_routes=none)]
    service = sayso_served(Agent(name="kube", model="offline"), plugins)
    assert service.get("/agent/name").json() == {"name": "kube"}
    assert "GET /agent/{field}" in service.routes


class TestInterceptRequest:
    """The allowed results of an implementation, and their effects."""

    def reply(self, served: Served, *functions: Callable[..., Any]) -> tuple[Any, Any]:
        """The reply to "hello", and the asks of the model."""
        model = scripted(*["fine"] * 2)
        plugins = [made(f"p{n}", intercept_request=f) for n, f in enumerate(functions)]
        service = served(Agent(model=model), plugins)
        return service.chat("hello"), model.asks

    def test_change_in_place_counts(self, sayso_served: Served) -> None:
        async def change(self: Plugin, request: ChatRequest) -> None:
            request.messages[-1].content += " there"

        _, asks = self.reply(sayso_served, change)
        assert "hello there" in str(asks[0].turns)

    def test_each_sees_what_the_one_before_made(self, sayso_served: Served) -> None:
        def first(self: Plugin, request: ChatRequest) -> ChatRequest:
            return ChatRequest(messages=[Message(role="user", content="first")])

        async def second(self: Plugin, request: ChatRequest) -> None:
            request.messages[-1].content += ", second"

        _, asks = self.reply(sayso_served, first, second)
        assert "first, second" in str(asks[0].turns)

    def test_answer_ends_the_turn_without_the_model(self, sayso_served: Served) -> None:
        def answer(self: Plugin) -> AgentMessage:
            return AgentMessage(content="I know that")

        def never(self: Plugin) -> None:
            raise AssertionError("called after an answer")

        reply, asks = self.reply(sayso_served, answer, never)
        assert (reply["content"], asks) == ("I know that", [])

    def test_block_and_silence_are_answers(self, sayso_served: Served) -> None:
        def block(self: Plugin) -> None:
            raise Blocked("not here", code="NO")

        async def silence(self: Plugin) -> None:
            raise Silence("nobody asked")

        reply, asks = self.reply(sayso_served, block)
        assert reply["content"] == "not here"
        assert reply["meta_data"] == {"blocked": {"code": "NO"}, "stop_reason": "blocked"}
        reply, asks = self.reply(sayso_served, silence)
        assert (reply["content"], asks) == ("", [])

    def test_context_is_for_one_request(self, sayso_served: Served) -> None:
        def message(self: Plugin, request: ChatRequest, context: RequestContext) -> None:
            context.add_system_context(request.messages[-1].content)

        model = scripted("a", "b")
        service = sayso_served(Agent(model=model), [made("p", intercept_request=message)])
        service.chat("one")
        service.chat("two")
        assert [ask.context for ask in model.asks] == ["one", "two"]


def test_hook_intercept_request(sayso_served: Served) -> None:
    ran: list[str] = []

    @tool(requires_approval=True)
    def delete() -> str:
        ran.append("delete")
        return "deleted"

    def block(self: Plugin, context: RequestContext, host: Host) -> None:
        assert host.agent.tools
        if context.has_decision:
            raise Blocked("not today")

    agent = Agent(model=scripted([Call("1", "delete", {})], "gone"), tools=[delete])
    service = sayso_served(agent, [made("guard", intercept_request=block)])
    talk = service.conversation()
    talk.say("delete it")
    proposed = list(talk.messages)
    assert talk.approve()["content"] == "not today"
    # A block has no side effect: the call is still pending.
    assert ran == []
    reply = service.conversation(*proposed).reject()
    assert reply["content"] == "not today"


def test_hook_intercept_response(sayso_served: Served) -> None:
    seen: list[Any] = []

    def first(self: Plugin, response: AgentMessage, request: ChatRequest) -> AgentMessage:
        seen.append(request.messages[-1].content)
        return AgentMessage(content=response.content.upper())

    async def second(self: Plugin, response: AgentMessage, context: RequestContext) -> None:
        response.content += "!"
        response.meta_data["source"] = context.source

    plugins = [made("a", intercept_response=first), made("b", intercept_response=second)]
    service = sayso_served(talkative(), plugins)
    reply = service.chat("hello")
    assert (reply["content"], reply["meta_data"]) == ("FINE!", {"source": "help-desk"})
    events = service.stream("hello")
    assert "".join(e["text"] for e in events if e["type"] == "text_delta") == "FINE!"
    assert "fine" not in str(events)
    assert seen == ["hello", "hello"]


def test_hook_on_event(sayso_served: Served) -> None:
    received: list[str] = []

    async def on_event(self: Plugin, event: Any, host: Host) -> None:
        received.append(event.event_type)

    service = sayso_served(talkative(), [made("ears", on_event=on_event)])
    service.chat("hello")
    assert received == ["ConversationStarted", "MessageAdded", "MessageAdded"]


def test_plugin_that_is_named_as_the_agents_own_is_called_as_any_other(
    sayso_served: Served,
) -> None:
    received: list[str] = []

    def intercept_request(self: Plugin, request: ChatRequest) -> None:
        received.append(threading.current_thread().name)

    def on_event(self: Plugin, event: Any) -> None:
        received.append(threading.current_thread().name)

    plugin = made("agent", intercept_request=intercept_request, on_event=on_event)
    assert sayso_served(talkative(), [plugin]).chat("hello")["content"] == "fine"
    assert len(received) == 4
    assert "sayso-engine" not in received


def test_hook_observe(sayso_served: Served) -> None:
    seen: list[str] = []

    class Watches(Observer):
        def turn(self, began: TurnBegan) -> Callable[[TurnEnded], None]:
            seen.append(f"began over {began.caller.protocol}")
            return lambda ended: seen.append(f"ended with {ended.stop}")

    def observe(self: Plugin, host: Host) -> Observer:
        seen.append(f"observes {host.agent.name}")
        return Watches()

    service = sayso_served(talkative(), [made("watcher", observe=observe)])
    service.chat("hello")
    assert seen == ["observes assistant", "began over v2", "ended with end_turn"]


def test_hook_admit(sayso_served: Served) -> None:
    asked: list[str] = []

    @asynccontextmanager
    async def admit(self: Plugin, caller: Caller, asks: str) -> AsyncIterator[None]:
        if len(asked) == 2:
            raise TooMany("not so fast", retry_after=2.5)
        asked.append(asks)
        yield
        asked.append("left")

    service = sayso_served(talkative(), [made("door", admit=admit)])
    service.chat("hello")
    assert asked == ["turn", "left"]
    answer = service.ask("hello")
    assert (answer.status, answer.headers["retry-after"]) == (429, "3")
    assert answer.json()["code"] == "RATE_LIMITED"


def test_admit_may_be_async_and_its_failure_is_named_with_its_plugin(
    sayso_served: Served,
) -> None:
    wrong: list[Any] = [None, 5]

    async def admit(self: Plugin, asks: str) -> Any:
        return wrong.pop(0)

    service = sayso_served(talkative(), [made("door", admit=admit)])
    assert service.chat("hello")["content"] == "fine"
    for _ in range(2):  # a wrong value, and an exception
        answer = service.ask("hello")
        assert answer.status == 500
        assert answer.json()["detail"] == "admit of plugin 'door' failed"


def test_hook_lifespan() -> None:
    log: list[str] = []
    loops: list[Any] = []

    def living(name: str) -> Plugin:
        @asynccontextmanager
        async def lifespan(self: Plugin, host: Host) -> AsyncIterator[None]:
            loops.append(asyncio.get_running_loop())
            log.append(f"{name} in")
            yield
            log.append(f"{name} out")

        return made(name, lifespan=lifespan)

    with served(talkative(), [living("a"), living("b")]) as service:
        assert log == ["a in", "b in"]
        assert service.chat("hello")["content"] == "fine"
    assert log == ["a in", "b in", "b out", "a out"]
    assert len(set(loops)) == 1


def test_hook_resources() -> None:
    state: dict[str, Any] = {}

    @asynccontextmanager
    async def resources(self: Plugin, host: Host) -> AsyncIterator[None]:
        state["loop"], state["pool"] = asyncio.get_running_loop(), "open"
        yield
        state["pool"] = "closed"

    @tool
    async def query() -> str:
        """Query the pool."""
        return f"{state['pool']}, {asyncio.get_running_loop() is state['loop']}"

    model = scripted([Call("1", "query", {})], "done")
    with served(Agent(model=model, tools=[query]), [made("pool", resources=resources)]) as service:
        service.chat("query")
        assert "open, True" in str(model.asks[1].turns[-1])
    assert state["pool"] == "closed"


def test_resources_and_handlers_serve_a_claimed_call_that_outlives_its_client_and_the_service(
    tmp_path: Path,
) -> None:
    seen: list[str] = []
    started = threading.Event()

    @asynccontextmanager
    async def resources(self: Plugin, host: Host) -> AsyncIterator[None]:
        self.pool, self.host = "open", host
        yield
        self.pool = "closed"

    def on_event(self: Plugin, event: AgentEvent) -> None:
        if isinstance(event, ToolExecuted):
            seen.append(f"told: {self.pool}")

    plugin = made("pool", resources=resources, on_event=on_event)

    @tool(requires_approval=True)
    def query() -> str:
        """Query the pool."""
        started.set()
        while not plugin.host.stopping:
            time.sleep(0.01)
        time.sleep(0.3)
        seen.append(f"ran: {plugin.pool}")
        return "done"

    async def use() -> None:
        agent = Agent(model=scripted([Call("1", "query", {})]), tools=[query])
        sections = {"plugins": [], "server": {"state_dir": tmp_path}}
        host = ServiceHost.create(agent, Config.model_validate(sections), [plugin])
        async with host.life():
            who = Caller("v2")
            reply = await host.chat(ChatRequest(messages=[Message(**user("query"))]), who)
            (call,) = reply.data.tool_calls
            data = {"tool_calls": [{**call.model_dump(), "execute": True}]}
            deciding = ChatRequest(messages=[Message(**user("", data=data))])
            leaves = asyncio.ensure_future(host.chat(deciding, who))
            await asyncio.to_thread(started.wait)
            leaves.cancel()

    asyncio.run(use())
    assert seen == ["ran: open", "told: open"]


def test_hook_authenticate(sayso_served: Served) -> None:
    def by_key(self: Plugin, headers: Mapping[str, str]) -> str | None:
        return {"k1": "ann"}.get(headers.get("x-key", ""))

    async def by_path(self: Plugin, headers: Mapping[str, str], scope: Mapping[str, Any]) -> str:
        if headers.get("x-banned"):
            raise Unauthenticated("you are banned")
        return "guest" if scope["path"] == "/api/chat" else None  # type: ignore[return-value]

    principals: list[Any] = []

    def note(self: Plugin, context: RequestContext) -> None:
        principals.append(context.principal)

    plugins = [
        made("a", authenticate=by_key, intercept_request=note),
        made("b", authenticate=by_path),
    ]
    service = sayso_served(talkative(), plugins)
    body = {"messages": [user("hello")]}
    assert service.post("/api/chat", body, {"X-Key": "k1"}).status == 200
    assert service.post("/api/chat", body, {"X-Key": "k2"}).status == 200
    refused = service.post("/api/chat-stream", body)
    assert (refused.status, refused.json()["code"]) == (401, "UNAUTHENTICATED")
    banned = service.post("/api/chat", body, {"X-Banned": "1"})
    assert (banned.status, banned.json()["detail"]) == (401, "you are banned")
    assert service.get("/health").status == 200
    assert principals == ["ann", "guest"]


def test_hook_erase_subject(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    async def erase_subject(self: Plugin, subject: Subject, kept: KeptBeside) -> Removed:
        def work(notes: Notes) -> int:
            mine = notes.find(f"drafts/{subject.principal}/")
            for name in mine:
                notes.put(name, None)
            return len(mine)

        assert kept.folders == [kept.config.server.state_dir]
        return Removed("draft", await kept.notes(work))

    drafts = made("drafts", erase_subject=erase_subject)
    load = Plugins.load
    monkeypatch.setattr(Plugins, "load", lambda config, given=(): load(config, [*given, drafts]))
    file = tmp_path / "sayso.toml"
    file.write_text(
        f'plugins = ["v2"]\n[approvals]\nledger = "sqlite:///{tmp_path / "approvals.db"}"\n'
        f'[server]\nhost = "127.0.0.1"\nstate_dir = "{tmp_path / "state"}"\n'
    )

    def left(service: Service) -> list[str]:
        found: list[str] = asyncio.run(service.host.record.notes(lambda n: [*n.find("drafts/")]))
        return found

    with served(talkative(), config=file) as service:
        for name in ("drafts/ann/1", "drafts/ann/2", "drafts/bob/1"):
            asyncio.run(service.host.record.notes(lambda notes, name=name: notes.put(name, "x")))
        assert cli.run(["-c", str(file), "erase", "--yes", "--principal", "ann"]) == 0
        assert "erased 2 drafts\n" in capsys.readouterr().out
        assert left(service) == ["drafts/bob/1"]


def test_hook_register_commands(tmp_path: Path) -> None:
    install(
        tmp_path,
        "greet",
        """
        import click
        from sayso import hookimpl

        @hookimpl
        def register_commands(cli):
            @cli.command()
            @click.argument("name")
            def greet(name):
                click.echo(f"hello {name}")
        """,
    )
    done = sayso(tmp_path, "greet", "Ann")
    assert (done.returncode, done.stdout) == (0, "hello Ann\n"), done.stderr


def install(folder: Path, name: str, source: str) -> None:
    """Put a distribution with the plugin `name` into `folder`, as an installer does."""
    info = folder / f"dist_{name}-1.5.dist-info"
    info.mkdir()
    (info / "METADATA").write_text(
        f"Metadata-Version: 2.1\nName: dist-{name}\nVersion: 1.5\nRequires-Dist: sayso\n", "utf-8"
    )
    (info / "entry_points.txt").write_text(f"[sayso]\n{name} = plug_{name}\n", "utf-8")
    (folder / f"plug_{name}.py").write_text(textwrap.dedent(source), "utf-8")


def sayso(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", "from sayso.cli import main; main()", *arguments],
        cwd=folder,
        env={**os.environ, "PYTHONPATH": str(folder)},
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )


ROUTE = """
    from sayso import hookimpl
    from fastapi import APIRouter

    @hookimpl
    def register_routes(host):
        router = APIRouter()
        router.add_api_route("/mine", lambda: None)
        return router
"""
# Extension modules in Rust raise an exception that is no Exception.
PANIC = "class Panic(BaseException): ...\n"
BROKEN = {
    "raises at import": ("raise OSError('no disk')", "cannot be imported: OSError: no disk"),
    "hangs at import": ("import time; time.sleep(60)", "did not come back within 3 seconds"),
    "has a wrong argument": (
        "from sayso import hookimpl\n@hookimpl\ndef on_event(evnt): pass",
        "'on_event' has the argument 'evnt'; the hook is on_event(event, host)",
    ),
    "claims a route": (ROUTE, "GET /mine is claimed by 'good' and by plugin 'bad'"),
    "covers a route": (
        ROUTE.replace('"/mine"', '"/{rest:path}"'),
        "GET /{rest:path} of plugin 'bad' covers GET /mine of plugin 'good'",
    ),
    "raises at start": (
        "from sayso import hookimpl\n@hookimpl\ndef lifespan(host): raise OSError('no port')",
        "lifespan raised OSError: no port",
    ),
    "hangs in its resources": (
        "import time\nfrom sayso import hookimpl\n@hookimpl\ndef resources(host): time.sleep(60)",
        "resources did not start within 3 seconds",
    ),
    "hangs for a while in its resources": (
        "import time\nfrom sayso import hookimpl\n@hookimpl\ndef resources(host): time.sleep(6)",
        "resources did not start within 3 seconds",
    ),
    "exits in its resources": (
        "import sys\nfrom sayso import hookimpl\n@hookimpl\ndef resources(host): sys.exit('no')",
        "resources raised SystemExit: no",
    ),
    "panics in its routes": (
        f"{PANIC}from sayso import hookimpl\n@hookimpl\ndef register_routes(host): raise Panic()",
        "register_routes raised Panic (",
    ),
    "panics at start": (
        f"{PANIC}from sayso import hookimpl\n@hookimpl\ndef lifespan(host): raise Panic('no')",
        "lifespan raised Panic: no",
    ),
    "panics in its resources": (
        f"{PANIC}from sayso import hookimpl\n@hookimpl\ndef resources(host): raise Panic('no')",
        "resources raised Panic: no",
    ),
    "hangs at start": (
        "import time\nfrom sayso import hookimpl\n@hookimpl\ndef lifespan(host): time.sleep(60)",
        "lifespan did not start within 3 seconds",
    ),
}


@pytest.mark.parametrize("case", few(BROKEN, "panics at start", "hangs at start"))
def test_broken_plugin_stops_the_start_with_one_line(tmp_path: Path, case: str) -> None:
    source, cause = BROKEN[case]
    # Beside a hanging plugin, good and bad ones get little time, so they must do little.
    hangs = case.startswith("hangs")
    light = "from sayso import hookimpl\n@hookimpl\ndef on_event(event): pass"
    install(tmp_path, "good", light if hangs else ROUTE)
    install(tmp_path, "bad", source)
    (tmp_path / "ops.py").write_text("def agent(messages, context):\n    return 'fine'\n")
    (tmp_path / "sayso.toml").write_text(
        'agent = "ops.py"\nplugins = ["good", "bad"]\n'
        f'[server]\nport = 0\nstart_timeout = {3 if hangs else 120}\nhost = "127.0.0.1"\n'
        'state_dir = "state"\n'
    )
    done = sayso(tmp_path, "serve")
    assert done.returncode == 1
    (line,) = [line for line in done.stderr.splitlines() if line.startswith("sayso: ")]
    assert cause in line
    assert ("'bad'" if case.endswith("a route") else "'bad' (distribution ") in line
    assert "Traceback" not in done.stderr


LATE = """
    import asyncio
    from contextlib import asynccontextmanager
    from sayso import hookimpl

    @hookimpl
    @asynccontextmanager
    async def lifespan(host):
        print("begun", flush=True)
        try:
            await asyncio.sleep(600)
            yield
        finally:
            print("left", flush=True)
"""


@pytest.mark.parametrize("workers", ["1", "2"])
def test_start_that_takes_its_time_ends_at_once_when_the_service_is_told_to(
    tmp_path: Path, workers: str
) -> None:
    install(tmp_path, "late", LATE)
    (tmp_path / "ops.py").write_text("def agent(messages, context):\n    return 'fine'\n")
    (tmp_path / "sayso.toml").write_text(
        'agent = "ops.py"\nplugins = ["late"]\n'
        '[server]\nport = 0\nhost = "127.0.0.1"\nstart_timeout = 600\nstate_dir = "state"\n'
    )
    serving = subprocess.Popen(
        [sys.executable, "-m", "sayso", "serve", "--workers", workers],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(tmp_path)},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        assert serving.stdout is not None
        assert serving.stdout.readline() == "begun\n"
        serving.terminate()
        out, err = serving.communicate(timeout=120)
    finally:
        serving.kill()
    assert (serving.returncode, "left" in out, "Traceback" in err) == (0, True, False)


def fail(*arguments: object) -> Any:
    raise OSError("hunter2")


def wrong(*arguments: object) -> Any:
    return 5


async def fail_later(*arguments: object) -> Any:
    await asyncio.sleep(0)
    raise OSError("hunter2")


def leave(*arguments: object) -> Any:
    raise SystemExit(3)


def cancelled(*arguments: object) -> Any:
    raise asyncio.CancelledError


async def leave_later(*arguments: object) -> Any:
    await asyncio.sleep(0)
    raise SystemExit(3)


async def cancelled_later(*arguments: object) -> Any:
    await asyncio.sleep(0)
    raise asyncio.CancelledError


FAILING = [fail, fail_later, leave, leave_later, cancelled, cancelled_later]


class TestFailuresInATurn:
    """A turn in which a plugin fails is a failed turn, and nothing else."""

    def only_when_asked(self, function: Callable[..., Any]) -> Callable[..., Any]:
        async def implementation(self: Plugin, request: ChatRequest) -> Any:
            if "fail" in request.messages[-1].content:
                result = function()
                return await result if inspect.isawaitable(result) else result
            return None

        def plain(self: Plugin, request: ChatRequest) -> Any:
            return function() if "fail" in request.messages[-1].content else None

        return implementation if inspect.iscoroutinefunction(function) else plain

    @pytest.mark.parametrize("hook", ["intercept_request", "intercept_response"])
    @pytest.mark.parametrize("function", [*FAILING, wrong])
    def test_interceptor(
        self, sayso_served: Served, hook: str, function: Callable[..., Any]
    ) -> None:
        plugin = made("bad", **{hook: self.only_when_asked(function)})
        service = sayso_served(talkative(), [plugin])
        body = {"messages": [user("fail please")]}
        failed = service.post("/api/chat", body)
        assert (failed.status, failed.json()["code"]) == (500, "AGENT_ERROR")
        assert "plugin 'bad'" in failed.json()["detail"]
        assert failed.json()["incident"]
        first = service.post("/api/sendMessage", body)
        assert first.status == 500
        assert first.json()["detail"].startswith("Agent returned an invalid message")
        for path in ("/api/chat-stream", "/api/sendMessageStream"):
            last = service.post(path, body).events[-1]
            assert (last["type"], last["code"]) == ("error", "AGENT_ERROR")
            assert "hunter2" not in str(last)
        assert "hunter2" not in failed.text + first.text
        assert service.chat("hello")["content"] == "fine"
        assert service.get("/health").status == 200

    def test_failing_turns_harm_no_others_that_run_beside_them(self, sayso_served: Served) -> None:
        meeting = threading.Barrier(8, timeout=60)

        def intercept(self: Plugin, request: ChatRequest) -> None:
            meeting.wait()
            if "fail" in request.messages[-1].content:
                raise OSError("only mine")

        service = sayso_served(talkative(), [made("bad", intercept_request=intercept)])
        with ThreadPoolExecutor(8) as pool:
            said = ["fail", "hello"] * 4
            answers = list(pool.map(service.ask, said))
        assert [answer.status for answer in answers] == [500, 200] * 4
        assert {a.json()["content"] for a in answers if a.status == 200} == {"fine"}

    def test_blocking_interceptor_delays_no_other_turn(self, sayso_served: Served) -> None:
        blocked, release = threading.Event(), threading.Event()

        async def intercept(self: Plugin, request: ChatRequest) -> None:
            if "block" in request.messages[-1].content:
                blocked.set()
                release.wait(120)

        service = sayso_served(talkative(), [made("bad", intercept_request=intercept)])
        with ThreadPoolExecutor(1) as pool:
            slow = pool.submit(service.chat, "block")
            assert blocked.wait(60)
            assert service.chat("hello")["content"] == "fine"
            assert service.get("/health").status == 200
            assert not slow.done()
            release.set()
            assert slow.result(60)["content"] == "fine"

    @pytest.mark.parametrize("function", FAILING)
    def test_event_handler_is_logged_and_the_next_one_is_called(
        self,
        sayso_served: Served,
        caplog: pytest.LogCaptureFixture,
        function: Callable[..., Any],
    ) -> None:
        received: list[Any] = []

        def broken(self: Plugin, event: Any) -> Any:
            return function()

        def note(self: Plugin, event: Any) -> None:
            received.append(event)

        plugins = [made("bad", on_event=broken), made("good", on_event=note)]
        service = sayso_served(talkative(), plugins)
        with caplog.at_level(logging.ERROR, "sayso"):
            assert service.chat("hello")["content"] == "fine"
        assert len(received) == 3
        assert caplog.text.count("plugin bad: on_event failed") == 3

    def test_event_handler_that_hangs_is_left(
        self, sayso_served: Served, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr("sayso.engine._HANDLER_SECONDS", 0.1)

        async def hang(self: Plugin, event: Any) -> None:
            await asyncio.sleep(600)

        service = sayso_served(talkative(), [made("bad", on_event=hang)])
        assert service.chat("hello")["content"] == "fine"

    def test_event_handler_that_blocks_its_loop_is_left(
        self, sayso_served: Served, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr("sayso.engine._HANDLER_SECONDS", 0.1)
        release = threading.Event()

        async def block(self: Plugin, event: Any) -> None:
            release.wait(120)

        async def answer(messages: Any, context: Any) -> str:
            return "fine"

        service = sayso_served(answer, [made("bad", on_event=block)])
        try:
            assert service.chat("hello")["content"] == "fine"
        finally:
            release.set()

    def test_event_handler_of_the_agent_that_hangs_keeps_nothing_from_its_others(
        self, sayso_served: Served, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr("sayso.engine._HANDLER_SECONDS", 1.0)
        received: list[tuple[int, str]] = []

        async def hang(event: Any) -> None:
            await asyncio.sleep(600)

        def listening(number: int) -> Callable[[Any], None]:
            return lambda event: received.append((number, event.event_type))

        handlers = [hang, *(listening(n) for n in range(12))]
        agent = Agent(model=scripted("fine"), on_event=handlers)
        service = sayso_served(agent)
        assert service.chat("hello")["content"] == "fine"
        kinds = ["ConversationStarted", "MessageAdded", "MessageAdded"]
        assert received == [(n, kind) for kind in kinds for n in range(12)]
        (own,) = [p for p in service.host.plugins.info() if p.name == "agent"]
        assert own.hooks == ("on_event",)

    @pytest.mark.parametrize("function", FAILING)
    def test_authentication_refuses(
        self, sayso_served: Served, function: Callable[..., Any]
    ) -> None:
        def authenticate(self: Plugin, headers: Mapping[str, str]) -> Any:
            return function() if "x-fail" in headers else "ann"

        service = sayso_served(talkative(), [made("bad", authenticate=authenticate)])
        body = {"messages": [user("hello")]}
        failed = service.post("/api/chat", body, {"X-Fail": "1"})
        assert (failed.status, failed.json()["code"]) == (500, "AGENT_ERROR")
        assert "plugin 'bad'" in failed.json()["detail"]
        assert "hunter2" not in failed.text
        assert service.post("/api/chat", body).status == 200
        assert service.get("/health").status == 200

    @pytest.mark.parametrize("named", [False, True, "", " ", 5, b"ann", {"name": "ann"}, []])
    def test_authentication_by_what_is_no_name_lets_nobody_in(
        self, sayso_served: Served, named: object
    ) -> None:
        plugin = made("bad", authenticate=lambda self: named)
        service = sayso_served(talkative(), [plugin])
        failed = service.post("/api/chat", {"messages": [user("hello")]})
        assert (failed.status, failed.json()["code"]) == (500, "AGENT_ERROR")
        assert "plugin 'bad'" in failed.json()["detail"]
        with pytest.raises(InvalidStatus):
            connect(service.url.replace("http", "ws", 1) + "/api/chat-ws")
        assert service.get("/health").status == 200

    def test_authentication_that_hangs_lets_nobody_in(
        self, sayso_served: Served, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr("sayso.http.authentication.PATIENCE", 0.1)

        async def authenticate(self: Plugin) -> None:
            await asyncio.Event().wait()

        service = sayso_served(talkative(), [made("slow", authenticate=authenticate)])
        failed = service.post("/api/chat", {"messages": [user("hello")]})
        assert (failed.status, failed.json()["code"]) == (500, "AGENT_ERROR")
        assert "plugin 'slow'" in failed.json()["detail"]

    def test_authentication_that_hangs_at_the_end_of_the_service_is_told_so(
        self, sayso_served: Served, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr("sayso.listener.listener.CLOSING", 0.1)
        asked = threading.Event()

        async def authenticate(self: Plugin) -> None:
            asked.set()
            await asyncio.Event().wait()

        service = sayso_served(talkative(), [made("slow", authenticate=authenticate)])
        with ThreadPoolExecutor(1) as callers:
            answer = callers.submit(service.post, "/api/chat", {"messages": [user("hello")]})
            assert asked.wait(60)
            sayso_served.close()
        assert (answer.result().status, answer.result().json()["code"]) == (503, "BUSY")


class TestFailuresOfLife:
    """At the start a failure names the plugin; at the end the others are still left."""

    @pytest.mark.parametrize("hook", ["lifespan", "resources"])
    @pytest.mark.parametrize(
        ("start", "cause"),
        [
            (fail, "raised OSError: hunter2"),
            (lambda: asyncio.sleep(600), "did not start within 2 seconds"),
        ],
    )
    def test_start(self, hook: str, start: Callable[[], Any], cause: str) -> None:
        left: list[str] = []

        @asynccontextmanager
        async def bad(self: Plugin, host: Host) -> AsyncIterator[None]:
            await start()
            yield

        @asynccontextmanager
        async def good(self: Plugin, host: Host) -> AsyncIterator[None]:
            yield
            left.append("good")

        plugins = [made("good", **{hook: good}), made("bad", **{hook: bad})]
        with pytest.raises(PluginError, match=f"plugin 'bad': {hook} {cause}"):
            with served(talkative(), plugins, start_timeout=120 if start is fail else 2):
                pass
        assert left == ["good"]

    @pytest.mark.parametrize("hook", ["lifespan", "resources"])
    @pytest.mark.parametrize("end", [fail, lambda: asyncio.sleep(600)])
    def test_end(self, caplog: pytest.LogCaptureFixture, hook: str, end: Callable[[], Any]) -> None:
        left: list[str] = []

        @asynccontextmanager
        async def bad(self: Plugin, host: Host) -> AsyncIterator[None]:
            yield
            await end()

        @asynccontextmanager
        async def good(self: Plugin, host: Host) -> AsyncIterator[None]:
            yield
            left.append("good")

        plugins = [made("good", **{hook: good}), made("bad", **{hook: bad})]
        with caplog.at_level(logging.ERROR, "sayso.plugins"):
            limit = 120 if end is fail else 2
            with served(talkative(), plugins, start_timeout=limit) as service:
                assert service.chat("hello")["content"] == "fine"
        assert left == ["good"]
        assert f"plugin 'bad': {hook} failed at its end" in caplog.text

    def test_resources_that_block_their_loop_hold_up_no_end(
        self, caplog: pytest.LogCaptureFixture
    ) -> None:
        freed = threading.Event()

        @asynccontextmanager
        async def bad(self: Plugin, host: Host) -> AsyncIterator[None]:
            yield
            freed.wait(600)

        try:
            with caplog.at_level(logging.ERROR):
                with served(talkative(), [made("bad", resources=bad)], start_timeout=1) as service:
                    assert service.chat("hello")["content"] == "fine"
            assert not freed.is_set()
        finally:
            freed.set()
        assert "'bad': resources failed at its end: it took longer than 1 second" in caplog.text

    def test_turn_that_never_lets_go_of_home_holds_up_no_end(
        self, caplog: pytest.LogCaptureFixture
    ) -> None:
        freed = threading.Event()

        @asynccontextmanager
        async def opened(self: Plugin, host: Host) -> AsyncIterator[None]:
            yield

        async def block(self: Plugin, request: ChatRequest) -> None:
            freed.wait(600)

        plugin = made("bad", resources=opened, intercept_request=block)
        config = '[limits]\nturn_time = "2s"'
        try:
            with caplog.at_level(logging.ERROR):
                with served(talkative(), [plugin], config=config, start_timeout=1) as service:
                    assert service.ask("hello").status == 504
            assert not freed.is_set()
        finally:
            freed.set()
        assert "resources stay open: a turn blocks home for 1 second" in caplog.text

    def test_routes(self) -> None:
        plugin = made("bad", register_routes=lambda self: fail())
        with pytest.raises(PluginError, match="plugin 'bad': register_routes raised OSError"):
            with served(talkative(), [plugin]):
                pass


def test_service_gives_what_a_test_needs(sayso_served: Served) -> None:
    service: Service = sayso_served(talkative())
    assert service.url.startswith("http://127.0.0.1:")
    assert "POST /api/chat" in service.routes
    with pytest.raises(AssertionError, match="the service answered 422"):
        service.chat({"role": "robot", "content": "hello"})
    with pytest.raises(AssertionError, match="nothing of that waits"):
        service.conversation().approve()
