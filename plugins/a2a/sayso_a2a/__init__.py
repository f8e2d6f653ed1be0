"""Agent-to-agent for Sayso: the contract's routes, the official A2A protocol, and a client.

    serve(agent, a2a=True)                            # the contract's three routes
    serve(agent, a2a=True, a2a_adapter="a2a")         # the official protocol, 1.0 and 0.3
    Agent(tools=[*remote_agent("https://...")])       # another agent as tools of ours

interface.md, "Endpoints" and rule 7; design, section 10.
"""

import os
from collections.abc import Mapping
from contextlib import AbstractAsyncContextManager
from typing import Any

from starlette.routing import Router

from sayso import Host, KeptBeside, Plugin, Removed, Subject, hookimpl
from sayso_a2a import settings as _settings
from sayso_a2a.adapters import Adapter, load_adapter
from sayso_a2a.artifacts import Artifact, File
from sayso_a2a.incoming import (
    Incoming,
    answer_directly,
    incoming,
    reply,
    send_artifact,
    working,
)
from sayso_a2a.remote import RemoteAgent, remote_agent

__all__ = [
    "A2A",
    "Adapter",
    "Artifact",
    "File",
    "Incoming",
    "RemoteAgent",
    "answer_directly",
    "incoming",
    "remote_agent",
    "reply",
    "send_artifact",
    "working",
]


# The SDK would make dozens of spans for each message, all named after its own methods.
os.environ.setdefault("OTEL_INSTRUMENTATION_A2A_SDK_ENABLED", "false")


class A2A(Plugin):
    """The agent-to-agent endpoints of the adapter that `[plugin.a2a] adapter` names."""

    name = "a2a"
    active_by_default = False
    Settings = _settings.Settings

    _made: tuple[Host, Adapter] | None = None

    @hookimpl
    def register_routes(self, host: Host) -> Router:
        """The adapter's routes."""
        return self._adapter(host).router()

    def openapi_paths(self, host: Host) -> Mapping[str, Mapping[str, Any]]:
        """The operations of this plugin's routes."""
        from sayso_a2a.described import openapi_paths

        return openapi_paths()

    @hookimpl
    def lifespan(self, host: Host) -> AbstractAsyncContextManager[Any]:
        """The adapter's lifespan."""
        return self._adapter(host).lifespan()

    @hookimpl
    async def erase_subject(self, subject: Subject, kept: KeptBeside) -> Removed:
        """Delete the tasks, wherever the adapters keep them."""
        from sayso_a2a.erasing import erased

        return await erased(subject, kept, self.settings)

    def _adapter(self, host: Host) -> Adapter:
        # Routes may be asked for more than once; all of them share one open store.
        if self._made is None or self._made[0] is not host:
            self._made = host, load_adapter(host, self.settings)
        return self._made[1]
