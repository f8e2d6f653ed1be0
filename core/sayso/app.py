"""Building the application: `/health`, the plugins' routes, the additional ones, the checks."""

from __future__ import annotations

import logging
import os
import sys
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any, TypeVar

from starlette.middleware.cors import CORSMiddleware
from starlette.routing import BaseRoute, Route, Router, WebSocketRoute

from sayso.config import Config
from sayso.config.options import Extras, configured
from sayso.errors import ConfigError
from sayso.host import ServiceHost
from sayso.http.access import Authentication, Fixed, WebPages, is_loopback
from sayso.http.asgi import App, PlainApp
from sayso.http.front import Front, has_front
from sayso.http.ready import Ready
from sayso.http.tickets import Tickets
from sayso.plugins.routes import (
    LOST_MIDDLEWARE,
    Claim,
    Owners,
    claims,
    is_api_router,
    loses_middleware,
)

if TYPE_CHECKING:
    from sayso.http.fastapi_app import FastAPIApp

logger = logging.getLogger("sayso.app")

AnyApp = TypeVar("AnyApp", bound=App)


def create_app(
    agent: object,
    *,
    config: Config | None = None,
    plugins: Sequence[object] = (),
    **options: Any,
) -> FastAPIApp:
    """The ASGI application for `agent`, a FastAPI; `options` are those of `serve` (interface.md,
    "Limits").

    `plugins` are plugin objects beside the installed ones. Raises StartupError naming the cause
    and the way out.
    """
    if not isinstance(plugins, Sequence) or any(isinstance(one, str) for one in plugins):
        raise TypeError(
            f"plugins takes a list of plugin objects, not {plugins!r}; "
            "installed ones are chosen by name in the configuration: config=Config(plugins=[...])"
        )
    chosen, extras = configured(options, config)
    host = ServiceHost.create(agent, chosen, plugins, extras)
    return _furnished(_fastapi(host), host.plugins.routes(host), extras)


def app_to_serve(agent: object, config: Config, extras: Extras) -> App:
    """The application for `serve`, without FastAPI if nothing needs it.

    Importing FastAPI takes a fifth of the start-up time, and four megabytes that are not freed.
    """
    host = ServiceHost.create(agent, config, extras=extras)
    _refuse_open_pages(host)
    routers = host.plugins.routes(host)
    app = _fastapi(host) if _asks_for_fastapi(host) else PlainApp(host)
    return _furnished(app, routers, extras)


def _refuse_open_pages(host: ServiceHost) -> None:
    """Raise ConfigError for a page on which everybody may decide, under any name."""
    server = host.config.server
    if host.plugins.public_paths and not (host.guarded or server.hosts or is_loopback(server.host)):
        raise ConfigError(
            f"everybody who reaches {server.host} could decide on the console, also web pages of "
            "other sites; set [auth], or name the hosts of its address in server.hosts, or set "
            "server.host to 127.0.0.1"
        )


def _asks_for_fastapi(host: ServiceHost) -> bool:
    # Somebody who has a router of FastAPI's has imported it.
    return "fastapi" in sys.modules or host.config.server.docs or _may_trace()


def _may_trace() -> bool:
    # FastAPI traces by itself, and OpenTelemetry may be set up later, as in a plugin's lifespan.
    if "opentelemetry" in sys.modules or "FASTAPI_OTEL_AUTO_CONFIGURE" in os.environ:
        return True
    try:
        return find_spec("opentelemetry.sdk") is not None
    except ModuleNotFoundError:
        return False


@asynccontextmanager
async def run_own_process(
    agent: object, config: Config, extras: Extras, check: Callable[[ServiceHost], None]
) -> AsyncIterator[ServiceHost]:
    """The life of the plugins that have a process of their own (`own_process`), without HTTP.

    `check` may refuse the start. At the end, running work is drained, as a worker's turns are.
    """
    host = ServiceHost.create(agent, config, extras=extras)
    check(host)
    async with host.life(only=host.plugins.own_process):
        yield host
        await host.drain(config.server.drain_timeout)


def _fastapi(host: ServiceHost) -> FastAPIApp:
    from sayso.http.fastapi_app import FastAPIApp

    return FastAPIApp(host)


def _furnished(app: AnyApp, routers: Sequence[tuple[str, Router]], extras: Extras) -> AnyApp:
    """`app` with the core's routes, each plugin's, the additional ones, and the checks."""
    host, server = app.host, app.host.config.server
    app.router.routes.append(Route("/health", Fixed(b'{"status":"ok"}'), methods=["GET"]))
    if server.ready:
        app.router.routes.append(Route("/ready", Ready(host), methods=["GET"]))
    host.owners = Owners(routers)
    own = [router for _, router in routers]
    for router in own:
        app.include(router)
    front = Front(app.router, host.plugins.page) if has_front(own) else None
    _include(app, extras.get("additional_routers", ()))
    if front is not None:
        app.router.routes.append(front)
    if host.guarded and any(isinstance(route, WebSocketRoute) for route in app.router.routes):
        app.router.routes.append(Route("/auth/ticket", Tickets(host), methods=["POST"]))
    if host.guarded:
        leads = front.leads if front is not None else None
        app.add_middleware(Authentication, host=host, leads=leads)
    app.add_middleware(WebPages, host=host)
    if server.cors_origins:
        app.add_middleware(
            CORSMiddleware,
            allow_origins=server.cors_origins,
            allow_methods=["*"],
            allow_headers=["*"],
            expose_headers=["Retry-After", "X-Request-Id", "Idempotent-Replayed"],
            allow_credentials="*" not in server.cors_origins,
        )
    return app


def _include(app: App, routers: Any) -> None:
    """Add the additional routers. Raises ConfigError for an object that is no router, a path that
    is taken, or a router whose middleware would be lost."""
    if not isinstance(routers, (list, tuple)):
        raise ConfigError("additional_routers takes a list of FastAPI or Starlette routers")
    claimed = [Claim(method, path, "the service") for method, path in claims(app.router)]
    for number, router in enumerate(routers):
        if not isinstance(router, (Router, BaseRoute)):
            kind = type(router).__name__
            raise ConfigError(f"additional_routers takes FastAPI or Starlette routers, not {kind}")
        whole = router if isinstance(router, Router) else Router([router])
        for method, path in claims(whole):
            if is_api_router(whole) and not path:
                raise ConfigError("additional_routers: a route without a path; write '/' or more")
            claim = Claim(method, path, f"router {number}")
            if (wide := next((one for one in claimed if one.covers(claim)), None)) is not None:
                raise ConfigError(f"additional_routers: {claim} is served already by {wide}")
            claimed.append(claim)
        if loses_middleware(whole):
            raise ConfigError(f"additional_routers: {LOST_MIDDLEWARE}")
        app.include(whole)
