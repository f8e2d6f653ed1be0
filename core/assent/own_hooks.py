"""An agent's own interceptors and event handlers, as one more plugin."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from assent.agent import Agent, RequestContext
from assent.discovery import AGENT
from assent.hookspecs import hookimpl
from assent.messages import AgentMessage, ChatRequest
from assent.plugins import Plugin

if TYPE_CHECKING:
    from assent.host import Host


def agent_plugin(agent: Agent) -> Plugin | None:
    """The agent's own interceptors and handlers as one more plugin; None without any."""
    hooks: dict[str, Callable[..., Any]] = {}
    if agent.request_interceptors:
        hooks["intercept_request"] = _request_hook(agent)
    if agent.response_interceptors:
        hooks["intercept_response"] = _response_hook(agent)
    for place, handler in enumerate(agent.on_event):
        # One implementation each: one that hangs keeps nothing from the others.
        hooks[f"on_event_{place:04}"] = _event_hook(handler)
    if not hooks:
        return None
    made = type("AgentPlugin", (Plugin,), {"name": AGENT, **hooks})
    plugin: Plugin = made()
    return plugin


def _request_hook(agent: Agent) -> Callable[..., Any]:
    @hookimpl
    async def intercept_request(
        self: Plugin, request: ChatRequest, context: RequestContext, host: Host
    ) -> Any:
        for interceptor in agent.request_interceptors:
            given = await host.code.call(interceptor, request, context)
            if isinstance(given, ChatRequest):
                request = given
            elif given is not None:
                return given  # the answer, or what the turn refuses
        return request

    return intercept_request


def _response_hook(agent: Agent) -> Callable[..., Any]:
    @hookimpl
    async def intercept_response(
        self: Plugin, response: AgentMessage, context: RequestContext, host: Host
    ) -> Any:
        for interceptor in agent.response_interceptors:
            given = await host.code.call(interceptor, response, context)
            if isinstance(given, str):
                response.content = given
            elif isinstance(given, AgentMessage):
                response = given
            elif given is not None:
                return given  # what the turn refuses
        return response

    return intercept_response


def _event_hook(handler: Callable[..., Any]) -> Callable[..., Any]:
    @hookimpl(specname="on_event")
    async def on_event(self: Plugin, event: Any, host: Host) -> None:
        await host.code.call(handler, event)

    return on_event
