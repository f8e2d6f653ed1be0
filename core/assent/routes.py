"""The routes of plugins, and what two of them may not both claim."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from functools import partial
from typing import TYPE_CHECKING

from assent.deadlines import Overdue, bounded
from assent.errors import PluginError, StartupError
from assent.implementations import MEND

if TYPE_CHECKING:
    from fastapi import APIRouter
    from starlette.routing import Router

    from assent.host import Host
    from assent.implementations import Impl

OWN = {("GET", "/health"): "assent itself", ("GET", "/ready"): "assent itself"}
"""The routes of the core, which no plugin may claim."""

_ANY = "*"
_APART = {"WEBSOCKET", "MOUNT"}
"""What no method of HTTP is."""
_PARAMETER = re.compile(r"\{[^}]*\}")


def collect_routes(
    implementations: Sequence[Impl], host: Host, timeout: float
) -> tuple[tuple[str, APIRouter], ...]:
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
                    f"{impl.described}: a route of its router has no path; write '/' or more, or "
                    "give the router a prefix"
                )
            if (other := claimed.add(method, path, impl.plugin)) is not None:
                taken, owner = other
                raise PluginError(
                    f"{taken} {path} is claimed by {owner!r} and by plugin {impl.plugin!r}; "
                    "take one of them out of the configuration"
                )
        routers.append((impl.plugin, router))
    return tuple(routers)


class Claimed:
    """Which methods of which paths are whose; paths that match alike are one."""

    def __init__(self) -> None:
        self._owners: dict[str, list[tuple[str, str]]] = {}

    def add(self, method: str, path: str, owner: str) -> tuple[str, str] | None:
        """Claim the route for `owner`; where another has it: a method of which, and who."""
        known = self._owners.setdefault(nameless(path), [])
        for theirs, other in known:
            if other != owner and _overlap(method, theirs):
                return theirs if method == _ANY else method, other
        known.append((method, owner))
        return None


def _overlap(one: str, other: str) -> bool:
    return one == other or (_ANY in (one, other) and not {one, other} & _APART)


def nameless(path: str) -> str:
    """`path` with its parameters' names left out: paths that are equal then match alike."""
    return _PARAMETER.sub("{}", path)


def claims(router: Router) -> Iterator[tuple[str, str]]:
    """Each method and path of `router`; WEBSOCKET and MOUNT count as methods, `*` is any other."""
    from fastapi.routing import iter_route_contexts
    from starlette.routing import Mount, WebSocketRoute

    for route in iter_route_contexts(router.routes):
        if route.path is None:
            continue
        methods = route.methods
        if methods is None:
            kinds = (("WEBSOCKET", WebSocketRoute), ("MOUNT", Mount))
            named = (name for name, kind in kinds if isinstance(route.original_route, kind))
            methods = {next(named, _ANY)}
        for method in sorted(methods):
            yield method, route.path


def _router(impl: Impl, host: Host, timeout: float) -> APIRouter | None:
    from fastapi import APIRouter

    try:
        router = bounded(timeout, partial(impl.now, host=host))
    except Overdue:
        raise PluginError(
            f"{impl.described}: register_routes did not return within {timeout:g} seconds "
            f"(server.start_timeout); {MEND}"
        ) from None
    except StartupError as error:
        raise PluginError(f"{impl.described}: {error}") from error
    except (Exception, SystemExit) as error:
        raise PluginError(
            f"{impl.described}: register_routes raised {type(error).__name__}: {error}; {MEND}"
        ) from error
    if router is None or isinstance(router, APIRouter):
        return router
    raise PluginError(
        f"{impl.described}: register_routes returned {type(router).__name__}; "
        "return a fastapi.APIRouter, or None"
    )
