"""Replies and streams: defaults, echo, session, order, the fold (interface.md, "AgentMessage")."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from contextvars import ContextVar
from typing import Any

import pytest
from agents import Counted, delete, look, scripted, suggest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from serving import (
    Json,
    Serve,
    Service,
    approved,
    assistant,
    folded,
    rejected,
    said,
    service,
    text_of,
    user,
)

from sayso import (
    Agent,
    AgentMessage,
    Ask,
    Call,
    LocalShell,
    Reply,
    RequestContext,
    Session,
    Text,
    Thought,
    Turn,
    tool,
)
from sayso.testing.script import Scripted

PATHS = pytest.mark.parametrize("path", ["v1", "v2"])
EMPTY = {
    "cmds": [],
    "executed_cmds": [],
    "tool_calls": [],
    "executed_tool_calls": [],
    "approvals": [],
    "executed_approvals": [],
    "url_configs": [],
}


@PATHS
def test_reply_has_every_default_and_null(echo: Service, path: str) -> None:
    assert echo.chat(user("hi"), path=path) == {
        "role": "assistant",
        "content": "fine",
        "data": EMPTY,
        "meta_data": {},
        "timestamp": None,
        "user": None,
        "agent": None,
    }


@PATHS
def test_unknown_fields_everywhere_are_taken(echo: Service, path: str) -> None:
    message = user(
        "hi",
        x=1,
        data={"unknown": [1, {"a": None}], "tool_calls": []},
        platform_context={"future": True},
        user={"name": "n", "id": "i", "more": 1},
        timestamp="2026-01-01T00:00:00Z",
        agent={"name": "a", "id": "b"},
    )
    assert echo.chat(message, path=path, more={"y": 2})["content"] == "fine"


@pytest.mark.parametrize(
    "changes",
    [
        {"data": None},
        {"platform_context": None},
        {"timestamp": None},
        {"user": None},
        {"agent": None},
        {"data": {}},
        {"data": {"session": None}},
        {"platform_context": {}},
        {"platform_context": {"aws_credentials": None, "platform_token": None}},
        {"data": {"cmds": [{"command": "x", "files": None}]}},
        {"data": dict.fromkeys([*EMPTY, "session"])},
        {"data": {"approvals": [{"id": "x", "type": None, "name": None, "intent": None}]}},
        {"data": {"url_configs": [{"url": "x", "description": None}]}},
        {"data": {"url_configs": [{}, {"link": "x"}]}},
        {"user": {"name": "Ann", "id": None}},
        {"timestamp": "2026-01-01T00:00:00.123456+02:00"},
        {"timestamp": "2026-01-01"},
    ],
    ids=str,
)
def test_optional_fields_may_be_null(echo: Service, changes: Json) -> None:
    assert echo.chat(user("hi", **changes))["content"] == "fine"


@PATHS
def test_source_may_be_null(served: Serve, path: str) -> None:
    service = served(lambda messages, context: context.source)
    assert service.chat(user("hi"), path=path, source=None)["content"] == "help-desk"


@pytest.mark.parametrize(
    "content", ["\u0000", "a" * 200_000, "\U0001f600\u202e\ufeff", "a\u2028b\x85c"]
)
def test_content_of_any_text_is_taken(served: Serve, content: str) -> None:
    service = served(lambda messages, context: messages[-1].content)
    message = user(content)
    assert service.chat(message)["content"] == content
    assert text_of(service.stream(message)) == content
    with service.ws() as ws:
        assert text_of(ws.turn({"messages": [message]})) == content


def test_v2_echoes_the_request_fields(echo: Service) -> None:
    fields = {"ticket": 7, "source": "team-chat", "nested": {"a": [1, None, 2.5]}}
    assert echo.chat(user("x"), **fields)["meta_data"] == {"request_context": fields}
    events = echo.stream(user("x"), **fields)
    assert events[-1]["meta_data"] == {"request_context": fields}
    with echo.ws() as ws:
        events = ws.turn({"messages": [user("x")], **fields})
    assert events[-1]["meta_data"] == {"request_context": fields}


def test_default_source_is_no_request_field(echo: Service) -> None:
    assert echo.chat(user("x"))["meta_data"] == {}
    assert echo.stream(user("x"))[-1]["meta_data"] == {}


def test_v1_neither_echoes_nor_forwards(served: Serve) -> None:
    seen: list[Any] = []

    def agent(messages: Any, context: Any) -> str:
        seen.append((dict(context.request_fields), context.source))
        return "ok"

    service = served(agent)
    fields = {"ticket": 7, "source": "team-chat"}
    assert service.chat(user("x"), path="v1", **fields)["meta_data"] == {}
    assert service.stream(user("x"), path="v1", **fields)[-1]["meta_data"] == {}
    service.chat(user("x"), **fields)
    assert seen == [({}, "team-chat"), ({}, "team-chat"), (fields, "team-chat")]


@PATHS
def test_streams_have_their_headers(echo: Service, path: str) -> None:
    answer = echo.ask(user("x"), path=path, stream=True)
    assert answer.headers["content-type"] == "application/x-ndjson"
    assert answer.headers["cache-control"] == "no-cache"
    assert answer.headers["x-accel-buffering"] == "no"
    assert answer.events == [
        {"type": "text_delta", "text": "fine"},
        {"type": "done", "stop_reason": "end_turn", "meta_data": {}},
    ]


@PATHS
def test_synchronous_reply_is_json(echo: Service, path: str) -> None:
    assert echo.ask(user("x"), path=path).headers["content-type"] == "application/json"


def test_callable_with_a_whole_message_fills_every_field(served: Serve) -> None:
    given_: Json = {
        "role": "assistant",
        "content": "hello",
        "meta_data": {"k": [1]},
        "timestamp": "2026-01-01T00:00:00Z",
        "user": {"name": "u", "id": "1"},
        "agent": {"name": "a", "id": "2"},
        "data": {
            "url_configs": [{"url": "https://example.org", "description": "d"}],
            "custom": {"deep": [1]},
            "session": {"s": 1},
        },
    }
    service = served(lambda messages, context: given_)
    reply = service.chat(user("x"), ticket=1)
    expected = {
        **given_,
        "data": {**EMPTY, **given_["data"]},
        "meta_data": {"k": [1], "request_context": {"ticket": 1}},
    }
    assert reply == expected
    assert folded(service.stream(user("x"), ticket=1)) == expected
    assert service.chat(user("x"), path="v1") == {**expected, "meta_data": {"k": [1]}}


def test_stream_falls_back_to_the_whole_reply(served: Serve) -> None:
    service = served(lambda messages, context: AgentMessage(content="whole"))
    assert [e["type"] for e in service.stream(user("x"))] == ["text_delta", "done"]


class Unstreamed:
    """A model of somebody else's that knows its reply only as a whole."""

    provider = "somebody"
    name = "unstreamed"

    def __init__(self, *replies: Reply) -> None:
        self.replies = list(replies)

    async def stream(self, ask: Ask) -> Any:
        yield self.replies.pop(0)


def test_reply_of_a_model_that_does_not_stream_is_not_lost(served: Serve) -> None:
    tools = Counted()
    first = Reply(Turn("assistant", (Text("Let me see."), look("x"))), "tool_use")
    last = Reply(Turn("assistant", (Text("All "), Text("there."))), "end_turn")
    model = Unstreamed(first, last, first, last)
    service = served(Agent(model=model, tools=tools.tools))
    assert service.chat(user("x"))["content"] == "Let me see.\n\nAll there."
    assert text_of(service.stream(user("x"))) == "Let me see.\n\nAll there."


def test_reply_of_a_model_that_fails_as_it_is_closed_is_not_lost(served: Serve) -> None:
    class Untidy:
        provider = "mine"
        name = "untidy"

        async def stream(self, ask: Ask) -> Any:
            try:
                yield Reply(Turn("assistant", (Text("whole"),)), "end_turn")
            finally:
                raise RuntimeError("it cannot be closed")

    service = served(Agent(model=Untidy()))
    assert service.chat(user("x"))["content"] == "whole"
    assert text_of(service.stream(user("x"))) == "whole"


def test_model_that_fails_before_its_first_event_is_a_failing_model(served: Serve) -> None:
    class Broken:
        provider = "mine"
        name = "broken"

        def stream(self, ask: Ask) -> Any:
            raise ConnectionError("no way there")

    answer = served(Agent(model=Broken())).post("/api/chat", {"messages": [user("x")]})
    assert (answer.status, answer.json()["code"]) == (502, "MODEL_ERROR")


@pytest.mark.parametrize("kind", ["list", "generator", "async generator"])
def test_context_variables_that_a_model_sets_reach_its_events(served: Serve, kind: str) -> None:
    trace: ContextVar[str] = ContextVar("trace", default="none")

    def replies(ask: Ask) -> Iterator[Reply]:
        if len(ask.turns) == 1:
            yield Reply(Turn("assistant", (look("x"),)), "tool_use")
        else:
            yield Reply(Turn("assistant", (Text(trace.get()),)), "end_turn")

    class Traced:
        provider = "mine"
        name = "traced"

        def stream(self, ask: Ask) -> Any:
            trace.set(f"call {len(ask.turns)}")
            match kind:
                case "list":
                    return list(replies(ask))
                case "generator":
                    return replies(ask)
            return self._events(ask)

        async def _events(self, ask: Ask) -> Any:
            for reply in replies(ask):
                yield reply

    service = served(Agent(model=Traced(), tools=Counted().tools))
    assert service.chat(user("x"))["content"] == "call 3"


def test_deltas_leave_as_they_come(served: Serve) -> None:
    import http.client

    go = threading.Event()

    def agent(messages: Any, context: Any) -> Any:
        yield "first"
        go.wait(120)
        yield "second"

    service = served(agent)
    connection = http.client.HTTPConnection("127.0.0.1", service.port, timeout=60)
    body = json.dumps({"messages": [user("x")]})
    connection.request("POST", "/api/chat-stream", body, {"Content-Type": "application/json"})
    got = connection.getresponse()
    assert json.loads(got.readline()) == {"type": "text_delta", "text": "first"}
    go.set()
    assert json.loads(got.readline())["text"] == "second"
    assert json.loads(got.readline())["type"] == "done"
    assert got.readline() == b""
    connection.close()


def test_tool_reports_progress_while_it_runs(served: Serve) -> None:
    @tool
    def work(context: RequestContext) -> str:
        """Work."""
        context.update("50 %", {"part": 1})
        return "done"

    agent, _ = scripted([[Call("w", "work", {})], "ready"], [work])
    service = served(agent)
    events = service.stream(user("x"))
    assert {"type": "intermittent_update", "text": "50 %", "content": {"part": 1}} in events
    for event in events:
        if event["type"] == "intermittent_update":
            assert event.keys() == {"type", "text", "content"}
    assert events[-1]["type"] == "done"


def test_thoughts_are_updates_and_no_text(served: Serve) -> None:
    agent, _ = scripted([[Thought("hm"), "yes"], [Thought("hm"), "yes"]])
    service = served(agent)
    events = service.stream(user("x"))
    assert [e["type"] for e in events][:2] == ["intermittent_update", "text_delta"]
    assert service.chat(user("x"))["content"] == "yes"


class TestSession:
    @pytest.fixture
    def notes(self, served: Serve) -> Service:
        def agent(messages: Any, context: Any, session: Session) -> str:
            text = messages[-1].content
            if text.startswith("set "):
                key, value = text.removeprefix("set ").split("=")
                session[key] = value
            elif text == "clear":
                session.clear()
            return json.dumps(dict(session), sort_keys=True)

        return served(agent)

    @PATHS
    def test_never_set_it_is_absent(self, notes: Service, path: str) -> None:
        assert "session" not in notes.chat(user("x"), path=path)["data"]
        assert "session" not in notes.stream(user("x"), path=path)[-1]

    @PATHS
    def test_set_it_comes_back(self, notes: Service, path: str) -> None:
        assert notes.chat(user("set a=1"), path=path)["data"]["session"] == {"a": "1"}
        events = notes.stream(user("set a=1"), path=path)
        assert events[-1]["session"] == {"a": "1"}
        assert "data" not in events[-1]

    @PATHS
    def test_newest_message_of_either_role_counts(self, notes: Service, path: str) -> None:
        old = user("old", data={"session": {"n": 1}})
        mid = assistant("mid", data={"session": {"n": 2}})
        new = user("new", data={"session": {"n": 3}})
        assert notes.chat(old, mid, user("x"), path=path)["content"] == '{"n": 2}'
        assert notes.chat(old, mid, new, path=path)["content"] == '{"n": 3}'
        assert notes.chat(old, assistant("no data"), user("x"), path=path)["content"] == '{"n": 1}'
        none = user("x", data={"session": None})
        assert notes.chat(old, mid, none, path=path)["content"] == '{"n": 2}'

    def test_empty_one_stays_an_object(self, notes: Service) -> None:
        message = user("clear", data={"session": {"a": 1}})
        assert notes.chat(message)["data"]["session"] == {}
        assert notes.stream(message)[-1]["session"] == {}
        assert notes.chat(user("x", data={"session": {}}))["data"]["session"] == {}

    def test_reserved_key_is_hidden_and_kept(self, notes: Service) -> None:
        key = {"_sayso": "abc", "a": 1}
        reply = notes.chat(user("clear", data={"session": key}))
        assert reply["content"] == "{}"
        assert reply["data"]["session"] == {"_sayso": "abc"}

    def test_concurrent_turns_share_nothing(self, notes: Service) -> None:
        from concurrent.futures import ThreadPoolExecutor

        with ThreadPoolExecutor(8) as pool:
            replies = list(pool.map(lambda n: notes.chat(user(f"set k{n}=1")), range(16)))
        assert [r["data"]["session"] for r in replies] == [{f"k{n}": "1"} for n in range(16)]


def test_tools_share_the_session_and_never_see_the_reserved_key(served: Serve) -> None:
    seen: list[Any] = []

    @tool
    def put(key: str, session: Session) -> str:
        """Put."""
        session.set(key, {"v": 1})
        seen.append(sorted(session))
        return "ok"

    agent, model = scripted(
        [[Call("1", "put", {"key": "x"})], [Call("2", "put", {"key": "y"})], "done"], [put]
    )
    reply = served(agent).chat(user("go", data={"session": {"_sayso": "k"}}))
    assert seen == [["x"], ["x", "y"]]
    assert reply["data"]["session"] == {"_sayso": "k", "x": {"v": 1}, "y": {"v": 1}}
    assert model.asks[0].tools[0].input_schema["properties"].keys() == {"key"}


ORDER = [
    "executed_tool_calls",
    "executed_commands",
    "executed_approvals",
    "text_delta",
    "approvals",
    "tool_calls",
    "commands",
    "done",
]


def in_order(events: list[Json]) -> None:
    """The order of design section 5, and exactly one terminal event."""
    assert [e["type"] for e in events if e["type"] in ("done", "error")] == [events[-1]["type"]]
    places = [ORDER.index(e["type"]) for e in events if e["type"] in ORDER]
    assert places == sorted(places), [e["type"] for e in events]
    for name in set(ORDER) - {"text_delta"}:
        assert sum(e["type"] == name for e in events) <= 1
    for event in events:
        if event["type"] in ORDER[:3] + ORDER[4:7]:
            assert next(v for k, v in event.items() if k != "type"), event


def test_text_before_after_and_between_tool_calls_is_one_reply(served: Serve) -> None:
    tools = Counted()
    script = [["Let me see.", look("x")], ["And now.", look("y")], "All there."]
    reply = served(scripted(script * 2, tools.tools)[0])
    events = reply.stream(user("look"))
    in_order(events)
    content = reply.chat(user("look"))["content"]
    assert content == text_of(events)
    assert content == "Let me see.\n\nAnd now.\n\nAll there."


texts = st.text(st.characters(codec="utf-8", exclude_categories=["Cs"]), min_size=1, max_size=30)
calls = st.sampled_from(
    [
        "look-x",
        "look-y",
        "delete-a",
        "delete-b",
        "delete-broken",
        "wrong",
        "vanish",
        "run-one",
        "run-two",
    ]
)
step = st.lists(st.one_of(texts, calls.map(lambda c: ("call", c))), min_size=1, max_size=4)
decision = st.sampled_from(["approve", "reject", "leave"])


def blocks(items: list[Any], at: int) -> list[Any]:
    return [
        item if isinstance(item, str) else call(item[1], f"i{at}_{n}")
        for n, item in enumerate(items)
    ]


def call(what: str, id_: str) -> Call:
    kind, _, name = what.partition("-")
    match kind:
        case "look":
            return look(name, id_)
        case "delete":
            return delete(name, id_)
        case "run":
            return suggest(f"echo {name}", id_=id_)
        case "wrong":
            return Call(id_, "delete", {"nam": 1})
    return Call(id_, kind, {})


class Twice:
    """The same scripted agent served twice: one answers whole, the other streams."""

    def __init__(self, steps: list[list[Any]]) -> None:
        self.steps = steps
        self.tools = {"sync": Counted(), "stream": Counted()}

    def agent(self, which: str) -> Agent:
        script: list[Any] = [blocks(items, n) for n, items in enumerate(self.steps)]
        model = Scripted([*script, *["The end."] * 10])
        return Agent(
            model=model,
            tools=self.tools[which].tools,
            commands=LocalShell(),
            name="twice",
        )


def neutral(reply: Json, ids: dict[str, str]) -> Json:
    """The reply with the service's random ids in the order of their first appearance."""
    text = json.dumps(reply)
    found = [
        item["id"]
        for name in (
            "executed_tool_calls",
            "executed_cmds",
            "executed_approvals",
            "approvals",
            "tool_calls",
            "cmds",
        )
        for item in reply["data"][name]
    ]
    # The digest of what is shown holds the id of the call.
    found += [item["seen"] for item in reply["data"]["approvals"] if "seen" in item]
    for id_ in found:
        ids.setdefault(id_, f"ID{len(ids)}")
    if key := reply["data"].get("session", {}).get("_sayso"):
        ids.setdefault(key, "CONVERSATION")
    for id_, name in ids.items():
        text = text.replace(id_, name)
    loaded: Json = json.loads(text)
    return loaded


@settings(
    max_examples=25,
    deadline=None,
    derandomize=True,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.function_scoped_fixture],
)
@given(
    steps=st.lists(step, min_size=1, max_size=4),
    decisions=st.lists(st.lists(decision, min_size=8, max_size=8), min_size=3, max_size=3),
    through=st.booleans(),
)
def test_folded_stream_equals_the_synchronous_reply(
    tmp_path_factory: pytest.TempPathFactory,
    steps: list[Any],
    decisions: list[list[str]],
    through: bool,
) -> None:
    folder = tmp_path_factory.mktemp("twice")
    twice = Twice(steps)
    with (
        service(twice.agent("sync"), folder) as whole,
        service(twice.agent("stream"), folder) as streaming,
    ):
        names: list[dict[str, str]] = [{}, {}]
        history: list[list[Json]] = [[user("go")], [user("go")]]
        for round_ in decisions:
            a = whole.ask(*history[0], ticket=1)
            b = streaming.ask(*history[1], stream=True, ticket=1)
            if a.status != 200:
                assert b.events[-1]["type"] == "error"
                return
            reply, events = a.json(), b.events
            in_order(events)
            again = folded(events)
            assert neutral(again, names[1]) == neutral(reply, names[0])
            if not reply["data"]["approvals"]:
                break
            for n, got in enumerate((reply, again)):
                history[n] += [said(got), user("", data=decide(got, round_, through))]
        assert twice.tools["sync"].runs == twice.tools["stream"].runs


def decide(reply: Json, round_: list[str], through: bool) -> Json:
    name = "approvals" if through else None
    data: Json = {"approvals": [], "tool_calls": [], "cmds": []}
    items = (
        reply["data"]["approvals"]
        if through
        else [*reply["data"]["tool_calls"], *reply["data"]["cmds"]]
    )
    for item, what in zip(items, round_, strict=False):
        target = name or ("cmds" if "command" in item else "tool_calls")
        if what == "approve":
            data[target].append(approved(item))
        elif what == "reject":
            data[target].append(rejected(item))
    return data
