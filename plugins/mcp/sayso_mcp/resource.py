"""The MCP server as an OAuth resource: clients find the issuers of its tokens (RFC 9728)."""

from __future__ import annotations

from typing import Any

from starlette.requests import Request
from starlette.responses import JSONResponse
from starlette.types import ASGIApp, Receive, Scope, Send

from sayso import Host

WELL_KNOWN = "/.well-known/oauth-protected-resource"
_HEADERS = {"cache-control": "public, max-age=300", "access-control-allow-origin": "*"}


class Resource:
    """The metadata of the server whose endpoint is `path`, for clients."""

    def __init__(self, host: Host, settings: Any, path: str) -> None:
        self._path = path
        self._name = host.agent.name
        self._url: str | None = settings.url
        self._servers: list[str] = settings.authorization_servers or _issuers(host)

    @property
    def is_there(self) -> bool:
        """Whether there is an issuer that clients could ask for tokens."""
        return bool(self._servers)

    def challenge(self, scope: Scope) -> str:
        """The value of `WWW-Authenticate` for a request without a valid token."""
        if not self.is_there:
            return "Bearer"
        request = Request(scope)
        where = f"{self._root(request)}{WELL_KNOWN}{self._path}"
        wrong = 'error="invalid_token", ' if "authorization" in request.headers else ""
        return f'Bearer {wrong}resource_metadata="{where}"'

    def metadata(self, request: Request) -> dict[str, Any]:
        """The metadata of the resource (RFC 9728, section 2)."""
        return {
            "resource": f"{self._root(request)}{self._path}",
            "authorization_servers": self._servers,
            "bearer_methods_supported": ["header"],
            "resource_name": self._name,
        }

    def _root(self, request: Request) -> str:
        if self._url is not None:
            return self._url.removesuffix("/").removesuffix(self._path)
        # The `Host` header was checked against the known names.
        return f"{request.url.scheme}://{request.url.netloc}"

    def described(self, app: ASGIApp) -> ASGIApp:
        """`app`, with the metadata in front of it, which is public."""
        paths = (WELL_KNOWN, f"{WELL_KNOWN}{self._path}")

        async def described(scope: Scope, receive: Receive, send: Send) -> None:
            answer = app
            if scope["path"] in paths and scope["method"] in ("GET", "HEAD"):
                answer = JSONResponse(self.metadata(Request(scope)), headers=_HEADERS)
            await answer(scope, receive, send)

        return described if self.is_there else app


def _issuers(host: Host) -> list[str]:
    """The issuer whose tokens `[auth]` takes, if it is one."""
    auth = host.config.auth
    return [auth.jwt.issuer] if auth.scheme == "jwt" and auth.jwt.issuer else []
