"""Plain callables as agents (design, section 8)."""

from __future__ import annotations

import asyncio
import http.client
import json
import math
import threading
from collections.abc import AsyncIterator, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextvars import ContextVar
from datetime import date
from typing import Any

import pytest
from agents import Counted, delete, scripted
from serving import DEADLINE, Json, Serve, Service, approved, rejected, said, text_of, until, user

from sayso import (
    Agent,
    AgentMessage,
    ChatRequest,
    ConfigError,
    Data,
    Done,
    ErrorEvent,
    IntermittentUpdate,
    ModelError,
    Plugin,
    Session,
    TextDelta,
    ToolCall,
    ToolCalls,
    create_app,
    hookimpl,
)
from sayso.ledger.record import Ledger


def sync(messages: Any, context: Any) -> str:
    return f"got {messages[-1].content}"


async def asynchronous(messages: Any, context: Any) -> str:
    return f"got {messages[-1].content}"


def generator(messages: Any, context: Any) -> Iterator[str]:
    yield "got "
    yield messages[-1].content


async def async_generator(messages: Any, context: Any) -> AsyncIterator[str]:
    yield "got "
    yield messages[-1].content


def as_dict(messages: Any, context: Any) -> Json:
    return {"content": f"got {messages[-1].content}"}


def as_message(messages: Any, context: Any) -> AgentMessage:
    return AgentMessage(content=f"got {messages[-1].content}")


def as_events(messages: Any, context: Any) -> list[Any]:
    return [
        IntermittentUpdate("working"),
        TextDelta("got "),
        TextDelta(messages[-1].content),
        Done(),
    ]


def with_session(messages: Any, context: Any, session: Session) -> str:
    assert isinstance(session, Session)
    return f"got {messages[-1].content}"


class Object:
    async def __call__(self, messages: Any, context: Any) -> str:
        return f"got {messages[-1].content}"


def returns_awaitable(messages: Any, context: Any) -> Any:
    return asynchronous(messages, context)


def returns_generator(messages: Any, context: Any) -> Any:
    return generator(messages, context)


class Methods:
    def method(self, messages: Any, context: Any) -> str:
        return f"got {messages[-1].content}"


def message_by_generator(messages: Any, context: Any) -> Iterator[Any]:
    yield "got "
    yield AgentMessage(content=messages[-1].content)


AGENTS = [
    sync,
    asynchronous,
    generator,
    async_generator,
    as_dict,
    as_message,
    as_events,
    with_session,
    Object(),
    returns_awaitable,
    returns_generator,
    Methods().method,
    message_by_generator,
]


@pytest.mark.parametrize("agent", AGENTS, ids=lambda a: getattr(a, "__name__", "object"))
def test_every_kind_of_callable_answers_on_every_path(served: Serve, agent: Any) -> None:
    service = served(agent)
    for path in ("v1", "v2"):
        assert service.chat(user("it"), path=path)["content"] == "got it"
        events = service.stream(user("it"), path=path)
        assert text_of(events) == "got it"
        assert events[-1] == {"type": "done", "stop_reason": "end_turn", "meta_data": {}}
    with service.ws() as ws:
        assert text_of(ws.turn({"messages": [user("it")]})) == "got it"


@pytest.mark.parametrize("agent", [generator, async_generator])
def test_each_yielded_text_is_one_delta(served: Serve, agent: Any) -> None:
    events = served(agent).stream(user("it"))
    assert [e["text"] for e in events[:-1]] == ["got ", "it"]


@pytest.mark.parametrize("calm", [True, False])
@pytest.mark.parametrize("pieces", ["list", "generator", "async generator"])
@pytest.mark.parametrize("kind", ["plain", "plain, awaitable", "async"])
def test_context_variables_that_a_callable_sets_reach_the_pieces_that_it_returns(
    served: Serve, kind: str, pieces: str, calm: bool
) -> None:
    trace: ContextVar[str] = ContextVar("trace", default="none")

    def plain() -> Iterator[str]:
        yield trace.get()

    async def asynchronous() -> AsyncIterator[str]:
        yield trace.get()

    def begin(messages: Any, context: Any) -> Any:
        trace.set(messages[-1].content)
        match pieces:
            case "list":
                return [*plain()]
            case "generator":
                return plain()
        return asynchronous()

    async def begin_async(messages: Any, context: Any) -> Any:
        return begin(messages, context)

    def begin_awaitable(messages: Any, context: Any) -> Any:
        return begin_async(messages, context)

    agent = {"plain": begin, "plain, awaitable": begin_awaitable, "async": begin_async}[kind]
    service = served(agent)
    if not calm:
        service.app.host.workers._blocked_until = math.inf
    assert service.chat(user("it"))["content"] == "it"


def test_empty_results_are_empty_replies(served: Serve) -> None:
    assert served(lambda messages, context: "").chat(user("x"))["content"] == ""
    assert served(lambda messages, context: iter(())).chat(user("x"))["content"] == ""
    assert served(lambda messages, context: "").stream(user("x")) == [
        {"type": "done", "stop_reason": "end_turn", "meta_data": {}}
    ]


def test_null_in_a_dict_is_the_same_as_an_absent_field(served: Serve) -> None:
    call = {"id": "a", "name": "drop", "input": {"x": None}, "input_description": None}
    data = {"tool_calls": [call], "cmds": None, "session": {"kept": None}}
    reply = {"role": "assistant", "content": "hi", "meta_data": None, "user": None}
    service = served(lambda messages, context: {**reply, "data": data})
    answer = service.chat(user("x"))
    assert (answer["content"], answer["data"]["session"]) == ("hi", {"kept": None})
    assert [c["input"] for c in answer["data"]["tool_calls"]] == [{"x": None}]
    service = served(lambda messages, context: {**reply, "data": None})
    assert service.chat(user("x"))["content"] == "hi"


def test_messages_and_context_are_what_was_sent(served: Serve) -> None:
    seen: list[Any] = []

    def agent(messages: Any, context: Any) -> str:
        seen.append((messages, context))
        return "ok"

    service = served(agent)
    service.chat(
        user("one", platform_context={"tenant_name": "red", "user_id": "u1"}),
        {"role": "assistant", "content": "two"},
        user("three", platform_context={"user_id": "u2"}, user={"name": "Ann", "id": "7"}),
        ticket=1,
    )
    messages, context = seen[0]
    assert [(m.role, m.content) for m in messages] == [
        ("user", "one"),
        ("assistant", "two"),
        ("user", "three"),
    ]
    assert messages[2].user.name == "Ann"
    assert (context.platform.tenant_name, context.platform.user_id) == ("red", "u2")
    assert dict(context.request_fields) == {"ticket": 1}
    assert context.source == "help-desk"


def test_error_event_of_a_callable_is_a_failure(served: Serve) -> None:
    def agent(messages: Any, context: Any) -> Iterator[Any]:
        yield TextDelta("part")
        yield ErrorEvent("it broke")

    service = served(agent)
    assert service.ask(user("x")).status == 500
    events = service.stream(user("x"))
    assert [e["type"] for e in events] == ["text_delta", "error"]
    assert events[-1]["code"] == "AGENT_ERROR"


def test_one_event_is_a_result(served: Serve) -> None:
    assert served(lambda messages, context: TextDelta("ok")).chat(user("x"))["content"] == "ok"


def test_error_event_of_a_callable_keeps_its_code(served: Serve) -> None:
    service = served(lambda messages, context: ErrorEvent("no credit is left", "NO_CREDIT"))
    answer = service.ask(user("x"))
    assert (answer.status, answer.json()["code"]) == (500, "NO_CREDIT")
    assert answer.json()["detail"] == "no credit is left"
    assert service.stream(user("x"))[-1]["code"] == "NO_CREDIT"


def test_failure_of_the_model_that_a_callable_asks_is_told_as_such(served: Serve) -> None:
    def agent(messages: Any, context: Any) -> str:
        raise ModelError("rate_limit", "the provider is busy", retryable=True, retry_after=7)

    service = served(agent)
    answer = service.ask(user("x"))
    assert (answer.status, answer.json()["code"]) == (503, "MODEL_OVERLOADED")
    assert answer.headers["retry-after"] == "7"
    assert service.stream(user("x"))[-1]["code"] == "MODEL_OVERLOADED"


@pytest.mark.parametrize("value", [math.inf, [math.nan], "\ud800", {1, 2}, date(2026, 1, 1)])
def test_callable_proposes_no_call_that_no_json_can_say(served: Serve, value: Any) -> None:
    def agent(messages: Any, context: Any) -> Any:
        call = ToolCall(id="a", name="reboot", input={"host": value})
        return AgentMessage(content="may I?", data=Data(tool_calls=[call]))

    answer = served(agent).ask(user("x"))
    assert (answer.status, answer.json()["code"]) == (500, "AGENT_ERROR")
    assert "cannot be sent: it is no JSON" in answer.json()["detail"]


def test_generator_is_closed_when_the_turn_fails_midway(served: Serve) -> None:
    closed = threading.Event()

    def agent(messages: Any, context: Any) -> Iterator[Any]:
        try:
            yield "part"
            yield 7
            yield "never"
        finally:
            closed.set()

    service = served(agent)
    assert service.stream(user("x"))[-1]["code"] == "AGENT_ERROR"
    assert closed.wait(60)


class Proposing:
    """A callable that proposes `calls` first and carries out the decided ones."""

    def __init__(self, *calls: Json, reply: Any = None) -> None:
        self.calls = calls
        self.given: list[Any] = []
        self.turns = 0
        self.reply = reply

    def __call__(self, messages: Any, context: Any, session: Session) -> Any:
        self.turns += 1
        if context.decisions:
            self.given += context.decisions
            if self.reply is not None:
                return self.reply(context.decisions)
            return "carried out"
        data = Data(tool_calls=[ToolCall.model_validate(c) for c in self.calls])
        return AgentMessage(content="may I?", data=data)


CALL = {"id": "mine-1", "name": "reboot", "input": {"host": "a"}, "intent": "it hangs"}
OTHER = {"id": "mine-2", "name": "reboot", "input": {"host": "b"}}


def propose(service: Service, **rest: Any) -> Json:
    reply = service.chat(user("go"), **rest)
    assert reply["content"] == "may I?"
    return reply


def deciding(reply: Json, *calls: Json) -> list[Json]:
    return [user("go"), said(reply), user("", data={"tool_calls": list(calls)})]


@pytest.mark.parametrize("path", ["v1", "v2"])
def test_callable_proposes_under_ids_of_the_service(served: Serve, path: str) -> None:
    agent = Proposing(CALL)
    service = served(agent)
    reply = propose(service, path=path)
    (call,) = reply["data"]["tool_calls"]
    assert call["id"] != "mine-1"
    assert (call["name"], call["input"], call["execute"]) == ("reboot", {"host": "a"}, False)
    assert call["intent"] == "it hangs"
    assert [a["id"] for a in reply["data"]["approvals"]] == [call["id"]]
    got = service.chat(*deciding(reply, approved(call)), path=path)
    assert got["content"] == "carried out"
    assert got["data"]["executed_tool_calls"] == [
        {"id": call["id"], "name": "reboot", "input": {"host": "a"}, "output": "carried out"}
    ]
    (decision,) = agent.given
    assert (decision.id, decision.call_id, decision.approved) == (call["id"], "mine-1", True)
    assert (decision.kind, decision.name, decision.input) == ("tool_call", "reboot", {"host": "a"})


def test_outcome_that_a_callable_tells_is_cut_as_any_tools(served: Serve) -> None:
    agent = Proposing(CALL, OTHER, reply=lambda decisions: "x" * 5000)
    service = served(agent, limits__tool_output=1024)
    reply = propose(service)
    got = service.chat(*deciding(reply, *map(approved, reply["data"]["tool_calls"])))
    assert len(got["content"]) == 5000
    outputs = [done["output"] for done in got["data"]["executed_tool_calls"]]
    assert outputs == ["x" * 1024 + "\n[cut: the first 1024 of 5000 bytes are shown]"] * 2


def test_callables_own_id_approves_nothing(served: Serve) -> None:
    agent = Proposing(CALL)
    service = served(agent)
    reply = propose(service)
    answer = service.ask(*deciding(reply, approved(CALL)))
    assert answer.types == {"approval_not_issued"}
    assert agent.given == []


def test_decision_is_given_once_and_the_reply_is_recorded(served: Serve) -> None:
    agent = Proposing(CALL)
    service = served(agent)
    reply = propose(service)
    messages = deciding(reply, approved(reply["data"]["tool_calls"][0]))
    first = service.chat(*messages)
    assert service.chat(*messages) == first
    assert len(agent.given) == 1
    assert agent.turns == 2


def test_parallel_approvals_reach_a_callable_once(served: Serve) -> None:
    go = threading.Event()

    def carry(decisions: Any) -> str:
        go.wait(120)
        return "carried out"

    agent = Proposing(CALL, reply=carry)
    service = served(agent)
    reply = propose(service)
    messages = deciding(reply, approved(reply["data"]["tool_calls"][0]))
    with ThreadPoolExecutor(16) as pool:
        waiting = [pool.submit(service.ask, *messages) for _ in range(16)]
        until(lambda: agent.given)
        go.set()
        answers = [w.result() for w in waiting]
    assert {a.status for a in answers} == {200}
    assert len({a.raw for a in answers}) == 1
    assert len(agent.given) == 1


def test_outcome_of_a_callable_is_told_to_who_waited_for_it_with_other_words(
    served: Serve, monkeypatch: pytest.MonkeyPatch
) -> None:
    arrived: list[str] = []
    claim = Ledger.claim_for_callable

    async def late(ledger: Ledger, turn: str, found: Any) -> None:
        host = service.app.host
        await asyncio.to_thread(until, lambda: len(arrived) == 5 and host.turns_running == 1)
        await claim(ledger, turn, found)

    monkeypatch.setattr(Ledger, "claim_for_callable", late)

    class Arrivals(Plugin):
        @hookimpl
        def intercept_request(self, request: ChatRequest) -> None:
            arrived.append(request.messages[-1].content)

    def agent(messages: Any, context: Any, session: Session) -> Any:
        if not context.decisions:
            calls = [] if len(messages) > 1 else [ToolCall.model_validate(CALL)]
            return AgentMessage(content="may I?", data=Data(tool_calls=calls))
        session["rebooted"] = session.get("rebooted", 0) + 1
        return "rebooted"

    service = served(agent, [Arrivals()])
    reply = propose(service)
    data = {"tool_calls": list(map(approved, reply["data"]["tool_calls"]))}
    asked = [[user("go"), said(reply), user(f"words {n}", data=data)] for n in range(4)]
    with ThreadPoolExecutor(4) as pool:
        replies = list(pool.map(lambda messages: service.chat(*messages), asked))
    outputs = [[e["output"] for e in r["data"]["executed_tool_calls"]] for r in replies]
    assert outputs == [["rebooted"]] * 4
    assert [r["data"]["session"] for r in replies] == [{"rebooted": 1}] * 4


def test_what_another_principal_decides_a_callable_carries_out_at_once_and_once(
    served: Serve,
) -> None:
    go = threading.Event()

    def carry(decisions: Any) -> str:
        go.wait(120)
        return "carried out"

    agent = Proposing(CALL, reply=carry)
    tokens = {"ann": "token-ann", "bob": "token-bob"}
    service = served(agent, auth__scheme="bearer", auth__tokens=tokens, approvals__deciders="any")
    ann, bob = ({"Authorization": f"Bearer {token}"} for token in tokens.values())
    reply = propose(service, headers=ann)
    messages = deciding(reply, approved(reply["data"]["tool_calls"][0]))
    with ThreadPoolExecutor(8) as pool:
        waiting = [pool.submit(service.chat, *messages, headers=bob)]
        until(lambda: agent.given)
        waiting += [pool.submit(service.chat, *messages, headers=h) for h in (ann, bob) * 3]
        go.set()
        replies = [w.result() for w in waiting]
    assert replies[0]["content"] == "carried out"
    assert [_outputs(r) for r in replies] == [["carried out"]] * 7
    assert _outputs(service.chat(*messages, headers=ann)) == ["carried out"]
    assert len(agent.given) == 1


def _outputs(reply: Json) -> list[str]:
    return [executed["output"] for executed in reply["data"]["executed_tool_calls"]]


def test_principals_that_decide_at_once_are_told_what_a_callable_carried_out(
    served: Serve, monkeypatch: pytest.MonkeyPatch
) -> None:
    come: list[str] = []
    claim = Ledger.claim_for_callable

    async def together(ledger: Ledger, turn: str, found: Any) -> None:
        come.append(turn)
        await asyncio.to_thread(until, lambda: len(come) == 2)
        await claim(ledger, turn, found)

    agent = Proposing(CALL)
    tokens = {"ann": "token-ann", "bob": "token-bob"}
    service = served(agent, auth__scheme="bearer", auth__tokens=tokens, approvals__deciders="any")
    both = [{"Authorization": f"Bearer {token}"} for token in tokens.values()]
    reply = propose(service, headers=both[0])
    messages = deciding(reply, approved(reply["data"]["tool_calls"][0]))
    monkeypatch.setattr(Ledger, "claim_for_callable", together)
    with ThreadPoolExecutor(2) as pool:
        replies = list(pool.map(lambda headers: service.chat(*messages, headers=headers), both))
    assert [_outputs(r) for r in replies] == [["carried out"]] * 2
    assert len(agent.given) == 1


def test_what_a_callable_proposed_stays_open_where_an_agent_has_taken_its_place(
    served: Serve,
) -> None:
    before, now = Proposing(CALL), Agent(model="offline")
    first = served(before, approvals__ledger="sqlite:///calls.db")
    reply = propose(first)
    messages = deciding(reply, approved(reply["data"]["tool_calls"][0]))
    other = served(now, approvals__ledger="sqlite:///calls.db", limits__turn_time=10)
    for _ in range(2):
        assert other.ask(*messages).types == {"approval_not_issued"}
    again = user("again", data=messages[-1]["data"])
    assert _outputs(first.chat(*messages, again)) == ["carried out"]


def test_callable_is_not_given_what_an_agent_in_its_place_proposed(served: Serve) -> None:
    agent, _ = scripted([[delete()]], Counted().tools)
    reply = served(agent, approvals__ledger="sqlite:///calls.db").chat(user("go"))
    now = Proposing()
    service = served(now, approvals__ledger="sqlite:///calls.db")
    messages = deciding(reply, approved(reply["data"]["tool_calls"][0]))
    for _ in range(2):
        assert service.ask(*messages).types == {"approval_not_issued"}
    assert (now.turns, now.given) == (0, [])


def test_callable_is_called_when_all_are_decided(served: Serve) -> None:
    agent = Proposing(CALL, OTHER)
    service = served(agent)
    reply = propose(service)
    one, two = reply["data"]["tool_calls"]
    partial = service.chat(*deciding(reply, approved(one)))
    assert [c["id"] for c in partial["data"]["tool_calls"]] == [two["id"]]
    assert agent.given == []
    got = service.chat(
        *deciding(reply, approved(one)),
        said(partial),
        user("", data={"tool_calls": [rejected(two, "not that one")]}),
    )
    assert got["content"] == "carried out"
    assert [(d.call_id, d.approved, d.reason) for d in agent.given] == [
        ("mine-1", True, None),
        ("mine-2", False, "not that one"),
    ]
    assert [e["id"] for e in got["data"]["executed_tool_calls"]] == [one["id"]]


def test_rejection_reaches_the_callable(served: Serve) -> None:
    agent = Proposing(CALL)
    service = served(agent)
    reply = propose(service)
    got = service.chat(*deciding(reply, rejected(reply["data"]["tool_calls"][0], "no")))
    assert got["content"] == "carried out"
    assert [(d.approved, d.reason) for d in agent.given] == [(False, "no")]
    assert got["data"]["executed_tool_calls"] == []


def test_callable_that_raises_on_its_decisions_is_given_none_of_them_again(
    ledger_url: str, served: Serve
) -> None:
    def carry(decisions: Any) -> str:
        raise KeyError("down")

    agent = Proposing(CALL, OTHER, reply=carry)
    service = served(agent, approvals__ledger=ledger_url)
    reply = propose(service)
    one, two = reply["data"]["tool_calls"]
    messages = deciding(reply, approved(one), rejected(two, "no"))
    assert service.ask(*messages).status == 500
    again = service.ask(*messages)
    assert again.status == 200, again.raw
    assert [(d.call_id, d.approved) for d in agent.given] == [("mine-1", True), ("mine-2", False)]


def test_command_rejected_after_the_callable_answered_to_another_reaches_it(
    ledger_url: str, served: Serve
) -> None:
    given: list[Any] = []

    def agent(messages: Any, context: Any) -> Any:
        if context.decisions or len(messages) > 1:
            given.extend(context.decisions)
            return "carried out"
        return {"content": "", "data": {"cmds": [{"command": "ls"}, {"command": "rm x"}]}}

    service = served(agent, approvals__ledger=ledger_url)
    reply = service.chat(user("go"))
    one, two = reply["data"]["cmds"]
    first = user("that one", data={"cmds": [approved(one)]})
    answer = service.chat(user("go"), said(reply), first)
    refused = user("not that", data={"cmds": [{**two, "rejection_reason": "no"}]})
    service.chat(user("go"), said(reply), first, said(answer), refused)
    assert [(d.input["command"], d.approved) for d in given] == [("ls", True), ("rm x", False)]


def two_turns(given: list[tuple[str, bool]]) -> Any:
    """A callable that proposes a command when it is asked "one", and a command and a tool call when
    it is asked "two"."""

    def agent(messages: Any, context: Any) -> Any:
        given.extend((d.call_id, d.approved) for d in context.decisions)
        if context.decisions:
            return "carried out"
        data: Json = {"cmds": [{"command": "ls", "id": messages[-1].content}]}
        if messages[-1].content == "two":
            data["tool_calls"] = [CALL]
        return {"content": "", "data": data} if len(messages) < 5 else "hello"

    return agent


def deciding_one_of_two(service: Service, one: dict[str, Any]) -> tuple[list[Json], Json]:
    """The messages after a decision on the only call of the first turn and on the command of the
    second, whose tool call is still pending; and that call."""
    messages = [user("one")]
    reply = service.chat(*messages)
    messages += [said(reply), user("two")]
    second = service.chat(*messages)
    decided = [
        {**reply["data"]["cmds"][0], **one},
        {**second["data"]["cmds"][0], "rejection_reason": "no"},
    ]
    messages += [said(second), user("", data={"cmds": decided})]
    partial = service.chat(*messages)
    (call,) = second["data"]["tool_calls"]
    assert [c["id"] for c in partial["data"]["tool_calls"]] == [call["id"]]
    return [*messages, said(partial)], call


@pytest.mark.parametrize("approves", [True, False])
def test_decision_that_another_turn_kept_from_a_callable_reaches_it_with_the_next(
    ledger_url: str, served: Serve, *, approves: bool
) -> None:
    given: list[tuple[str, bool]] = []
    service = served(two_turns(given), approvals__ledger=ledger_url)
    one = {"execute": True} if approves else {"rejection_reason": "no"}
    messages, call = deciding_one_of_two(service, one)
    assert given == []
    (waiting,) = service.chat(*messages, user(""))["data"]["tool_calls"]
    assert (waiting["id"], given) == (call["id"], [])
    messages.append(user("", data={"tool_calls": [approved(call)]}))
    got = service.chat(*messages)
    assert given == [("one", approves), ("mine-1", True), ("two", False)]
    reported = [outcome["output"] for outcome in got["data"].get("executed_cmds", [])]
    assert reported == ["carried out"] * approves
    assert service.chat(*messages) == got
    assert len(given) == 3


def test_approval_that_another_turn_kept_from_a_callable_reaches_it_with_new_words(
    served: Serve,
) -> None:
    given: list[tuple[str, bool]] = []
    service = served(two_turns(given), approvals__on_new_message="supersede")
    messages, _ = deciding_one_of_two(service, {"execute": True})
    got = service.chat(*messages, user("and now?"))
    assert given == [("one", True), ("mine-1", False), ("two", False)]
    assert [outcome["output"] for outcome in got["data"]["executed_cmds"]] == ["carried out"]


def test_client_that_leaves_does_not_cut_off_what_the_history_approves(served: Serve) -> None:
    given: list[tuple[str, bool]] = []
    started = threading.Event()
    plain = two_turns(given)

    async def agent(messages: Any, context: Any) -> Any:
        result = plain(messages, context)
        if context.decisions:
            started.set()
            await asyncio.sleep(0.5)
            given.append(("ended", True))
        return result

    service = served(agent, approvals__on_new_message="supersede")
    messages, _ = deciding_one_of_two(service, {"execute": True})
    messages.append(user("and now?"))
    connection = http.client.HTTPConnection("127.0.0.1", service.port, timeout=DEADLINE)
    body = json.dumps({"messages": messages})
    connection.request("POST", "/api/chat", body, {"Content-Type": "application/json"})
    assert started.wait(DEADLINE)
    connection.close()
    until(lambda: given[-1:] == [("ended", True)])
    got = service.chat(
        *messages[:-1], user(data={"cmds": [approved(messages[1]["data"]["cmds"][0])]})
    )
    assert [outcome["output"] for outcome in got["data"]["executed_cmds"]] == ["carried out"]


def test_rejection_of_another_principal_reaches_the_callable_once(
    ledger_url: str, served: Serve
) -> None:
    agent = Proposing(CALL)
    tokens = {"ann": "token-ann", "bob": "token-bob"}
    service = served(
        agent,
        auth__scheme="bearer",
        auth__tokens=tokens,
        approvals__deciders="any",
        approvals__ledger=ledger_url,
    )
    ann, bob = ({"Authorization": f"Bearer {token}"} for token in tokens.values())
    reply = propose(service, headers=ann)
    messages = deciding(reply, rejected(reply["data"]["tool_calls"][0], "no"))
    assert service.chat(*messages, headers=bob)["content"] == "carried out"
    service.chat(*messages, headers=ann)
    assert [(d.approved, d.reason) for d in agent.given] == [(False, "no")]


def test_decisions_sent_again_with_a_new_message_are_not_given_again(served: Serve) -> None:
    agent = Proposing(CALL, OTHER)
    service = served(agent)
    reply = propose(service)
    one, two = reply["data"]["tool_calls"]
    messages = deciding(reply, approved(one), rejected(two, "no"))
    service.chat(*messages)
    assert [d.call_id for d in agent.given] == ["mine-1", "mine-2"]
    got = service.chat(*messages[:-1], {**messages[-1], "content": "and now?"})
    assert [e["output"] for e in got["data"]["executed_tool_calls"]] == ["carried out"]
    assert len(agent.given) == 2


def test_decisions_of_several_turns_are_given_in_the_order_of_their_proposals(
    served: Serve,
) -> None:
    given: list[str] = []

    def agent(messages: Any, context: Any) -> Any:
        given.extend(d.call_id for d in context.decisions)
        if context.decisions:
            return "carried out"
        asked = messages[-1].content
        return {"content": "", "data": {"cmds": [{"command": "ls", "id": asked}]}}

    service = served(agent)
    messages: list[Json] = []
    commands: list[Json] = []
    for n in range(6):
        reply = service.chat(*messages, user(f"go {n}"))
        messages += [user(f"go {n}"), said(reply)]
        commands += reply["data"]["cmds"]
    decided = [approved(command) for command in reversed(commands)]
    service.chat(*messages, user(data={"cmds": decided}))
    assert given == [f"go {n}" for n in range(6)]


def test_outcomes_of_a_callable_leave_in_order(served: Serve) -> None:
    service = served(Proposing(CALL, OTHER))
    reply = propose(service)
    one, two = reply["data"]["tool_calls"]
    refused = {"id": two["id"], "rejection_reason": "no"}
    last = user(data={"tool_calls": [approved(one)], "approvals": [refused]})
    events = service.stream(user("go"), said(reply), last)
    types = ["executed_tool_calls", "executed_approvals", "text_delta", "done"]
    assert [e["type"] for e in events] == types


def test_outcome_is_the_entry_that_the_callable_returns(served: Serve) -> None:
    def carry(decisions: Any) -> Json:
        return {
            "content": "all good",
            "data": {
                "executed_tool_calls": [
                    {"id": d.id, "name": d.name, "input": d.input, "output": f"booted {d.call_id}"}
                    for d in decisions
                ]
            },
        }

    agent = Proposing(CALL, OTHER, reply=carry)
    service = served(agent)
    reply = propose(service)
    messages = deciding(reply, *map(approved, reply["data"]["tool_calls"]))
    got = service.chat(*messages)
    assert [e["output"] for e in got["data"]["executed_tool_calls"]] == [
        "booted mine-1",
        "booted mine-2",
    ]
    assert got["content"] == "all good"
    assert service.chat(*messages) == got
    events = service.stream(*messages)
    assert [e["type"] for e in events] == ["executed_tool_calls", "text_delta", "done"]


@pytest.mark.parametrize("odd", [None, {1, 2}, "\ud800"])
def test_approval_sent_again_gets_the_whole_reply(served: Serve, odd: Any) -> None:
    whole = {
        "content": "all good",
        "meta_data": {"took": 3, "odd": odd},
        "timestamp": "2026-01-01T00:00:00Z",
        "user": {"name": "Ann", "id": "u1"},
        "agent": {"name": "ops", "id": "a1"},
        "data": {"url_configs": [{"url": "https://a.example"}], "session": {"n": 1}},
    }
    agent = Proposing(CALL, reply=lambda decisions: whole)
    service = served(agent)
    reply = propose(service)
    messages = deciding(reply, approved(reply["data"]["tool_calls"][0]))
    got = service.chat(*messages, ticket=1)
    assert got["meta_data"] == {**got["meta_data"], "took": 3, "request_context": {"ticket": 1}}
    assert got["agent"] == whole["agent"]
    assert service.chat(*messages, ticket=1) == got
    echoed = got["meta_data"].pop("request_context")
    assert echoed == {"ticket": 1}
    assert service.chat(*messages, path="v1", ticket=1) == got
    assert len(agent.given) == 1


def test_approval_sent_again_gets_outcomes_of_the_callables_own(served: Serve) -> None:
    own = {"id": "own", "name": "look", "input": {}, "output": "seen"}
    whole = {"content": "all good", "data": {"executed_tool_calls": [own]}}
    service = served(Proposing(CALL, reply=lambda decisions: whole))
    reply = propose(service)
    messages = deciding(reply, approved(reply["data"]["tool_calls"][0]))
    got = service.chat(*messages)
    assert [e["output"] for e in got["data"]["executed_tool_calls"]] == ["all good", "seen"]
    assert service.chat(*messages) == got


def test_exception_while_carrying_out_is_a_failed_call(served: Serve) -> None:
    def carry(decisions: Any) -> str:
        raise KeyError("SECRET-detail")

    agent = Proposing(CALL, reply=carry)
    service = served(agent)
    reply = propose(service)
    messages = deciding(reply, approved(reply["data"]["tool_calls"][0]))
    answer = service.ask(*messages)
    assert answer.status == 500
    assert "SECRET" not in answer.raw.decode()
    again = service.ask(*messages)
    assert len(agent.given) == 1
    assert again.status == 200, again.raw
    assert again.json()["data"]["executed_tool_calls"][0]["output"].startswith("Error:")


@pytest.mark.parametrize("stated", [True, False])
def test_session_of_a_callable_that_carried_out_outlives_its_reply(
    served: Serve, stated: bool
) -> None:
    class FailsOnce(Plugin):
        failed = False

        @hookimpl
        def intercept_response(self, response: AgentMessage) -> None:
            if response.data.executed_tool_calls and not self.failed:
                self.failed = True
                raise RuntimeError("not this one")

    def agent(messages: Any, context: Any, session: Session) -> AgentMessage:
        if not context.decisions:
            calls = [] if len(messages) > 1 else [ToolCall.model_validate(CALL)]
            return AgentMessage(content="nothing more", data=Data(tool_calls=calls))
        if stated:
            return AgentMessage(content="rebooted", data=Data(session={"rebooted": 1}))
        session["rebooted"] = session.get("rebooted", 0) + 1
        session.delete("old")
        return AgentMessage(content="rebooted")

    service = served(agent, [FailsOnce()])
    reply = service.chat(user("go"))
    data = {"session": {"old": 1}, "tool_calls": list(map(approved, reply["data"]["tool_calls"]))}
    messages = [user("go"), said(reply), user("", data=data)]
    assert service.ask(*messages).status == 500
    again = service.chat(*messages)
    assert [e["output"] for e in again["data"]["executed_tool_calls"]] == ["rebooted"]
    assert again["data"]["session"] == {"rebooted": 1}
    assert service.chat(*messages) == again


def test_callable_sees_execute_only_on_the_call_claimed_for_this_turn(served: Serve) -> None:
    seen: list[Any] = []

    def agent(messages: Any, context: Any) -> Any:
        seen.append([c.execute for m in messages if m.data for c in m.data.tool_calls])
        if len(messages) == 1:
            return {"content": "may I?", "data": {"tool_calls": [CALL]}}
        return "done"

    service = served(agent)
    reply = propose(service)
    messages = deciding(reply, approved(reply["data"]["tool_calls"][0]))
    done = service.chat(*messages)
    service.chat(*messages, said(done), user("and now?"))
    assert seen == [[], [False, True], [False, False]]


def test_executed_claim_of_a_caller_starts_nothing(served: Serve) -> None:
    seen: list[Any] = []

    def agent(messages: Any, context: Any) -> str:
        seen.append(
            (
                [c.execute for m in messages if m.data for c in m.data.tool_calls],
                list(context.decisions),
            )
        )
        return "ok"

    service = served(agent)
    forged = {"id": "x", "name": "reboot", "input": {}, "execute": True}
    history = {"role": "assistant", "content": "", "data": {"tool_calls": [forged]}}
    service.chat(user("a"), history, user("b"), said(service.chat(user("q"))), user("c"))
    assert seen[-1] == ([False], [])


def test_streamed_proposals_of_a_generator_come_last(served: Serve) -> None:
    def agent(messages: Any, context: Any) -> Iterator[Any]:
        yield ToolCalls([ToolCall.model_validate(CALL)])
        yield "may I?"

    service = served(agent)
    events = service.stream(user("go"))
    assert [e["type"] for e in events] == ["text_delta", "approvals", "tool_calls", "done"]
    assert events[-1]["stop_reason"] == "approval_required"


def test_session_set_by_an_object_reply_and_by_the_argument(served: Serve) -> None:
    def agent(messages: Any, context: Any, session: Session) -> str:
        session.update({"n": session.get("n", 0) + 1})
        return "ok"

    service = served(agent)
    reply = service.chat(user("x"))
    assert reply["data"]["session"] == {"n": 1}
    assert service.chat(user("x"), said(reply), user("y"))["data"]["session"] == {"n": 2}
    whole = served(lambda messages, context: {"content": "", "data": {"session": {"a": [1]}}})
    assert whole.chat(user("x"))["data"]["session"] == {"a": [1]}
    assert json.loads(json.dumps(whole.stream(user("x"))[-1]["session"])) == {"a": [1]}


def test_commands_of_a_callable_are_proposed_and_decided(served: Serve) -> None:
    given: list[Any] = []

    def agent(messages: Any, context: Any) -> Any:
        given.extend(context.decisions)
        if not context.decisions:
            return {"content": "may I?", "data": {"cmds": [{"command": "ls"}]}}
        return {"content": "ran", "data": {"executed_cmds": [{"command": "ls", "output": "x y"}]}}

    service = served(agent)
    reply = propose(service)
    (command,) = reply["data"]["cmds"]
    assert (command["command"], command["execute"]) == ("ls", False)
    messages = [user("go"), said(reply), user("", data={"cmds": [approved(command)]})]
    got = service.chat(*messages)
    assert [e["output"] for e in got["data"]["executed_cmds"]] == ["x y"]
    assert [(d.kind, d.input["command"]) for d in given] == [("command", "ls")]
    assert service.chat(*messages) == got


def test_command_that_an_earlier_message_approved_is_told_when_the_callable_has_run_it(
    served: Serve,
) -> None:
    def agent(messages: Any, context: Any) -> Any:
        if not context.decisions:
            return {
                "content": "may I?",
                "data": {"cmds": [{"command": "ls"}], "tool_calls": [CALL]},
            }
        return {"content": "ran", "data": {"executed_cmds": [{"command": "ls", "output": "x y"}]}}

    service = served(agent)
    reply = propose(service)
    (command,), (call,) = reply["data"]["cmds"], reply["data"]["tool_calls"]
    first = user("", data={"cmds": [approved(command)]})
    partial = service.chat(user("go"), said(reply), first)
    messages = [
        *(user("go"), said(reply), first, said(partial)),
        user("", data={"tool_calls": [rejected(call)]}),
    ]
    got = service.chat(*messages)
    assert [(e["id"], e["output"]) for e in got["data"]["executed_cmds"]] == [
        (command["id"], "x y")
    ]
    assert service.chat(*messages) == got


@pytest.mark.parametrize(
    ("shown", "reported"),
    [("approvals", "executed_approvals"), ("tool_calls", "executed_tool_calls")],
)
def test_call_approved_before_a_trimmed_history_is_told_by_the_carrier_of_its_approval(
    served: Serve, shown: str, reported: str
) -> None:
    service = served(Proposing(CALL, OTHER))
    reply = propose(service)
    one, two = reply["data"][shown]
    first = user("", data={shown: [approved(one)]})
    partial = service.chat(user("go"), said(reply), first)
    got = service.chat(said(partial), user("", data={shown: [approved(two)]}))
    assert {outcome["id"] for outcome in got["data"][reported]} == {one["id"], two["id"]}


def test_equal_commands_of_a_callable_keep_their_own_outputs(served: Serve) -> None:
    def agent(messages: Any, context: Any) -> Any:
        if not context.decisions:
            return {"content": "may I?", "data": {"cmds": [{"command": "date"}] * 3}}
        given = [d for d in context.decisions if d.approved]
        ran = [{"command": "date", "output": d.call_id} for d in given]
        return {"content": "ran", "data": {"executed_cmds": ran}}

    service = served(agent)
    reply = propose(service)
    yes, no = {"command": "date", "execute": True}, {"command": "date", "rejection_reason": "no"}
    got = service.chat(user("go"), said(reply), user("", data={"cmds": [yes, no, yes]}))
    assert [e["output"] for e in got["data"]["executed_cmds"]] == ["command-0", "command-2"]


def test_calls_that_a_callable_gave_one_id_keep_their_own_outputs(served: Serve) -> None:
    def carry(decisions: Any) -> Json:
        ran = [
            {"id": d.call_id, "name": d.name, "input": d.input, "output": d.input["host"]}
            for d in decisions
        ]
        return {"content": "done", "data": {"executed_tool_calls": ran}}

    service = served(Proposing({**CALL, "id": ""}, {**OTHER, "id": ""}, reply=carry))
    reply = propose(service)
    got = service.chat(*deciding(reply, *map(approved, reply["data"]["tool_calls"])))
    assert [e["output"] for e in got["data"]["executed_tool_calls"]] == ["a", "b"]


def test_callable_sees_execute_on_a_command_that_came_without_its_id(served: Serve) -> None:
    seen: list[Any] = []

    def agent(messages: Any, context: Any) -> Any:
        if not context.decisions:
            return {"content": "may I?", "data": {"cmds": [{"command": "ls"}]}}
        (decision,) = context.decisions
        seen.extend((c.execute, c.id == decision.id) for c in messages[-1].data.cmds)
        return "ran"

    service = served(agent)
    reply = propose(service)
    data = {"cmds": [{"command": "ls", "execute": True}]}
    service.chat(user("go"), said(reply), user("", data=data))
    assert seen == [(True, True)]


def nothing() -> str:
    return "fine"


def too_much(messages: Any, context: Any, session: Any, more: Any) -> str:
    return "fine"


def by_name(messages: Any, context: Any, *, tone: str) -> str:
    return "fine"


@pytest.mark.parametrize("agent", [nothing, too_much, by_name])
def test_a_callable_that_no_turn_could_call_is_refused_at_the_start(agent: Any) -> None:
    with pytest.raises(ConfigError, match=rf"'{agent.__name__}' cannot be called with \(messages"):
        create_app(agent)
