"""Reading the log from a cursor: for outboxes, inboxes and streams of events.

A cursor is opaque to its reader. For each chain it holds the number and hash of the last row read,
and of two rows further back. After an older backup of the database was restored, it may name a row
that the log does not have. Reading then continues after the newest row that the cursor and the log
have in common. Rows read again have the same event id as before, so that readers can drop them.
"""

from __future__ import annotations

import base64
import binascii
import heapq
import struct
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from hashlib import sha256
from itertools import islice
from operator import attrgetter
from typing import NamedTuple

from sayso.ledger import Head, LogRow, Reading, Store, Transaction
from sayso.ledger.log import CHAINS

_VERSION = 1
_STEPS = (32, 1024)
"""A cursor also holds the newest rows read whose numbers are multiples of these."""
_PLACE = struct.Struct(">Q8s")
_NO_MARK = bytes(8)
_ID = 32


class _Place(NamedTuple):
    """A row, by its number and the beginning of its hash; number 0 is before the first row."""

    seq: int
    mark: bytes = _NO_MARK


_Trail = tuple[_Place, ...]
"""For one chain: the last row read, then the rows further back."""
_BEGIN: _Trail = (_Place(0),) * (1 + len(_STEPS))


@dataclass(frozen=True, slots=True)
class LogEvent:
    """A row of the log for readers; its `id` is the same each time that it is read."""

    id: str
    row: LogRow


@dataclass(frozen=True, slots=True)
class LogPage:
    """The events read: those of each call in order, those of several calls approximately by time.

    `gap` is the number of rows that a purge removed before they were read. `more` says whether
    there were further rows.
    """

    events: list[LogEvent]
    cursor: str
    gap: int
    more: bool


async def read(store: Store, cursor: str | None = None, limit: int = 100) -> LogPage:
    """The next rows after `cursor`, at most `limit`; None begins with the oldest row there is.

    The rows are on disk. Raises ValueError for a text that is no cursor.
    """
    trails = None if cursor is None else _decoded(cursor)
    return await store.run(Reading(partial(_read, trails=trails, limit=limit), only=True))


async def newest(store: Store) -> str:
    """The cursor after the newest rows, for a reader that begins now."""
    heads = await store.run(Reading(lambda tx: tx.heads(), only=True))
    return _encoded({chain: _at(heads.get(chain)) for chain in range(CHAINS)})


@dataclass(slots=True)
class _Found:
    """For one chain: the row to continue after, the rows from there, and how many are missing."""

    trail: _Trail
    rows: Sequence[LogRow]
    gap: int = 0


def _read(tx: Transaction, trails: Mapping[int, _Trail] | None, limit: int) -> LogPage:
    each = max(1, limit // CHAINS)
    starts = trails or dict.fromkeys(range(CHAINS), _BEGIN)
    pages = _pages(tx, {chain: trail[0] for chain, trail in starts.items()}, each)
    found = {chain: _found(tx, chain, starts[chain], rows, each) for chain, rows in pages.items()}
    merged = heapq.merge(*(one.rows for one in found.values()), key=attrgetter("at"))
    taken = list(islice(merged, limit))
    after = {chain: one.trail for chain, one in found.items()}
    for row in taken:
        after[row.chain] = _passed(after[row.chain], row)
    full = any(len(one.rows) >= each for one in found.values())
    return LogPage(
        events=[LogEvent(row.hash[:_ID], row) for row in taken],
        cursor=_encoded(after),
        # A reader without a cursor has missed nothing.
        gap=sum(one.gap for one in found.values()) if trails else 0,
        more=full or len(taken) < sum(len(one.rows) for one in found.values()),
    )


def _pages(tx: Transaction, places: Mapping[int, _Place], each: int) -> dict[int, list[LogRow]]:
    """For each chain: the row at its place, if the log has it, and the rows after it."""
    pages: dict[int, list[LogRow]] = {chain: [] for chain in places}
    after = {chain: max(place.seq - 1, 0) for chain, place in places.items()}
    for row in tx.log(after, each + 1):
        pages[row.chain].append(row)
    return pages


def _found(tx: Transaction, chain: int, trail: _Trail, rows: list[LogRow], each: int) -> _Found:
    for place in _back(trail):
        if place is not trail[0]:
            rows = _pages(tx, {chain: place}, each)[chain]
        if (found := _behind(place, trail, rows)) is not None:
            found.rows = found.rows[:each]
            return found
    raise AssertionError("the place before the first row is always known")


def _back(trail: _Trail) -> Iterator[_Place]:
    """The places of the trail from the last row read to the beginning."""
    yield trail[0]
    yield from sorted({place for place in trail if 0 < place.seq < trail[0].seq}, reverse=True)
    if trail[0].seq:
        yield _Place(0)


def _behind(place: _Place, trail: _Trail, rows: list[LogRow]) -> _Found | None:
    """The rows after the place; None if the log does not have the place."""
    kept = tuple(each if each.seq <= place.seq else place for each in (place, *trail[1:]))
    if place.seq and not rows:
        return None
    if not rows or (place.seq and rows[0].seq == place.seq):
        known = not rows or _mark(rows[0].hash) == place.mark
        return _Found(kept, rows[1:]) if known else None
    before = _Place(rows[0].seq - 1, _mark(rows[0].previous))
    if before.seq == place.seq:
        return _Found(kept, rows) if place.seq == 0 or before == place else None
    return _Found((before, *kept[1:]), rows, gap=before.seq - place.seq)


def _passed(trail: _Trail, row: LogRow) -> _Trail:
    here = _Place(row.seq, _mark(row.hash))
    steps = zip(_STEPS, trail[1:], strict=True)
    return (here, *(place if row.seq % step else here for step, place in steps))


def _at(head: Head | None) -> _Trail:
    return (_Place(head.seq, _mark(head.hash)),) * len(_BEGIN) if head else _BEGIN


def _mark(digest: str) -> bytes:
    # Hash the text itself, not its hex digits: a falsified hash may be any text.
    return sha256(digest.encode("utf-8", "surrogatepass")).digest()[:8]


def _encoded(trails: Mapping[int, _Trail]) -> str:
    packed = bytes([_VERSION])
    for chain in range(CHAINS):
        for place in trails[chain]:
            packed += _PLACE.pack(*place)
    return base64.urlsafe_b64encode(packed).rstrip(b"=").decode()


def _decoded(cursor: str) -> dict[int, _Trail]:
    try:
        packed = base64.b64decode(cursor + "=" * (-len(cursor) % 4), b"-_", validate=True)
    except (binascii.Error, ValueError):
        packed = b""
    if len(packed) != 1 + CHAINS * len(_BEGIN) * _PLACE.size or packed[0] != _VERSION:
        raise ValueError("this is no cursor of a log")
    places = [_Place(seq, mark) for seq, mark in _PLACE.iter_unpack(packed[1:])]
    size = len(_BEGIN)
    return {chain: tuple(places[chain * size : (chain + 1) * size]) for chain in range(CHAINS)}
