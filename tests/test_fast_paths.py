"""Each fast path has the same result as the plain one, byte for byte, over generated inputs."""

from __future__ import annotations

import asyncio
import gzip
import json
import threading
import time
from collections.abc import AsyncIterator, Iterator
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from starlette.middleware.gzip import GZipMiddleware
from starlette.responses import PlainTextResponse
from starlette.routing import Mount, Route
from websockets.frames import Frame, Opcode

from sayso import Agent, Call, Reply, Text, TextDelta, Turn, create_app, tool
from sayso.conversation.history import Builder, model_turns
from sayso.errors import InvalidRequest
from sayso.hosting.streams import EventChannel
from sayso.http.asgi import App, Direct, plain_routes
from sayso.ledger import database, is_own_id, new_id
from sayso.ledger.choices import Decided
from sayso.ledger.record import Ledger
from sayso.listener.frames import text_frame
from sayso.models import dump_turns
from sayso.testing import Service, served
from sayso.threaded import running
from sayso.tools.values import text_of
from sayso.turns.output import Gathered, Output
from sayso.wire.chat import encode, encode_lines, parse_request, reply_json, unbroken
from sayso.wire.events import Done, Event, IntermittentUpdate, fold
from sayso.wire.json_bytes import dump_json
from sayso.wire.masking import cut
from sayso.wire.messages import Data, Message
from sayso.workers import Channel, Workers
from sayso.workers.code import may_block_here

texts = st.text(alphabet=st.characters(codec=None, exclude_categories=()), max_size=40)
sound = st.text(max_size=40)
json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | sound,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(sound, inner, max_size=3),
    max_leaves=8,
)
objects = st.dictionaries(sound, json_values, max_size=3)
dones = st.builds(
    Done,
    stop_reason=st.sampled_from(["end_turn", "max_tokens", "blocked"]),
    meta_data=objects,
    session=st.none() | objects,
    data=st.none() | st.just({"note": 1}),
    timestamp=st.none() | st.just("2026-01-05T10:00:00Z"),
)


def line(event: Event) -> bytes:
    """The event's line without the special case for text."""
    if isinstance(event, TextDelta):
        return dump_json({"type": "text_delta", "text": event.text}) + b"\n"
    return encode(event) + b"\n"


@given(st.lists(st.builds(TextDelta, texts), max_size=5), dones)
def test_lines_of_a_stream_are_the_events_one_by_one(deltas: list[Event], done: Done) -> None:
    events = [*deltas, done]
    assert encode_lines(events) == unbroken(b"".join(line(event) for event in events))


@given(st.lists(st.builds(TextDelta, texts), max_size=5), dones | st.just(Done()))
def test_reply_bytes_are_the_serialised_fold(deltas: list[Event], done: Done) -> None:
    events = [*deltas, done]
    assert reply_json(events) == dump_json(fold(events))


@given(st.binary(max_size=300) | st.integers(65_400, 65_700).map(bytes))
def test_text_frame_is_that_of_the_protocol(data: bytes) -> None:
    assert text_frame(data) == Frame(Opcode.TEXT, data).serialize(mask=False)


conversations = st.lists(
    st.builds(
        Message,
        role=st.sampled_from(["user", "assistant"]),
        content=st.sampled_from(["", " \n", "\u2003"]) | sound,
        data=st.none() | st.none() | st.builds(Data),
    ),
    min_size=1,
    max_size=6,
)
taking_turns = st.lists(sound, min_size=1, max_size=7).map(
    lambda said: [
        Message(role="assistant" if n % 2 else "user", content=text) for n, text in enumerate(said)
    ]
)


@given(conversations | taking_turns)
def test_model_gets_a_conversation_of_texts_as_the_builder_makes_it(
    messages: list[Message],
) -> None:
    built = Builder(messages, Decided(), [], "").build()
    assert dump_turns(model_turns(messages, Decided(), [], "")) == dump_turns(built)


@given(texts | texts.map(lambda text: text * 5), st.integers(0, 60))
def test_text_of_a_result_is_cut_by_its_bytes(text: str, limit: int) -> None:
    raw = text.encode("utf-8", "replace")
    assert text_of(text) == raw.decode()
    shown = cut(text_of(text), limit)
    kept, line, reported = shown.rpartition("\n[cut: ")
    assert shown == raw.decode() if len(raw) <= limit else raw.startswith(kept.encode())
    assert len(raw) <= limit or (line and f" {len(raw)} bytes" in reported)


stored = st.recursive(
    st.none() | st.booleans() | st.integers(-(10**40), 10**40) | st.floats() | texts,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(texts, inner, max_size=3),
    max_leaves=12,
)


@given(stored)
def test_ledger_keeps_json_in_ascii_as_the_standard_library_reads_it(value: Any) -> None:
    text = database.dumps(value)
    assert text.isascii()
    assert repr(database.loads(text)) == repr(json.loads(text)) == repr(value)


stamps = st.datetimes(min_value=datetime(1, 1, 1)).map(datetime.isoformat)
odd = st.from_regex(r"[0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9:.]{2,12}(Z|[+-][0-9:]{2,5})?", fullmatch=True)


@settings(max_examples=300)
@given(stamps | stamps.map(lambda s: f"{s}Z") | odd | sound)
def test_a_timestamp_is_taken_when_it_is_iso_8601(stamp: str) -> None:
    try:
        datetime.fromisoformat(stamp)
        right = True
    except ValueError:
        right = False
    body = json.dumps({"messages": [{"role": "user", "content": "x", "timestamp": stamp}]})
    try:
        assert parse_request(body).messages[0].timestamp == stamp
        taken = True
    except InvalidRequest as error:
        taken = False
        (item,) = error.items
        assert item["loc"] == ["body", "messages", 0, "timestamp"]
    assert taken == right


OPEN_PLACES = ["request", "message", "data", "platform_context", "user", "agent", "session"]


def with_value(place: str, value: Any) -> str:
    """A request with `value` where the models leave the shape open."""
    message: dict[str, Any] = {"role": "user", "content": "x"}
    request: dict[str, Any] = {"messages": [message]}
    if place == "request":
        request["free"] = value
    elif place == "message":
        message["free"] = value
    elif place == "session":
        message["data"] = {"session": {"free": value}}
    else:
        message[place] = {"free": value}
    return json.dumps(request)


@pytest.mark.parametrize("place", OPEN_PLACES)
def test_no_open_place_takes_what_is_no_json_or_too_deep(place: str) -> None:
    deep: Any = 1
    for _ in range(70):
        deep = [deep]
    for value, kind in ((float("nan"), "json_invalid"), (deep, "too_deep")):
        with pytest.raises(InvalidRequest) as refused:
            parse_request(with_value(place, value))
        assert refused.value.items[0]["type"] == kind
    assert parse_request(with_value(place, [[1.5]]))


def depth(value: Any) -> int:
    """How many levels of JSON the value has."""
    match value:
        case dict():
            return 1 + max(map(depth, value.values()), default=0)
        case list():
            return 1 + max(map(depth, value), default=0)
    return 0


@pytest.mark.parametrize("place", OPEN_PLACES)
@pytest.mark.parametrize("kind", ["list", "object"])
def test_nesting_is_counted_alike_in_every_open_place(place: str, kind: str) -> None:
    value: Any = [] if kind == "list" else {}
    while depth(json.loads(with_value(place, value))) < 20:
        value = [value] if kind == "list" else {"n": value}
    body = with_value(place, value)
    assert parse_request(body, nesting=20)
    with pytest.raises(InvalidRequest, match="deeper than 19 levels"):
        parse_request(body, nesting=19)


def test_nesting_is_counted_in_calls_and_outcomes() -> None:
    deep: Any = {"n": {"n": {}}}
    call = {"id": "c", "name": "look", "input": deep}
    for data, levels in (
        ({"tool_calls": [call]}, 9),
        ({"executed_tool_calls": [{**call, "output": ""}]}, 9),
        ({"approvals": [call]}, 9),
        ({"url_configs": [{"url": "u", "more": [[1]]}]}, 8),
    ):
        body = json.dumps({"messages": [{"role": "user", "content": "", "data": data}]})
        assert depth(json.loads(body)) == levels
        assert parse_request(body, nesting=levels)
        with pytest.raises(InvalidRequest):
            parse_request(body, nesting=levels - 1)


PIECES = ["one", "", " two", "\nthree ✓"]


async def async_pieces(messages: Any, context: Any) -> AsyncIterator[str]:
    for piece in PIECES:
        yield piece


async def slow_pieces(messages: Any, context: Any) -> AsyncIterator[str]:
    for piece in PIECES:
        await asyncio.sleep(0)
        yield piece


def plain_pieces(messages: Any, context: Any) -> Iterator[str]:
    yield from PIECES


async def whole(messages: list[Message], context: Any) -> str:
    return f"{len(messages)}: {messages[-1].content} {sorted(context.request_fields)}"


def plain_whole(messages: list[Message], context: Any) -> str:
    return f"{len(messages)}: {messages[-1].content} {sorted(context.request_fields)}"


@tool
async def look(name: str) -> str:
    """Look a name up."""
    return f"{name} is fine"


class Twice:
    """Calls its tool, then reports the result."""

    provider = "test"
    name = "twice"

    async def stream(self, ask: Any) -> Any:
        result = ask.turns[-1].blocks[-1]
        if isinstance(result, Text):
            yield Reply(Turn("assistant", [Call("c", "look", {"name": "web"})]), "tool_use")
            return
        yield TextDelta(result.output)
        yield Reply(Turn("assistant", [Text(result.output)]), "end_turn")


AGENTS = [async_pieces, slow_pieces, plain_pieces, whole, plain_whole]


def answers(service: Service) -> list[bytes]:
    """The service's answers to a few requests, as bytes."""
    reported = [{"role": "user", "content": "hej ✓"}]
    longer = [
        reported[0],
        {"role": "assistant", "content": "x", "data": {"session": {"n": 1}}},
        *reported,
    ]
    found = []
    for path in ("/api/chat", "/api/chat-stream", "/api/sendMessage", "/api/sendMessageStream"):
        for body in ({"messages": reported}, {"messages": longer, "tenant": "t", "source": "s"}):
            found.append(service.post(path, body).body)
    return found


@pytest.mark.parametrize("agent", [*AGENTS, "tools"], ids=lambda a: getattr(a, "__name__", a))
def test_turn_at_home_answers_as_the_turn_on_the_engine_loop(agent: Any) -> None:
    if agent == "tools":
        agent = Agent(model=Twice(), tools=[look])
    with served(agent) as service:
        assert service.host.workers.calm
        at_home = answers(service)
    with served(agent, worker_loops=1) as service:
        assert not service.host.workers.calm
        assert answers(service) == at_home


def test_code_of_the_agent_never_runs_on_the_server_s_loop_or_the_engine_loop() -> None:
    seen: set[str] = set()

    async def agent(messages: Any, context: Any) -> str:
        seen.add(threading.current_thread().name)
        return "ok"

    with served(agent) as service:
        for _ in range(5):
            answers(service)
    assert seen and all(name in ("sayso-home", "sayso-loop") for name in seen)


@pytest.fixture
def app(tmp_path: Path) -> App:
    """The app of a callable, with the plugins that are installed."""
    return create_app(whole, state_dir=str(tmp_path))


def test_known_paths_answer_as_through_the_router(app: App) -> None:
    direct = app._made_direct()
    assert {("GET", "/health"), ("POST", "/api/chat"), ("WEBSOCKET", "/api/chat-ws")} <= set(
        direct.endpoints
    )
    with running(app, app.host.config) as port:
        known = answers(Service(app.host, port))
        app._direct = Direct({}, [])
        assert answers(Service(app.host, port)) == known


class Seen:
    """A middleware that remembers the paths."""

    def __init__(self, app: Any, paths: list[str]) -> None:
        self.app = app
        self.paths = paths

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        self.paths.append(scope.get("path", ""))
        await self.app(scope, receive, send)


def test_middleware_of_the_user_sees_every_request(app: App) -> None:
    paths: list[str] = []
    app.add_middleware(Seen, paths=paths)
    with running(app, app.host.config) as port:
        answers(Service(app.host, port))
    assert {"/api/chat", "/api/sendMessageStream"} <= set(paths)


@pytest.mark.parametrize("path", ["/health", "/api/chat", "/api/chat-stream"])
def test_what_middleware_changes_in_one_reply_stays_out_of_the_next(app: App, path: str) -> None:
    app.add_middleware(GZipMiddleware, minimum_size=1)
    ask = json.dumps({"messages": [{"role": "user", "content": "hej"}]})
    method, body = ("GET", None) if path == "/health" else ("POST", ask)
    kind = {"content-type": "application/json"}
    with running(app, app.host.config) as port:
        service = Service(app.host, port)
        plain = service.request(method, path, body, kind)
        for _ in range(2):
            packed = service.request(method, path, body, {**kind, "accept-encoding": "gzip"})
            assert gzip.decompress(packed.body) == plain.body
        again = service.request(method, path, body, kind)
    assert again.body == plain.body
    assert list(again.headers) == list(plain.headers)


def test_path_that_an_earlier_route_may_take_is_left_to_the_router() -> None:
    async def page(request: Any) -> PlainTextResponse:
        return PlainTextResponse("page")

    class Raw:
        async def __call__(self, scope: Any, receive: Any, send: Any) -> None: ...

    raw = Route("/api/chat", Raw(), methods=["POST"])
    assert plain_routes([raw, Route("/{rest:path}", page)]) == {("POST", "/api/chat"): raw}
    assert plain_routes([Route("/{rest:path}", page), raw]) == {}
    assert plain_routes([Mount("/api", routes=[]), raw]) == {}
    assert plain_routes([Route("/api/chat", page), raw]) == {}
    # Without methods it matches every HTTP method, and no WebSocket.
    every = Route("/api/chat", PlainTextResponse("mine"))
    assert plain_routes([raw, every]) == {("POST", "/api/chat"): raw}
    assert plain_routes([every, raw]) == {}


def test_user_code_runs_in_the_turn_s_task_only_in_its_first_step() -> None:
    async def turn() -> list[bool]:
        first = may_block_here()
        await asyncio.sleep(0)
        return [first, may_block_here()]

    async def main() -> None:
        async with Workers() as workers:
            assert await workers.spawn(turn) == [True, False]
            assert await workers.on_engine_loop(turn) == [False, False]
            assert not may_block_here()

    asyncio.run(main())


def test_status_lines_are_made_for_those_only_who_show_them() -> None:
    async def main() -> None:
        assert not Output(Gathered(), held=False, limit=1000).shows_status
        assert Output(EventChannel(), held=True, limit=1000).shows_status

    asyncio.run(main())


def test_no_status_line_follows_the_end_and_none_of_a_held_turn_leaves_as_it_was() -> None:
    class Full(Gathered):
        def put_nowait(self, item: Event, /) -> bool:
            self.events.append(item)
            return True

        async def space(self) -> None:
            # A status line of a tool that outlives its timeout, while a slow reader is waited for.
            out.working(IntermittentUpdate("secret"))

    async def main() -> None:
        await out.send(TextDelta("text"))
        await out.finish([Done()])

    for held in (False, True):
        sink = Full()
        out = Output(sink, held=held, limit=1000)
        asyncio.run(main())
        assert sink.events[-1] == Done()
        assert not held or IntermittentUpdate("secret") not in sink.events


def test_slow_reader_gets_every_item_of_a_fast_thread() -> None:
    async def main() -> None:
        async with Workers() as workers:
            channel: Channel[int] = Channel(3)
            threads = [workers.threads.run(put_many, channel, n) for n in range(4)]
            putting = asyncio.gather(*threads)
            got: list[int] = []
            while len(got) < 4000:
                got += await channel.ready()
            await putting
            channel.close()
            assert sorted(got) == sorted(list(range(1000)) * 4)
            assert await channel.ready() == []

    async def bounded() -> None:
        async with asyncio.timeout(120):
            await main()

    asyncio.run(bounded())


def put_many(channel: Channel[int], seed: int) -> None:
    for number in range(1000):
        channel.put_nowait(number)
        if number % 100 == seed:
            time.sleep(0)


def test_turn_that_blocks_beyond_its_time_is_answered() -> None:
    free = threading.Event()

    async def agent(messages: Any, context: Any) -> str:
        # Longer than the client waits for its answer.
        free.wait(120)
        return "late"

    with served(agent, config="[limits]\nturn_time = 0.3\n") as service:
        try:
            answer = service.post("/api/chat", {"messages": [{"role": "user", "content": "x"}]})
        finally:
            free.set()
    assert answer.status == 504
    assert answer.json()["code"] == "TURN_TIMEOUT"


OWN, FOREIGN = "0123456789abcdef" * 2, "call-1"


@pytest.mark.parametrize(
    ("id_", "settings_", "reads"),
    [
        (FOREIGN, "", 0),
        (OWN, "", 1),
        (FOREIGN, "[approvals]\naccept_unissued = true\n", 1),
    ],
    ids=["another server's", "ours", "unissued ones are accepted"],
)
@pytest.mark.parametrize("to_callable", [True, False], ids=["callable", "Agent"])
def test_the_ledger_is_read_once_for_outcomes_and_only_if_it_may_know_their_calls(
    monkeypatch: pytest.MonkeyPatch, id_: str, settings_: str, reads: int, to_callable: bool
) -> None:
    looked: list[Any] = []
    decide = Ledger.decide

    async def counted(self: Ledger, choices: Any, shown: Any, *more: Any, **named: Any) -> Any:
        looked.append(list(shown))
        return await decide(self, choices, shown, *more, **named)

    monkeypatch.setattr(Ledger, "decide", counted)
    done = {"id": id_, "name": "look", "input": {}, "output": "It is fine."}
    replied = {"role": "assistant", "content": "Fine.", "data": {"executed_tool_calls": [done]}}
    asked = {"role": "user", "content": "And now?"}
    agent = still_fine if to_callable else Agent(model=StillFine())
    with served(agent, config=settings_) as service:
        reply = service.chat(asked, replied, asked)
    assert reply["content"] == "Still fine." and looked == [[id_]] * reads


async def still_fine(messages: Any, context: Any) -> str:
    assert messages[1].data.executed_tool_calls[0].output == "It is fine."
    return "Still fine."


class StillFine:
    """A model that has to be shown the outcome."""

    provider = name = "test"

    async def stream(self, ask: Any) -> AsyncIterator[Any]:
        assert any(getattr(block, "output", "") == "It is fine." for block in ask.turns[2].blocks)
        yield Reply(Turn("assistant", [Text("Still fine.")]), "end_turn")


def test_a_new_call_has_an_id_that_is_known_as_ours() -> None:
    assert is_own_id(new_id()) and new_id() != new_id()
    assert not any(map(is_own_id, ["", FOREIGN, OWN.upper(), OWN + "0", OWN + "\n", OWN[:-1]]))
