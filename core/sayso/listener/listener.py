"""The HTTP and WebSocket listener: uvicorn, drained before it closes anything."""

from __future__ import annotations

import asyncio
import gc
import logging
import os
import signal
import socket
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from time import monotonic
from typing import TYPE_CHECKING, Any, Literal

import uvicorn

from sayso.listener.protocol import CLOSING, Http
from sayso.service.life import GivenUp, Life
from sayso.service.ports import BACKLOG
from sayso.service.signals import answered, nothing

if TYPE_CHECKING:
    from sayso.config import Config
    from sayso.service.place import Place

logger = logging.getLogger("sayso.server")

LATE = 1
"""Seconds beyond its timeout that a drain is waited for."""
TAKEN = 0.1
"""Seconds for a connection accepted at the very end to send its request."""
QUIET = 1.0
"""Seconds without a request after which a replaced worker closes its connections. A busy connection
would otherwise be closed just as a request arrives, which would then be refused."""
SPARE = 16 * 2**20
"""A WebSocket frame over `limits.frame` is answered with an error; one over it by this many bytes
ends the connection, so that nobody can fill the memory."""


class _Config(uvicorn.Config):
    def load(self) -> None:
        super().load()
        self.lifespan_class = lambda config: Life(config.loaded_app)


def uvicorn_config(app: Any, config: Config) -> uvicorn.Config:
    """uvicorn's configuration for Sayso: httptools, uvloop, no access log below `debug`."""
    server = config.server
    debug = server.log_level == "debug"
    return _Config(
        app,
        host=server.host,
        port=server.port,
        loop="auto",
        http=Http,
        ws=_websocket_protocol(),
        ws_max_size=config.limits.frame + SPARE,
        ws_ping_interval=server.ws_ping_interval,
        ws_ping_timeout=server.ws_ping_timeout,
        ws_per_message_deflate=False,
        lifespan="on",
        log_config=None,
        log_level=None,
        access_log=debug,
        interface="asgi3",
        # If the proxy names the callers, the address of the proxy itself must be kept.
        proxy_headers="FORWARDED_ALLOW_IPS" in os.environ and config.auth.scheme != "proxy",
        server_header=False,
        timeout_keep_alive=server.timeout_keep_alive,
        timeout_graceful_shutdown=CLOSING,
        workers=1,
    )


def _websocket_protocol() -> type[asyncio.Protocol] | Literal["none"]:
    """A service without a plugin that speaks WebSocket needs no `websockets` installed."""
    try:
        from sayso.listener.frames import WebSocket
    except ImportError:
        return "none"
    return WebSocket


class Listener(uvicorn.Server):
    """uvicorn's server that ends the turns before it closes a connection.

    The first SIGTERM, SIGINT or SIGHUP, and the end of the supervisor, drain `app.host` for up to
    `drain_timeout` seconds. Only then does uvicorn's own shutdown run, which closes WebSockets
    first (design, section 9). A SIGINT after that ends the process at once. With `lame_duck` a
    SIGTERM has the service go on for so many seconds, and close its port before it drains.

    It listens on the first of `sockets`, or as directed by the supervisor of its `place`. A worker
    directed to listen on none is being replaced: it still serves everybody who has reached it, and
    drains.
    """

    def __init__(
        self,
        config: uvicorn.Config,
        sockets: Sequence[socket.socket],
        *,
        drain_timeout: float,
        on_ready: Callable[[], object],
        place: Place | None = None,
        lame_duck: float = 0.0,
    ) -> None:
        super().__init__(config)
        self._sockets = sockets
        self._drain_timeout = drain_timeout
        self._lame_duck = lame_duck
        self._leaving: asyncio.Task[None] | None = None
        self._closed = False
        self._on_ready = on_ready
        self._place = place
        self._open: dict[int, asyncio.Server] = {}
        self._in_turn = asyncio.Lock()
        self._moves: set[asyncio.Task[None]] = set()
        self._draining: asyncio.Task[None] | None = None
        self.broke_off = False
        """Whether the app ended before anybody stopped it."""

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Handle signals on the loop, where the drain runs, and leave no handler behind."""
        if threading.current_thread() is not threading.main_thread():
            yield
            return
        calls = {signal.SIGTERM: self._terminate, signal.SIGINT: self._interrupt}
        if self._place is None and signal.getsignal(signal.SIGHUP) == signal.SIG_DFL:
            # The terminal was closed, and nohup is not in use.
            calls[signal.SIGHUP] = self.stop
        elif self._place is not None:
            # A terminal sends these to the whole group; the supervisor decides on their meaning.
            calls |= {signal.SIGINT: nothing, signal.SIGHUP: nothing}
            asyncio.get_running_loop().add_reader(self._place.link, self._follow, self._place)
        with answered(calls):
            yield
        if self._place is not None:
            signal.signal(signal.SIGINT, signal.SIG_IGN)

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Start the app, then exclude the start's objects from every later garbage collection."""
        try:
            await super().startup([])
        except GivenUp:
            return
        self.lifespan.on_end(self._app_ended)
        await self._listen({self._place.own if self._place else 0})
        gc.collect()
        gc.freeze()
        self._on_ready()

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """Accept no new connection; one that was just accepted still gets its answer."""
        await self._close_port()
        await asyncio.sleep(TAKEN)
        await super().shutdown(sockets)

    def stop(self) -> None:
        """Begin to end: refuse new turns, let the running ones finish, then close everything."""
        if self._draining is None:
            self._draining = asyncio.get_running_loop().create_task(self._drain())

    def _terminate(self) -> None:
        if self._lame_duck and self.started and self._leaving is None:
            self._leaving = asyncio.get_running_loop().create_task(self._serve_on())
        else:
            self.stop()

    async def _serve_on(self) -> None:
        """Continue to serve while balancers notice that this service ends, then leave."""
        host: Any = self.config.app.host  # type: ignore[union-attr]
        host.leaving = True
        logger.info("stopping; new turns are taken for %g s more (lame_duck)", self._lame_duck)
        await asyncio.sleep(self._lame_duck)
        await self._close_port()
        await self._leave()

    def _app_ended(self) -> None:
        # If a task of the lifespan fails, the app has ended, and every turn would be refused from
        # then on.
        if self._draining is None:
            logger.error("a lifespan has ended before the service; stopping")
            self.broke_off = True
            self.stop()

    def _interrupt(self) -> None:
        if self._draining is not None:
            os._exit(130)
        self.stop()

    def _follow(self, place: Place) -> None:
        loop = asyncio.get_running_loop()
        try:
            numbers = place.instruction()
        except BlockingIOError:
            return
        if numbers is None:
            loop.remove_reader(place.link)
            logger.warning("the supervisor is gone; stopping")
            move = loop.create_task(self._abandon_port())
        else:
            move = loop.create_task(self._listen(numbers) if numbers else self._leave())
        self._moves.add(move)
        move.add_done_callback(self._moves.discard)

    async def _listen(self, numbers: set[int]) -> None:
        """Listen on these of the sockets, and on no other."""
        async with self._in_turn:
            numbers = set() if self.should_exit or self._closed else numbers
            for number in self._open.keys() - numbers:
                self._open.pop(number).close()
            for number in numbers - self._open.keys():
                self._open[number] = await asyncio.get_running_loop().create_server(
                    self._connection, sock=self._sockets[number].dup(), backlog=BACKLOG
                )

    async def _abandon_port(self) -> None:
        """Stop, and close the port at once. The workers no longer share it, so a client might wait
        at a socket that nobody reads, and a new service needs the port."""
        await self._close_port()
        self.stop()

    async def _close_port(self) -> None:
        """Stop listening, and leave no client waiting at a socket that nobody reads."""
        await self._listen(set())
        self._closed = True
        for each in self._sockets:
            if each.fileno() >= 0:
                await self._take_all(each)
                each.close()
        if self._place is not None:
            self._place.report_closed()

    async def _take_all(self, listening: socket.socket) -> None:
        """Take the connections that wait at the socket: closed, it would reset them, and a proxy
        that has sent a request already sends it to nobody else."""
        listening.setblocking(False)
        while True:
            try:
                taken, _ = listening.accept()
            except OSError:
                return
            loop = asyncio.get_running_loop()
            await loop.connect_accepted_socket(self._connection, taken)

    def _connection(self) -> asyncio.Protocol:
        return Http(self.config, self.server_state, self.lifespan.state)

    async def _leave(self) -> None:
        """End while others serve: answer accepted requests, and keep no connection alive."""
        end = monotonic() + self._drain_timeout
        await self._listen(set())
        await asyncio.sleep(TAKEN)
        # In a reload no other worker serves until all have ended.
        reloads = self._place is not None and self._place.reload
        quiet = monotonic() + (0.0 if reloads else QUIET)
        # Do not start draining here: draining rejects requests that were received but not started.
        while self._draining is None and self.server_state.connections and monotonic() < end:
            for connection in list(self.server_state.connections):
                connection.retire(at_once=monotonic() >= quiet)  # type: ignore[union-attr]
            await asyncio.sleep(TAKEN)
        self._drain_timeout = max(0.0, end - monotonic())
        self.stop()

    async def _drain(self) -> None:
        host: Any = self.config.app.host  # type: ignore[union-attr]
        try:
            if self.started:
                # The host keeps to the timeout; if it cannot, closing must not wait for it.
                async with asyncio.timeout(self._drain_timeout + LATE):
                    await host.drain(self._drain_timeout)
            else:
                self.lifespan.give_up()
        except Exception:
            logger.exception("the turns did not end in order")
        finally:
            self.should_exit = True
