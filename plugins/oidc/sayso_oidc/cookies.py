"""The cookies of this service, and the requests for which they count."""

from __future__ import annotations

from collections.abc import Mapping
from hashlib import sha256
from typing import Any
from urllib.parse import urlsplit

from starlette.requests import cookie_parser
from starlette.responses import Response

from sayso import RequestError

_SAFE = ("GET", "HEAD", "OPTIONS")


class ForeignPage(RequestError):
    """403: the request comes from a page of another origin, whose cookies do not count."""

    status = 403
    code = "FOREIGN_ORIGIN"
    reason = "foreign_page"

    def __init__(self) -> None:
        super().__init__("only the service's own pages may use its session; sign in there")


class Place:
    """The address under which a browser has reached this service, and its cookies there.

    Cookies are shared by all ports of a host, so their names have a digest of the address.
    """

    def __init__(
        self, headers: Mapping[str, str], scope: Mapping[str, Any], url: str | None
    ) -> None:
        # Without a setting the service has a loopback address, and the core has checked the host.
        self.url = url or f"http://{headers.get('host', '')}{scope.get('root_path', '')}"
        parts = urlsplit(self.url)
        self.origin = f"{parts.scheme}://{parts.netloc}"
        self.path = parts.path
        self._secure = parts.scheme == "https"
        self._headers = headers
        self._scope = scope
        self._name = f"sayso-{sha256(self.url.encode()).hexdigest()[:8]}"

    def cookie(self, kind: str) -> str:
        """The text of the cookie of this kind; empty without one."""
        return cookie_parser(self._headers.get("cookie", "")).get(self._named(kind), "")

    def set(self, response: Response, kind: str, text: str, life: float) -> None:
        """Have the browser keep the cookie; no script, other host or plain connection gets it."""
        response.set_cookie(
            self._named(kind),
            text,
            max_age=int(life),
            secure=self._secure,
            httponly=True,
            samesite="lax",
        )

    def forget(self, response: Response, kind: str) -> None:
        """Have the browser forget the cookie."""
        self.set(response, kind, "", 0)

    def refuse_foreign(self) -> None:
        """Raise ForeignPage unless one of the service's own pages, or the person by hand, has sent
        the request; `SameSite` alone would let other hosts of the same domain in."""
        site = self._headers.get("sec-fetch-site")
        if site is not None:
            foreign = site not in ("same-origin", "none")
        else:
            # A browser without that header sends the origin with all that is not a plain look.
            looks = self._scope.get("method", "") in _SAFE
            foreign = not looks and self._headers.get("origin") != self.origin
        if foreign or self._headers.get("origin", self.origin) != self.origin:
            raise ForeignPage

    def _named(self, kind: str) -> str:
        # Other hosts of the domain cannot set a cookie of this prefix.
        return f"{'__Host-' if self._secure else ''}{self._name}-{kind}"
