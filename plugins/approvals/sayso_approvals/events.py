"""Server-sent events about changes of calls."""

import asyncio
import json
import time
from collections.abc import AsyncIterator, Mapping, Sequence
from functools import partial
from typing import Any

from sayso import Caller, Host, LogPage, Principal, Proposal, Transaction, iso
from sayso_approvals.feed import READ, Feed

BEAT = 15.0
"""Seconds after which a comment keeps the connection alive."""
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
"""The type of an event, by the entry of the log."""


async def events(
    host: Host, feed: Feed, caller: Caller, cursor: str | None
) -> AsyncIterator[bytes]:
    """The events that this caller may see, from `cursor` on, or else from now on.

    The id of an event is the cursor after the page of the log that had it; its data has an id that
    is the same each time the event is sent.
    """
    sent: set[str] = set()
    async with feed.following() as follower:
        page = None
        if cursor is None:
            yield _id(await host.record.log_end())
        while cursor is not None and (page is None or page.more) and not host.stopping:
            page = await host.record.log(cursor, READ)
            cursor = page.cursor
            sent = {event.id for event in page.events} | (sent if page.more else set())
            yield await _shown(host, page, caller, set())
        beat, who = time.monotonic() + BEAT, caller.principal
        while not (host.stopping or follower.lost or (isinstance(who, Principal) and who.expired)):
            if follower.pages:
                page = follower.pages.popleft()
                yield await _shown(host, page, caller, sent)
                continue
            follower.came.clear()
            try:
                await asyncio.wait_for(follower.came.wait(), max(0.0, beat - time.monotonic()))
            except TimeoutError:
                beat = time.monotonic() + BEAT
                yield b": still there\n\n"


async def _shown(host: Host, page: LogPage, caller: Caller, sent: set[str]) -> bytes:
    ids = sorted({str(event.row.entry.get("id")) for event in page.events})
    rows = await host.record.read(partial(_rows, ids=ids)) if ids else {}
    parts = [_event("gap", {"missed": page.gap})] if page.gap else []
    for event in page.events:
        entry = event.row.entry
        row, kind = rows.get(str(entry.get("id"))), TYPES.get(str(entry.get("event")))
        if event.id in sent or row is None or kind is None or not host.record.visible(row, caller):
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
    # A JSON text contains no line end.
    return f"event: {name}\ndata: {json.dumps(data)}\n\n".encode()


def _id(cursor: str) -> bytes:
    # Clients keep the id of an event without data, although they report no such event.
    return f"id: {cursor}\n\n".encode()
