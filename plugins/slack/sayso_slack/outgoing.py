"""The channels of notify's outbox: the cards in one channel, and those in threads."""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable
from typing import Any

from slack_sdk.errors import SlackApiError

from sayso import Host, Proposal
from sayso_slack import cards
from sayso_slack.api import Api
from sayso_slack.conversations import Conversations
from sayso_slack.people import PROTOCOL, decider_of
from sayso_slack.settings import SlackSettings

logger = logging.getLogger("sayso.slack")
_LOST = ("message_not_found", "channel_not_found", "cant_update_message", "is_archived")
_FOLLOWS = {
    "approval.reminder": "still waits for a decision",
    "approval.escalated": "still waits, and nobody has decided",
}


class Drawing:
    """Draws the cards of calls, and changes them."""

    def __init__(self, host: Host, api: Api, settings: SlackSettings) -> None:
        self._host = host
        self._api = api
        self._settings = settings

    def card(self, row: Proposal, at: float, link: str | None) -> cards.Card:
        """The card of the call in its present state."""
        if row.state != "PENDING":
            return cards.decided(row, at, decider_of(self._host, row))
        tool = self._host.agent.tools.get(row.name) if row.kind == "tool_call" else None
        # An unmarked tool counts as one whose effect cannot be undone.
        destructive = tool is None or (tool.destructive is not False and not tool.read_only)
        standing = self._host.record.standing(row)
        return cards.asking(row, cards.Shown(self._settings.inputs, link, standing, destructive))

    async def post(
        self, card: cards.Card, channel: str, thread: str | None = None, *, patient: bool = False
    ) -> str:
        """Post a card; returns its place, "CHANNEL:TS". The outbox posts again later; all others
        are `patient`."""
        given: dict[str, Any] = {"thread_ts": thread} if thread else {}
        call = self._api.patient if patient else self._api.call
        answer = await call(
            "chat_postMessage",
            channel=channel,
            text=card.text,
            blocks=card.blocks,
            unfurl_links=False,
            unfurl_media=False,
            **given,
        )
        return f"{answer['channel']}:{answer['ts']}"

    async def change(self, place: str, card: cards.Card) -> None:
        """Change a posted card; one that is not there any more is left alone."""
        channel, _, ts = place.partition(":")
        try:
            await self._api.call(
                "chat_update", channel=channel, ts=ts, text=card.text, blocks=card.blocks
            )
        except SlackApiError as error:
            if error.response.get("error") not in _LOST:
                raise
            logger.info("a card cannot be changed: %s", error.response.get("error"))


class ChannelCards:
    """The channel with a card for each call that waits (a `sayso_notify.notices.Channel`)."""

    events = ("*",)

    def __init__(self, drawing: Drawing, settings: SlackSettings) -> None:
        self._drawing = drawing
        self._channel = settings.channel or ""
        self.tools, self.reminders, self.after = settings.tools, settings.reminders, settings.after

    async def send(self, notice: Any) -> str | None:
        """Post, change or follow the card."""
        card = self._drawing.card(notice.row, notice.at, notice.link)
        if notice.remote is None:
            is_open = notice.row.state == "PENDING"
            return await self._drawing.post(card, self._channel) if is_open else None
        await self._drawing.change(notice.remote, card)
        if (follows := _FOLLOWS.get(notice.type)) is not None:
            text = f"{cards.name_of(notice.row)} {follows}."
            block = {"type": "section", "text": {"type": "plain_text", "text": text}}
            channel, _, ts = notice.remote.partition(":")
            await self._drawing.post(cards.Card(cards.escaped(text), [block]), channel, ts)
        return None


class ThreadCards:
    """The cards in the threads of conversations, which continue after the decision."""

    events = ("*",)
    tools = ("*",)
    reminders = False
    after = None

    def __init__(
        self,
        drawing: Drawing,
        conversations: Conversations,
        go_on: Callable[[str, Proposal], Awaitable[None]],
    ) -> None:
        self._drawing = drawing
        self._conversations = conversations
        self._go_on = go_on

    async def send(self, notice: Any) -> str | None:
        """Change the card, and let the conversation go on."""
        row = notice.row
        if row.protocol != PROTOCOL or (kept := await self._conversations.card(row.id)) is None:
            return None
        key, place = kept
        await self._drawing.change(place, self._drawing.card(row, notice.at, notice.link))
        if row.state != "PENDING":
            await self._go_on(key, row)
        return None
