"""Routers made by users: a function, or an object with the decision function."""

from __future__ import annotations

import inspect
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, Protocol

from sayso import Message
from sayso_router.decisions import Decision, decision_of


class ChannelRouter(Protocol):
    """A router as an object; a function `(messages)` with the same result is accepted, too."""

    def should_agent_respond(self, messages: Sequence[Message], /) -> Any | Awaitable[Any]:
        """An object or dict with `should_respond` (bool) and `reasoning` (str), or an awaitable
        of one."""
        ...


class CustomRouter:
    """Asks a user's router, plain or async, away from the service's own loops."""

    def __init__(self, given: object, code: Any) -> None:
        self._function = _function(given)
        self._code = code

    async def decide(self, messages: Sequence[Message]) -> Decision:
        """The router's decision; its exception is passed on, ValueError for a wrong answer."""
        return decision_of(await self._code.call(self._function, list(messages)))


def _function(given: object) -> Callable[..., Any]:
    if isinstance(given, type):
        raise TypeError(
            f"the channel router is the class {given.__name__!r}; give an instance of it: "
            f"{given.__name__}()"
        )
    function = getattr(given, "should_agent_respond", given)
    if callable(function):
        _check_arguments(function)
        return function
    raise TypeError(
        "the channel router must be a function (messages), or have a method "
        f"should_agent_respond(messages); it is {type(given).__name__}"
    )


def _check_arguments(function: Callable[..., Any]) -> None:
    try:
        signature = inspect.signature(function)
    except (TypeError, ValueError):
        return  # some built-in functions have no signature
    try:
        signature.bind("messages")
    except TypeError as error:
        raise TypeError(f"the channel router cannot be called with (messages): {error}") from None
