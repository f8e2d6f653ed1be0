"""The application as a FastAPI, for its documents, its routers and its traces."""

from pathlib import Path
from typing import Any

from fastapi import APIRouter, FastAPI
from fastapi.responses import HTMLResponse
from starlette.routing import Route, Router

from sayso._version import __version__
from sayso.host import ServiceHost
from sayso.http.asgi import App
from sayso.plugins.routes import each_route

PAGE = Path(__file__).with_name("docs.html")
HEADERS = {
    "Content-Security-Policy": "default-src 'none'; style-src 'unsafe-inline'; "
    "script-src 'unsafe-inline'; connect-src 'self'; frame-ancestors 'none'",
    "Referrer-Policy": "no-referrer",
}


class FastAPIApp(App, FastAPI):
    """An App that is a FastAPI: with `/docs` and `/openapi.json` if `server.docs` is set."""

    def __init__(self, host: ServiceHost) -> None:
        docs = host.config.server.docs
        super().__init__(
            host,
            title=host.agent.name,
            version=__version__,
            docs_url=None,
            redoc_url=None,
            openapi_url="/openapi.json" if docs else None,
        )
        if docs:
            # FastAPI's own page loads its code from a server elsewhere, and sends no token.
            page = HTMLResponse(PAGE.read_text("utf-8"), headers=HEADERS)
            self.router.routes.append(Route("/docs", lambda request: page, include_in_schema=False))

    def include(self, router: Router) -> None:
        """Add `router` with its lifespan, as FastAPI does if it is one of FastAPI's."""
        if isinstance(router, APIRouter):
            self.include_router(router)
        else:
            super().include(router)

    def openapi(self) -> dict[str, Any]:
        """The OpenAPI document, including the plain routes."""
        if not self.openapi_schema:
            from sayso.http.openapi import with_raw_routes

            routes = [(path, route) for path, _, route in each_route(self.router.routes) if path]
            self.openapi_schema = with_raw_routes(super().openapi(), self.host, routes)
        return self.openapi_schema

    def traced(self) -> bool:
        # Since 0.165 FastAPI traces requests itself if OpenTelemetry is set up.
        telemetry = getattr(self, "_native_telemetry", None)
        return telemetry is not None and telemetry.enabled()
