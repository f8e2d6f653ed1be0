"""The notices of one call that a channel has to send, in their order, and when."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import asdict, dataclass, field
from random import Random

from sayso import Proposal
from sayso_notify.notices import (
    ASKING,
    ESCALATED,
    LATE,
    REMINDER,
    Channel,
    fits,
    made_id,
)

_random = Random()
"""Not the module's own generator, which user code may seed alike in every process."""

PAUSES = (5.0, 300.0, 1_800.0, 7_200.0, 18_000.0, 36_000.0)
"""Seconds between the attempts to send a notice; after the last one it is dropped."""
LATEST = 86_400.0
"""Seconds within which a notice is sent that comes after the time of its call."""
_REMINDERS = 2


@dataclass(slots=True)
class Waiting:
    """A notice that has not been sent."""

    id: str
    type: str
    at: float
    who: str | None = None


@dataclass(slots=True)
class Delivery:
    """The state of one call on one channel.

    `queue` has the notices to send, the oldest first; the first of them has had `attempts` and is
    sent at `next`. `informed` says whether the channel hears of the call yet, `reminded` how often
    it was reminded. `state` is the state of the call in the part of the log that was read, `remote`
    what the channel returned for it.
    """

    call: str
    created: float
    expires: float
    state: str = "PENDING"
    queue: list[Waiting] = field(default_factory=list)
    attempts: int = 0
    next: float = 0.0
    informed: bool = False
    reminded: int = 0
    remote: str | None = None

    @classmethod
    def of(cls, row: Proposal, channel: Channel) -> Delivery:
        """A delivery for a call that the channel does not know yet."""
        return cls(row.id, row.created, row.expires, informed=channel.after is None)

    @classmethod
    def loads(cls, text: str) -> Delivery:
        """The delivery in a note."""
        given = json.loads(text)
        return cls(**{**given, "queue": [Waiting(**one) for one in given["queue"]]})

    def dumps(self) -> str:
        """The delivery as a note."""
        return json.dumps(asdict(self))

    @property
    def over(self) -> bool:
        """Whether nothing more is to be sent about the call."""
        return self.state == "ENDED" and not self.queue

    def add(self, waiting: Waiting, channel: Channel) -> None:
        """Queue a notice, if the channel sends such ones now."""
        known = any(one.id == waiting.id for one in self.queue)
        if self.informed and not known and fits(channel.events, waiting.type):
            self.queue.append(waiting)

    def look(self, now: float, channel: Channel) -> bool:
        """Queue what time brings for a pending call; returns whether something was queued."""
        before = len(self.queue)
        if self.state == "PENDING" and now < self.expires:
            self.queue += self._due(now, channel)
        return len(self.queue) > before

    def _due(self, now: float, channel: Channel) -> Iterator[Waiting]:
        if not self.informed and channel.after is not None and now >= self.created + channel.after:
            self.informed = True
            if fits(channel.events, ESCALATED):
                yield Waiting(made_id(self.call, ESCALATED), ESCALATED, now)
        number = self.reminded
        while self.reminded < _REMINDERS and now >= self._reminder(self.reminded):
            self.reminded += 1
        # One reminder takes the place of those that were missed.
        due = self.informed and channel.reminders and self.reminded > number
        if due and self.remote is None and any(one.type in ASKING for one in self.queue):
            return
        if due and fits(channel.events, REMINDER):
            yield Waiting(made_id(self.call, REMINDER, self.reminded), REMINDER, now)

    def _reminder(self, number: int) -> float:
        return self.created + (self.expires - self.created) * (number + 1) / (_REMINDERS + 1)

    def upcoming(self, channel: Channel) -> float:
        """When there is something to do for the call by time alone."""
        times = [self.expires] if self.state in ("PENDING", "APPROVED") else []
        if self.state == "PENDING":
            if not self.informed and channel.after is not None:
                times.append(self.created + channel.after)
            if self.reminded < _REMINDERS:
                times.append(self._reminder(self.reminded))
        if self.queue:
            times.append(self.next)
        return min(times, default=float("inf"))

    def first(self, row: Proposal | None, now: float) -> Waiting | None:
        """The notice to send now, without those before it that are out of date."""
        while self.queue:
            one = self.queue[0]
            if row is not None and not _outdated(one, row, now):
                return one if self.next <= now else None
            self._drop()
        return None

    def sent(self, remote: str | None) -> None:
        """The first notice was sent."""
        self.remote = remote or self.remote
        self._drop()

    def failed(self, now: float, retry_after: float | None) -> bool:
        """The first notice could not be sent; returns whether it is dropped."""
        if self.attempts >= len(PAUSES):
            self._drop()
            return True
        pause = PAUSES[self.attempts] if retry_after is None else retry_after
        self.attempts += 1
        self.next = now + pause * _random.uniform(1.0, 1.25)
        return False

    def _drop(self) -> None:
        del self.queue[0]
        self.attempts, self.next = 0, 0.0


def _outdated(one: Waiting, row: Proposal, now: float) -> bool:
    """Whether a notice is not sent any more: it asks for what was decided, or the time of the call
    is over."""
    if one.type in ASKING:
        return row.state != "PENDING" or now >= row.expires
    if one.type in LATE:
        return now > one.at + LATEST
    return now > max(row.expires, one.at + PAUSES[0])
