"""Pages of calls: filtered, sorted, and continued from a cursor."""

import base64
import json
from collections.abc import AsyncIterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import partial
from typing import Any, Literal, NamedTuple, TypeVar, get_args

from sayso import Caller, CallFilter, Host, InvalidRequest, Pending, Proposal, Transaction
from sayso_approvals.shapes import view

State = Literal[
    "PENDING", "APPROVED", "REJECTED", "EXPIRED", "EXECUTING", "DONE", "FAILED", "INDETERMINATE"
]
_UNSETTLED = ("PENDING", "APPROVED", "EXECUTING")
"""The states that end with time or with the death of an owner; the row has its new state after it
is settled."""
_SCANNED = 200
"""The number of rows that are read at once, since their contents are in memory together."""
_POSITIONS = 2_000
"""The number of pending calls whose places are read at once, without their contents."""
_MOST = 5_000
"""The largest number of rows that one request reads in the order of age; its cursor continues after
them."""
_LIMIT = 100
T = TypeVar("T", bound=str)
_Place = tuple[float, str]
"""The time at which a call expires, and its id."""


@dataclass(frozen=True, slots=True)
class Wanted:
    """The filters, order and position of a list, from the query."""

    state: str = "PENDING"
    sort: Literal["expires", "created"] = "expires"
    limit: int = 50
    calls: CallFilter = CallFilter(state="PENDING")
    mine: bool = False
    own: bool = False
    cursor: Any = None

    @property
    def is_plain(self) -> bool:
        """Whether the list has all pending calls, so that nobody's contents have to be read."""
        return self == Wanted(sort=self.sort, limit=self.limit, cursor=self.cursor)

    @classmethod
    def of(cls, query: Mapping[str, str]) -> "Wanted":
        """The list that the query asks for; raises InvalidRequest for a wrong parameter."""
        state = query.get("state", "PENDING").upper()
        _one_of("state", state, (*get_args(State), "ALL", "DECIDED"))
        sorts = ("expires", "created") if state in ("PENDING", "APPROVED") else ("created",)
        sort = query.get("sort", sorts[0])
        kind = query.get("kind")
        is_place = _one_of("sort", sort, sorts) == "expires"
        return cls(
            state=state,
            sort="expires" if is_place else "created",
            limit=_number("limit", query.get("limit", "50")),
            calls=CallFilter(
                state=None if state in ("ALL", "DECIDED") else state,
                tool=query.get("tool"),
                kind=kind and _one_of("kind", kind, ("tool_call", "command")),
                requester=query.get("requester"),
                rule=query.get("rule"),
                text=query.get("q"),
                created_after=_time(query.get("created_after")),
            ),
            mine=_one_of("mine", query.get("mine", "false"), ("true", "false")) == "true",
            own=_one_of("own", query.get("own", "false"), ("true", "false")) == "true",
            cursor=_cursor(query.get("cursor"), is_place=is_place),
        )

    def fits(self, host: Host, row: Proposal, caller: Caller) -> bool:
        """Whether the list has this call."""
        return (
            self.calls.fits(row)
            and (self.state != "DECIDED" or row.state != "PENDING")
            and host.record.visible(row, caller)
            and (not self.mine or view(host, caller).may_decide(row))
            and (not self.own or view(host, caller).owns(row))
        )


class Page(NamedTuple):
    """Some calls, and the cursor of those behind them; None at the end."""

    calls: Sequence[Proposal]
    next: str | None


async def page(host: Host, wanted: Wanted, caller: Caller) -> Page:
    """The calls that `wanted` describes, from its cursor on."""
    by = _by_expiry if wanted.sort == "expires" else _by_age
    return await by(host, wanted, caller)


async def each(host: Host, states: Sequence[str], caller: Caller) -> AsyncIterator[Proposal]:
    """The calls in these states that exist for the caller, in their present state."""
    for state in states:
        async for rows in _scan(host, state, None):
            for row in rows:
                if row.state == state and host.record.visible(row, caller):
                    yield row


async def _by_age(host: Host, wanted: Wanted, caller: Caller) -> Page:
    """The calls from the newest on; the cursor is the id of the last call that was read."""
    after = wanted.cursor if isinstance(wanted.cursor, str) else None
    calls: list[Proposal] = []
    looked = 0
    async for rows in _scan(host, wanted.state, after):
        for row in rows:
            looked += 1
            if wanted.fits(host, row, caller):
                calls.append(row)
            if len(calls) == wanted.limit or looked == _MOST:
                return Page(calls, _encoded(row.id))
    return Page(calls, None)


async def _by_expiry(host: Host, wanted: Wanted, caller: Caller) -> Page:
    """The calls from the soonest to expire on. The first page also has the first call of each
    principal, so that nobody's calls hide anybody else's."""
    places: dict[str, _Place] = {}
    whose: dict[str, str] = {}
    found = _undecided(host, caller) if wanted.is_plain else _fitting(host, wanted, caller)
    async for row in found:
        places[row.id] = (row.expires, row.id)
        whose[row.id] = row.principal or f"@{row.address}"
    order = sorted(places.values())
    begin = _place(wanted.cursor)
    firsts: list[str] = []
    if begin is None:
        first = {whose[id_]: id_ for _, id_ in reversed(order)}
        firsts = sorted(first.values(), key=lambda id_: places[id_])[: wanted.limit]
    behind = [place for place in order if begin is None or place > begin]
    # Take calls in order until the page is full, with room for the first ones.
    taken: list[_Place] = []
    shown = set(firsts)
    for place in behind:
        if place[1] not in shown and len(shown) >= wanted.limit:
            break
        shown.add(place[1])
        taken.append(place)
    now = await host.record.settle([*shown])
    calls = [now[id_] for id_ in sorted(shown, key=lambda i: places[i]) if id_ in now]
    more = len(taken) < len(behind)
    last = taken[-1] if taken else begin or (0.0, "")
    return Page(
        [row for row in calls if row.state == wanted.state], _encoded(last) if more else None
    )


async def _undecided(host: Host, caller: Caller) -> AsyncIterator[Pending]:
    """The pending calls that exist for the caller, read from an index and without contents."""
    after: tuple[float, int, str] | None = None
    while True:
        rows, now = await host.record.read(partial(_pending, after=after))
        for row in rows:
            if row.expires > now and host.record.visible(row, caller):
                yield row
        if len(rows) < _POSITIONS:
            return
        after = (rows[-1].created, rows[-1].position, rows[-1].id)


def _pending(tx: Transaction, after: tuple[float, int, str] | None) -> tuple[list[Pending], float]:
    return tx.pending(after, _POSITIONS), tx.now


async def _fitting(host: Host, wanted: Wanted, caller: Caller) -> AsyncIterator[Proposal]:
    async for rows in _scan(host, wanted.state, None):
        for row in rows:
            if wanted.fits(host, row, caller):
                yield row


async def _scan(host: Host, state: str, after: str | None) -> AsyncIterator[list[Proposal]]:
    """The rows in this state, up to date, from the newest on, in parts."""
    any_state = state in ("ALL", "DECIDED")
    while True:
        find = partial(_find, state=None if any_state else state, after=after)
        found = await host.record.read(find)
        settled = await host.record.settle([row.id for row in found if row.state in _UNSETTLED])
        yield [settled.get(row.id, row) for row in found]
        if len(found) < _SCANNED:
            return
        after = found[-1].id


def _find(tx: Transaction, state: Any, after: str | None) -> list[Proposal]:
    return tx.find(state=state, after=after, limit=_SCANNED, newest=True)


def _encoded(place: object) -> str:
    return base64.urlsafe_b64encode(json.dumps(place).encode()).rstrip(b"=").decode()


def _cursor(text: str | None, *, is_place: bool) -> Any:
    """The place or the id in a cursor: each order of a list has cursors of its own."""
    if text is None:
        return None
    try:
        place = json.loads(base64.b64decode(text + "=" * (-len(text) % 4), b"-_", validate=True))
    except ValueError:
        place = None
    if _place(place) is not None if is_place else isinstance(place, str):
        return place
    raise InvalidRequest.at(["query", "cursor"], "value_error", "this is no cursor of this list")


def _place(cursor: Any) -> _Place | None:
    match cursor:
        case [float() | int() as expires, str() as id_]:
            return float(expires), id_
    return None


def _one_of(name: str, given: T, values: Sequence[str]) -> T:
    if given not in values:
        text = f"expected one of {', '.join(values)}"
        raise InvalidRequest.at(["query", name], "value_error", text)
    return given


def _number(name: str, given: str) -> int:
    if not given.isascii() or not given.isdecimal() or not 1 <= int(given[:9]) <= _LIMIT:
        text = f"expected a number from 1 to {_LIMIT}"
        raise InvalidRequest.at(["query", name], "value_error", text)
    return int(given)


def _time(given: str | None) -> float | None:
    if given is None:
        return None
    try:
        time = datetime.fromisoformat(given)
        # All times that the service states are in UTC.
        return (time if time.tzinfo else time.replace(tzinfo=UTC)).timestamp()
    except (ValueError, OverflowError):
        text = "expected a time such as 2027-01-31T12:00:00Z"
        raise InvalidRequest.at(["query", "created_after"], "value_error", text) from None
