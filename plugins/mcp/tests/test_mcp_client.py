"""MCP servers' tools as the agent's own: gated, watched, and never trusted."""

from __future__ import annotations

import asyncio
import json
import logging
import sys
import threading
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, cast

import anyio
import mcp_types as types
import pytest
from mcp.shared.message import SessionMessage
from mcp_programs import FILESYSTEM, program

from ports import quiet_port
from sayso import (
    Agent,
    Call,
    Caller,
    Config,
    InvalidRequest,
    Outcome,
    ServiceHost,
    Session,
    ToolInputError,
    __version__,
    cli,
    tool,
)
from sayso.testing import scripted, served
from sayso_mcp import MCPServer, mcp_server
from sayso_mcp.asked import Asked
from sayso_mcp.asker import field_of
from sayso_mcp.connection import Connection
from sayso_mcp.lines import Lines

OLD = Path(__file__).with_name("old_server.py")
NEW = Path(__file__).with_name("new_server.py")
MODERN = "2026-07-28"
SOMEBODY = Caller("test")


@asynccontextmanager
async def using(folder: Path, *sources: Any) -> AsyncIterator[ServiceHost]:
    """A host whose agent has the tools of these servers."""
    agent = Agent(model="offline", tools=list(sources))
    server = {"state_dir": folder, "start_timeout": 180}
    config = Config.model_validate(
        {"plugins": [], "server": server, "approvals": {"ledger": "memory://"}}
    )
    host = ServiceHost.create(agent, config)
    async with host.life():
        yield host


def other(folder: Path, program: Path = OLD, **options: Any) -> MCPServer:
    return mcp_server([sys.executable, str(program), str(folder)], **options)


@pytest.fixture(autouse=True)
def patient(monkeypatch: pytest.MonkeyPatch) -> None:
    """Give a server more time to start than the service does by default."""
    monkeypatch.setattr("sayso_mcp.connection.FIRST", 120.0)


async def call(host: ServiceHost, name: str, /, **arguments: Any) -> Outcome:
    return await host.calls.run(name, arguments, SOMEBODY, session=Session())


def test_tools_are_gated_by_default_whatever_they_call_themselves(tmp_path: Path) -> None:
    async def run() -> None:
        async with using(tmp_path, other(tmp_path)) as host:
            assert set(host.agent.tools) == {
                "echo",
                "ask",
                "crash",
                "grow",
                "refuse",
                "odd_name",
                "environment",
            }
            for name, found in host.agent.tools.items():
                assert found.read_only is True
                assert host.calls.check(name, {}) == "require"
            with pytest.raises(RuntimeError, match="needs approval"):
                await call(host, "echo", text="x")
            row = await host.calls.propose("echo", {"text": "hello"}, SOMEBODY)
            ended = await host.calls.decide(row.id, SOMEBODY, approved=True)
            assert (ended.state, ended.output) == ("DONE", "hello")

    asyncio.run(run())


def test_patterns_choose_gate_and_rename(tmp_path: Path) -> None:
    async def run() -> None:
        source = other(
            tmp_path,
            include=["ec*", "odd*", "crash"],
            exclude=["*sh"],
            prefix="other_",
            requires_approval=["odd*"],
        )
        async with using(tmp_path, source) as host:
            assert set(host.agent.tools) == {"other_echo", "other_odd_name"}
            assert host.calls.check("other_odd_name", {}) == "require"
            assert (await call(host, "other_echo", text="hello")).output == "hello"
            with pytest.raises(ToolInputError):
                await call(host, "other_echo", text=1)

    asyncio.run(run())


def test_argument_of_a_servers_tool_may_have_any_name(tmp_path: Path) -> None:
    async def run() -> None:
        source = other(tmp_path, requires_approval=False)
        source.parts.append("named")
        async with using(tmp_path, source) as host:
            schema = host.agent.tools["named"].input_schema
            arguments = dict.fromkeys(schema["properties"], "value")
            assert "_request" in arguments
            outcome = await host.calls.run("named", arguments, SOMEBODY, session=Session())
            assert json.loads(outcome.output) == arguments

    asyncio.run(run())


def test_error_result_is_a_failed_call(tmp_path: Path) -> None:
    async def run() -> None:
        async with using(tmp_path, other(tmp_path, requires_approval=False)) as host:
            outcome = await call(host, "refuse", text="no")
            assert (outcome.state, outcome.output) == ("FAILED", "Error: no")

    asyncio.run(run())


PROGRAMS = pytest.mark.parametrize("program", [OLD, NEW], ids=["legacy", "2026-07-28"])


@PROGRAMS
@pytest.mark.parametrize("run_here", [True, False])
@pytest.mark.parametrize(("approved", "answer"), [(True, "accept"), (False, "decline")])
def test_question_of_the_server_waits_for_a_person(
    tmp_path: Path, eventually: Any, program: Path, approved: bool, answer: str, run_here: bool
) -> None:
    async def run() -> None:
        source = other(tmp_path, program, requires_approval=False)
        async with using(tmp_path, source) as host:
            asking = asyncio.ensure_future(call(host, "ask"))
            row = await waiting(host, eventually)
            assert row.input["question"] == "May I?"
            assert (row.input["tool"], row.input["answer"]) == ("ask", "ok")
            assert not [d for d in host.agent.definitions if d.name == row.name]
            caller = Caller("cli")
            await host.calls.decide(row.id, caller, approved=approved, run=run_here)
            assert (await asking).output == answer
            [row] = await rows(host)
            assert row.state == ("DONE" if approved else "REJECTED")

    asyncio.run(run())


BOOLEAN = {"type": "boolean"}
TEXT = {"type": "string"}


@pytest.mark.parametrize(
    ("properties", "required", "field"),
    [
        ({"ok": BOOLEAN}, [], "ok"),
        ({"approve": BOOLEAN, "reason": TEXT}, ["approve"], "approve"),
        ({"ok": BOOLEAN, "backups_too": BOOLEAN}, [], None),
        ({"ok": BOOLEAN, "backups_too": BOOLEAN}, ["ok", "backups_too"], None),
        ({"name": TEXT}, ["name"], None),
        ({"ok": BOOLEAN, "name": TEXT}, ["ok", "name"], None),
        ({}, [], None),
    ],
)
def test_yes_fills_the_one_field_that_it_can_be_meant_for(
    properties: Any, required: list[str], field: str | None
) -> None:
    schema = {"type": "object", "properties": properties, "required": required}
    form = types.ElicitRequestFormParams(message="May I?", requested_schema=schema)
    assert field_of(form) == field


@PROGRAMS
def test_question_of_a_call_that_has_ended_is_withdrawn(
    tmp_path: Path, eventually: Any, program: Path
) -> None:
    async def run() -> None:
        source = other(tmp_path, program, requires_approval=False, timeout=2)
        async with using(tmp_path, source) as host:
            assert (await call(host, "ask")).state == "INDETERMINATE"

            async def withdrawn() -> bool:
                return [row.state for row in await rows(host)] == ["REJECTED"]

            await eventually(withdrawn)

    asyncio.run(run())


@pytest.mark.parametrize("transport", ["streamable-http", "sse"])
def test_sayso_behind_sayso_asks_the_person_in_front(
    tmp_path: Path, serve: Any, eventually: Any, transport: str
) -> None:
    async def run() -> None:
        async with serve(transport=transport) as served:
            source = mcp_server(served.url, requires_approval=False)
            front = tmp_path / "front"
            front.mkdir()
            async with using(front, source) as host:
                asking = asyncio.ensure_future(call(host, "delete_pod", name="web-1"))
                row = await waiting(host, eventually)
                assert '"web-1"' in row.input["question"]
                assert served.ran.calls == []
                await host.calls.decide(row.id, Caller("console"), approved=True, run=False)
                assert (await asking).output == "deleted default/web-1"
                assert len(served.ran.calls) == 1
                [behind] = await served.proposals()
                assert (behind.state, behind.client) == ("DONE", f"sayso {__version__}")

    asyncio.run(run())


BEHIND = """
from sayso import Agent, tool

@tool(requires_approval=True)
def wipe(path: str) -> str:
    return f"wiped {path}"

agent = Agent(name="behind", model="offline", tools=[wipe])
"""


@pytest.mark.parametrize("held", [False, True])
@pytest.mark.parametrize(
    ("decision", "outcome"),
    [(["--approve"], "wiped /a"), (["--reject", "no"], "was rejected"), ([], "did not end")],
)
def test_chat_does_not_wait_for_a_question_that_it_could_answer(
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    decision: list[str],
    outcome: str,
    held: bool,
) -> None:
    def says(ask: Any) -> Any:
        (block,) = ask.turns[-1].blocks
        asked = getattr(block, "text", "") == "wipe"
        return Call("1", "wipe", {"path": "/a"}) if asked else f"{getattr(block, 'output', '')}."

    (tmp_path / "behind.py").write_text(BEHIND)
    behind = [sys.executable, "-m", "sayso", "mcp", str(tmp_path / "behind.py")]
    agent = Agent(
        model=scripted(*[says] * 4),
        tools=[
            mcp_server(
                [*behind, "--transport", "stdio"],
                requires_approval=False,
                env={"XDG_STATE_HOME": str(tmp_path)},
                timeout=60 if decision else 8,
            )
        ],
        response_interceptors=[lambda reply, _: reply] if held else [],
    )
    with served(agent, config='plugins = ["v2"]\n[server]\nstart_timeout = 180') as service:
        code = cli.run(["chat", service.url, "-m", "wipe", *decision])
    out, err = capsys.readouterr()
    assert code == 0
    assert outcome in out
    assert ("sayso approvals approve" in err) is not bool(decision)


async def rows(host: Any) -> list[Any]:
    """The proposals of the service."""
    found: list[Any] = await host.ledger.store.run(lambda tx: tx.find())
    return found


async def waiting(host: Any, eventually: Any) -> Any:
    """The question, once it is pending."""

    async def is_there() -> bool:
        return bool(await rows(host))

    await eventually(is_there)
    return (await rows(host))[0]


@PROGRAMS
def test_changes_are_heard(tmp_path: Path, eventually: Any, program: Path) -> None:
    async def run() -> None:
        source = other(tmp_path, program, requires_approval=False)
        async with using(tmp_path, source) as host:
            assert "grown" not in host.agent.tools
            await call(host, "grow")
            await eventually(lambda: "grown" in host.agent.tools)

    asyncio.run(run())


def test_environment_is_given(tmp_path: Path) -> None:
    async def run() -> None:
        source = other(tmp_path, requires_approval=False, env={"OTHER": "given"})
        async with using(tmp_path, source) as host:
            assert (await call(host, "environment")).output == "given"

    asyncio.run(run())


def test_crashed_server_is_started_again(tmp_path: Path, eventually: Any) -> None:
    async def run() -> None:
        source = other(tmp_path, requires_approval=False)
        async with using(tmp_path, source) as host:
            crashed = await call(host, "crash")
            assert crashed.state == "FAILED"
            assert "gave no result, and the call may have taken effect" in crashed.output

            async def answers() -> bool:
                return (await call(host, "echo", text="back")).output == "back"

            await eventually(answers)
            assert (tmp_path / "started").read_text().count("started") == 2
            assert set(host.agent.tools) >= {"echo", "crash"}

    asyncio.run(run())


BUSY = """
import json, sys, time
for line in sys.stdin:
    asked = json.loads(line)
    name = asked["method"].rpartition("/")[2]
    if "id" not in asked:
        continue
    answer = {"tools": [{"name": n, "inputSchema": {"type": "object"}} for n in ("fail", "work")]}
    if name == "initialize":
        version = asked["params"]["protocolVersion"]
        answer = {"protocolVersion": version, "capabilities": {"tools": {}},
                  "serverInfo": {"name": "busy", "version": "1"}}
    elif name == "call" and asked["params"]["name"] == "work":
        open(sys.argv[1] + "/working", "w").close()
        while not __import__("os").path.exists(sys.argv[1] + "/go"):
            time.sleep(0.02)
        answer = {"content": [{"type": "text", "text": "worked"}]}
    said = {"error": {"code": -32000, "message": "no"}} if name == "call" and asked[
        "params"]["name"] == "fail" else {"result": answer}
    print(json.dumps({"jsonrpc": "2.0", "id": asked["id"], **said}), flush=True)
"""


def test_server_that_is_busy_with_a_call_is_not_lost_by_another_that_failed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, eventually: Any
) -> None:
    async def run() -> None:
        program = tmp_path / "busy.py"
        program.write_text(BUSY)
        source = other(tmp_path, program, requires_approval=False)
        async with using(tmp_path, source) as host:
            monkeypatch.setattr("sayso_mcp.connection.FIRST", 0.05)
            failing = asyncio.create_task(call(host, "fail"))
            working = asyncio.create_task(call(host, "work"))
            assert (await failing).state == "FAILED"

            async def works() -> bool:
                return (tmp_path / "working").exists()

            await eventually(works)
            await asyncio.wait([working], timeout=0.5)
            (tmp_path / "go").touch()
            assert (await working).output == "worked"

    asyncio.run(run())


SILENT = """
import json, os, sys, time
open(sys.argv[1] + "/started", "a").write("started")
for line in sys.stdin:
    asked = json.loads(line)
    name = asked["method"].rpartition("/")[2]
    answer = {"tools": [{"name": n, "inputSchema": {"type": "object"}} for n in ("hang", "quick")]}
    if name == "initialize":
        version = asked["params"]["protocolVersion"]
        answer = {"protocolVersion": version, "capabilities": {"tools": {}},
                  "serverInfo": {"name": "deaf", "version": "1"}}
    elif name == "call":
        while asked["params"]["name"] == "hang":
            time.sleep(1)
        answer = {"content": [{"type": "text", "text": "here"}]}
    if "id" in asked:
        print(json.dumps({"jsonrpc": "2.0", "id": asked["id"], "result": answer}), flush=True)
"""


def test_server_that_answers_nothing_more_is_started_again_however_many_calls_come(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, eventually: Any
) -> None:
    monkeypatch.setattr("sayso_mcp.connection.AFTER_CALL", 0.5, raising=False)

    async def run() -> None:
        program = tmp_path / "deaf.py"
        program.write_text(SILENT)
        source = other(tmp_path, program, requires_approval=False, timeout=0.3)
        async with using(tmp_path, source) as host:
            assert (await call(host, "hang")).state == "INDETERMINATE"

            async def answers() -> bool:
                # At any moment some call has no answer.
                calls = []
                for _ in range(3):
                    calls.append(asyncio.create_task(call(host, "quick")))
                    await asyncio.wait(calls, timeout=0.1)
                return any([(await one).output == "here" for one in calls])

            await eventually(answers)
            assert (tmp_path / "started").read_text() == "started" * 2

    asyncio.run(run())


def test_server_that_dies_as_soon_as_it_is_connected_is_started_ever_more_seldom(
    tmp_path: Path,
    eventually: Any,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    monkeypatch.setattr("sayso_mcp.connection.SHORTEST", 0.01)

    async def run() -> None:
        program = tmp_path / "dying.py"
        program.write_text(f"{SILENT}    if name == 'list':\n        break\n")
        async with using(tmp_path, other(tmp_path, program)) as host:
            await eventually(lambda: caplog.text.count("is away") == 4)
            assert set(host.agent.tools) == {"hang", "quick"}

    asyncio.run(run())
    pauses = [0.01, 0.02, 0.04, 0.08]
    assert [f"trying again in {pause:g} s" in caplog.text for pause in pauses] == [True] * 4


def test_call_that_is_cancelled_as_the_server_comes_back_is_not_sent(tmp_path: Path) -> None:
    sent: list[str] = []

    class Back:
        async def call_tool(self, name: str, *given: Any, **more: Any) -> None:
            sent.append(name)

    async def run() -> None:
        connection = Connection(other(tmp_path), lambda tools: None)
        call = asyncio.create_task(connection.call("look", {}, lambda text: None))
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        connection._client = cast(Any, Back())
        connection._connected.set()
        call.cancel()
        await asyncio.wait([call], timeout=30)
        assert call.cancelled() and sent == []

    asyncio.run(run())


def test_close_ends_a_connection_whose_attempt_swallows_the_cancellation(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sayso_mcp.connection.SHORTEST", 0.01)

    attempts = 0

    async def attempt(self: Connection) -> None:
        nonlocal attempts
        attempts += 1
        self._tried.set()
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            # Fail like a task group of the SDK that waits for its tasks after an error.
            if attempts == 1:
                raise RuntimeError("Server returned an error response") from None
            raise

    monkeypatch.setattr(Connection, "_connect", attempt)

    async def run() -> None:
        connection = Connection(other(tmp_path), lambda tools: None)
        await connection.start()
        async with asyncio.timeout(20):
            await connection.close()

    asyncio.run(run())


def test_answer_that_breaks_the_protocol_loses_no_connection(tmp_path: Path) -> None:
    async def run() -> None:
        program = [sys.executable, str(OLD), str(tmp_path), "shapeless"]
        async with using(tmp_path, mcp_server(program, requires_approval=False)) as host:
            wrong = await call(host, "shapeless")
            assert wrong.state == "FAILED"
            assert "the call may have taken effect: it broke the protocol: content:" in wrong.output
            assert (await call(host, "echo", text="here")).output == "here"
            assert (tmp_path / "started").read_text().count("started") == 1

    asyncio.run(run())


@pytest.mark.parametrize(
    ("name", "cause"),
    [
        ("null", "its answer cannot be read"),
        ("deep", "its answer cannot be read"),
        ("nameless", "what was that?"),
    ],
)
def test_answer_that_the_sdk_would_drop_ends_its_call_at_once(
    tmp_path: Path, name: str, cause: str
) -> None:
    async def run() -> None:
        program = [sys.executable, str(OLD), str(tmp_path), name]
        source = mcp_server(program, requires_approval=False, timeout=None)
        async with using(tmp_path, source) as host:
            outcome = await asyncio.wait_for(call(host, name), 60)
            assert outcome.state == "FAILED"
            assert f"the call may have taken effect: {cause}" in outcome.output
            assert (await call(host, "echo", text="here")).output == "here"
            assert (tmp_path / "started").read_text().count("started") == 1

    asyncio.run(run())


def test_error_without_an_id_ends_no_call_where_several_are_open() -> None:
    class Sent:
        async def send(self, item: SessionMessage) -> None:
            """Discard the message."""

    def request(id_: int, method: str) -> SessionMessage:
        return SessionMessage(types.JSONRPCRequest(jsonrpc="2.0", id=id_, method=method))

    def error(id_: int | None) -> SessionMessage:
        given = types.ErrorData(code=types.PARSE_ERROR, message="what?")
        return SessionMessage(types.JSONRPCError(jsonrpc="2.0", id=id_, error=given))

    async def run() -> None:
        asked = Asked(Sent())
        await asked.send(request(1, "tools/list"))
        assert asked.received(error(None)).message.id is None
        await asked.send(request(2, "tools/call"))
        assert asked.received(error(None)).message.id is None
        asked.received(error(1))
        assert asked.received(error(None)).message.id == 2
        assert asked.received(error(None)).message.id is None

    asyncio.run(run())


def test_byte_that_is_no_utf8_loses_neither_its_call_nor_the_next(tmp_path: Path) -> None:
    async def run() -> None:
        program = [sys.executable, str(OLD), str(tmp_path), "latin"]
        async with using(tmp_path, mcp_server(program, requires_approval=False)) as host:
            assert (await call(host, "latin", text="there")).output == "there"
            assert (await call(host, "echo", text="here")).output == "here"
            assert (tmp_path / "started").read_text().count("started") == 1

    asyncio.run(run())


def test_result_with_half_a_surrogate_pair_is_given(tmp_path: Path) -> None:
    async def run() -> None:
        # JavaScript cuts texts at a number of UTF-16 units, possibly within a character.
        source = other(tmp_path, requires_approval=False, timeout=20)
        source.parts.append("half")
        async with using(tmp_path, source) as host:
            outcome = await call(host, "half")
            assert (outcome.state, outcome.output) == ("DONE", "the first 20 units ?")

    asyncio.run(run())


def test_line_that_is_too_long_ends_its_call_and_the_connection(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    async def run() -> None:
        program = [sys.executable, str(OLD), str(tmp_path), "long"]
        source = mcp_server(program, requires_approval=False, timeout=None)
        async with using(tmp_path, source) as host:
            assert len((await call(host, "long")).output) == 2**20
            monkeypatch.setattr("sayso_mcp.lines.LARGEST", 2**19)
            outcome = await call(host, "long")
            assert outcome.state == "FAILED"
            assert "the call may have taken effect" in outcome.output
            assert (await call(host, "echo", text="after")).output == "after"

    asyncio.run(run())
    assert caplog.text.count("has more than 524288 bytes") == 1


def test_lines_come_whole_however_they_are_cut() -> None:
    text = "first\n\nsécond ☂\nthird"

    class Cut:
        def __init__(self, size: int) -> None:
            raw = text.encode()
            self.pieces = [raw[at : at + size] for at in range(0, len(raw), size)]

        async def receive(self) -> bytes:
            if not self.pieces:
                raise anyio.EndOfStream
            return self.pieces.pop(0)

    async def run() -> None:
        for size in range(1, 30):
            given = [piece async for piece in Lines(Cut(size))]
            assert "".join(given) == "first\n\nsécond ☂\n"
            assert all(piece.endswith("\n") for piece in given)

    asyncio.run(run())


def test_result_that_does_not_fit_the_servers_own_schema_is_given(tmp_path: Path) -> None:
    async def run() -> None:
        program = [sys.executable, str(OLD), str(tmp_path), "unlike"]
        async with using(tmp_path, mcp_server(program, requires_approval=False)) as host:
            done = await call(host, "unlike", text="done")
            assert (done.state, done.output.splitlines()[0]) == ("DONE", "done")

    asyncio.run(run())


def test_server_that_lists_nothing_is_started_again(
    tmp_path: Path, eventually: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sayso_mcp.connection.SILENCE", 1.0)

    async def run() -> None:
        async with using(
            tmp_path, mcp_server([sys.executable, str(OLD), str(tmp_path), "silent"])
        ) as host:
            await eventually(lambda: "echo" in host.agent.tools)

    asyncio.run(run())


def test_tools_that_stay_the_same_are_told_of_once(
    tmp_path: Path,
    eventually: Any,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    monkeypatch.setattr("sayso_mcp.connection.AGAIN", 0.05)

    async def run() -> None:
        program = [sys.executable, str(OLD), str(tmp_path), "odd_name"]
        async with using(tmp_path, mcp_server(program)):
            listed = tmp_path / "listed"
            await eventually(lambda: listed.read_text().count("listed") > 3)

    asyncio.run(run())
    assert caplog.text.count("two tools that become 'odd_name'") == 1


def test_name_that_a_tool_has_lost_is_not_given_to_another_tool_of_the_server(
    tmp_path: Path, eventually: Any
) -> None:
    """A call approved for `odd.name` must not run as `odd_name`."""

    async def run() -> None:
        program = [sys.executable, str(OLD), str(tmp_path), "shrink", "odd_name"]
        source = mcp_server(program, requires_approval=["odd.name"])
        async with using(tmp_path, source) as host:
            row = await host.calls.propose("odd_name", {"text": "x"}, SOMEBODY)
            before = host.agent.tools
            await call(host, "shrink")
            await eventually(lambda: host.agent.tools is not before)
            assert "odd_name" not in host.agent.tools
            with pytest.raises(InvalidRequest) as refusal:
                await host.calls.decide(row.id, SOMEBODY, approved=True)
            assert refusal.value.items[0]["type"] == "approval_tool_changed"
            left = await host.calls.look(row.id, SOMEBODY)
            assert left is not None and left.state == "PENDING"

    asyncio.run(run())


def test_tool_that_cannot_be_read_is_left_out_alone_and_told_of_once(
    tmp_path: Path,
    eventually: Any,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    monkeypatch.setattr("sayso_mcp.connection.AGAIN", 0.05)

    async def run() -> None:
        program = [sys.executable, str(OLD), str(tmp_path), "untyped", "anything"]
        async with using(tmp_path, mcp_server(program, requires_approval=False)) as host:
            assert "untyped" not in host.agent.tools
            assert (await call(host, "echo", text="here")).output == "here"
            # Its output schema is invalid, but output schemas are not read.
            assert (await call(host, "anything", text="there")).output == "there"
            listed = tmp_path / "listed"
            await eventually(lambda: listed.read_text().count("listed") > 3)

    asyncio.run(run())
    assert caplog.text.count("it broke the protocol: inputSchema.type: Field required") == 1
    assert caplog.text.count("tool 'untyped' of mcp_server(") == 1


def test_server_whose_list_always_changes_is_not_asked_without_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sayso_mcp.connection.SHORTEST", 60.0)

    async def run() -> None:
        program = [sys.executable, str(OLD), str(tmp_path), "restless"]
        async with using(tmp_path, mcp_server(program, requires_approval=False)) as host:
            for _ in range(30):
                assert (await call(host, "echo", text="here")).output == "here"
        assert (tmp_path / "listed").read_text().count("listed") <= 2

    asyncio.run(run())


class Plain(BaseHTTPRequestHandler):
    """A server that is silent while its tool `slow` runs, hangs up on a call of `hangup`, and
    answers a call of `picture` with an event of 3 MiB. At `/hung` it never answers the end of a
    session."""

    protocol_version = "HTTP/1.1"
    credentials: set[str | None]

    def log_message(self, *arguments: Any) -> None:
        pass

    def answer(self, status: int, message: Any = None) -> None:
        body = b"" if message is None else json.dumps({"jsonrpc": "2.0", **message}).encode()
        self.send_response(status)
        self.send_header("content-type", "application/json")
        self.send_header("content-length", str(len(body)))
        self.send_header("mcp-session-id", "one")
        self.end_headers()
        self.wfile.write(body)

    def event(self, id: Any) -> None:
        image = {"type": "image", "mimeType": "image/png", "data": "A" * 3 * 2**20}
        message = {"jsonrpc": "2.0", "id": id, "result": {"content": [image]}}
        body = f"data: {json.dumps(message)}\n\n".encode()
        self.send_response(200)
        self.send_header("content-type", "text/event-stream")
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def do_GET(self) -> None:
        self.answer(405)

    def do_DELETE(self) -> None:
        if self.path == "/hung":
            time.sleep(30)
        self.answer(204)

    def do_POST(self) -> None:
        asked = json.loads(self.rfile.read(int(self.headers["content-length"])))
        self.credentials.add(self.headers["authorization"])
        results = {
            "initialize": {
                "protocolVersion": "2025-11-25",
                "capabilities": {"tools": {}},
                "serverInfo": {"name": "plain", "version": "1"},
            },
            "tools/list": {
                "tools": [
                    {"name": name, "inputSchema": {"type": "object"}}
                    for name in ("slow", "quick", "hangup", "picture")
                ]
            },
            "tools/call": {"content": [{"type": "text", "text": "slept"}]},
        }
        called = asked.get("params", {}).get("name")
        if called == "slow":
            time.sleep(0.5)
        if called == "hangup":
            self.close_connection = True
        elif called == "picture":
            self.event(asked["id"])
        elif "id" not in asked:
            self.answer(202)
        elif (result := results.get(asked["method"])) is None:
            wrong = {"code": -32601, "message": "Method not found"}
            self.answer(200, {"id": asked["id"], "error": wrong})
        else:
            self.answer(200, {"id": asked["id"], "result": result})


@contextmanager
def listening(handler: type[BaseHTTPRequestHandler]) -> Iterator[ThreadingHTTPServer]:
    """A server whose requests `handler` answers."""
    with ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        server.daemon_threads = True
        threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True).start()
        yield server
        server.shutdown()


@pytest.fixture
def plain() -> Iterator[ThreadingHTTPServer]:
    Plain.credentials = set()
    with listening(Plain) as server:
        yield server


@pytest.mark.parametrize("status", [403, 429, 503])
def test_server_that_refuses_is_told_with_its_status(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, status: int
) -> None:
    refusing = threading.Event()

    class Refusing(Plain):
        credentials = set()

        def do_POST(self) -> None:
            if refusing.is_set():
                self.rfile.read(int(self.headers["content-length"]))
                self.answer(status)
            else:
                super().do_POST()

    async def run(url: str) -> None:
        async with using(tmp_path, mcp_server(url, requires_approval=False)) as host:
            refusing.set()
            output = (await call(host, "picture")).output
            assert f"Server returned an error response (HTTP status {status})" in output
        async with using(tmp_path, mcp_server(url)):
            assert f"(HTTP status {status}); trying again" in caplog.text

    with listening(Refusing) as server:
        asyncio.run(run(f"http://127.0.0.1:{server.server_port}/mcp"))


def test_answer_that_is_no_json_says_that_the_call_may_have_taken_effect(tmp_path: Path) -> None:
    broken = threading.Event()

    class Broken(Plain):
        credentials = set()

        def answer(self, status: int, message: Any = None) -> None:
            if not broken.is_set():
                return super().answer(status, message)
            self.send_response(200)
            self.send_header("content-type", "application/json")
            self.send_header("content-length", "1")
            self.end_headers()
            self.wfile.write(b"{")

    async def run(url: str) -> None:
        async with using(tmp_path, mcp_server(url, requires_approval=False)) as host:
            broken.set()
            output = (await call(host, "slow")).output
            assert f"{url!r} gave no result, and the call may have taken effect" in output

    with listening(Broken) as server:
        asyncio.run(run(f"http://127.0.0.1:{server.server_port}/mcp"))


class Modern(Plain):
    """A server of 2026-07-28 whose list and results have further fields, `hints` and `type`."""

    credentials = set()
    hints: dict[str, Any] = {}
    type: dict[str, Any] = {}

    def do_POST(self) -> None:
        asked = json.loads(self.rfile.read(int(self.headers["content-length"])))
        results = {
            "server/discover": {"supportedVersions": [MODERN], "capabilities": {"tools": {}}},
            "tools/list": {
                "tools": [{"name": "quick", "inputSchema": {"type": "object"}}],
                **self.hints,
            },
            "tools/call": {"content": [{"type": "text", "text": "done"}], **self.type},
        }
        self.answer(200, {"id": asked["id"], "result": results[asked["method"]]})


@pytest.mark.parametrize("given", [{}, {"ttlMs": 0.5, "cacheScope": "world"}])
def test_result_that_does_not_say_its_type_is_complete_and_no_list_is_kept(
    tmp_path: Path, given: dict[str, Any]
) -> None:
    class Untyped(Modern):
        hints = given

    async def run(url: str) -> None:
        async with using(tmp_path, mcp_server(url, requires_approval=False)) as host:
            done = await call(host, "quick")
            assert (done.state, done.output) == ("DONE", "done")

    with listening(Untyped) as server:
        asyncio.run(run(f"http://127.0.0.1:{server.server_port}/mcp"))


def test_result_of_a_type_that_is_not_known_is_none(tmp_path: Path) -> None:
    class Odd(Modern):
        type = {"resultType": "odd"}

    async def run(url: str) -> None:
        async with using(tmp_path, mcp_server(url, requires_approval=False)) as host:
            wrong = await call(host, "quick")
            assert wrong.state == "FAILED"
            assert "gave a result of the unknown type 'odd', and the call may have" in wrong.output

    with listening(Odd) as server:
        asyncio.run(run(f"http://127.0.0.1:{server.server_port}/mcp"))


def test_call_may_be_silent_as_long_as_it_may_take(
    tmp_path: Path, plain: ThreadingHTTPServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sayso_mcp.connection.QUIET", 0.1)

    async def run() -> None:
        url = f"http://127.0.0.1:{plain.server_port}/mcp"
        async with using(tmp_path, mcp_server(url, requires_approval=False)) as host:
            assert (await call(host, "slow")).output == "slept"

    asyncio.run(run())


def test_large_picture_is_received(tmp_path: Path, plain: ThreadingHTTPServer) -> None:
    async def run() -> None:
        url = f"http://127.0.0.1:{plain.server_port}/mcp"
        async with using(tmp_path, mcp_server(url, requires_approval=False)) as host:
            assert (await call(host, "picture")).output == "[image image/png, 2359296 bytes]"

    asyncio.run(run())


def test_pauses_begin_anew_after_each_connection_that_was_of_use(
    tmp_path: Path,
    plain: ThreadingHTTPServer,
    eventually: Any,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    monkeypatch.setattr("sayso_mcp.connection.SHORTEST", 0.01)
    monkeypatch.setattr("sayso_mcp.connection.PATIENCE", 60.0)

    async def run() -> None:
        url = f"http://127.0.0.1:{plain.server_port}/mcp"
        async with using(tmp_path, mcp_server(url, requires_approval=False)) as host:
            for losses in range(1, 4):
                assert (await call(host, "hangup")).state == "FAILED"
                await eventually(lambda n=losses: caplog.text.count("is away") == n)
                assert (await call(host, "quick")).output == "slept"

    asyncio.run(run())
    assert caplog.text.count("trying again in 0.01 s") == 3


def test_server_that_lets_no_session_end_holds_nothing_up(
    tmp_path: Path, plain: ThreadingHTTPServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sayso_mcp.connection.FAREWELL", 0.1)

    async def run() -> None:
        async with using(tmp_path, mcp_server(f"http://127.0.0.1:{plain.server_port}/hung")):
            opened.append(time.monotonic())

    opened: list[float] = []
    asyncio.run(run())
    assert time.monotonic() - opened[0] < 20


def test_password_in_the_address_is_sent_and_never_shown(
    tmp_path: Path, plain: ThreadingHTTPServer, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)

    async def run() -> None:
        url = f"http://joe:pass%20word@127.0.0.1:{plain.server_port}/mcp"
        async with using(tmp_path, mcp_server(url)) as host:
            assert "slow" in host.agent.tools

    asyncio.run(run())
    assert Plain.credentials == {"Basic am9lOnBhc3Mgd29yZA=="}
    assert "127.0.0.1" in caplog.text
    assert "pass" not in caplog.text


def test_server_that_is_away_makes_only_its_tools_fail(tmp_path: Path) -> None:
    @tool
    def own() -> str:
        """The agent's own."""
        return "own"

    async def run() -> None:
        missing = mcp_server(["no-such-program-anywhere"])
        unreachable = mcp_server("http://127.0.0.1:9/mcp")
        async with using(tmp_path, own, missing, unreachable) as host:
            assert set(host.agent.tools) == {"own"}
            assert (await call(host, "own")).output == "own"

    asyncio.run(run())


def test_gate_of_the_other_server_stands(tmp_path: Path, serve: Any, eventually: Any) -> None:
    async def run() -> None:
        async with serve() as served:
            source = mcp_server(served.url, requires_approval=False)
            front = tmp_path / "front"
            front.mkdir()
            async with using(front, source) as host:
                asking = asyncio.ensure_future(call(host, "delete_pod", name="web-1"))
                row = await waiting(host, eventually)
                await host.calls.decide(row.id, Caller("cli"), approved=False)
                assert (await asking).state == "FAILED"
                assert served.ran.calls == []

    asyncio.run(run())


def test_stopped_server_is_said_and_found_again(
    tmp_path: Path, serve: Any, in_task: Any, eventually: Any
) -> None:
    async def run() -> None:
        port = quiet_port()
        started = in_task(serve(port=port))
        served = await started.served()
        source = mcp_server(served.url, requires_approval=False)
        async with using(tmp_path / "other", source) as host:
            assert (await call(host, "add", a=1, b=2)).output == "3"
            known = set(host.agent.tools)
            await started.stop()
            outcome = await call(host, "add", a=1, b=2)
            assert outcome.state == "FAILED"
            assert "MCP server 'http://127.0.0.1" in outcome.output
            assert set(host.agent.tools) == known
            async with serve(port=port):

                async def answers() -> bool:
                    return (await call(host, "add", a=1, b=2)).output == "3"

                await eventually(answers)

    asyncio.run(run())


@pytest.mark.slow
@pytest.mark.parametrize("transport", ["sse", "streamable-http"])
def test_headers_are_sent_and_never_shown(
    tmp_path: Path, serve: Any, transport: str, caplog: pytest.LogCaptureFixture
) -> None:
    async def run() -> None:
        tokens = {"scheme": "bearer", "tokens": {"agent": "token-x"}}
        async with serve(transport=transport, auth=tokens) as served:
            fine = mcp_server(
                served.url, headers={"authorization": "Bearer token-x"}, requires_approval=False
            )
            wrong = mcp_server(served.url, headers={"authorization": "Bearer y"}, prefix="wrong_")
            assert "token-x" not in repr(fine)
            assert "word" not in repr(mcp_server("http://user:word@127.0.0.1/mcp?key=word"))
            async with using(tmp_path, fine, wrong) as host:
                assert (await call(host, "add", a=1, b=2)).output == "3"
                assert not [name for name in host.agent.tools if name.startswith("wrong_")]
                if transport == "sse":
                    assert "is away: HTTP status 401" in caplog.text
                else:
                    assert "(HTTP status 401); trying again" in caplog.text

    asyncio.run(run())


@pytest.mark.parametrize("transport", ["sse", "streamable-http"])
@pytest.mark.parametrize("kind", ["plain", "async"])
def test_function_gives_the_headers_of_each_request(
    tmp_path: Path, serve: Any, transport: str, kind: str, caplog: pytest.LogCaptureFixture
) -> None:
    given = {"token": "token-x", "made": 0}

    def plain() -> dict[str, str]:
        given["made"] += 1
        if given["token"] is None:
            raise RuntimeError("token-x is over")
        return {"authorization": f"Bearer {given['token']}"}

    async def renewed() -> dict[str, str]:
        return plain()

    async def run() -> None:
        tokens = {"scheme": "bearer", "tokens": {"agent": "token-x"}}
        async with serve(transport=transport, auth=tokens) as served:
            headers = plain if kind == "plain" else renewed
            source = mcp_server(served.url, headers=headers, requires_approval=False)
            async with using(tmp_path, source) as host:
                assert (await call(host, "add", a=1, b=2)).output == "3"
                made = given["made"]
                assert (await call(host, "add", a=2, b=2)).output == "4"
                assert given["made"] > made
                given["token"] = None
                failed = (await call(host, "add", a=1, b=2)).output
                assert "the function for the headers failed with RuntimeError" in failed
                assert "may have taken effect" not in failed
                assert "token-x" not in failed
        assert "token-x is over" not in caplog.text

    asyncio.run(run())


def test_progress_of_the_server_is_told(tmp_path: Path, serve: Any) -> None:
    async def run() -> None:
        lines: list[str] = []
        async with serve() as served:
            served.ran.go.set()
            source = mcp_server(served.url, requires_approval=False)
            async with using(tmp_path, source) as host:
                outcome = await host.calls.run(
                    "slow",
                    {},
                    SOMEBODY,
                    session=Session(),
                    update=lambda line: lines.append(line.text),
                )
                assert outcome.output == "slept"
        assert lines == ["begun", "ended"]

    asyncio.run(run())


@pytest.mark.parametrize(
    ("server", "options", "message"),
    [
        ("", {}, "name a URL"),
        ("ftp://example/mcp", {}, "ftp"),
        ("http://example/mcp", {"transport": "stdio"}, "a URL cannot be reached over .stdio"),
        ("program", {"transport": "sse"}, "sse"),
        ("http://example:99999/mcp", {}, "port that cannot be"),
        ("http:///mcp", {}, "no host"),
        ("http://example/mcp", {"headers": {"x-key": "word\n"}}, "the header 'x-key' has a line"),
        ("program", {"include": "x"}, "list of patterns"),
        ("program", {"requires_approval": "x"}, "list of patterns"),
        ("program", {"timeout": -1}, "timeout must be above 0 seconds, not -1"),
    ],
)
def test_wrong_declarations_are_refused(server: str, options: Any, message: str) -> None:
    with pytest.raises((ValueError, TypeError), match=message):
        mcp_server(server, **options)


@pytest.mark.slow
def test_filesystem_reference_server(tmp_path: Path) -> None:
    async def run() -> None:
        (tmp_path / "note.txt").write_text("hello from a file")
        source = mcp_server(
            [*program(FILESYSTEM), str(tmp_path)],
            prefix="fs_",
            requires_approval=["write_*", "edit_*", "move_*", "create_*"],
        )
        async with using(tmp_path, source) as host:
            path = str(tmp_path / "note.txt")
            read = await call(host, "fs_read_text_file", path=path)
            assert "hello from a file" in read.output
            outside = await call(host, "fs_read_text_file", path="/etc/hostname")
            assert outside.state == "FAILED"
            new = {"path": str(tmp_path / "new.txt"), "content": "written"}
            assert host.calls.check("fs_write_file", new) == "require"
            row = await host.calls.propose("fs_write_file", new, SOMEBODY)
            assert not (tmp_path / "new.txt").exists()
            ended = await host.calls.decide(row.id, SOMEBODY, approved=True)
            assert ended.state == "DONE"
            assert (tmp_path / "new.txt").read_text() == "written"

    asyncio.run(run())
