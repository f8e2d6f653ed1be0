"""The ASGI application: `/health`, the plugins' routes, authentication, host and origin checks."""

import hmac
import inspect
import ipaddress
import logging
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from functools import lru_cache, partial
from typing import Any, TypeGuard
from urllib.parse import urlsplit

from fastapi import APIRouter, FastAPI
from fastapi.routing import iter_route_contexts
from pydantic_core import to_json
from starlette.middleware.cors import CORSMiddleware
from starlette.routing import BaseRoute, Route, Router, WebSocketRoute

from assent._version import __version__
from assent.config import Config
from assent.errors import ConfigError, Unauthenticated
from assent.host import Host
from assent.http import (
    PRINCIPAL,
    ChatEndpoint,
    Headers,
    Receive,
    Scope,
    Send,
    is_json,
    standard_error,
)
from assent.options import configured
from assent.routes import claims

logger = logging.getLogger("assent.app")

ASGIApp = Callable[[Scope, Receive, Send], Awaitable[None]]
PUBLIC = {"/health", "/ready", "/.well-known/agent.json", "/.well-known/agent-card.json"}
"""Paths that are answered without authentication: they hold nothing that is anyone's."""


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
        """The OpenAPI document, the chat endpoints among its paths."""
        if not self.openapi_schema:
            from assent.openapi import with_chat

            contexts = iter_route_contexts(self.router.routes)
            routes = [c.original_route for c in contexts if c.original_route is not None]
            self.openapi_schema = with_chat(super().openapi(), routes)
        return self.openapi_schema

    def _made_direct(self) -> "Direct":
        # From here on Starlette refuses further middleware, as it does after its first request.
        self.middleware_stack = self.middleware_stack or self.build_middleware_stack()
        own: tuple[Any, ...] = (_Authentication, _WebPages)
        installed: list[Any] = list(self.user_middleware)
        if self._traced() or any(m.cls not in own for m in installed):
            return Direct({}, [])
        checks = [partial(m.cls, *m.args, **m.kwargs) for m in installed]
        # A plugin's authentication may have to be waited for.
        alone = not self.host.plugins.implementations("authenticate")
        pages = _WebPages(self, self.host) if alone else None
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
        pages: "_WebPages | None" = None,
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
        for name, value in headers:
            if name == b"content-type":
                kind = value
            elif name == b"host":
                host = value
            elif name == b"content-length":
                length = value
            elif name == b"authorization":
                token = value
        config = endpoint.host.config
        short = length.isdigit() and int(length) <= config.limits.body
        if not (short and is_json(kind) and self._pages.serves(host)):
            return None
        if config.auth.scheme == "none":
            return endpoint, None
        try:
            return endpoint, _bearer(endpoint.host, token.decode("latin-1"))
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
    plain = type(route) in (Route, WebSocketRoute) and not route.param_convertors
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
    chosen, extras = configured(options, config)
    host = Host.create(agent, chosen, plugins, extras)
    return build_app(host, extras.get("additional_routers", ()))


@asynccontextmanager
async def run_own_process(agent: object, *, config: Config, **options: Any) -> AsyncIterator[Host]:
    """The life of the plugins that have a process of their own (`own_process`), without HTTP."""
    chosen, extras = configured(options, config)
    host = Host.create(agent, chosen, extras=extras)
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
    app.router.routes.append(Route("/health", _Fixed(b'{"status":"ok"}'), methods=["GET"]))
    if server.ready:
        app.router.routes.append(Route("/ready", _Ready(host), methods=["GET"]))
    for _, router in host.plugins.routes(host):
        app.include_router(router)
    _include(app, additional_routers)
    if host.config.auth.scheme != "none" or host.plugins.implementations("authenticate"):
        app.add_middleware(_Authentication, host=host)
    app.add_middleware(_WebPages, host=host)
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
    """Add the additional routers; raises ConfigError for what is none, or claims a taken path."""
    if not isinstance(routers, (list, tuple)):
        raise ConfigError("additional_routers takes a list of FastAPI or Starlette routers")
    for router in routers:
        if not isinstance(router, (Router, BaseRoute)):
            kind = type(router).__name__
            raise ConfigError(f"additional_routers takes FastAPI or Starlette routers, not {kind}")
        taken = set(claims(app.router))
        routes = router.routes if isinstance(router, Router) else [router]
        for method, path in claims(router if isinstance(router, Router) else Router([router])):
            if (method, path) in taken:
                raise ConfigError(f"additional_routers: {method} {path} is served already")
        if isinstance(router, APIRouter):
            app.include_router(router)
        else:
            app.router.routes.extend(routes)


class _Fixed:
    """Answers with bytes made once."""

    def __init__(self, body: bytes, status: int = 200) -> None:
        self.headers = [
            (b"content-type", b"application/json"),
            (b"content-length", str(len(body)).encode()),
        ]
        self.start = {"type": "http.response.start", "status": status}
        self.body = {"type": "http.response.body", "body": body}

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        # Copies: middleware adds its headers in place, or packs the body.
        await send({**self.start, "headers": [*self.headers]})
        await send({**self.body})


class _Ready:
    """Says whether new turns are taken."""

    def __init__(self, host: Host) -> None:
        self.host = host
        self.yes = _Fixed(b'{"status":"ready"}')
        self.no = _Fixed(b'{"status":"stopping"}', 503)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        answer = self.no if self.host.stopping else self.yes
        await answer(scope, receive, send)


def _refusal(status: int, detail: str, code: str, *headers: tuple[bytes, bytes]) -> _Fixed:
    answer = _Fixed(to_json({"detail": detail, "code": code}), status)
    answer.headers += headers
    return answer


async def _deny(answer: _Fixed, scope: Scope, receive: Receive, send: Send) -> None:
    """Refuse a request, or a WebSocket handshake with the same status where the server can."""
    if scope["type"] == "http":
        await answer(scope, receive, send)
        return
    await receive()
    if "websocket.http.response" not in scope.get("extensions", {}):
        await send({"type": "websocket.close", "code": 1008})
        return
    start = {**answer.start, "headers": answer.headers}
    await send({**start, "type": "websocket.http.response.start"})
    await send({**answer.body, "type": "websocket.http.response.body"})


class _Authentication:
    """Names the caller on every route but the public ones; 401 for who is nobody."""

    def __init__(self, app: ASGIApp, host: Host) -> None:
        self.app = app
        self.host = host
        self.files = host.plugins.public_paths

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] not in ("http", "websocket") or scope["path"] in PUBLIC:
            await self.app(scope, receive, send)
            return
        if scope["path"] in self.files and scope.get("method") in ("GET", "HEAD"):
            await self.app(scope, receive, send)
            return
        if scope["type"] == "http" and scope["method"] == "OPTIONS" and _preflight(scope):
            await self.app(scope, receive, send)
            return
        try:
            scope[PRINCIPAL] = await authenticate(self.host, scope)
        except Unauthenticated as error:
            challenge = (b"www-authenticate", b"Bearer")
            await _deny(_refusal(401, str(error), error.code, challenge), scope, receive, send)
            return
        except Exception as error:
            status, body = standard_error(error, self.host.failure(error))
            await _deny(_Fixed(to_json(body), status), scope, receive, send)
            return
        await self.app(scope, receive, send)


def _preflight(scope: Scope) -> bool:
    return any(name == b"access-control-request-method" for name, _ in scope["headers"])


async def authenticate(host: Host, scope: Mapping[str, Any]) -> str | None:
    """The principal of a request, from the plugins' hooks, then `[auth]`.

    Raises Unauthenticated when somebody asks for credentials and nobody knows the caller; None
    where nobody asks.
    """
    headers = {
        name.decode("latin-1").lower(): value.decode("latin-1") for name, value in scope["headers"]
    }
    hooks = host.plugins.implementations("authenticate")
    for impl in hooks:
        available = {"headers": headers, "scope": scope, "host": host}
        bound = partial(impl.function, **{n: available[n] for n in impl.names})
        principal = await host.code.call(bound)
        if principal is not None:
            return str(principal)
    if host.config.auth.scheme == "bearer":
        return _bearer(host, headers.get("authorization", ""))
    if hooks:
        raise Unauthenticated
    return None


def _bearer(host: Host, header: str) -> str:
    scheme, _, token = header.partition(" ")
    if scheme.lower() != "bearer":
        raise Unauthenticated("a bearer token is needed: 'Authorization: Bearer TOKEN'")
    given = token.strip().encode("utf-8", "surrogateescape")
    found = ""
    for name, known in host.tokens.items():
        # Every token is compared, so the time tells nothing about which one came close.
        if hmac.compare_digest(known, given):
            found = name
    if not found:
        raise Unauthenticated("the bearer token is not valid")
    return found


class _WebPages:
    """Keeps foreign web pages out (design, section 6, "Web pages")."""

    def __init__(self, app: ASGIApp, host: Host) -> None:
        self.app = app
        server = host.config.server
        self.loopback = is_loopback(server.host)
        self.hosts = {name.lower() for name in server.hosts}
        self.origins = set(server.cors_origins)
        self.serves = lru_cache(256)(self._serves)
        """Whether a request with this `Host` header is let in."""

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        kind = scope["type"]
        if kind == "websocket" or (kind == "http" and self.loopback):
            host = origin = ""
            for name, value in scope["headers"]:
                if name == b"host":
                    host = value.decode("latin-1").lower()
                elif name == b"origin":
                    origin = value.decode("latin-1")
            if self.loopback and not self._known(host):
                message = f"this host name is not served; add it to server.hosts: {host[:100]!r}"
                await _deny(_refusal(421, message, "UNKNOWN_HOST"), scope, receive, send)
                return
            if kind == "websocket" and origin and not self._own(origin, host):
                message = "pages of this origin may not connect; see server.cors_origins"
                await _deny(_refusal(403, message, "FOREIGN_ORIGIN"), scope, receive, send)
                return
        await self.app(scope, receive, send)

    def _serves(self, host: bytes) -> bool:
        return not self.loopback or self._known(host.decode("latin-1").lower())

    def _known(self, host: str) -> bool:
        name = _without_port(host)
        return not host or is_loopback(name) or name in self.hosts or host in self.hosts

    def _own(self, origin: str, host: str) -> bool:
        if "*" in self.origins or origin in self.origins:
            return True
        return urlsplit(origin).netloc.lower() == host


def _without_port(host: str) -> str:
    if host.startswith("["):
        return host[1:].partition("]")[0]
    # With a dot at the end it is the same name, written in full.
    return host.partition(":")[0].removesuffix(".")


@lru_cache(256)
def is_loopback(name: str) -> bool:
    """Whether `name` is this machine's own name or address."""
    if name == "localhost" or name.endswith(".localhost"):
        return True
    try:
        address = ipaddress.ip_address(name)
    except ValueError:
        return False
    # Before Python 3.13 ::ffff:127.0.0.1 is no loopback address.
    return (getattr(address, "ipv4_mapped", None) or address).is_loopback
