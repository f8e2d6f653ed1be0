"""`sayso mcp` as a process: stdio stays clean, and it ends in order."""

from __future__ import annotations

import asyncio
import itertools
import json
import os
import re
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import anyio
import httpx2
import mcp_types as types
import pytest
from mcp import Client
from mcp.client.stdio import StdioServerParameters, stdio_client
from mcp.shared.message import ServerMessageMetadata, SessionMessage

from sayso_mcp import stdio as mcp_stdio

AGENT = Path(__file__).with_name("noisy_agent.py")

SLOW_AGENT = """
import pathlib
import time

import sayso_mcp.running
from sayso import Agent, RequestContext, tool

assert sayso_mcp.running._MARGIN
sayso_mcp.running._MARGIN = 1_000_000.0


@tool
def waits(context: RequestContext) -> str:
    context.update("begun")
    while not pathlib.Path("go").exists():
        time.sleep(0.02)
    return "waited"


@tool
def ends() -> str:
    return "ended"


agent = Agent(model="offline", tools=[waits, ends])
"""


class Process:
    """`sayso mcp` over stdio, spoken to line by line."""

    def __init__(self, folder: Path, *arguments: str, errors: Any = subprocess.PIPE) -> None:
        self.process = subprocess.Popen(
            [sys.executable, "-m", "sayso", "mcp", f"{AGENT}:agent", *arguments],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=errors,
            cwd=folder,
            env=os.environ | {"SAYSO_SERVER__STATE_DIR": str(folder)},
        )

    def send(self, **message: Any) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write(json.dumps({"jsonrpc": "2.0", **message}).encode() + b"\n")
        self.process.stdin.flush()

    def answer(self, id_: int | str | None) -> dict[str, Any]:
        """The message with this id; every line before it must be a JSON-RPC message."""
        assert self.process.stdout is not None
        while True:
            line = self.process.stdout.readline()
            assert line, self.rest()[1]
            message = json.loads(line)
            assert message["jsonrpc"] == "2.0"
            assert {"method", "result", "error"} & set(message)
            if message.get("id") == id_:
                return message

    def begin(self, **capabilities: Any) -> None:
        self.send(
            id=0,
            method="initialize",
            params={
                "protocolVersion": "2025-11-25",
                "capabilities": capabilities,
                "clientInfo": {"name": "test", "version": "1"},
            },
        )
        self.answer(0)
        self.send(method="notifications/initialized")

    def call(self, id_: int, name: str) -> str:
        self.send(id=id_, method="tools/call", params={"name": name, "arguments": {}})
        result = self.answer(id_)["result"]
        assert not result.get("isError"), result
        text: str = result["content"][0]["text"]
        return text

    def rest(self) -> tuple[bytes, str]:
        """The output after stdin was closed."""
        out, error = self.process.communicate(timeout=120)
        return out, error.decode()


def reported(errors: Path, pattern: str, process: subprocess.Popen[bytes]) -> re.Match[str]:
    """The match of `pattern` in the file that the process writes to; waits for it."""
    deadline = time.monotonic() + 120
    while (found := re.search(pattern, errors.read_text())) is None:
        assert process.poll() is None and time.monotonic() < deadline, errors.read_text()
        time.sleep(0.05)
    return found


@pytest.fixture
def stdio(tmp_path: Path) -> Iterator[Process]:
    process = Process(tmp_path, "--transport", "stdio")
    yield process
    process.process.kill()
    process.process.communicate()


@pytest.mark.slow
def test_noise_does_not_reach_the_wire(stdio: Process) -> None:
    stdio.begin()
    assert stdio.call(1, "prints") == "printed"
    assert stdio.call(2, "forks") == "forked"
    assert stdio.call(4, "reads") == "''"
    assert stdio.call(5, "prints") == "printed"
    out, error = stdio.rest()
    assert out == b""
    for noise in ("noise at import", "unfinished noise", "noise of a child", "noise of a fork"):
        assert noise in error
    assert stdio.process.returncode == 0


@pytest.mark.slow
def test_flood_does_not_reach_the_wire(tmp_path: Path) -> None:
    with (tmp_path / "errors").open("wb") as errors:
        running = Process(tmp_path, "--transport", "stdio", errors=errors)
        try:
            running.begin()
            assert len(running.call(1, "floods")) == 300_000
            out, _ = running.process.communicate(timeout=120)
            assert (out, running.process.returncode) == (b"", 0)
        finally:
            running.process.kill()
            running.process.communicate()


def test_client_that_never_reads_the_log_is_answered(tmp_path: Path) -> None:
    reader, full = os.pipe()
    running = Process(tmp_path, "--transport", "stdio", errors=full)
    try:
        running.begin()
        os.set_blocking(full, False)
        with suppress(BlockingIOError):
            while True:
                os.write(full, b"." * 512)
        os.set_blocking(full, True)
        for id_ in (1, 2):
            running.send(id=id_, method="tools/call", params={"name": "misses", "arguments": {}})
            assert running.answer(id_)["result"]["isError"]
        assert running.call(3, "slow") == "slept"
    finally:
        running.process.kill()
        running.process.communicate()
        os.close(full)
        os.close(reader)


def test_lines_that_are_no_message_get_an_error_without_an_id(stdio: Process) -> None:
    stdio.begin()
    assert stdio.process.stdin is not None
    for line, code in (
        (b"no json", -32700),
        (b"\xff" * 20, -32700),
        (b"[" * 100_000, -32700),
        (b"{}", -32600),
        (b"[1]", -32600),
    ):
        stdio.process.stdin.write(b"\n" + line + b"\n")
        stdio.process.stdin.flush()
        assert stdio.answer(None)["error"]["code"] == code
    assert stdio.call(1, "prints") == "printed"


def test_answer_of_a_client_that_is_none_gets_no_error(stdio: Process) -> None:
    stdio.begin()
    stdio.send(id={}, result={})
    assert stdio.call(1, "prints") == "printed"
    stdio.send(id=3, result={"much": "m" * 11_000_000})
    assert stdio.call(2, "prints") == "printed"
    assert stdio.rest()[0] == b""


@pytest.mark.slow
@pytest.mark.parametrize("last", [False, True])
@pytest.mark.parametrize("id_", [7, "seven"])
def test_request_in_a_line_that_is_too_long_is_refused_by_its_id(
    stdio: Process, id_: int | str, last: bool
) -> None:
    stdio.begin()
    arguments = {"id": 5, "much": ',"id":6}' + "m" * 11_000_000}
    params = {"name": "prints", "arguments": arguments}
    if last:
        stdio.send(method="tools/call", params=params, id=id_)
    else:
        stdio.send(id=id_, method="tools/call", params=params)
    error = stdio.answer(id_)["error"]
    assert error["code"] == -32600 and "limits.body" in error["message"]
    assert stdio.call(1, "prints") == "printed"


def test_line_that_is_too_long_and_tells_no_id_gets_an_error_without_one(stdio: Process) -> None:
    stdio.begin()
    assert stdio.process.stdin is not None
    stdio.process.stdin.write(b"x" * 11_000_000 + b"\n")
    stdio.process.stdin.flush()
    assert stdio.answer(None)["error"]["code"] == -32600
    assert stdio.call(1, "prints") == "printed"


def test_request_of_which_only_the_id_can_be_read_is_refused(stdio: Process) -> None:
    """JavaScript writes half an emoji as an escape that is no valid Unicode text."""
    stdio.begin()
    stdio.send(id=1, method="tools/call", params={"name": "prints", "arguments": {"a": "\ud83d"}})
    assert stdio.answer(1)["error"]["code"] == -32600
    stdio.send(id=2, method=5)
    assert stdio.answer(2)["error"]["code"] == -32600
    assert stdio.call(3, "prints") == "printed"


@pytest.mark.slow
@pytest.mark.parametrize("id_", [None, 1.5, True, [1]])
def test_request_whose_id_is_neither_string_nor_integer_is_refused(
    stdio: Process, id_: Any
) -> None:
    stdio.begin()
    stdio.send(id=None, method="notifications/initialized")
    stdio.send(id=id_, method="tools/list")
    assert stdio.answer(None)["error"]["code"] == -32600
    assert stdio.call(2, "prints") == "printed"


def test_error_that_no_json_holds_does_not_end_the_process(stdio: Process) -> None:
    stdio.begin()
    stdio.send(id=1, method="tools/call", params={"name": "misses", "arguments": {}})
    result = stdio.answer(1)["result"]
    assert result["isError"]
    assert result["content"][0]["text"] == "Error: FileNotFoundError: no file ?"
    assert stdio.call(2, "prints") == "printed"


def test_sigterm_lets_the_call_end(stdio: Process) -> None:
    stdio.begin()
    stdio.send(id=1, method="tools/call", params={"name": "slow", "arguments": {}})
    stdio.send(id=2, method="ping")
    stdio.answer(2)
    stdio.process.send_signal(signal.SIGTERM)
    assert stdio.answer(1)["result"]["content"][0]["text"] == "slept"
    assert stdio.process.wait(120) == 0


def test_second_interrupt_ends_the_process_at_once(stdio: Process) -> None:
    stdio.begin()
    stdio.send(id=1, method="tools/call", params={"name": "forever", "arguments": {}})
    stdio.send(id=2, method="ping")
    stdio.answer(2)
    stdio.process.send_signal(signal.SIGINT)
    for id_ in itertools.count(3):
        # After the signal it waits for the call, and accepts no other.
        stdio.send(id=id_, method="tools/call", params={"name": "prints", "arguments": {}})
        if "is stopping" in str(stdio.answer(id_)):
            break
    stdio.process.send_signal(signal.SIGINT)
    assert stdio.process.wait(20) == -signal.SIGINT


@pytest.mark.slow
def test_end_of_a_fork_is_not_the_servers(stdio: Process) -> None:
    stdio.begin()
    assert stdio.call(1, "ends_a_fork") == str(-signal.SIGTERM)
    assert stdio.call(2, "prints") == "printed"


@pytest.mark.slow
def test_fork_that_outlives_the_server_does_not_keep_the_wire_open(stdio: Process) -> None:
    stdio.begin()
    fork = int(stdio.call(1, "leaves_a_fork"))
    end_it = threading.Timer(60, os.kill, (fork, signal.SIGKILL))
    end_it.start()
    try:
        out, _ = stdio.rest()
        assert out == b""
        assert end_it.is_alive(), "the wire was open until the fork was ended"
    finally:
        end_it.cancel()
        os.kill(fork, signal.SIGKILL)


def test_what_was_asked_before_the_end_of_stdin_is_answered(stdio: Process) -> None:
    stdio.begin()
    stdio.send(id=1, method="tools/call", params={"name": "slow", "arguments": {}})
    last = {"jsonrpc": "2.0", "id": 2, "method": "tools/call", "params": {"name": "prints"}}
    assert stdio.process.stdin is not None
    stdio.process.stdin.write(json.dumps(last).encode())
    out, _ = stdio.rest()
    results = {answer["id"]: answer["result"] for answer in map(json.loads, out.splitlines())}
    texts = {id_: result["content"][0]["text"] for id_, result in results.items()}
    assert texts == {1: "slept", 2: "printed"}
    assert stdio.process.returncode == 0


def test_open_question_at_the_end_of_stdin_cuts_no_other_call_off(
    stdio: Process, tmp_path: Path
) -> None:
    stdio.begin(elicitation={"form": {}})
    asked = {"name": "gated", "arguments": {"path": str(tmp_path / "ran")}}
    stdio.send(id=11, method="tools/call", params=asked)
    # The server's first request, which is never answered.
    assert stdio.answer(1)["method"] == "elicitation/create"
    stdio.send(id=12, method="tools/call", params={"name": "slow", "arguments": {}})
    out, _ = stdio.rest()
    results = {m["id"]: m.get("result") for m in map(json.loads, out.splitlines()) if "id" in m}
    assert results[12]["content"][0]["text"] == "slept"
    assert results[11] is None
    assert not (tmp_path / "ran").exists()
    assert stdio.process.returncode == 0


def test_call_whose_question_is_answered_at_once_is_answered_after_the_end_of_stdin(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    server_reads, client_writes = os.pipe()
    client_reads, server_writes = os.pipe()
    answer = types.JSONRPCResponse(jsonrpc="2.0", id=1, result={"action": "accept"})
    answered = threading.Event()

    class Unanswered(mcp_stdio._Unanswered):
        def came(self, message: types.JSONRPCMessage) -> None:
            super().came(message)
            if message == answer:
                answered.set()

    class Writer(mcp_stdio._Writer):
        """Continues only after the client's answer to the question was read."""

        def _write(self, line: bytes) -> None:
            super()._write(line)
            if b"elicitation/create" in line:
                os.write(client_writes, answer.model_dump_json().encode() + b"\n")
                assert answered.wait(60)

    monkeypatch.setattr(mcp_stdio, "_Unanswered", Unanswered)
    monkeypatch.setattr(mcp_stdio, "_Writer", Writer)

    async def run() -> None:
        wire = mcp_stdio.StdioWire(server_reads, server_writes)
        async with wire.streams(10_000) as (read, write), asyncio.timeout(60):
            call = types.JSONRPCRequest(jsonrpc="2.0", id="call", method="tools/call")
            os.write(client_writes, call.model_dump_json().encode() + b"\n")
            assert (await read.receive()).message == call
            question = types.JSONRPCRequest(jsonrpc="2.0", id=1, method="elicitation/create")
            about = ServerMessageMetadata(related_request_id="call")
            await write.send(SessionMessage(question, about))
            assert (await read.receive()).message == answer
            os.close(client_writes)
            ending = asyncio.create_task(read.receive())
            done, _ = await asyncio.wait({ending}, timeout=0.3)
            assert not done, "the server was told that the client has gone"
            result = types.JSONRPCResponse(jsonrpc="2.0", id="call", result={})
            await write.send(SessionMessage(result))
            with pytest.raises(anyio.EndOfStream):
                await ending

    try:
        asyncio.run(run())
    finally:
        for descriptor in (server_reads, client_reads, server_writes):
            os.close(descriptor)


def test_call_that_nobody_waits_for_does_not_hold_the_end(tmp_path: Path) -> None:
    running = Process(tmp_path, "--transport", "stdio", errors=subprocess.DEVNULL)
    try:
        running.begin()
        running.send(id=1, method="tools/call", params={"name": "forever", "arguments": {}})
        running.send(id=2, method="ping")
        running.answer(2)
        assert running.process.stdin is not None and running.process.stdout is not None
        running.process.stdin.close()
        running.process.stdout.close()
        assert running.process.wait(120) == 0
    finally:
        running.process.kill()
        running.process.wait()


def test_client_that_closed_stdin_and_stops_the_process_waits_for_no_call(tmp_path: Path) -> None:
    (tmp_path / "sayso.toml").write_text("[server]\ndrain_timeout = 600\nstart_timeout = 900\n")
    running = Process(tmp_path, "--transport", "stdio", errors=subprocess.DEVNULL)
    try:
        running.begin()
        running.send(id=1, method="tools/call", params={"name": "forever", "arguments": {}})
        running.send(id=2, method="tools/call", params={"name": "slow", "arguments": {}})
        assert running.process.stdin is not None and running.process.stdout is not None
        running.process.stdin.close()
        # This call takes a moment; when it is answered, the end of stdin has been read.
        assert running.answer(2)["result"]["content"][0]["text"] == "slept"
        running.process.terminate()
        assert running.process.wait(120) == 0
        running.process.stdout.close()
    finally:
        running.process.kill()
        running.process.wait()


def test_call_whose_process_died_is_told_as_unknown_to_the_same_call_on_the_console(
    tmp_path: Path,
) -> None:
    asked = {"name": "dies", "arguments": {"path": str(tmp_path / "ran")}}

    def started() -> Process:
        process = Process(tmp_path, "--transport", "stdio", "--approvals", "inbox")
        process.begin()
        process.send(id=1, method="tools/call", params=asked)
        return process

    def sayso(*arguments: str) -> None:
        state = os.environ | {"SAYSO_SERVER__STATE_DIR": str(tmp_path)}
        command = [sys.executable, "-m", "sayso", *arguments]
        subprocess.run(command, cwd=tmp_path, env=state, check=True, capture_output=True)

    process = started()
    waits = process.answer(1)["result"]["structuredContent"]["approval"]
    sayso("approvals", "approve", waits["id"])
    process.send(id=2, method="tools/call", params=asked)
    assert process.rest()[0] == b""
    assert process.process.returncode == -signal.SIGKILL
    process = started()
    result = process.answer(1)["result"]
    assert result["isError"]
    assert "Outcome unknown" in result["content"][0]["text"]
    process.rest()
    assert (tmp_path / "ran").read_text() == "ran\n"


def test_stdin_and_stdout_may_be_non_blocking(tmp_path: Path) -> None:
    """A Node program that passes on its own stdin and stdout leaves them non-blocking."""
    stdin, asking = os.pipe()
    answering, stdout = os.pipe()
    os.set_blocking(stdin, False)
    os.set_blocking(stdout, False)
    with (tmp_path / "errors").open("wb") as errors:
        process = subprocess.Popen(
            [sys.executable, "-m", "sayso", "mcp", f"{AGENT}:agent", "--transport", "stdio"],
            stdin=stdin,
            stdout=stdout,
            stderr=errors,
            env=os.environ | {"SAYSO_SERVER__STATE_DIR": str(tmp_path), "PYTHONUNBUFFERED": "1"},
        )
    os.close(stdin)
    os.close(stdout)
    try:
        reported(tmp_path / "errors", "noise at import", process)
        meta = {
            "io.modelcontextprotocol/protocolVersion": "2026-07-28",
            "io.modelcontextprotocol/clientCapabilities": {},
            "io.modelcontextprotocol/clientInfo": {"name": "test", "version": "1"},
        }
        call = {"name": "floods", "arguments": {}, "_meta": meta}
        with open(asking, "w") as ask, open(answering) as answers:
            json.dump({"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": call}, ask)
            ask.write("\n")
            ask.flush()
            answer = json.loads(answers.readline())
        assert len(answer["result"]["content"][0]["text"]) == 300_000
        assert process.wait(120) == 0
    finally:
        process.kill()
        process.wait()


@pytest.mark.slow
@pytest.mark.parametrize("closed", ["<&-", ">&-"])
def test_closed_stdin_or_stdout_is_one_line_and_exit_code_1(tmp_path: Path, closed: str) -> None:
    ended = subprocess.run(
        ["sh", "-c", f'exec "$@" {closed}', "sh"]
        + [sys.executable, "-m", "sayso", "mcp", f"{AGENT}:agent", "--transport", "stdio"],
        capture_output=True,
        text=True,
        env=os.environ | {"SAYSO_SERVER__STATE_DIR": str(tmp_path)},
        timeout=120,
    )
    assert (ended.returncode, ended.stdout) == (1, "")
    [line] = ended.stderr.splitlines()
    assert "needs stdin and stdout, and one of them is closed" in line


@pytest.mark.parametrize("era", ["legacy", "2026-07-28"])
def test_questions_are_asked_over_stdio(tmp_path: Path, human: Any, era: str) -> None:
    async def run() -> None:
        answer = human("accept", approve=True)
        server = StdioServerParameters(
            command=sys.executable,
            args=["-m", "sayso", "mcp", f"{AGENT}:agent", "--transport", "stdio"],
            env=os.environ | {"SAYSO_SERVER__STATE_DIR": str(tmp_path)},
        )
        with (tmp_path / "errors").open("w") as errors:
            transport = stdio_client(server, errlog=errors)
            async with Client(transport, mode=era, elicitation_callback=answer) as client:
                path = {"path": str(tmp_path / "ran")}
                result = await client.call_tool("gated", path)
                assert result.content[0].text == "written"
                answer.answer = types.ElicitResult(action="decline")
                assert (await client.call_tool("gated", path)).is_error
        assert (tmp_path / "ran").read_text() == "ran\n"

    asyncio.run(run())


@pytest.mark.slow
def test_busy_port_is_one_line_and_exit_code_1(tmp_path: Path) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = str(taken.getsockname()[1])
        process = Process(tmp_path, "--host", "127.0.0.1", "--port", port)
        out, error = process.rest()
    assert process.process.returncode == 1
    assert out == b"noise at import\n"
    line = error.splitlines()[-1]
    assert line.startswith("sayso: plugin 'mcp': port ")
    assert "--mcp-port, or --port of sayso mcp" in line
    assert "Traceback" not in error


def test_model_of_the_command_line_wins_over_the_agents_own(tmp_path: Path) -> None:
    process = Process(tmp_path, "--model", "nobody:x")
    _, error = process.rest()
    assert process.process.returncode == 1
    assert "there is no model provider 'nobody'" in error.splitlines()[-1]


@pytest.mark.slow
@pytest.mark.parametrize("workers", ["1", "2"])
def test_port_of_the_service_itself_is_named_as_such_before_it_listens(
    tmp_path: Path, workers: str
) -> None:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = str(free.getsockname()[1])
    arguments = ["--mcp", "--host", "127.0.0.1", "--port", port, "--mcp-port", port]
    ended = subprocess.run(
        [
            *(sys.executable, "-m", "sayso", "serve", f"{AGENT}:agent", *arguments),
            *("--workers", workers, "--state-dir", str(tmp_path)),
        ],
        capture_output=True,
        text=True,
        cwd=tmp_path,
        timeout=120,
    )
    assert ended.returncode == 1
    assert f"plugin.mcp.port is {port}, as server.port is; choose another" in ended.stderr
    assert "listening" not in ended.stderr


def test_wrong_port_is_told_by_the_name_that_the_option_has_here(tmp_path: Path) -> None:
    process = Process(tmp_path, "--port", "99999")
    _, error = process.rest()
    assert process.process.returncode == 2
    assert "'--port'" in error
    assert "--mcp-port" not in error


def serving(tmp_path: Path, errors: Path, workers: int = 1) -> subprocess.Popen[bytes]:
    options = {
        "--workers": str(workers),
        "--host": "127.0.0.1",
        "--port": "0",
        "--mcp-port": "0",
        "--state-dir": str(tmp_path),
    }
    with errors.open("wb") as writing:
        return subprocess.Popen(
            [
                *(sys.executable, "-m", "sayso", "serve", f"{AGENT}:agent", "--mcp"),
                *(part for pair in options.items() for part in pair),
            ],
            stdout=subprocess.DEVNULL,
            stderr=writing,
            cwd=tmp_path,
        )


def test_warnings_of_tools_are_in_the_log_of_a_service_with_mcp_whoever_left_it(
    tmp_path: Path,
) -> None:
    errors = tmp_path / "errors"
    process = serving(tmp_path, errors)
    try:
        own = reported(errors, r"listening on http://127\.0\.0\.1:(\d+)", process)[1]
        port = int(reported(errors, r"MCP \(sse\) on http://127\.0\.0\.1:(\d+)/sse\n", process)[1])
        with socket.create_connection(("127.0.0.1", port), timeout=60) as stream:
            stream.sendall(b"GET /sse HTTP/1.1\r\nHost: localhost\r\n\r\n")
            while b"session_id=" not in stream.recv(65536):
                pass
        said = {"messages": [{"role": "user", "content": "slow"}]}
        for _ in range(2):
            asked = httpx2.post(f"http://127.0.0.1:{own}/api/chat", json=said, timeout=60)
            assert "slept" in asked.text
        process.terminate()
        assert process.wait(120) == 0
    finally:
        process.kill()
        process.wait()
    assert errors.read_text().count("noise in a log") == 2
    assert "WARNING:noise:" not in errors.read_text()


@pytest.mark.slow
@pytest.mark.parametrize("workers", [1, 2])
def test_serve_has_it_once_and_stops_with_an_open_stream(tmp_path: Path, workers: int) -> None:
    """In the only process, or, beside several workers, in the process for plugins."""
    # If the stop waited for a stream, it would take longer than the test waits.
    (tmp_path / "sayso.toml").write_text("[server]\ndrain_timeout = 600\nstart_timeout = 900\n")
    errors = tmp_path / "errors"
    process = serving(tmp_path, errors, workers)
    try:
        reported(errors, r"listening on http://127\.0\.0\.1:\d+", process)
        port = int(reported(errors, r"MCP \(sse\) on http://127\.0\.0\.1:(\d+)/sse\n", process)[1])
        with socket.create_connection(("127.0.0.1", port), timeout=60) as stream:
            stream.sendall(b"GET /sse HTTP/1.1\r\nHost: localhost\r\n\r\n")
            assert stream.recv(12) == b"HTTP/1.1 200"
            process.terminate()
            while stream.recv(65536):
                pass
        assert process.wait(120) == 0, errors.read_text()
    finally:
        process.kill()
        process.wait()
    assert errors.read_text().count("MCP (sse) on") == 1
    assert "Traceback" not in errors.read_text()


@pytest.mark.slow
@pytest.mark.parametrize("command", ["serve", "serve --workers 2", "mcp"])
def test_call_in_flight_has_the_whole_drain_to_end(tmp_path: Path, command: str) -> None:
    """The same if a plugin's shutdown, which has its own limit, leaves no time for calls."""
    (tmp_path / "slow_agent.py").write_text(SLOW_AGENT)
    (tmp_path / "sayso.toml").write_text(
        'agent = "slow_agent:agent"\n[server]\nhost = "127.0.0.1"\nport = 0\nstate_dir = "."\n'
        'mcp = true\ndrain_timeout = 120\n[plugin.mcp]\nport = 0\ntransport = "streamable-http"\n'
    )
    errors = tmp_path / "errors"
    with errors.open("wb") as writing:
        process = subprocess.Popen(
            [sys.executable, "-m", "sayso", *command.split()],
            stdout=subprocess.DEVNULL,
            stderr=writing,
            cwd=tmp_path,
        )

    async def talk(url: str) -> str:
        started = asyncio.Event()

        async def progress(value: float, total: float | None, message: str | None) -> None:
            started.set()

        async with Client(url, mode="legacy") as client:
            call = client.call_tool("waits", {}, progress_callback=progress)
            called = asyncio.ensure_future(call)
            await asyncio.wait_for(started.wait(), 60)
            process.terminate()
            while not (await client.call_tool("ends", {})).is_error:
                pass
            await asyncio.wait({called}, timeout=1.0)
            (tmp_path / "go").touch()
            text: str = (await called).content[0].text
            return text

    try:
        url = reported(errors, r"MCP .*on (http://\S+)\n", process)[1]
        assert asyncio.run(talk(url)) == "waited"
        assert process.wait(120) == 0, errors.read_text()
        assert errors.read_text().count(url) == 1, "the address is told once"
    finally:
        process.kill()
        process.wait()
