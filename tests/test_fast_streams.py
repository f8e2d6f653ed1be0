"""The fast ways of streams and sockets give what the plain ones give, and leave nothing behind."""

from __future__ import annotations

import asyncio
import gc
import http.client
import json
import threading
from collections import Counter
from collections.abc import AsyncIterator
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from assent import TextDelta
from assent.events import Done, ErrorEvent, Event, dump_json, encode, encode_lines, text_lines
from assent.streams import Events
from assent.testing import Service, served

SEPARATORS = ["\x1e", "\\", '"', '","', "\\u001e", "\ud800", "\n", "}", "", "é", "✓"]
pieces = st.text(max_size=12) | st.sampled_from(SEPARATORS) | st.text("\\u01e\x1e", max_size=8)
ASK = {"messages": [{"role": "user", "content": "hej"}]}


def plain(piece: str) -> bytes:
    """The line of a piece as it would be without a special case for text."""
    return dump_json({"type": "text_delta", "text": piece}) + b"\n"


@given(st.lists(pieces, min_size=1, max_size=8))
def test_lines_of_many_pieces_are_the_lines_of_each(given: list[str]) -> None:
    assert text_lines(given) == b"".join(plain(piece) for piece in given)


items = pieces | pieces.map(TextDelta) | st.just(Done()) | st.just(ErrorEvent("no", "NO"))


@given(st.lists(items, max_size=10))
def test_pieces_among_events_keep_their_order(given: list[Event | str]) -> None:
    events = [TextDelta(item) if isinstance(item, str) else item for item in given]
    each = [plain(e.text) if isinstance(e, TextDelta) else encode(e) + b"\n" for e in events]
    assert encode_lines(given) == b"".join(each)


@given(st.lists(pieces, max_size=10))
def test_pieces_said_count_as_much_as_text_deltas_put(given: list[str]) -> None:
    async def main() -> None:
        said, put = Events(), Events()
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
        channel = Events()
        assert not channel.say("x" * 1000)
        while not channel.say("x" * 1000):
            pass
        assert len(await channel.ready()) > 100
        assert not channel.full

    asyncio.run(main())


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
    assert not {"RunningTurn", "RequestContext", "Output", "ChatRequest"} & set(left), left


def read_stream(service: Service) -> tuple[http.client.HTTPResponse, http.client.HTTPConnection]:
    """A stream whose head has come."""
    connection = http.client.HTTPConnection("127.0.0.1", service.port, timeout=20)
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
        loops[0].call_soon_threadsafe(goes_on.set)
        events = [json.loads(line) for line in answer]
        connection.close()
    assert [event["type"] for event in events] == ["text_delta", "done"]


def test_first_piece_leaves_while_the_agent_blocks() -> None:
    seen = threading.Event()

    async def agent(messages: Any, context: Any) -> AsyncIterator[str]:
        yield "first"
        assert seen.wait(20)
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
