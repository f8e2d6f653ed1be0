"""The use of each caller: one row in the ledger's store."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from hashlib import sha256
from typing import Protocol

MINUTE = 60.0
DAY = 86_400.0
_LEFT_BEHIND = 60.0


class Notes(Protocol):
    """The notes in the store, in one transaction."""

    @property
    def now(self) -> float: ...

    def find(self, prefix: str) -> Mapping[str, str]: ...

    def put(self, name: str, text: str | None) -> None: ...


@dataclass(slots=True)
class Used:
    """The counts of the present minute and day (UTC), and the turns that run, each with the time
    after which its process has certainly died."""

    minute: int = 0
    asked: int = 0
    decided: int = 0
    day: int = 0
    tokens: int = 0
    running: dict[str, float] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Limit:
    """The most of each; None for no limit."""

    rate: int | None
    decisions: int | None
    concurrent: int | None
    tokens: int | None


@dataclass(frozen=True, slots=True)
class Refusal:
    """Why a request is refused: its text, the code, and the seconds until it may succeed."""

    text: str
    code: str
    seconds: float


def name_of(who: str) -> str:
    """The name of a caller's row; it does not show who that is."""
    return f"limits:{sha256(who.encode('utf-8', 'surrogatepass')).hexdigest()[:32]}"


def _row(notes: Notes, name: str) -> Used:
    text = notes.find(name).get(name)
    used = Used(**json.loads(text)) if text else Used()
    now = notes.now
    if used.minute != (minute := int(now // MINUTE)):
        used.minute, used.asked, used.decided = minute, 0, 0
    if used.day != (day := int(now // DAY)):
        used.day, used.tokens = day, 0
    used.running = {id_: end for id_, end in used.running.items() if end > now}
    return used


def take(
    notes: Notes, name: str, limit: Limit, id_: str, seconds: float, *, decides: bool
) -> Refusal | None:
    """Count a request that may take `seconds`, or return why it is refused."""
    used, now = _row(notes, name), notes.now
    if refusal := _refusal(used, limit, now, decides=decides):
        return refusal
    if decides:
        used.decided += 1
    else:
        used.asked += 1
        used.running[id_] = now + seconds + _LEFT_BEHIND
    notes.put(name, json.dumps(asdict(used), separators=(",", ":")))
    return None


def _refusal(used: Used, limit: Limit, now: float, *, decides: bool) -> Refusal | None:
    rest = MINUTE - now % MINUTE
    if decides:
        # A budget must not keep a person from rejecting a call.
        if limit.decisions is not None and used.decided >= limit.decisions:
            text = f"the limit of decisions is {limit.decisions} a minute"
            return Refusal(text, "RATE_LIMITED", rest)
        return None
    if limit.rate is not None and used.asked >= limit.rate:
        return Refusal(f"the limit of requests is {limit.rate} a minute", "RATE_LIMITED", rest)
    if limit.concurrent is not None and len(used.running) >= limit.concurrent:
        return Refusal(f"the limit of requests is {limit.concurrent} at once", "RATE_LIMITED", 1.0)
    if limit.tokens is not None and used.tokens >= limit.tokens:
        text = f"all {limit.tokens} tokens of this day are used"
        return Refusal(text, "BUDGET_EXHAUSTED", DAY - now % DAY)
    return None


def give_back(notes: Notes, name: str, id_: str, tokens: int) -> None:
    """End a request that has used so many tokens."""
    used = _row(notes, name)
    used.running.pop(id_, None)
    used.tokens += tokens
    notes.put(name, json.dumps(asdict(used), separators=(",", ":")))


def sweep(notes: Notes) -> None:
    """Remove the rows of callers who have asked for nothing since yesterday."""
    today = int(notes.now // DAY)
    for name, text in notes.find("limits:").items():
        if json.loads(text).get("day", 0) < today - 1:
            notes.put(name, None)
