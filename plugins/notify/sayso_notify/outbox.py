"""The outbox: one line for each channel, which follows the log and sends notices.

Among all processes on the store one holds the lease of a channel, and its line alone reads the log
from the channel's cursor and sends. The cursor, and for each call the notices to send, are notes in
the store. A process that takes over continues with them: a notice may be sent again, with the same
id. Nothing here is in the path of a turn.
"""

from __future__ import annotations

import asyncio
import json
import logging
import secrets
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass
from functools import partial
from hashlib import sha256
from random import Random

from sayso import Host, LogPage, Notes, Proposal, Transaction
from sayso_notify.deliveries import LATEST, Delivery, Waiting
from sayso_notify.notices import REQUESTED, STATES, TYPES, Channel, Notice, fits, iso, made_id

_random = Random()
"""Not the module's own generator, which user code may seed alike in every process."""

logger = logging.getLogger("sayso.notify")
LEASE = 30.0
"""Seconds for which a process holds a channel without renewing the lease."""
PAUSE = 1.0
"""Seconds between two looks at the log."""
OTHERS = 5.0
"""Seconds between two looks at a lease that another process holds."""
TIMEOUT = 15.0
"""Seconds that sending one notice may take."""
_AT_ONCE = 4
_READ = 200
_MOST = 10_000
"""Most calls of a channel in memory; the log keeps the others."""
_SCANNED = 200


class Lost(Exception):
    """Another process has taken the lease."""


@dataclass(slots=True)
class Held:
    """The note of a channel: who holds its lease until when, and its cursor."""

    owner: str = ""
    until: float = 0.0
    cursor: str | None = None


class Line:
    """One channel of this process."""

    def __init__(self, host: Host, name: str, channel: Channel, link: Callable[[str], str | None]):
        self._host = host
        self._channel = channel
        self._link = link
        self._owner = secrets.token_hex(8)
        agent = sha256(host.agent.id.encode()).hexdigest()[:16]
        self.name = name
        self._note = f"notify:{agent}:{name}"
        self._cursor: str | None = None
        self._known: dict[str, Delivery] = {}
        self._renewed = 0.0
        self._holds = False
        self._gone = False
        self._failing = 0
        self._until = 0.0
        self._since = 0.0
        self._error = ""

    def details(self) -> dict[str, object]:
        """The state of the channel, for `/ready`: everybody may read it."""
        waiting = [one for one in self._known.values() if one.queue]
        shown: dict[str, object] = {"state": self._state(), "waiting": len(waiting)}
        if waiting:
            oldest = min(one.queue[0].at for one in waiting)
            shown["lag"] = round(max(0.0, time.time() - oldest), 1)
        if self._error:
            shown |= {"error": self._error, "since": iso(self._since)}
        return shown

    def _state(self) -> str:
        if self._gone:
            return "gone"
        if self._failing:
            return "failing"
        return "sending" if self._holds else "elsewhere"

    async def run(self) -> None:
        """Send notices until the service stops."""
        while not self._host.stopping and not self._gone:
            pause = OTHERS
            try:
                if await self._take():
                    await self._read()
                    await self._look()
                    await self._send()
                    pause = self._pause()
            except Lost:
                self._holds = False
            except Exception:
                # The store may be unavailable for a while; the log is read later.
                logger.warning("the outbox of %s cannot go on now", self.name, exc_info=True)
            await asyncio.sleep(pause * _random.uniform(0.9, 1.1))

    async def leave(self) -> None:
        """Give the lease back, so that another process need not wait for its end."""
        if self._holds:
            self._holds = False
            with suppress(Exception):
                async with asyncio.timeout(1.0):
                    await self._write([], until=0.0)

    def _pause(self) -> float:
        times = [one.upcoming(self._channel) for one in self._known.values()]
        left = min(times, default=float("inf")) - time.time()
        return max(0.05, min(PAUSE, left)) if not self._failing else PAUSE

    async def _take(self) -> bool:
        """Whether this process holds the lease now; it is renewed, or taken if it is free."""
        if self._holds and time.monotonic() < self._renewed + LEASE / 3:
            return True
        asked = time.monotonic()
        held = await self._host.record.notes(self._taken)
        had, self._holds = self._holds, held is not None
        if held is None:
            return False
        self._renewed = asked
        if not had:
            await self._begin(held)
        return True

    def _taken(self, notes: Notes) -> Held | None:
        held = _held(notes, self._note)
        if held.owner != self._owner and held.until > notes.now:
            return None
        held.owner, held.until = self._owner, notes.now + LEASE
        notes.put(self._note, json.dumps(asdict(held)))
        return held

    async def _begin(self, held: Held) -> None:
        """Continue where the holder before stopped, or with the calls that are pending now."""
        texts = await self._host.record.notes(lambda notes: dict(notes.find(f"{self._note}/")))
        self._known = {one.call: one for one in map(Delivery.loads, texts.values())}
        self._cursor = held.cursor
        if self._cursor is None:
            self._cursor = await self._host.record.log_end()
            rows = await self._host.record.read(_pending)
            for row in filter(self._concerns, rows):
                asked = Waiting(made_id(row.id, REQUESTED), REQUESTED, row.created)
                self._delivery(row).add(asked, self._channel)
            await self._write(self._known.values())

    def _concerns(self, row: Proposal) -> bool:
        own = row.agent in ("", self._host.agent.id)
        return own and fits(self._channel.tools, row.name)

    def _delivery(self, row: Proposal) -> Delivery:
        return self._known.setdefault(row.id, Delivery.of(row, self._channel))

    async def _read(self) -> None:
        """Take up what the log has since the cursor."""
        more = True
        while more and len(self._known) < _MOST:
            try:
                page = await self._host.record.log(self._cursor, _READ)
            except ValueError:
                logger.warning("the cursor of %s is none any more; it begins now", self.name)
                page = LogPage([], await self._host.record.log_end(), 0, False)
            if page.gap:
                logger.warning("a purge removed %d rows that %s had not read", page.gap, self.name)
            more = page.more
            if page.events or page.cursor != self._cursor:
                await self._take_up(page)

    async def _take_up(self, page: LogPage) -> None:
        ids = {str(event.row.entry.get("id")) for event in page.events}
        rows = await self._host.record.read(partial(_rows, ids=sorted(ids)))
        changed: dict[str, Delivery] = {}
        for event in page.events:
            entry, name = event.row.entry, str(event.row.entry.get("event"))
            row = rows.get(str(entry.get("id")))
            if row is None or name not in STATES or not self._concerns(row):
                continue
            is_new = row.id not in self._known
            known = changed[row.id] = self._delivery(row)
            known.state, known.expires = STATES[name], row.expires
            type_ = TYPES.get(name)
            # A channel that has just begun may have asked for the call already.
            if type_ is not None and (is_new or type_ != REQUESTED):
                who = entry.get("person") or entry.get("who")
                known.add(Waiting(event.id, type_, event.row.at, who and str(who)), self._channel)
        self._cursor = page.cursor
        await self._write(changed.values())

    async def _look(self) -> None:
        """Queue reminders and escalations, and have expired calls recorded as expired."""
        now = time.time()
        changed = [one for one in self._known.values() if one.look(now, self._channel)]
        late = [
            one.call
            for one in self._known.values()
            if one.state in ("PENDING", "APPROVED") and one.expires <= now
        ]
        if late:
            rows = await self._host.record.settle(late)
            for id_ in late:
                if (row := rows.get(id_)) is None:
                    self._known[id_].state = "ENDED"
                else:
                    # The store's clock may be behind this one.
                    self._known[id_].expires = max(row.expires, now + PAUSE)
            # The log has their expiry now.
            await self._read()
        if changed:
            await self._write(changed)

    async def _send(self) -> None:
        """Send what is due: while the channel fails, one notice at a time."""
        now = time.time()
        if now < self._until:
            return
        due = sorted((d for d in self._known.values() if d.queue), key=lambda one: one.next)
        # A round takes at most the time of one notice, so that the lease is renewed in time.
        due = [one for one in due if one.next <= now][: 1 if self._failing else _AT_ONCE]
        rows = await self._host.record.settle([one.call for one in due]) if due else {}
        ended = await asyncio.gather(*(self._sent(one, rows.get(one.call)) for one in due))
        self._judge(ended)
        over = [one for one in self._known.values() if one.over]
        if due or over:
            await self._write({one.call: one for one in [*due, *over]}.values())

    async def _sent(self, delivery: Delivery, row: Proposal | None) -> bool | Exception:
        """Send the first notice of a call: whether one was sent, or the error."""
        before = list(delivery.queue)
        first = delivery.first(row, time.time())
        for skipped in before[: len(before) - len(delivery.queue)]:
            self._report(skipped, "skipped")
        if first is None or row is None:
            return False
        link = self._link(row.id)
        notice = Notice(first.id, first.type, first.at, row, first.who, delivery.remote, link)
        try:
            async with asyncio.timeout(TIMEOUT):
                remote = await self._channel.send(notice)
        except Exception as error:
            self._failed(delivery, first, error)
            return error
        delivery.sent(remote)
        self._report(first, "sent")
        return True

    def _report(self, waiting: Waiting, outcome: str) -> None:
        """Report an attempt to the observers of the service."""
        self._host.delivered(self.name, outcome, max(0.0, time.time() - waiting.at))

    def _failed(self, delivery: Delivery, first: Waiting, error: Exception) -> None:
        self._report(first, "failed")
        if not self._failing:
            gone = getattr(error, "gone", False)
            then = "nothing is sent to it before the next start" if gone else "it is tried again"
            what = "%s does not take %s: %s: %s; %s"
            logger.warning(what, self.name, first.type, type(error).__name__, error, then)
        if delivery.failed(time.time(), _wait(error)):
            what = "%s of call %s is dropped on %s"
            logger.warning(what, first.type, delivery.call, self.name)

    def _judge(self, ended: Sequence[bool | Exception]) -> None:
        """Note whether the channel takes notices; one failure in a round counts."""
        now = time.time()
        if failed := [one for one in ended if isinstance(one, Exception)]:
            self._since = self._since if self._failing else now
            self._failing += 1
            self._error = type(failed[0]).__name__
            self._gone = any(getattr(one, "gone", False) for one in failed)
            own = min(60.0, 2.0**self._failing) * _random.uniform(0.5, 1.0)
            self._until = now + (max(_wait(one) or 0.0 for one in failed) or own)
        elif True in ended and self._failing:
            logger.info("%s takes notices again", self.name)
            if self._failing > 1:
                # All notices that failed meanwhile are sent now. After a single failure the notice
                # keeps its time: the receiver refuses it alone, and it would soon have had all its
                # attempts.
                for one in self._known.values():
                    one.next = 0.0
            self._failing, self._until, self._error = 0, 0.0, ""

    async def _write(self, changed: Iterable[Delivery], until: float | None = None) -> None:
        """Write the cursor and these deliveries, if the lease is still ours; raises Lost."""
        texts = {one.call: None if one.over else one.dumps() for one in changed}

        def work(notes: Notes) -> bool:
            held = _held(notes, self._note)
            if held.owner != self._owner:
                return False
            held.cursor = self._cursor
            held.until = notes.now + LEASE if until is None else until
            notes.put(self._note, json.dumps(asdict(held)))
            for call, text in texts.items():
                notes.put(f"{self._note}/{call}", text)
            return True

        if not await self._host.record.notes(work):
            raise Lost
        for call, text in texts.items():
            if text is None:
                self._known.pop(call, None)


def _wait(error: Exception) -> float | None:
    """The seconds after which the receiver wants the next notice, if it says so."""
    wait: float | None = getattr(error, "retry_after", None)
    return None if wait is None else min(wait, LATEST)


def _held(notes: Notes, name: str) -> Held:
    text = notes.find(name).get(name)
    return Held(**json.loads(text)) if text else Held()


def _rows(tx: Transaction, ids: Sequence[str]) -> Mapping[str, Proposal]:
    return tx.proposals(ids)


def _pending(tx: Transaction) -> list[Proposal]:
    return tx.find(state="PENDING", limit=_SCANNED, newest=True)
