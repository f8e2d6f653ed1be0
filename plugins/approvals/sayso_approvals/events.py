"""Server-sent events of what becomes of calls."""

import asyncio
import json
import time
from collections.abc import AsyncIterator, Mapping, Sequence
from functools import partial
from typing import Any

from sayso import Caller, Host, LogPage, Proposal, Transaction
from sayso_approvals.feed import READ, Feed
from sayso_approvals.shapes import iso

BEAT = 15.0
"""Seconds after which a comment says that the connection lives."""
TYPES: Mapping[str, str] = {
    "proposed": "approval.requested",
    "unissued": "approval.requested",
    "voted": "approval.voted",
    "edited": "approval.edited",
    "approved": "approval.approved",
    "rejected": "approval.rejected",
    "expired": "approval.expired",
    "commented": "approval.commented",
    "not_started": "call.not_started",
    "unclaimed": "call.not_started",
    "claimed": "call.started",
    "done": "call.done",
    "failed": "call.failed",
    "indeterminate": "call.indeterminate",
}
"""The type of an event, by what the log says."""


async def events(
    host: Host, feed: Feed, caller: Caller, cursor: str | None
) -> AsyncIterator[bytes]:
    """The events that this caller may see: from `cursor` on, else from now on.

    The id of an event is the cursor behind the page of the log in which it stood; its data has an
    id that is the same each time that it is sent.
    """
    told: set[str] = set()
    async with feed.following() as follower:
        page = None
        if cursor is None:
            yield _id(await host.record.log_end())
        while cursor is not None and (page is None or page.more) and not host.stopping:
            page = await host.record.log(cursor, READ)
            cursor = page.cursor
            told = {event.id for event in page.events} | (told if page.more else set())
            yield await _shown(host, page, caller, set())
        beat = time.monotonic() + BEAT
        while not (host.stopping or follower.lost):
            if follower.pages:
                page = follower.pages.popleft()
                yield await _shown(host, page, caller, told)
                continue
            follower.came.clear()
            try:
                await asyncio.wait_for(follower.came.wait(), max(0.0, beat - time.monotonic()))
            except TimeoutError:
                beat = time.monotonic() + BEAT
                yield b": still there\n\n"


async def _shown(host: Host, page: LogPage, caller: Caller, told: set[str]) -> bytes:
    ids = sorted({str(event.row.entry.get("id")) for event in page.events})
    rows = await host.record.read(partial(_rows, ids=ids)) if ids else {}
    parts = [_event("gap", {"missed": page.gap})] if page.gap else []
    for event in page.events:
        entry = event.row.entry
        row, kind = rows.get(str(entry.get("id"))), TYPES.get(str(entry.get("event")))
        if event.id in told or row is None or kind is None or not host.record.visible(row, caller):
            continue
        said = {"type": kind, "id": event.id, "timestamp": iso(event.row.at)}
        parts.append(_event(kind, {**said, "data": _data(row, entry)}))
    return b"".join(parts) + _id(page.cursor)


def _data(row: Proposal, entry: Mapping[str, Any]) -> dict[str, Any]:
    shown = {"id": row.id, "type": row.kind, "name": row.name, "state": row.state}
    return {**shown, "principal": row.principal, "who": entry.get("who")}


def _rows(tx: Transaction, ids: Sequence[str]) -> dict[str, Proposal]:
    return tx.proposals(ids)


def _event(name: str, data: object) -> bytes:
    # No JSON text holds a line end.
    return f"event: {name}\ndata: {json.dumps(data)}\n\n".encode()


def _id(cursor: str) -> bytes:
    # An event without data is none, and yet its id is kept.
    return f"id: {cursor}\n\n".encode()
