"""Interceptors and event handlers on every path (design, sections 4, 5 and 7)."""

from __future__ import annotations

import json
import logging
import re
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import pytest
from agents import Counted, delete, look, scripted, suggest, whole
from serving import (
    Json,
    Serve,
    Service,
    approved,
    assistant,
    folded,
    rejected,
    said,
    text_of,
    user,
)

from sayso import (
    AgentMessage,
    Blocked,
    Call,
    ChatRequest,
    Data,
    LocalShell,
    Plugin,
    RequestContext,
    Session,
    Silence,
    Thought,
    hookimpl,
    tool,
)

EVERY = pytest.mark.parametrize("way", ["v1", "v2", "v1-stream", "v2-stream", "ws"])


def reply_by(service: Service, way: str, *messages: Json, **rest: Any) -> Json:
    """The reply over any of the five ways, streams folded."""
    if way in ("v1", "v2"):
        return service.chat(*messages, path=way, **rest)
    if way == "ws":
        with service.ws() as ws:
            events = ws.turn({"messages": list(messages), **rest})
    else:
        events = service.stream(*messages, path=way[:2], **rest)
    reply = folded(events)
    if way == "v1-stream":
        reply["meta_data"].pop("stop_reason", None)
    return reply


class Wordless(Exception):
    def __str__(self) -> str:
        raise ValueError


def stopped(way: str, reason: str) -> Json:
    """The place where V2 says why a turn stopped early."""
    return {} if way.startswith("v1") else {"stop_reason": reason}


@EVERY
def test_blocked_request_is_an_answer(served: Serve, way: str) -> None:
    def block(request: Any, context: Any) -> None:
        raise Blocked("not on Sundays", "SUNDAY")

    agent, model = scripted(["never"], request_interceptors=block)
    reply = reply_by(served(agent), way, user("x"))
    assert reply["content"] == "not on Sundays"
    assert reply["meta_data"] == {"blocked": {"code": "SUNDAY"}} | stopped(way, "blocked")
    assert model.asks == []


@EVERY
@pytest.mark.parametrize(
    ("message", "text"),
    [(ValueError("not on Sundays"), "not on Sundays"), (5, "5"), (None, ""), (Wordless(), "")],
)
def test_message_and_code_of_a_block_are_texts_whatever_they_were(
    served: Serve, way: str, message: Any, text: str
) -> None:
    def block(request: Any, context: Any) -> None:
        raise Blocked(message, 403)  # type: ignore[arg-type]

    agent, _ = scripted(["never"], request_interceptors=block)
    reply = reply_by(served(agent), way, user("x"))
    assert reply["content"] == text
    assert reply["meta_data"]["blocked"] == {"code": "403"}


def test_blocked_stream_says_so_at_its_end(served: Serve) -> None:
    async def block(request: Any, context: Any) -> None:
        raise Blocked("no")

    agent, _ = scripted(["never"], request_interceptors=[block])
    assert served(agent).stream(user("x"), t=1) == [
        {"type": "text_delta", "text": "no"},
        {
            "type": "done",
            "stop_reason": "blocked",
            "meta_data": {"blocked": {"code": "BLOCKED"}, "request_context": {"t": 1}},
        },
    ]


def test_blocked_reply_is_seen_by_no_response_interceptor(served: Serve) -> None:
    seen: list[Any] = []

    def block(request: Any, context: Any) -> None:
        raise Blocked("no")

    agent, _ = scripted(
        ["never"],
        request_interceptors=block,
        response_interceptors=lambda response, context: seen.append(response),
    )
    assert served(agent).chat(user("x"))["content"] == "no"
    assert seen == []


@EVERY
def test_silent_request_has_an_empty_reply(served: Serve, way: str) -> None:
    def hush(request: Any, context: Any) -> None:
        raise Silence("not for me")

    agent, model = scripted(["never"], request_interceptors=hush)
    reply = reply_by(served(agent), way, user("x"))
    assert reply["content"] == ""
    assert reply["role"] == "assistant"
    assert model.asks == []


def test_silent_stream_is_one_done(served: Serve) -> None:
    def hush(request: Any, context: Any) -> None:
        raise Silence

    agent, _ = scripted(["never"], request_interceptors=hush)
    assert served(agent).stream(user("x")) == [
        {"type": "done", "stop_reason": "silent", "meta_data": {}}
    ]


@EVERY
def test_block_of_a_response_interceptor_takes_the_place_of_the_reply(
    served: Serve, way: str
) -> None:
    def block(response: AgentMessage, context: Any) -> None:
        raise Blocked("that stays here", "LEAK")

    tools = Counted()
    agent, _ = scripted([["secret", delete("a")]], tools.tools, response_interceptors=block)
    reply = reply_by(served(agent), way, user("x"))
    assert (reply["content"], reply["data"]["tool_calls"]) == ("that stays here", [])
    assert reply["meta_data"] == {"blocked": {"code": "LEAK"}} | stopped(way, "blocked")


def test_silence_of_a_response_interceptor_takes_the_place_of_the_reply(served: Serve) -> None:
    def hush(response: AgentMessage, context: Any) -> None:
        raise Silence("nothing new")

    agent, _ = scripted(["secret"], response_interceptors=hush)
    assert served(agent).stream(user("x")) == [
        {"type": "done", "stop_reason": "silent", "meta_data": {}}
    ]


@pytest.mark.parametrize("path", ["v1", "v2"])
def test_block_of_a_callable_is_an_answer(served: Serve, path: str) -> None:
    def agent(messages: Any, context: Any) -> str:
        raise Blocked("ask somebody else", "ELSEWHERE")

    service = served(agent)
    reply = service.chat(user("x"), path=path)
    assert reply["content"] == "ask somebody else"
    assert reply["meta_data"] == {"blocked": {"code": "ELSEWHERE"}} | stopped(path, "blocked")
    assert service.stream(user("x"), path=path)[-1]["stop_reason"] == "blocked"


def test_block_and_silence_amid_a_stream_end_it(served: Serve) -> None:
    async def agent(messages: Any, context: Any) -> AsyncIterator[str]:
        yield "part"
        raise Blocked("no more") if messages[-1].content == "block" else Silence

    service = served(agent)
    assert [e.get("text") for e in service.stream(user("block"))] == ["part", "\n\nno more", None]
    assert [e["type"] for e in service.stream(user("hush"))] == ["text_delta", "done"]


def test_block_while_carrying_out_is_a_failed_call(served: Serve) -> None:
    def agent(messages: Any, context: Any) -> Any:
        if context.decisions:
            raise Blocked("not today")
        call = {"id": "c1", "name": "reboot", "input": {}}
        return {"content": "may I?", "data": {"tool_calls": [call]}}

    service = served(agent)
    reply = service.chat(user("x"))
    (call,) = reply["data"]["tool_calls"]
    messages = [user("x"), said(reply), user("", data={"tool_calls": [approved(call)]})]
    assert service.chat(*messages)["content"] == "not today"
    again = service.chat(*messages)
    (reported,) = again["data"]["executed_tool_calls"]
    assert reported["output"].startswith("Error:")


def test_blocked_reply_of_an_approved_call_is_not_repeated_by_a_second_run(served: Serve) -> None:
    blocks: list[bool] = []

    def block(response: AgentMessage, context: Any) -> None:
        if blocks:
            raise Blocked("no")

    tools = Counted()
    agent, _ = scripted([[delete("a")], "gone", "gone"], tools.tools, response_interceptors=block)
    service = served(agent)
    reply = service.chat(user("x"))
    (call,) = reply["data"]["tool_calls"]
    deciding = [user("x"), said(reply), user("", data={"tool_calls": [approved(call)]})]
    blocks.append(True)
    assert service.chat(*deciding)["content"] == "no"
    blocks.clear()
    again = service.chat(*deciding)
    assert again["content"] == "gone"
    assert [e["output"] for e in again["data"]["executed_tool_calls"]] == ["deleted a"]
    assert tools.names == ["a"]


def test_interceptors_run_in_order_each_seeing_what_the_one_before_made(served: Serve) -> None:
    def adding(word: str) -> Callable[..., Any]:
        def sync(request: ChatRequest, context: Any) -> ChatRequest:
            last = request.messages[-1]
            changed = last.model_copy(update={"content": f"{last.content} {word}"})
            return request.model_copy(update={"messages": [*request.messages[:-1], changed]})

        async def asynchronous(request: ChatRequest, context: Any) -> ChatRequest:
            return sync(request, context)

        return asynchronous if word in "bd" else sync

    class Front(Plugin):
        name = "front"

        @hookimpl
        async def intercept_request(self, request: ChatRequest) -> ChatRequest:
            return adding("plugin")(request, None)

    agent, model = scripted(["ok"], request_interceptors=[adding(w) for w in "abcd"])
    served(agent, [Front()]).chat(user("x"))
    assert model.asks[0].turns[-1].blocks[0].text == "x plugin a b c d"


def test_change_in_place_counts(served: Serve) -> None:
    def change(request: ChatRequest, context: Any) -> None:
        request.messages[-1] = request.messages[-1].model_copy(update={"content": "changed"})
        context.add_system_context("tenant red")

    agent, model = scripted(["ok"], request_interceptors=change, system_prompt="static")
    served(agent).chat(user("x"))
    assert model.asks[0].turns[-1].blocks[0].text == "changed"
    assert (model.asks[0].system, model.asks[0].context) == ("static", "tenant red")


@pytest.mark.parametrize(
    ("option", "wanted"),
    [
        ("request_interceptors", "it gave dict; return a ChatRequest, an AgentMessage or None"),
        ("response_interceptors", "it gave dict; return an AgentMessage, a str or None"),
    ],
)
def test_log_says_what_an_interceptor_gave_and_should_give(
    served: Serve, caplog: pytest.LogCaptureFixture, option: str, wanted: str
) -> None:
    agent, _ = scripted(["ok"], **{option: lambda message, context: {"content": "changed"}})
    with caplog.at_level(logging.ERROR):
        assert served(agent).ask(user("x")).status == 500
    assert wanted in caplog.text


def test_system_context_may_be_added_from_what_is_no_text(served: Serve) -> None:
    def add(request: ChatRequest, context: Any) -> None:
        context.add_system_context(None)
        context.add_system_context(42)

    agent, model = scripted(["ok"], request_interceptors=add)
    served(agent).chat(user("x"))
    assert model.asks[0].context == "42"


def test_system_context_is_never_shared_between_requests(served: Serve) -> None:
    def add(request: ChatRequest, context: Any) -> None:
        context.add_system_context(request.messages[-1].content)

    agent, model = scripted(lambda ask: "ok", request_interceptors=add)
    service = served(agent)
    for word in ("one", "two"):
        service.chat(user(word))
    assert [ask.context for ask in model.asks] == ["one", "two"]


@EVERY
def test_empty_message_that_an_interceptor_fills_is_answered(served: Serve, way: str) -> None:
    def fill(request: ChatRequest, context: RequestContext) -> None:
        request.messages[-1].content = "what is new?"

    agent, model = scripted(["news"], request_interceptors=fill)
    assert reply_by(served(agent), way, user(""))["content"] == "news"
    assert "what is new?" in repr(model.asks)


def test_empty_message_that_an_interceptor_fills_is_answered_after_an_approval(
    served: Serve,
) -> None:
    def fill(request: ChatRequest, context: RequestContext) -> None:
        if len(request.messages) > 3:
            request.messages[-1].content = "what is new?"

    tools = Counted()
    agent, _ = scripted([[delete("a")], "gone", "news"], tools.tools, request_interceptors=fill)
    service = served(agent)
    reply = service.chat(user("x"))
    (call,) = reply["data"]["tool_calls"]
    talk = [user("x"), said(reply), user("", data={"tool_calls": [approved(call)]})]
    after = service.chat(*talk)
    assert after["content"] == "gone"
    assert service.chat(*talk, said(after), user(""))["content"] == "news"


@EVERY
def test_interceptors_own_answer_is_the_reply(served: Serve, way: str) -> None:
    agent, model = scripted(
        ["never"],
        request_interceptors=lambda request, context: AgentMessage(
            content="cached", meta_data={"hit": True}
        ),
    )
    reply = reply_by(served(agent), way, user("x"))
    assert reply["content"] == "cached"
    assert reply["meta_data"] == {"hit": True}
    assert model.asks == []


@EVERY
def test_session_of_an_interceptors_own_answer_goes_out(served: Serve, way: str) -> None:
    def answer(request: Any, context: RequestContext) -> AgentMessage:
        return AgentMessage(content="cached", data=Data(session={"seen": 2}))

    agent, _ = scripted(["never"], request_interceptors=answer)
    reply = reply_by(served(agent), way, user("x", data={"session": {"seen": 1, "old": True}}))
    assert reply["data"]["session"] == {"seen": 2}


@EVERY
def test_response_interceptors_alter_the_reply_and_leak_nothing(served: Serve, way: str) -> None:
    def mask(response: AgentMessage, context: Any) -> str:
        return response.content.replace("secret", "***")

    async def shout(response: AgentMessage, context: Any) -> AgentMessage:
        return response.model_copy(update={"content": response.content.upper()})

    agent, _ = scripted(["the secret word"], response_interceptors=[mask, shout])
    reply = reply_by(served(agent), way, user("x"))
    assert reply["content"] == "THE *** WORD"
    assert "secret" not in json.dumps(reply)


def test_held_streams_let_no_update_of_the_agent_through(served: Serve) -> None:
    @tool
    def work(context: RequestContext, what: str = "") -> str:
        """Work."""
        context.update("secret progress", {"secret": 1})
        return "secret result"

    agent, _ = scripted(
        [
            [Thought("secret thought"), "secret text", Call("w", "work", {"what": "secret"})],
            "secret end",
        ],
        [work],
        response_interceptors=lambda response, context: "clean",
    )
    service = served(agent)
    answer = service.ask(user("x"), stream=True)
    assert b"secret" not in answer.raw
    assert text_of(answer.events) == "clean"
    assert "intermittent_update" in {e["type"] for e in answer.events}


def test_held_error_lets_nothing_through(served: Serve) -> None:
    def agent(messages: Any, context: Any) -> Any:
        yield "secret"
        raise KeyError("secret")

    class Alter(Plugin):
        name = "alter"

        @hookimpl
        def intercept_response(self, response: AgentMessage) -> None:
            response.content = "clean"

    answer = served(agent, [Alter()]).ask(user("x"), stream=True)
    assert b"secret" not in answer.raw
    assert [e["type"] for e in answer.events] == ["error"]


def test_failing_response_interceptor_is_an_error_without_the_reply(served: Serve) -> None:
    def fails(response: AgentMessage, context: Any) -> None:
        raise KeyError("secret")

    agent, _ = scripted(lambda ask: "secret", response_interceptors=fails)
    service = served(agent)
    for stream in (False, True):
        answer = service.ask(user("x"), stream=stream)
        assert b"secret" not in answer.raw
    assert service.ask(user("x")).json()["code"] == "AGENT_ERROR"


def strip(response: AgentMessage, context: Any) -> AgentMessage:
    """Try to change the proposals, and to add more."""
    data = response.data
    for call in data.tool_calls:
        call.input["name"] = "b"
        call.execute = True
    extra = {"id": "made-up", "name": "delete", "input": {"name": "z"}, "execute": False}
    return AgentMessage.model_validate(
        {
            "content": "altered",
            "data": {"tool_calls": [c.model_dump() for c in data.tool_calls] + [extra]},
        }
    )


@EVERY
def test_response_interceptor_cannot_touch_proposals(served: Serve, way: str) -> None:
    tools = Counted()
    agent, _ = scripted([["t", delete("a")], "gone"], tools.tools, response_interceptors=strip)
    service = served(agent)
    reply = reply_by(service, way, user("delete a"))
    assert reply["content"] == "altered"
    (call,) = reply["data"]["tool_calls"]
    assert (call["input"], call["execute"]) == (whole("a"), False)
    assert [a["id"] for a in reply["data"]["approvals"]] == [call["id"]]
    data = {"tool_calls": [approved(call)]}
    assert service.ask(user("delete a"), said(reply), user("", data=data)).status == 200
    assert tools.names == ["a"]


def test_response_interceptor_cannot_change_what_will_run(served: Serve) -> None:
    runs: list[Any] = []

    @tool(requires_approval=True)
    def apply(spec: dict[str, Any]) -> str:
        """Apply."""
        runs.append(spec)
        return "applied"

    def change(response: AgentMessage, context: Any) -> None:
        for call in response.data.tool_calls:
            call.input["spec"]["replicas"] = 9000

    agent, model = scripted(
        [[Call("c", "apply", {"spec": {"replicas": 1}})], "ok"],
        [apply],
        response_interceptors=change,
    )
    service = served(agent)
    reply = service.chat(user("apply"))
    call = reply["data"]["tool_calls"][0]
    assert call["input"] == {"spec": {"replicas": 1}}
    service.chat(user("apply"), said(reply), user("", data={"tool_calls": [approved(call)]}))
    assert runs == [{"replicas": 1}]


def test_request_interceptor_cannot_mend_a_changed_approval(served: Serve) -> None:
    tools = Counted()

    def mend(request: ChatRequest, context: Any) -> None:
        for message in request.messages:
            for call in message.data.tool_calls if message.data else ():
                call.input["name"] = "a"

    agent, _ = scripted([[delete("a")], "gone"], tools.tools, request_interceptors=mend)
    service = served(agent)
    reply = service.chat(user("delete a"))
    call = reply["data"]["tool_calls"][0]
    data = {"tool_calls": [approved(call, input={"name": "b"})]}
    answer = service.ask(user("delete a"), said(reply), user("", data=data))
    assert answer.types == {"approval_changed"}
    assert tools.runs == []


def test_request_interceptor_cannot_change_an_edit(served: Serve) -> None:
    tools = Counted(editable=True)

    def change(request: ChatRequest, context: Any) -> None:
        for message in request.messages:
            for call in message.data.tool_calls if message.data else ():
                call.input["name"] = "c"

    agent, _ = scripted([[delete("a")], "gone"], tools.tools, request_interceptors=change)
    service = served(agent)
    reply = service.chat(user("delete a"))
    call = reply["data"]["tool_calls"][0]
    data = {"tool_calls": [approved(call, input={"name": "b"})]}
    service.ask(user("delete a"), said(reply), user("", data=data))
    assert tools.names == ["b"]


def test_change_in_place_leaves_the_conversation_recognisable(
    served: Serve, tmp_path: Path
) -> None:
    def prefix(request: ChatRequest, context: Any) -> None:
        request.messages[-1].content = f"[checked] {request.messages[-1].content}"

    agent, _ = scripted(
        [[suggest("echo one")], "ran"],
        request_interceptors=prefix,
        commands=LocalShell(workdir=tmp_path),
    )
    service = served(agent)
    reply = service.chat(user("run"))
    command = {"command": "echo one", "execute": True}
    history = {"role": "assistant", "content": reply["content"]}
    answer = service.ask(user("run"), history, user("", data={"cmds": [command]}))
    assert answer.status == 200, answer.raw
    assert [e["output"].strip() for e in answer.json()["data"]["executed_cmds"]] == ["one"]


def test_response_interceptor_that_drops_all_data_drops_no_proposal(served: Serve) -> None:
    tools = Counted()
    agent, _ = scripted(
        [["t", delete("a")], "gone"],
        tools.tools,
        response_interceptors=lambda response, context: AgentMessage(content="bare"),
    )
    reply = served(agent).chat(user("delete a"))
    assert [c["input"] for c in reply["data"]["tool_calls"]] == [whole("a")]


@pytest.mark.parametrize("way", ["v2", "v2-stream", "ws"])
def test_reply_made_anew_by_a_response_interceptor_keeps_the_echo(served: Serve, way: str) -> None:
    agent, _ = scripted(
        lambda ask: "long",
        response_interceptors=lambda response, context: AgentMessage(
            content="short", meta_data={"cut": True}
        ),
    )
    reply = reply_by(served(agent), way, user("x"), ticket=7)
    assert reply["meta_data"] == {"cut": True, "request_context": {"ticket": 7}}


def test_reply_that_a_response_interceptor_keeps_takes_nothing_of_one_caller_to_the_next(
    served: Serve,
) -> None:
    kept = AgentMessage(content="we are closed")
    agent, _ = scripted(lambda ask: "fine", response_interceptors=lambda response, context: kept)
    service = served(agent)
    for name in ("ann", "bob"):
        reply = service.chat(user("x", data={"session": {"name": name}}), ticket=name)
        assert reply["data"]["session"] == {"name": name}
        assert reply["meta_data"] == {"request_context": {"ticket": name}}


def test_response_interceptor_may_alter_the_echo(served: Serve) -> None:
    def redact(response: AgentMessage, context: Any) -> None:
        response.meta_data["request_context"] = {"ticket": "…"}

    agent, _ = scripted(lambda ask: "fine", response_interceptors=redact)
    reply = served(agent).chat(user("x"), ticket=7)
    assert reply["meta_data"] == {"request_context": {"ticket": "…"}}


def test_request_interceptor_adds_no_decision(served: Serve) -> None:
    tools = Counted()

    def approve(request: ChatRequest, context: Any) -> ChatRequest:
        dumped = request.model_dump()
        for message in dumped["messages"]:
            for call in (message["data"] or {}).get("tool_calls", []):
                call["execute"] = True
        return ChatRequest.model_validate(dumped)

    agent, _ = scripted([[delete("a")], "gone"], tools.tools, request_interceptors=approve)
    service = served(agent)
    reply = service.chat(user("delete a"))
    answer = service.ask(user("delete a"), said(reply), user(""))
    assert [c["id"] for c in answer.json()["data"]["tool_calls"]] == [
        reply["data"]["tool_calls"][0]["id"]
    ]
    assert tools.runs == []


def test_request_interceptor_that_strips_decisions_removes_none(served: Serve) -> None:
    tools = Counted()

    def strip_data(request: ChatRequest, context: Any) -> ChatRequest:
        kept = [m.model_copy(update={"data": None}) for m in request.messages]
        return request.model_copy(update={"messages": kept})

    agent, model = scripted([[delete("a")], "gone"], tools.tools, request_interceptors=strip_data)
    service = served(agent)
    reply = service.chat(user("delete a"))
    data = {"tool_calls": [approved(reply["data"]["tool_calls"][0])]}
    got = service.chat(user("delete a"), said(reply), user("", data=data))
    assert tools.names == ["a"]
    assert got["content"] == "gone"
    assert well_formed(model.asks[-1].turns)


def well_formed(turns: Any) -> bool:
    roles = [t.role for t in turns]
    return roles[0] == roles[-1] == "user" and all(
        a != b for a, b in zip(roles, roles[1:], strict=False)
    )


@pytest.mark.parametrize("how", ["block", "silence", "error"])
def test_stopped_approval_has_no_effect_and_can_be_decided_later(served: Serve, how: str) -> None:
    tools = Counted()
    stopping = [False]

    def stop(request: ChatRequest, context: Any) -> None:
        if stopping[0]:
            raise {"block": Blocked("wait"), "silence": Silence(), "error": KeyError("x")}[how]

    agent, _ = scripted([[delete("a")], "gone"], tools.tools, request_interceptors=stop)
    service = served(agent)
    reply = service.chat(user("delete a"))
    data = {"tool_calls": [approved(reply["data"]["tool_calls"][0])]}
    messages = [user("delete a"), said(reply), user("", data=data)]
    stopping[0] = True
    service.ask(*messages)
    assert tools.runs == []
    stopping[0] = False
    assert service.chat(*messages)["content"] == "gone"
    assert tools.names == ["a"]


def test_interceptors_see_execute_only_on_live_calls(served: Serve) -> None:
    seen: list[Any] = []

    def look_on(request: ChatRequest, context: Any) -> None:
        seen.append([c.execute for m in request.messages if m.data for c in m.data.tool_calls])

    tools = Counted()
    agent, _ = scripted([[delete("a")], "gone"], tools.tools, request_interceptors=look_on)
    service = served(agent)
    reply = service.chat(user("delete a"))
    data = {"tool_calls": [approved(reply["data"]["tool_calls"][0])]}
    messages = [user("delete a"), said(reply), user("", data=data)]
    service.chat(*messages)
    service.chat(*messages)
    assert seen == [[], [False, True], [False, False]]


def test_interceptors_see_execute_on_a_command_that_came_without_its_id(served: Serve) -> None:
    seen: list[Any] = []

    def look_on(request: ChatRequest, context: Any) -> None:
        seen.append([c.execute for m in request.messages if m.data for c in m.data.cmds])

    agent, model = scripted(
        [[suggest("echo a", "echo b")], "done"],
        commands=LocalShell(),
        request_interceptors=look_on,
    )
    service = served(agent)
    reply = service.chat(user("go"))
    decisions = [{"command": "echo b", "execute": True}, {"command": "echo c", "execute": False}]
    messages = [user("go"), said(reply), user("", data={"cmds": decisions})]
    assert [e["output"] for e in service.chat(*messages)["data"]["executed_cmds"]] == ["b\n"]
    service.chat(*messages)
    assert seen == [[], [False, False, True, False], [False, False, False, False]]


def test_interceptor_returning_nonsense_is_an_agent_error(served: Serve) -> None:
    agent, _ = scripted(["x"], request_interceptors=lambda request, context: 7)
    assert served(agent).ask(user("x")).json()["code"] == "AGENT_ERROR"
    agent, _ = scripted(["x"], response_interceptors=lambda response, context: 7)
    assert served(agent).ask(user("x")).json()["code"] == "AGENT_ERROR"


@pytest.mark.parametrize(
    "spoil",
    [
        lambda messages: messages.insert(0, user("by the way")),
        lambda messages: messages.append("by the way"),
        lambda messages: setattr(messages[0], "content", None),
        lambda messages: messages.clear(),
    ],
    ids=["a dict", "a text", "no content", "nothing"],
)
def test_messages_that_an_interceptor_spoils_stop_the_turn_before_an_approved_call_runs(
    served: Serve, spoil: Callable[[list[Any]], None]
) -> None:
    tools = Counted()

    def interceptor(request: ChatRequest, context: RequestContext) -> None:
        if context.has_decision:
            spoil(request.messages)

    agent, _ = scripted([[delete("a")], "gone"], tools.tools, request_interceptors=interceptor)
    service = served(agent)
    reply = service.chat(user("delete a"))
    data = {"tool_calls": [approved(reply["data"]["tool_calls"][0])]}
    answer = service.ask(user("delete a"), said(reply), user("", data=data))
    assert answer.status == 500
    assert "left no valid request, of 'agent'" in answer.json()["detail"]
    assert tools.runs == []


@pytest.mark.parametrize("way", ["v1", "v2"])
@pytest.mark.parametrize("content", [b"x", bytearray(b"x"), 3, None])
def test_reply_whose_text_an_interceptor_makes_no_text_fails_with_that_cause(
    served: Serve, content: Any, way: str
) -> None:
    def spoil(response: AgentMessage, context: RequestContext) -> None:
        response.content = content

    agent, _ = scripted(["fine", "fine"], response_interceptors=spoil)
    service = served(agent)
    answer = service.ask(user("x"), path=way)
    assert answer.status == 500
    cause = "a response interceptor left no valid message, of 'agent'"
    assert cause in answer.json()["detail"]
    assert cause in service.stream(user("x"), path=way)[-1]["error"]


@pytest.mark.parametrize("hook", ["request", "response"])
def test_agent_with_two_interceptors_is_named_once_where_they_spoil_something(
    served: Serve, hook: str
) -> None:
    def spoil(given: Any, context: Any) -> None:
        wrong = [] if hook == "request" else "some day"
        setattr(given, "messages" if hook == "request" else "timestamp", wrong)

    pair: dict[str, Any] = {f"{hook}_interceptors": [spoil, lambda given, context: None]}
    agent, _ = scripted(["x"], **pair)
    detail = served(agent).ask(user("x")).json()["detail"]
    assert re.search("left no valid (request|message), of 'agent'$", detail), detail


@pytest.mark.parametrize("hook", ["request", "response"])
def test_nonsense_of_one_interceptor_does_not_reach_the_next(served: Serve, hook: str) -> None:
    seen: list[Any] = []

    def look_on(given: Any, context: Any) -> Any:
        seen.append(given)
        return AgentMessage(content="mended") if hook == "response" else None

    pair = [lambda given, context: 7, look_on]
    options: dict[str, Any] = {f"{hook}_interceptors": pair}
    agent, _ = scripted(["x"], **options)
    answer = served(agent).ask(user("x"))
    assert answer.json()["code"] == "AGENT_ERROR"
    assert f"a {hook} interceptor returned" in answer.json()["detail"]
    assert seen == []


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize(
    "field, value",
    [
        ("content", None),
        ("meta_data", None),
        ("data", None),
        ("timestamp", 7),
        ("timestamp", "some day"),
        ("user", "joe"),
    ],
)
def test_response_interceptor_that_leaves_no_valid_reply_is_an_agent_error(
    served: Serve, field: str, value: Any, stream: bool
) -> None:
    def spoil(response: AgentMessage, context: Any) -> None:
        setattr(response, field, value)

    agent, _ = scripted(["x"], response_interceptors=spoil)
    answer = served(agent).ask(user("x"), stream=stream)
    reported = answer.events[-1] if stream else answer.json()
    assert reported["code"] == "AGENT_ERROR"


@EVERY
def test_response_interceptor_changes_the_session_of_its_context(served: Serve, way: str) -> None:
    def count(response: AgentMessage, context: RequestContext) -> None:
        context.session["replies"] = context.session.get("replies", 0) + 1

    agent, _ = scripted(["x"], response_interceptors=count)
    reply = reply_by(served(agent), way, user("x", data={"session": {"replies": 4, "a": 1}}))
    assert reply["data"]["session"] == {"replies": 5, "a": 1}


def test_reply_sent_again_has_the_same_session_with_a_response_interceptor(served: Serve) -> None:
    seen: list[Any] = []

    def count(response: AgentMessage, context: RequestContext) -> None:
        seen.append(context.session.get("note"))
        context.session["replies"] = context.session.get("replies", 0) + 1
        context.session.get("log", []).append("reply")

    @tool
    def note(text: str, session: Session) -> str:
        session.update({"note": text, "log": [text]})
        return "noted"

    calls = [[delete("a")], [Call("n1", "note", {"text": "gone"})], "done"]
    agent, _ = scripted(calls, [*Counted().tools, note], response_interceptors=count)
    service = served(agent)
    reply = service.chat(user("x"))
    (call,) = reply["data"]["tool_calls"]
    talk = [user("x"), said(reply), user("", data={"tool_calls": [approved(call)]})]
    for _ in range(2):
        session = service.chat(*talk)["data"]["session"]
        assert session == {"note": "gone", "log": ["gone", "reply"], "replies": 2}
    assert seen == [None, "gone", "gone"]


@EVERY
def test_reply_of_a_response_interceptor_that_states_no_session_keeps_it(
    served: Serve, way: str
) -> None:
    def other(response: AgentMessage, context: RequestContext) -> AgentMessage:
        return AgentMessage(content="other")

    agent, _ = scripted(["x"], response_interceptors=other)
    reply = reply_by(served(agent), way, user("x", data={"session": {"a": 1}}))
    assert (reply["content"], reply["data"]["session"]) == ("other", {"a": 1})


@EVERY
def test_session_that_a_response_interceptor_states_goes_out(served: Serve, way: str) -> None:
    def empty(response: AgentMessage, context: RequestContext) -> None:
        response.data.session = {}

    agent, _ = scripted(["x"], response_interceptors=empty)
    reply = reply_by(served(agent), way, user("x", data={"session": {"a": 1}}))
    assert reply["data"]["session"] == {}


@EVERY
def test_session_of_the_context_that_a_response_interceptor_states_goes_out(
    served: Serve, way: str
) -> None:
    def whole(response: AgentMessage, context: RequestContext) -> None:
        context.session["replies"] = 1
        response.data.session = context.session  # type: ignore[assignment]

    agent, _ = scripted(["x"], response_interceptors=whole)
    reply = reply_by(served(agent), way, user("x", data={"session": {"a": 1}}))
    assert reply["data"]["session"] == {"a": 1, "replies": 1}


@EVERY
def test_change_in_place_of_the_session_that_a_reply_states_goes_out(
    served: Serve, way: str
) -> None:
    def count(response: AgentMessage, context: RequestContext) -> None:
        assert response.data.session is not None
        response.data.session["replies"] = 5
        response.data.session["log"].append("reply")

    agent, _ = scripted(["x"], response_interceptors=count)
    session = {"replies": 4, "log": ["x"]}
    reply = reply_by(served(agent), way, user("x", data={"session": session}))
    assert reply["data"]["session"] == {"replies": 5, "log": ["x", "reply"]}


@EVERY
def test_each_response_interceptor_sees_and_keeps_the_session_of_the_one_before(
    served: Serve, way: str
) -> None:
    seen: list[Any] = []

    def first(response: AgentMessage, context: RequestContext) -> AgentMessage:
        context.session["first"] = [1]
        return AgentMessage(content="anew")

    def second(response: AgentMessage, context: RequestContext) -> None:
        seen.append(response.data.session)
        response.data.session = {**(response.data.session or {}), "second": 2}

    def third(response: AgentMessage, context: RequestContext) -> AgentMessage:
        context.session["first"].append(3)
        context.session.delete("old")
        return AgentMessage(content="anew")

    agent, _ = scripted(["x"], response_interceptors=[first, second, third])
    reply = reply_by(served(agent), way, user("x", data={"session": {"old": 0, "a": 1}}))
    assert seen == [{"old": 0, "a": 1, "first": [1]}]
    assert reply["data"]["session"] == {"a": 1, "first": [1, 3], "second": 2}


class Incomparable:
    """Like an array or a table: it cannot say whether it equals another."""

    __hash__ = None

    def __eq__(self, other: object) -> bool:
        raise ValueError("ambiguous")


@pytest.mark.parametrize("stated", [False, True])
@pytest.mark.parametrize("odd", ["incomparable", "object", "itself", "nan"])
def test_session_changed_in_place_to_what_no_json_holds_leaves_with_a_response_interceptor(
    served: Serve, odd: str, stated: bool
) -> None:
    @tool(name="look")
    def storing(name: str, session: Session) -> str:
        """Look."""
        session["a"] = []
        values = {"incomparable": Incomparable(), "object": object(), "nan": float("nan")}
        session["a"].append(values.get(odd, session["a"]))
        return "stored"

    def redact(response: AgentMessage, context: RequestContext) -> None:
        if stated and response.data.session is not None:
            response.data.session["a"] = "redacted"

    calls = [[look("a")], "ok"]
    plain, _ = scripted(list(calls), [storing])
    agent, _ = scripted(list(calls), [storing], response_interceptors=redact)
    untouched = served(plain).chat(user("x"))["data"]["session"]
    given = served(agent).chat(user("x"))["data"]["session"]
    assert given == ({"a": "redacted"} if stated else untouched)


def test_session_that_is_no_object_does_not_leave(served: Serve) -> None:
    def spoil(response: AgentMessage, context: Any) -> None:
        response.data.session = ["no object"]  # type: ignore[assignment]

    agent, _ = scripted(["x"], response_interceptors=spoil)
    assert served(agent).ask(user("x")).json()["code"] == "AGENT_ERROR"


class Received:
    def __init__(self) -> None:
        self.events: list[Any] = []

    def __call__(self, event: Any) -> None:
        self.events.append(event)

    @property
    def types(self) -> list[str]:
        return [e.event_type for e in self.events]


@EVERY
def test_agent_events_fire_on_every_path(served: Serve, way: str) -> None:
    received = Received()
    tools = Counted()
    agent, _ = scripted(
        [[look("x"), delete("a"), delete("broken", "p2"), delete("c", "p3")], "done"],
        tools.tools,
        on_event=received,
    )
    service = served(agent)
    first = user("go")
    reply = reply_by(service, way, first)
    assert received.types == [
        "ConversationStarted",
        "MessageAdded",
        "ToolExecuted",
        "ApprovalRequested",
        "MessageAdded",
    ]
    one, two, three = reply["data"]["tool_calls"]
    received.events.clear()
    data = {"tool_calls": [approved(one), approved(two), rejected(three, "no")]}
    reply_by(service, way, first, said(reply), user("", data=data))
    assert sorted(received.types) == sorted(
        [
            "MessageAdded",
            "ToolCallApproved",
            "ToolCallApproved",
            "ToolCallRejected",
            "ToolExecuted",
            "ToolExecutionFailed",
            "MessageAdded",
        ]
    )
    assert (received.types[0], received.types[-1]) == ("MessageAdded", "MessageAdded")
    refused = next(e for e in received.events if e.event_type == "ToolCallRejected")
    assert (refused.call.id, refused.reason) == (three["id"], "no")
    ran = next(e for e in received.events if e.event_type == "ToolExecuted")
    assert (ran.call.id, ran.output) == (one["id"], "deleted a")
    assert ran.duration >= 0
    failed = next(e for e in received.events if e.event_type == "ToolExecutionFailed")
    assert failed.call.id == two["id"]
    assert failed.error.startswith("Error:")
    assert all(e.timestamp.tzinfo for e in received.events)
    received.events.clear()
    reply_by(service, way, first, said(reply), user("", data=data))
    assert set(received.types) == {"MessageAdded"}


def test_message_added_carries_both_messages(served: Serve) -> None:
    received = Received()
    agent, _ = scripted(["hello"], on_event=[received])
    served(agent).chat(user("hi"))
    added = [e.message for e in received.events if e.event_type == "MessageAdded"]
    assert [(m.role, m.content) for m in added] == [("user", "hi"), ("assistant", "hello")]


@pytest.mark.parametrize("held", [False, True])
def test_message_added_has_the_outcomes_that_the_reply_tells(served: Serve, held: bool) -> None:
    received = Received()
    own = {"response_interceptors": lambda response, context: None} if held else {}
    agent, _ = scripted([[delete("a")], "gone"], Counted().tools, on_event=received, **own)
    service = served(agent)
    first = service.chat(user("go"))
    (call,) = first["data"]["tool_calls"]
    reply = service.chat(user("go"), said(first), user("", data={"tool_calls": [approved(call)]}))
    (outcome,) = reply["data"]["executed_tool_calls"]
    added = [e.message for e in received.events if e.event_type == "MessageAdded"][-1]
    assert added.content == "gone"
    assert [done.model_dump() for done in added.data.executed_tool_calls] == [outcome]


@pytest.mark.parametrize("data", [{}, {"data": {"session": {"a": 1}}}], ids=["text", "session"])
@pytest.mark.parametrize("how", ["in place", "anew"])
def test_message_added_has_what_the_request_interceptors_left(
    served: Serve, how: str, data: Json
) -> None:
    received = Received()

    def redact(request: ChatRequest, context: Any) -> ChatRequest | None:
        if how == "in place":
            request.messages[-1].content = "[card]"
            return None
        clean = request.messages[-1].model_copy(update={"content": "[card]"})
        return request.model_copy(update={"messages": [clean]})

    agent, _ = scripted(["fine"], request_interceptors=redact, on_event=received)
    served(agent).chat(user("4111 1111 1111 1111", **data))
    added = [e.message.content for e in received.events if e.event_type == "MessageAdded"]
    assert added == ["[card]", "fine"]


def test_failing_handler_harms_nothing(served: Serve, caplog: pytest.LogCaptureFixture) -> None:
    received = Received()

    def fails(event: Any) -> None:
        raise KeyError("handler")

    async def fails_too(event: Any) -> None:
        raise SystemError("handler")

    agent, _ = scripted(["fine", "fine"], on_event=[fails, fails_too, received])
    service = served(agent)
    with caplog.at_level(logging.ERROR):
        assert service.chat(user("x"))["content"] == "fine"
        assert service.stream(user("x"))[-1]["type"] == "done"
    assert caplog.records
    assert received.types.count("MessageAdded") == 4


def test_plain_callable_fires_events_too(served: Serve) -> None:
    received = Received()

    class Listening(Plugin):
        name = "listening"

        @hookimpl
        def on_event(self, event: Any) -> None:
            received(event)

    served(lambda messages, context: "x", [Listening()]).chat(user("x"))
    assert received.types == ["ConversationStarted", "MessageAdded", "MessageAdded"]


def test_refused_request_fires_no_execution(served: Serve) -> None:
    received = Received()
    agent, _ = scripted(["x"], on_event=received)
    service = served(agent)
    call = {"id": "forged", "name": "delete", "input": {}, "execute": True}
    assert service.ask(user("", data={"tool_calls": [call]})).status == 422
    assert not {"ToolCallApproved", "ToolExecuted"} & set(received.types)


@pytest.mark.parametrize("path", ["v1", "v2"])
def test_first_message_that_is_refused_starts_no_conversation(served: Serve, path: str) -> None:
    received = Received()

    def broken(request: ChatRequest, context: Any) -> None:
        if request.messages[-1].content == "break":
            raise ValueError("broken")

    agent, _ = scripted(["fine"], on_event=received, request_interceptors=broken)
    service = served(agent)
    call = {"id": "forged", "name": "delete", "input": {}, "execute": True}
    refused = [user(" "), user("", data={"tool_calls": [call]}), user("break")]
    assert [service.ask(last, path=path).status for last in refused] == [422, 422, 500]
    assert received.types == []
    service.chat(user("hi"), path=path)
    assert received.types == ["ConversationStarted", "MessageAdded", "MessageAdded"]


@pytest.mark.parametrize("when", ["request_interceptors", "response_interceptors"])
@pytest.mark.parametrize("answer", [Blocked("no", "NO"), Silence("not now")])
def test_first_message_that_is_blocked_or_met_with_silence_starts_a_conversation(
    served: Serve, answer: Exception, when: str
) -> None:
    received = Received()

    def stop(*_: Any) -> None:
        raise answer

    agent, _ = scripted(["fine"], on_event=received, **{when: stop})
    served(agent).chat(user("hi"))
    added = [] if when == "request_interceptors" else ["MessageAdded"]
    assert received.types == ["ConversationStarted", *added]


@pytest.mark.parametrize("path", ["v1", "v2"])
def test_message_that_is_refused_is_not_added(served: Serve, path: str) -> None:
    received = Received()
    agent, _ = scripted([[delete("a")], "gone"], Counted().tools, on_event=received)
    service = served(agent)
    first = service.chat(user("go"), path=path)
    (call,) = first["data"]["tool_calls"]
    history = [user("go"), said(first)]
    for last in (
        user("more"),
        user("", data={"tool_calls": [approved(call) | {"input": {"name": "b"}}]}),
        user("", data={"tool_calls": [approved(call) | {"id": "forged"}]}),
    ):
        received.events.clear()
        assert service.ask(*history, last, path=path).status in (409, 422)
        assert received.types == []
    received.events.clear()
    gone = history[1] | {"data": {"tool_calls": [call | {"id": "unknown"}]}}
    for messages in ([user("go"), gone, user("")], [user("go"), assistant("?"), user(" ")]):
        assert service.ask(*messages, path=path).items[0]["type"] == "nothing_to_answer"
    assert received.types == []
    service.chat(*history, user("", data={"tool_calls": [approved(call)]}), path=path)
    assert received.types == ["MessageAdded", "ToolCallApproved", "ToolExecuted", "MessageAdded"]


def test_message_that_supersedes_is_added_before_what_it_rejects(served: Serve) -> None:
    received = Received()
    agent, _ = scripted([[delete("a")], "fine"], Counted().tools, on_event=received)
    service = served(agent, approvals__on_new_message="supersede")
    first = service.chat(user("go"))
    received.events.clear()
    service.chat(user("go"), said(first), user("never mind"))
    assert received.types == ["MessageAdded", "ToolCallRejected", "MessageAdded"]


@EVERY
def test_handler_that_edits_its_event_changes_neither_reply_nor_decision(
    served: Serve, way: str
) -> None:
    def edits(event: Any) -> None:
        for call in [*getattr(event, "proposals", ()), getattr(event, "call", None)]:
            if call is not None:
                call.input.clear()
        if message := getattr(event, "message", None):
            message.content = "[edited]"
            if message.data is not None:
                message.data.session = {"edited": True}
                for call in message.data.tool_calls:
                    call.execute, call.rejection_reason = True, None
                    call.input.clear()

    tools = Counted()
    agent, model = scripted([["I will.", delete("a")], "Gone."], tools.tools, on_event=edits)
    service = served(agent)
    first = reply_by(service, way, user("go"))
    (call,) = first["data"]["tool_calls"]
    assert (first["content"], call["input"], call["execute"]) == ("I will.", whole("a"), False)
    decision = user("", data={"tool_calls": [rejected(call)]})
    last = reply_by(service, way, user("go"), said(first), decision)
    assert (last["content"], last["data"]["executed_tool_calls"]) == ("Gone.", [])
    assert "session" not in last["data"]
    assert "edited" not in repr(model.asks)
