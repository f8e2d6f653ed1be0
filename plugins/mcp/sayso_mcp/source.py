"""Tools of MCP servers as the agent's own.

    files = mcp_server("npx -y @modelcontextprotocol/server-filesystem /srv",
                       requires_approval=["write_*", "move_*"], prefix="fs_")
    agent = Agent(tools=[list_pods, files])

The tools are gated by default: that somebody else's server calls a tool harmless proves nothing.
"""

from __future__ import annotations

import hashlib
import json
import logging
import math
import shlex
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from functools import partial
from time import monotonic
from typing import TYPE_CHECKING, Any, Literal
from urllib.parse import urlsplit

from sayso import ConfigError, PluginError, RequestContext, SourceHost, Tool, ToolResult

if TYPE_CHECKING:
    from sayso_mcp.asker import Asker
    from sayso_mcp.connection import Connection
    from sayso_mcp.credentials import ClientCredentials

logger = logging.getLogger("sayso.mcp")
Transport = Literal["stdio", "sse", "streamable-http"]
Patterns = Sequence[str]
Headers = Callable[[], Mapping[str, str] | Awaitable[Mapping[str, str]]]
"""The author's function, plain or async, that returns the headers of a request."""
MAKING = 5.0
"""Seconds for reading a server's list; tools not read by then are left out."""


def mcp_server(
    server: str | Sequence[str],
    *,
    include: Patterns | None = None,
    exclude: Patterns = (),
    requires_approval: bool | Patterns = True,
    headers: Mapping[str, str] | Headers | None = None,
    oauth: ClientCredentials | None = None,
    prefix: str = "",
    env: Mapping[str, str] | None = None,
    timeout: float | None = 60.0,
    transport: Transport | None = None,
    name: str | None = None,
) -> MCPServer:
    """The tools of an MCP server, for `Agent(tools=[...])`.

    - `server`: a URL, or a command, as one line or as its parts.
    - `include`, `exclude`: patterns of tool names, with `*` and `?`. They match the server's own
      names as well as those with the prefix.
    - `requires_approval`: gates all tools (the default), none, or those that match one of its
      patterns. A pattern that matches no tool of the server stops the start.
    - `headers`: sent with every request to a URL. A function, plain or async, is called for each
      request, for example for a token that is renewed.
    - `oauth`: credentials of this service, for a token of the server's authorization server.
    - `env`: what a command gets beside HOME, PATH and the like.
    - `prefix`: comes before each name.
    - `timeout`: seconds that a call may take.
    - `transport`: without it, a URL that ends in `/sse` is sse, any other streamable-http.

    An approval is valid for this very server: for its address or command line, and for its `name`,
    by default the name that the server gives itself.
    """
    for option, given in (
        ("include", include),
        ("exclude", exclude),
        ("requires_approval", requires_approval),
    ):
        if isinstance(given, str):
            raise TypeError(f"mcp_server: {option} takes a list of patterns; write [{given!r}]")
    if timeout is not None and not 0 < timeout < math.inf:
        raise ValueError(f"mcp_server: timeout must be above 0 seconds, not {timeout!r}")
    own = headers if callable(headers) else None
    fixed = {} if headers is None or callable(headers) else dict(headers)
    check_headers(fixed)
    parts = [server] if isinstance(server, str) and "://" in server else _command(server)
    if oauth is not None and (len(parts) > 1 or "://" not in parts[0] or "@" in parts[0]):
        raise ValueError("mcp_server: oauth is for a URL, and for one without a user and password")
    return MCPServer(
        parts,
        _transport(parts, transport),
        Choice(include, exclude, requires_approval, prefix),
        fixed,
        dict(env) if env is not None else None,
        timeout,
        own,
        name,
        oauth,
    )


def check_headers(headers: Mapping[str, str]) -> None:
    """Raise ValueError for a value that no request header can carry."""
    for name, value in headers.items():
        # The HTTP library's own error would show the value, in logs and to the model.
        if not (value.isascii() and value.isprintable() and value == value.strip()):
            raise ValueError(
                f"mcp_server: the value of the header {name!r} has a line end, a space around it "
                "or a character that no request can carry"
            )


def _command(server: str | Sequence[str]) -> list[str]:
    parts = shlex.split(server) if isinstance(server, str) else list(server)
    if not parts:
        raise ValueError("mcp_server: name a URL, or the command that starts the server")
    return parts


def _transport(parts: Sequence[str], stated: Transport | None) -> Transport:
    scheme = urlsplit(parts[0]).scheme if len(parts) == 1 and "://" in parts[0] else ""
    if scheme not in ("", "http", "https"):
        raise ValueError(f"mcp_server: {scheme!r} is no way to reach a server; use http or https")
    if scheme:
        _check_address(parts[0])
    if stated is not None and bool(scheme) is (stated == "stdio"):
        what = "a URL" if scheme else "a command"
        raise ValueError(f"mcp_server: {what} cannot be reached over {stated!r}")
    if not scheme:
        return "stdio"
    ends = urlsplit(parts[0]).path.rstrip("/").endswith("/sse")
    return stated or ("sse" if ends else "streamable-http")


def _check_address(url: str) -> None:
    try:
        host = urlsplit(url).port != 0 and urlsplit(url).hostname
    except ValueError:
        host = None
    if not host:
        raise ValueError("mcp_server: the address has no host, or a port that cannot be")


@dataclass(frozen=True, slots=True)
class Choice:
    """The server's tools that are taken, their names here, and which of them are gated."""

    include: Patterns | None
    exclude: Patterns
    requires_approval: bool | Patterns
    prefix: str

    def takes(self, name: str) -> bool:
        """Whether the server's tool `name` becomes the agent's."""
        if self.include is not None and not self._fit(self.include, name):
            return False
        return not self._fit(self.exclude, name)

    def gates(self, name: str) -> bool:
        """Whether a call of it waits for approval."""
        gated = self.requires_approval
        return gated if isinstance(gated, bool) else self._fit(gated, name)

    def idle(self, names: Sequence[str]) -> list[str]:
        """The patterns that match no tool of the server; they may be misspelt."""
        gated = () if isinstance(self.requires_approval, bool) else self.requires_approval
        stated = dict.fromkeys([*gated, *(self.include or ()), *self.exclude])
        return [one for one in stated if not any(self._fit([one], name) for name in names)]

    def _fit(self, patterns: Patterns, name: str) -> bool:
        """Whether one of them matches the tool, by the server's name for it or by the one here."""
        called = (name, self.name(name))
        return any(fnmatchcase(one, pattern) for pattern in patterns for one in called)

    def name(self, name: str) -> str:
        """Its name here: letters, digits, `_` and `-`, at most 64."""
        plain = "".join(c if c.isascii() and (c.isalnum() or c in "_-") else "_" for c in name)
        return f"{self.prefix}{plain}"[:64]


class MCPServer:
    """One MCP server whose tools are the agent's; made by `mcp_server`.

    It connects at the start, and after a failure again with growing pauses. While it is away its
    tools stay listed, and each call says so. A question it asks while a tool runs is decided by a
    person.
    """

    def __init__(
        self,
        parts: Sequence[str],
        transport: Transport,
        choice: Choice,
        headers: dict[str, str],
        env: dict[str, str] | None,
        timeout: float | None,
        own_headers: Headers | None = None,
        name: str | None = None,
        oauth: ClientCredentials | None = None,
    ) -> None:
        self.oauth = oauth
        self.parts = list(parts)
        self.transport = transport
        self.headers = headers
        self.own_headers = own_headers
        self.env = env
        self.timeout = timeout
        self.name = name
        self.server_name = ""
        """The name that the server gives itself."""
        self._choice = choice
        self._idle: list[str] = []
        self._tools: tuple[Tool, ...] = ()
        self._names: dict[str, str] = {}
        self._host: SourceHost | None = None
        self._connection: Connection | None = None
        self._changed: Callable[[], None] = _nothing
        self._asker: Asker | None = None

    @property
    def label(self) -> str:
        """The server's name in messages, without credentials."""
        if self.transport == "stdio":
            return self.parts[0].rpartition("/")[2]
        found = urlsplit(self.parts[0])
        port = f":{found.port}" if found.port else ""
        return f"{found.scheme}://{found.hostname}{port}{found.path}"

    @property
    def origin(self) -> str:
        """The tools' origin, as approvals bind and show it, without credentials."""
        is_command = self.transport == "stdio"
        # The rest may contain a key, so only its digest is used.
        rest = json.dumps(self.parts) if is_command else urlsplit(self.parts[0]).query
        bound = f"#{hashlib.sha256(rest.encode()).hexdigest()[:16]}" if rest else ""
        called = self.server_name if self.name is None else self.name
        return f"mcp:{called}:{self.label}{bound}"

    def __repr__(self) -> str:
        return f"mcp_server({self.label!r})"

    async def open(self, host: SourceHost, changed: Callable[[], None]) -> None:
        """Connect. Returns when the server has answered, or after ten seconds."""
        from sayso_mcp.connection import Connection

        if self._connection is not None:
            raise PluginError(f"{self!r} serves one agent in a process; make another one")

        known: list[Any] = []

        def listed(tools: Sequence[Any]) -> None:
            if known == [self.server_name, *tools]:
                return
            known[:] = [self.server_name, *tools]
            self._idle = self._choice.idle([tool.name for tool in tools])
            self._tools = tuple(self._made(tools))
            changed()

        self._host, self._changed = host, changed
        self._connection = Connection(self, listed)
        await self._connection.start()
        if known and self._idle:
            await self.close()
            names = ", ".join(sorted(tool.name for tool in known[1:])) or "none"
            raise ConfigError(
                f"{self!r}: {', '.join(map(repr, self._idle))} fits none of its tools; write the "
                f"names of tools, or patterns of them; its tools are: {names}"
            )

    def tools(self) -> Sequence[Tool]:
        """The tools as the server last listed them, and the tool of its questions once it has asked
        one."""
        return self._tools if self._asker is None else (*self._tools, self._asker.tool)

    async def close(self) -> None:
        """End the connection."""
        if self._connection is not None:
            await self._connection.close()
            self._connection = None

    def _made(self, listed: Sequence[Any]) -> list[Tool]:
        made: dict[str, Tool] = {}
        if self._idle:
            logger.warning(
                "%r: %s fits none of its tools, so all of them need approval",
                self,
                ", ".join(map(repr, self._idle)),
            )
        taken = [one for one in listed if self._choice.takes(one.name)]
        late = monotonic() + MAKING
        for number, one in enumerate(taken):
            if monotonic() > late:
                left = len(taken) - number
                logger.warning(
                    "%d tools of %r are left out: reading them takes too long", left, self
                )
                break
            name = self._choice.name(one.name)
            # A call approved as one tool must not run as another one that got its name.
            if name in made or self._names.get(name, one.name) != one.name:
                logger.warning("%r has two tools that become %r; the first is taken", self, name)
                continue
            try:
                made[name] = self._tool(name, one)
                self._names[name] = one.name
            except (ValueError, TypeError) as error:
                logger.warning("tool %r of %r is left out: %s", one.name, self, error)
        return list(made.values())

    def _tool(self, name: str, one: Any) -> Tool:
        # The first parameter is ours; no argument of the server's tool may have its name.
        async def call(_sayso_context: RequestContext, **arguments: Any) -> ToolResult:
            return await self._call(one.name, arguments, _sayso_context)

        hints = one.annotations
        return Tool(
            call,
            name=name,
            description=one.description or "",
            timeout=self.timeout,
            input_schema=one.input_schema,
            # A pattern that matches nothing may have been meant for this tool, so gate it.
            requires_approval=bool(self._idle) or self._choice.gates(one.name),
            origin=self.origin if one.name == name else f"{self.origin} ({one.name})",
            title=one.title or (hints.title if hints else None),
            read_only=hints.read_only_hint if hints else None,
            destructive=hints.destructive_hint if hints else None,
        )

    async def _call(
        self, name: str, arguments: dict[str, Any], context: RequestContext
    ) -> ToolResult:
        if self._host is None or self._connection is None:
            raise RuntimeError(f"the MCP server {self.label!r} is not connected")
        work = partial(self._connection.call, name, arguments, context)
        # The connection lives on the home loop.
        return await self._host.workers.at_home(work)

    async def answer(self, context: Any, params: Any) -> Any:
        """The person's answer to a question of the server."""
        if self._host is None or self._connection is None:
            raise RuntimeError(f"the MCP server {self.label!r} is not connected")
        from sayso_mcp.asker import Asker

        if self._asker is None:
            self._asker = Asker(self.label, self._connection.calls)
            self._changed()
        return await self._asker(self._host, params)


def _nothing() -> None:
    """Stands in until the source is open: nobody needs to know of changed tools before."""
