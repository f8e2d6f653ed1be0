"""The ASGI application: `/health`, the plugins' routes, and the short way to the known ones."""

import inspect
import logging
from collections.abc import AsyncIterator, Callable, Iterable, Mapping, Sequence
from contextlib import asynccontextmanager
from functools import partial
from typing import Any, TypeGuard

from fastapi import APIRouter, FastAPI
from fastapi.routing import iter_route_contexts
from starlette.middleware.cors import CORSMiddleware
from starlette.routing import BaseRoute, Route, Router, WebSocketRoute

from assent._version import __version__
from assent.access import ASGIApp, Authentication, Fixed, WebPages, bearer
from assent.config import Config
from assent.errors import ConfigError, Unauthenticated
from assent.host import Host
from assent.http import ChatEndpoint, Headers, Receive, Scope, Send, is_json
from assent.options import configured
from assent.routes import Claimed, claims

logger = logging.getLogger("assent.app")


class App(FastAPI):
    """The service as an ASGI application; `host` is the Host that it serves."""

    # Starlette has a method of this name, for routing by host, which Assent does not use.
    host: Host  # type: ignore[assignment]
    _direct: "Direct | None" = None

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one connection (ASGI)."""
        direct = self._direct
        if direct is None and scope["type"] != "lifespan":
            direct = self._direct = self._made_direct()
        endpoint = direct.endpoint(scope) if direct is not None else None
        if endpoint is not None:
            scope["app"] = self
            await endpoint(scope, receive, send)
        else:
            await super().__call__(scope, receive, send)

    def chat(
        self, method: bytes, target: bytes, headers: Headers
    ) -> tuple[ChatEndpoint, str | None] | None:
        """What answers this chat request without ASGI (`Exchange`), and who asks; None where
        nothing may."""
        return self._direct.chat(method, target, headers) if self._direct is not None else None

    def openapi(self) -> dict[str, Any]:
        """The OpenAPI document, the plain routes among its paths."""
        if not self.openapi_schema:
            from assent.openapi import with_raw_routes

            contexts = iter_route_contexts(self.router.routes)
            routes = [(c.path, c.original_route) for c in contexts if c.path and c.original_route]
            self.openapi_schema = with_raw_routes(super().openapi(), routes)
        return self.openapi_schema

    def _made_direct(self) -> "Direct":
        # From here on Starlette refuses further middleware, as it does after its first request.
        self.middleware_stack = self.middleware_stack or self.build_middleware_stack()
        own: tuple[Any, ...] = (Authentication, WebPages)
        installed: list[Any] = list(self.user_middleware)
        if self._traced() or any(m.cls not in own for m in installed):
            return Direct({}, [])
        checks = [partial(m.cls, *m.args, **m.kwargs) for m in installed]
        # A plugin's authentication may have to be waited for.
        alone = not self.host.plugins.implementations("authenticate")
        pages = WebPages(self, self.host) if alone else None
        return Direct(plain_routes(self.router.routes), checks, pages)

    def _traced(self) -> bool:
        # Since 0.165 FastAPI traces requests by itself, where OpenTelemetry is set up.
        telemetry = getattr(self, "_native_telemetry", None)
        return telemetry is not None and telemetry.enabled()


class Direct:
    """Serves the paths of raw ASGI endpoints without FastAPI's middleware stack and router.

    Those cost as much as a small turn. Used only where no middleware but Assent's own checks is
    installed, and only for paths that the router would give to the same endpoint. With `pages`
    chat requests are answered without a task, where their head passes the same checks.
    """

    def __init__(
        self,
        routes: Mapping[tuple[str, str], Route],
        checks: Sequence[Callable[[ASGIApp], Any]],
        pages: WebPages | None = None,
    ) -> None:
        self.endpoints: dict[tuple[str, str], ASGIApp] = {}
        self._chats: dict[tuple[bytes, bytes], ChatEndpoint] = {}
        self._pages = pages
        for key, route in routes.items():
            endpoint: ASGIApp = route.app
            if type(endpoint) is ChatEndpoint:
                method, path = key
                self._chats[method.encode(), path.encode()] = endpoint
            for check in reversed(checks):
                endpoint = check(endpoint)
            self.endpoints[key] = endpoint

    def endpoint(self, scope: Scope) -> ASGIApp | None:
        """What serves the request, the checks before it; None when that is FastAPI's to find."""
        if scope["type"] == "lifespan" or scope.get("root_path"):
            return None
        return self.endpoints.get((scope.get("method", "WEBSOCKET"), scope["path"]))

    def chat(
        self, method: bytes, target: bytes, headers: Headers
    ) -> tuple[ChatEndpoint, str | None] | None:
        """The endpoint of a chat request and the caller's name; None where anything about its
        head is unusual."""
        endpoint = self._chats.get((method, target))
        if endpoint is None or self._pages is None:
            return None
        host = kind = length = token = b""
        hosts = 0
        for name, value in headers:
            if name == b"content-type":
                kind = value
            elif name == b"host":
                host = value
                hosts += 1
            elif name == b"content-length":
                length = value
            elif name == b"authorization":
                token = value
            elif name == b"content-encoding":
                return None
        config = endpoint.host.config
        short = length.isdigit() and int(length) <= config.limits.body
        if not (short and hosts == 1 and is_json(kind) and self._pages.serves(host)):
            return None
        if config.auth.scheme == "none":
            return endpoint, None
        try:
            return endpoint, bearer(endpoint.host, token.decode("latin-1"))
        except Unauthenticated:
            return None


def plain_routes(routes: Sequence[BaseRoute]) -> dict[tuple[str, str], Route]:
    """The raw ASGI endpoints by method and path, as far as no route before them may match."""
    found: dict[tuple[str, str], Any] = {}
    before: list[Any] = []
    for context in iter_route_contexts(routes):
        route = context.original_route
        if _is_raw(route) and context.path == route.path:
            for method in getattr(route, "methods", None) or ("WEBSOCKET",):
                if not any(_may_match(other, route.path) for other in before):
                    found.setdefault((method, route.path), route)
        before.append(route)
    return found


def _is_raw(route: Any) -> TypeGuard[Route]:
    # Without methods a Route takes whatever comes over HTTP: that is for the router to find.
    fixed = type(route) is WebSocketRoute or (type(route) is Route and bool(route.methods))
    plain = fixed and not route.param_convertors
    return plain and not inspect.isroutine(route.endpoint) and not isinstance(route.endpoint, type)


def _may_match(route: Any, path: str) -> bool:
    pattern = getattr(route, "path_regex", None)
    return pattern is None or (not _is_raw(route) and pattern.match(path) is not None)


def create_app(
    agent: object,
    *,
    config: Config | None = None,
    plugins: Sequence[object] = (),
    **options: Any,
) -> App:
    """The ASGI application for `agent`; `options` are those of `serve` (interface.md, "Limits").

    `plugins` are plugin objects beside the installed ones. Raises StartupError naming the cause
    and the way out.
    """
    if isinstance(plugins, str) or not isinstance(plugins, Iterable):
        raise TypeError(f"plugins takes a list of plugin objects, not {plugins!r}")
    chosen, extras = configured(options, config)
    host = Host.create(agent, chosen, plugins, extras)
    return build_app(host, extras.get("additional_routers", ()))


@asynccontextmanager
async def run_own_process(
    agent: object, *, config: Config, check: Callable[[Host], None], **options: Any
) -> AsyncIterator[Host]:
    """The life of the plugins that have a process of their own (`own_process`), without HTTP.

    `check` may refuse the start.
    """
    chosen, extras = configured(options, config)
    host = Host.create(agent, chosen, extras=extras)
    check(host)
    async with host.life(only=host.plugins.own_process):
        yield host


def build_app(host: Host, additional_routers: Sequence[Any] = ()) -> App:
    """The application of a host: core routes, then each plugin's, then the additional ones."""
    server = host.config.server

    @asynccontextmanager
    async def lifespan(_: FastAPI) -> AsyncIterator[None]:
        async with host.life(only=_in_this_process(host)):
            yield

    app = App(
        title="Assent",
        version=__version__,
        lifespan=lifespan,
        redirect_slashes=False,
        docs_url="/docs" if server.docs else None,
        redoc_url=None,
        openapi_url="/openapi.json" if server.docs else None,
    )
    app.host = host
    app.router.routes.append(Route("/health", Fixed(b'{"status":"ok"}'), methods=["GET"]))
    if server.ready:
        app.router.routes.append(Route("/ready", _Ready(host), methods=["GET"]))
    for _, router in host.plugins.routes(host):
        app.include_router(router)
    _include(app, additional_routers)
    if host.guarded:
        app.add_middleware(Authentication, host=host)
    app.add_middleware(WebPages, host=host)
    if server.cors_origins:
        app.add_middleware(
            CORSMiddleware,
            allow_origins=server.cors_origins,
            allow_methods=["*"],
            allow_headers=["*"],
            allow_credentials="*" not in server.cors_origins,
        )
    return app


def _in_this_process(host: Host) -> Sequence[str] | None:
    if host.config.server.workers == 1:
        return None
    return [name for name in host.plugins.names if name not in host.plugins.own_process]


def _include(app: FastAPI, routers: Any) -> None:
    """Add the additional routers; raises ConfigError for what is none, claims a taken path, or
    would lose its middleware."""
    if not isinstance(routers, (list, tuple)):
        raise ConfigError("additional_routers takes a list of FastAPI or Starlette routers")
    claimed = Claimed()
    for method, path in claims(app.router):
        claimed.add(method, path, "the service")
    for number, router in enumerate(routers):
        if not isinstance(router, (Router, BaseRoute)):
            kind = type(router).__name__
            raise ConfigError(f"additional_routers takes FastAPI or Starlette routers, not {kind}")
        routes = router.routes if isinstance(router, Router) else [router]
        for method, path in claims(router if isinstance(router, Router) else Router([router])):
            if (other := claimed.add(method, path, f"router {number}")) is not None:
                raise ConfigError(f"additional_routers: {other[0]} {path} is served already")
            if isinstance(router, APIRouter) and not path:
                raise ConfigError("additional_routers: a route without a path; write '/' or more")
        if isinstance(router, APIRouter):
            app.include_router(router)
            continue
        app.router.routes.extend(routes)
        if isinstance(router, Router):
            if router.middleware_stack != router.app:
                # It may be what keeps callers out.
                raise ConfigError(
                    "additional_routers: a Starlette Router's middleware is not its routes'; "
                    "mount the router, Mount('/path', app=router), or give each Route its own"
                )
            app.include_router(APIRouter(lifespan=router.lifespan_context))


class _Ready:
    """Says whether new turns are taken."""

    def __init__(self, host: Host) -> None:
        self.host = host
        self.yes = Fixed(b'{"status":"ready"}')
        self.no = Fixed(b'{"status":"stopping"}', 503)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        answer = self.no if self.host.stopping else self.yes
        await answer(scope, receive, send)
