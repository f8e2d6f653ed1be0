"""The answer at `/` if no other route has it: a redirect to a page, or the names of the
endpoints."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from pydantic_core import to_json
from starlette.responses import Response
from starlette.routing import Match, Route, Router
from starlette.types import ASGIApp, Scope

from sayso.http.access import Fixed
from sayso.plugins.routes import claims, each_route


class Front(Route):
    """The route `/` of `router`, which gives way to every other route, whenever that is added.

    It leads to `page`, or lists the current endpoints.
    """

    def __init__(self, router: Router, page: str | None) -> None:
        answer = Fixed(to_json({"endpoints": _endpoints(router)})) if page is None else _to(page)
        super().__init__("/", answer, methods=["GET"])
        self._router, self._page = router, page

    def matches(self, scope: Scope) -> tuple[Match, Scope]:
        """Starlette's match of a route, unless another route answers."""
        match, found = super().matches(scope)
        if match is Match.NONE or self._is_taken(scope):
            return Match.NONE, {}
        return match, found

    def leads(self, scope: Scope) -> bool:
        """Whether the answer to this request leads to a page."""
        return self._page is not None and self.matches(scope)[0] is Match.FULL

    def _is_taken(self, scope: Scope) -> bool:
        others = (route for route in self._router.routes if route is not self)
        return any(route.matches(scope)[0] is not Match.NONE for route in others)


def has_front(routers: Iterable[Router]) -> bool:
    """Whether there are paths that are not deprecated: a service of V1 alone has only deprecated
    ones (interface.md, "What the service does")."""
    routes = [route for router in routers for _, _, route in each_route(router.routes)]
    endpoints = [getattr(route, "endpoint", None) for route in routes]
    return not all(getattr(endpoint, "deprecated", False) for endpoint in endpoints)


def _endpoints(router: Router) -> Sequence[str]:
    return [f"{method} {path}" for method, path in claims(router) if method not in ("HEAD", "*")]


def _to(page: str) -> ASGIApp:
    # A relative address: the page may be below a prefix that a proxy removes.
    return Response(status_code=307, headers={"location": page.lstrip("/")})
