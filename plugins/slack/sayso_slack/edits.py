"""A text that grows: posted once, then edited, within Slack's limits."""

from __future__ import annotations

import time
from typing import Any, Literal

from sayso_slack.api import Api
from sayso_slack.cards import escaped

EVERY = 1.2
"""Seconds between two edits: Slack takes about one message a second in a channel."""
_LONGEST = 3_500
"""Characters of one message; a longer text goes on in the next one."""


class Growing:
    """The agent's text in a thread; nothing is posted before it has a character."""

    def __init__(
        self, api: Api, channel: str, thread: str | None, formatting: Literal["plain", "markdown"]
    ) -> None:
        self._api = api
        self._channel = channel
        self._thread = thread
        self._markdown = formatting == "markdown"
        self._text = ""
        self._shown = ""
        self._ts: str | None = None
        self._next = 0.0
        self.first: str | None = None
        """The time stamp of the first message."""

    async def add(self, text: str) -> None:
        """Show more text, now or with the next edit."""
        self._text += text
        while len(self._text) > _LONGEST:
            cut = self._text.rfind("\n", _LONGEST // 2, _LONGEST)
            cut = _LONGEST if cut < 0 else cut + 1
            rest, self._text = self._text[cut:], self._text[:cut]
            await self.finish()
            self._text, self._shown, self._ts = rest, "", None
        if self._text.strip() and time.monotonic() >= self._next:
            try:
                await self._show("call")
            except Exception as error:
                # The next edit shows it, or `finish`: no turn ends because of one edit.
                self._next = time.monotonic() + getattr(error, "retry_after", EVERY)

    async def finish(self) -> None:
        """Show the whole text."""
        if self._text.strip() and self._text != self._shown:
            await self._show("patient")

    async def _show(self, how: Literal["call", "patient"]) -> None:
        call = self._api.call if how == "call" else self._api.patient
        if self._ts is None:
            answer = await call(
                "chat_postMessage",
                channel=self._channel,
                unfurl_links=False,
                unfurl_media=False,
                **self._content(),
                **({"thread_ts": self._thread} if self._thread else {}),
            )
            self._ts = str(answer["ts"])
            self.first = self.first or self._ts
        else:
            await call("chat_update", channel=self._channel, ts=self._ts, **self._content())
        self._shown = self._text
        self._next = time.monotonic() + EVERY

    def _content(self) -> dict[str, Any]:
        # No mention and no link of the model's makes Slack notify somebody or fetch something.
        return {"text": escaped(self._text), "mrkdwn": self._markdown, "parse": "none"}
