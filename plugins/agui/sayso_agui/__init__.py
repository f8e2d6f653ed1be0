"""The AG-UI protocol, 1.0 and the 0.0.59 that CopilotKit speaks: runs, interrupts, state.

    [plugin.agui]
    path = "/agui"

    new HttpAgent({ url: "https://agent.example.com/agui" })

A call that needs a person ends the run with an interrupt; the next run decides it by `resume`. The
ids of calls and interrupts are the ledger's, and the state is the session.
"""

from collections.abc import Mapping
from typing import Any

from pydantic import Field
from starlette.routing import Route, Router

from sayso import ChatRequest, Host, Plugin, RequestContext, hookimpl
from sayso_agui.endpoint import PROTOCOL, Capabilities, Connections, Runs

__all__ = ["AGUI"]


class AGUI(Plugin):
    """Three paths; active when named in `plugins`, or by a table `[plugin.agui]`."""

    name = "agui"
    active_by_default = False

    class Settings(Plugin.Settings):
        """`[plugin.agui]`."""

        path: str = Field(default="/agui", pattern=r"^(/[A-Za-z0-9._~-]+)+$")
        """The path that runs are posted to; `PATH/capabilities` says what the agent can do, and
        `PATH/connect` gives a page that was reloaded the interrupts of its messages."""

    @hookimpl
    def register_routes(self, host: Host) -> Router:
        """The path of runs, that of reloaded pages, and that of the capabilities."""
        path = self.settings.path
        router = Router()
        router.routes.append(Route(path, Runs(host), methods=["POST"]))
        router.routes.append(Route(f"{path}/connect", Connections(host), methods=["POST"]))
        router.routes.append(Route(f"{path}/capabilities", Capabilities(host), methods=["GET"]))
        return router

    def openapi_paths(self, host: Host) -> Mapping[str, Mapping[str, Any]]:
        """The operations of this plugin's routes."""
        from sayso_agui.described import openapi_paths

        return openapi_paths(self.settings.path)

    @hookimpl
    def intercept_request(self, request: ChatRequest, context: RequestContext) -> None:
        """Return None; the page's `context`, and its system messages, become context."""
        if context.protocol == PROTOCOL and (words := context.request_fields.get("context")):
            context.add_system_context(str(words))
