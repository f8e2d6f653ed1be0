"""uvicorn in a thread, configured as by `sayso serve`."""

from __future__ import annotations

import asyncio
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

import uvicorn

from sayso.listener.listener import uvicorn_config
from sayso.service.ports import serves_on

if TYPE_CHECKING:
    from sayso.config import Config
    from sayso.http.asgi import App

_DRAIN = 2.0
_PATIENCE = 30.0


class _Server(uvicorn.Server):
    """A server whose start and end another thread waits for."""

    def __init__(self, app: App, config: Config) -> None:
        super().__init__(uvicorn_config(app, config))
        self._app = app
        self._loop: asyncio.AbstractEventLoop | None = None
        self._tried = threading.Event()
        self._failure: BaseException | None = None

    def live(self, listening: socket.socket) -> None:
        """Serve until `end`; an error that stops the start is kept for `wait_for_start`."""
        try:
            self.run([listening])
        except BaseException as error:
            self._failure = error
        finally:
            self._tried.set()

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Start the app, then report it."""
        await super().startup(sockets)
        self._loop = asyncio.get_running_loop()
        self._tried.set()

    def wait_for_start(self, seconds: float) -> None:
        """Return when the service listens; raise the error that stopped its start."""
        if not self._tried.wait(seconds):
            raise TimeoutError("the service did not start in time")
        if self._failure is not None:
            raise self._failure

    def end(self) -> None:
        """Let the turns end, then everything else."""
        if self._loop is None or self._loop.is_closed():
            self.should_exit = True
            return
        asyncio.run_coroutine_threadsafe(self._drain(), self._loop)

    async def _drain(self) -> None:
        try:
            await self._app.host.drain(_DRAIN)
        finally:
            self.should_exit = True


@contextmanager
def running(app: App, config: Config) -> Iterator[int]:
    """The port of 127.0.0.1 on which `app` is served within the block, by a thread of its own."""
    with socket.create_server(("127.0.0.1", 0), backlog=256) as listening:
        serves_on(listening)
        server = _Server(app, config)
        thread = threading.Thread(
            target=server.live, args=(listening,), name="sayso-served", daemon=True
        )
        thread.start()
        try:
            server.wait_for_start(config.server.start_timeout * 2 + _PATIENCE)
            yield listening.getsockname()[1]
        finally:
            server.end()
            thread.join(_DRAIN + _PATIENCE)
        if thread.is_alive():
            raise TimeoutError("the service did not end in time")
