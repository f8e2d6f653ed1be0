"""The ASGI application: known paths take a short path, all others the framework's."""

from __future__ import annotations

import inspect
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager
from functools import partial
from http import HTTPStatus
from typing import TYPE_CHECKING, Any, TypeGuard

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import BaseRoute, Route, Router, WebSocketRoute
from starlette.types import ASGIApp, Receive, Scope, Send

from sayso.errors import Unauthenticated
from sayso.host import ServiceHost
from sayso.hosting.repeats import KEY
from sayso.http.access import Authentication, WebPages
from sayso.http.authentication import bearer
from sayso.http.endpoints import LONG, ChatEndpoint, Headers, is_json, standard_error
from sayso.http.request_ids import HEADER, RequestIds
from sayso.plugins.routes import each_route
from sayso.principals import Principal

if TYPE_CHECKING:
    Framework = Starlette
else:
    # A tracer replaces Starlette and FastAPI by classes of its own; an app derived from both would
    # have each request traced twice.
    Framework = object


class App(Framework):
    """The service as an ASGI application on one of the frameworks; `host` is the service host."""

    # Starlette has a method of this name, for routing by host, which Sayso does not use.
    host: ServiceHost  # type: ignore[assignment]
    _direct: Direct | None = None

    def __init__(self, host: ServiceHost, **options: Any) -> None:
        handlers = {HTTPException: _refused}
        super().__init__(lifespan=self._life, exception_handlers=handlers, **options)
        self.router.redirect_slashes = False
        self.host = host
        self._lives: list[Callable[[Starlette], AbstractAsyncContextManager[Any]]] = []

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one connection (ASGI)."""
        direct = self._direct
        if direct is None and scope["type"] != "lifespan":
            direct = self._direct = self._made_direct()
        endpoint = direct.endpoint(scope) if direct is not None else None
        if endpoint is not None:
            scope["app"] = self
        await RequestIds(endpoint or super().__call__)(scope, receive, send)

    def chat(
        self, method: bytes, target: bytes, headers: Headers
    ) -> tuple[ChatEndpoint, Principal | None] | None:
        """The endpoint that can answer this chat request without ASGI (`Exchange`), and the caller;
        None if there is none."""
        return self._direct.chat(method, target, headers) if self._direct is not None else None

    def include(self, router: Router) -> None:
        """Add the routes of `router`, and its lifespan to the service's."""
        self.router.routes.extend(router.routes)
        self._lives.append(router.lifespan_context)

    @asynccontextmanager
    async def _life(self, _: object) -> AsyncIterator[Any]:
        async with AsyncExitStack() as stack:
            host = self.host
            await stack.enter_async_context(host.life(only=_in_this_process(host)))
            states = [await stack.enter_async_context(life(self)) for life in self._lives]
            yield {key: value for state in states if state for key, value in state.items()} or None

    def _made_direct(self) -> Direct:
        # From here on Starlette refuses further middleware, as after its first request.
        self.middleware_stack = self.middleware_stack or self.build_middleware_stack()
        own: tuple[Any, ...] = (Authentication, WebPages)
        installed: list[Any] = list(self.user_middleware)
        if self.traced() or any(m.cls not in own for m in installed):
            return Direct({}, [])
        checks = [partial(m.cls, *m.args, **m.kwargs) for m in installed]
        # A plugin's authentication may be asynchronous.
        alone = not self.host.plugins.implementations("authenticate")
        pages = WebPages(self, self.host) if alone else None
        return Direct(plain_routes(self.router.routes), checks, pages, self.host.tokens)

    def traced(self) -> bool:
        """Whether the framework traces requests, which must then pass through it."""
        return False


class PlainApp(App, Starlette):
    """An App that needs no more than Starlette."""


class Direct:
    """Serves raw ASGI endpoints without the framework's middleware stack and router.

    Those cost as much as a small turn. It is used only if no middleware but Sayso's own checks is
    installed, and only for paths that the router would route to the same endpoint. With `pages`,
    chat requests whose head passes the same checks are answered without a task.
    """

    def __init__(
        self,
        routes: Mapping[tuple[str, str], Route],
        checks: Sequence[Callable[[ASGIApp], Any]],
        pages: WebPages | None = None,
        tokens: Mapping[Principal, bytes] | None = None,
    ) -> None:
        self.endpoints: dict[tuple[str, str], ASGIApp] = {}
        self._chats: dict[tuple[bytes, bytes], ChatEndpoint] = {}
        self._pages = pages
        self._tokens = tokens or {}
        for key, route in routes.items():
            endpoint: ASGIApp = route.app
            if type(endpoint) is ChatEndpoint:
                method, path = key
                self._chats[method.encode(), path.encode()] = endpoint
            for check in reversed(checks):
                endpoint = check(endpoint)
            self.endpoints[key] = endpoint

    def endpoint(self, scope: Scope) -> ASGIApp | None:
        """The endpoint for the request, behind its checks; None if the router must find it."""
        if scope["type"] == "lifespan" or scope.get("root_path"):
            return None
        return self.endpoints.get((scope.get("method", "WEBSOCKET"), scope["path"]))

    def chat(
        self, method: bytes, target: bytes, headers: Headers
    ) -> tuple[ChatEndpoint, Principal | None] | None:
        """The endpoint of a chat request and the caller's name; None if its head is unusual in any
        way."""
        endpoint = self._chats.get((method, target))
        if endpoint is None or self._pages is None:
            return None
        host = kind = length = token = b""
        hosts = tokens = 0
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
                tokens += 1
            elif name in (b"content-encoding", HEADER, KEY):
                return None
            elif self._pages.open and name in (b"origin", b"sec-fetch-site"):
                # Its permission to decide depends on its host.
                return None
        config = endpoint.host.config
        short = length.isdigit() and int(length) <= min(config.limits.body, LONG)
        if not (short and hosts == 1 and is_json(kind) and self._pages.serves(host)):
            return None
        if config.auth.scheme == "none":
            return endpoint, None
        if tokens != 1 or config.auth.scheme != "bearer":
            return None
        try:
            return endpoint, bearer(self._tokens, token.decode("latin-1"))
        except Unauthenticated:
            return None


def plain_routes(routes: Sequence[BaseRoute]) -> dict[tuple[str, str], Route]:
    """The raw ASGI endpoints by method and path, up to the first route that may match something
    else."""
    found: dict[tuple[str, str], Any] = {}
    before: list[Any] = []
    for path, _, route in each_route(routes):
        if _is_raw(route) and path == route.path:
            for method in getattr(route, "methods", None) or ("WEBSOCKET",):
                if not any(_may_match(other, route.path) for other in before):
                    found.setdefault((method, route.path), route)
        before.append(route)
    return found


def _is_raw(route: Any) -> TypeGuard[Route]:
    # A Route without methods matches every method; leave that to the router.
    fixed = type(route) is WebSocketRoute or (type(route) is Route and bool(route.methods))
    plain = fixed and not route.param_convertors
    return plain and not inspect.isroutine(route.endpoint) and not isinstance(route.endpoint, type)


def _may_match(route: Any, path: str) -> bool:
    pattern = getattr(route, "path_regex", None)
    return pattern is None or (not _is_raw(route) and pattern.match(path) is not None)


def _in_this_process(host: ServiceHost) -> Sequence[str] | None:
    if host.config.server.workers == 1:
        return None
    return [name for name in host.plugins.names if name not in host.plugins.own_process]


async def _refused(request: Request, error: Exception) -> Response:
    # FastAPI's way to answer, which Sayso uses without it, too.
    assert isinstance(error, HTTPException)
    status = error.status_code
    if status in (204, 205, 304):
        return Response(status_code=status, headers=error.headers)
    body = {"detail": error.detail}
    if status in (404, 405) and _below_chats(request):
        body["code"] = HTTPStatus(status).name
    return JSONResponse(body, status, error.headers)


def _below_chats(request: Request) -> bool:
    """Whether the path begins with that of a chat endpoint whose refusals have a code: V2's."""
    path = request.scope["path"].removeprefix(request.scope.get("root_path", ""))
    endpoints = (
        (begin, getattr(route, "endpoint", None))
        for begin, _, route in each_route(request.app.router.routes)
    )
    return any(
        isinstance(endpoint, ChatEndpoint)
        and endpoint.errors is standard_error
        and path.startswith(begin)
        for begin, endpoint in endpoints
        if begin
    )
