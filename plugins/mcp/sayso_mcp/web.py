"""The MCP server's ASGI application: access control, and how its streams end."""

from __future__ import annotations

import asyncio
import logging
import re
from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager, nullcontext
from typing import Any

import anyio
from mcp.server.auth.middleware.bearer_auth import AuthenticatedUser
from mcp.server.auth.provider import AccessToken
from mcp.server.lowlevel import Server
from mcp.server.sse import SseServerTransport
from mcp.server.streamable_http_manager import StreamableHTTPSessionManager
from mcp.server.transport_security import (
    TransportSecurityMiddleware,
    TransportSecuritySettings,
)
from starlette.applications import Starlette
from starlette.datastructures import Headers
from starlette.middleware.cors import CORSMiddleware
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Mount, Route
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from sayso import Host, RequestIds, authenticate, standard_error, unbroken
from sayso_mcp.posts import Messages
from sayso_mcp.resource import Resource

PATHS = {"sse": "/sse", "streamable-http": "/mcp"}
"""The path that clients connect to, by transport."""
_LOOPBACK = ("localhost", "127.0.0.1", "[::1]")
QUIET = 0.2
"""Seconds without a byte after which a finished result counts as sent."""
_WEB = (b"http://", b"https://")
_ADDRESS = re.compile(r"([^:/]*://)?([^][:/@]*|\[[^][/@]*\])(:\d{1,5})?")
"""A host or an origin: a name, and if something follows its colon, a port."""
_EVERYWHERE = ("0.0.0.0", "::", "")

# A client that posts an invalid message gets an error; the SDK would also log a trace with the
# message's content.
logging.getLogger("mcp.server.sse").addFilter(
    lambda record: record.msg != "Failed to parse message"
)


@asynccontextmanager
async def web_app(
    host: Host, settings: Any, server: Server[Any], address: str
) -> AsyncIterator[Streams]:
    """The application, while its sessions can run; `address` is the one it is bound to."""
    security = allowed(host, settings, address)
    limit = host.config.limits.body
    sessions: AbstractAsyncContextManager[None] = nullcontext()
    app: ASGIApp
    if settings.transport == "sse":
        app = _sse(server, security, limit)
    else:
        manager = StreamableHTTPSessionManager(
            server, security_settings=security, max_request_body_size=limit
        )
        messages = Messages(manager.handle_request, limit, headed=True)
        app = Starlette(routes=[Route(PATHS["streamable-http"], messages)])
        sessions = manager.run()
    if host.guarded:
        resource = Resource(host, settings, PATHS[settings.transport])
        app = resource.described(Authentication(app, host, resource))
    if settings.origins:
        app = CORSMiddleware(
            app,
            allow_origins=settings.origins,
            allow_methods=["GET", "POST", "DELETE"],
            allow_headers=["*"],
            expose_headers=["Mcp-Session-Id", "WWW-Authenticate"],
        )
    streams = Streams(RequestIds(Known(app, security)))
    async with sessions:
        try:
            yield streams
        finally:
            streams.end()


def allowed(host: Host, settings: Any, address: str) -> TransportSecuritySettings:
    """The host and origin lists: loopback, the bound address, and what the settings add."""
    names = [*_LOOPBACK, *settings.hosts, *host.config.server.hosts]
    if address not in _EVERYWHERE:
        names.append(f"[{address}]" if ":" in address else address.lower())
    hosts = [form for name in names for form in _forms(name)]
    origins = [f"{scheme}://{form}" for form in hosts for scheme in ("http", "https")]
    return TransportSecuritySettings(
        enable_dns_rebinding_protection=True,
        allowed_hosts=hosts,
        allowed_origins=[*origins, *settings.origins],
    )


def _forms(name: str) -> list[str]:
    has_port = ":" in name.rpartition("]")[2]
    return [name] if has_port else [name, f"{name}:*"]


def _sse(server: Server[Any], security: TransportSecuritySettings, limit: int) -> Starlette:
    transport = SseServerTransport("/messages/", security, max_request_body_size=limit)

    async def connect(scope: Scope, receive: Receive, send: Send) -> None:
        async with transport.connect_sse(scope, receive, send) as (read, write):
            await server.run(read, write, server.create_initialization_options())

    return Starlette(
        routes=[
            Route(PATHS["sse"], Messages(connect, limit), methods=["GET"]),
            Mount("/messages/", app=Messages(transport.handle_post_message, limit)),
        ]
    )


class Known:
    """Refuses unknown `Host` (421) and `Origin` (403) headers on every path."""

    def __init__(self, app: ASGIApp, settings: TransportSecuritySettings) -> None:
        self.app = app
        self.check = TransportSecurityMiddleware(settings)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        answer: ASGIApp = self.app
        if (refusal := await self._refusal(Request(scope))) is not None:
            setting = "hosts" if refusal.status_code == 421 else "origins"
            said = f"{bytes(refusal.body).decode()}; see plugin.mcp.{setting}"
            answer = Response(said, refusal.status_code)
        await answer(scope, receive, send)

    async def _refusal(self, request: Request) -> Response | None:
        # The SDK would accept anything that begins with a known name and a colon.
        for name, status in (("host", 421), ("origin", 403)):
            if not _ADDRESS.fullmatch(request.headers.get(name, "")):
                return Response(f"Invalid {name.capitalize()} header", status)
        return await self.check.validate_request(request)


class Authentication:
    """Names the caller, and answers 401 to an unknown one; a session then belongs to its caller."""

    def __init__(self, app: ASGIApp, host: Host, resource: Resource) -> None:
        self.app = app
        self.host = host
        self.resource = resource

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        try:
            principal = await authenticate(self.host, scope, "mcp")
        except Exception as error:
            failure = self.host.failure(error)
            status, body = standard_error(error, failure)
            response = JSONResponse(body, status)
            response.raw_headers += failure.headers
            if "www-authenticate" in response.headers:
                response.headers["www-authenticate"] = self.resource.challenge(scope)
            await response(scope, receive, send)
            return
        if principal is not None:
            scope["sayso.principal"] = principal
            token = AccessToken(token="", client_id=principal, scopes=[])
            scope["user"] = AuthenticatedUser(token)
        await self.app(scope, receive, send)


def _is_caseless(name: bytes, value: bytes) -> bool:
    if name == b"origin":
        return value[:8].lower().startswith(_WEB)
    return name in (b"host", b"content-type")


class Streams:
    """The outermost application; `end` closes every open response with its last bytes.

    Line separators inside an event's data are escaped. Clients that read lines as Python's
    `splitlines` does, as the official ones did for long, would lose the event and wait for ever.
    """

    def __init__(self, app: ASGIApp) -> None:
        self.app = app
        self._open: set[anyio.CancelScope] = set()
        self._posts = 0
        self._sent = 0.0
        self._ended = False

    async def settle(self, seconds: float = 2.0) -> None:
        """Wait until the last results are sent: until no POST is open and nothing was sent for a
        while."""
        loop = asyncio.get_running_loop()
        began = loop.time()
        while self._open and loop.time() < began + seconds:
            if not self._posts and loop.time() > max(self._sent, began) + QUIET:
                return
            await asyncio.sleep(QUIET / 10)

    def end(self) -> None:
        """End all open responses; later requests get 503."""
        self._ended = True
        for scope in list(self._open):
            scope.cancel()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            raise RuntimeError(f"the MCP server speaks HTTP only, not {scope['type']!r}")
        # Not every parser strips the white space around a value (RFC 9110, section 5.5). The SDK
        # compares names case-sensitively, although case has no meaning in them (section 4.2.3) or
        # in a content type (section 8.3.1). No event has an id here, so a stream resumed after one
        # begins like any other.
        scope["headers"] = [
            (name, value.lower() if _is_caseless(name, value) else value)
            for name, value in ((name, value.strip(b" \t")) for name, value in scope["headers"])
            if name != b"last-event-id"
        ]
        state = {"started": False, "finished": False, "events": False}

        async def watched(message: Message) -> None:
            self._sent = asyncio.get_running_loop().time()
            state["started"] = True
            if message["type"] == "http.response.start":
                kind = Headers(raw=message["headers"]).get("content-type", "")
                state["events"] = kind.startswith("text/event-stream")
            elif state["events"]:
                message = {**message, "body": unbroken(message.get("body", b""))}
            last = message["type"] == "http.response.body" and not message.get("more_body")
            state["finished"] = state["finished"] or last
            await send(message)

        with anyio.CancelScope() as cancel:
            self._open.add(cancel)
            self._posts += scope["method"] == "POST"
            try:
                if not self._ended:
                    await self.app(scope, receive, watched)
            finally:
                self._open.discard(cancel)
                self._posts -= scope["method"] == "POST"
        if self._ended and not state["finished"]:
            if state["started"]:
                await send({"type": "http.response.body", "body": b""})
            else:
                busy = Response("the service is stopping", 503, {"retry-after": "1"})
                await busy(scope, receive, send)
