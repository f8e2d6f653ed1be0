"""A client that loses its stream reads on, and nothing starts a second time."""

from __future__ import annotations

import http.client
import json
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
from websockets.sync.client import connect

from sayso import Agent, Call, StartupError, tool
from sayso.testing import Service, scripted, served, user
from sayso_resume.machines import Machines

sys.path.insert(0, str(Path(__file__).parents[3] / "tests"))

from ports import quiet_port

ID = "a-stream-of-this-test"
CONFIG = 'plugins = ["v2", "resume"]\n[server]\nhost = "127.0.0.1"\n'
Start = Callable[..., Service]


class Gate:
    """A tool that signals that it runs, and ends when the test lets it."""

    def __init__(self) -> None:
        self.started, self.open = threading.Event(), threading.Event()
        self.runs = 0

    def tool(self) -> Any:
        @tool
        def wait() -> str:
            """Wait."""
            self.runs += 1
            self.started.set()
            assert self.open.wait(30)
            return "waited"

        return wait


@pytest.fixture
def gate() -> Gate:
    return Gate()


@pytest.fixture
def start(gate: Gate) -> Iterator[Start]:
    with ExitStack() as stack:

        def begin(*steps: Any, config: str = CONFIG) -> Service:
            agent = Agent(name="desk", model=scripted(*steps), tools=[gate.tool()])
            return stack.enter_context(served(agent, config=config))

        yield begin


def rest(service: Service, id: str = ID, after: int = 0, **headers: str) -> list[Any]:
    answer = service.get(f"/api/chat-stream/{id}?after={after}", headers)
    assert answer.status == 200, answer.text
    return answer.events


def begin_and_leave(service: Service, gate: Gate, **headers: str) -> bytes:
    """Post a request, and close the connection while its tool runs; returns the data received."""
    connection = http.client.HTTPConnection("127.0.0.1", service.port, timeout=30)
    body = json.dumps({"messages": [user("wait")], "resumable": ID})
    connection.request(
        "POST", "/api/chat-stream", body, {"Content-Type": "application/json", **headers}
    )
    reply = connection.getresponse()
    first = reply.read1(65536)
    assert gate.started.wait(30)
    connection.close()
    return first


WAIT = Call("w", "wait", {})


def test_a_stream_that_broke_is_read_on_and_its_turn_goes_on(start: Start, gate: Gate) -> None:
    service = start(["One moment.", WAIT], "Done waiting.")
    first = begin_and_leave(service, gate)
    lines = first.count(b"\n")
    assert lines > 0
    gate.open.set()
    whole = rest(service)
    assert rest(service, after=lines) == whole[lines:]
    assert whole[-1]["type"] == "done" and gate.runs == 1
    text = "".join(e["text"] for e in whole if e["type"] == "text_delta")
    assert text.endswith("Done waiting.")
    assert rest(service, after=len(whole)) == []


def test_a_reader_gets_what_comes_while_it_reads(start: Start, gate: Gate) -> None:
    service = start([WAIT], "Done waiting.")
    begin_and_leave(service, gate)
    found: list[Any] = []
    reader = threading.Thread(target=lambda: found.extend(rest(service)))
    reader.start()
    gate.open.set()
    reader.join(30)
    assert found[-1]["type"] == "done"


def test_the_lines_are_those_that_the_stream_had(start: Start) -> None:
    service = start("Hello there.")
    sent = service.stream("hello", resumable=ID)
    assert rest(service) == sent


def test_over_a_websocket_a_frame_asks_for_the_rest(start: Start, gate: Gate) -> None:
    service = start(["One moment.", WAIT], "Done waiting.", "Next.")
    address = service.url.replace("http", "ws") + "/api/chat-ws"
    with connect(address) as socket:
        socket.send(json.dumps({"messages": [user("wait")], "resumable": ID}))
        first = socket.recv(30)
        assert gate.started.wait(30)
    assert first
    gate.open.set()
    with connect(address) as socket:
        socket.send(json.dumps({"resume": ID, "after": 1}))
        found = [json.loads(socket.recv(30))]
        while found[-1]["type"] != "done":
            found.append(json.loads(socket.recv(30)))
        assert found == rest(service)[1:] and gate.runs == 1
        socket.send(json.dumps({"messages": [user("next")]}))
        assert json.loads(socket.recv(30))["text"] == "Next."


def test_what_another_principal_streams_does_not_exist(start: Start, gate: Gate) -> None:
    auth = '[auth]\nscheme = "bearer"\ntokens = {ann = "a", bob = "b"}\n'
    service = start([WAIT], "Done.", config=CONFIG + auth)
    gate.open.set()
    ann, bob = ({"Authorization": f"Bearer {key}"} for key in "ab")
    begin_and_leave(service, gate, **ann)
    assert rest(service, **ann)[-1]["type"] == "done"
    answer = service.get(f"/api/chat-stream/{ID}", bob)
    assert (answer.status, answer.json()["code"]) == (404, "STREAM_NOT_FOUND")
    address = service.url.replace("http", "ws") + "/api/chat-ws"
    with connect(address, additional_headers=bob) as socket:
        socket.send(json.dumps({"resume": ID}))
        assert json.loads(socket.recv(30))["code"] == "STREAM_NOT_FOUND"


def test_an_id_is_taken_once_and_must_be_hard_to_guess(start: Start) -> None:
    service = start("One.", "Two.")
    service.stream("hello", resumable=ID)
    (refused,) = service.stream("hello", resumable=ID)
    assert refused["code"] == "STREAM_TAKEN"
    assert service.ask("hello", stream=True, resumable="short").status == 422
    assert service.get(f"/api/chat-stream/{ID}?after=-1").status == 422


def test_without_the_plugin_the_field_is_a_field_like_any_other(start: Start) -> None:
    service = start("Hello.", config='plugins = ["v2"]\n[server]\nhost = "127.0.0.1"\n')
    (done,) = [e for e in service.stream("hi", resumable=ID) if e["type"] == "done"]
    assert done["meta_data"]["request_context"] == {"resumable": ID}
    assert service.get(f"/api/chat-stream/{ID}").status == 404
    address = service.url.replace("http", "ws") + "/api/chat-ws"
    with connect(address) as socket:
        socket.send(json.dumps({"resume": ID}))
        assert json.loads(socket.recv(30))["code"] == "MESSAGES_MISSING"


def test_a_stream_is_read_on_at_another_process_of_the_machine(
    start: Start, gate: Gate, tmp_path: Path
) -> None:
    config = CONFIG + f'state_dir = "{tmp_path}"\n'
    first, second = (start(["One.", WAIT], "Done waiting.", config=config) for _ in range(2))
    begin_and_leave(first, gate)
    found: list[Any] = []
    reader = threading.Thread(target=lambda: found.extend(rest(second, after=1)))
    reader.start()
    gate.open.set()
    reader.join(30)
    assert found[-1]["type"] == "done" and found == rest(first, after=1) == rest(second, after=1)
    with connect(second.url.replace("http", "ws") + "/api/chat-ws") as socket:
        socket.send(json.dumps({"resume": ID, "after": len(found)}))
        assert json.loads(socket.recv(30)) == found[-1]
    assert second.get("/api/chat-stream/another-stream-of-it").status == 404
    assert gate.runs == 1


MACHINE = """
[plugin.resume]
listen = "127.0.0.1:{own}"
peers = ["127.0.0.1:{one}", "127.0.0.1:{two}"]
key = "{key}"
"""
KEY = "a-key-that-all-machines-of-it-have"


def machines(start: Start, *steps: Any, keys: tuple[str, str] = (KEY, KEY)) -> list[Service]:
    """Two services with nothing in common but the ports, and maybe the key."""
    one, two = quiet_port(), quiet_port()
    given = [
        MACHINE.format(own=own, one=one, two=two, key=key)
        for own, key in zip((one, two), keys, strict=True)
    ]
    return [start(*steps, config=CONFIG + each) for each in given]


def test_a_stream_is_read_on_at_another_machine(start: Start, gate: Gate) -> None:
    first, second = machines(start, ["One.", WAIT], "Done waiting.")
    begin_and_leave(first, gate)
    found: list[Any] = []
    reader = threading.Thread(target=lambda: found.extend(rest(second, after=1)))
    reader.start()
    gate.open.set()
    reader.join(30)
    assert found[-1]["type"] == "done" and found == rest(first, after=1) == rest(second, after=1)
    assert second.get("/api/chat-stream/another-stream-of-it").status == 404
    assert gate.runs == 1


def test_a_machine_with_another_key_gets_nothing(start: Start, gate: Gate) -> None:
    gate.open.set()
    first, second = machines(start, "Hello.", keys=(KEY, KEY[::-1]))
    first.stream("hello", resumable=ID)
    assert second.get(f"/api/chat-stream/{ID}").status == 404


def test_a_proof_of_the_key_counts_once_and_soon() -> None:
    machine = Machines("127.0.0.1:1", [], KEY)
    stated = json.dumps({"at": time.time(), "once": "x"}).encode()
    proof = machine._proof(stated)
    assert machine._holds(proof, stated) and not machine._holds(proof, stated)
    old = json.dumps({"at": time.time() - 61, "once": "x"}).encode()
    assert not machine._holds(machine._proof(old), old)
    assert not machine._holds(b"", b"")


def test_the_settings_of_machines_are_needed_together(start: Start) -> None:
    with pytest.raises(StartupError, match="needed together"):
        start("Hello.", config=CONFIG + '[plugin.resume]\nlisten = "127.0.0.1:9"\n')


def test_a_port_that_is_none_is_a_wrong_setting(start: Start) -> None:
    wrong = MACHINE.format(own=99999, one=1, two=2, key=KEY)
    with pytest.raises(StartupError, match="from 1 to 65535"):
        start("Hello.", config=CONFIG + wrong)
