"""Stores that are damaged, read-only, full, newer, or gone in the middle of a turn (section 6)."""

from __future__ import annotations

import errno
import resource
import socket
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from processes import CONFIG, Nursery, Process, database, lines
from serving import Answer, Json, approved, said, until, user

from ports import quiet_port
from sayso import Agent, Call, tool
from sayso.testing import Served, Service, scripted


@tool(requires_approval=True)
def delete(path: str) -> str:
    """Delete a file."""
    return f"deleted {path}"


def deciding(reply: Json) -> list[Json]:
    calls = [approved(call) for call in reply["data"]["tool_calls"]]
    return [user("wipe"), said(reply), user("", data={"tool_calls": calls})]


def stopped(nursery: Nursery, folder: Path, **environ: str) -> str:
    """The output of a service that does not start."""
    process = nursery.start(folder, **environ)
    process.wait()
    assert "listening" not in process.said
    assert "Traceback" not in process.said
    return process.said


def filled(nursery: Nursery, folder: Path) -> Json:
    """A store with one open proposal, which no process uses any more."""
    process = nursery.start(folder)
    reply = process.client.chat(user("wipe"))
    process.close()
    with database(folder) as db:
        db.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    return reply


def test_a_damaged_store_stops_the_start(nursery: Nursery, tmp_path: Path) -> None:
    filled(nursery, tmp_path)
    file = tmp_path / "approvals.db"
    raw = bytearray(file.read_bytes())
    raw[4096 : 4096 + 4096] = b"\xff" * 4096
    file.write_bytes(raw)
    reported = stopped(nursery, tmp_path)
    assert str(file) in reported
    assert "damaged; restore it from a backup" in reported


def test_what_is_no_store_stops_the_start(nursery: Nursery, tmp_path: Path) -> None:
    (tmp_path / "approvals.db").write_text("a letter, not a database\n" * 100)
    assert "is no approvals store; move it away" in stopped(nursery, tmp_path)


def test_a_newer_schema_stops_the_start(nursery: Nursery, tmp_path: Path) -> None:
    filled(nursery, tmp_path)
    with database(tmp_path) as db:
        db.execute("PRAGMA user_version = 99")
    reported = stopped(nursery, tmp_path)
    assert "has schema 99" in reported
    assert "upgrade Sayso" in reported


def test_a_folder_that_takes_no_file_stops_the_start(nursery: Nursery, tmp_path: Path) -> None:
    (tmp_path / "in").write_text("a file")
    config = CONFIG.replace("sqlite:///approvals.db", "sqlite:///in/approvals.db")
    (tmp_path / "sayso.toml").write_text(config)
    reported = stopped(nursery, tmp_path)
    assert str(tmp_path / "in" / "approvals.db") in reported
    assert "a file stands where its folder should be" in reported


def test_memory_for_several_workers_stops_the_start(nursery: Nursery, tmp_path: Path) -> None:
    config = CONFIG.replace("sqlite:///approvals.db", "memory://")
    (tmp_path / "sayso.toml").write_text(config)
    reported = stopped(nursery, tmp_path, OPTIONS='{"workers": 2}')
    assert "memory://" in reported
    assert "workers = 1" in reported


def test_service_whose_store_takes_nothing_more_is_not_ready_and_says_why(
    tmp_path: Path,
    sayso_served: Served,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    agent = Agent(model=scripted([Call("1", "delete", {"path": "x"})], "fine"), tools=[delete])
    config = f'plugins = ["v2"]\n[approvals]\nledger = "sqlite:///{tmp_path}/approvals.db"\n'
    service = sayso_served(agent, config=config, ready=True)
    assert (service.get("/ready").status, service.get("/ready").json()) == (
        200,
        {"status": "ready"},
    )

    def fdatasync(descriptor: int) -> None:
        raise OSError(errno.EIO, "Input/output error")

    monkeypatch.setattr("os.fdatasync", fdatasync)
    service.chat("go")
    answer = until(lambda: _unless_ready(service), "the end of the store")
    why = "the approvals store cannot be flushed to disk; check the disk, restart the service"
    assert (answer.status, answer.json()) == (503, {"status": "not ready", "detail": why})
    service.get("/ready")
    (line,) = [line for line in caplog.messages if line.startswith("not ready")]
    assert line == f"not ready: {why}"
    assert service.get("/health").status == 200


def _unless_ready(service: Service) -> Any:
    answer = service.get("/ready")
    return None if answer.status == 200 else answer


def limit_files(process: Process, size: int) -> None:
    """Prevent the process from writing a file beyond `size` bytes, as on a full disk."""
    _, hard = resource.prlimit(process.pid, resource.RLIMIT_FSIZE)
    resource.prlimit(process.pid, resource.RLIMIT_FSIZE, (size, hard))


def test_a_full_store_refuses_the_claim_and_recovers(nursery: Nursery, tmp_path: Path) -> None:
    process = nursery.start(tmp_path)
    messages = deciding(process.client.chat(user("wipe")))
    # Less than the write-ahead log already has, so that no further page is accepted.
    limit_files(process, 4096)
    answer = process.client.ask(*messages)
    assert (answer.status, answer.json()["code"]) == (503, "LEDGER_UNAVAILABLE")
    assert lines(tmp_path, "runs") == []
    name = f"the approvals store {str(tmp_path / 'approvals.db')!r}"
    assert f"{name} cannot be read or written; check the disk" in process.said
    assert process.client.ask(user("wipe")).json()["code"] == "LEDGER_UNAVAILABLE"
    assert "LEDGER_UNAVAILABLE: the approvals store is not available: " in process.said
    assert "Traceback" not in process.said
    limit_files(process, resource.RLIM_INFINITY)
    reply = until(lambda: _fine(process, messages), "the recovery")
    assert reply["content"] == "ended: wiped a"
    assert lines(tmp_path, "runs") == ["a"]


def _fine(process: Process, messages: list[Json]) -> Json | None:
    answer = process.client.ask(*messages)
    return answer.json() if answer.status == 200 else None


@pytest.mark.slow
@pytest.mark.parametrize(("held", "stream"), [("tool", False), ("tool", True), ("model", False)])
def test_a_store_that_stays_full_ends_the_wait_and_keeps_what_ran(
    nursery: Nursery, tmp_path: Path, held: str, stream: bool
) -> None:
    process = nursery.start(tmp_path, HOLD=held)
    messages = deciding(process.client.chat(user("wipe")))
    with ThreadPoolExecutor(1) as pool:
        first = pool.submit(process.client.ask, *messages, stream=stream)
        until(lambda: lines(tmp_path, "held"), "the run")
        limit_files(process, 4096)
        (tmp_path / "go").touch()
        assert code_of(first.result()) == "LEDGER_UNAVAILABLE"
    # The same process knows the outcomes still to be recorded, and makes nobody wait for them for
    # ever.
    assert code_of(process.client.ask(*messages)) == "LEDGER_UNAVAILABLE"
    assert process.client.request("GET", "/health").status == 200
    limit_files(process, resource.RLIM_INFINITY)
    reply = until(lambda: _fine(process, messages), "the recovery")
    assert [e["output"] for e in reply["data"]["executed_tool_calls"]] == ["wiped a"]
    assert reply["content"] == "ended: wiped a"
    assert lines(tmp_path, "runs") == ["a"]


@pytest.mark.slow
def test_a_store_that_stays_full_ends_the_wait_for_what_a_callable_carried_out(
    nursery: Nursery, tmp_path: Path
) -> None:
    process = nursery.start(tmp_path, CALLABLE="1", HOLD="tool")
    messages = deciding(process.client.chat(user("wipe")))
    with ThreadPoolExecutor(1) as pool:
        first = pool.submit(process.client.ask, *messages)
        until(lambda: lines(tmp_path, "held"), "the run")
        limit_files(process, 4096)
        (tmp_path / "go").touch()
        assert code_of(first.result()) == "LEDGER_UNAVAILABLE"
    limit_files(process, resource.RLIM_INFINITY)
    reply = until(lambda: _fine(process, messages), "the recovery")
    assert reply["content"] == "carried out"
    assert lines(tmp_path, "runs") == ["a"]


def code_of(answer: Answer) -> str:
    """The code of a failure, over a stream or not."""
    return str(answer.json()["code"] if answer.status != 200 else answer.events[-1].get("code"))


def test_a_store_that_was_removed_refuses_the_claim(nursery: Nursery, tmp_path: Path) -> None:
    process = nursery.start(tmp_path)
    messages = deciding(process.client.chat(user("wipe")))
    (tmp_path / "approvals.db").rename(tmp_path / "moved.db")
    answer = process.client.ask(*messages)
    assert (answer.status, answer.json()["code"]) == (503, "LEDGER_UNAVAILABLE")
    assert "restart the service" in answer.json()["detail"]
    assert f"it was {str(tmp_path / 'approvals.db')!r}" in process.said
    assert str(tmp_path) not in answer.json()["detail"]
    assert lines(tmp_path, "runs") == []
    (event,) = process.client.stream(*messages)
    assert (event["type"], event["code"]) == ("error", "LEDGER_UNAVAILABLE")
    with process.client.ws() as ws:
        (event,) = ws.turn({"messages": messages})
        assert event["code"] == "LEDGER_UNAVAILABLE"
        (tmp_path / "moved.db").rename(tmp_path / "approvals.db")
        events = ws.turn({"messages": messages})
    assert events[-1]["type"] == "done"
    assert lines(tmp_path, "runs") == ["a"]


class Proxy:
    """A proxy to the database server that can be cut, and can lose the answer to a commit."""

    def __init__(self, host: str, port: int) -> None:
        self._target = (host, port)
        self._open: list[socket.socket] = []
        self._muted: set[socket.socket] = set()
        self.loses_commits = False
        self.port = quiet_port()
        self.back()

    def back(self) -> None:
        self._listener = socket.create_server(("127.0.0.1", self.port))
        threading.Thread(target=self._accept, args=(self._listener,), daemon=True).start()

    def cut(self) -> None:
        with suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        self.break_off()

    def break_off(self) -> None:
        for connection in self._open:
            with suppress(OSError):
                connection.shutdown(socket.SHUT_RDWR)
            connection.close()
        self._open.clear()

    def _accept(self, listener: socket.socket) -> None:
        with suppress(OSError):
            while True:
                client, _ = listener.accept()
                server = socket.create_connection(self._target)
                self._open += [client, server]
                for pair in ((client, server, True), (server, client, False)):
                    threading.Thread(target=self._pump, args=pair, daemon=True).start()

    def _pump(self, source: socket.socket, sink: socket.socket, asks: bool) -> None:
        with suppress(OSError):
            while data := source.recv(65536):
                if asks and self.loses_commits and b"COMMIT" in data:
                    self.loses_commits = False
                    self._muted.add(source)
                elif not asks and sink in self._muted:
                    # The server has committed, but no answer arrives.
                    self.break_off()
                    return
                sink.sendall(data)


@pytest.fixture
def proxied(postgres_url: str) -> Iterator[tuple[Proxy, str]]:
    from urllib.parse import urlsplit

    parts = urlsplit(postgres_url)
    proxy = Proxy(parts.hostname or "127.0.0.1", parts.port or 5432)
    user_ = f"{parts.username}@" if parts.username else ""
    yield proxy, parts._replace(netloc=f"{user_}127.0.0.1:{proxy.port}").geturl()
    proxy.cut()


def on_postgres(nursery: Nursery, folder: Path, url: str, **environ: str) -> Process:
    return nursery.start(folder, CONFIG.replace("sqlite:///approvals.db", url), **environ)


def test_a_lost_database_refuses_the_claim_and_comes_back(
    nursery: Nursery, tmp_path: Path, proxied: tuple[Proxy, str]
) -> None:
    proxy, url = proxied
    process = on_postgres(nursery, tmp_path, url)
    messages = deciding(process.client.chat(user("wipe")))
    proxy.cut()
    answer = process.client.ask(*messages)
    assert (answer.status, answer.json()["code"]) == (503, "LEDGER_UNAVAILABLE")
    assert lines(tmp_path, "runs") == []
    assert process.client.request("GET", "/health").status == 200
    assert f"127.0.0.1:{proxy.port}" in process.said
    assert "check that the server runs" in process.said
    proxy.back()
    reply = until(lambda: _fine(process, messages), "the recovery")
    assert reply["content"] == "ended: wiped a"
    assert lines(tmp_path, "runs") == ["a"]


@pytest.mark.parametrize("held", ["tool", "model"])
def test_a_database_lost_within_the_turn_loses_no_outcome(
    nursery: Nursery, tmp_path: Path, proxied: tuple[Proxy, str], held: str
) -> None:
    proxy, url = proxied
    process = on_postgres(nursery, tmp_path, url, HOLD=held)
    messages = deciding(process.client.chat(user("wipe")))
    with ThreadPoolExecutor(1) as pool:
        first = pool.submit(process.client.ask, *messages)
        until(lambda: lines(tmp_path, "held"), "the run")
        proxy.cut()
        (tmp_path / "go").touch()
        if held == "model":
            answer = first.result()
            assert (answer.status, answer.json()["code"]) == (503, "LEDGER_UNAVAILABLE")
        proxy.back()
        first.result()
    reply = until(lambda: _fine(process, messages), "the recovery")
    assert reply["content"] == "ended: wiped a"
    assert [e["output"] for e in reply["data"]["executed_tool_calls"]] == ["wiped a"]
    assert lines(tmp_path, "runs") == ["a"]


@pytest.mark.parametrize("commit", ["claim", "outcome", "reply"])
def test_a_commit_of_which_nobody_hears_loses_nothing(
    nursery: Nursery, tmp_path: Path, proxied: tuple[Proxy, str], commit: str
) -> None:
    proxy, url = proxied
    held = {"claim": "", "outcome": "tool", "reply": "model"}[commit]
    process = on_postgres(nursery, tmp_path, url, HOLD=held)
    messages = deciding(process.client.chat(user("wipe")))
    with ThreadPoolExecutor(1) as pool:
        proxy.loses_commits = not held
        first: Any = pool.submit(process.client.ask, *messages)
        if held:
            until(lambda: lines(tmp_path, "held"), "the run")
            proxy.loses_commits = True
            (tmp_path / "go").touch()
        first.result()
    assert not proxy.loses_commits, "no commit was lost"
    reply = until(lambda: _fine(process, messages), "the recovery")
    assert [e["output"] for e in reply["data"]["executed_tool_calls"]] == ["wiped a"]
    assert reply["content"] == "ended: wiped a"
    assert lines(tmp_path, "runs") == ["a"]
