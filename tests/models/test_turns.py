"""Whole turns against the providers' wire formats: the data sent again when a turn resumes."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from providers import BODY_MARK, SECRET, AnthropicServer, OpenAIServer, chunk, status, stream

from sayso import Agent, tool
from sayso.models import load_model
from sayso.testing import Service, served

RAN: list[str] = []


@tool
def look(name: str) -> str:
    """Look at a pod."""
    return f"{name} is up"


@tool(requires_approval=True)
def delete(name: str) -> str:
    """Delete a pod."""
    RAN.append(name)
    return f"deleted {name}"


@pytest.fixture(autouse=True)
def _nothing_ran() -> None:
    RAN.clear()


def agent_of(server: AnthropicServer | OpenAIServer, model: str = "", **options: Any) -> Agent:
    provider = "anthropic:claude-sonnet-5-5" if isinstance(server, AnthropicServer) else "openai:m"
    loaded = load_model(model or provider, {**server.settings(), "retries": 0})
    return Agent(name="kube", model=loaded, tools=[look, delete], **options)


def user(content: str = "", **data: Any) -> dict[str, Any]:
    return {"role": "user", "content": content, "data": data}


ANSWER = {"role": "assistant", "content": "Hello."}


def proposed(service: Service, text: str = "delete a") -> dict[str, Any]:
    reply = service.chat(user(text))
    assert isinstance(reply, dict)
    return reply


def approve(reply: dict[str, Any], content: str = "") -> dict[str, Any]:
    calls = [{**call, "execute": True} for call in reply["data"]["tool_calls"]]
    return user(content, tool_calls=calls)


def test_a_resumed_turn_sends_the_providers_own_blocks_again(
    anthropic_server: AnthropicServer,
) -> None:
    server = anthropic_server
    server.then(
        stream(server.message("Looking.", [("toolu_1", "look", '{"name": "a"}')], thinking="hm")),
        stream(server.message("Deleting.", [("toolu_2", "delete", '{"name": "a"}')])),
        stream(server.message("Gone.")),
    )
    with served(agent_of(server, system_prompt="Be careful.")) as service:
        reply = proposed(service)
        assert RAN == [] and reply["content"] == "Looking.\n\nDeleting."
        final = service.chat(user("delete a"), reply, approve(reply))
    assert RAN == ["a"]
    assert final["content"] == "Gone."
    assert final["data"]["executed_tool_calls"][0]["output"] == "deleted a"
    sent = server.requests[2].body["messages"]
    assert [m["role"] for m in sent] == ["user", "assistant", "user", "assistant", "user"]
    assert [b["type"] for b in sent[1]["content"]] == ["thinking", "text", "tool_use"]
    assert sent[2]["content"][0]["tool_use_id"] == "toolu_1"
    assert sent[3]["content"][-1]["id"] == "toolu_2"
    result = sent[4]["content"][0]
    assert (result["type"], result["tool_use_id"]) == ("tool_result", "toolu_2")
    assert server.refusals == []


def test_thinking_is_left_out_when_the_context_has_changed(
    anthropic_server: AnthropicServer,
) -> None:
    server = anthropic_server
    server.then(
        stream(server.message(calls=[("toolu_1", "delete", '{"name": "a"}')], thinking="hm")),
        stream(server.message("Gone.")),
    )
    turns = iter(["first", "second"])
    agent = agent_of(server, system_context=lambda context: next(turns))
    with served(agent) as service:
        reply = proposed(service)
        service.chat(user("delete a"), reply, approve(reply))
    sent = server.requests[1].body["messages"]
    assert [b["type"] for b in sent[1]["content"]] == ["tool_use"]
    assert server.refusals == []


def test_thinking_is_left_out_when_the_model_is_another(
    anthropic_server: AnthropicServer, tmp_path: Path
) -> None:
    """Current models refuse thinking that another has signed."""
    server = anthropic_server
    server.then(
        stream(server.message(calls=[("toolu_1", "delete", '{"name": "a"}')], thinking="hm")),
        stream(server.message("Gone.")),
    )
    config = f'[approvals]\nledger = "sqlite:///{tmp_path}/ledger.db"\n'
    with served(agent_of(server), config=config) as service:
        reply = proposed(service)
    agent = agent_of(server, model="anthropic:claude-opus-5-5")
    with served(agent, config=config) as service:
        service.chat(user("delete a"), reply, approve(reply))
    sent = server.requests[1].body["messages"]
    assert [b["type"] for b in sent[1]["content"]] == ["tool_use"]
    assert server.refusals == []


@pytest.mark.parametrize("before", [[], [user("Hello!"), ANSWER], [ANSWER]])
def test_thinking_is_left_out_when_the_messages_before_it_have_changed(
    anthropic_server: AnthropicServer, before: list[dict[str, Any]]
) -> None:
    """Current models refuse thinking, and everything after it, if the messages before it have
    changed."""
    server = anthropic_server
    delete_of = [
        stream(server.message(calls=[(f"toolu_{n}", "delete", '{"name": "a"}')], thinking="hm"))
        for n in range(2)
    ]
    server.then(*delete_of, stream(server.message("Gone.")), stream(server.message("Gone.")))
    history = [user("hello"), ANSWER, user("delete a")]
    with served(agent_of(server)) as service:
        first = service.chat(*history)
        deciding = [first, approve(first)]
        second = service.chat(*history, *deciding)
        deciding += [second, approve(second)]
        service.chat(*history, *deciding)
        service.chat(*before, *deciding[:-1], approve(second, "and?"))
    assert server.refusals == []
    thinking = [
        [b["type"] for m in r.body["messages"] for b in m["content"]].count("thinking")
        for r in server.requests
    ]
    assert thinking == [0, 1, 2, 0]


def test_thinking_is_left_out_when_a_secret_in_it_was_masked(
    anthropic_server: AnthropicServer,
) -> None:
    """Current models refuse altered thinking."""
    server = anthropic_server
    call = ("toolu_1", "delete", '{"name": "a"}')
    server.then(
        stream(server.message(calls=[call], thinking="The token is pass-word-1.")),
        stream(server.message("Gone.")),
    )
    asking = user("delete a; the token is pass-word-1")
    context = {"platform_context": {"platform_token": "pass-word-1"}}
    with served(agent_of(server)) as service:
        reply = service.chat({**asking, **context})
        service.chat({**asking, **context}, reply, approve(reply))
    sent = server.requests[1].body["messages"]
    assert [b["type"] for b in sent[1]["content"]] == ["tool_use"]


@pytest.mark.parametrize(
    "secret", ["pass-word-1", "text", "type", "reasoning", "tool_calls", "content", "call_", "data"]
)
def test_reasoning_with_a_secret_goes_back_masked_and_in_the_form_in_which_it_came(
    openai_server: OpenAIServer, tmp_path: Path, secret: str
) -> None:
    """Providers refuse a message with a field that they do not know, and some also one without."""
    server = openai_server
    signature = {"google": {"thought_signature": "c2lnbmF0dXJl"}}
    detail = {"type": "reasoning.text", "text": f"<{secret}>", "format": "google-gemini-v1"}
    coded = {"type": "reasoning.encrypted", "data": "b25l", "id": "call_2", "format": "unknown"}
    first, second = ("call_1", "look", '{"name": "a"}'), ("call_2", "delete", '{"name": "a"}')
    reasoned = chunk({"reasoning_details": [detail, coded]})
    server.then(
        stream(server.message(calls=[first], thinking=f"<{secret}>")),
        stream(
            [
                reasoned,
                *server.message(f"<{secret}>", [second], thinking=f"<{secret}>", extra=signature),
            ]
        ),
        stream(server.message("Gone.")),
    )
    config = f'[approvals]\nledger = "sqlite:///{tmp_path}/ledger.db"\n'
    asking = {**user("delete a"), "platform_context": {"platform_token": secret}}
    with served(agent_of(server), config=config) as service:
        reply = service.chat(asking)
    stored = b"".join(f.read_bytes() for f in tmp_path.glob("*.db*") if f.is_file())
    assert b"<[secret]>" in stored and f"<{secret}>".encode() not in stored
    with served(agent_of(server), config=config) as service:
        deciding = {**approve(reply), "platform_context": asking["platform_context"]}
        last = service.chat(asking, reply, deciding)
        assert service.chat(asking, reply, deciding) == last
    assert (RAN, last["content"], server.refusals) == (["a"], "Gone.", [])
    _, looking, up, deleting, gone = server.requests[2].body["messages"]
    (looked,), (deleted,) = looking.pop("tool_calls"), deleting.pop("tool_calls")
    assert (up["tool_call_id"], up["content"]) == (looked["id"], "a is up")
    assert (gone["tool_call_id"], gone["content"]) == (deleted["id"], "deleted a")
    assert looking == {"role": "assistant", "content": None, "reasoning_content": "<[secret]>"}
    assert deleting == {
        "role": "assistant",
        "content": "<[secret]>",
        "reasoning_content": "<[secret]>",
        "reasoning_details": [{**detail, "text": "<[secret]>"}, {**coded, "id": deleted["id"]}],
    }
    assert deleted["extra_content"] == signature


def test_a_resumed_turn_survives_a_restart(
    anthropic_server: AnthropicServer, tmp_path: Path
) -> None:
    server = anthropic_server
    server.then(
        stream(server.message(calls=[("toolu_1", "delete", '{"name": "a"}')], thinking="hm")),
        stream(server.message("Gone.")),
    )
    config = f'[approvals]\nledger = "sqlite:///{tmp_path}/ledger.db"\n'
    with served(agent_of(server), config=config) as service:
        reply = proposed(service)
    with served(agent_of(server), config=config) as service:
        final = service.chat(user("delete a"), reply, approve(reply))
        again = service.chat(user("delete a"), reply, approve(reply))
    assert final == again and RAN == ["a"]
    assert len(server.requests) == 2
    assert [b["type"] for b in server.requests[1].body["messages"][1]["content"]] == [
        "thinking",
        "tool_use",
    ]


def test_reasoning_goes_back_where_the_text_of_its_message_stands_before_the_call(
    openai_server: OpenAIServer,
) -> None:
    """A client that cuts the history and keeps only the texts of replies."""
    server = openai_server
    call = ("c1", "delete", '{"name": "a"}')
    server.then(stream(server.message("I delete it.", [call], thinking="The pod a.")))
    server.then(stream(server.message("Gone.")))
    with served(agent_of(server)) as service:
        reply = service.chat(user("hello"), ANSWER, user("delete a"))
        service.chat(user("delete a"), {**ANSWER, "content": reply["content"]}, approve(reply))
    (asking,) = [m for m in server.requests[1].body["messages"] if m.get("tool_calls")]
    assert asking["reasoning_content"] == "The pod a."
    assert RAN == ["a"]
    assert server.refusals == []


@pytest.mark.parametrize("kind", ["anthropic", "openai"])
def test_a_broken_message_runs_no_tool_and_shows_no_key(
    kind: str, anthropic_server: AnthropicServer, openai_server: OpenAIServer
) -> None:
    server = anthropic_server if kind == "anthropic" else openai_server
    whole = server.message(calls=[("toolu_1", "look", '{"name": "a"}')])
    server.then(stream(whole[:-2], "reset"), status(500), status(429, retry_after="7"))
    with served(agent_of(server)) as service:
        for expected in ((502, "MODEL_ERROR"), (502, "MODEL_ERROR"), (503, "MODEL_OVERLOADED")):
            answer = service.post("/api/chat", {"messages": [user("look at a")]})
            assert (answer.status, answer.json()["code"]) == expected
            assert SECRET not in answer.text and BODY_MARK not in answer.text
        assert answer.headers["retry-after"] == "7"


@pytest.mark.parametrize("kind", ["anthropic", "openai"])
def test_tools_of_a_cut_off_message_are_not_run(
    kind: str, anthropic_server: AnthropicServer, openai_server: OpenAIServer
) -> None:
    server = anthropic_server if kind == "anthropic" else openai_server
    server.then(
        stream(server.message("So", [("toolu_1", "delete", '{"name": "a"}')], stop="max_tokens"))
    )
    with served(agent_of(server)) as service:
        events = service.stream(user("delete a"))
        assert events[-1]["stop_reason"] == "max_tokens"
        assert not any(e["type"] == "tool_calls" for e in events)


@pytest.mark.parametrize("resumed_by", ["openai:m", "openai:n"])
def test_reasoning_goes_back_to_its_own_model_after_the_context_changed(
    openai_server: OpenAIServer, tmp_path: Path, resumed_by: str
) -> None:
    server = openai_server
    signature = {"google": {"thought_signature": "c2lnbmF0dXJl"}}
    call = ("c1", "delete", '{"name": "a"}')
    server.then(stream(server.message(calls=[call], thinking="The pod a.", extra=signature)))
    server.then(stream(server.message("Gone.")))
    config = f'[approvals]\nledger = "sqlite:///{tmp_path}/ledger.db"\n'
    clock = iter(["It is noon.", "It is one."])
    reported = {"system_context": lambda context: next(clock)}
    with served(agent_of(server, **reported), config=config) as service:
        reply = proposed(service)
    with served(agent_of(server, resumed_by, **reported), config=config) as service:
        said = {k: reply[k] for k in ("role", "content", "data")}
        last = service.chat(user("delete a"), said, approve(reply))
    assert last["content"] == "Gone."
    system, _, asking, result = server.requests[1].body["messages"]
    assert "one" in system["content"]
    assert result["content"] == "deleted a"
    same = resumed_by == "openai:m"
    assert asking.get("reasoning_content") == ("The pod a." if same else None)
    assert asking["tool_calls"][0].get("extra_content") == (signature if same else None)
