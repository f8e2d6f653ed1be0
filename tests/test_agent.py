from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import pytest

from sayso import (
    Agent,
    ConfigError,
    LocalShell,
    RequestContext,
    Session,
    SourceHost,
    Tool,
    create_app,
)
from sayso.testing import served, user


class Source:
    """A source with tools that are known once it is open, and others later."""

    def __init__(self, *tools: Tool) -> None:
        self.known: Sequence[Tool] = tools

    async def open(self, host: SourceHost, changed: Callable[[], None]) -> None:
        self.changed = changed
        changed()

    def tools(self) -> Sequence[Tool]:
        return self.known

    async def close(self) -> None:
        pass

    def list(self, *tools: Tool) -> None:
        """Have these tools from now on."""
        self.known = tools
        self.changed()


def with_defaults(messages: Any, context: Any = None, session: Any = None) -> str:
    return f"{type(context).__name__} {type(session).__name__}"


def with_a_default_context(messages: Any, context: Any = None) -> str:
    return type(context).__name__


def with_an_option(messages: Any, context: Any, limit: int = 5) -> str:
    return f"{type(context).__name__} {limit}"


def of_messages(messages: Any, limit: int = 5) -> str:
    return f"{limit}"


@pytest.mark.parametrize(
    ("agent", "given"),
    [
        (with_defaults, f"{RequestContext.__name__} {Session.__name__}"),
        (with_a_default_context, RequestContext.__name__),
        (with_an_option, f"{RequestContext.__name__} 5"),
        (of_messages, "5"),
    ],
)
def test_callable_gets_what_its_parameters_are_named_for(agent: Any, given: str) -> None:
    with served(agent) as service:
        assert service.chat(user("it"))["content"] == given


def test_callable_that_takes_the_session_in_place_of_the_context_is_refused() -> None:
    def agent(messages: Any, session: Any) -> str:
        return "never"

    with pytest.raises(ConfigError, match=r"write \(messages, context, session\)"):
        create_app(agent)


def greeting(origin: str, ran: list[str], *, name: str = "greet") -> Tool:
    def greet(who: str) -> str:
        ran.append(origin)
        return f"{origin} greets {who}"

    return Tool(greet, name=name, description="Greets.", requires_approval=True)


def test_name_of_a_tool_stays_with_the_source_that_had_it_first() -> None:
    ran: list[str] = []
    one, other = Source(greeting("one", ran)), Source(greeting("other", ran))
    with served(Agent(model="offline", tools=[one, other])) as service:
        (call,) = service.chat(user('greet who="ann"'))["data"]["tool_calls"]
        one.list()
        decided = user(data={"tool_calls": [{**call, "execute": True}]})
        refused = service.ask(decided)
        assert (refused.status, refused.json()["detail"][0]["type"]) == (
            422,
            "approval_tool_changed",
        )
        one.list(greeting("one", ran))
        (executed,) = service.chat(decided)["data"]["executed_tool_calls"]
        assert (executed["output"], ran) == ("one greets ann", ["one"])


def test_source_has_no_tool_of_the_name_that_is_saysos_own() -> None:
    own = Source(greeting("other", [], name="suggest_commands"))
    agent = Agent(model="offline", tools=[own], commands=LocalShell())
    with served(agent):
        assert [definition.name for definition in agent.definitions] == ["suggest_commands"]
        assert not agent.tools
