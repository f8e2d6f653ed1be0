"""Notifications: people hear of calls that wait, expire and run.

    [plugin.notify.webhooks.ops]     signed JSON to an address (Standard Webhooks, CloudEvents)
    [plugin.notify.mail.ops]         e-mail
    [plugin.notify.teams.ops]        a card with a link in Microsoft Teams

The log of the ledger is the outbox (design, section 6, "The log as outbox"). Another active plugin
may add channels: it has a method `channels(host)` that returns them by name, each a
`sayso_notify.notices.Channel`.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import Any

from sayso import Host, Plugin, PluginError, SaysoError, hookimpl
from sayso_notify.mail import Mail
from sayso_notify.notices import Channel
from sayso_notify.outbox import Line
from sayso_notify.settings import Settings as NotifySettings
from sayso_notify.webhooks import Teams, Webhook

__all__ = ["Notify"]


class Notify(Plugin):
    """The outbox and its channels; active when named in `plugins` or configured."""

    name = "notify"
    active_by_default = False

    Settings = NotifySettings
    settings: NotifySettings

    @hookimpl
    @asynccontextmanager
    async def lifespan(self, host: Host) -> AsyncIterator[None]:
        """Send notices for as long as the service lives."""
        own = self._own()
        lines = [Line(host, name, one, self._link) for name, one in (own | _of(host)).items()]
        host.details["notify"] = lambda: {line.name: line.details() for line in lines}
        sending = [asyncio.create_task(line.run()) for line in lines]
        try:
            yield
        finally:
            for task in sending:
                task.cancel()
            await asyncio.gather(*sending, return_exceptions=True)
            await asyncio.gather(*(line.leave() for line in lines))
            for channel in own.values():
                await channel.aclose()
            del host.details["notify"]

    def _own(self) -> dict[str, Any]:
        given = self.settings
        kinds: list[tuple[str, Any, Mapping[str, Any]]] = [
            ("webhooks", Webhook, given.webhooks),
            ("mail", Mail, given.mail),
            ("teams", Teams, given.teams),
        ]
        made: dict[str, Any] = {}
        for kind, channel, settings in kinds:
            for name, one in settings.items():
                try:
                    made[f"{kind}.{name}"] = channel(one)
                except SaysoError as error:
                    raise PluginError(f"[plugin.notify.{kind}.{name}]: {error}") from None
        return made

    def _link(self, call: str) -> str | None:
        return f"{self.settings.page}#{call}" if self.settings.page else None


def _of(host: Host) -> dict[str, Channel]:
    """The channels of other plugins."""
    found: dict[str, Channel] = {}
    for name in host.plugins.names:
        channels = getattr(host.plugins.get(name), "channels", None)
        if callable(channels):
            found |= {f"{name}.{each}": one for each, one in channels(host).items()}
    return found
