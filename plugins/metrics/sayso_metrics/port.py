"""A port of its own for the metrics."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager

import uvicorn
from starlette.routing import Router

from sayso import Http, PluginError


class _Beside(uvicorn.Server):
    """A server that leaves the process's signals alone."""

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield


@asynccontextmanager
async def served(router: Router, host: str, port: int) -> AsyncIterator[None]:
    """Serve `router` there for as long as the block lasts; raises PluginError if that fails."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    with socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP) as listening:
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            listening.bind((host, port))
        except OSError as error:
            raise PluginError(
                f"plugin 'metrics': port {port} of {host} cannot be listened on: "
                f"{error.strerror or error}; choose another plugin.metrics.port"
            ) from error
        listening.setblocking(False)
        Http.serves_on(listening)
        config = uvicorn.Config(
            router, http=Http, lifespan="off", ws="none", log_config=None, server_header=False
        )
        server = _Beside(config)
        task = asyncio.create_task(server.serve(sockets=[listening]))
        try:
            yield
        finally:
            server.should_exit = True
            await task
