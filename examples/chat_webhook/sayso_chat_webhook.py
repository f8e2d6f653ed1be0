"""Tells any chat that has incoming webhooks of calls that wait for a decision.

    plugins = ["v2", "notify", "chat_webhook"]

    [plugin.chat_webhook]
    url = "https://chat.example.com/hooks/..."   # Mattermost, Rocket.Chat, Google Chat
    field = "text"                               # Discord: "content"

It is a channel of the plugin `notify`, whose outbox calls `send`: once for each notice, and again
later if `send` raises. Nobody decides in the chat: the message leads to the page.
"""

from __future__ import annotations

import asyncio
import json
from typing import Any
from urllib.request import Request, urlopen

from pydantic import SecretStr

from sayso import Host, Plugin, visible

_TIMEOUT = 10.0
WORDS = {
    "approval.requested": "waits for a decision",
    "approval.reminder": "still waits for a decision",
    "approval.approved": "was approved",
    "approval.rejected": "was rejected",
    "approval.expired": "has expired, and did not run",
}


class ChatWebhook(Plugin):
    """The channel; active when named in `plugins` or configured."""

    name = "chat_webhook"
    active_by_default = False

    class Settings(Plugin.Settings):
        """`[plugin.chat_webhook]`."""

        url: SecretStr = SecretStr("")
        """The address of the incoming webhook; who knows it can post."""
        field: str = "text"
        """The field of the text in the body."""

    settings: Settings

    def channels(self, host: Host) -> dict[str, Chat]:
        """The channels for the outbox of the plugin `notify`."""
        return {"chat": Chat(self.settings.url.get_secret_value(), self.settings.field)}


class Chat:
    """One chat, as a channel of the outbox."""

    events = tuple(WORDS)
    tools = ("*",)
    reminders = True
    after = None

    def __init__(self, url: str, field: str) -> None:
        self._url = url
        self._field = field

    async def send(self, notice: Any) -> str | None:
        """Post one notice; an exception makes the outbox try it again."""
        asked = notice.row.person or notice.row.principal or "somebody"
        text = f"{notice.row.name} {WORDS[notice.type]} (asked by {asked})"
        if notice.who:
            text += f", by {notice.who}"
        # Of the input nothing leaves: a chat keeps its messages for longer than the ledger.
        text = visible(text, strict=True).replace("@", "@\u200b")
        await asyncio.to_thread(self._post, f"{text} {notice.link or ''}".strip())
        return None

    def _post(self, text: str) -> None:
        body = json.dumps({self._field: text}).encode()
        request = Request(self._url, body, {"Content-Type": "application/json"})
        with urlopen(request, timeout=_TIMEOUT) as response:
            response.read(4096)
