"""The data of Slack conversations that Slack does not have: session, calls, and who began the turn.

The texts stay in Slack, and are read from there for each turn. These notes are in the ledger's
store, since Slack gives an event to any of the service's processes.
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, field
from typing import Any

from sayso import Host, Notes

_SEEN, _TALK, _CARD = "slack:seen:", "slack:talk:", "slack:card:"
_EVENT_KEPT = 3_600.0
_MOST = 200


@dataclass(slots=True)
class Kept:
    """The note of one conversation.

    `ids` has the calls on the cards, by the time stamps of their messages; `begins` the first
    message of each turn that no new message began, `notices` the messages that no turn made;
    `waiting` the calls that the last turn left
    undecided, `reported` those whose outcome a turn has had; `user` the workspace and the id of
    the user whose turn it was.
    """

    user: list[str] = field(default_factory=list)
    session: dict[str, Any] | None = None
    ids: dict[str, list[str]] = field(default_factory=dict)
    begins: list[str] = field(default_factory=list)
    notices: list[str] = field(default_factory=list)
    waiting: list[str] = field(default_factory=list)
    reported: list[str] = field(default_factory=list)
    at: float = 0.0

    def bounded(self) -> Kept:
        """The note without what is far back."""
        self.ids = dict([*self.ids.items()][-_MOST:])
        self.begins, self.notices = self.begins[-_MOST:], self.notices[-_MOST:]
        self.reported = self.reported[-5 * _MOST :]
        return self


class Conversations:
    """The notes of all conversations."""

    def __init__(self, host: Host) -> None:
        self._host = host

    async def is_new(self, event: str) -> bool:
        """Whether this process is the first that takes the event: Slack repeats some."""

        def work(notes: Notes) -> bool:
            name = f"{_SEEN}{event}"
            if name in notes.find(name):
                return False
            notes.put(name, str(notes.now))
            return True

        return await self._host.record.notes(work)

    async def load(self, key: str) -> Kept | None:
        """The note of a conversation; None for one in which the agent has said nothing."""
        name = f"{_TALK}{key}"
        text = (await self._host.record.notes(lambda notes: dict(notes.find(name)))).get(name)
        return Kept(**json.loads(text)) if text else None

    async def save(self, key: str, kept: Kept) -> None:
        """Keep the note."""

        def work(notes: Notes) -> None:
            kept.at = notes.now
            notes.put(f"{_TALK}{key}", json.dumps(asdict(kept.bounded())))

        await self._host.record.notes(work)

    async def put_card(self, call: str, key: str, place: str) -> None:
        """Remember in which conversation, and where, the card of a call is."""

        def work(notes: Notes) -> None:
            notes.put(f"{_CARD}{call}", json.dumps([key, place, notes.now]))

        await self._host.record.notes(work)

    async def card(self, call: str) -> tuple[str, str] | None:
        """The conversation and the place of a call's card."""
        name = f"{_CARD}{call}"
        text = (await self._host.record.notes(lambda notes: dict(notes.find(name)))).get(name)
        if not text:
            return None
        key, place, _ = json.loads(text)
        return key, place

    async def forget(self, retention: float) -> None:
        """Remove notes that are older than `retention` seconds, and events of the last hour
        before."""

        def work(notes: Notes) -> None:
            for name, text in notes.find(_SEEN).items():
                if float(text) < notes.now - _EVENT_KEPT:
                    notes.put(name, None)
            for name, text in notes.find(_TALK).items():
                if json.loads(text)["at"] < notes.now - retention:
                    notes.put(name, None)
            for name, text in notes.find(_CARD).items():
                if json.loads(text)[2] < notes.now - retention:
                    notes.put(name, None)

        await self._host.record.notes(work)
