"""`/metrics` for Prometheus, right with several workers.

On the service's own port it needs what every route needs of its caller; on a port of its own
(`port`) it needs nothing, and listens on `host`.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route, Router

from sayso import Host, Observer, Plugin, hookimpl, openapi_operation

if TYPE_CHECKING:
    from sayso_metrics.exposition import Exposition

__all__ = ["Metrics"]
_TYPE = "text/plain; version=0.0.4; charset=utf-8"
_PAUSE = 5.0


class Metrics(Plugin):
    """Metrics for Prometheus; active where the configuration names it."""

    name = "metrics"
    active_by_default = False
    _made: Exposition | None = None

    class Settings(Plugin.Settings):
        """The keys of `[plugin.metrics]`."""

        path: str = "/metrics"
        """The path of the metrics."""
        port: int | None = None
        """A port of its own for the metrics; absent: they are on the port of the service."""
        host: str = "127.0.0.1"
        """The address of that port. Nobody has to authenticate there."""

    def __init__(self, settings: Any = None) -> None:
        super().__init__(settings)
        # One process listens on the port; it reads the values of all.
        self.own_process = self.settings.port is not None  # type: ignore[misc]

    @hookimpl
    def observe(self, host: Host) -> Observer:
        """The observer that counts."""
        from sayso_metrics.folder import share_values

        folder = share_values(host.state_dir) if host.config.server.workers > 1 else None
        from sayso_metrics.exposition import Exposition

        self._made = Exposition(host, folder)
        return self._made.values

    @hookimpl
    def register_routes(self, host: Host) -> Router | None:
        """The route, without a port of its own."""
        return None if self.settings.port is not None else Router([self._route()])

    def openapi_paths(self, host: Host) -> Mapping[str, Mapping[str, Any]]:
        """The operation of the route."""
        scrape = openapi_operation(
            "Read the metrics",
            "The metrics of all workers, in the text form of Prometheus.",
            answers={"type": "string", "description": "One sample a line."},
            media="text/plain",
        )
        return {self.settings.path: {"get": scrape}}

    @hookimpl
    @asynccontextmanager
    async def resources(self, host: Host) -> AsyncIterator[None]:
        """Set the gauges of this process every few seconds: another one may answer a scrape."""
        assert self._made is not None
        values = self._made.values

        async def look() -> None:
            while True:
                values.look()
                await asyncio.sleep(_PAUSE)

        task = asyncio.ensure_future(look())
        try:
            yield
        finally:
            task.cancel()

    @hookimpl
    @asynccontextmanager
    async def lifespan(self, host: Host) -> AsyncIterator[None]:
        """Listen on the port of its own, if there is one."""
        if self.settings.port is None:
            yield
            return
        from sayso_metrics.port import served

        router = Router([self._route()])
        async with served(router, self.settings.host, self.settings.port):
            yield

    def _route(self) -> Route:
        async def answer(request: Request) -> Response:
            assert self._made is not None
            return Response(await self._made.text(), media_type=_TYPE)

        return Route(self.settings.path, answer, methods=["GET"])
