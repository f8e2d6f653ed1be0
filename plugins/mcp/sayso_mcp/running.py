"""Starting and stopping the MCP server: on a port of its own, or on stdin and stdout."""

from __future__ import annotations

import asyncio
import errno
import logging
import os
import socket
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from typing import Any

import uvicorn
from mcp.server import sse

from sayso import ConfigError, Host, Http, PluginError
from sayso_mcp.service import Service
from sayso_mcp.stdio import StdioWire, serve_stdio
from sayso_mcp.web import PATHS, QUIET, Streams, web_app

logger = logging.getLogger("sayso.mcp")
_WAYS = "with plugin.mcp.port, mcp_port, --mcp-port, or --port of sayso mcp"
_MARGIN = 5.0


@asynccontextmanager
async def beside(host: Host, settings: Any) -> AsyncIterator[str]:
    """Run the MCP server while the body runs; yields the address that clients connect to.

    Raises PluginError if the port is taken. At the end new calls are refused, running ones get the
    drain time, and then every open stream is closed.
    """
    _keep_logging()
    service = Service(host, settings)
    if settings.transport == "stdio":
        async with _stdio(service):
            yield "stdio"
        return
    address = _address(host, settings)
    with bind(address, settings.port) as listening:
        server = service.server(one_session=settings.transport == "sse")
        async with web_app(host, settings, server, address) as app:
            serving = await _started(app, host, listening)
            try:
                yield _url(listening, PATHS[settings.transport])
            finally:
                await _stop(service, app, *serving)


def _address(host: Host, settings: Any) -> str:
    return host.config.server.host if settings.host is None else settings.host


def _keep_logging() -> None:
    """Keep the root logger without a handler. The SDK calls `logging.debug` when a client leaves,
    which would install one and change the format of the log."""
    sse.logging = logging.getLogger(sse.__name__)  # type: ignore[assignment, attr-defined]
    if not logging.getLogger().handlers:
        for handler in logging.getLogger("sayso").handlers:
            logging.getLogger("mcp").addHandler(handler)


def check_port(host: Host, settings: Any) -> None:
    """Raise ConfigError if the service itself uses the port, also as `server.port`. The two may
    listen on different addresses."""
    try:
        _listening(_address(host, settings), settings.port).close()
    except OSError as error:
        if error.errno == errno.EADDRINUSE:
            raise ConfigError(
                f"plugin.mcp.port is {settings.port}, as server.port is; choose another {_WAYS}"
            ) from error


def bind(host: str, port: int) -> socket.socket:
    """A listening socket; a PluginError of one line if it cannot be opened."""
    try:
        listening = _listening(host, port)
    except OSError as error:
        where = f"port {port} of {host}"
        if error.errno == errno.EADDRINUSE:
            cause = f"{where} is in use; stop what listens there, or choose another {_WAYS}"
        else:
            cause = f"{where} cannot be listened on: {error.strerror or error}; see plugin.mcp.host"
        raise PluginError(f"plugin 'mcp': {cause}") from error
    listening.setblocking(False)
    Http.serves_on(listening)
    return listening


def _listening(host: str, port: int) -> socket.socket:
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    # The protocol is given explicitly: asyncio sets TCP_NODELAY, which sends small events at once,
    # only on sockets whose protocol says TCP.
    listening = socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listening.bind((host, port))
        listening.listen(2048)
    except OSError:
        listening.close()
        raise
    return listening


def _url(listening: socket.socket, path: str) -> str:
    host, port = listening.getsockname()[:2]
    name = {"0.0.0.0": "127.0.0.1", "::": "[::1]"}.get(host, f"[{host}]" if ":" in host else host)
    return f"http://{name}:{port}{path}"


class _Beside(uvicorn.Server):
    """A server that leaves the process's signals alone."""

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield


async def _started(
    app: Streams, host: Host, listening: socket.socket
) -> tuple[_Beside, asyncio.Task[None]]:
    config = uvicorn.Config(
        app,
        http=Http,
        lifespan="off",
        ws="none",
        log_config=None,
        server_header=False,
        access_log=host.config.server.log_level == "debug",
        proxy_headers="FORWARDED_ALLOW_IPS" in os.environ and host.config.auth.scheme != "proxy",
        timeout_keep_alive=host.config.server.timeout_keep_alive,
        timeout_graceful_shutdown=2,
    )
    server = _Beside(config)
    task = asyncio.create_task(server.serve(sockets=[listening]))
    while not server.started:
        done, _ = await asyncio.wait([task], timeout=0.01)
        if done:
            await task
            raise PluginError("plugin 'mcp': the MCP server ended at its start")
    return server, task


async def _stop(service: Service, app: Streams, server: _Beside, task: asyncio.Task[None]) -> None:
    await _drained(service)
    await app.settle()
    app.end()
    server.should_exit = True
    await asyncio.wait([task])
    if (error := task.exception()) is not None:
        logger.error("the MCP server did not end in order", exc_info=error)


async def _drained(service: Service) -> None:
    """Let running calls end that the host's drain did not wait for; the time for a plugin's
    shutdown is limited."""
    bound = max(service.host.config.server.start_timeout - _MARGIN, 0.0)
    await service.drain(min(service.host.time_to_end(), bound))


@asynccontextmanager
async def _stdio(service: Service) -> AsyncIterator[None]:
    task = asyncio.create_task(serve_stdio(service, StdioWire.claim()))
    try:
        yield
    finally:
        await _drained(service)
        await asyncio.sleep(QUIET)
        task.cancel()
        await asyncio.wait([task])
        if not task.cancelled() and (error := task.exception()) is not None:
            logger.error("MCP over stdio ended with an error", exc_info=error)
