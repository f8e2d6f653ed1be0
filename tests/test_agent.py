from __future__ import annotations

from typing import Any

import pytest

from assent import ConfigError, RequestContext, Session, create_app
from assent.testing import served, user


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
