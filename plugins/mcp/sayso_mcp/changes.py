"""Notifications to clients that have listed the tools when the list changes."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from weakref import WeakKeyDictionary

from mcp.server.session import ServerSession
from mcp.server.subscriptions import InMemorySubscriptionBus, ListenHandler, ToolsListChanged

from sayso import Agent
from sayso_mcp.peers import Peer


class Changes:
    """Notifies clients of both eras: older ones through their session, and from 2026-07-28 on the
    ones that listen."""

    def __init__(self, agent: Agent) -> None:
        self._agent = agent
        self._loop = asyncio.get_running_loop()
        self._bus = InMemorySubscriptionBus()
        self._sessions: WeakKeyDictionary[Peer, ServerSession] = WeakKeyDictionary()
        self._notifying: set[asyncio.Task[None]] = set()
        self.listen = ListenHandler(self._bus)
        agent.tool_listeners.append(self._changed)

    def notify(self, peer: Peer, session: ServerSession) -> None:
        """Notify this client from now on."""
        self._sessions[peer] = session

    def close(self) -> None:
        """Send no more notifications."""
        with suppress(ValueError):
            self._agent.tool_listeners.remove(self._changed)
        self.listen.close()

    def _changed(self) -> None:
        # The loop may already be closed.
        with suppress(RuntimeError):
            self._loop.call_soon_threadsafe(self._begin)

    def _begin(self) -> None:
        task = asyncio.ensure_future(self._notify_all())
        self._notifying.add(task)
        task.add_done_callback(self._notifying.discard)

    async def _notify_all(self) -> None:
        await self._bus.publish(ToolsListChanged())
        for session in list(self._sessions.values()):
            await session.send_tool_list_changed()
