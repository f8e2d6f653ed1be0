"""Access control: authentication, and the hosts and origins that web pages may use."""

import asyncio
import ipaddress
import re
from collections.abc import Callable, Mapping
from functools import lru_cache
from typing import Any

from pydantic_core import to_json
from starlette.types import ASGIApp, Receive, Scope, Send

from sayso.errors import Busy, NoAuthentication, Unauthenticated
from sayso.host import ServiceHost
from sayso.hosting import Host
from sayso.http.authentication import authenticate, bearer, path_of, report_refused
from sayso.http.endpoints import FOREIGN, PRINCIPAL, standard_error

_HOST = re.compile(rb"(\[[0-9A-Za-z:.%]+\]|[\w.~!$&'()*+,;=%-]*)(:[0-9]*)?[ \t]*")
PUBLIC = {
    "/health",
    "/ready",
    "/.well-known/agent.json",
    "/.well-known/agent-card.json",
    "/.well-known/jwks.json",
}
"""Paths that are answered without authentication: their content belongs to nobody."""


class Fixed:
    """An ASGI application that answers with one fixed body."""

    def __init__(self, body: bytes, status: int = 200) -> None:
        self.headers = [
            (b"content-type", b"application/json"),
            (b"content-length", str(len(body)).encode()),
        ]
        self.start = {"type": "http.response.start", "status": status}
        self.body = {"type": "http.response.body", "body": body}

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        # Copies: middleware adds its headers in place, or compresses the body.
        await send({**self.start, "headers": [*self.headers]})
        await send({**self.body})


def _refusal(status: int, detail: str, code: str) -> Fixed:
    return Fixed(to_json({"detail": detail, "code": code}), status)


async def _deny(answer: Fixed, scope: Scope, receive: Receive, send: Send) -> None:
    """Refuse a request, or a WebSocket handshake with the same status if the server supports
    that."""
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


class Authentication:
    """Names the caller on every route except the public ones; 401 for an unknown caller."""

    def __init__(
        self, app: ASGIApp, host: ServiceHost, leads: Callable[[Scope], bool] | None = None
    ) -> None:
        self.app = app
        self.host = host
        self.files = host.plugins.public_paths
        self.signed = host.plugins.signed_paths
        self._leads = leads or (lambda _: False)
        """Whether the answer at `/` only leads to a page that everybody may read."""

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        path = path_of(scope)
        is_file = path in self.files and scope.get("method") in ("GET", "HEAD")
        public = path in PUBLIC or is_file or (path == "/" and self._leads(scope))
        public = public or (scope["type"] == "http" and path in self.signed)
        # The page has no fact about the service; it asks for a token to show what there is.
        public = public or (path == "/docs" and self.host.config.server.docs)
        if scope["type"] in ("http", "websocket") and not public:
            try:
                scope[PRINCIPAL] = await authenticate(self.host, scope)
            except (Exception, asyncio.CancelledError) as error:
                if isinstance(error, asyncio.CancelledError):
                    # The server has waited long enough for the authentication.
                    error = Busy("the service is stopping")
                await self._refuse(error, scope, receive, send)
                return
        await self.app(scope, receive, send)

    async def _refuse(self, error: Exception, scope: Scope, receive: Receive, send: Send) -> None:
        failure = self.host.failure(error)
        owner = self.host.owners.of(path_of(scope)) if scope["type"] == "http" else ""
        if (own := self.host.plugins.refusal(owner, error, failure)) is not None:
            await own(scope, receive, send)
            return
        status, body = standard_error(error, failure)
        answer = Fixed(to_json(body), status)
        answer.headers += failure.headers
        await _deny(answer, scope, receive, send)


def check_access(host: Host, scope: Mapping[str, Any]) -> None:
    """Raise unless this request may list pending calls and decide them by id alone.

    Without authentication, every tool of the agent that fetches addresses could decide, too.
    Therefore a loopback address requires the token that the start has printed (Unauthenticated),
    and other addresses refuse everybody (NoAuthentication).
    """
    assert isinstance(host, ServiceHost)
    if host.guarded:
        return
    if not is_loopback(host.config.server.host):
        raise NoAuthentication
    given = [value for name, value in scope["headers"] if name == b"authorization"]
    try:
        if len(given) != 1:
            needed = "the token that the service printed at its start is needed"
            raise Unauthenticated(needed, "malformed" if given else "missing")
        bearer({"": host.start_token.encode()}, given[0].decode("latin-1"))
    except Unauthenticated as error:
        # Without a path somebody only asks what the caller may see.
        if "path" in scope:
            report_refused(host, scope, error)
        raise


def entrance(host: ServiceHost, url: str) -> list[str]:
    """The address at which people decide, for the start lines of a service at `url`. Without
    authentication only the reader of these lines has the token."""
    page = f"console {url}{host.plugins.page}" if host.plugins.page else ""
    needed = host.plugins.decide_by_id and not host.guarded
    if not needed or not is_loopback(host.config.server.host):
        return [page] if page and host.guarded else []
    token = host.start_token
    return [f"{page}#token={token}" if page else f"the token to decide what waits: {token}"]


class WebPages:
    """Keeps foreign web pages out (design, section 6, "Web pages")."""

    def __init__(self, app: ASGIApp, host: ServiceHost) -> None:
        self.app = app
        server = host.config.server
        self.loopback = is_loopback(server.host)
        self.open = not self.loopback and not host.guarded
        """Whether everybody who reaches the service may use it, under any name."""
        self.pages = host.plugins.public_paths
        self.hosts = {form for name in server.hosts for form in (name, name.strip("[]"))}
        self.origins = set(server.cors_origins)
        self.serves = lru_cache(256)(self._serves)
        """Whether a request with this `Host` header is admitted."""

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        kind = scope["type"]
        if kind == "websocket" or (kind == "http" and (self.loopback or self.open)):
            host = origin = site = ""
            for name, value in scope["headers"]:
                if name == b"host":
                    host = value.decode("latin-1").lower()
                elif name == b"origin":
                    origin = value.decode("latin-1")
                elif name == b"sec-fetch-site":
                    site = value.decode("latin-1")
            if self.loopback and not self._known(host):
                message = f"this host name is not served; add it to server.hosts: {host[:100]!r}"
                await _deny(_refusal(421, message, "UNKNOWN_HOST"), scope, receive, send)
                return
            if kind == "websocket" and origin and not self._own(origin, host):
                message = "pages of this origin may not connect; see server.cors_origins"
                await _deny(_refusal(403, message, "FOREIGN_ORIGIN"), scope, receive, send)
                return
            if self.open and not (self._known(host) or is_address(_without_port(host))):
                if self._is_page(path_of(scope)):
                    message = f"pages are opened under a name in server.hosts: {host[:100]!r}"
                    await _deny(_refusal(421, message, "UNKNOWN_HOST"), scope, receive, send)
                    return
                if origin or site:
                    scope[FOREIGN] = True
        await self.app(scope, receive, send)

    def _is_page(self, path: str) -> bool:
        """Whether it is a plugin's page, or a path below one.

        A browser sends no origin when it opens a page, or reads from its own host.
        """
        return any(path == page or path.startswith(f"{page}/") for page in self.pages)

    def _serves(self, host: bytes) -> bool:
        known = not self.loopback or self._known(host.decode("latin-1").lower())
        return known and is_host(host)

    def _known(self, host: str) -> bool:
        name = _without_port(host)
        return not host or is_loopback(name) or name in self.hosts or host in self.hosts

    def _own(self, origin: str, host: str) -> bool:
        if "*" in self.origins or origin in self.origins:
            return True
        return host != "" and origin.partition("://")[2].lower() == host


def is_host(value: bytes) -> bool:
    """Whether `Host` may have this value (RFC 3986, section 3.2.2)."""
    return _HOST.fullmatch(value) is not None


def with_one_host(
    headers: list[tuple[bytes, bytes]], target: bytes, *, required: bool
) -> list[tuple[bytes, bytes]]:
    """The headers with the host of the request (RFC 9112, section 3.2); raises ValueError."""
    hosts = [value for name, value in headers if name == b"host"]
    if len(hosts) > 1 or (required and not hosts):
        raise ValueError("there is not one host")
    if b"://" in target and not target.startswith(b"/"):
        # The target's host takes precedence.
        hosts = [target.split(b"/", 3)[2]]
        headers = [header for header in headers if header[0] != b"host"]
        headers.append((b"host", hosts[0]))
    if not all(map(is_host, hosts)):
        raise ValueError("there is no such host")
    return headers


def _without_port(host: str) -> str:
    if host.startswith("["):
        return host[1:].partition("]")[0]
    # With a dot at the end it is the same name, fully qualified.
    return host.partition(":")[0].removesuffix(".")


@lru_cache(256)
def is_address(name: str) -> bool:
    """Whether `name` is an IP address, which cannot be redirected by a name service."""
    try:
        ipaddress.ip_address(name)
    except ValueError:
        return False
    return True


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
