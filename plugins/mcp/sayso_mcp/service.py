"""The MCP server of one host: what it lists and how it answers."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from functools import partial
from math import inf
from typing import Any, NoReturn, TypeVar

import anyio
import mcp_types as types
from mcp.server.lowlevel import Server
from mcp.server.request_state import RequestStateBoundary, RequestStateSecurity
from mcp.shared.exceptions import MCPError

from sayso import Host, PlatformContext, PluginError, Tool
from sayso_mcp.apps import EXTENSION, SHOWN_ON, URI, Card
from sayso_mcp.call import call_tool
from sayso_mcp.calls import Result, ToolCalls
from sayso_mcp.changes import Changes
from sayso_mcp.chat import Chat
from sayso_mcp.content import said, unknown
from sayso_mcp.events import EVENT, LINKS_SINCE, Event, Kept
from sayso_mcp.keys import key_of
from sayso_mcp.outputs import output_schema
from sayso_mcp.peers import Context, Peer, Peers, Remembered, is_modern, peer_of, principal_of
from sayso_mcp.progress import wanted

logger = logging.getLogger("sayso.mcp")
_LAST = 0.5
"""Seconds for open questions to end, and be recorded, when no time is left for calls."""
_AROUND = 1024
"""Bytes of JSON that the reply adds around a resource."""
RESOURCE_NOT_FOUND = -32002
"""The error code for unknown resources up to 2025-11-25."""
Page = TypeVar("Page", bound=types.PaginatedResult)


class Service:
    """Lists and answers tools, chat, and linked resources, for every transport; there are no
    prompts.

    Once `stopping`, new calls are refused.
    """

    def __init__(self, host: Host, settings: Any) -> None:
        self.host = host
        self.settings = settings
        self.kept = Kept()
        self.changes = Changes(host.agent) if host.agent.sources else None
        self._key = key_of(host, settings.key_file)
        self.calls = ToolCalls(host, settings)
        self.card = Card(host, settings, self.calls, self._key)
        self.calls.with_card = self.card.with_card
        self.chat = Chat(host, settings, self.calls) if settings.chat else None
        self._running: set[anyio.CancelScope] = set()
        self._idle = asyncio.Event()
        self._idle.set()
        if self.chat is not None and settings.chat in host.agent.tools:
            raise PluginError(
                f"plugin 'mcp': the agent has a tool {settings.chat!r} of its own; give MCP's "
                "another name with plugin.mcp.chat, or none with plugin.mcp.chat = ''"
            )

    @property
    def stopping(self) -> bool:
        """Whether new calls are refused."""
        return self.calls.stopping.is_set() or self.host.stopping

    async def drain(self, seconds: float) -> None:
        """Refuse new calls, let open questions end unanswered, and let running calls end within
        `seconds`, with or without their client. Then answer the rest as calls whose outcome is
        unknown."""
        self.calls.stopping.set()
        if self.changes is not None:
            self.changes.close()
        if self.chat is not None:
            await self.chat.conversations.close()
        end = time.monotonic() + seconds
        try:
            async with asyncio.timeout(max(seconds, _LAST)):
                await self._idle.wait()
        except TimeoutError:
            logger.warning("%d calls over MCP did not end in time", len(self._running))
            for scope in self._running:
                scope.cancel()
        await self.calls.close(max(self.host.time_to_record(), end - time.monotonic()))

    def server(self, *, one_session: bool) -> Server[Any]:
        """The SDK's server. `one_session`: each connection is one session (stdio, sse)."""
        remembered: Callable[[], Peer | Peers] = Peer if one_session else partial(Remembered, Peer)

        @asynccontextmanager
        async def lifespan(_: Server[Any]) -> AsyncIterator[Peer | Peers]:
            yield remembered()

        agent = self.host.agent
        server = _Server(
            agent.name,
            version=agent.version,
            icons=[types.Icon(src=self.settings.icon)] if self.settings.icon else None,
            instructions=agent.description or None,
            lifespan=lifespan,
            get_tool_input_schema=self._schema,
            on_list_tools=self._list,
            on_call_tool=self._call,
            on_list_resources=self._list_resources,
            on_list_resource_templates=_empty(
                types.ListResourceTemplatesResult, "resource_templates"
            ),
            on_read_resource=self._read,
            on_list_prompts=_empty(types.ListPromptsResult, "prompts"),
            on_get_prompt=_no_prompt,
            on_subscriptions_listen=self.changes.listen if self.changes else None,
        )
        server.links = self.settings.transport != "stdio" or self.settings.approvals == "client"
        if self.settings.approvals == "client":
            server.extensions = {EXTENSION: {}}
        server.changes = self.changes is not None
        server.add_notification_handler(
            "notifications/cancelled", types.CancelledNotificationParams, self.calls.cancelled
        )
        security = RequestStateSecurity(
            keys=[self._key], ttl=self.settings.ask_timeout, bind_principal=principal_of
        )
        boundary = RequestStateBoundary(security, default_audience=f"sayso {agent.name}")
        server.middleware.append(boundary)
        return server

    def _schema(self, name: str) -> dict[str, Any] | None:
        tool = self._tools().get(name)
        return None if tool is None else tool.input_schema

    def _tools(self) -> dict[str, Tool]:
        shown = {name: tool for name, tool in self.host.agent.tools.items() if self._lists(tool)}
        return shown | ({self.chat.tool.name: self.chat.tool} if self.chat else {})

    def _lists(self, tool: Tool) -> bool:
        verdict = self.host.policy.verdict(tool, None, PlatformContext())
        if not tool.offered:
            return False
        return verdict == "allow" or (verdict == "require" and self.settings.approvals != "deny")

    async def _list(
        self, context: Context, params: types.PaginatedRequestParams | None
    ) -> types.ListToolsResult:
        _check_first(params)
        if self.changes is not None:
            self.changes.notify(peer_of(context), context.session)
        shows = self.card.is_shown(context)
        described = [self._described(tool, shows) for tool in self._tools().values()]
        if shows:
            described.append(self.card.described())
        return types.ListToolsResult(tools=described)

    async def _list_resources(
        self, context: Context, params: types.PaginatedRequestParams | None
    ) -> types.ListResourcesResult:
        _check_first(params)
        shown = [self.card.resource()] if self.card.is_shown(context) else []
        return types.ListResourcesResult(resources=shown)

    def _described(self, tool: Tool, shows: bool) -> types.Tool:
        hints = types.ToolAnnotations(
            title=tool.title,
            read_only_hint=tool.read_only,
            destructive_hint=self._destructive(tool),
            idempotent_hint=tool.idempotent,
        )
        return types.Tool(
            name=tool.name,
            title=tool.title,
            description=tool.description or None,
            input_schema=tool.input_schema,
            output_schema=output_schema(tool),
            annotations=hints,
            meta=SHOWN_ON if shows and self._may_wait(tool) else None,
        )

    def _may_wait(self, tool: Tool) -> bool:
        """Whether a call of it may need approval."""
        is_chat = self.chat is not None and tool is self.chat.tool
        return is_chat or self.host.policy.verdict(tool, None, PlatformContext()) == "require"

    def _destructive(self, tool: Tool) -> bool | None:
        """The tool's own declaration; otherwise, whether it needs approval, unless it is
        read-only."""
        if tool.destructive is not None or tool.read_only:
            return tool.destructive
        return self.host.policy.verdict(tool, None, PlatformContext()) == "require"

    async def _call(self, context: Context, params: types.CallToolRequestParams) -> Result:
        if self.stopping:
            return said("Error: the service is stopping", error=True)
        result: Result = unknown("the service stopped before the call ended")
        with anyio.CancelScope() as scope:
            self._running.add(scope)
            self._idle.clear()
            try:
                if self.chat is not None and params.name == self.chat.tool.name:
                    result = await self.chat.call(context, params)
                elif params.name == self.card.tool.name and self.card.is_shown(context):
                    result = await self.card.call(context, params)
                else:
                    result = await call_tool(self.calls, context, params)
            finally:
                self._running.discard(scope)
                if not self._running:
                    self._idle.set()
        return self._sendable(context, params.name, result)

    def _sendable(self, context: Context, name: str, result: Result) -> Result:
        if not isinstance(result, types.CallToolResult) or not self._is_event(context):
            return result
        over_http = self.settings.transport == "streamable-http"
        event = Event(
            # The SDK encodes results of the newer era as ASCII.
            ascii=over_http and is_modern(context),
            kept=self.kept,
            who=principal_of(context),
            links=context.protocol_version >= LINKS_SINCE,
            # Over sse a resource that is read is also sent as an event.
            readable=inf if over_http else EVENT - _AROUND,
        )
        tool = self.host.agent.tools.get(name)
        return event.within_limits(
            result, typed=tool is not None and output_schema(tool) is not None
        )

    def _is_event(self, context: Context) -> bool:
        # In the newer era the SDK answers with plain JSON unless something was sent before.
        modern = self.settings.transport == "streamable-http" and is_modern(context)
        return self.settings.transport != "stdio" and (not modern or wanted(context))

    async def _read(
        self, context: Context, params: types.ReadResourceRequestParams
    ) -> types.ReadResourceResult:
        uri = str(params.uri)
        contents = self.kept.read(uri, principal_of(context))
        if uri == URI:
            contents = self.card.contents()
        if contents is None:
            code = types.INVALID_PARAMS if is_modern(context) else RESOURCE_NOT_FOUND
            raise MCPError(code=code, message="there is no such resource", data={"uri": uri})
        return types.ReadResourceResult(contents=[contents])


class _Server(Server[Any]):
    """Declares what this server has: no prompts, resources only if results can link them, and
    change notifications only if tools can change."""

    links = False
    changes = False

    def get_capabilities(self, *given: Any, **more: Any) -> types.ServerCapabilities:
        declared = super().get_capabilities(*given, **more)
        tools = types.ToolsCapability(list_changed=True if self.changes else None)
        resources = types.ResourcesCapability() if self.links else None
        return declared.model_copy(update={"tools": tools, "prompts": None, "resources": resources})


def _check_first(params: types.PaginatedRequestParams | None) -> None:
    """Refuse a cursor: each list is one page, so no cursor was ever given out."""
    if params is not None and params.cursor:
        raise MCPError(code=types.INVALID_PARAMS, message="this cursor is not one of this server")


def _empty(kind: type[Page], name: str) -> Callable[..., Awaitable[Page]]:
    """A handler that answers a list request with an empty list."""

    async def answer(context: Context, params: types.PaginatedRequestParams | None) -> Page:
        _check_first(params)
        return kind(**{name: []})

    return answer


async def _no_prompt(context: Context, params: types.GetPromptRequestParams) -> NoReturn:
    """Answer that there is no such prompt; the list of prompts is empty."""
    raise MCPError(code=types.INVALID_PARAMS, message=f"unknown prompt: {params.name!r}")
