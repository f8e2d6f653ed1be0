"""The handlers of the inbox, one for each path."""

import asyncio
import time
from collections.abc import AsyncIterator, Container, Sequence
from dataclasses import dataclass, field
from typing import Any

from starlette.requests import Request
from starlette.responses import Response, StreamingResponse

from sayso import (
    Caller,
    Host,
    InvalidRequest,
    Principal,
    Proposal,
    Ruling,
    iso,
    shown_call,
    shown_item,
    standard_error,
)
from sayso_approvals import listing
from sayso_approvals.bodies import (
    COMMENT,
    DECISION,
    DECISIONS,
    FREEZE,
    WITHDRAW,
    DecisionBody,
    DecisionsBody,
    OneOfSeveral,
)
from sayso_approvals.events import events
from sayso_approvals.feed import Feed
from sayso_approvals.reading import body_of
from sayso_approvals.refusals import NotAllowed, NotFound, SeenRequired
from sayso_approvals.replies import reply
from sayso_approvals.shapes import etag, view

LONGEST = 60
"""Seconds that a request may wait for a change."""
_OPEN = ("PENDING", "APPROVED", "EXECUTING")


@dataclass(slots=True)
class Inbox:
    """The handlers of one service: each takes a request and its caller, and returns the answer."""

    host: Host
    feed: Feed = field(init=False)

    def __post_init__(self) -> None:
        self.feed = Feed(self.host)

    async def listed(self, request: Request, caller: Caller) -> Response:
        """A page of calls that exist for the caller."""
        wanted = listing.Wanted.of(request.query_params)
        page = await listing.page(self.host, wanted, caller)
        shown = [shown_item(row, view(self.host, caller)) for row in page.calls]
        return reply({"approvals": shown, "next": page.next})

    async def summary(self, request: Request, caller: Caller) -> Response:
        """The number of calls in each open state, the number that the caller may decide, and the
        time since which the oldest of those waits."""
        counts = dict.fromkeys(_OPEN, 0)
        mine, oldest = 0, None
        async for row in listing.each(self.host, _OPEN, caller):
            counts[row.state] += 1
            if view(self.host, caller).may_decide(row):
                mine += 1
                oldest = min(oldest or row.created, row.created)
        since = None if oldest is None else iso(oldest)
        stopped = await self.host.record.frozen()
        frozen = stopped and {
            "who": stopped.who,
            "at": iso(stopped.at),
            "reason": stopped.reason,
        }
        return reply({"counts": counts, "mine": mine, "oldest": since, "frozen": frozen})

    async def one(self, request: Request, caller: Caller) -> Response:
        """One call, whole; with `wait`, as soon as its tag differs from `If-None-Match`. Without a
        tag, as soon as it changes, and at once if it has ended."""
        wait = _wait(request.query_params.get("wait", "0"))
        known = _tags(request.headers.get("if-none-match"))
        if not wait:
            return self._detail(await self._found(request, caller), caller, known)
        async with self.feed.following() as follower:
            until = time.monotonic() + wait
            row = await self._found(request, caller)
            before = known or ({etag(row)} if row.state in _OPEN else set())
            while etag(row) in before and not self.host.stopping:
                left = until - time.monotonic()
                if left <= 0 or follower.lost:
                    break
                left = min(left, max(0.01, row.expires - time.time() + 0.01))
                try:
                    await asyncio.wait_for(follower.came.wait(), left)
                except TimeoutError:
                    pass
                follower.came.clear()
                names = {e.row.entry.get("id") for page in follower.pages for e in page.events}
                follower.pages.clear()
                if row.id in names or row.expires <= time.time():
                    row = await self._found(request, caller)
        return self._detail(row, caller, known)

    async def decide(self, request: Request, caller: Caller) -> Response:
        """The decision on one call; returns the call in its new state."""
        body = await body_of(self.host, request, DECISION)
        row = await self._found(request, caller)
        return self._detail(await self._decided(row, body, caller), caller)

    async def decide_several(self, request: Request, caller: Caller) -> Response:
        """Several decisions: all of them in one transaction, or each by itself."""
        body = await body_of(self.host, request, DECISIONS)
        answer = self._all if body.mode == "all" else self._each
        return reply({"results": await answer(body, caller)})

    async def freeze(self, request: Request, caller: Caller) -> Response:
        """All starts are stopped, or allowed again."""
        body = await body_of(self.host, request, FREEZE)
        who = caller.principal
        is_person = isinstance(who, Principal) and who.person is not None and who.kind != "agent"
        if self.host.guarded and not is_person:
            raise NotAllowed("NOT_A_PERSON")
        if body.frozen:
            await self.host.record.freeze(caller, body.reason)
        else:
            await self.host.record.thaw(caller)
        return reply({"frozen": body.frozen})

    async def comment(self, request: Request, caller: Caller) -> Response:
        """Add a comment; returns the call in its new state."""
        body = await body_of(self.host, request, COMMENT)
        await self._found(request, caller)
        id_ = request.path_params["id"]
        if (row := await self.host.record.comment(id_, caller, body.text)) is None:
            raise NotFound
        self.feed.look()
        return self._detail(row, caller)

    async def withdraw(self, request: Request, caller: Caller) -> Response:
        """The caller withdraws its own call; returns the call in its new state."""
        body = await body_of(self.host, request, WITHDRAW)
        row = await self._found(request, caller)
        if not view(self.host, caller).owns(row):
            raise NotAllowed("NOT_THE_REQUESTER")
        await self.host.calls.withdraw([row.id], caller, body.reason)
        self.feed.look()
        return self._detail(await self._found(request, caller), caller)

    async def events(self, request: Request, caller: Caller) -> Response:
        """Server-sent events about calls."""
        cursor, place = request.headers.get("last-event-id"), ["header", "Last-Event-ID"]
        if not cursor:
            cursor, place = request.query_params.get("cursor"), ["query", "cursor"]
        if cursor is not None:
            await self._log_page(cursor, 1, place)
        stream = events(self.host, self.feed, caller, cursor)
        return StreamingResponse(
            await _with_first_part(stream),
            media_type="text/event-stream",
            headers={"cache-control": "no-cache", "x-accel-buffering": "no"},
        )

    async def log(self, request: Request, caller: Caller) -> Response:
        """A page of the log's own rows, for auditors."""
        who = caller.principal
        groups = who.groups if isinstance(who, Principal) else frozenset[str]()
        # Without authentication the caller is the person who started the service.
        if self.host.guarded and groups.isdisjoint(self.host.config.auth.auditors):
            raise NotAllowed("NOT_AN_AUDITOR")
        page = await self._log_page(request.query_params.get("after"), 200, ["query", "after"])
        rows = [
            {
                "id": event.id,
                "chain": event.row.chain,
                "seq": event.row.seq,
                "at": iso(event.row.at),
                "entry": event.row.entry,
                "previous": event.row.previous,
                "hash": event.row.hash,
            }
            for event in page.events
        ]
        return reply({"rows": rows, "next": page.cursor, "more": page.more, "gap": page.gap})

    async def _log_page(self, cursor: str | None, limit: int, place: Sequence[str]) -> Any:
        try:
            return await self.host.record.log(cursor, limit)
        except ValueError as error:
            raise InvalidRequest.at(place, "value_error", str(error)) from None

    async def _found(self, request: Request, caller: Caller) -> Proposal:
        row = await self.host.calls.look(request.path_params["id"], caller)
        if row is None:
            raise NotFound
        return row

    async def _decided(self, row: Proposal, body: DecisionBody, caller: Caller) -> Proposal:
        """The row after the decision was recorded."""
        self._check(row, body, caller)
        decided = await self.host.calls.decide(
            row.id,
            caller,
            approved=body.approve,
            kind=row.kind,
            reason=body.reason or None,
            input=row.runs if body.approve else None,
            edited=body.input,
            seen=body.seen if body.approve else None,
            run=False,
        )
        if body.comment:
            decided = await self.host.record.comment(row.id, caller, body.comment) or decided
        self.feed.look()
        return decided

    def _check(self, row: Proposal, body: DecisionBody, caller: Caller) -> None:
        """Refuse a decision that the caller may not make, or on a call that is no longer in the
        state that the caller saw."""
        barred = self.host.record.barred(row, caller) if row.state == "PENDING" else ""
        if barred and (body.approve or not view(self.host, caller).owns(row)):
            raise NotAllowed(barred)
        if body.approve and body.seen is None:
            raise SeenRequired
        if body.approve and row.state == "PENDING" and body.seen != row.seen:
            text = "the call is not what you have seen any more; look at it again"
            raise InvalidRequest.at(["body", "seen"], "approval_changed", text)

    async def _all(self, body: DecisionsBody, caller: Caller) -> list[dict[str, Any]]:
        rulings = []
        for number, one in enumerate(body.decisions):
            row = await self._several(one, caller)
            if one.input is not None or one.comment is not None:
                text = "inputs are changed, and comments made, one by one: use mode 'each'"
                raise InvalidRequest.at(["body", "decisions", number], "value_error", text)
            self._check(row, one, caller)
            rulings.append(Ruling(one.id, one.approve, one.reason or None, one.seen))
        rows = await self.host.record.decide_all(rulings, caller)
        self.feed.look()
        return [_done(self.host, row, caller) for row in rows]

    async def _each(self, body: DecisionsBody, caller: Caller) -> list[dict[str, Any]]:
        results = []
        for one in body.decisions:
            try:
                row = await self._several(one, caller)
                results.append(_done(self.host, await self._decided(row, one, caller), caller))
            except Exception as error:
                status, shown = standard_error(error, self.host.failure(error))
                results.append({"id": one.id, "status": status, "error": shown})
        return results

    async def _several(self, one: OneOfSeveral, caller: Caller) -> Proposal:
        row = await self.host.calls.look(one.id, caller)
        if row is None:
            raise NotFound
        return row

    def _detail(self, row: Proposal, caller: Caller, known: Container[str] = ()) -> Response:
        tag = etag(row)
        if tag in known:
            return Response(status_code=304, headers={"etag": tag})
        return reply(shown_call(row, view(self.host, caller)), {"etag": tag})


def _done(host: Host, row: Proposal, caller: Caller) -> dict[str, Any]:
    return {"id": row.id, "status": 200, "approval": shown_item(row, view(host, caller))}


def _tags(text: str | None) -> set[str]:
    """The tags of `If-None-Match`; a proxy that compresses an answer makes its tag a weak one."""
    return {one.strip().removeprefix("W/") for one in (text or "").split(",")} - {""}


def _wait(text: str) -> int:
    if not (text.isascii() and text.isdecimal()):
        raise InvalidRequest.at(["query", "wait"], "value_error", "expected whole seconds")
    return min(int(text[:9]), LONGEST)


async def _with_first_part(stream: AsyncIterator[bytes]) -> AsyncIterator[bytes]:
    """The stream after its first part has arrived, so that a refusal can still have its own
    status."""
    first = await anext(stream)

    async def whole() -> AsyncIterator[bytes]:
        yield first
        async for part in stream:
            yield part

    return whole()
