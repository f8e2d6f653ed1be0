"""The paths of signing in and out."""

from __future__ import annotations

import base64
import hmac
import logging
from hashlib import sha256
from html import escape
from urllib.parse import quote

from pydantic_core import to_json
from starlette.requests import Request
from starlette.responses import RedirectResponse, Response

from sayso import Host, Principal, RequestError, standard_error
from sayso_jwt.web import is_safe
from sayso_oidc.attempt import LIFE, Attempt, local
from sayso_oidc.cookies import Place
from sayso_oidc.provider import Provider, SignInFailed, refused
from sayso_oidc.sessions import Sessions
from sayso_oidc.settings import OidcSettings

logger = logging.getLogger("sayso.oidc")
LOGIN = "/login"
CALLBACK = "/login/callback"
PROVIDER = "/login/provider"
LOGOUT = "/logout"
_STYLE = "body{font:1rem/1.5 system-ui,sans-serif;max-width:32rem;margin:4rem auto;padding:0 1rem}"
_HEADERS = {
    "cache-control": "no-store",
    "content-security-policy": (
        "default-src 'none'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'; "
        f"style-src 'sha256-{base64.b64encode(sha256(_STYLE.encode()).digest()).decode()}'"
    ),
    "referrer-policy": "no-referrer",
    "x-content-type-options": "nosniff",
}
_PAGE = """<!doctype html>
<html lang="en"><head><meta charset="utf-8"><title>Not signed in</title>
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="color-scheme" content="light dark"><style>{style}</style></head>
<body><h1>You are not signed in</h1><p>{why}</p>
<p><a href="{again}">Sign in again</a></p></body></html>
"""


class Endpoints:
    """The endpoints; each answers a person's browser."""

    def __init__(
        self, host: Host, settings: OidcSettings, provider: Provider, sessions: Sessions
    ) -> None:
        self._host = host
        self._settings = settings
        self._provider = provider
        self._sessions = sessions

    async def login(self, request: Request) -> Response:
        """Send the browser to the identity provider; `to` is the path to which it returns."""
        place = self._place(request)
        attempt = Attempt.new(local(request.query_params.get("to", "")))
        try:
            if not is_safe(place.url):
                raise SignInFailed("This address is not a safe one: set plugin.oidc.url.")
            way = await self._provider.way(attempt, f"{place.url}{CALLBACK}")
        except SignInFailed as error:
            return self._failed(request, attempt.to, error)
        response = RedirectResponse(way, 303, _HEADERS)
        place.set(response, _kind(attempt.state), attempt.cookie, LIFE)
        return response

    async def callback(self, request: Request) -> Response:
        """Take the identity provider's answer, and begin the session."""
        place, given = self._place(request), request.query_params
        state = given.get("state", "")
        attempt = Attempt.of_cookie(place.cookie(_kind(state)))
        try:
            _check_state(attempt, state)
            principal, id_token = await self._answered(place, attempt, request)
            session = await self._sessions.begin(principal, id_token)
            if before := place.cookie("session"):
                await self._sessions.end(before)
        except (SignInFailed, RequestError) as error:
            response = self._failed(request, attempt.to, error)
        else:
            response = RedirectResponse(_home(place, attempt.to), 303, _HEADERS)
            place.set(response, "session", session, self._settings.session)
        # The attempt ends here, however it went.
        place.forget(response, _kind(state))
        return response

    async def provider(self, request: Request) -> Response:
        """The name of the identity provider, and whether there are tokens beside it, for the
        page's form."""
        tokens = self._host.config.auth.scheme in ("bearer", "jwt")
        return _json({"name": self._provider.name, "tokens": tokens})

    async def logout(self, request: Request) -> Response:
        """End the session; `to` is where the browser goes then: to the provider if it has a
        sign-out."""
        place = self._place(request)
        try:
            place.refuse_foreign()
            # There the page begins, if the service has one.
            back = f"{place.path}/"
            to: str | None = None
            if (id_ := place.cookie("session")) and (found := await self._sessions.found(id_)):
                await self._sessions.end(id_)
                to = await self._provider.way_out(found.id_token, f"{place.origin}{back}")
        except RequestError as error:
            status, body = standard_error(error, self._host.failure(error))
            return _json(body, status)
        response = _json({"to": to or back})
        place.forget(response, "session")
        return response

    async def _answered(
        self, place: Place, attempt: Attempt, request: Request
    ) -> tuple[Principal, str]:
        given = request.query_params
        # Another provider may not pass its answer off as this one's (RFC 9207).
        if given.get("iss", self._provider.issuer) != self._provider.issuer:
            raise SignInFailed("The answer is of another identity provider.")
        if kind := given.get("error"):
            raise refused(kind, given.get("error_description"))
        if not (code := given.get("code")):
            raise SignInFailed("The answer of the identity provider has no code.")
        return await self._provider.signed_in(code, attempt, f"{place.url}{CALLBACK}")

    def _place(self, request: Request) -> Place:
        return Place(request.headers, request.scope, self._settings.url)

    def _failed(self, request: Request, to: str, error: Exception) -> Response:
        place, client = self._place(request), request.client
        reason = getattr(error, "reason", "unavailable")
        self._host.refused("oidc", reason, client.host if client is not None else None)
        logger.warning("somebody could not sign in: %s", error)
        again = f"{place.path}{LOGIN}?to={quote(to, safe='')}"
        text = _PAGE.format(style=_STYLE, why=escape(str(error)), again=escape(again))
        status = getattr(error, "status", 503)
        return Response(text, status, _HEADERS, "text/html; charset=utf-8")


def _check_state(attempt: Attempt, state: str) -> None:
    if not (attempt.secret and hmac.compare_digest(attempt.state.encode(), state.encode())):
        raise SignInFailed(
            "This sign-in was not begun in this browser, has been used, or took longer than "
            f"{LIFE // 60} minutes."
        )


def _home(place: Place, to: str) -> str:
    return f"{place.path}/" if to == "/" else to


def _kind(state: str) -> str:
    """The kind of cookie for an attempt: several tabs may sign in at once."""
    # Strangers send states, too, and not every character may stand in a cookie's name.
    return f"login-{sha256(state.encode()).hexdigest()[:16]}"


def _json(body: object, status: int = 200) -> Response:
    return Response(to_json(body), status, _HEADERS, "application/json")
