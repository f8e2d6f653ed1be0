"""The fast paths of streams and sockets give the results of the plain ones, and leave nothing
behind."""

from __future__ import annotations

import asyncio
import gc
import http.client
import json
import threading
from collections import Counter
from collections.abc import AsyncIterator, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from websockets.frames import Frame, Opcode
from websockets.sync.client import connect

from programs import until
from sayso import IntermittentUpdate, TextDelta, create_app
from sayso.hosting.streams import EventChannel
from sayso.listener.frames import text_frames
from sayso.testing import Service, served
from sayso.threaded import running
from sayso.wire.chat import encode, encode_lines, text_lines, unbroken
from sayso.wire.events import Done, ErrorEvent, Event
from sayso.wire.json_bytes import dump_json
from sayso.workers import Channel

SEPARATORS = ["\x1e", "\\", '"', '","', "\\u001e", "\ud800", "\n", "}", "", "é", "✓"]
pieces = st.text(max_size=12) | st.sampled_from(SEPARATORS) | st.text("\\u01e\x1e", max_size=8)
DEADLINE = 60.0
ASK = {"messages": [{"role": "user", "content": "hej"}]}


def plain(piece: str) -> bytes:
    """The line of a piece without the special case for text."""
    return dump_json({"type": "text_delta", "text": piece}) + b"\n"


@given(st.lists(pieces, min_size=1, max_size=8))
def test_lines_of_many_pieces_are_the_lines_of_each(given: list[str]) -> None:
    assert text_lines(given) == b"".join(plain(piece) for piece in given)


def test_bare_end_is_written_as_every_other_event() -> None:
    for reason in ("end_turn", "max_tokens", "silent"):
        done = Done(reason)  # type: ignore[arg-type]
        written = {"type": "done", "stop_reason": reason, "meta_data": {}}
        assert encode(done) == dump_json(written)
        assert encode(Done(reason, {"a": 1})) == dump_json({**written, "meta_data": {"a": 1}})  # type: ignore[arg-type]
        assert encode(Done(reason, data={})) == dump_json({**written, "data": {}})  # type: ignore[arg-type]


items = pieces | pieces.map(TextDelta) | st.just(Done()) | st.just(ErrorEvent("no", "NO"))


@given(st.lists(items, max_size=10))
def test_pieces_among_events_keep_their_order(given: list[Event | str]) -> None:
    events = [TextDelta(item) if isinstance(item, str) else item for item in given]
    each = [plain(e.text) if isinstance(e, TextDelta) else encode(e) + b"\n" for e in events]
    assert encode_lines(given) == unbroken(b"".join(each))


@given(st.lists(st.text('\x85\u2028\u2029\\"\v\f\x1cé', max_size=6), min_size=1, max_size=4))
def test_a_client_that_splits_text_at_every_line_end_reads_the_events(given: list[str]) -> None:
    events = [*given, Done(data={"note": given[0]})]
    *lines, done = [json.loads(line) for line in encode_lines(events).decode().splitlines()]
    assert [line["text"] for line in lines] == given
    assert done["data"] == {"note": given[0]}


@given(st.lists(pieces, max_size=10))
def test_pieces_said_count_as_much_as_text_deltas_put(given: list[str]) -> None:
    async def main() -> None:
        said, put = EventChannel(), EventChannel()
        for piece in given:
            assert said.say(piece) == put.put_nowait(TextDelta(piece))
        assert said._put == put._put
        said.cancel()
        assert not said.say("more")
        assert await said.ready() == []
        put.close()
        with pytest.raises(RuntimeError):
            put.say("late")

    asyncio.run(main())


def test_slow_reader_makes_pieces_wait() -> None:
    async def main() -> None:
        channel = EventChannel()
        assert not channel.say("x" * 1000)
        while not channel.say("x" * 1000):
            pass
        assert len(await channel.ready()) > 100
        assert not channel.full

    asyncio.run(main())


def test_of_endless_status_lines_a_slow_reader_gets_the_first_and_the_last_and_all_else() -> None:
    async def main() -> None:
        channel = EventChannel()
        channel.say("begun")
        for n in range(100_000):
            channel.put_nowait(IntermittentUpdate(f"row {n}"))
        assert channel.full
        channel.say("text")
        for n in range(100_000):
            channel.put_nowait(IntermittentUpdate(f"column {n}"))
        channel.put_nowait(Done())
        channel.put_nowait(IntermittentUpdate("after the end"))
        channel.close()
        channel.put_nowait(IntermittentUpdate("long after the end"))
        given = [item async for item in channel]
        rows = given.index("text")
        assert given[:2] == ["begun", IntermittentUpdate("row 0")]
        assert given[rows - 1] == IntermittentUpdate("row 99999")
        assert given[rows:] == ["text", IntermittentUpdate("column 99999"), Done()]
        assert 1000 < rows < 20_000
        assert not channel.full

    asyncio.run(main())


def test_last_status_line_of_a_flood_is_not_held_back() -> None:
    async def main() -> None:
        channel = EventChannel()
        for n in range(50_000):
            channel.put_nowait(IntermittentUpdate(f"row {n}"))
        given: list[Event | str] = []
        while channel._items or channel.full:
            given += await channel.ready()
        assert given[-1] == IntermittentUpdate("row 49999")

    asyncio.run(main())


def test_kept_status_line_does_not_pass_those_that_came_while_all_was_taken(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    taken = Channel._take
    floods = iter([range(1, 50_000)])

    def interrupted(channel: Channel[Any]) -> list[Any]:
        items = taken(channel)
        for n in next(floods, ()):
            channel.put_nowait(IntermittentUpdate(f"row {n}"))
        return items

    async def main() -> None:
        channel = EventChannel()
        channel.put_nowait(IntermittentUpdate("row 0"))
        monkeypatch.setattr(Channel, "_take", interrupted)
        given: list[Event | str] = []
        while len(given) < 2 or channel._items:
            given += await channel.ready()
        rows = [int(e.text.split(" ")[1]) for e in given if isinstance(e, IntermittentUpdate)]
        assert rows == sorted(rows)
        assert rows[-1] == 49_999

    asyncio.run(main())


@pytest.mark.parametrize("path", ["/api/chat-stream", "/api/chat-ws"])
def test_tool_that_floods_a_reader_who_does_not_read_is_not_slowed_and_loses_no_text(
    path: str,
) -> None:
    sent = threading.Event()

    def agent(messages: Any, context: Any) -> str:
        for n in range(60_000):
            context.update(f"row {n} " + "x" * 1000)
        sent.set()
        return "the text"

    with served(agent) as service:
        if path == "/api/chat-ws":
            with connect(f"ws://127.0.0.1:{service.port}{path}", open_timeout=DEADLINE) as client:
                client.send(json.dumps(ASK))
                assert sent.wait(DEADLINE)
                events = [json.loads(client.recv(DEADLINE))]
                while events[-1]["type"] != "done":
                    events.append(json.loads(client.recv(DEADLINE)))
        else:
            answer, connection = read_stream(service)
            assert sent.wait(DEADLINE)
            events = [json.loads(line) for line in answer]
            connection.close()
    rows = [event["text"].split(" ")[1] for event in events[:-2]]
    assert len(rows) < 40_000
    assert rows[-1] == "59999"
    assert rows == sorted(rows, key=int)
    assert [event["type"] for event in events[-2:]] == ["text_delta", "done"]


async def words(messages: Any, context: Any) -> AsyncIterator[str]:
    for n in range(20):
        yield f"word {n} "


async def said(messages: Any, context: Any) -> str:
    context.update("soon")
    return "done"


@pytest.mark.parametrize("agent", [words, said])
@pytest.mark.parametrize("path", ["/api/chat", "/api/chat-stream"])
def test_turn_leaves_nothing_for_the_garbage_collector(agent: Any, path: str) -> None:
    with served(agent) as service:
        for _ in range(5):
            service.post(path, ASK)
        gc.collect()
        gc.disable()
        gc.set_debug(gc.DEBUG_SAVEALL)
        try:
            for _ in range(10):
                service.post(path, ASK)
            gc.collect()
            left = Counter(type(thing).__name__ for thing in gc.garbage)
        finally:
            gc.set_debug(0)
            gc.garbage.clear()
            gc.enable()
    assert not {"Request", "RequestContext", "Output", "ChatRequest"} & set(left), left


def test_long_whole_reply_gives_the_garbage_collector_nothing_to_look_through() -> None:
    tracked: list[int] = []

    def talkative(messages: Any, context: Any) -> Iterator[str]:
        for _ in range(20_000):
            yield "ab"
        tracked.append(sum(type(thing) is TextDelta for thing in gc.get_objects()))

    with served(talkative) as service:
        assert service.post("/api/chat", ASK).json()["content"] == "ab" * 20_000
    assert tracked[0] < 100


def read_stream(service: Service) -> tuple[http.client.HTTPResponse, http.client.HTTPConnection]:
    """A stream whose head has arrived."""
    connection = http.client.HTTPConnection("127.0.0.1", service.port, timeout=DEADLINE)
    headers = {"content-type": "application/json"}
    connection.request("POST", "/api/chat-stream", json.dumps(ASK), headers)
    return connection.getresponse(), connection


def test_head_of_a_stream_does_not_wait_for_a_slow_agent() -> None:
    goes_on = asyncio.Event()
    loops: list[asyncio.AbstractEventLoop] = []

    async def agent(messages: Any, context: Any) -> AsyncIterator[str]:
        loops.append(asyncio.get_running_loop())
        await goes_on.wait()
        yield "late"

    with served(agent) as service:
        answer, connection = read_stream(service)
        assert answer.status == 200
        assert answer.getheader("content-type") == "application/x-ndjson"
        until(lambda: bool(loops))
        loops[0].call_soon_threadsafe(goes_on.set)
        events = [json.loads(line) for line in answer]
        connection.close()
    assert [event["type"] for event in events] == ["text_delta", "done"]


def test_first_piece_leaves_while_the_agent_blocks() -> None:
    seen = threading.Event()

    async def agent(messages: Any, context: Any) -> AsyncIterator[str]:
        yield "first"
        assert seen.wait(DEADLINE)
        yield "second"

    with served(agent) as service:
        answer, connection = read_stream(service)
        assert json.loads(answer.readline())["text"] == "first"
        seen.set()
        assert [json.loads(line)["type"] for line in answer] == ["text_delta", "done"]
        connection.close()


def test_stream_that_was_told_its_end_does_not_cancel_the_turn() -> None:
    with served(words) as service:
        for _ in range(20):
            answer, connection = read_stream(service)
            last = answer.read().splitlines()[-1]
            connection.close()
            assert json.loads(last)["type"] == "done"
        assert service.post("/api/chat", ASK).status == 200


@given(st.lists(pieces, max_size=6), st.integers(0, 70_000))
def test_frames_of_many_lines_are_those_of_the_protocol(given: list[str], size: int) -> None:
    texts = [dump_json(piece) for piece in [*given, "x" * size]]
    each = [Frame(Opcode.TEXT, text).serialize(mask=False) for text in texts]
    assert text_frames(b"".join(text + b"\n" for text in texts)) == b"".join(each)


class Wrapping:
    """A middleware that wraps an endpoint's receive and send, as many do."""

    def __init__(self, app: Any) -> None:
        self.app = app

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        async def receiving() -> Any:
            return await receive()

        async def sending(message: Any) -> None:
            await send(message)

        await self.app(scope, receiving, sending)


async def mixed(messages: Any, context: Any) -> AsyncIterator[Any]:
    match messages[-1].content:
        case "fail":
            raise ValueError("no")
        case "update":
            yield IntermittentUpdate("half")
        case "many":
            for piece in SEPARATORS * 20:
                yield piece
    yield messages[-1].content


def conversation(service: Service) -> list[str | bytes]:
    """All messages to a client on a WebSocket that sends valid, odd and broken frames."""
    said: list[str | bytes] = []
    with connect(f"ws://127.0.0.1:{service.port}/api/chat-ws", open_timeout=DEADLINE) as client:
        for content in ("hej", "many", "update", "", "{broken", b"\xff", "many", "é✓"):
            broken = isinstance(content, bytes) or content.startswith("{")
            asked = {"messages": [{"role": "user", "content": content}]} if not broken else {}
            client.send(content if broken else json.dumps(asked))
            while True:
                said.append(client.recv(DEADLINE))
                if json.loads(said[-1])["type"] in ("done", "error"):
                    break
    return said


def test_socket_of_the_listener_says_what_plain_asgi_says(tmp_path: Path) -> None:
    with served(mixed) as service:
        direct = conversation(service)
    app = create_app(mixed, state_dir=str(tmp_path))
    app.add_middleware(Wrapping)
    with running(app, app.host.config) as port:
        assert conversation(Service(app.host, port)) == direct
    assert len(direct) > 100


def tasks_of(service: Service) -> int:
    """The number of tasks on the server's loop."""
    box = service.host.workers.server
    loop = box.loop() if box is not None else None
    assert loop is not None
    counted: list[int] = []
    done = threading.Event()

    def count() -> None:
        counted.append(len(asyncio.all_tasks(loop)))
        done.set()

    loop.call_soon_threadsafe(count)
    assert done.wait(DEADLINE)
    return counted[0]


def test_idle_socket_has_no_task() -> None:
    with served(words) as service, ExitStack() as stack:
        url = f"ws://127.0.0.1:{service.port}/api/chat-ws"
        before = tasks_of(service)
        clients = [stack.enter_context(connect(url, open_timeout=DEADLINE)) for _ in range(5)]
        for client in clients:
            client.send(json.dumps(ASK))
        for client in clients:
            while json.loads(client.recv(DEADLINE))["type"] != "done":
                pass
        until(lambda: tasks_of(service) <= before)


@pytest.mark.parametrize("wrapped", [False, True])
def test_leaving_client_ends_its_turn_and_the_frames_that_wait(
    wrapped: bool, tmp_path: Path
) -> None:
    started = threading.Semaphore(0)
    ended = threading.Event()

    async def agent(messages: Any, context: Any) -> AsyncIterator[str]:
        started.release()
        try:
            yield "begun"
            await asyncio.sleep(600)
        finally:
            ended.set()

    app = create_app(agent, state_dir=str(tmp_path))
    if wrapped:
        app.add_middleware(Wrapping)
    with running(app, app.host.config) as port:
        with connect(f"ws://127.0.0.1:{port}/api/chat-ws", open_timeout=DEADLINE) as client:
            for _ in range(5):
                client.send(json.dumps(ASK))
            assert json.loads(client.recv(DEADLINE))["text"] == "begun"
        assert ended.wait(DEADLINE)
        until(lambda: app.host.turns_running == 0)
    assert started.acquire(blocking=False)
    assert not started.acquire(blocking=False)


def test_flood_of_frames_stops_the_reading(tmp_path: Path) -> None:
    """Frames sent while a turn runs stay in the network, except for a few."""
    goes_on = asyncio.Event()
    loops: list[asyncio.AbstractEventLoop] = []

    async def agent(messages: Any, context: Any) -> str:
        loops.append(asyncio.get_running_loop())
        await goes_on.wait()
        return "done"

    frame = {"messages": [{"role": "user", "content": "x" * 100_000}]}
    with served(agent) as service:
        with connect(f"ws://127.0.0.1:{service.port}/api/chat-ws", open_timeout=DEADLINE) as client:
            client.socket.settimeout(DEADLINE)
            client.socket.sendall(masked(json.dumps(frame).encode()))
            until(lambda: bool(loops))
            client.socket.settimeout(2)
            sent = 1
            with pytest.raises(TimeoutError):
                while sent < 1000:
                    client.socket.sendall(masked(json.dumps(frame).encode()))
                    sent += 1
            assert sent < 500
            loops[0].call_soon_threadsafe(goes_on.set)
            client.socket.close()
        until(lambda: service.host.turns_running == 0)


def masked(text: bytes) -> bytes:
    """A frame as a client sends it."""
    return bytes(Frame(Opcode.TEXT, text).serialize(mask=True))
