"""Several worker processes behind one port: how connections are distributed, also during a
renewal."""

from __future__ import annotations

import http.client
import json
import os
import signal
import socket
import subprocess
import sys
import threading
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, closing, suppress
from pathlib import Path
from types import ModuleType

import pytest
from websockets.exceptions import ConnectionClosed
from websockets.sync.client import connect

from ports import quiet_port
from programs import DEADLINE, Program, until
from sayso.service import place
from sayso.service.supervisor import pause_after

AGENT = """
import logging
import multiprocessing
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

CODE = Path("code").read_text() if Path("code").exists() else ""


def until_there(name):
    while not Path(name).exists():
        time.sleep(0.02)


def forked(ready):
    ready.set()
    time.sleep(600)


if Path("hold-later-starts").exists():
    try:
        os.close(os.open("first", os.O_CREAT | os.O_EXCL))
    except FileExistsError:
        Path(f"held-{os.getpid()}").touch()
        until_there("start")
if Path("hold-starts").exists():
    Path("held").touch()
    until_there("start")
if CODE == "broken":
    raise RuntimeError(CODE)
if CODE == "mine":
    logging.basicConfig(format="mine: %(message)s")


def agent(messages, context):
    match messages[-1].content:
        case "wait":
            Path("waits").touch()
            until_there("end")
        case "code":
            return CODE
        case "fork":
            forks = multiprocessing.get_context("fork")
            ready = forks.Event()
            child = forks.Process(target=forked, args=(ready,))
            child.start()
            ready.wait()
            child.terminate()
            child.join()
            return str(child.exitcode)
        case "leave":
            if not (child := os.fork()):
                time.sleep(600)
                os._exit(0)
            return str(child)
        case "interrupt":
            code = "import signal as s; print(int(s.getsignal(s.SIGINT) == s.SIG_IGN))"
            return subprocess.check_output([sys.executable, "-c", code], text=True)
    return str(os.getpid())
"""


class Service(Program):
    """`sayso serve` with two worker processes; a turn's reply is the process that took it."""

    def __init__(
        self,
        folder: Path,
        port: int = 0,
        options: Sequence[str] = ("--workers", "2"),
        program: Sequence[str] = ("-m", "sayso"),
    ) -> None:
        self.folder = folder
        (folder / "agent.py").write_text(AGENT)
        command = [sys.executable, *program, "serve", "agent.py", *options]
        environ = {
            "SAYSO_SERVER__STATE_DIR": str(folder / "state"),
            "SAYSO_SERVER__DRAIN_TIMEOUT": "600",
        }
        command += ["--host", "127.0.0.1", "--port", str(port)]
        super().__init__(command, folder, os.environ | environ)

    def connect(self) -> http.client.HTTPConnection:
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=DEADLINE)
        connection.connect()
        return connection

    def turn(self, text: str = "who?") -> int:
        """The process that took a turn over a connection of its own."""
        with closing(self.connect()) as connection:
            return turn(connection, text)

    def both(self) -> set[int]:
        """The two processes, once both answer."""
        found: set[int] = set()
        until(lambda: found.add(self.turn()) or len(found) == 2)
        return found

    def allow(self, name: str) -> None:
        """Let the turns continue that wait for this name."""
        (self.folder / name).touch()

    def close(self) -> None:
        self.allow("start")
        self.allow("end")
        super().close()


def ask(connection: http.client.HTTPConnection, text: str = "who?") -> None:
    body = json.dumps({"messages": [{"role": "user", "content": text}]})
    connection.request("POST", "/api/chat", body, {"Content-Type": "application/json"})


def turn(connection: http.client.HTTPConnection, text: str = "who?") -> int:
    ask(connection, text)
    response = connection.getresponse()
    raw = response.read()
    assert response.status == 200, (response.status, raw)
    return int(json.loads(raw)["content"])


@pytest.fixture(autouse=True)
def _no_nohup() -> Iterator[None]:
    """If nohup made the tests ignore SIGHUP, each service would ignore it, too."""
    before = signal.signal(signal.SIGHUP, signal.SIG_DFL)
    yield
    signal.signal(signal.SIGHUP, before)


@pytest.fixture
def service(tmp_path: Path) -> Iterator[Service]:
    with closing(Service(tmp_path)) as running:
        yield running


@pytest.mark.skipif(sys.platform != "linux", reason="the kernel shares connections out on Linux")
def test_connections_opened_at_once_are_shared_out_among_the_workers(service: Service) -> None:
    workers = service.both()
    with ExitStack() as stack:
        connections = [stack.enter_context(closing(service.connect())) for _ in range(64)]
        taken = Counter(turn(connection) for connection in connections)
    assert set(taken) == workers
    assert min(taken.values()) >= 12, taken


def test_renewed_worker_with_a_turn_under_way_refuses_nobody(service: Service) -> None:
    before = service.both()
    kept = {}
    with ExitStack() as stack:
        while kept.keys() != before:
            connection = stack.enter_context(closing(service.connect()))
            kept[turn(connection)] = connection
        waiting: list[int] = []
        threads = [
            threading.Thread(target=lambda: waiting.append(service.turn("wait"))) for _ in range(16)
        ]
        for thread in threads:
            thread.start()
        service.process.send_signal(signal.SIGHUP)
        seen: list[int] = []

        def only_new() -> bool:
            seen.append(service.turn())
            return len(seen) > 20 and not before & set(seen[-20:])

        until(only_new)
        assert not waiting
        for connection in kept.values():
            assert connection.sock.recv(1) == b"", "a connection without a turn is closed soon"
    service.allow("end")
    for thread in threads:
        thread.join(DEADLINE)
    assert len(waiting) == 16


@pytest.mark.slow
def test_connection_that_asks_again_and_again_is_refused_nothing_in_a_renewal(
    service: Service,
) -> None:
    before, kept = service.both(), {}
    with ExitStack() as stack:
        while kept.keys() != before:
            connection = stack.enter_context(closing(service.connect()))
            kept[turn(connection)] = connection
        service.process.send_signal(signal.SIGHUP)

        def all_were_asked_to_close() -> bool:
            for worker, connection in list(kept.items()):
                ask(connection)
                response = connection.getresponse()
                assert json.loads(response.read())["content"] == str(worker)
                if response.getheader("connection") == "close":
                    del kept[worker]
            return not kept

        until(all_were_asked_to_close)


@pytest.mark.slow
def test_connection_whose_first_request_is_for_a_websocket_gets_it_in_a_renewal(
    service: Service,
) -> None:
    before, kept = service.both(), {}
    handshake = (
        b"GET /api/chat-ws HTTP/1.1\r\nHost: localhost\r\nConnection: Upgrade\r\n"
        b"Upgrade: websocket\r\nSec-WebSocket-Version: 13\r\n"
        b"Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n"
    )
    with ExitStack() as stack:
        silent = [stack.enter_context(closing(service.connect())).sock for _ in range(16)]
        while kept.keys() != before:
            connection = stack.enter_context(closing(service.connect()))
            kept[turn(connection)] = connection
        service.process.send_signal(signal.SIGHUP)

        # Wait for the first worker that leaves: a second later it closes connections without
        # requests.
        def a_worker_leaves() -> bool:
            for connection in kept.values():
                ask(connection)
                response = connection.getresponse()
                response.read()
                if response.getheader("connection") == "close":
                    return True
            return False

        until(a_worker_leaves)
        for sock in silent:
            sock.sendall(handshake)
        for sock in silent:
            with sock.makefile("rb") as answer:
                assert answer.readline() == b"HTTP/1.1 101 Switching Protocols\r\n"


@pytest.mark.slow
def test_renewal_says_when_the_last_process_is_a_new_one(service: Service, tmp_path: Path) -> None:
    before = service.both()
    done = "SIGHUP: all processes are replaced"
    (tmp_path / "code").write_text("broken")
    service.process.send_signal(signal.SIGHUP)
    until(lambda: "a new worker did not start" in service.said)
    (tmp_path / "code").write_text("1")
    service.allow("hold-starts")
    service.process.send_signal(signal.SIGHUP)
    until((tmp_path / "held").exists)
    assert service.turn() in before
    assert done not in service.said
    service.allow("start")
    until(lambda: done in service.said)
    assert not before & service.both()
    assert service.said.count(done) == 1


@pytest.mark.slow
def test_connections_of_a_killed_workers_share_are_taken_by_the_other(service: Service) -> None:
    victim, survivor = service.both()
    service.allow("hold-starts")
    os.kill(victim, signal.SIGKILL)
    until(lambda: "was ended by SIGKILL" in service.said)
    assert {service.turn() for _ in range(30)} == {survivor}
    service.allow("start")
    assert victim not in service.both()


@pytest.mark.slow
def test_processes_that_are_killed_before_they_serve_are_started_again(tmp_path: Path) -> None:
    """The second worker and the one of the plugins, beside a first worker that serves."""
    (tmp_path / "hold-later-starts").touch()
    options = ["--workers", "2", "--mcp", "--mcp-port", str(quiet_port())]
    with closing(Service(tmp_path, options=options)) as service:
        first = service.turn()
        for count in (2, 4):
            for process in held_starts(tmp_path, count):
                with suppress(ProcessLookupError):
                    os.kill(process, signal.SIGKILL)
            assert service.turn() == first
        until(lambda: "plugins process" in service.said and "worker process" in service.said)
        service.allow("start")
        assert first in service.both()


def held_starts(folder: Path, count: int) -> list[int]:
    """The processes that wait in their start, once so many have been."""
    until(lambda: len(list(folder.glob("held-*"))) >= count)
    return [int(path.name.removeprefix("held-")) for path in folder.glob("held-*")]


def test_service_that_is_killed_at_its_first_start_says_so(tmp_path: Path) -> None:
    (tmp_path / "hold-starts").touch()
    with closing(Service(tmp_path)) as service:
        until((tmp_path / "held").exists)
        (child,) = children(service.process.pid)
        os.kill(child, signal.SIGKILL)
        assert service.end() == 1
    assert "the service was ended by SIGKILL before it served" in service.said


def children(process: int) -> list[int]:
    found = Path(f"/proc/{process}/task/{process}/children").read_text()
    return [int(number) for number in found.split()]


@pytest.mark.slow
def test_port_of_a_killed_supervisor_is_free_at_once_while_a_turn_goes_on(tmp_path: Path) -> None:
    with closing(Service(tmp_path)) as service:
        both = service.both()
        port = service.port
        taken: list[int] = []
        waiting = threading.Thread(target=lambda: taken.append(service.turn("wait")))
        waiting.start()
        until((tmp_path / "waits").exists)
        service.process.kill()
        until(lambda: service.said.count("the supervisor is gone") == 2)
        until(lambda: refuses(port))
        (folder := tmp_path / "next").mkdir()
        with closing(Service(folder, port)) as later:
            assert not both & later.both()
            assert not taken, "the turn still runs"
            service.allow("end")
            waiting.join()
            assert set(taken) <= both
        until(lambda: not any(map(runs, both)))


def refuses(port: int) -> bool:
    try:
        socket.create_connection(("127.0.0.1", port), DEADLINE).close()
    except ConnectionRefusedError:
        return True
    return False


def test_stopping_service_answers_for_the_workers_that_have_ended_while_a_turn_goes_on(
    service: Service,
) -> None:
    both = service.both()
    waiting = threading.Thread(target=service.turn, args=("wait",))
    waiting.start()
    until((service.folder / "waits").exists)
    service.process.terminate()
    until(lambda: sum(map(runs, both)) == 1)
    refuses_all_until_its_turn_ends(service, waiting)


@pytest.mark.slow
def test_service_that_stops_during_a_renewal_answers_while_a_turn_of_an_old_worker_goes_on(
    service: Service,
) -> None:
    old = service.both()
    waiting = threading.Thread(target=service.turn, args=("wait",))
    waiting.start()
    until((service.folder / "waits").exists)
    service.process.send_signal(signal.SIGHUP)
    until(lambda: sum(map(runs, old)) == 1 and not (service.both() & old))
    new = service.both()
    service.process.terminate()
    until(lambda: not any(map(runs, new)))
    refuses_all_until_its_turn_ends(service, waiting)


def refuses_all_until_its_turn_ends(service: Service, waiting: threading.Thread) -> None:
    statuses = set()
    for _ in range(20):
        with closing(service.connect()) as connection:
            ask(connection)
            statuses.add(connection.getresponse().status)
    assert statuses == {503}
    service.allow("end")
    waiting.join()
    assert service.end() == 0


def runs(process: int) -> bool:
    with suppress(ProcessLookupError):
        os.kill(process, 0)
        return True
    return False


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="signals without a name, as on Linux")
def test_worker_that_ends_by_a_signal_without_a_name_is_replaced_like_any_other(
    service: Service,
) -> None:
    victim, survivor = service.both()
    os.kill(victim, signal.SIGRTMIN + 1)
    until(lambda: f"was ended by signal {signal.SIGRTMIN + 1};" in service.said)
    assert survivor in service.both()


@pytest.mark.slow
def test_second_service_on_the_port_of_several_workers_is_refused(
    service: Service, tmp_path: Path
) -> None:
    service.both()
    (tmp_path / "second").mkdir()
    with closing(Service(tmp_path / "second", service.port)) as second:
        assert second.process.wait(DEADLINE) == 1
    assert f"port {service.port} of 127.0.0.1 is in use" in second.said


@pytest.mark.parametrize("options", [(), ("--workers", "2")], ids=["one", "two"])
def test_signal_to_a_process_that_a_turn_forked_ends_that_alone(
    tmp_path: Path, options: Sequence[str]
) -> None:
    with closing(Service(tmp_path, options=options)) as running:
        before = running.turn()
        assert running.turn("fork") == -signal.SIGTERM
        until(lambda: running.turn() == before)


@pytest.mark.slow
@pytest.mark.parametrize("options", [(), ("--workers", "2")], ids=["one", "two"])
def test_port_of_a_killed_service_is_free_whatever_its_turns_forked(
    tmp_path: Path, options: Sequence[str]
) -> None:
    with closing(Service(tmp_path, options=options)) as running:
        child = running.turn("leave")
        try:
            running.process.kill()
            running.process.wait(DEADLINE)
            until(lambda: free(running.port))
        finally:
            os.kill(child, signal.SIGKILL)


def free(port: int) -> bool:
    with suppress(OSError), socket.create_server(("127.0.0.1", port)):
        return True
    return False


def test_connection_that_the_service_closes_ends_whatever_its_turns_forked(
    tmp_path: Path,
) -> None:
    options = ("--timeout-keep-alive", "1")
    with closing(Service(tmp_path, options=options)) as running, closing(running.connect()) as ours:
        child = turn(ours, "leave")
        try:
            assert ours.sock.recv(1) == b"", "else what is sent on it is never answered"
        finally:
            os.kill(child, signal.SIGKILL)


@pytest.mark.parametrize("options", [(), ("--workers", "2")], ids=["one", "two"])
def test_program_that_a_turn_starts_can_be_interrupted(
    tmp_path: Path, options: Sequence[str]
) -> None:
    with closing(Service(tmp_path, options=options)) as running:
        assert running.turn("interrupt") == 0


def test_hangup_of_a_worker_is_left_to_the_supervisor(service: Service) -> None:
    workers = service.both()
    for worker in workers:
        os.kill(worker, signal.SIGHUP)
    assert {service.turn() for _ in range(50)} <= workers
    assert service.both() == workers


def test_sources_in_the_folder_of_the_environment_itself_are_watched_and_installed_ones_are_not(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # The layout after `python -m venv .`, and with the system's Python for a program below /usr.
    for name in ("prefix", "exec_prefix", "base_prefix"):
        monkeypatch.setattr(sys, name, str(tmp_path))
    installed = tmp_path / "lib" / "site-packages" / "library.py"
    installed.parent.mkdir(parents=True)
    for name, file in (("my_agent", tmp_path / "my_agent.py"), ("library", installed)):
        file.touch()
        module = ModuleType(name)
        module.__file__ = str(file)
        monkeypatch.setitem(sys.modules, name, module)
    found = place._own_files()
    assert str(tmp_path / "my_agent.py") in found
    assert not {str(installed), json.__file__, pytest.__file__} & set(found)


def test_hangup_ends_a_service_that_reloads(tmp_path: Path) -> None:
    with closing(Service(tmp_path, options=["--reload"])) as running:
        running.turn()
        running.process.send_signal(signal.SIGHUP)
        assert running.process.wait(DEADLINE) == 0


def test_service_that_reloads_answers_503_with_the_error_while_its_code_cannot_be_loaded(
    tmp_path: Path,
) -> None:
    def refused(headers: dict[str, str]) -> str:
        with closing(running.connect()) as connection:
            connection.request("POST", "/api/chat-stream", b"x" * 100_000, headers)
            answer = connection.getresponse()
            assert answer.status == 503
            return str(json.load(answer)["detail"])

    with closing(Service(tmp_path, options=["--reload"])) as running:
        running.turn()
        (tmp_path / "agent.py").write_text("def agent(:\n")
        until(lambda: "waiting for a change" in running.said)
        reported = refused({})
        assert "'agent.py' cannot be loaded: importing it raised SyntaxError" in reported
        # A page under another name that was pointed here gets no details.
        assert "SyntaxError" not in refused({"Host": "pages.example"})
        (tmp_path / "agent.py").write_text(AGENT)
        until(lambda: running.said.count("listening on") == 2)
        running.turn()


def test_hangup_of_the_only_process_lets_its_turns_end(tmp_path: Path) -> None:
    with closing(Service(tmp_path, options=())) as running, closing(running.connect()) as ours:
        body = json.dumps({"messages": [{"role": "user", "content": "wait"}]})
        ours.request("POST", "/api/chat", body, {"Content-Type": "application/json"})
        until((tmp_path / "waits").exists)
        running.process.send_signal(signal.SIGHUP)
        running.allow("end")
        assert ours.getresponse().status == 200
        assert running.process.wait(DEADLINE) == 0


@pytest.mark.skipif(sys.platform != "linux", reason="/proc tells what is ignored")
@pytest.mark.parametrize("options", [(), ("--reload",)], ids=["one", "reload"])
def test_hangup_that_nohup_ignores_stays_ignored(tmp_path: Path, options: Sequence[str]) -> None:
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)
    try:
        running = Service(tmp_path, options=options)
    finally:
        signal.signal(signal.SIGHUP, before)
    with closing(running):
        running.turn()
        status = Path(f"/proc/{running.process.pid}/status").read_text()
        ignored = int(status.partition("SigIgn:")[2].split()[0], 16)
        assert ignored & 1 << signal.SIGHUP - 1


def test_renewed_service_says_once_what_its_new_settings_let_happen(
    service: Service, tmp_path: Path
) -> None:
    before = service.both()
    (tmp_path / "sayso.toml").write_text("[approvals]\naccept_unissued = true\n", "utf-8")
    service.process.send_signal(signal.SIGHUP)
    until(lambda: not before & service.both())
    said = "warning: approvals.accept_unissued lets callers run what they like"
    until(lambda: said in service.said)
    assert service.said.count(said) == 1


@pytest.mark.slow
@pytest.mark.parametrize("first", ["1", "broken"])
def test_second_renewal_during_a_first_one_renews_all_the_same(
    service: Service, tmp_path: Path, first: str
) -> None:
    service.both()
    (tmp_path / "code").write_text(first)
    service.allow("hold-starts")
    service.process.send_signal(signal.SIGHUP)
    until((tmp_path / "held").exists)
    (tmp_path / "code").write_text("2")
    service.process.send_signal(signal.SIGHUP)
    service.allow("start")
    seen: list[int] = []

    def only_second() -> bool:
        with suppress(ValueError):
            seen.append(service.turn("code"))
        return len(seen) > 40 and set(seen[-40:]) == {2}

    until(only_second)


def test_renewed_worker_answers_what_has_begun_to_come_and_closes_idle_websockets(
    service: Service,
) -> None:
    before = service.both()
    body = b'{"messages":[{"role":"user","content":"who?"}]}'
    request = (
        b"POST /api/chat HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
        b"Content-Length: %d\r\n\r\n%b" % (len(body), body)
    )
    with ExitStack() as stack:
        idle = [
            stack.enter_context(connect(f"ws://127.0.0.1:{service.port}/api/chat-ws"))
            for _ in range(8)
        ]
        slow = []
        for cut in (20, len(request) - 5) * 8:
            sock = socket.create_connection(("127.0.0.1", service.port), DEADLINE)
            slow.append((stack.enter_context(closing(sock)), request[cut:]))
            sock.sendall(request[:cut])
        service.process.send_signal(signal.SIGHUP)
        for client in idle:
            with pytest.raises(ConnectionClosed) as closed:
                client.recv(DEADLINE)
            assert closed.value.rcvd is not None
            assert closed.value.rcvd.code == 1012
        for sock, rest in slow:
            sock.sendall(rest)
            with sock.makefile("rb") as answer:
                assert answer.readline() == b"HTTP/1.1 200 OK\r\n"
    assert not before & service.both()


@pytest.mark.slow
def test_renewed_worker_closes_websockets_between_two_turns(service: Service) -> None:
    service.both()
    question = json.dumps({"messages": [{"role": "user", "content": "who?"}]})
    received: list[list[str]] = []

    def talk() -> None:
        events: list[str] = []
        received.append(events)
        with (
            connect(f"ws://127.0.0.1:{service.port}/api/chat-ws") as client,
            suppress(ConnectionClosed),
        ):
            while True:
                client.send(question)
                events.append("")
                while events[-1] not in ("done", "error"):
                    events.append(json.loads(client.recv(DEADLINE))["type"])

    threads = [threading.Thread(target=talk) for _ in range(8)]
    for thread in threads:
        thread.start()
    until(lambda: sum("done" in events for events in received) == 8)
    service.process.send_signal(signal.SIGHUP)
    for thread in threads:
        thread.join(DEADLINE)
        assert not thread.is_alive()
    for events in received:
        assert "error" not in events
        assert events[-1] in ("", "done")


def test_worker_that_cannot_be_started_again_leaves_the_other_serving(tmp_path: Path) -> None:
    interpreter = tmp_path / "interpreter"
    gone = tmp_path / "gone"
    interpreter.write_text(f'#!/bin/sh\nexec "{sys.executable}" "$@"\n')
    interpreter.chmod(0o755)
    program = tmp_path / "program.py"
    program.write_text(
        f"import sys\nfrom sayso.cli import main\nsys.executable = {str(interpreter)!r}\nmain()\n"
    )
    with closing(Service(tmp_path, program=[str(program)])) as running:
        victim, survivor = running.both()
        interpreter.rename(gone)
        os.kill(victim, signal.SIGKILL)
        until(lambda: "no worker process: " in running.said)
        assert {running.turn() for _ in range(30)} == {survivor}
        running.process.send_signal(signal.SIGHUP)
        until(lambda: "a new worker did not start" in running.said)
        assert running.turn() == survivor
        gone.rename(interpreter)
        assert survivor in running.both()


def test_worker_without_the_plugin_that_asks_callers_who_they_are_does_not_serve(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    info = tmp_path / "site" / "door-1.0.dist-info"
    info.mkdir(parents=True)
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: door\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text("[sayso]\ndoor = door\n")
    (info.parent / "door.py").write_text(
        "from sayso import hookimpl\n@hookimpl\ndef authenticate(): return None\n"
    )
    monkeypatch.setenv("PYTHONPATH", str(info.parent), prepend=os.pathsep)
    with closing(Service(tmp_path)) as running:
        with closing(running.connect()) as connection, pytest.raises(AssertionError, match="401"):
            turn(connection)
        # The state while pip installs another version.
        (info / "entry_points.txt").unlink()
        running.process.send_signal(signal.SIGHUP)
        until(lambda: "a new worker did not start" in running.said)
        assert "callers had to say who they are" in running.said
        with closing(running.connect()) as connection, pytest.raises(AssertionError, match="401"):
            turn(connection)


@pytest.mark.parametrize("workers", [1, 2])
def test_service_without_standard_files_serves_and_ends_in_order(
    tmp_path: Path, workers: int
) -> None:
    port = quiet_port()
    (tmp_path / "agent.py").write_text(AGENT)
    serve = [sys.executable, "-m", "sayso", "serve", "agent.py", "--workers", str(workers)]
    with subprocess.Popen(
        ["sh", "-c", 'exec "$@" 0<&- 1>&- 2>&-', "sh", *serve, "--port", str(port)],
        cwd=tmp_path,
        env=os.environ | {"SAYSO_SERVER__STATE_DIR": str(tmp_path / "state")},
    ) as process:
        found: set[int] = set()

        def all_answer() -> bool:
            assert process.poll() is None
            with (
                closing(http.client.HTTPConnection("127.0.0.1", port, timeout=DEADLINE)) as caller,
                suppress(ConnectionError),
            ):
                found.add(turn(caller))
            return len(found) == workers

        try:
            until(all_answer)
        finally:
            process.terminate()
    assert process.returncode == 0


WARNING_AGENT = """
import logging
import os


def agent(messages, context):
    logging.getLogger("another").warning("a warning of another library")
    return str(os.getpid())
"""


@pytest.mark.slow
@pytest.mark.parametrize("workers", [1, 2])
def test_service_answers_and_ends_while_the_reader_of_its_log_hangs(
    tmp_path: Path, workers: int
) -> None:
    port = quiet_port()
    (tmp_path / "agent.py").write_text(WARNING_AGENT)
    os.mkfifo(tmp_path / "log")
    reader = os.open(tmp_path / "log", os.O_RDWR)
    writer = os.open(tmp_path / "log", os.O_WRONLY)
    filler = os.open(tmp_path / "log", os.O_WRONLY | os.O_NONBLOCK)
    serve = [sys.executable, "-m", "sayso", "serve", "agent.py", "--workers", str(workers)]
    with subprocess.Popen(
        [*serve, "--host", "127.0.0.1", "--port", str(port)],
        cwd=tmp_path,
        env=os.environ | {"SAYSO_SERVER__STATE_DIR": str(tmp_path / "state")},
        stderr=writer,
    ) as process:
        said = b""
        while b"see [auth]\n" not in said:
            said += os.read(reader, 65536)
        with suppress(BlockingIOError):
            while True:
                os.write(filler, b"." * 512)
        try:
            for _ in range(2 * workers):
                with socket.create_connection(("127.0.0.1", port), DEADLINE) as client:
                    client.sendall(b"garbage\r\n\r\n")
                    assert client.recv(12) == b"HTTP/1.1 400"
                with closing(
                    http.client.HTTPConnection("127.0.0.1", port, timeout=DEADLINE)
                ) as caller:
                    turn(caller)
            process.terminate()
            assert process.wait(DEADLINE) == 0
        finally:
            # A hanging one continues once somebody reads.
            for each in (reader, writer, filler):
                os.close(each)


def test_agent_that_sets_up_logging_as_it_is_loaded_has_each_record_once(tmp_path: Path) -> None:
    (tmp_path / "code").write_text("mine")
    with closing(Service(tmp_path, options=())) as running:
        with socket.create_connection(("127.0.0.1", running.port), DEADLINE) as client:
            client.sendall(b"garbage\r\n\r\n")
            assert client.recv(12) == b"HTTP/1.1 400"
        running.process.terminate()
        assert running.end() == 0
    assert "mine: Invalid HTTP request" in running.said
    assert running.said.count("Invalid HTTP request") == 1


def test_pause_before_another_start_has_a_limit_however_many_have_died() -> None:
    assert [pause_after(failures) for failures in (1, 2, 3, 20, 5_000)] == [0.2, 0.4, 0.8, 10, 10]
