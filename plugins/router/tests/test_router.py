"""Channel routing over real sockets (interface.md, rule 6; design, section 8)."""

from __future__ import annotations

import asyncio
import json
import logging
import threading
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from websockets.sync.client import connect

from sayso import Agent, Ask, Call, Config, Message, PluginError, Text, Turn, install_line, tool
from sayso.testing import Served, Service, scripted, served, user
from sayso_router import Decision, Router
from sayso_router.model import ModelRouter, model_for, transcript

YES = {"should_respond": True, "reasoning": "asked"}
NO = {"should_respond": False, "reasoning": "not asked"}
CHANNEL = "team-chat"


def silent(messages: Sequence[Message]) -> dict[str, Any]:
    return NO


def answering(text: str = "here I am") -> Agent:
    """An agent that answers every call with `text`."""
    return Agent(name="kube", model=scripted(*[text] * 20))


def asked(service: Service, source: str = CHANNEL) -> str:
    reply = service.chat("is anybody there?", source=source)
    content: str = reply["content"]
    return content


class TestSilence:
    def test_synchronous_reply_is_a_full_message_with_empty_content(
        self, sayso_served: Served
    ) -> None:
        service = sayso_served(answering(), channel_router=silent)
        body = {"messages": [user("hello")], "source": CHANNEL}
        for path in ("/api/chat", "/api/sendMessage"):
            answer = service.post(path, body)
            assert answer.status == 200
            reply = answer.json()
            assert (reply["role"], reply["content"]) == ("assistant", "")
            assert not any(value for value in reply["data"].values())
            assert "meta_data" in reply

    def test_streams_are_one_done_event(self, sayso_served: Served) -> None:
        service = sayso_served(answering(), channel_router=silent)
        body = {"messages": [user("hello")], "source": CHANNEL}
        for path in ("/api/chat-stream", "/api/sendMessageStream"):
            (event,) = service.post(path, body).events
            assert (event["type"], event["stop_reason"]) == ("done", "silent")

    def test_websocket_stays_open_for_the_next_turn(self, sayso_served: Served) -> None:
        service = sayso_served(answering(), channel_router=silent)
        frame = {"messages": [user("hello")], "source": CHANNEL}
        url = f"ws://127.0.0.1:{service.port}/api/chat-ws"
        with connect(url, open_timeout=60) as socket:
            for _ in range(2):
                socket.send(json.dumps(frame))
                event = json.loads(socket.recv(timeout=60))
                assert (event["type"], event["stop_reason"]) == ("done", "silent")

    def test_agent_is_not_asked(self, sayso_served: Served) -> None:
        model = scripted("never")
        service = sayso_served(Agent(model=model), channel_router=silent)
        assert asked(service) == ""
        assert model.asks == []


class TestSources:
    def test_other_sources_skip_the_router(self, sayso_served: Served) -> None:
        calls: list[Any] = []

        def route(messages: Sequence[Message]) -> Any:
            calls.append(messages)
            return NO

        service = sayso_served(answering(), channel_router=route)
        assert service.chat("hello")["content"] == "here I am"
        assert asked(service, "help-desk") == "here I am"
        assert asked(service, "Team-Chat") == "here I am"
        assert calls == []

    def test_configured_sources_take_the_place_of_the_default(self, sayso_served: Served) -> None:
        config = '[plugin.router]\nsources = ["lobby", "kitchen"]\n'
        service = sayso_served(answering(), config=config, channel_router=silent)
        assert asked(service, "lobby") == asked(service, "kitchen") == ""
        assert asked(service) == "here I am"

    def test_message_with_a_decision_is_always_answered(self, sayso_served: Served) -> None:
        ran: list[str] = []

        @tool(requires_approval=True)
        def delete(name: str) -> str:
            ran.append(name)
            return "deleted"

        model = scripted([Call("1", "delete", {"name": "a"})], "It is gone.")
        verdicts = iter([YES, NO])
        agent = Agent(model=model, tools=[delete])
        service = sayso_served(agent, channel_router=lambda messages: next(verdicts))
        talk = service.conversation(source=CHANNEL)
        talk.say("delete a")
        assert talk.approve()["content"] == "It is gone."
        assert ran == ["a"]


class Method:
    def should_agent_respond(self, messages: Sequence[Message]) -> Decision:
        return Decision(False, "as a method")


class AsyncMethod:
    async def should_agent_respond(self, messages: Sequence[Message]) -> Any:
        await asyncio.sleep(0)
        return SimpleNamespace(should_respond=False, reasoning="later")


async def later(messages: Sequence[Message]) -> Any:
    await asyncio.sleep(0)
    return NO


class TestCustomRouters:
    @pytest.mark.parametrize(
        "router", [silent, later, Method(), AsyncMethod(), lambda messages: Decision(False)]
    )
    def test_function_or_object_plain_or_async(self, sayso_served: Served, router: Any) -> None:
        assert asked(sayso_served(answering(), channel_router=router)) == ""

    def test_it_gets_the_messages_with_their_names(self, sayso_served: Served) -> None:
        got: list[Any] = []

        def route(messages: Sequence[Message]) -> Any:
            got.extend(messages)
            return YES

        service = sayso_served(answering(), channel_router=route)
        said = user("hi", user={"name": "Ann", "id": "u1"})
        assert service.chat(said, source=CHANNEL)["content"] == "here I am"
        (message,) = got
        assert isinstance(message, Message)
        assert message.user is not None
        assert (message.content, message.user.name) == ("hi", "Ann")

    def test_named_in_the_configuration_relative_to_it(self, tmp_path: Path) -> None:
        (tmp_path / "quiet_router.py").write_text(
            "def route(messages):\n    return {'should_respond': False, 'reasoning': ''}\n"
        )
        file = tmp_path / "sayso.toml"
        file.write_text('[plugin.router]\nrouter = "quiet_router.py:route"\n')
        with served(answering(), config=file) as service:
            assert asked(service) == ""

    @pytest.mark.parametrize("is_async", [False, True])
    def test_blocking_router_does_not_stall_the_service(
        self, sayso_served: Served, is_async: bool
    ) -> None:
        entered, release = threading.Event(), threading.Event()

        def plain(messages: Sequence[Message]) -> Any:
            entered.set()
            release.wait(120)
            return YES

        async def blocking_its_loop(messages: Sequence[Message]) -> Any:
            return plain(messages)

        route = blocking_its_loop if is_async else plain
        service = sayso_served(answering(), channel_router=route)
        thread = threading.Thread(target=asked, args=(service,))
        thread.start()
        assert entered.wait(60)
        assert service.get("/health").json() == {"status": "ok"}
        assert asked(service, "help-desk") == "here I am"
        assert thread.is_alive()
        release.set()
        thread.join(60)
        assert not thread.is_alive()


def failing(messages: Sequence[Message]) -> Any:
    raise OSError("the directory is away")


def wrong(value: Any) -> Callable[[Sequence[Message]], Any]:
    return lambda messages: value


async def hanging(messages: Sequence[Message]) -> Any:
    await asyncio.sleep(600)


RELEASED = threading.Event()


def blocking(messages: Sequence[Message]) -> Any:
    """Block until the test is over."""
    RELEASED.wait(120)
    return YES


@pytest.fixture
def released(sayso_served: Served) -> Iterator[None]:
    # Set up after the services, so that it runs before their end.
    RELEASED.clear()
    yield
    RELEASED.set()


class TestFailures:
    @pytest.mark.usefixtures("released")
    @pytest.mark.parametrize("policy", ["respond", "silent"])
    @pytest.mark.parametrize(
        "router",
        [
            failing,
            hanging,
            blocking,
            wrong(None),
            wrong(True),
            wrong({}),
            wrong({"should_respond": "false"}),
            wrong(SimpleNamespace(should_respond=None, reasoning="")),
        ],
        ids=["raises", "hangs", "blocks", "none", "bool", "empty", "text", "null"],
    )
    def test_policy_says_what_happens(
        self,
        sayso_served: Served,
        caplog: pytest.LogCaptureFixture,
        router: Any,
        policy: str,
    ) -> None:
        slow = router in (hanging, blocking)
        # A router that fails at once must not be taken for a slow one.
        timeout = "300ms" if slow else "60s"
        config = f'[plugin.router]\non_error = "{policy}"\ntimeout = "{timeout}"\n'
        service = sayso_served(answering(), config=config, channel_router=router)
        with caplog.at_level(logging.WARNING, "sayso.router"):
            assert asked(service) == ("here I am" if policy == "respond" else "")
        (record,) = [r for r in caplog.records if r.name == "sayso.router"]
        assert ("took longer than 0.3 seconds" in record.getMessage()) is slow
        assert f"on_error = '{policy}'" in record.getMessage()

    def test_log_of_a_failed_router_shows_no_secret(
        self, sayso_served: Served, caplog: pytest.LogCaptureFixture
    ) -> None:
        def calling(messages: Sequence[Message]) -> Any:
            stated = messages[-1].platform_context
            assert stated is not None and stated.platform_token is not None
            raise ValueError(f"refused: {stated.platform_token.get_secret_value()}")

        service = sayso_served(answering(), channel_router=calling)
        with caplog.at_level(logging.DEBUG):
            message = user("hello", platform_context={"platform_token": "tok-SECRET-12345"})
            assert service.chat(message, source=CHANNEL)["content"] == "here I am"
        assert "ValueError: refused: [secret]" in caplog.text
        assert "tok-SECRET" not in caplog.text

    @pytest.mark.parametrize("responds", [True, False])
    def test_log_of_a_decision_shows_no_secret_in_its_reasoning(
        self, sayso_served: Served, caplog: pytest.LogCaptureFixture, responds: bool
    ) -> None:
        def telling(messages: Sequence[Message]) -> Any:
            stated = messages[-1].platform_context
            assert stated is not None and stated.platform_token is not None
            token = stated.platform_token.get_secret_value()
            return {"should_respond": responds, "reasoning": f"sent with {token}"}

        service = sayso_served(answering(), channel_router=telling)
        with caplog.at_level(logging.DEBUG):
            message = user("hello", platform_context={"platform_token": "tok-SECRET-12345"})
            service.chat(message, source=CHANNEL)
        assert f"should_respond {responds}: sent with [secret]" in caplog.text
        assert "tok-SECRET" not in caplog.text

    def test_log_says_that_the_decision_is_no_boolean(
        self, sayso_served: Served, caplog: pytest.LogCaptureFixture
    ) -> None:
        service = sayso_served(answering(), channel_router=wrong({"should_respond": "false"}))
        with caplog.at_level(logging.WARNING, "sayso.router"):
            assert asked(service) == "here I am"
        assert "reasoning; it returned should_respond as str" in caplog.text

    def test_failure_answers_by_default(self, sayso_served: Served) -> None:
        assert asked(sayso_served(answering(), channel_router=failing)) == "here I am"


class TestStart:
    def refusal(self, config: str = "", **options: Any) -> str:
        with pytest.raises(PluginError) as caught, served(answering(), config=config, **options):
            pass
        return str(caught.value)

    def test_what_is_no_router_says_what_one_is(self) -> None:
        assert "must be a function (messages)" in self.refusal(channel_router=5)

    def test_class_in_place_of_an_instance(self) -> None:
        assert "give an instance of it: Method()" in self.refusal(channel_router=Method)

    def test_function_without_the_messages(self) -> None:
        assert "cannot be called with (messages)" in self.refusal(channel_router=lambda: None)

    def test_name_that_leads_nowhere(self) -> None:
        message = self.refusal('[plugin.router]\nrouter = "nowhere_at_all:route"\n')
        assert "plugin 'router': the router 'nowhere_at_all:route' cannot be loaded" in message

    def test_model_that_does_not_exist(self) -> None:
        message = self.refusal('[plugin.router]\nmodel = "oracle:large"\n')
        assert "plugin 'router': there is no model provider 'oracle'" in message

    def test_model_without_credentials(self, monkeypatch: pytest.MonkeyPatch) -> None:
        for name in ("ANTHROPIC_API_KEY", "ANTHROPIC_AUTH_TOKEN", "OPENAI_API_KEY"):
            monkeypatch.delenv(name, raising=False)
        message = self.refusal('[plugin.router]\nmodel = "openai:small"\n')
        assert message.startswith("plugin 'router': ")

    @pytest.mark.parametrize("line", ['on_error = "maybe"', "timeout = 0", 'timout = "1s"'])
    def test_wrong_settings(self, line: str) -> None:
        with pytest.raises((PluginError, ValueError)) as caught:
            with served(answering(), config=f"[plugin.router]\n{line}\n"):
                pass
        assert f"plugin.router.{line.split(' ')[0]}" in str(caught.value)

    def test_router_without_the_plugin_says_what_to_install(
        self, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr("sayso.plugins.discover", dict)
        message = self.refusal(channel_router=silent)
        assert "'router'" in message
        assert install_line("sayso[router]") in message

    def test_installed_router_is_not_active_by_itself(self, sayso_served: Served) -> None:
        assert "router" not in sayso_served(answering()).host.plugins.names


class TestBuiltIn:
    def ask(self, answer: Any, *messages: Message) -> tuple[Ask, Decision]:
        model = scripted(answer)
        model.provider = "scripted"

        @tool
        def list_pods(namespace: str) -> str:
            """List the pods of a namespace."""
            return ""

        agent = Agent(name="kube", description="Looks after a cluster", tools=[list_pods])
        decision = asyncio.run(ModelRouter(model, agent).decide(messages))
        return model.asks[0], decision

    def test_model_gets_names_agent_and_schema_and_no_tool_to_call(self) -> None:
        conversation = [
            Message.model_validate(m)
            for m in (
                user("who is on call?", user={"name": "Ann", "id": "1"}),
                {"role": "assistant", "content": "Bob", "agent": {"name": "rota", "id": "2"}},
                {"role": "assistant", "content": "I am here"},
                user("thanks\nkube: I delete it", user={"name": "", "id": "u7"}),
                user("and now?"),
            )
        ]
        ask, decision = self.ask(json.dumps(NO), *conversation)
        assert decision == Decision(False, "not asked")
        assert "Agent: kube\nDescription: Looks after a cluster\nTool: list_pods" in ask.system
        assert ask.schema is not None and set(ask.schema["required"]) == set(NO)
        assert not ask.tools
        assert transcript(conversation, "kube") == (
            "Ann: who is on call?\nrota: Bob\nkube: I am here\n"
            "u7: thanks kube: I delete it\nUser: and now?"
        )
        assert ask.turns == (Turn("user", (Text(transcript(conversation, "kube")),)),)

    def test_words_and_a_fence_around_the_answer_are_left_out(self) -> None:
        answer = 'Sure:\n```json\n{"should_respond": false, "reasoning": "thanks"}\n```'
        _, decision = self.ask(answer, Message(role="user", content="hi"))
        assert decision == Decision(False, "thanks")

    @pytest.mark.parametrize("answer", ["no JSON", "[]", '{"reasoning": "x"}', "null", "} {"])
    def test_answer_that_is_no_decision_is_an_error(self, answer: str) -> None:
        with pytest.raises(ValueError):
            self.ask(answer, Message(role="user", content="hi"))

    @pytest.mark.parametrize(
        ("said", "answered"),
        [
            ("kube, are you there", True),
            ("what is the time?", True),
            ("list the pods of staging", True),
            ("@ann lunch at noon", False),
            ("lunch was good", False),
        ],
    )
    def test_offline_model_decides_by_rules(
        self, sayso_served: Served, said: str, answered: bool
    ) -> None:
        @tool
        def list_pods(namespace: str) -> str:
            """List the pods of a namespace."""
            return "none"

        agent = Agent(name="kube", model="offline", tools=[list_pods])
        service = sayso_served(agent, config="[plugin.router]\n")
        reply = service.chat(user(said, user={"name": "Ann", "id": "1"}), source=CHANNEL)
        assert bool(reply["content"]) is answered

    def test_own_model_setting(self, sayso_served: Served) -> None:
        agent = answering()
        service = sayso_served(agent, config='[plugin.router]\nmodel = "offline"\n')
        assert service.chat("lunch was good", source=CHANNEL)["content"] == ""
        assert agent.model.asks == []  # type: ignore[union-attr]

    def test_fast_model_of_the_provider_is_the_default(
        self, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        def host(provider: str) -> Any:
            model = SimpleNamespace(provider=provider, name="own")
            return SimpleNamespace(
                model=model,
                agent=SimpleNamespace(model=f"{provider}:own"),
                config=Config(),
            )

        monkeypatch.setenv("ANTHROPIC_API_KEY", "none")
        own = host("acme")
        assert model_for(own, None) is own.model
        assert model_for(own, "offline").provider == "offline"
        fast = model_for(host("anthropic"), None)
        assert (fast.provider, fast.name) == ("anthropic", "claude-haiku-5-5")

    def test_model_made_in_code_decides_itself(
        self, monkeypatch: pytest.MonkeyPatch, sayso_served: Served
    ) -> None:
        """Its gateway and its key are its own: no other model may get the conversation."""
        for name in ("ANTHROPIC_API_KEY", "ANTHROPIC_AUTH_TOKEN"):
            monkeypatch.delenv(name, raising=False)
        own = scripted('{"should_respond": false, "reasoning": "small talk"}')
        own.provider = "anthropic"
        service = sayso_served(Agent(name="kube", model=own), config="[plugin.router]\n")
        assert service.chat("lunch was good", source=CHANNEL)["content"] == ""
        assert len(own.asks) == 1


def test_settings_state_the_defaults_of_the_design() -> None:
    settings = Router.Settings()
    assert (settings.sources, settings.on_error) == (["team-chat"], "respond")
