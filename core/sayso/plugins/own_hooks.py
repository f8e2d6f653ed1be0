"""An agent's own interceptors and event handlers, as one more plugin."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, cast

from sayso.agent import Agent
from sayso.context import RequestContext
from sayso.hookspecs import hookimpl
from sayso.plugins import Plugin
from sayso.plugins.discovery import AGENT
from sayso.wire.messages import AgentMessage, ChatRequest

if TYPE_CHECKING:
    from sayso.hosting import Host
    from sayso.workers.code import UserCode


def agent_plugin(agent: Agent) -> Plugin | None:
    """The agent's own interceptors and handlers as one more plugin; None without any."""
    # One implementation each, so that the next one sees the turn's result of the previous one, and
    # a handler that hangs does not keep others from running.
    hooks = {
        f"{hook.__name__}_{place:04}": hook(function)
        for hook, functions in (
            (intercept_request, agent.request_interceptors),
            (intercept_response, agent.response_interceptors),
            (on_event, agent.on_event),
        )
        for place, function in enumerate(functions)
    }
    if not hooks:
        return None
    made = type("AgentPlugin", (Plugin,), {"name": AGENT, **hooks})
    plugin: Plugin = made()
    return plugin


async def _kept(host: Host, interceptor: Callable[..., Any], *args: Any) -> Any:
    # Its context variables, such as the id of a trace, are set for the tools, too.
    return await cast("UserCode", host.code).keep_set(interceptor, *args)


def intercept_request(interceptor: Callable[..., Any]) -> Callable[..., Any]:
    """The hook that calls this request interceptor."""

    @hookimpl(specname="intercept_request")
    async def hook(self: Plugin, request: ChatRequest, context: RequestContext, host: Host) -> Any:
        return await _kept(host, interceptor, request, context)

    return hook


def intercept_response(interceptor: Callable[..., Any]) -> Callable[..., Any]:
    """The hook that calls this response interceptor."""

    @hookimpl(specname="intercept_response")
    async def hook(
        self: Plugin, response: AgentMessage, context: RequestContext, host: Host
    ) -> Any:
        return await _kept(host, interceptor, response, context)

    return hook


def on_event(handler: Callable[..., Any]) -> Callable[..., Any]:
    """The hook that calls this event handler."""

    @hookimpl(specname="on_event")
    async def hook(self: Plugin, event: Any, host: Host) -> None:
        await host.code.call(handler, event)

    return hook
