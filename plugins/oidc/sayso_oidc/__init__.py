"""People sign in to the service's pages at an identity provider (OpenID Connect).

    GET  /login             the way to the provider; `to` is the path to which the browser returns
    GET  /login/callback    the provider's answer: the browser gets its session, a cookie
    GET  /login/provider    {"name", "tokens"}, for the form with "Sign in with ..."
    POST /logout            ends the session: {"to"} is where the browser goes then

design, section 6, "People".
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from functools import partial
from typing import Any

from starlette.routing import Route, Router

from sayso import (
    Host,
    KeptBeside,
    Plugin,
    PluginError,
    Principal,
    Removed,
    Subject,
    hookimpl,
)
from sayso_oidc.cookies import Place
from sayso_oidc.endpoints import CALLBACK, LOGIN, LOGOUT, PROVIDER, Endpoints
from sayso_oidc.provider import Provider
from sayso_oidc.sessions import Sessions, erase
from sayso_oidc.settings import OidcSettings

__all__ = ["Oidc"]


class Oidc(Plugin):
    """Names the caller by the session cookie; active when named in `plugins` or configured."""

    name = "oidc"
    active_by_default = False
    # The provider's answer, and the way to it, need no principal yet.
    signed_paths = (LOGIN, CALLBACK, PROVIDER, LOGOUT)

    class Settings(OidcSettings):
        """`[plugin.oidc]`."""

    settings: Settings

    def __init__(self, settings: Any = None) -> None:
        super().__init__(settings)
        self._sessions: Sessions | None = None

    @hookimpl
    def register_routes(self, host: Host) -> Router | None:
        """The paths of signing in and out."""
        if _lacking(host, self.settings):
            # The lifespan stops the start.
            return None
        provider = Provider(host.config, self.settings)
        endpoints = Endpoints(host, self.settings, provider, self._made(host))
        return Router(
            [
                Route(LOGIN, endpoints.login, methods=["GET"]),
                Route(CALLBACK, endpoints.callback, methods=["GET"]),
                Route(PROVIDER, endpoints.provider, methods=["GET"]),
                Route(LOGOUT, endpoints.logout, methods=["POST"]),
            ]
        )

    def openapi_paths(self, host: Host) -> Mapping[str, Mapping[str, Any]]:
        """The operations of this plugin's routes."""
        from sayso_oidc.described import openapi_paths

        return openapi_paths(LOGIN, CALLBACK, PROVIDER, LOGOUT)

    @hookimpl
    @asynccontextmanager
    async def lifespan(self, host: Host) -> AsyncIterator[None]:
        """Stop the start if a setting is missing."""
        if lacking := _lacking(host, self.settings):
            raise PluginError(f"plugin 'oidc': set {', '.join(lacking)}")
        yield

    @hookimpl
    async def authenticate(
        self, headers: Mapping[str, str], scope: Mapping[str, Any], host: Host
    ) -> Principal | None:
        """The principal of the session that the request's cookie names; None without one, and for
        requests with credentials of another kind. Raises ForeignPage."""
        if "authorization" in headers or "cookie" not in headers:
            return None
        place = Place(headers, scope, self.settings.url)
        if not (id_ := place.cookie("session")):
            return None
        place.refuse_foreign()
        found = await self._made(host).found(id_)
        return None if found is None else found.principal

    @hookimpl
    async def erase_subject(self, subject: Subject, kept: KeptBeside) -> Removed:
        """End the sessions."""
        return Removed("session", await kept.notes(partial(erase, subject=subject)))

    def _made(self, host: Host) -> Sessions:
        if self._sessions is None:
            self._sessions = Sessions(host, self.settings.session)
        return self._sessions


def _lacking(host: Host, settings: OidcSettings) -> list[str]:
    """The settings that are needed and missing."""
    lacking = [] if host.config.auth.jwt.issuer else ["auth.jwt.issuer"]
    lacking += [] if settings.client_id else ["plugin.oidc.client_id"]
    near = host.config.server.host in ("127.0.0.1", "::1", "localhost")
    return lacking if settings.url or near else [*lacking, "plugin.oidc.url"]
