"""What answers at `/` where nothing else does: the way to a page, or the names of the endpoints."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from pydantic_core import to_json
from starlette.responses import Response
from starlette.routing import Match, Route, Router
from starlette.types import ASGIApp, Scope

from sayso.http.access import Fixed
from sayso.plugins.routes import claims, each_route


class Front(Route):
    """The route `/` of `router`, which gives way to every other one, whenever that is added.

    It leads to `page`, or else names the endpoints that there are now.
    """

    def __init__(self, router: Router, page: str | None) -> None:
        answer = Fixed(to_json({"endpoints": _endpoints(router)})) if page is None else _to(page)
        super().__init__("/", answer, methods=["GET"])
        self._router, self._page = router, page

    def matches(self, scope: Scope) -> tuple[Match, Scope]:
        """As of every route (Starlette), unless another one answers."""
        match, found = super().matches(scope)
        if match is Match.NONE or self._is_taken(scope):
            return Match.NONE, {}
        return match, found

    def leads(self, scope: Scope) -> bool:
        """Whether the answer to this request is the way to a page."""
        return self._page is not None and self.matches(scope)[0] is Match.FULL

    def _is_taken(self, scope: Scope) -> bool:
        others = (route for route in self._router.routes if route is not self)
        return any(route.matches(scope)[0] is not Match.NONE for route in others)


def has_front(routers: Iterable[Router]) -> bool:
    """Whether there is more to find than deprecated paths: a service of V1 alone has these and no
    other (interface.md, "What the service does")."""
    routes = [route for router in routers for _, _, route in each_route(router.routes)]
    endpoints = [getattr(route, "endpoint", None) for route in routes]
    return not all(getattr(endpoint, "deprecated", False) for endpoint in endpoints)


def _endpoints(router: Router) -> Sequence[str]:
    return [f"{method} {path}" for method, path in claims(router) if method not in ("HEAD", "*")]


def _to(page: str) -> ASGIApp:
    # The address is relative: the page may be below a path that a proxy takes off.
    return Response(status_code=307, headers={"location": page.lstrip("/")})
