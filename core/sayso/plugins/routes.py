"""The routes of plugins, and conflicts between the claims of two plugins."""

from __future__ import annotations

import re
import sys
from collections.abc import Collection, Iterator, Sequence
from functools import cached_property
from typing import TYPE_CHECKING, Any

from sayso.errors import PluginError
from sayso.plugins.implementations import ONE_TOO_MANY

if TYPE_CHECKING:
    from starlette.routing import BaseRoute, Router

    from sayso.hosting import Host
    from sayso.plugins.implementations import Impl

OWN = ("/health", "/ready")
"""The paths that the core answers with GET, before all others."""

DOCS = ("/docs", "/docs/oauth2-redirect", "/openapi.json")
"""Further paths that it answers if `server.docs` is true."""

LOST_MIDDLEWARE = (
    "a Starlette Router's middleware is not its routes'; mount the router, "
    "Mount('/path', app=router), or give each Route its own"
)
_CORE = "sayso itself"
_ANY, _WEBSOCKET, _MOUNT = "*", "WEBSOCKET", "MOUNT"
_PARAMETER = re.compile(r"\{[^}]*\}")


def collect_routes(
    implementations: Sequence[Impl], host: Host, timeout: float
) -> tuple[tuple[str, Router], ...]:
    """Each plugin's router with its name. Raises PluginError if two claim one route, or if one
    covers a route of another."""
    routers = []
    docs = DOCS if host.config.server.docs else ()
    own = [Claim("GET", path, _CORE) for path in (*OWN, *docs)]
    claimed: list[Claim] = []
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
            claim = Claim(method, path, impl.plugin)
            before = [(one, claim) for one in (*own, *claimed)]
            # The winning route would depend on plugin order.
            for wide, narrow in (*before, *((claim, one) for one in claimed)):
                if wide.covers(narrow):
                    raise PluginError(f"{_conflict(wide, narrow)}; {_way_out(wide)}")
            claimed.append(claim)
        routers.append((impl.plugin, router))
    return tuple(routers)


def _conflict(wide: Claim, narrow: Claim) -> str:
    if wide.shape != narrow.shape:
        return f"{wide} of plugin {wide.owner!r} covers {narrow} of plugin {narrow.owner!r}"
    method = wide.method if narrow.method == _ANY else narrow.method
    return f"{method} {narrow.path} is claimed by {wide.owner!r} and by plugin {narrow.owner!r}"


def _way_out(wide: Claim) -> str:
    if wide.owner != _CORE:
        return ONE_TOO_MANY
    return "give it another path" + (", or set server.docs = false" if wide.path in DOCS else "")


class Claim:
    """A method and path, or a mount path, and the plugin that claims it."""

    def __init__(self, method: str, path: str, owner: str) -> None:
        from starlette.routing import compile_path

        self.method, self.path, self.owner = method, path, owner
        whole = f"{path}/{{path:path}}" if method == _MOUNT else path
        # Paths that match the same requests have one shape.
        self.shape = _PARAMETER.sub("{}", whole)
        self._sample = _PARAMETER.sub("x", whole)
        self._pattern = compile_path(whole)[0] if "{" in whole else None

    def __str__(self) -> str:
        return f"{self.method} {self.path}"

    @property
    def is_wide(self) -> bool:
        """Whether it is of several paths."""
        return self._pattern is not None

    def matches(self, path: str) -> bool:
        """Whether a wide claim is of this path, too."""
        return self._pattern is not None and self._pattern.match(path) is not None

    def covers(self, other: Claim) -> bool:
        """Whether this claim, if it came first, would answer requests for `other`, which belongs to
        another owner."""
        if self.owner == other.owner or not _overlap(self.method, other.method):
            return False
        if self.shape == other.shape:
            return True
        return self.matches(other._sample)


class Owners:
    """The plugins by the paths of their routes."""

    def __init__(self, routers: Sequence[tuple[str, Router]]) -> None:
        self._routers = routers

    def of(self, path: str) -> str:
        """The plugin that has a route for this path; empty if none has."""
        return self._exact.get(path) or next(
            (claim.owner for claim in self._wide if claim.matches(path)), ""
        )

    @cached_property
    def _claims(self) -> list[Claim]:
        return [Claim(*one, name) for name, router in self._routers for one in claims(router)]

    @cached_property
    def _exact(self) -> dict[str, str]:
        return {claim.path: claim.owner for claim in self._claims}

    @cached_property
    def _wide(self) -> list[Claim]:
        return [claim for claim in self._claims if claim.is_wide]


def _overlap(one: str, other: str) -> bool:
    both = {one, other}
    return len(both) == 1 or _MOUNT in both or (_ANY in both and _WEBSOCKET not in both)


def claims(router: Router) -> Iterator[tuple[str, str]]:
    """Each method and path of `router`; WEBSOCKET and MOUNT count as methods, `*` is any other."""
    from starlette.routing import Mount, WebSocketRoute

    for path, methods, route in each_route(router.routes):
        if path is None:
            continue
        if methods is None:
            kinds = ((_WEBSOCKET, WebSocketRoute), (_MOUNT, Mount))
            methods = {next((name for name, kind in kinds if isinstance(route, kind)), _ANY)}
        for method in sorted(methods):
            yield method, path


def each_route(
    routes: Sequence[BaseRoute],
) -> Iterator[tuple[str | None, Collection[str] | None, Any]]:
    """Path, methods and route of each, including FastAPI's nested routers."""
    if (fastapi := sys.modules.get("fastapi.routing")) is not None:
        for each in fastapi.iter_route_contexts(routes):
            yield each.path, each.methods, each.original_route
        return
    # FastAPI was not imported, so none of the routes is FastAPI's.
    for route in routes:
        yield getattr(route, "path", None), getattr(route, "methods", None), route


def is_api_router(router: Router) -> bool:
    """Whether `router` is FastAPI's, found out without importing it."""
    fastapi = sys.modules.get("fastapi")
    return fastapi is not None and isinstance(router, fastapi.APIRouter)


def loses_middleware(router: Router) -> bool:
    """Whether `router` has middleware, perhaps to keep callers out, that its routes would lack on
    their own."""
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
