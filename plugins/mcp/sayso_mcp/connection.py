"""The connection to one MCP server: made, watched, and made again."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager, suppress
from functools import partial
from typing import Any

import httpx2
import mcp_types as types
from mcp import Client
from mcp.client import stdio
from mcp.client.sse import sse_client
from mcp.client.streamable_http import streamable_http_client
from mcp.shared.exceptions import MCPError
from mcp_types.version import MODERN_PROTOCOL_VERSIONS
from pydantic import ValidationError

from sayso import RequestContext, ToolResult, __version__
from sayso_mcp.asker import CallUnderWay
from sayso_mcp.content import received
from sayso_mcp.exchanges import Exchange, Http, exchange
from sayso_mcp.lines import LARGEST, Lines, too_long
from sayso_mcp.watched import Watched

logger = logging.getLogger("sayso.mcp")
FIRST = 10.0
"""Seconds that the start waits for a server."""
SHORTEST, LONGEST = 0.25, 30.0
"""Seconds between attempts to connect: the first pause, also between listings, and the longest.

They double until a connection has been of use: many a server dies as soon as it has one."""
PATIENCE = 3.0
"""Seconds that a call waits while the connection is being made, and at most half of its timeout. A
call that ran into its whole timeout could not be reported as certainly not sent."""
AGAIN = 60.0
"""Seconds after which the tools are listed again although the server announced no change."""
SILENCE = 120.0
"""Seconds that a server may take to connect and list its tools; it may have to be downloaded."""
AFTER_CALL = 30.0
"""Seconds that a server may take to list its tools after a call had no answer in time."""
QUIET = 300.0
"""Seconds without a byte after which an HTTP connection is ended, unless calls may take longer."""
FAREWELL = 2.0
"""Seconds that a streamable-http server may take to answer that its session ends."""
_PAGES = 100

# The SDK's client has no parameter for its line reader, so replace the class that it uses. Other
# users of the SDK in this process get it too, without a bound.
stdio.TextReceiveStream = Lines  # type: ignore[assignment, attr-defined]


class Connection:
    """Keeps one client connected; lives on one loop. `listed` gets the server's tools."""

    def __init__(self, server: Any, listed: Callable[[Sequence[types.Tool]], None]) -> None:
        self._server = server
        self._listed = listed
        self._client: Client | None = None
        self._connected = asyncio.Event()
        self._tried = asyncio.Event()
        self._lost = asyncio.Event()
        self._changed = asyncio.Event()
        self._problem = "it has not answered yet"
        self._task: asyncio.Task[None] | None = None
        self._checks: set[asyncio.Task[None]] = set()
        self.calls: dict[object, CallUnderWay] = {}
        """The calls under way."""
        self._pause = SHORTEST
        self._refused: set[str] = set()
        self._address, self._auth = _access(server)
        self._closed = False

    async def start(self) -> None:
        """Begin to connect. Returns after the first attempt, or after ten seconds."""
        self._task = asyncio.create_task(self._live())
        try:
            # Not `wait_for`: before Python 3.12 it swallows a cancellation that arrives as the wait
            # ends.
            async with asyncio.timeout(FIRST):
                await self._tried.wait()
        except TimeoutError:
            logger.warning("%r did not answer in %g seconds; going on without", self._server, FIRST)

    async def close(self) -> None:
        """Disconnect."""
        self._closed = True
        tasks = [*self._checks, *([self._task] if self._task else [])]
        for task in tasks:
            task.cancel()
        if tasks:
            await asyncio.wait(tasks)

    async def call(
        self, name: str, arguments: dict[str, Any], context: RequestContext
    ) -> ToolResult:
        """Call a tool once. Raises RuntimeError when the server is away or refuses."""
        client = await self._ready()

        async def on_progress(progress: float, total: float | None, message: str | None) -> None:
            context.update(message or (f"{progress:g} of {total:g}" if total else f"{progress:g}"))

        noted = Exchange()
        outer = exchange.set(noted)
        this = object()
        self.calls[this] = CallUnderWay(name, context)
        try:
            result = await client.call_tool(name, arguments, progress_callback=on_progress)
        except asyncio.CancelledError:
            self._check_soon(client, AFTER_CALL)
            raise
        except Exception as error:
            # An invalid answer does not mean that the connection is lost; find out by listing the
            # tools.
            self._check_soon(client, FIRST)
            raise RuntimeError(f"the MCP server {self._name}{_failure(error, noted)}") from error
        finally:
            del self.calls[this]
            exchange.reset(outer)
        self._pause = SHORTEST
        if result.result_type != "complete":
            raise RuntimeError(
                f"the MCP server {self._name} gave a result of the unknown type "
                f"{result.result_type!r:.80}, and the call may have taken effect"
            )
        return received(result)

    @property
    def _name(self) -> str:
        return repr(self._server.label)

    async def _ready(self) -> Client:
        timeout = self._server.timeout
        patience = PATIENCE if timeout is None else min(PATIENCE, timeout / 2)
        with suppress(TimeoutError):
            async with asyncio.timeout(patience):
                await self._connected.wait()
        if self._client is None:
            raise RuntimeError(f"the MCP server {self._name} is not connected: {self._problem}")
        return self._client

    def _check_soon(self, client: Client, patience: float) -> None:
        """Check in the background whether the server still answers; one check for any number of
        unanswered calls."""
        if self._checks or self._closed or client is not self._client:
            return
        check = asyncio.create_task(self._check(client, patience))
        self._checks.add(check)
        check.add_done_callback(self._checks.discard)

    async def _check(self, client: Client, patience: float) -> None:
        try:
            await self._list(client, patience)
        except Exception as error:
            if client is self._client:
                self._problem = _cause(error)
                self._lost.set()

    async def _live(self) -> None:
        while True:
            noted = Exchange()
            exchange.set(noted)
            try:
                await self._connect()
            except TimeoutError:
                self._problem = f"it did not answer in {SILENCE:g} seconds"
            except Exception as error:
                self._problem = f"{_cause(error)}{_status(noted)}"
            finally:
                self._tried.set()
            if self._closed:
                # The SDK's tasks may swallow a cancellation when they fail at the same time.
                return
            pause, self._pause = self._pause, min(self._pause * 2, LONGEST)
            logger.warning(
                "%r is away: %s; trying again in %g s", self._server, self._problem, pause
            )
            await asyncio.sleep(pause)

    async def _connect(self) -> None:
        """Connect, and stay connected until the connection is lost."""
        self._lost.clear()
        self._changed.clear()
        client = Client(
            Watched(self._transport(), self._lost.set, self._refuse),
            client_info=types.Implementation(name="sayso", version=__version__),
            message_handler=self._on_message,
            elicitation_callback=self._server.answer,
        )
        async with asyncio.timeout(SILENCE) as patience, client:
            client.session.validate_tool_result = _unchecked  # type: ignore[method-assign]
            tools = await _tools(client)
            self._server.server_name = client.server_info.name if client.server_info else ""
            self._listed(tools)
            patience.reschedule(None)
            self._client = client
            self._problem = "the connection ended"
            self._connected.set()
            self._tried.set()
            listening = asyncio.create_task(self._listen(client))
            try:
                while await self._news():
                    self._listed(await self._list(client))
                    self._pause = SHORTEST
                    # Some servers announce a change after each listing; do not list again at once.
                    await asyncio.sleep(SHORTEST)
            finally:
                self._client = None
                self._connected.clear()
                listening.cancel()
                await asyncio.wait([listening])

    async def _list(self, client: Client, patience: float = SILENCE) -> list[types.Tool]:
        """List the tools again. Raises TimeoutError if the server is silent for `patience` seconds
        while no earlier call is running: a server that does one thing at a time may be busy with
        that call."""
        before = set(self.calls)
        listing = asyncio.create_task(_tools(client))
        try:
            while not (await asyncio.wait([listing], timeout=patience))[0]:
                if not before & set(self.calls):
                    raise TimeoutError(f"it was silent for {patience:g} seconds")
            return listing.result()
        finally:
            listing.cancel()
            await asyncio.wait([listing])

    async def _news(self) -> bool:
        """True if the tools should be listed again, false if the connection is lost."""
        waits = [asyncio.ensure_future(e.wait()) for e in (self._lost, self._changed)]
        try:
            await asyncio.wait(waits, timeout=AGAIN, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for wait in waits:
                wait.cancel()
        self._changed.clear()
        return not self._lost.is_set()

    async def _on_message(self, message: Any) -> None:
        if isinstance(message, types.ToolListChangedNotification):
            self._changed.set()

    def _refuse(self, tool: Any, why: str) -> None:
        """Warn once about each listed tool that cannot be read."""
        name = tool.get("name") if isinstance(tool, dict) else tool
        said = f"tool {name!r:.80} of {self._server!r} is left out: it broke the protocol: {why}"
        if said not in self._refused:
            self._refused.add(said)
            logger.warning("%s", said)

    async def _listen(self, client: Client) -> None:
        """From 2026-07-28 on a client learns of changes from a stream that it must ask for."""
        tools = client.server_capabilities.tools
        if client.protocol_version not in MODERN_PROTOCOL_VERSIONS:
            return
        if tools is None or not tools.list_changed:
            return
        try:
            async with client.listen(tools_list_changed=True) as events:
                async for _ in events:
                    self._changed.set()
        except Exception as error:
            logger.info(
                "the list of tools of %r is not watched for changes: %s",
                self._server,
                _cause(error),
            )

    def _transport(self) -> AbstractAsyncContextManager[Any]:
        server = self._server
        match server.transport:
            case "stdio":
                too_long.set(self._lost.set)
                command, *arguments = server.parts
                # By default the SDK stops reading, silently, after a byte that is not UTF-8.
                return stdio.stdio_client(
                    stdio.StdioServerParameters(
                        command=command,
                        args=arguments,
                        env=server.env,
                        encoding_error_handler="replace",
                    )
                )
            case "sse":
                return sse_client(
                    self._address,
                    server.headers,
                    auth=self._auth,
                    sse_read_timeout=_patience(server.timeout),
                    # After one failed POST the SDK sends nothing more, so its call would wait for
                    # ever.
                    httpx_client_factory=partial(Http, server.own_headers, self._lost.set),
                )
        return self._http()

    @asynccontextmanager
    async def _http(self) -> AsyncIterator[Any]:
        timeout = httpx2.Timeout(30.0, read=_patience(self._server.timeout))

        http = Http(
            self._server.own_headers,
            headers=self._server.headers,
            auth=self._auth,
            timeout=timeout,
            event_hooks={"request": [_hurry]},
        )
        connected = streamable_http_client(
            self._address, http_client=http, max_sse_event_size=LARGEST
        )
        async with http, connected as streams:
            yield streams


async def _hurry(request: httpx2.Request) -> None:
    """Limit the time for the DELETE that ends a session: the service's shutdown waits for it."""
    if request.method == "DELETE":
        request.extensions["timeout"] = httpx2.Timeout(FAREWELL).as_dict()


def _access(server: Any) -> tuple[str, httpx2.Auth | None]:
    """The URL without user and password, which the SDK would write into logs, and those two, or
    the provider of tokens."""
    url = server.parts[0]
    if server.transport == "stdio":
        return "", None
    if server.oauth is not None:
        return url, server.oauth.auth(url)
    found = httpx2.URL(url)
    if not found.userinfo:
        return url, None
    return str(found.copy_with(userinfo=b"")), httpx2.BasicAuth(found.username, found.password)


def _patience(timeout: float | None) -> Any:
    """Seconds of silence allowed for a server whose calls may take `timeout`; None is for ever."""
    return None if timeout is None else max(QUIET, timeout)


async def _unchecked(name: str, result: types.CallToolResult) -> None:
    """Accept a result unchecked. The call has had its effect whether or not the result matches the
    server's schema, and one malicious pattern in that schema could block Python's `re`, and the
    whole process with it, for ever."""


async def _tools(client: Client) -> list[types.Tool]:
    tools: list[types.Tool] = []
    cursor: str | None = None
    for _ in range(_PAGES):
        page = await client.list_tools(cursor=cursor, cache_mode="bypass")
        tools += page.tools
        cursor = page.next_cursor
        if cursor is None:
            break
    return tools


def _failure(error: Exception, noted: Exchange) -> str:
    """The part of the error that describes the server's failure after a failed call."""
    what = _first_line(error) if isinstance(error, MCPError) else _cause(error)
    # For a broken connection the SDK only reports "closed"; the noted problem is more precise.
    cause = f"{what if noted.problem is None else _cause(noted.problem)}{_status(noted)}"
    if noted.may_have_run(error):
        return f" gave no result, and the call may have taken effect: {cause}"
    return f": {cause}"


def _status(noted: Exchange) -> str:
    """The HTTP status, appended to an error because the SDK says "an error response" for each;
    empty if there is none."""
    return f" (HTTP status {noted.status})" if noted.status else ""


def _first_line(error: BaseException) -> str:
    lines = str(error).strip().splitlines()
    return lines[0][:300] if lines else type(error).__name__


def _cause(error: BaseException) -> str:
    """The innermost cause in one line; task groups wrap it."""
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    if isinstance(error, httpx2.HTTPStatusError):
        # The exception's own message has the address, which may contain a credential.
        return f"HTTP status {error.response.status_code}"
    if isinstance(error, ValidationError):
        wrong = error.errors(include_input=False, include_url=False)[0]
        return f"it broke the protocol: {'.'.join(map(str, wrong['loc']))}: {wrong['msg']}"
    return f"{type(error).__name__}: {_first_line(error)}"
