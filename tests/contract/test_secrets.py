"""No secret of the platform context leaves or is stored (design, sections 6 and 8)."""

from __future__ import annotations

import base64
import json
import logging
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from agents import Counted, delete, scripted, suggest
from serving import Json, Serve, approved, said, user

from sayso import Call, IntermittentUpdate, LocalShell, RequestContext, Session, Silence, tool

TOKEN = "tok-SECRET-0123456789"
KUBE = base64.b64encode(b"apiVersion: v1 KUBE-SECRET").decode()
AWS = "aws-SECRET-key"
PLATFORM = {
    "user_id": "u1",
    "tenant_name": "red",
    "platform_token": TOKEN,
    "kubeconfig": KUBE,
    "aws_credentials": {"access_key_id": "AKIASECRET", "nested": {"secret": AWS}},
}
LINES = "first-half-of-a-key\nsecond-half-of-a-key"
SECRETS = [TOKEN, KUBE, AWS, "AKIASECRET"]


def clean(*texts: Any) -> None:
    for text in texts:
        raw = text if isinstance(text, str) else json.dumps(text, default=repr)
        for secret in SECRETS:
            assert secret not in raw


def ask(content: str = "go", **rest: Any) -> Json:
    return user(content, platform_context=PLATFORM, **rest)


def reveal(context: RequestContext) -> str:
    token = context.platform.platform_token
    assert token is not None
    return token.get_secret_value()


@pytest.mark.parametrize("store", ["memory", "sqlite"])
def test_secret_is_in_no_reply_log_event_or_file(
    served: Serve, caplog: pytest.LogCaptureFixture, tmp_path: Path, store: str
) -> None:
    received: list[Any] = []
    url = "memory://" if store == "memory" else f"sqlite:///{tmp_path}/ledger.db"

    @tool(requires_approval=True)
    def leak(what: str, context: RequestContext) -> str:
        """Leak."""
        if what == "raise":
            raise ValueError(f"denied for {reveal(context)}")
        return f"token {reveal(context)}"

    @tool
    def open_leak(context: RequestContext) -> str:
        """Leak at once."""
        return f"token {reveal(context)}"

    agent, model = scripted(
        [
            [
                Call("o", "open_leak", {}),
                Call("1", "leak", {"what": "return"}),
                Call("2", "leak", {"what": "raise"}),
            ],
            "finished",
        ],
        [leak, open_leak],
        on_event=lambda event: received.append(event),
    )
    service = served(agent, approvals__ledger=url, server__log_level="debug")
    with caplog.at_level(logging.DEBUG):
        reply = service.chat(ask())
        data = {"tool_calls": [approved(c) for c in reply["data"]["tool_calls"]]}
        messages = [ask(), said(reply), ask("", data=data)]
        got = service.chat(*messages)
        again = service.ask(*messages, stream=True)
    outputs = [e["output"] for e in got["data"]["executed_tool_calls"]]
    assert outputs[0].startswith("token ")
    assert outputs[1].startswith("Error:")
    for each in (reply["data"], got["content"], outputs, again.raw.decode()):
        clean(each)
    clean([repr(event) for event in received], [repr(ask_) for ask_ in model.asks])
    for file in tmp_path.rglob("*"):
        if file.is_file():
            raw = file.read_bytes()
            assert not any(secret.encode() in raw for secret in SECRETS), file
    assert (tmp_path / "ledger.db").exists() == (store == "sqlite")


def test_log_of_a_failed_tool_shows_no_secret(
    served: Serve, caplog: pytest.LogCaptureFixture
) -> None:
    @tool
    def leak(context: RequestContext) -> str:
        """Leak."""
        raise ValueError(f"denied for {reveal(context)}")

    agent, _ = scripted([[Call("o", "leak", {})], "I see."], [leak])
    service = served(agent)
    with caplog.at_level(logging.DEBUG):
        assert service.chat(ask())["content"] == "I see."
    clean(caplog.text)


def test_log_of_a_failed_agent_shows_no_secret(
    served: Serve, caplog: pytest.LogCaptureFixture
) -> None:
    def agent(messages: Any, context: RequestContext) -> str:
        raise ValueError(f"denied for {reveal(context)}")

    service = served(agent)
    with caplog.at_level(logging.DEBUG):
        assert service.ask(ask()).status == 500
    clean(caplog.text)


def test_log_of_a_failed_event_handler_shows_no_secret(
    served: Serve, caplog: pytest.LogCaptureFixture
) -> None:
    def handler(event: Any) -> None:
        platform = getattr(getattr(event, "message", None), "platform_context", None)
        if platform is not None:
            raise ValueError(f"POST /audit?token={platform.platform_token.get_secret_value()}")

    agent, _ = scripted(["I see."], on_event=handler)
    with caplog.at_level(logging.DEBUG):
        assert served(agent).chat(ask())["content"] == "I see."
    assert "on_event failed" in caplog.text and "/audit?token=" in caplog.text
    clean(caplog.text)


def test_log_of_why_an_agent_is_silent_shows_no_secret(
    served: Serve, caplog: pytest.LogCaptureFixture
) -> None:
    def agent(messages: Any, context: RequestContext) -> str:
        raise Silence(f"nothing to say of {reveal(context)}")

    with caplog.at_level(logging.DEBUG):
        assert served(agent).chat(ask())["content"] == ""
    assert "nothing to say of" in caplog.text
    clean(caplog.text)


def test_debug_answer_shows_no_secret(served: Serve) -> None:
    def agent(messages: Any, context: RequestContext) -> str:
        raise ValueError(f"denied for {reveal(context)}")

    answer = served(agent, server__debug=True).ask(ask())
    assert "ValueError" in answer.raw.decode()
    clean(answer.raw.decode())


def test_secret_in_the_session_is_the_same_when_sent_again(served: Serve) -> None:
    @tool(requires_approval=True, name="delete")
    def keep(name: str, context: RequestContext, session: Session) -> str:
        """Keep."""
        session["note"] = f"used {reveal(context)}"
        return "ok"

    agent, _ = scripted([[delete("a")], "done"], [keep])
    service = served(agent)
    reply = service.chat(ask())
    data = {"tool_calls": [approved(reply["data"]["tool_calls"][0])]}
    messages = [ask(), said(reply), ask("", data=data)]
    assert service.chat(*messages) == service.chat(*messages)


def test_proposal_whose_input_holds_a_secret_is_refused(served: Serve) -> None:
    tools = Counted()
    agent, model = scripted([[delete(f"x{TOKEN}y")], "I see."], tools.tools)
    reply = served(agent).chat(ask())
    assert reply["data"]["tool_calls"] == []
    assert reply["content"] == "I see."
    assert model.asks[-1].turns[-1].blocks[0].is_error


def test_suggested_command_with_a_secret_is_refused(served: Serve, tmp_path: Path) -> None:
    agent, _ = scripted(
        [[suggest(f"curl -H {TOKEN}")], "I see."], commands=LocalShell(workdir=tmp_path)
    )
    assert served(agent).chat(ask())["data"]["cmds"] == []


def test_request_context_echo_is_masked(served: Serve) -> None:
    agent, _ = scripted(lambda ask_: "ok")
    service = served(agent)
    clean(service.chat(ask(), note=f"my {TOKEN}"))
    clean(service.stream(ask(), note={"deep": [KUBE]}))


def test_status_lines_are_masked(served: Serve) -> None:
    @tool
    def look(context: RequestContext) -> str:
        """Look."""
        context.update(f"with {reveal(context)}", {"keys": [KUBE]})
        return "seen"

    def generator(messages: Any, context: RequestContext) -> Any:
        yield IntermittentUpdate(f"with {reveal(context)}", {"keys": [KUBE]})
        yield "seen"

    agent, _ = scripted([[Call("1", "look", {})], "seen"], [look])
    for service in (served(agent), served(generator)):
        events = service.stream(ask())
        line = [e for e in events if e["type"] == "intermittent_update"][-1]
        assert (line["text"], line["content"]) == ("with [secret]", {"keys": ["[secret]"]})
        clean(events)


@dataclass
class Login:
    key: str


def endless(key: str) -> list[Any]:
    made: list[Any] = [key]
    made.append(made)
    return made


@pytest.mark.parametrize(
    "made",
    [
        Login,
        str.encode,
        lambda key: {key},
        lambda key: {("of", 1): [Login(key)]},
        lambda key: {1: key},
        lambda key: (each for each in [key]),
        lambda key: endless(key),
    ],
)
def test_what_becomes_text_only_on_its_way_out_is_masked(
    served: Serve, made: Callable[[str], Any]
) -> None:
    @tool
    def look(context: RequestContext, session: Session) -> str:
        """Look."""
        context.update("looking", {"with": made(reveal(context))})
        session["seen"] = []
        session["seen"].append(made(reveal(context)))
        return "seen"

    agent, _ = scripted([[Call("1", "look", {})], "seen"], [look])
    events = served(agent).stream(ask())
    line = [e for e in events if e["type"] == "intermittent_update"][-1]
    for shown in (line["content"]["with"], events[-1]["session"]["seen"]):
        assert "[secret]" in json.dumps(shown)
    clean(events)


def test_command_output_is_masked(served: Serve, tmp_path: Path) -> None:
    shell = LocalShell(workdir=tmp_path, env=lambda context: {"TOKEN": reveal(context)})
    agent, model = scripted([[suggest("echo $TOKEN")], "ran"], commands=shell)
    service = served(agent)
    reply = service.chat(ask())
    data = {"cmds": [approved(reply["data"]["cmds"][0])]}
    got = service.chat(ask(), said(reply), ask("", data=data))
    (done,) = got["data"]["executed_cmds"]
    assert done["output"].strip()
    clean(done["output"], [repr(a) for a in model.asks])


def test_no_half_of_a_secret_stands_where_an_output_or_an_error_is_cut(served: Serve) -> None:
    @tool
    def long(what: str, context: RequestContext) -> str:
        """Leak where it is cut."""
        if what == "raise":
            raise ValueError("-" * 489 + reveal(context))
        if what == "lines":
            raise ValueError(LINES)
        return "-" * 989 + reveal(context) + "-" * 99

    calls = [Call(what, "long", {"what": what}) for what in ("return", "raise", "lines")]
    agent, model = scripted([calls, "finished"], [long])
    service = served(agent, limits__tool_output=1000)
    service.chat(user("go", platform_context={**PLATFORM, "aws_credentials": {"key": LINES}}))
    reported = repr(model.asks)
    assert "[cut: the first 1000 of" in reported
    assert not [half for half in (TOKEN[:8], *LINES.split()) if half in reported]


def test_no_half_of_a_secret_stands_where_the_output_of_a_command_is_cut(
    served: Serve, tmp_path: Path
) -> None:
    # Of 2000 bytes the shell keeps the first and the last 1000.
    script = 'printf "%0990d$TOKEN"; head -c 9000 /dev/zero; printf "$TOKEN%0990d"'
    shell = LocalShell(
        workdir=tmp_path, max_output=2000, env=lambda context: {"TOKEN": reveal(context)}
    )
    agent, _ = scripted([[suggest(script)], "ran"], commands=shell)
    service = served(agent)
    reply = service.chat(ask())
    data = {"cmds": [approved(reply["data"]["cmds"][0])]}
    got = service.chat(ask(), said(reply), ask("", data=data))
    (done,) = got["data"]["executed_cmds"]
    assert "bytes of output cut" in done["output"]
    assert not [part for part in (TOKEN[:8], TOKEN[-8:]) if part in done["output"]]


CONFIG = {
    "yaml": "users:\n- name: me\n  user:\n    token: eyJ-KUBE-TOKEN\n"
    "    client-key-data: LS0tLS1CRUdJTg==\n",
    "json": '{"users": [{"user": {"token": "eyJ-KUBE-TOKEN", '
    '"client-key-data":"LS0tLS1CRUdJTg=="}}]}',
}


@pytest.mark.parametrize("form", ["yaml", "json"])
@pytest.mark.parametrize("script", ["cat $KUBECONFIG", "grep -o eyJ[A-Z-]* $KUBECONFIG"])
def test_what_a_command_reads_in_its_kubeconfig_is_masked(
    served: Serve, tmp_path: Path, form: str, script: str
) -> None:
    agent, model = scripted([[suggest(script)], "ran"], commands=LocalShell(workdir=tmp_path))
    service = served(agent)
    platform = {"kubeconfig": base64.b64encode(CONFIG[form].encode()).decode()}
    reply = service.chat(user("go", platform_context=platform))
    data = {"cmds": [approved(reply["data"]["cmds"][0])]}
    deciding = user("", data=data, platform_context=platform)
    got = service.chat(user("go", platform_context=platform), said(reply), deciding)
    (done,) = got["data"]["executed_cmds"]
    assert "[secret]" in done["output"]
    reported = done["output"] + repr(model.asks)
    assert "KUBE-TOKEN" not in reported and "LS0tLS1CRUdJTg" not in reported


def test_failing_agent_logs_no_secret(served: Serve, caplog: pytest.LogCaptureFixture) -> None:
    def agent(messages: Any, context: Any) -> str:
        raise RuntimeError(f"cannot use {messages!r} {context!r}")

    service = served(agent)
    with caplog.at_level(logging.DEBUG):
        answer = service.ask(ask())
        service.stream(ask())
    assert answer.status == 500
    clean(answer.raw.decode(), caplog.text)


@pytest.mark.parametrize("path", ["v1", "v2"])
def test_validation_error_repeats_no_credential(served: Serve, path: str) -> None:
    service = served(lambda messages, context: "ok")
    for wrong in (
        {**PLATFORM, "user_id": {"x": TOKEN}},
        {**PLATFORM, "aws_credentials": [AWS]},
        {**PLATFORM, "kubeconfig": [KUBE]},
        {**PLATFORM, "tenant_name": [TOKEN]},
    ):
        answer = service.ask(user("x", platform_context=wrong), path=path)
        assert answer.status == 422
        clean(answer.raw.decode())


def test_extra_platform_field_shows_in_no_repr(served: Serve) -> None:
    seen: list[str] = []

    def agent(messages: Any, context: Any) -> str:
        seen.append(repr(messages) + repr(context) + str(messages[0].platform_context))
        return "ok"

    message = user("x", platform_context={**PLATFORM, "gcp_key": "GCP-SECRET-key"})
    served(agent).chat(message)
    clean(seen[0])
    assert "GCP-SECRET" not in seen[0]


def test_dump_of_a_message_shows_no_secret(served: Serve) -> None:
    seen: list[str] = []

    def agent(messages: Any, context: Any) -> str:
        seen.append(messages[0].model_dump_json())
        seen.append(json.dumps(messages[0].model_dump(mode="json")))
        return "ok"

    served(agent).chat(ask())
    assert seen
    clean(*seen)


def test_interceptors_messages_keep_their_platform_context(served: Serve) -> None:
    seen: list[str] = []

    def look_on(request: Any, context: RequestContext) -> None:
        seen.append(reveal(context))

    agent, _ = scripted(["ok"], request_interceptors=look_on)
    served(agent).chat(ask())
    assert seen == [TOKEN]


def test_newest_context_wins_field_by_field(served: Serve) -> None:
    seen: list[Any] = []

    def agent(messages: Any, context: RequestContext) -> str:
        seen.append((context.platform.user_id, context.platform.tenant_name, reveal(context)))
        return "ok"

    served(agent).chat(
        ask("a"),
        user("b", platform_context={"tenant_name": "middle"}),
        user("c", platform_context={"user_id": "u9"}),
    )
    assert seen == [("u9", "red", TOKEN)]
