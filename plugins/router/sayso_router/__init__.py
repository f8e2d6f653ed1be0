"""Channel routing: whether the agent answers a message of a team channel, or stays silent.

    serve(agent, channel_router=my_router)       # a router of your own, in code

    [plugin.router]                              # or in sayso.toml
    router = "my_routers:route"                  # absent: a fast model decides
    on_error = "silent"

A router is a function `(messages) -> {"should_respond": bool, "reasoning": str}`, or an object
with such a method `should_agent_respond`; plain or async. interface.md, rule 6 of "Endpoints".
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Literal

from pydantic import Field

from sayso import (
    ChatRequest,
    Duration,
    Host,
    Message,
    Plugin,
    PluginError,
    RequestContext,
    SaysoError,
    Silence,
    hidden_trace,
    hookimpl,
    load_agent,
    mask,
)
from sayso_router.custom import ChannelRouter, CustomRouter
from sayso_router.decisions import Decision
from sayso_router.model import ModelRouter, model_for

__all__ = ["ChannelRouter", "Decision", "ModelRouter", "Router"]

log = logging.getLogger("sayso.router")


class Router(Plugin):
    """The router as a request interceptor, at its place in `plugins`."""

    name = "router"
    active_by_default = False

    class Settings(Plugin.Settings):
        """`[plugin.router]`."""

        router: str | None = None
        """The router, "module:object" or "path/to/file.py:object"; by default a model decides."""
        model: str | None = None
        """The model of the built-in router; absent: a fast one of the agent's provider, else the
        agent's own."""
        timeout: Duration = Field(default=10.0, gt=0)
        """How long the router may take for a message."""
        on_error: Literal["respond", "silent"] = "respond"
        """Whether the agent responds when the router fails, or takes too long."""
        sources: list[str] = ["team-chat"]
        """The sources whose messages are routed; all others are answered."""

    settings: Settings
    _decides: ModelRouter | CustomRouter

    @hookimpl
    @asynccontextmanager
    async def resources(self, host: Host) -> AsyncIterator[None]:
        """Make the router at the start, so that an error in it stops the start."""
        try:
            # Importing a model's SDK, or a router's module, may take seconds.
            self._decides = await asyncio.to_thread(self._made, host)
        except (SaysoError, TypeError) as error:
            raise PluginError(f"plugin 'router': {error}") from error
        yield

    def _made(self, host: Host) -> ModelRouter | CustomRouter:
        given = host.extras.get("channel_router")
        if isinstance(given, str):
            given = load_agent(given, Path.cwd(), "router")
        elif given is None and self.settings.router is not None:
            folder = host.config.path("plugin.router.router", ".")
            given = load_agent(self.settings.router, folder, "router")
        if given is not None:
            return CustomRouter(given, host.code)
        return ModelRouter(model_for(host, self.settings.model), host.agent)

    @hookimpl
    async def intercept_request(self, request: ChatRequest, context: RequestContext) -> None:
        """Raise Silence if the router says so; a message with a decision is always answered."""
        if request.source not in self.settings.sources or context.has_decision:
            return
        decision = await self._decision(request.messages, context)
        reasoning = mask(decision.reasoning, context.platform.secrets())
        log.debug("should_respond %s: %s", decision.should_respond, reasoning)
        if not decision.should_respond:
            raise Silence(decision.reasoning)

    async def _decision(self, messages: Sequence[Message], context: RequestContext) -> Decision:
        policy, limit = self.settings.on_error, asyncio.timeout(self.settings.timeout)
        try:
            async with limit:
                return await self._decides.decide(messages)
        except Exception as error:
            if limit.expired():
                took = "the router took longer than %g seconds (on_error = %r)"
                log.warning(took, self.settings.timeout, policy)
            else:
                trace = hidden_trace(error, context.platform.secrets())
                log.warning("the router failed (on_error = %r)\n%s", policy, trace)
        return Decision(policy == "respond", "the router failed")
