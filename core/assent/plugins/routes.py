"""The routes of plugins, and what two plugins may not both claim."""

from __future__ import annotations

import re
import sys
from collections.abc import Collection, Iterator, Sequence
from typing import TYPE_CHECKING, Any

from assent.errors import PluginError
from assent.plugins.implementations import ONE_TOO_MANY

if TYPE_CHECKING:
    from starlette.routing import BaseRoute, Router

    from assent.host import Host
    from assent.plugins.implementations import Impl

OWN = {("GET", "/health"): "assent itself", ("GET", "/ready"): "assent itself"}
"""The routes of the core, which no plugin may claim."""

LOST_MIDDLEWARE = (
    "a Starlette Router's middleware is not its routes'; mount the router, "
    "Mount('/path', app=router), or give each Route its own"
)
_ANY = "*"
_APART = {"WEBSOCKET", "MOUNT"}
"""What no method of HTTP is."""
_PARAMETER = re.compile(r"\{[^}]*\}")


def collect_routes(
    implementations: Sequence[Impl], host: Host, timeout: float
) -> tuple[tuple[str, Router], ...]:
    """Each plugin's router with its name; raises PluginError when two claim one route."""
    routers = []
    claimed = Claimed()
    for (method, path), owner in OWN.items():
        claimed.add(method, path, owner)
    for impl in implementations:
        router = _router(impl, host, timeout)
        if router is None:
            continue
        for method, path in claims(router):
            if not path:
                raise PluginError(
                    f"{impl.described}: a route of its router has no path, or a Mount that of all, "
                    "'/'; write '/' for a route, give the router a prefix, or mount at '/name'"
                )
            if (other := claimed.add(method, path, impl.plugin)) is not None:
                taken, owner = other
                raise PluginError(
                    f"{taken} {path} is claimed by {owner!r} and by plugin {impl.plugin!r}; "
                    f"{ONE_TOO_MANY}"
                )
        routers.append((impl.plugin, router))
    return tuple(routers)


class Claimed:
    """The owner of each method and path; paths that match alike are one."""

    def __init__(self) -> None:
        self._owners: dict[str, list[tuple[str, str]]] = {}

    def add(self, method: str, path: str, owner: str) -> tuple[str, str] | None:
        """Claim the route for `owner`; where another has it: a method of which, and who."""
        known = self._owners.setdefault(_PARAMETER.sub("{}", path), [])
        for theirs, other in known:
            if other != owner and _overlap(method, theirs):
                return theirs if method == _ANY else method, other
        known.append((method, owner))
        return None


def _overlap(one: str, other: str) -> bool:
    return one == other or (_ANY in (one, other) and not {one, other} & _APART)


def claims(router: Router) -> Iterator[tuple[str, str]]:
    """Each method and path of `router`; WEBSOCKET and MOUNT count as methods, `*` is any other."""
    from starlette.routing import Mount, WebSocketRoute

    for path, methods, route in each_route(router.routes):
        if path is None:
            continue
        if methods is None:
            kinds = (("WEBSOCKET", WebSocketRoute), ("MOUNT", Mount))
            methods = {next((name for name, kind in kinds if isinstance(route, kind)), _ANY)}
        for method in sorted(methods):
            yield method, path


def each_route(
    routes: Sequence[BaseRoute],
) -> Iterator[tuple[str | None, Collection[str] | None, Any]]:
    """Path, methods and route of each, those of FastAPI's nested routers among them."""
    if (fastapi := sys.modules.get("fastapi.routing")) is not None:
        for each in fastapi.iter_route_contexts(routes):
            yield each.path, each.methods, each.original_route
        return
    # Nobody imported FastAPI, so none of the routes is FastAPI's.
    for route in routes:
        yield getattr(route, "path", None), getattr(route, "methods", None), route


def is_api_router(router: Router) -> bool:
    """Whether `router` is FastAPI's, which is not imported to tell."""
    fastapi = sys.modules.get("fastapi")
    return fastapi is not None and isinstance(router, fastapi.APIRouter)


def loses_middleware(router: Router) -> bool:
    """Whether `router` has middleware, perhaps to keep callers out, that its routes lack alone."""
    return not is_api_router(router) and router.middleware_stack != router.app


def _router(impl: Impl, host: Host, timeout: float) -> Router | None:
    from starlette.routing import Router

    router = impl.at_start(timeout, host=host)
    if router is None:
        return None
    if not isinstance(router, Router):
        raise PluginError(
            f"{impl.described}: register_routes returned {type(router).__name__}; "
            "return a fastapi.APIRouter, a starlette Router, or None"
        )
    if loses_middleware(router):
        raise PluginError(f"{impl.described}: {LOST_MIDDLEWARE}")
    return router
