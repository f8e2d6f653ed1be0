"""The start of an approved call: it gets a place, is claimed there, and then runs (design, section
6, "Beginning")."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass

from sayso.engine import Engine
from sayso.errors import LedgerUnavailable
from sayso.ledger import Proposal
from sayso.ledger.choices import Choice, Decided, Requester
from sayso.ledger.claims import Grant
from sayso.wire.messages import Kind
from sayso.workers.running import Place

_RESERVE = 1.0
_SOON = 0.02
"""Seconds within which a place must become free for one transaction to record the decision and the
claim."""
_NO_PLACE = "no thread was free for it in time"
_TOO_LATE = "the service stood still, or reached it too late"
_NO_STORE = "the approvals store did not answer"


NOT_STARTED = (
    "what was approved has not begun: no thread was free for it, or the service stood still; send "
    "the same request again to start it"
)


@dataclass(slots=True)
class Start:
    """An approved call that is about to start: its `place` and `grant` as soon as it has them, else
    `why` it has not started. It may wait for a place until `until` (monotonic seconds). Its request
    waits for it until `ends`."""

    choice: Choice
    id: str
    found: Decided
    who: Requester
    until: float
    ends: float
    place: Place | None = None
    grant: Grant | None = None
    why: str = ""

    @property
    def row(self) -> Proposal:
        return self.found.rows[self.id]

    def leave(self) -> None:
        """Free the place."""
        if self.place is not None:
            self.place.leave()
            self.place = None


def latest(until: float) -> float:
    """The time until which a call may wait for its place in a request that ends at `until`; the
    rest is kept for the reply that reports it."""
    return until - min(_RESERVE, (until - time.monotonic()) / 4)


async def decide_in_place(
    engine: Engine, choices: Sequence[Choice], decide: Callable[[bool], Awaitable[Decided]]
) -> tuple[Decided, Place | None]:
    """The result of `decide`, and the place of the claimed call. `decide` gets whether it may claim
    a single call at once.

    One transaction does both, instead of two, if a place is free and nothing has to happen between
    the decision and the call.
    """
    approved = {choice.id: choice for choice in choices if choice.approved and not choice.copy}
    place = None
    if len(approved) == 1 and not engine.events_on:
        (choice,) = approved.values()
        place = _place(engine, choice.kind, choice.name)
    claims = place is not None and await place.comes(time.monotonic() + _SOON)
    found = None
    try:
        found = await decide(claims)
    finally:
        if place is not None and (found is None or not found.grants):
            place.leave()
    return found, place if found.grants else None


def _place(engine: Engine, kind: Kind | None, name: str | None) -> Place | None:
    """A place for a call of this tool, or for a command; None if there is none."""
    tool = engine.agent.tools.get(name or "")
    if kind != "command" and tool is None:
        return None
    try:
        return engine.code.place(is_async=tool is None or kind == "command" or tool.is_async)
    except RuntimeError:
        return None


async def is_ready(engine: Engine, start: Start) -> bool:
    """Whether the call has its place and its grant. If not, `start` has the reason, or its row
    shows which process runs it."""
    row = start.row
    if start.place is None and needs_place(engine, row):
        start.place = _place(engine, row.kind, row.name)
        if start.place is None:
            start.why = _NO_PLACE
    if start.place is not None and not await start.place.comes(start.until):
        start.leave()
        start.why = _NO_PLACE
    if start.why:
        return False
    if start.grant is None:
        await _claim(engine, start)
    if start.grant is None:
        start.leave()
    return start.grant is not None


def needs_place(engine: Engine, row: Proposal) -> bool:
    """Whether anything would run; a call of an unknown tool fails as soon as it is claimed."""
    known = engine.agent.commands if row.kind == "command" else engine.agent.tools.get(row.name)
    return known is not None


async def _claim(engine: Engine, start: Start) -> None:
    try:
        start.grant = await engine.ledger.claim(start.choice, start.found, start.id, start.who)
    except LedgerUnavailable:
        start.why = _NO_STORE


async def rested(start: Start) -> bool:
    """Whether the call rested and may be tried again now, after an earlier start of it, here or in
    another process, had no effect."""
    pause = start.found.resting.pop(start.id, 0.0)
    if not pause or start.why:
        return False
    if time.monotonic() + pause > start.until:
        start.why = _TOO_LATE
        return False
    await asyncio.sleep(pause)
    return True


async def hand_back(engine: Engine, start: Start) -> bool:
    """Hand back the claim of a call that did not start; returns whether it is to be claimed
    again."""
    grant, start.grant = start.grant, None
    start.leave()
    assert grant is not None
    await engine.ledger.give_back([grant], refused=True)
    try:
        start.found.rows |= await engine.ledger.settle([start.id])
    except LedgerUnavailable:
        start.why = _NO_STORE
        return False
    return start.row.startable


def words(row: Proposal, why: str) -> str:
    """The message to a caller about a call that was approved and has not started."""
    what = row.input.get("command") if row.kind == "command" else row.name
    return f"{what} was approved and has not begun: {why}. Approve it again to start it."
