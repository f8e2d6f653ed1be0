"""Unexpected results and exceptions still end in one clear answer (design, section 5)."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator
from dataclasses import dataclass
from enum import Enum
from pathlib import Path
from typing import Annotated, Any

import pytest
from agents import Counted, delete, look, scripted
from pydantic import BaseModel, BeforeValidator, model_serializer
from serving import Json, Serve, Service, approved, assistant, rejected, said, user

from sayso import (
    Agent,
    AgentMessage,
    Ask,
    Call,
    Data,
    Done,
    IntermittentUpdate,
    Message,
    Reply,
    RequestContext,
    Session,
    Text,
    TextDelta,
    Turn,
    tool,
)


def answered(service: Service, *messages: Json) -> None:
    """Every path ends correctly, whatever the agent did; the service goes on."""
    for path in ("v1", "v2"):
        answer = service.ask(*messages, path=path)
        assert answer.headers["content-type"] == "application/json", answer.raw
        assert answer.status in (200, 500), answer.raw
        answer.json()
        events = service.stream(*messages, path=path)
        assert [e["type"] for e in events if e["type"] in ("done", "error")] == [events[-1]["type"]]
        assert (events[-1]["type"] == "done") == (answer.status == 200)
    with service.ws() as ws:
        for _ in range(2):
            events = ws.turn({"messages": list(messages)})
            assert events[-1]["type"] in ("done", "error")
    assert service.request("GET", "/health").status == 200


class Odd:
    """A value that no JSON encoder accepts, and whose text is broken."""

    def __repr__(self) -> str:
        raise RuntimeError("no repr")


class Broken(Enum):
    """A member that JSON cannot hold: half of a surrogate pair."""

    NAME = "bad\udcff"


@dataclass
class Named:
    name: str


RESULTS: dict[str, Any] = {
    "surrogate": "\ud800",
    "surrogate-in-message": lambda: AgentMessage(content="x\udfff"),
    "meta-object": lambda: AgentMessage(meta_data={"x": object()}),
    "meta-surrogate": {"content": "x", "meta_data": {"a": "\ud800"}},
    "meta-path": {"content": "x", "meta_data": {"a": Path("caf\udce9")}},
    "meta-enum": {"content": "x", "meta_data": {"a": Broken.NAME}},
    "meta-nan": {"content": "x", "meta_data": {"a": float("nan")}},
    "meta-endless": {"content": "x", "meta_data": {"a": [10**5000]}},
    "meta-set": {"content": "x", "meta_data": {"a": {1, 2}}},
    "meta-key": {"content": "x", "meta_data": {"a": {(1, 2): 1}}},
    "data-object": lambda: AgentMessage(data=Data.model_validate({"extra": Odd()})),
    "data-extra-set": {"content": "x", "data": {"extra": {1}}},
    "session-object": {"content": "x", "data": {"session": {"a": Odd()}}},
    "session-nan": {"content": "x", "data": {"session": {"a": float("inf")}}},
    "session-deep": {"content": "x", "data": {"session": {"a": {"b": {1: {2: 3}}}}}},
    "input-object": {
        "content": "x",
        "data": {"tool_calls": [{"id": "1", "name": "n", "input": {"a": Odd()}}]},
    },
    "input-nan": {
        "content": "x",
        "data": {"tool_calls": [{"id": "1", "name": "n", "input": {"a": float("nan")}}]},
    },
    "input-surrogate": {
        "content": "x",
        "data": {"tool_calls": [{"id": "1", "name": "n", "input": {"a": "\ud800"}}]},
    },
    "executed-path": {
        "content": "x",
        "data": {
            "executed_tool_calls": [
                {"id": "1", "name": "n", "input": {"a": Path("caf\udce9")}, "output": "o"}
            ]
        },
    },
    "meta-unwritable": lambda: {"content": "x", "meta_data": {"a": Unwritable()}},
    "executed-unwritable": lambda: {
        "content": "x",
        "data": {
            "executed_tool_calls": [
                {"id": "1", "name": "n", "input": {"a": Unwritable()}, "output": "o"}
            ]
        },
    },
    "executed-surrogate": {
        "content": "x",
        "data": {
            "executed_tool_calls": [{"id": "1", "name": "n", "input": {}, "output": "\ud800"}]
        },
    },
}


@pytest.mark.parametrize("name", list(RESULTS))
def test_result_that_no_json_holds_is_answered(served: Serve, name: str) -> None:
    result = RESULTS[name]
    answered(served(lambda messages, context: result() if callable(result) else result), user("x"))


@pytest.mark.parametrize(
    ("extra", "sent"),
    [
        ({"\udfff": "\ud800"}, {"?": "?"}),
        ({"a": Odd()}, {"a": "<Odd>"}),
        (Path("caf\udce9"), "caf?"),
        ([Broken.NAME, Named("\ud800")], ["bad?", {"name": "?"}]),
        (float("inf"), None),
        ({"a": [10**4300, -(10**4300)]}, {"a": [None, None]}),
        ({"a": 10**4300 - 1, "b": "1" * 9000}, {"a": 10**4300 - 1, "b": "1" * 9000}),
        ([{1}], [[1]]),
    ],
)
def test_data_of_a_callable_that_no_json_holds_is_made_to_fit(
    served: Serve, extra: Any, sent: Any
) -> None:
    service = served(lambda messages, context: {"content": "x", "data": {"extra": extra}})
    assert service.ask(user("x")).json()["data"]["extra"] == sent
    assert service.stream(user("x"))[-1]["data"] == {"extra": sent}


@pytest.mark.parametrize("text", ["\ud800", "a\udc80b"])
def test_delta_that_no_json_holds_is_answered(served: Serve, text: str) -> None:
    def agent(messages: Any, context: Any) -> Any:
        yield "fine "
        yield text

    answered(served(agent), user("x"))


class Custom(BaseException):
    pass


class Wordless(Exception):
    """An exception whose text is broken."""

    def __str__(self) -> str:
        raise RuntimeError("no text")


EXCEPTIONS: list[type[BaseException]] = [
    SystemExit,
    KeyboardInterrupt,
    asyncio.CancelledError,
    GeneratorExit,
    StopIteration,
    StopAsyncIteration,
    TimeoutError,
    asyncio.TimeoutError,
    RecursionError,
    MemoryError,
    Custom,
    UnicodeError,
    BrokenPipeError,
    AssertionError,
    Wordless,
]
RAISED = pytest.mark.parametrize("error", EXCEPTIONS, ids=lambda e: e.__name__)


@RAISED
@pytest.mark.parametrize("kind", ["sync", "async", "generator"])
def test_whatever_a_callable_raises_is_a_failure(
    served: Serve, error: type[BaseException], kind: str
) -> None:
    def sync(messages: Any, context: Any) -> str:
        raise error

    async def asynchronous(messages: Any, context: Any) -> str:
        raise error

    def generator(messages: Any, context: Any) -> Any:
        yield "a"
        raise error

    agent = {"sync": sync, "async": asynchronous, "generator": generator}[kind]
    service = served(agent)
    for path in ("v1", "v2"):
        answer = service.ask(user("x"), path=path)
        assert answer.status >= 500, answer.raw
        assert "detail" in answer.json()
        assert service.stream(user("x"), path=path)[-1]["type"] == "error"
    with service.ws() as ws:
        assert ws.turn({"messages": [user("x")]})[-1]["type"] == "error"
        assert ws.turn({"messages": [user("x")]})[-1]["type"] == "error"
    assert service.request("GET", "/health").status == 200


@RAISED
@pytest.mark.parametrize("kind", ["sync", "async"])
def test_whatever_a_gated_tool_raises_is_its_outcome(
    served: Serve, error: type[BaseException], kind: str
) -> None:
    runs: list[str] = []

    if kind == "sync":

        @tool(requires_approval=True, name="delete")
        def failing(name: str) -> str:
            """Delete."""
            runs.append(name)
            raise error
    else:

        @tool(requires_approval=True, name="delete")
        async def failing(name: str) -> str:
            """Delete."""
            runs.append(name)
            raise error

    agent, _ = scripted([[delete("a")], "I see.", "Still."], [failing])
    service = served(agent)
    reply = service.chat(user("go"))
    data = {"tool_calls": [approved(reply["data"]["tool_calls"][0])]}
    messages = [user("go"), said(reply), user("", data=data)]
    got = service.chat(*messages)
    (done,) = got["data"]["executed_tool_calls"]
    assert done["output"].startswith(("Error:", "Outcome unknown:"))
    assert service.chat(*messages)["data"]["executed_tool_calls"] == [done]
    assert runs == ["a"]


@RAISED
def test_whatever_an_open_tool_raises_goes_to_the_model(
    served: Serve, error: type[BaseException]
) -> None:
    @tool(name="look")
    def failing(name: str) -> str:
        """Look."""
        raise error

    agent, model = scripted([[look("a")], "I see."], [failing])
    assert served(agent).chat(user("go"))["content"] == "I see."
    assert model.asks[-1].turns[-1].blocks[0].is_error


@RAISED
@pytest.mark.parametrize("gated", [False, True])
def test_whatever_a_validator_of_a_tool_raises_goes_to_the_model(
    served: Serve, error: type[BaseException], gated: bool
) -> None:
    def failing(given: object) -> str:
        raise error

    @tool(name="look", requires_approval=gated)
    def looking(name: Annotated[str, BeforeValidator(failing)]) -> str:
        """Look."""
        return "seen"

    agent, model = scripted([[look("a")], "I see."], [looking])
    assert served(agent).chat(user("go"))["content"] == "I see."
    (block,) = model.asks[-1].turns[-1].blocks
    assert block.is_error
    assert not block.output.rstrip().endswith(":")


@RAISED
def test_whatever_an_interceptor_raises_is_a_failure(
    served: Serve, error: type[BaseException]
) -> None:
    def failing(request: Any, context: Any) -> None:
        raise error

    agent, _ = scripted(lambda ask: "x", request_interceptors=failing)
    service = served(agent)
    assert service.ask(user("x")).status >= 500
    assert service.stream(user("x"))[-1]["type"] == "error"
    assert service.request("GET", "/health").status == 200


OUTPUTS: dict[str, Any] = {
    "none": None,
    "number": 7,
    "endless": 10**5000,
    "nan": float("nan"),
    "bytes": b"\xff",
    "set": {1},
    "surrogate": "\ud800",
    "object": object(),
    "tuple-keys": {(1, 2): 3},
    "empty": "",
    "list": [1, {"a": None}],
    "deep": {"a": [{"b": ["\udfff"]}]},
}


@pytest.mark.parametrize("name", OUTPUTS)
def test_any_output_of_a_tool_is_text(served: Serve, name: str) -> None:
    @tool(requires_approval=True, name="delete")
    def odd(name_: str = "", name: str = "") -> Any:
        """Delete."""
        return OUTPUTS[case]

    case = name
    agent, model = scripted([[delete("a")], "I see."], [odd])
    service = served(agent)
    reply = service.chat(user("go"))
    data = {"tool_calls": [approved(reply["data"]["tool_calls"][0])]}
    messages = [user("go"), said(reply), user("", data=data)]
    got = service.chat(*messages)
    assert isinstance(got["data"]["executed_tool_calls"][0]["output"], str)
    assert service.chat(*messages) == got
    assert model.asks[-1].turns[-1].blocks[0].output


UPDATES: dict[str, Any] = {
    "object": ("50 %", {"a": object()}),
    "surrogate": ("50 %", {"a": "\ud800"}),
    "path": ("50 %", {"a": Path("caf\udce9")}),
    "dataclass": ("50 %", {"a": Named("\ud800")}),
    "nan": ("50 %", {"a": float("nan")}),
    "set": ("50 %", {"a": {1}}),
    "text": ("\udc00", None),
    "number": (7, None),
}


@pytest.mark.parametrize("case", list(UPDATES))
def test_update_that_no_json_holds_breaks_no_stream(served: Serve, case: str) -> None:
    @tool(name="look")
    def reporting(name: str, context: RequestContext) -> str:
        """Look."""
        context.update(*UPDATES[case])
        return "seen"

    agent, _ = scripted(lambda ask: [look("a")] if len(ask.turns) == 1 else "ok", [reporting])
    service = served(agent)
    answered(service, user("x"))
    updates = [e for e in service.stream(user("x")) if e["type"] == "intermittent_update"]
    assert all(type(e["text"]) is str and type(e["content"]) is dict for e in updates)
    assert len(updates) == 3


def test_status_line_that_cannot_be_written_is_left_out(served: Serve) -> None:
    def agent(messages: Any, context: RequestContext) -> str:
        context.update("50 %", {"a": Unwritable()})
        return "seen"

    service = served(agent)
    answered(service, user("x"))
    assert [e["type"] for e in service.stream(user("x"))] == ["text_delta", "done"]


@pytest.mark.parametrize("update", [IntermittentUpdate(7), IntermittentUpdate("x", [1])])  # type: ignore[arg-type]
def test_status_line_of_a_callable_that_is_none_is_an_invalid_message(
    served: Serve, update: IntermittentUpdate
) -> None:
    service = served(lambda messages, context: [update, "done"])
    answered(service, user("x"))
    assert (
        service.ask(user("x")).json()["detail"] == "the agent returned neither text nor a message"
    )


@pytest.mark.parametrize("value", [object(), {"a": [10**5000]}])
def test_session_value_that_no_json_holds_is_the_tools_error(served: Serve, value: object) -> None:
    @tool(name="look")
    def storing(name: str, session: Session) -> str:
        """Look."""
        session["a"] = value
        return "stored"

    agent, model = scripted(lambda ask: [look("a")] if len(ask.turns) == 1 else "ok", [storing])
    service = served(agent)
    answered(service, user("x"))
    assert model.asks[1].turns[-1].blocks[0].is_error


def holding_itself(session: Session) -> None:
    session["a"] = {}
    session["a"].update(one=session["a"], two=[session["a"]])


def without_end(session: Session) -> None:
    session["a"] = []
    inner = session["a"]
    for _ in range(5000):
        inner.append([])
        inner = inner[0]


def odd_within(session: Session) -> None:
    session["a"] = []
    session["a"].append(object())


def endless_key(session: Session) -> None:
    session["a"] = {}
    session["a"][10**5000] = 1


CHANGES = pytest.mark.parametrize("change", [holding_itself, without_end, odd_within, endless_key])


@CHANGES
def test_session_changed_in_place_by_an_approved_call_loses_no_outcome(
    served: Serve, change: Any
) -> None:
    @tool(requires_approval=True, name="delete")
    def storing(name: str, session: Session) -> str:
        """Delete."""
        change(session)
        return "stored"

    agent, _ = scripted([[delete("a")], "I see."], [storing])
    service = served(agent)
    reply = service.chat(user("go"))
    data = {"tool_calls": [approved(reply["data"]["tool_calls"][0])]}
    messages = [user("go"), said(reply), user("", data=data)]
    got = service.chat(*messages)
    assert got["data"]["executed_tool_calls"][0]["output"] == "stored"
    assert service.chat(*messages) == got


class Unwritable(BaseModel):
    @model_serializer
    def fail(self) -> str:
        raise KeyError("nothing")


@pytest.mark.parametrize("callable_agent", [False, True])
def test_a_session_that_cannot_be_written_fails_the_reply_and_loses_no_outcome(
    served: Serve, callable_agent: bool
) -> None:
    runs: list[str] = []

    @tool(requires_approval=True, name="delete")
    def storing(name: str, session: Session) -> str:
        """Delete."""
        runs.append(name)
        session["a"] = []
        session["a"].append(Unwritable())
        return "stored"

    def function(messages: list[Message], context: RequestContext, session: Session) -> Any:
        if len(messages) == 1:
            call = {"id": "own", "name": "delete", "input": {"name": "a"}, "execute": False}
            return {"content": "", "data": {"tool_calls": [call]}}
        return storing("a", session) if context.decisions else "I see."

    agent, _ = scripted([[delete("a")], "I see.", "I see."], [storing])
    service = served(function if callable_agent else agent, limits__turn_time=5)
    reply = service.chat(user("go"))
    data = {"tool_calls": [approved(reply["data"]["tool_calls"][0])]}
    messages = [user("go"), said(reply), user("", data=data)]
    assert service.ask(*messages).status == 500
    got = service.chat(*messages)
    assert got["data"]["executed_tool_calls"][0]["output"] == "stored"
    assert runs == ["a"]


def test_a_session_with_a_number_that_nobody_reads_loses_no_outcome(served: Serve) -> None:
    runs: list[str] = []

    @tool(requires_approval=True, name="delete")
    def storing(name: str, session: Session) -> str:
        """Delete."""
        runs.append(name)
        session["a"] = []
        session["a"].append(10**5000)
        return "stored"

    agent, _ = scripted([[delete("a")], "I see.", "I see."], [storing])
    service = served(agent, limits__turn_time=5)
    reply = service.chat(user("go"))
    data = {"tool_calls": [approved(reply["data"]["tool_calls"][0])]}
    messages = [user("go"), said(reply), user("", data=data)]
    got = service.chat(*messages)
    assert got["data"]["executed_tool_calls"][0]["output"] == "stored"
    assert got["data"]["session"] == {"a": [None]}
    assert service.chat(*messages) == got
    assert runs == ["a"]


@CHANGES
def test_session_changed_in_place_to_what_no_json_holds_is_answered(
    served: Serve, change: Any
) -> None:
    @tool(name="look")
    def storing(name: str, session: Session) -> str:
        """Look."""
        change(session)
        return "stored"

    agent, _ = scripted(lambda ask: [look("a")] if len(ask.turns) == 1 else "ok", [storing])
    answered(served(agent), user("x"))


def test_surrogate_in_the_models_text_is_answered(served: Serve) -> None:
    agent, _ = scripted(lambda ask: "bad \ud800")
    answered(served(agent), user("x"))


def test_two_calls_of_one_id_in_one_reply_both_get_a_result(served: Serve) -> None:
    tools = Counted()
    agent, model = scripted([[look("x", "same"), look("y", "same")], "ok"], tools.tools)
    assert served(agent).chat(user("go"))["content"] == "ok"
    results = [b for b in model.asks[-1].turns[-1].blocks if hasattr(b, "call_id")]
    assert len(results) == 2
    assert {b.output for b in results} == {"x is there", "y is there"}


def test_two_proposals_of_one_id_are_two(served: Serve) -> None:
    tools = Counted()
    agent, _ = scripted([[delete("a", "same"), delete("b", "same")], "ok"], tools.tools)
    service = served(agent)
    reply = service.chat(user("go"))
    calls = reply["data"]["tool_calls"]
    assert len({c["id"] for c in calls}) == 2
    data = {"tool_calls": [approved(c) for c in calls]}
    got = service.chat(user("go"), said(reply), user("", data=data))
    assert sorted(tools.names) == ["a", "b"]
    assert got["content"] == "ok"


def test_same_approval_twice_in_one_message_is_one(served: Serve) -> None:
    tools = Counted()
    agent, _ = scripted([[delete("a")], "ok"], tools.tools)
    service = served(agent)
    reply = service.chat(user("go"))
    call = approved(reply["data"]["tool_calls"][0])
    got = service.chat(user("go"), said(reply), user("", data={"tool_calls": [call, call]}))
    assert tools.names == ["a"]
    assert len(got["data"]["executed_tool_calls"]) == 1


def test_newest_message_wins_over_the_assistants(served: Serve) -> None:
    tools = Counted()
    agent, _ = scripted([[delete("a")], "ok"], tools.tools)
    service = served(agent)
    reply = service.chat(user("go"))
    call = reply["data"]["tool_calls"][0]
    history = assistant("", data={"tool_calls": [approved(call)]})
    got = service.ask(user("go"), history, user("", data={"tool_calls": [rejected(call)]}))
    assert got.status == 200, got.raw
    assert tools.runs == []


def test_tool_call_approved_as_a_command_is_refused(served: Serve) -> None:
    tools = Counted()
    agent, _ = scripted([[delete("a")], "ok"], tools.tools)
    service = served(agent)
    reply = service.chat(user("go"))
    item = {**reply["data"]["approvals"][0], "type": "command", "execute": True}
    assert service.ask(user("go"), said(reply), user("", data={"approvals": [item]})).types == {
        "approval_not_issued"
    }
    command = {"id": item["id"], "command": "delete", "execute": True}
    assert service.ask(user("go"), said(reply), user("", data={"cmds": [command]})).types == {
        "approval_not_issued"
    }
    assert tools.runs == []


def test_strange_ids_are_refused_cleanly(served: Serve) -> None:
    service = served(lambda messages, context: "ok")
    for id_ in ("", " ", "\u0000", "x" * 100_000, "' OR 1=1 --", "\U0001f600"):
        call = {"id": id_, "name": "n", "input": {}, "execute": True}
        answer = service.ask(user("", data={"tool_calls": [call]}))
        assert answer.types == {"approval_not_issued"}, id_
        assert json.loads(answer.raw)


def test_numbers_beyond_a_double_are_taken(served: Serve) -> None:
    big = int("9" * 400)
    service = served(lambda messages, context: "ok")
    call = {"id": "x", "name": "n", "input": {"a": big}, "execute": True}
    assert service.ask(user("", data={"tool_calls": [call]})).types == {"approval_not_issued"}
    assert service.chat(user("x"), n=2**63)["meta_data"]["request_context"] == {"n": 2**63}


def test_failed_call_is_the_models_error_when_arguments_are_no_json(served: Serve) -> None:
    tools = Counted()
    broken = Call("b", "delete", {}, error="the arguments are no JSON")
    agent, model = scripted([[broken], "I see."], tools.tools)
    reply = served(agent).chat(user("go"))
    assert reply["data"]["tool_calls"] == []
    assert model.asks[-1].turns[-1].blocks[0].is_error


@pytest.mark.parametrize("value", [float("inf"), float("nan")])
def test_model_proposes_no_call_that_no_json_can_say(served: Serve, value: float) -> None:
    @tool(requires_approval=True)
    def wait(seconds: float) -> None:
        """Wait."""

    agent, model = scripted([[Call("w", "wait", {"seconds": value})], "I see."], [wait])
    reply = served(agent).chat(user("go"))
    assert (reply["content"], reply["data"]["tool_calls"]) == ("I see.", [])
    result = model.asks[-1].turns[-1].blocks[0]
    assert result.is_error and "no JSON" in result.output


def test_a_session_never_holds_what_is_nested_too_deep_to_be_sent_back(served: Serve) -> None:
    @tool
    def keep(session: Session, levels: int) -> str:
        """Keep a value."""
        value: Any = 1
        for _ in range(levels):
            value = [value]
        session[f"{levels} levels"] = value
        return "kept"

    calls = [Call("a", "keep", {"levels": 5}), Call("b", "keep", {"levels": 6})]
    agent, model = scripted([calls, "Kept.", "More."], [keep])
    service = served(agent, limits__nesting=10)
    reply = service.chat(user("go"))
    assert list(reply["data"]["session"]) == ["5 levels"]
    kept, refused = model.asks[-1].turns[-1].blocks
    assert kept.output == "kept"
    assert refused.is_error and "no caller could send back" in refused.output
    again = user("more", data={"session": reply["data"]["session"]})
    assert service.chat(user("go"), said(reply), again)["content"] == "More."


def test_what_is_proposed_is_never_nested_too_deep_to_be_sent_back(served: Serve) -> None:
    @tool(requires_approval=True)
    def store(value: Any) -> str:
        """Store a value."""
        return json.dumps(value)

    calls = [Call("a", "store", {"value": [[1]]}), Call("b", "store", {"value": [[[1]]]})]
    agent, model = scripted([calls, "Stored."], [store])
    service = served(agent, limits__nesting=9)
    reply = service.chat(user("go"))
    (call,) = reply["data"]["tool_calls"]
    assert call["input"] == {"value": [[1]]}
    data = {"tool_calls": [approved(call)]}
    done = service.chat(user("go"), said(reply), user("", data=data))
    assert done["data"]["executed_tool_calls"][0]["output"] == "[[1]]"
    reported = [block.output for block in model.asks[-1].turns[-1].blocks]
    assert "deeper than 3 levels" in reported[1]


def test_stop_reason_of_a_callables_done_leaves(served: Serve) -> None:
    def agent(messages: Any, context: Any) -> Iterator[Any]:
        yield "cut of"
        yield Done("max_tokens")

    assert served(agent).stream(user("x"))[-1]["stop_reason"] == "max_tokens"


@pytest.mark.parametrize("wrong", ["whatever", ["end_turn"], None])
def test_unknown_stop_reason_of_a_callable_is_an_invalid_message(served: Serve, wrong: Any) -> None:
    service = served(lambda messages, context: [TextDelta("x"), Done(wrong)])
    assert service.ask(user("x")).status == 500
    assert service.stream(user("x"))[-1]["type"] == "error"


class Numbers:
    """A model whose text is not a string."""

    name, provider = "numbers", "test"

    async def stream(self, ask: Ask) -> Any:
        yield TextDelta(5)  # type: ignore[arg-type]
        yield Reply(Turn("assistant", (Text("5"),)), "end_turn")


@pytest.mark.parametrize(
    "agent", [lambda messages, context: [TextDelta(b"x"), "y"], Agent(model=Numbers())]
)
def test_text_that_is_none_fails_the_turn_on_every_path(served: Serve, agent: Any) -> None:
    service = served(agent)
    assert service.ask(user("x")).status >= 500
    assert [e["type"] for e in service.stream(user("x"))] == ["error"]


@pytest.mark.parametrize(
    ("event", "expected"),
    [
        ("hello", "one Reply, not str"),
        ({"text": "hello"}, "one Reply, not dict"),
        (Reply(Turn("assistant", ["hello"]), "end_turn"), "Text and Call, not str"),  # type: ignore[list-item]
    ],
)
def test_log_says_what_a_model_of_ones_own_yields_wrongly(
    served: Serve, caplog: pytest.LogCaptureFixture, event: Any, expected: str
) -> None:
    class Own:
        provider, name = "own", "x"

        async def stream(self, ask: Ask) -> Any:
            yield event

    assert served(Agent(model=Own())).ask(user("hi")).status == 502
    assert expected in caplog.text
