"""The list of pending calls in pages: the newest come first, and nobody's calls hide anybody
else's."""

from __future__ import annotations

import asyncio
import time
from bisect import bisect_right
from collections.abc import AsyncGenerator, Mapping, Sequence
from functools import partial
from typing import NamedTuple

from sayso.errors import InvalidRequest, StillRunning
from sayso.hosting import Page
from sayso.ledger import Pending, Proposal, Reading, State, Transaction
from sayso.ledger.choices import Conversation, Requester
from sayso.ledger.record import Ledger
from sayso.ledger.writes import LOOK
from sayso.wire.json_bytes import dump_json

_SCANNED = 2_000
"""The number of proposals whose positions are read at once, without their contents."""
_LOADED = 8
_PAUSE = 20
"""The result of a look is used for this many times as long as the look took."""
_AGE = 20.0
"""The time between two looks at a call, as a part of the time for which it has been pending."""
_SLOWEST = 5.0
"""The longest time in seconds between two looks at a call that another process may decide."""
_Key = tuple[int, float, int, str]
"""A call's position in the list: the number of its principal's calls before it, then its own
age."""


async def undone(
    ledger: Ledger, who: Requester, state: State, *, size: int
) -> AsyncGenerator[list[Proposal], None]:
    """The rows in this state that are visible to `who`, at most `size` at a time; expired rows are
    settled."""
    after: str | None = None
    while True:
        found = partial(_find, state=state, after=after, limit=size)
        rows, now = await ledger.store.run(Reading(found, only=True))
        if late := [row.id for row in rows if _is_late(row, now)]:
            await ledger.settle(late)
        yield [row for row in rows if not _is_late(row, now) and ledger.visible(row, who)]
        if len(rows) < size:
            return
        after = rows[-1].id


async def settled(
    ledger: Ledger, ids: Sequence[str], who: Requester, until: float
) -> list[Proposal]:
    """The rows among `ids` that are visible to `who`, as soon as none is pending, or in their state
    at `until` (monotonic seconds)."""
    started = time.monotonic()
    while True:
        found = await ledger.decide([], ids, who, Conversation(), dry=True)
        rows = [found.rows[id_] for id_ in ids if id_ in found.rows]
        if not (pending := [row.id for row in rows if row.state == "PENDING"]):
            return rows
        # A decision on a call that has waited for long may be noticed a little later.
        pause = min(_SLOWEST, max(LOOK, (time.monotonic() - started) / _AGE))
        try:
            await ledger.decided_elsewhere(pending[0], until, pause)
        except StillRunning:
            return rows


class Waiting:
    """The positions of the calls in the list of pending calls.

    To make sure that nobody's calls hide anybody else's, it reads all pending rows, in parts, and
    keeps only their positions. However many there are, that takes a twentieth of the time: the
    result of one reading is used again meanwhile, together with the newest calls.
    """

    def __init__(self, ledger: Ledger) -> None:
        self._ledger = ledger
        self._looks: dict[tuple[str | None, str | None], _Look] = {}
        self._looking = asyncio.Lock()

    async def page(self, who: Requester, *, limit: int, size: int, after: str | None) -> Page:
        """At most `limit` calls of at most `size` bytes, or one larger call.

        The newest call of each principal comes first, then the second of each, and so on. Calls
        without a principal are grouped by their address.
        """
        begin = _key(after) if after is not None else None
        places = await self._places(who, limit)
        keys = await asyncio.to_thread(_keys, places)
        start = bisect_right(keys, begin) if begin is not None else 0
        calls: list[Proposal] = []
        used = 0
        for at in range(start, len(keys), _LOADED):
            wanted = [key[3] for key in keys[at : at + _LOADED]]
            found = await self._ledger.store.run(Reading(partial(_rows, ids=wanted), only=True))
            for place, id_ in enumerate(wanted, at):
                row = found.get(id_)
                if row is None or row.state != "PENDING":
                    continue
                used += _bytes(row)
                if calls and (used > size or len(calls) >= limit):
                    return Page(calls, _text(keys[place - 1]))
                calls.append(row)
        return Page(calls, None)

    async def _places(self, who: Requester, limit: int) -> dict[str, Pending]:
        async with self._looking:
            now = time.monotonic()
            self._looks = {key: look for key, look in self._looks.items() if look.until > now}
            seen = (who.principal, who.tenant)
            if (known := self._looks.get(seen)) is None:
                places = await self._found(who)
                until = time.monotonic()
                self._looks[seen] = _Look(places, until + _PAUSE * (until - now))
                return places
        newest = await self._part(who, None, limit)
        return known.places | {row.id: row for row in newest.visible}

    async def _found(self, who: Requester) -> dict[str, Pending]:
        places: dict[str, Pending] = {}
        after: Pending | None = None
        while True:
            part = await self._part(who, after, _SCANNED)
            places |= {row.id: row for row in part.visible}
            if part.last is None:
                return places
            after = part.last

    async def _part(self, who: Requester, after: Pending | None, limit: int) -> _Part:
        begin = None if after is None else (after.created, after.position, after.id)
        find = partial(_pending, after=begin, limit=limit)
        rows, now = await self._ledger.store.run(Reading(find, only=True))
        if late := [row.id for row in rows if row.expires <= now]:
            await self._ledger.settle(late)
        found = [r for r in rows if r.expires > now and self._ledger.visible(r, who)]
        return _Part(found, rows[-1] if len(rows) == limit else None)


class _Look(NamedTuple):
    places: dict[str, Pending]
    until: float


class _Part(NamedTuple):
    visible: list[Pending]
    last: Pending | None
    """The last row of this part; the next part begins after it."""


def _keys(places: Mapping[str, Pending]) -> list[_Key]:
    earlier: dict[str, int] = {}
    keys: list[_Key] = []
    # The calls of one turn keep their order.
    for row in sorted(places.values(), key=lambda row: (-row.created, row.position)):
        # The prefix keeps the texts of the two kinds apart.
        whose = f"={row.principal}" if row.principal is not None else f"@{row.address}"
        rank = earlier[whose] = earlier.get(whose, -1) + 1
        keys.append((rank, -row.created, row.position, row.id))
    return sorted(keys)


def _text(key: _Key) -> str:
    rank, created, index, id_ = key
    return f"{rank}:{created!r}:{index}:{id_}"


def _key(text: str) -> _Key:
    try:
        rank, created, index, id_ = text.split(":", 3)
        return int(rank), float(created), int(index), id_
    except ValueError:
        raise InvalidRequest.at(["query", "after"], "value_error", "no place in the list") from None


def _bytes(row: Proposal) -> int:
    shown = (row.input, row.description, row.input_description, row.intent)
    return len(dump_json(shown))


def _rows(tx: Transaction, ids: Sequence[str]) -> dict[str, Proposal]:
    return tx.proposals(ids)


def _pending(
    tx: Transaction, after: tuple[float, int, str] | None, limit: int
) -> tuple[list[Pending], float]:
    return tx.pending(after, limit), tx.now


def _find(
    tx: Transaction, state: State, after: str | None, limit: int
) -> tuple[list[Proposal], float]:
    return tx.find(state=state, after=after, limit=limit), tx.now


def _is_late(row: Proposal, now: float) -> bool:
    """Whether the row has expired; a row that runs does not expire."""
    return row.ended is not None and row.ended <= now
