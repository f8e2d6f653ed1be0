"""Conversations with the agent, in threads of channels and in direct messages."""

from __future__ import annotations

import asyncio
import logging
import re
from collections.abc import Sequence
from contextlib import aclosing
from typing import Any, NamedTuple
from weakref import WeakValueDictionary

from sayso import (
    Approvals,
    Asked,
    Caller,
    ChatRequest,
    Done,
    ErrorEvent,
    Host,
    Party,
    Proposal,
    Shown,
    TextDelta,
    asked,
    outcomes_of,
)
from sayso_slack import cards
from sayso_slack.api import Api
from sayso_slack.conversations import Conversations, Kept
from sayso_slack.edits import Growing
from sayso_slack.outgoing import Drawing
from sayso_slack.people import UNKNOWN, caller_of, person_of, written_by
from sayso_slack.settings import SlackSettings

logger = logging.getLogger("sayso.slack")
SOURCE = "team-chat"
_MENTION = re.compile(r"<@([A-Z0-9]+)(?:\|[^>]*)?>")
_LINK = re.compile(r"<([^@#!>|][^>|]*)(?:\|([^>]*))?>")
_PLAIN = (None, "thread_broadcast", "file_share")
"""The subtypes of messages that a person has written."""


class Place(NamedTuple):
    """The place of a conversation: its channel and its thread; None for a direct message without
    one."""

    channel: str
    thread: str | None

    @property
    def key(self) -> str:
        """The name of the conversation in notes."""
        return f"{self.channel}:{self.thread or ''}"


class Talk:
    """The agent as a member of the team's chat."""

    def __init__(
        self,
        host: Host,
        api: Api,
        settings: SlackSettings,
        drawing: Drawing,
        conversations: Conversations,
    ) -> None:
        self._host = host
        self._api = api
        self._settings = settings
        self._drawing = drawing
        self._conversations = conversations
        self._locks: WeakValueDictionary[str, asyncio.Lock] = WeakValueDictionary()
        self._going: set[asyncio.Task[None]] = set()

    async def handle(self, payload: Any) -> None:
        """Answer a message, if it is for the agent."""
        event = payload.get("event") or {}
        if not self._settings.talk or event.get("type") not in ("message", "app_mention"):
            return
        await self._api.begin(patient=True)
        who = written_by(payload, self._settings.teams)
        own = event.get("bot_id") or event.get("user") == self._api.user
        if who is None or own or event.get("subtype") not in _PLAIN:
            return
        place, direct = _place(event)
        mentioned = f"<@{self._api.user}>" in str(event.get("text", ""))
        kept = await self._conversations.load(place.key)
        is_ours = direct or mentioned or kept is not None or place.channel in self._settings.listen
        if not is_ours or not await self._conversations.is_new(f"{place.channel}:{event['ts']}"):
            return
        caller = caller_of(self._host, *who)
        if person_of(caller) is None:
            if direct or mentioned:
                await self._refuse(place, who)
            return
        await self._turn(place, caller, list(who), str(event["ts"]))

    async def go_on(self, key: str, row: Proposal) -> None:
        """Continue a conversation, if none of its calls is pending any more; in the background."""
        going = asyncio.ensure_future(self._go_on(key))
        self._going.add(going)
        going.add_done_callback(self._going.discard)

    async def aclose(self) -> None:
        """Stop; the host ends the turns that have started."""
        for task in self._going:
            task.cancel()
        await asyncio.gather(*self._going, return_exceptions=True)

    async def _go_on(self, key: str) -> None:
        channel, _, thread = key.partition(":")
        try:
            kept = await self._conversations.load(key)
            if kept is None or not kept.waiting or len(kept.user) != 2:
                return
            caller = caller_of(self._host, *kept.user)
            rows = await self._host.calls.standing(kept.waiting, caller)
            states = {row.state for row in rows.values()}
            if not states or "PENDING" in states or states == {"EXPIRED"}:
                return
            await self._turn(Place(channel, thread or None), caller, kept.user, None)
        except Exception:
            logger.exception("a conversation in Slack could not go on")

    async def _turn(
        self, place: Place, caller: Caller, user: list[str], newest: str | None
    ) -> None:
        """One turn; `newest` is the time stamp of its message, None where a decision continues
        it."""
        lock = self._locks.get(place.key) or asyncio.Lock()
        self._locks[place.key] = lock
        async with lock:
            kept = await self._conversations.load(place.key)
            if kept is None:
                # Messages in the thread while its first turn runs are for the agent, too.
                kept = Kept()
                await self._conversations.save(place.key, kept)
            if newest is None and not kept.waiting:
                return
            said = await self._history(place, kept, newest)
            wanted = await self._asked(caller, said, kept)
            text = Growing(self._api, place.channel, place.thread, self._settings.formatting)
            if wanted.request is None:
                await text.add(_restated(wanted.pending))
                await text.finish()
                # Without the notice the message stands last, and a turn takes it up that goes on.
                kept.notices += [text.first] if text.first is not None else []
                await self._conversations.save(place.key, kept)
                return
            kept.user = user
            await self._answer(place, caller, wanted.request, text, kept)
            if newest is None and text.first is not None:
                kept.begins.append(text.first)
            await self._conversations.save(place.key, kept)

    async def _asked(self, caller: Caller, said: Sequence[Said], kept: Kept) -> Asked:
        wanted = await asked(
            self._host.calls,
            caller,
            [one.shown for one in said],
            reported=kept.reported,
            session=kept.session,
            supersede=self._host.config.approvals.on_new_message == "supersede",
        )
        if wanted.request is not None:
            wanted.request.source = SOURCE
            for message, one in zip(wanted.request.messages, said, strict=False):
                if one.user is not None and message.role == "user":
                    message.user = Party(name=one.user, id=one.user)
        return wanted

    async def _answer(
        self, place: Place, caller: Caller, request: ChatRequest, text: Growing, kept: Kept
    ) -> None:
        kept.waiting = []
        stream = self._host.stream(request, caller)
        async with aclosing(stream):
            while events := await stream.ready():
                for event in events:
                    match event:
                        case TextDelta(text=more):
                            await text.add(more)
                        case Approvals(approvals=approvals):
                            await text.finish()
                            ids = [one.id for one in approvals]
                            await self._show(place, caller, ids, kept)
                        case ErrorEvent(words=words):
                            await text.add(f"\n:warning: {words}")
                        case Done():
                            kept.session = event.session or kept.session
                        case _:
                            kept.reported += [ended.id for ended in outcomes_of(event)]
        await text.finish()

    async def _show(self, place: Place, caller: Caller, ids: Sequence[str], kept: Kept) -> None:
        """Post the cards of the calls in the thread."""
        kept.waiting = list(ids)
        rows = await self._host.calls.standing(ids, caller)
        shown = {id_ for posted in kept.ids.values() for id_ in posted}
        for row in [rows[id_] for id_ in ids if id_ in rows and id_ not in shown]:
            card = self._drawing.card(row, row.created, None)
            posted = await self._drawing.post(card, place.channel, place.thread, patient=True)
            kept.ids[posted.partition(":")[2]] = [row.id]
            await self._conversations.put_card(row.id, place.key, posted)
        # The conversation may go on as soon as one of them is decided.
        await self._conversations.save(place.key, kept)

    async def _history(self, place: Place, kept: Kept, newest: str | None) -> list[Said]:
        """The messages of the conversation, the oldest first, up to the newest."""
        if place.thread is None:
            found = await self._api.patient(
                "conversations_history", channel=place.channel, limit=self._settings.history
            )
            messages = [one for one in found["messages"] if not _in_thread(one)][::-1]
        else:
            messages = await self._replies(place)
        if newest is not None:
            messages = [one for one in messages if float(one["ts"]) <= float(newest)]
        return _said(
            [one for one in messages if one["ts"] not in kept.notices], kept, self._api.user
        )

    async def _replies(self, place: Place) -> list[Any]:
        messages: list[Any] = []
        cursor = ""
        while True:
            found = await self._api.patient(
                "conversations_replies",
                channel=place.channel,
                ts=place.thread,
                limit=200,
                **({"cursor": cursor} if cursor else {}),
            )
            messages += found["messages"]
            cursor = (found.get("response_metadata") or {}).get("next_cursor") or ""
            if not cursor:
                return messages[-self._settings.history :]

    async def _refuse(self, place: Place, who: tuple[str, str]) -> None:
        await self._api.patient(
            "chat_postEphemeral",
            channel=place.channel,
            user=who[1],
            text=cards.escaped(UNKNOWN.format(*who)),
            **({"thread_ts": place.thread} if place.thread else {}),
        )


class Said(NamedTuple):
    """A message as the turn gets it, and its author."""

    shown: Shown
    user: str | None


def _place(event: Any) -> tuple[Place, bool]:
    """The conversation of a message, and whether it is a direct one."""
    direct = event.get("channel_type") == "im"
    thread = event.get("thread_ts") or (None if direct else event["ts"])
    return Place(str(event["channel"]), thread and str(thread)), direct


def _in_thread(message: Any) -> bool:
    return message.get("thread_ts") not in (None, message["ts"])


def _said(messages: Sequence[Any], kept: Kept, bot: str) -> list[Said]:
    said: list[Said] = []
    for message in messages:
        ts, text = str(message["ts"]), str(message.get("text", ""))
        if message.get("user") != bot:
            if message.get("subtype") in _PLAIN:
                said.append(Said(Shown("user", _unescaped(text, bot)), message.get("user")))
            continue
        ids = kept.ids.get(ts, [])
        mine = Shown("assistant", "" if ids else _unescaped(text, bot), ids)
        if ts in kept.begins:
            said.append(Said(Shown("user", ""), None))
        elif said and said[-1].shown.role == "assistant":
            before = said.pop().shown
            parts = [part for part in (before.text, mine.text) if part]
            mine = Shown("assistant", "\n".join(parts), [*before.ids, *ids])
        said.append(Said(mine, None))
    return said


def _unescaped(text: str, bot: str) -> str:
    """The text that a person has written, without the mention of the agent."""
    text = _MENTION.sub(lambda found: "" if found[1] == bot else f"@{found[1]}", text)
    text = _LINK.sub(lambda found: found[2] or found[1], text)
    return text.replace("&lt;", "<").replace("&gt;", ">").replace("&amp;", "&").strip()


def _restated(pending: Sequence[Proposal]) -> str:
    names = ", ".join(cards.name_of(row) for row in pending)
    return f"{names}: this waits for a decision, on its card above. Words decide nothing."
