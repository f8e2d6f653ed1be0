"""The requirements for every model; with faults, if it has a network connection."""

from __future__ import annotations

import asyncio
import json
import logging
import threading
import traceback
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import pytest
from asking import (
    WEATHER,
    asked,
    assistant,
    calls_of,
    events,
    reply_of,
    run,
    said,
    text_of,
    until,
    user,
)
from gemini_server import GeminiServer
from platforms import BedrockServer, FoundryServer, VertexServer
from providers import (
    BODY_MARK,
    SECRET,
    AnthropicServer,
    OpenAIServer,
    drop,
    json_body,
    silence,
    status,
    stream,
)
from responses_server import ResponsesServer

from sayso.models import (
    Ask,
    Call,
    Model,
    ModelError,
    Reply,
    Result,
    TextDelta,
    ToolStart,
    Turn,
    dump_turns,
    load_model,
    load_turns,
)
from sayso.testing.script import Scripted

SPECS = {
    "anthropic": "anthropic:claude-sonnet-5-5",
    "bedrock": "bedrock:eu.anthropic.claude-opus-4-6-v1",
    "vertex": "vertex:claude-sonnet-4-5@20250929",
    "foundry": "foundry:claude-opus-5-5",
    "openai": "openai:some-model",
    "responses": "openai-responses:gpt-5.5",
    "gemini": "gemini:gemini-3.8-flash",
}
SERVERS: dict[str, type[Any]] = {
    "anthropic": AnthropicServer,
    "bedrock": BedrockServer,
    "vertex": VertexServer,
    "foundry": FoundryServer,
    "openai": OpenAIServer,
    "responses": ResponsesServer,
    "gemini": GeminiServer,
}
CLAUDE = ("anthropic", "bedrock", "vertex", "foundry")


@dataclass
class Rig:
    """A model and a way to make it answer."""

    model: Model
    server: Any
    script: list[Reply] = field(default_factory=list)

    def says(self, text: str = "", calls: Any = (), *, stop: str | None = None) -> None:
        if self.server is not None:
            self.server.then(stream(self.server.message(text, calls, stop=stop)))
            return
        made = tuple(Call(i, name, json.loads(arguments)) for i, name, arguments in calls)
        blocks: Any = (*user(*([text] if text else [])).blocks, *made)
        reason: Any = stop or ("tool_use" if calls else "end_turn")
        self.script.append(Reply(Turn("assistant", blocks), reason))


@pytest.fixture(params=[*SPECS, "scripted"])
def rig(request: pytest.FixtureRequest) -> Iterator[Rig]:
    if request.param == "scripted":
        script: list[Reply] = []
        yield Rig(Scripted(lambda ask: script.pop(0)), None, script)
        return
    with SERVERS[request.param]() as server:
        settings = {**server.settings(), "timeout": 60, "retries": 0}
        yield Rig(load_model(SPECS[request.param], settings), server)
        assert server.refusals == []


@dataclass
class Wire:
    """A model behind a server."""

    name: str
    server: Any

    def model(self, **settings: Any) -> Model:
        known = {**self.server.settings(), "timeout": 60, "retries": 0}
        return load_model(SPECS[self.name], known | settings)


WIRES = ("anthropic", "openai", "responses", "gemini")
PIECES = ("anthropic", "openai", "responses")
"""The adapters whose APIs send a call's arguments in pieces."""


@pytest.fixture(params=WIRES)
def wire(request: pytest.FixtureRequest) -> Iterator[Wire]:
    with SERVERS[request.param]() as server:
        yield Wire(request.param, server)


def failure(model: Model) -> ModelError:
    """The only error of a call; no part of a broken message may be returned as a Reply."""
    got: list[Any] = []

    async def work() -> None:
        async for event in model.stream(Ask((user("hello"),), tools=(WEATHER,))):
            got.append(event)

    with pytest.raises(ModelError) as caught:
        run(work())
    assert not any(isinstance(event, Reply) for event in got)
    shown = "".join(traceback.format_exception(caught.value)) + repr(caught.value.__dict__)
    assert SECRET not in shown
    assert BODY_MARK not in str(caught.value), "callers read a sentence of ours"
    assert caught.value.__cause__ is None and caught.value.__context__ is None
    return caught.value


def test_text_comes_as_deltas_and_then_one_reply(rig: Rig) -> None:
    rig.says("Hello there, how are you today?")
    found = asked(rig.model)
    reply = reply_of(found)
    assert said(found) == text_of(reply.turn) == "Hello there, how are you today?"
    assert sum(isinstance(event, TextDelta) for event in found) > 1
    assert (reply.stop, reply.turn.role) == ("end_turn", "assistant")


def test_calls_are_announced_and_stand_in_the_reply(rig: Rig) -> None:
    pair = [("toolu_1", "get_weather", '{"city": "Köln"}'), ("toolu_2", "get_weather", "{}")]
    rig.says("I look.", pair)
    found = asked(rig.model)
    reply = reply_of(found)
    assert [e.name for e in found if isinstance(e, ToolStart)] == ["get_weather"] * 2
    assert [(c.id, dict(c.input)) for c in calls_of(reply.turn)] == [
        ("toolu_1", {"city": "Köln"}),
        ("toolu_2", {}),
    ]
    assert all(call.error is None for call in calls_of(reply.turn))
    assert reply.stop == "tool_use"


@pytest.mark.parametrize("stop", ["max_tokens", "refusal"])
def test_stop_reason_of_a_cut_message_is_told(rig: Rig, stop: str) -> None:
    rig.says("Half a", stop=stop)
    assert reply_of(asked(rig.model)).stop == stop


def test_reply_goes_back_with_results(rig: Rig) -> None:
    rig.says("", [("toolu_1", "get_weather", '{"city": "Rome"}')])
    first = reply_of(asked(rig.model, user("weather in Rome")))
    rig.says("Sunny.")
    again = reply_of(
        asked(rig.model, user("weather in Rome"), first.turn, user(Result("toolu_1", "sun")))
    )
    assert text_of(again.turn) == "Sunny."


def test_reply_survives_the_ledger(rig: Rig) -> None:
    rig.says("I look.", [("toolu_1", "get_weather", '{"city": "Rome"}')])
    turn = reply_of(asked(rig.model)).turn
    assert load_turns(json.loads(json.dumps(dump_turns([turn])))) == [turn]


def test_one_model_serves_several_loops_at_once(rig: Rig) -> None:
    for _ in range(6):
        rig.says("Fine.")
    texts: list[str] = []
    workers = [
        threading.Thread(target=lambda: texts.append(said(asked(rig.model)))) for _ in range(3)
    ]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join(60)
    assert texts == ["Fine."] * 3


def test_whatever_the_turns_hold_the_request_is_valid(rig: Rig) -> None:
    rig.says("Fine.")
    odd = Call("functions.get:0 ", "no such tool!", {"a": 1})
    turns = (
        assistant("I began."),
        user("one", "  ", "two"),
        user("three"),
        assistant("\n", odd, odd),
        user("words before", Result(odd.id, "", is_error=True), Result("unknown", "late")),
        assistant(odd),
        assistant("again"),
        user(Result(odd.id, "second")),
        assistant(Call("x", "get_weather", {})),
    )
    assert said(asked(rig.model, *turns)) == "Fine."


def test_text_that_is_no_unicode_is_sent_all_the_same(rig: Rig) -> None:
    rig.says("Fine.")
    turns = (
        user("go \udcff"),
        assistant(Call("x", "get_weather", {})),
        user(Result("x", "caf\udce9.txt")),
    )
    assert said(asked(rig.model, *turns)) == "Fine."


def test_system_context_that_is_no_unicode_is_sent_all_the_same(rig: Rig) -> None:
    rig.says("Fine.")
    names = {"system": "Files of caf\udce9", "context": "caf\udce9.txt"}
    assert said(asked(rig.model, user("go"), **names)) == "Fine."


def test_history_with_calls_is_valid_without_tools(rig: Rig) -> None:
    rig.says("Fine.")
    turns = (user("go"), assistant(Call("x", "get_weather", {})), user(Result("x", "sun")))
    assert said(asked(rig.model, *turns, tools=())) == "Fine."


def test_repr_shows_no_key(rig: Rig) -> None:
    assert SECRET not in repr(rig.model) + repr(vars(rig.model))


def test_structured_reply_is_one_document(rig: Rig) -> None:
    rig.says('{"should_respond": true, "reasoning": "asked"}')
    schema = {
        "type": "object",
        "properties": {"should_respond": {"type": "boolean"}, "reasoning": {"type": "string"}},
        "required": ["should_respond", "reasoning"],
    }
    found = asked(rig.model, user("hi"), schema=schema, tools=())
    assert json.loads(text_of(reply_of(found).turn))["should_respond"] is True
    assert json.loads(said(found)) == json.loads(text_of(reply_of(found).turn))


@pytest.mark.parametrize(
    ("code", "kind", "retryable", "http"),
    [
        (400, "bad_request", False, 502),
        (401, "auth", False, 502),
        (403, "auth", False, 502),
        (404, "not_found", False, 502),
        (429, "rate_limit", True, 503),
        (500, "server", True, 502),
        (503, "overloaded", True, 503),
        (529, "overloaded", True, 503),
    ],
)
def test_error_status_is_one_model_error(
    wire: Wire, code: int, kind: str, retryable: bool, http: int, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG, logger="sayso")
    wire.server.then(status(code))
    error = failure(wire.model())
    assert (error.kind, error.retryable, error.status) == (kind, retryable, http)
    assert SECRET not in caplog.text
    assert error.reason == f"{BODY_MARK} [secret]" and error.reason in error.why
    assert len(wire.server.requests) == 1


def test_rate_limit_tells_how_long_to_wait(wire: Wire) -> None:
    wire.server.then(status(429, retry_after="37"))
    error = failure(wire.model(retries=3))
    assert error.retry_after == 37.0
    assert len(wire.server.requests) == 1, "a wait of 37 s is not for the turn"


@pytest.mark.parametrize("wait", ["9" * 400, "Wed, 21 Oct 99999999999999999999 07:28:00 GMT"])
def test_wait_without_end_is_not_told(wire: Wire, wait: str) -> None:
    wire.server.then(status(429, retry_after=wait))
    assert failure(wire.model()).retry_after is None


def test_passing_fault_before_the_first_delta_is_tried_again(wire: Wire) -> None:
    server = wire.server
    server.then(status(529, retry_after="0.01"), drop(), stream(server.message("Here.")))
    assert said(asked(wire.model(retries=2))) == "Here."
    assert len(server.requests) == 3


def test_wrong_request_is_not_tried_again(wire: Wire) -> None:
    wire.server.then(status(400))
    failure(wire.model(retries=2))
    assert len(wire.server.requests) == 1


@pytest.mark.parametrize("code", [302, 307])
def test_redirect_is_not_followed_and_says_what_to_set(wire: Wire, code: int) -> None:
    elsewhere = {"location": "/elsewhere"}
    wire.server.then(lambda exchange: exchange.whole(code, "text/plain", b"", elsewhere))
    error = failure(wire.model(retries=2))
    assert f"status {code}; set model.base_url to the address it leads to" in str(error)
    assert len(wire.server.requests) == 1


@pytest.mark.parametrize("ending", ["reset", "end"])
def test_connection_lost_mid_stream_is_an_error_and_not_tried_again(
    wire: Wire, ending: str
) -> None:
    whole = wire.server.message("A long text that is cut off somewhere in its middle.")
    wire.server.then(stream(whole[: len(whole) // 2], ending))
    error = failure(wire.model(retries=2))
    assert (error.kind, error.retryable) == ("connection", True)
    assert len(wire.server.requests) == 1, "the text would double"


def test_stream_that_ends_right_before_its_end_mark_is_an_error(wire: Wire) -> None:
    marks = 3 if wire.name == "openai" else 1
    whole = wire.server.message("", [("t", "get_weather", '{"city": "Rome"}')])
    wire.server.then(stream(whole[:-marks]))
    assert failure(wire.model()).kind == "connection"


@pytest.mark.parametrize("wire", PIECES, indirect=True)
def test_tool_input_cut_off_is_an_error(wire: Wire) -> None:
    whole = wire.server.message("", [("t", "get_weather", '{"city": "a long name of a town"}')])
    wire.server.then(stream(whole[:-5]))
    assert failure(wire.model()).kind == "connection"


@pytest.mark.parametrize("wire", PIECES, indirect=True)
def test_tool_input_cut_off_by_the_limit_of_tokens_is_not_to_be_run(wire: Wire) -> None:
    whole = wire.server.message("", [("t", "get_weather", '{"city": "a lo')], stop="max_tokens")
    wire.server.then(stream(whole))
    reply = reply_of(asked(wire.model()))
    assert reply.stop == "max_tokens"
    assert reply.turn.raw is None
    assert [(dict(c.input), bool(c.error)) for c in calls_of(reply.turn)] == [({}, True)]


@pytest.mark.parametrize(
    "arguments",
    [
        '{"city": ',
        '["Rome"]',
        '{"city": NaN}',
        '{"city": 1e999}',
        '{"city": "\\ud800"}',
        '{"\\udfff": 1}',
    ],
)
@pytest.mark.parametrize("wire", PIECES, indirect=True)
def test_broken_arguments_of_a_whole_message_go_back_to_the_model(
    wire: Wire, arguments: str
) -> None:
    wire.server.then(stream(wire.server.message("", [("t", "get_weather", arguments)])))
    model = wire.model()
    reply = reply_of(asked(model))
    [call] = calls_of(reply.turn)
    assert call.error and dict(call.input) == {}
    wire.server.then(stream(wire.server.message("Mended.")))
    back = user(Result("t", f"Error: {call.error}", is_error=True))
    assert said(asked(model, user("hello"), reply.turn, back)) == "Mended."


def test_stalled_stream_ends_in_a_timeout(wire: Wire) -> None:
    whole = wire.server.message("A text that stops, but only after a while.")
    wire.server.then(stream(whole[:4], "stall"))
    error = failure(wire.model(timeout=0.3))
    assert (error.kind, error.retryable) == ("timeout", True)
    assert wire.server.disconnected.wait(60)


def test_provider_that_never_answers_ends_in_one_timeout(wire: Wire) -> None:
    wire.server.then(silence(), silence())
    assert failure(wire.model(timeout=2, first_byte_timeout=2, retries=2)).kind == "timeout"
    assert len(wire.server.requests) == 1


@pytest.mark.parametrize(
    "broken",
    [
        b'event: content_block_delta\ndata: {"type": "content_block_\n\n',
        b"event: message_start\ndata: [1, 2]\n\n",
        b'event: content_block_delta\ndata: {"type": "content_block_delta", "index": 9, '
        b'"delta": {"type": "text_delta", "text": "x"}, "choices": [3]}\n\n',
        b'event: content_block_delta\ndata: "\xff\xfe"\n\n',
        b'event: content_block_start\ndata: {"type": "content_block_start", "choices": 5}\n\n',
    ],
)
@pytest.mark.parametrize("wire", ("anthropic", "openai"), indirect=True)
def test_broken_data_is_an_error(wire: Wire, broken: bytes) -> None:
    whole = wire.server.message("Some text")
    wire.server.then(stream([*whole[:3], broken, *whole[3:]]))
    assert failure(wire.model()).kind == "protocol"


def test_error_event_within_a_stream_is_an_error(wire: Wire) -> None:
    whole = wire.server.message("Some text that is a little longer than that")
    wire.server.then(stream([*whole[:5], wire.server.error_event()]))
    error = failure(wire.model(retries=0))
    kind = "server" if wire.name == "responses" else "overloaded"
    assert error.kind == kind and error.reason == f"{BODY_MARK} [secret]"


def test_json_body_in_place_of_a_stream_is_an_error(wire: Wire) -> None:
    wire.server.then(json_body())
    assert failure(wire.model()).kind == "protocol"


def test_page_in_place_of_a_stream_is_named_as_such(wire: Wire) -> None:
    wire.server.then(lambda exchange: exchange.whole(200, "text/html", b"<html></html>", {}))
    assert "sent an answer that could not be read" in str(failure(wire.model()))


def test_unreachable_provider_is_an_error(wire: Wire) -> None:
    model = wire.model()
    wire.server.close()
    assert failure(model).kind == "connection"


def test_structured_reply_that_is_no_document_is_an_error(wire: Wire) -> None:
    wire.server.then(stream(wire.server.message("I would rather not.")))
    with pytest.raises(ModelError) as caught:
        asked(wire.model(), user("hi"), schema={"type": "object", "properties": {}}, tools=())
    assert caught.value.kind == "protocol"


def test_closing_the_generator_closes_the_connection(wire: Wire) -> None:
    whole = wire.server.message("A text that goes on and on and on.")
    wire.server.then(stream(whole[:-4], "stall"))

    async def work() -> None:
        found: Any = wire.model().stream(Ask((user("hello"),)))
        await until(found, TextDelta)
        await found.aclose()
        assert await asyncio.to_thread(wire.server.disconnected.wait, 60)

    run(work())


def test_cancelling_the_task_closes_the_connection(wire: Wire) -> None:
    wire.server.then(stream(wire.server.message("Some text")[:3], "stall"))

    async def work() -> None:
        task = asyncio.create_task(events(wire.model(), Ask((user("hello"),))))
        assert await asyncio.to_thread(wire.server.received.wait, 60)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert await asyncio.to_thread(wire.server.disconnected.wait, 60)

    run(work())


def test_connection_is_used_again(wire: Wire) -> None:
    for _ in range(3):
        wire.server.then(stream(wire.server.message("Fine.")))

    async def work() -> None:
        model = wire.model()
        for _ in range(3):
            await events(model, Ask((user("hello"),)))

    run(work())
    assert (len(wire.server.requests), wire.server.connections) == (3, 1)


def test_stream_that_stays_open_after_its_end_holds_up_nobody(wire: Wire) -> None:
    wire.server.then(stream(wire.server.message("Fine."), "stall"))
    # Longer than the test: only an end that is not waited for arrives.
    assert said(asked(wire.model(timeout=600))) == "Fine."
