"""The web page where a person chats with the agent and presses Approve.

    GET  /console                  the page, with its scripts and /console/style.css beside it
    GET  /console/agent            the agent, its tools, and who the caller is
    GET  /console/prompt           what the model got in the caller's newest turn, in `sayso dev`
    GET  /console/approvals        the pending calls that are visible to this caller
    GET  /console/approvals/{id}   one of them: its state, and who decided it when
    POST /console/approvals/{id}   {"approve": true | false, "reason": "..."}

design, section 1, item 6, and section 6, "Web pages".
"""

from collections.abc import Mapping
from typing import Any

from starlette.routing import Route, Router

from sayso import Host, Observer, Plugin, hookimpl
from sayso_console.approvals import Approvals
from sayso_console.asked import Asked
from sayso_console.page import FILES, static

__all__ = ["Console"]


class Console(Plugin):
    """The page and its JSON paths; active when named in `plugins`, and in `sayso dev`."""

    name = "console"
    active_by_default = False
    public_paths = tuple(FILES)
    page = "/console"
    decides_by_id = True
    _asked: Asked | None = None

    @hookimpl
    def observe(self, host: Host) -> Observer | None:
        """The observer that keeps prompts, where `server.docs` is on."""
        self._asked = Asked() if host.config.server.docs else None
        return self._asked

    @hookimpl
    def register_routes(self, host: Host) -> Router:
        """The router with the static files and the paths of pending approvals."""
        approvals = Approvals(host, self._asked)
        router = Router()
        for path, (name, kind) in FILES.items():
            router.routes.append(Route(path, static(name, kind), methods=["GET"]))
        agent = Route("/console/agent", approvals.agent, methods=["GET"])
        listed = Route("/console/approvals", approvals.listed, methods=["GET"])
        one = Route("/console/approvals/{id}", approvals.one, methods=["GET", "POST"])
        router.routes.extend([agent, listed, one])
        if self._asked is not None:
            prompt = Route("/console/prompt", approvals.prompt, include_in_schema=False)
            router.routes.append(prompt)
        return router

    def openapi_paths(self, host: Host) -> Mapping[str, Mapping[str, Any]]:
        """The operations of this plugin's routes."""
        from sayso_console.described import openapi_paths

        return openapi_paths()
