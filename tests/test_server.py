from __future__ import annotations

import asyncio
import http.client
import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Generator, Iterator
from contextlib import closing, suppress
from pathlib import Path
from typing import Any
from urllib.request import urlopen

import pytest
from websockets.exceptions import ConnectionClosed
from websockets.sync.client import connect

from ports import quiet_port
from programs import DEADLINE, Program, until
from sayso.config import Config
from sayso.config.options import configured
from sayso.errors import ConfigError, StartupError
from sayso.listener.listener import QUIET
from sayso.server import serve

HERE = Path(__file__).parent
CORE = HERE.parent / "core"

SCRIPT = f"""
import sys
sys.path.insert(0, {str(HERE)!r})
import small_app
small_app.install()
from sayso.server import serve

class Agent:
    def __str__(self):
        return "one"

agent = Agent()

if __name__ == "__main__":
    serve(agent, host="127.0.0.1", port=PORT, OPTIONS)
"""


def script(options: str, port: int = 0) -> str:
    return SCRIPT.replace("PORT", str(port)).replace("OPTIONS", options)


class Service(Program):
    """A script that serves, as a process."""

    def __init__(self, folder: Path, options: str, port: int, environ: dict[str, str]) -> None:
        self.script = folder / "service.py"
        self.script.write_text(script(options, port))
        more = {"PYTHONPATH": str(CORE), "PYTHONDONTWRITEBYTECODE": "1"} | environ
        super().__init__([sys.executable, "-W", "error", "service.py"], folder, os.environ | more)

    def get(self, path: str) -> Any:
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=DEADLINE)
        try:
            connection.request("GET", path)
            return json.loads(connection.getresponse().read())
        finally:
            connection.close()

    def pids(self, count: int) -> set[int]:
        """The processes that answer, once there are `count` of them."""
        found: set[int] = set()

        def enough() -> bool:
            found.add(self.get("/agent")["pid"])
            return len(found) == count

        until(enough)
        return found

    def signal(self, number: int) -> None:
        self.process.send_signal(number)


@pytest.fixture
def service(tmp_path: Path) -> Iterator[Callable[..., Service]]:
    services: list[Service] = []

    def start(options: str = "", port: int = 0, **environ: str) -> Service:
        services.append(Service(tmp_path, options, port, environ))
        return services[-1]

    yield start
    for each in services:
        each.close()


def lines_of(port: int, path: str) -> Generator[bytes, None, None]:
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=DEADLINE)
    connection.request("GET", path)
    try:
        yield from connection.getresponse()
    finally:
        connection.close()


def test_start_says_what_is_served_where(service: Callable[..., Service]) -> None:
    running = service()
    assert running.get("/health") == {"status": "ok"}
    assert "sayso: agent one" in running.said


def test_service_whose_log_nobody_reads_serves_all_the_same(tmp_path: Path) -> None:
    port = quiet_port()
    (tmp_path / "service.py").write_text(script("", port))
    reader, writer = os.pipe()
    os.close(reader)
    command = [sys.executable, "service.py"]
    environ = os.environ | {"PYTHONPATH": str(CORE), "PYTHONDONTWRITEBYTECODE": "1"}
    # With a buffer, too, which is Python's default.
    environ.pop("PYTHONUNBUFFERED", None)
    with subprocess.Popen(command, cwd=tmp_path, env=environ, stderr=writer) as process:
        os.close(writer)

        def answer() -> Any:
            assert process.poll() is None
            with suppress(OSError), urlopen(f"http://127.0.0.1:{port}/health") as response:
                return json.load(response)
            return None

        try:
            assert until(answer) == {"status": "ok"}
        finally:
            process.terminate()
        assert process.wait(DEADLINE) == 0


def test_sigterm_gives_a_stream_its_end_and_exits_0(service: Callable[..., Service]) -> None:
    running = service()
    lines = lines_of(running.port, "/stream")
    assert next(lines) == b'{"n": 0}\n'
    running.signal(signal.SIGTERM)
    assert list(lines) == [b'{"type": "done"}\n']
    assert running.end() == 0


def test_sigint_ends_a_websocket_with_its_event_and_then_1012(
    service: Callable[..., Service],
) -> None:
    running = service()
    with connect(f"ws://127.0.0.1:{running.port}/ws", open_timeout=DEADLINE) as client:
        client.send("hello")
        assert [client.recv() for _ in range(3)] == ["text"] * 3
        running.signal(signal.SIGINT)
        assert client.recv() == '{"type": "error"}'
        with pytest.raises(ConnectionClosed) as closed:
            client.recv()
        assert closed.value.rcvd is not None
        assert closed.value.rcvd.code == 1012
    assert running.end() == 0


def test_second_sigint_ends_the_process_at_once(service: Callable[..., Service]) -> None:
    running = service()
    lines = lines_of(running.port, "/slow")
    assert next(lines) == b"begun\n"
    running.signal(signal.SIGINT)
    until(lambda: "draining" in running.said)
    assert running.process.poll() is None
    running.signal(signal.SIGINT)
    assert running.end() == 130
    lines.close()


def test_connection_that_does_not_end_is_cut_off(service: Callable[..., Service]) -> None:
    running = service("drain_timeout=0.1")
    lines = lines_of(running.port, "/slow")
    assert next(lines) == b"begun\n"
    running.signal(signal.SIGTERM)
    assert running.end() == 0
    lines.close()


def test_broken_text_reaches_the_app_and_the_websocket_lives_on(
    service: Callable[..., Service],
) -> None:
    with connect(f"ws://127.0.0.1:{service().port}/ws", open_timeout=DEADLINE) as client:
        client.send(b"\xff\xfe", text=True)
        assert [client.recv() for _ in range(3)] == ["bytes"] * 3
        client.send("hello")
        assert client.recv() == "text"


def test_debug_log_has_each_request_and_neither_its_token_nor_what_was_said(
    service: Callable[..., Service],
) -> None:
    running = service("log_level='debug'")
    secret = {"Authorization": "Bearer one-long-secret"}
    where = f"ws://127.0.0.1:{running.port}/ws"
    with connect(where, additional_headers=secret, open_timeout=DEADLINE) as client:
        client.send("said in private")
        assert [client.recv() for _ in range(3)] == ["text"] * 3
    running.get("/health")
    until(lambda: "GET /health" in running.said)
    running.signal(signal.SIGTERM)
    assert running.end() == 0
    assert "one-long-secret" not in running.said
    assert "said in private" not in running.said


def test_health_answers_while_64_turns_block(service: Callable[..., Service]) -> None:
    running = service()
    port = running.port
    callers = [socket.create_connection(("127.0.0.1", port), DEADLINE) for _ in range(64)]
    for caller in callers:
        caller.sendall(b"GET /block HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")
    until(lambda: running.get("/blocked")["turns"] == 64)
    for _ in range(20):
        assert running.get("/health") == {"status": "ok"}
    assert running.get("/blocked")["turns"] == 64
    assert running.get("/release") == {}
    answers = [caller.makefile("rb").read() for caller in callers]
    assert all(answer.endswith(b'{"done": true}') for answer in answers)
    for caller in callers:
        caller.close()


@pytest.mark.parametrize("options", ["", "workers=2"])
def test_busy_port_is_one_line_and_exit_1(service: Callable[..., Service], options: str) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        running = service(options, port)
        assert running.end() == 1
    assert running.said == (
        f"sayso: port {port} of 127.0.0.1 is in use; "
        "stop what listens there or choose another with --port\n"
    )


@pytest.mark.parametrize("options", ["", "workers=2"])
def test_app_that_does_not_start_ends_the_service_with_1(
    service: Callable[..., Service], options: str
) -> None:
    running = service(options, SMALL_FAILS="1")
    assert running.end() == 1
    assert running.said == "sayso: the plugin 'small' did not start\n"
    running = service(options, SMALL_REFUSES="1")
    assert running.end() == 1
    assert running.said == "sayso: plugin 'small' is not installed; try: pip install small\n"


def test_script_with_two_workers_serves_from_both_and_drains_on_sigterm(
    service: Callable[..., Service],
) -> None:
    running = service("workers=2")
    assert running.get("/agent")["agent"] == "one"
    pids = running.pids(2)
    assert running.process.pid not in pids
    lines = lines_of(running.port, "/stream")
    assert next(lines) == b'{"n": 0}\n'
    running.signal(signal.SIGTERM)
    assert list(lines) == [b'{"type": "done"}\n']
    assert running.end() == 0
    assert running.said.count("listening on") == 1


def test_killed_worker_is_started_again(service: Callable[..., Service]) -> None:
    running = service("workers=2")
    before = running.pids(2)
    victim = before.pop()
    os.kill(victim, signal.SIGKILL)
    until(lambda: "was ended by SIGKILL" in running.said)
    now: set[int] = set()

    def replaced() -> bool:
        now.add(running.get("/agent")["pid"])
        return len(now) == 2

    until(replaced)
    assert victim not in now
    assert before < now


def test_sighup_renews_every_worker_without_a_refused_request(
    service: Callable[..., Service],
) -> None:
    running = service("workers=2")
    before = running.pids(2)
    running.signal(signal.SIGHUP)
    until(lambda: running.get("/agent")["pid"] not in before)
    seen: list[int] = []

    def only_new() -> bool:
        seen.append(running.get("/agent")["pid"])
        return len(seen) > 20 and not before & set(seen[-20:])

    until(only_new)
    running.signal(signal.SIGTERM)
    assert running.end() == 0


def test_workers_end_when_their_supervisor_is_killed(service: Callable[..., Service]) -> None:
    running = service("workers=2")
    pids = running.pids(2)
    running.process.kill()

    def alive(pid: int) -> bool:
        stat = Path(f"/proc/{pid}/stat")
        try:
            return stat.read_text().rpartition(")")[2].split()[0] != "Z"
        except (FileNotFoundError, ProcessLookupError):
            return False

    until(lambda: not any(alive(pid) for pid in pids))


def test_plugins_of_their_own_process_live_once_and_are_started_again(
    service: Callable[..., Service], tmp_path: Path
) -> None:
    note = tmp_path / "note"
    running = service("workers=2", SMALL_OWN_PROCESS=str(note))
    until(lambda: note.exists() and note.read_text().endswith("\n"))
    first = int(note.read_text())
    assert first not in running.pids(2)
    os.kill(first, signal.SIGKILL)
    until(lambda: len(note.read_text().split()) == 2)
    running.signal(signal.SIGTERM)
    assert running.end() == 0
    assert note.read_text().split()[-1] == "left"


def test_port_is_closed_when_only_the_process_of_plugins_has_not_ended_yet(
    service: Callable[..., Service], tmp_path: Path
) -> None:
    note = tmp_path / "note"
    running = service("workers=2, drain_timeout=600", SMALL_OWN_PROCESS=str(note))
    until(lambda: note.exists() and note.read_text().endswith("\n"))
    own = int(note.read_text())
    os.kill(own, signal.SIGSTOP)
    running.signal(signal.SIGTERM)

    def refused() -> bool:
        try:
            running.get("/agent")
        except ConnectionRefusedError:
            return True
        except OSError:
            return False
        return False

    until(refused)
    os.kill(own, signal.SIGCONT)
    assert running.end() == 0


def test_own_process_that_does_not_start_ends_the_service(
    service: Callable[..., Service], tmp_path: Path
) -> None:
    running = service("workers=2", SMALL_OWN_PROCESS=str(tmp_path))
    assert running.end() == 1
    assert running.said.count("sayso: the port of plugin 'clock' is in use\n") == 1


def test_reload_picks_up_a_changed_file_and_survives_a_broken_one(
    service: Callable[..., Service],
) -> None:
    running = service("reload=True")
    assert running.get("/agent")["agent"] == "one"
    text = running.script.read_text()
    running.script.write_text(text.replace('"one"', "1 +"))
    until(lambda: "waiting for a change" in running.said)
    assert "its terminal says why" in running.get("/agent")["detail"]
    running.script.write_text(text.replace('"one"', '"another"'))
    until(lambda: running.get("/agent").get("agent") == "another")
    running.signal(signal.SIGINT)
    assert running.end() == 0


def test_reload_does_not_wait_for_a_request_on_a_kept_connection(
    service: Callable[..., Service],
) -> None:
    running = service("reload=True")
    text, waits = running.script.read_text(), []
    for name in ("two", "three", "four"):
        kept = http.client.HTTPConnection("127.0.0.1", running.port, timeout=DEADLINE)
        with closing(kept):
            kept.request("GET", "/agent")
            kept.getresponse().read()
            before = running.said.count("starting again")
            running.script.write_text(text.replace('"one"', f'"{name}"'))
            until(lambda before=before: running.said.count("starting again") > before)
            started = time.monotonic()
            assert kept.sock.recv(1) == b""
            waits.append(time.monotonic() - started)
    assert min(waits) < QUIET


def test_program_without_a_file_is_a_clear_error(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-"],
        input=f"import sys; sys.path.insert(0, {str(CORE)!r})\n"
        "from sayso.server import serve\nserve(object(), port=0, workers=2)\n",
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=DEADLINE,
    )
    assert done.returncode == 1
    assert done.stderr.startswith("sayso: the agent cannot be found again in child processes")


def test_program_that_does_not_serve_again_is_told_so(service: Callable[..., Service]) -> None:
    running = service('workers="_SAYSO_PLACE" in __import__("os").environ and sys.exit() or 2')
    assert running.end() == 1
    assert "must call serve() again" in running.said


def test_reload_with_workers_is_a_value_error() -> None:
    with pytest.raises(ValueError, match=r"reload.*workers"):
        serve(object(), reload=True, workers=2)


def test_several_workers_cannot_share_a_ledger_in_memory(
    capsys: pytest.CaptureFixture[str],
) -> None:
    config = Config.model_validate({"approvals": {"ledger": "memory://"}})
    with pytest.raises(SystemExit) as stopped:
        serve(object(), config=config, workers=2, port=0)
    assert stopped.value.code == 1
    assert "memory://" in capsys.readouterr().err


def test_several_workers_cannot_share_a_pipe_of_tokens(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    os.mkfifo(tmp_path / "tokens")
    config = Config.model_validate({"auth": {"tokens_file": tmp_path / "tokens"}})
    with pytest.raises(SystemExit):
        serve(object(), config=config, workers=2, port=0)
    assert "is a pipe, which only one process can read; " in capsys.readouterr().err


def test_serve_inside_a_running_loop_says_what_to_do_instead() -> None:
    async def within() -> None:
        serve(object(), port=0)

    with pytest.raises(StartupError, match=r"create_app\(agent\)"):
        asyncio.run(within())


def test_module_that_serves_when_it_is_imported_is_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    # It once served with its own options, and at SIGTERM the service that was asked for began.
    file = tmp_path / "unguarded.py"
    file.write_text("from sayso import Agent, serve\nagent = Agent()\nserve(agent, port=0)\n")
    with pytest.raises(SystemExit):
        serve(f"{file}:agent", config=Config(), port=0)
    err = capsys.readouterr().err
    assert f"put the call under if __name__ == '__main__' ({file}, line 3)" in err


def test_service_without_an_agent_does_not_start(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        serve(config=Config(), port=0)
    assert "there is no agent" in capsys.readouterr().err


def test_options_win_over_a_configuration_and_keep_the_rest() -> None:
    given = Config.model_validate({"server": {"port": 9000, "docs": True}})
    card = {"name": "x"}
    config, extras = configured({"port": 7000, "mcp_port": 7001, "a2a_agent_card": card}, given)
    assert (config.server.port, config.server.docs) == (7000, True)
    assert config.plugin == {"mcp": {"port": 7001}}
    assert extras == {"a2a_agent_card": card}
    assert given.server.port == 9000


def test_misspelt_option_and_wrong_value_are_named() -> None:
    with pytest.raises(TypeError, match="did you mean 'port'"):
        configured({"prot": 1})
    with pytest.raises(ConfigError, match=r"server\.port \(keyword port\)"):
        configured({"port": 99_999}, Config())


def test_keyword_of_another_section_is_told_where_it_belongs() -> None:
    with pytest.raises(TypeError, match=r"no option 'model'; .* belong in sayso\.toml"):
        configured({"model": "offline"})
