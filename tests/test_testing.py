"""`sayso.testing`: the service, the conversation, and checks that find errors."""

from __future__ import annotations

import asyncio
import subprocess
import sys
import urllib.request
from collections.abc import AsyncIterator, Callable, Mapping
from pathlib import Path
from typing import Any

import pytest

from sayso import (
    Agent,
    Ask,
    Call,
    ConfigError,
    LocalShell,
    ModelError,
    PluginError,
    Reply,
    Text,
    TextDelta,
    Turn,
    tool,
)
from sayso.testing import MODEL_CHECKS, Served, Service, scripted, served, user
from sayso_demo.offline import Offline


def named(checks: Any) -> Mapping[str, Callable[..., Any]]:
    return {check.__name__: check for check in checks}


@pytest.mark.parametrize("check", named(MODEL_CHECKS).values(), ids=named(MODEL_CHECKS))
def test_offline_model_conforms(check: Callable[..., Any]) -> None:
    asyncio.run(check(Offline))


class Sound:
    """A model that answers each ask with `events`, a list or a function of the ask."""

    provider = "sound"
    name = ""

    def __init__(self, *events: Any) -> None:
        self.events = events

    async def stream(self, ask: Ask) -> AsyncIterator[Any]:
        for event in self.events:
            yield event


def said(*blocks: Any, stop: Any = "end_turn") -> Reply:
    return Reply(Turn("assistant", blocks), stop)


HELLO = (TextDelta("hello"), said(Text("hello")))


class Nameless(Sound):
    provider = ""


class Closed(Sound):
    """Answers nothing more after a stream was closed early."""

    left = False

    async def stream(self, ask: Ask) -> AsyncIterator[Any]:
        if self.left:
            return
        try:
            for event in self.events:
                yield event
        except GeneratorExit:
            self.left = True
            raise


class OfOneLoop(Sound):
    """Belongs to the loop that asked first."""

    loop: Any = None

    async def stream(self, ask: Ask) -> AsyncIterator[Any]:
        self.loop = self.loop or asyncio.get_running_loop()
        if self.loop is not asyncio.get_running_loop():
            raise RuntimeError("another loop")
        for event in self.events:
            yield event


def called(*calls: Call) -> Sound:
    return Sound(said(*calls, stop="tool_use"))


UNSOUND: dict[str, Callable[[], Any]] = {
    "it_has_a_provider_and_a_name": lambda: Nameless(*HELLO),
    "a_call_ends_with_one_reply": lambda: Sound(TextDelta("hello")),
    "a_reply_survives_the_ledger": lambda: called(Call("1", "look_up", {"article": object()})),
    "calls_are_of_offered_tools": lambda: called(Call("1", "delete", {})),
    "without_tools_there_are_no_calls": lambda: called(Call("1", "look_up", {})),
    "results_are_taken": lambda: called(*[Call("1", "look_up", {})] * 2),
    "a_schema_is_kept_to": lambda: Sound(*HELLO),
    "a_call_can_be_left": lambda: Closed(*HELLO),
    "one_model_serves_several_loops": lambda: OfOneLoop(*HELLO),
}


@pytest.mark.parametrize("name", named(MODEL_CHECKS))
def test_each_check_finds_a_model_that_is_not_sound(name: str) -> None:
    unsound = UNSOUND[name]()
    with pytest.raises((AssertionError, TypeError, ValueError, RuntimeError)):
        asyncio.run(named(MODEL_CHECKS)[name](lambda: unsound))


@pytest.mark.parametrize(
    "events",
    [
        (*HELLO, TextDelta("late")),
        (*HELLO, said(Text("again"))),
        (TextDelta("one"), said(Text("two"))),
        (said(Text(" ")),),
    ],
)
def test_replies_that_are_not_sound_are_found(events: Any) -> None:
    check = named(MODEL_CHECKS)["a_call_ends_with_one_reply"]
    with pytest.raises(AssertionError):
        asyncio.run(check(lambda: Sound(*events)))


def test_model_without_structured_replies_may_say_so() -> None:
    class Plain(Sound):
        async def stream(self, ask: Ask) -> AsyncIterator[Any]:
            raise ModelError("bad_request", "no schema here")
            yield

    asyncio.run(named(MODEL_CHECKS)["a_schema_is_kept_to"](Plain))


def test_script_is_followed_and_its_end_is_an_error(sayso_served: Served) -> None:
    model = scripted("one", lambda ask: f"{len(ask.turns)} turns", ModelError("server", "away"))
    service = sayso_served(Agent(model=model))
    talk = service.conversation()
    assert talk.say("a")["content"] == "one"
    assert talk.say("b")["content"] == "3 turns"
    assert service.ask("c").status == 502
    assert service.ask("d").json()["code"] == "MODEL_ERROR"
    assert [len(ask.turns) for ask in model.asks] == [1, 3, 1, 1]


def test_conversation_decides_some_or_all(sayso_served: Served, tmp_path: Path) -> None:
    @tool(requires_approval=True)
    def delete(name: str) -> str:
        return f"deleted {name}"

    calls = [Call(name, "delete", {"name": name}) for name in "ab"]
    command = Call("c", "suggest_commands", {"commands": [{"command": "echo done"}]})
    agent = Agent(
        model=scripted(calls, "two", [command], "three"),
        tools=[delete],
        commands=LocalShell(workdir=tmp_path),
    )
    talk = sayso_served(agent).conversation()
    talk.say("delete a and b")
    first, second = talk.pending
    talk.approve(first["id"])
    assert [call["id"] for call in talk.pending] == [second["id"]]
    reply = talk.reject("keep it", second["id"])
    assert (reply["content"], talk.pending) == ("two", [])
    talk.say("now a command")
    assert [waiting["command"] for waiting in talk.pending_commands] == ["echo done"]
    (ran,) = talk.approve()["data"]["executed_cmds"]
    assert ran["output"].strip() == "done"


def test_anything_may_call_the_url(sayso_served: Served) -> None:
    service: Service = sayso_served(Agent(model=scripted()))
    with urllib.request.urlopen(f"{service.url}/health") as answer:
        assert answer.read() == b'{"status":"ok"}'
    assert service.post("/api/chat", b"{", {"X-Own": "1"}).status == 422


def test_environment_and_working_folder_are_not_read(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("SAYSO_PLUGINS", "nowhere")
    monkeypatch.chdir(tmp_path)
    (tmp_path / "sayso.toml").write_text('plugins = ["nowhere"]')
    with served(Agent(model=scripted("hi"))) as service:
        assert service.chat("hello")["content"] == "hi"
    assert [path.name for path in tmp_path.iterdir()] == ["sayso.toml"]


def test_failed_start_is_raised_as_it_is() -> None:
    with pytest.raises(PluginError, match="'nowhere' .* is not installed"):
        with served(Agent(model=scripted()), config='plugins = ["nowhere"]'):
            pass
    with pytest.raises(ConfigError, match="there is no agent"):
        with served():
            pass


def test_streaming_turn_ends_with_the_block(sayso_served: Served) -> None:
    started = asyncio.Event()

    async def never(ask: Ask) -> str:
        started.set()
        await asyncio.sleep(600)
        return ""

    service = sayso_served(Agent(model=scripted(never)))
    request = urllib.request.Request(
        f"{service.url}/api/chat-stream",
        b'{"messages": [{"role": "user", "content": "hello"}]}',
        {"Content-Type": "application/json"},
    )
    with urllib.request.urlopen(request) as answer:
        sayso_served.close()
        assert b'"type":"error"' in answer.read()


@pytest.mark.slow
def test_fixture_is_found_by_pytest_and_costs_little(tmp_path: Path) -> None:
    (tmp_path / "test_it.py").write_text(
        "import sys\n"
        "def test_light():\n"
        "    assert not {'fastapi', 'pydantic', 'sayso.testing'} & set(sys.modules)\n"
        "def test_served(sayso_served):\n"
        "    assert sayso_served(lambda messages, context: 'hi').chat('x')['content'] == 'hi'\n"
    )
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-W", "error", "."]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "2 passed" in done.stdout


def test_user_makes_a_message() -> None:
    assert user("hi", data={}) == {"role": "user", "content": "hi", "data": {}}


def test_conversation_goes_on_after_a_message_that_was_refused() -> None:
    @tool(requires_approval=True)
    def delete(name: str) -> str:
        """Delete a thing."""
        return f"deleted {name}"

    model = scripted([Call("1", "delete", {"name": "a"})], "It is gone.")
    with served(Agent(model=model, tools=[delete])) as service:
        talk = service.conversation(user("hello"), {"role": "assistant", "content": "Hello."})
        assert talk.pending == []
        talk.say("delete a")
        before = list(talk.messages)
        with pytest.raises(AssertionError, match="409"):
            talk.say("and now?")
        assert talk.messages == before
        assert talk.approve()["content"] == "It is gone."
        assert service.conversation(user("hello")).pending_commands == []


def test_conversation_edits_the_input_that_it_approves(sayso_served: Served) -> None:
    @tool(requires_approval=True, editable=True)
    def scale(name: str, replicas: int) -> str:
        """Scale a service."""
        return f"{name} has {replicas}"

    calls = [Call("1", "scale", {"name": "web", "replicas": 0})]
    talk = sayso_served(Agent(model=scripted(calls, "done"), tools=[scale])).conversation()
    talk.say("stop web")
    talk.approve(input={"name": "web", "replicas": 2})
    (ran,) = talk.executed
    assert ran["output"] == "web has 2"


def test_conversation_refuses_an_edit_of_several_calls(sayso_served: Served) -> None:
    @tool(requires_approval=True, editable=True)
    def delete(name: str) -> str:
        """Delete a thing."""
        return f"deleted {name}"

    calls = [Call(name, "delete", {"name": name}) for name in "ab"]
    talk = sayso_served(Agent(model=scripted(calls), tools=[delete])).conversation()
    talk.say("delete a and b")
    with pytest.raises(AssertionError, match="2 are meant"):
        talk.approve(input={"name": "c"})


def test_conversation_sends_its_token_and_its_headers(sayso_served: Served) -> None:
    config = '[auth]\nscheme = "bearer"\ntokens = { ann = "s3cret" }\n'

    def who(messages: Any, context: Any) -> str:
        return str(context.principal)

    service = sayso_served(who, config=config)
    assert service.conversation(token="s3cret").say("who am I?")["content"] == "ann"
    headers = {"Authorization": "Bearer s3cret"}
    assert service.conversation(headers=headers).say("who am I?")["content"] == "ann"
    with pytest.raises(AssertionError, match="401"):
        service.conversation(token="wrong").say("who am I?")


def test_conversation_has_the_outputs_of_its_commands(sayso_served: Served, tmp_path: Path) -> None:
    command = Call("c", "suggest_commands", {"commands": [{"command": "echo done"}]})
    agent = Agent(model=scripted([command], "three"), commands=LocalShell(workdir=tmp_path))
    talk = sayso_served(agent).conversation()
    talk.say("now a command")
    talk.approve()
    assert [ran["output"].strip() for ran in talk.executed_commands] == ["done"]
    assert talk.executed == []
