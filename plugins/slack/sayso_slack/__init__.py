"""Slack: people decide calls on cards, and talk with the agent in threads and direct messages.

Payloads come over Socket Mode, for which the service connects to Slack, or by signed requests to
`/slack/events` and `/slack/interactions`. The outbox of the plugin `notify` sends the cards. The
message is a view of a call and never the record: each press is checked and decided like a decision
over any other protocol (design, section 6, "People").
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import Any

from pydantic import SecretStr
from starlette.routing import Route, Router

from sayso import Host, Plugin, PluginError, SaysoError, hookimpl, install_line, secret_text
from sayso_slack.api import Api, cause_of
from sayso_slack.conversations import Conversations
from sayso_slack.incoming import EVENTS, INTERACTIONS, Endpoints, Receiver, SocketMode
from sayso_slack.interactions import Interactions
from sayso_slack.outgoing import ChannelCards, Drawing, ThreadCards
from sayso_slack.settings import SlackSettings
from sayso_slack.talk import Talk

logger = logging.getLogger("sayso.slack")

__all__ = ["Slack"]
_SWEEP = 3_600.0


class Slack(Plugin):
    """The app; active when named in `plugins` or configured."""

    name = "slack"
    active_by_default = False
    signed_paths = (EVENTS, INTERACTIONS)

    class Settings(SlackSettings):
        """`[plugin.slack]`."""

    settings: Settings

    def __init__(self, settings: Any) -> None:
        super().__init__(settings)
        self._parts: _Parts | None = None

    @hookimpl
    def register_routes(self, host: Host) -> Router | None:
        """The paths of signed requests, if there is a signing secret."""
        if self.settings.lacking:
            # The lifespan stops the start.
            return None
        parts = self._made(host)
        if self.settings.signing_secret is None:
            return None
        secret = _secret(self.settings.signing_secret, "signing_secret")
        endpoints = Endpoints(host, parts.receiver, secret)
        return Router(
            [
                Route(EVENTS, endpoints.events, methods=["POST"]),
                Route(INTERACTIONS, endpoints.interactions, methods=["POST"]),
            ]
        )

    def openapi_paths(self, host: Host) -> Mapping[str, Mapping[str, Any]]:
        """The operations of this plugin's routes."""
        from sayso_slack.described import openapi_paths

        return openapi_paths(EVENTS, INTERACTIONS)

    def channels(self, host: Host) -> dict[str, Any]:
        """The channels of the outbox of the plugin `notify`."""
        if self.settings.lacking:
            return {}
        parts = self._made(host)
        cards: dict[str, Any] = {"threads": parts.threads}
        if self.settings.channel is not None:
            cards["cards"] = ChannelCards(parts.drawing, self.settings)
        return cards

    @hookimpl
    @asynccontextmanager
    async def lifespan(self, host: Host) -> AsyncIterator[None]:
        """Be connected for as long as the service lives."""
        if lacking := self.settings.lacking:
            raise PluginError(f"plugin 'slack': set {', '.join(lacking)} in [plugin.slack]")
        if "notify" not in host.plugins.names:
            raise PluginError(
                "plugin 'slack' needs the plugin 'notify', which sends its cards: add it to "
                f"plugins; if it is not installed: {install_line('sayso[notify]')}"
            )
        parts = self._made(host)
        beside = [asyncio.create_task(_forgetting(host, parts.conversations))]
        socket = None
        if self.settings.app_token is not None:
            token = _secret(self.settings.app_token, "app_token")
            socket = SocketMode(parts.api, parts.receiver, token)
            beside.append(asyncio.create_task(socket.run()))
        else:
            beside.append(asyncio.create_task(_introduced(parts.api)))
        host.details["slack"] = lambda: {"socket_mode": socket.connected} if socket else {}
        try:
            yield
        finally:
            del host.details["slack"]
            for task in beside:
                task.cancel()
            await asyncio.gather(*beside, return_exceptions=True)
            if socket is not None:
                await socket.aclose()
            await parts.receiver.aclose()
            await parts.talk.aclose()
            parts.api.close()

    def _made(self, host: Host) -> _Parts:
        if self._parts is None:
            self._parts = _Parts(host, self.settings)
        return self._parts


class _Parts:
    """The objects of one life of the service."""

    def __init__(self, host: Host, settings: SlackSettings) -> None:
        self.api = Api(_secret(settings.bot_token, "bot_token"), settings.api)
        self.conversations = Conversations(host)
        self.drawing = Drawing(host, self.api, settings)
        self.talk = Talk(host, self.api, settings, self.drawing, self.conversations)
        self.threads = ThreadCards(self.drawing, self.conversations, self.talk.go_on)
        interactions = Interactions(host, self.api, settings)
        self.receiver = Receiver(host, self.talk.handle, interactions.handle)


def _secret(given: SecretStr | None, name: str) -> str:
    assert given is not None, "register_routes has checked it"
    try:
        return secret_text(given, f"plugin.slack.{name}")
    except SaysoError as error:
        raise PluginError(str(error)) from None


async def _introduced(api: Api) -> None:
    """Learn who the bot is, as soon as Slack can be reached."""
    pause = 1.0
    while True:
        try:
            return await api.begin()
        except Exception as error:
            cause = cause_of(error)
            logger.warning("Slack cannot be reached (%s); tried again in %.0f s", cause, pause)
            await asyncio.sleep(pause)
            pause = min(60.0, 2 * pause)


async def _forgetting(host: Host, conversations: Conversations) -> None:
    while True:
        await asyncio.sleep(_SWEEP)
        await conversations.forget(host.config.approvals.retention)
