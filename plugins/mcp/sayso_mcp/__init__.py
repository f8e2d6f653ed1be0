"""MCP for Sayso: a server for the agent's tools and its chat, and MCP servers as its tools.

    [plugin.mcp]
    transport = "streamable-http"
    approvals = "client"

    agent = Agent(tools=[mcp_server("npx -y some-mcp-server")])

The SDK is imported when the server starts, or when a client connects, never before.
"""

from __future__ import annotations

import logging
import re
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from pydantic import Field, field_validator

from sayso import Duration, Host, Plugin, hookimpl
from sayso_mcp.credentials import ClientCredentials
from sayso_mcp.source import MCPServer, mcp_server

if TYPE_CHECKING:
    import click

__all__ = ["MCP", "ClientCredentials", "MCPServer", "mcp_server"]

logger = logging.getLogger("sayso.mcp")

_HOST = re.compile(r"([\w.-]+|\[[0-9A-Fa-f:.]+\])(:(\d{1,5}|\*))?", re.ASCII)
_ORIGIN = re.compile(r"null|[a-z][a-z0-9+.-]*://[^/?#*\s]+")
_PAGE = re.compile(r"https?://[^/?#\s]+[^#\s]*")


STICKY = (
    "MCP sessions live in the service that opened them: a balancer before several services must "
    "send each client to the same one, as nginx does with ip_hash; see docs/mcp.md"
)


class MCP(Plugin):
    """The MCP server beside the HTTP server, once a service, and the command `sayso mcp`."""

    name = "mcp"
    active_by_default = False
    own_process = True

    class Settings(Plugin.Settings):
        """`[plugin.mcp]`."""

        port: int = Field(default=8001, ge=0, le=65535)
        """TCP port of the MCP server (interface.md, "Limits"); 0 takes a free one."""
        host: str | None = None
        """Address to listen on; absent: `server.host`."""
        transport: Literal["sse", "stdio", "streamable-http"] = "sse"
        """How clients connect; "streamable-http" is the choice for all new clients."""
        approvals: Literal["client", "inbox", "deny"] = "client"
        """The approver of gated tools. "client": the user of the client; "inbox": only a person
        on the page, by the API or at the command line, also written "console"; "deny": nobody, so
        gated tools do not run over MCP."""
        ask_timeout: Duration = Field(default=600.0, gt=0)
        """How long a question to a person stays open."""
        page: str | None = None
        """Address at which people reach Sayso's page; absent: that of the console, if this
        service serves it under an address of its own."""
        chat: str = Field(default="chat", pattern=r"^[a-zA-Z0-9_-]{0,64}$")
        """Name of the tool that talks to the agent; empty: no such tool."""
        hosts: list[str] = []
        """Further `Host` names that are answered, with or without a port."""
        origins: list[str] = []
        """Origins of web pages that may call, such as "https://example.com"."""
        icon: str | None = None
        """Picture of the server that clients show: an address, or a `data:` URI."""
        url: str | None = None
        """Address of the MCP server as clients reach it, such as "https://tools.example/mcp"; by
        default as each request names it."""
        authorization_servers: list[str] = []
        """Issuers of tokens, which clients are told (RFC 9728); absent: `auth.jwt.issuer`."""
        key_file: Path | None = None
        """File with the secret that seals the state of open questions; absent: `mcp.key` in the
        state folder."""

        @field_validator("approvals", mode="before")
        @classmethod
        def _by_its_one_name(cls, approvals: Any) -> Any:
            return "inbox" if approvals == "console" else approvals

        @field_validator("page")
        @classmethod
        def _as_browsers_open_it(cls, page: str | None) -> str | None:
            if page is not None and not _PAGE.fullmatch(page):
                raise ValueError("expected an address such as 'https://example.com/console'")
            return page

        @field_validator("icon")
        @classmethod
        def _as_clients_show_it(cls, icon: str | None) -> str | None:
            if icon is not None and not _PAGE.fullmatch(icon) and not icon.startswith("data:"):
                raise ValueError("expected an address such as 'https://example.com/icon.png'")
            return icon

        @field_validator("url", "authorization_servers")
        @classmethod
        def _as_clients_ask_there(cls, given: Any) -> Any:
            for address in [given] if isinstance(given, str) else given or ():
                if not _PAGE.fullmatch(address):
                    raise ValueError("expected an address such as 'https://login.example'")
            return given

        @field_validator("hosts")
        @classmethod
        def _as_requests_name_them(cls, hosts: list[str]) -> list[str]:
            if not all(_HOST.fullmatch(host) for host in hosts):
                raise ValueError("expected names such as 'example.com' or 'example.com:8001'")
            return [host.lower() for host in hosts]

        @field_validator("origins")
        @classmethod
        def _as_browsers_write_them(cls, origins: list[str]) -> list[str]:
            if not all(_ORIGIN.fullmatch(origin) for origin in origins):
                raise ValueError(
                    "expected origins such as 'https://example.com', each in full, without a path"
                )
            web = ("http://", "https://")
            return [given.lower() if given.startswith(web) else given for given in origins]

    @hookimpl
    def register_routes(self, host: Host) -> None:
        """Return None. Refuse the port that the service itself uses, before anything starts."""
        if self.settings.transport != "stdio" and 0 < self.settings.port == host.config.server.port:
            from sayso_mcp.running import check_port

            check_port(host, self.settings)

    @hookimpl
    @asynccontextmanager
    async def lifespan(self, host: Host) -> AsyncIterator[None]:
        """Run the MCP server on the service's loop."""
        from sayso_mcp.running import beside

        settings = self.settings_beside(host)
        async with beside(host, settings) as where:
            if self.settings.transport != "stdio":
                logger.info("MCP (%s) on %s", self.settings.transport, where)
                if (host.config.approvals.ledger or "").startswith("postgresql:"):
                    logger.warning(STICKY)
            yield

    def settings_beside(self, host: Host) -> Any:
        """The settings, with the page of this service filled in."""
        page = self.settings.page or _page(host)
        return self.settings.model_copy(update={"page": page})

    @hookimpl
    def register_commands(self, cli: click.Group) -> None:
        """Add `sayso mcp`."""
        from sayso_mcp.command import command

        cli.add_command(command)


def _page(host: Host) -> str | None:
    """The console's address beside the MCP server, if people can reach it there."""
    server = host.config.server
    if (
        host.plugins.get("console") is None
        or server.host in ("0.0.0.0", "::", "")
        or not server.port
    ):
        return None
    name = f"[{server.host}]" if ":" in server.host else server.host
    return f"http://{name}:{server.port}/console"
