"""The log's observers: one line for each turn, each decision, and each run of an approved call, and
one a minute for each kind of refused callers.

No line has a message, an input, an output or a reason.
"""

from __future__ import annotations

import asyncio
import logging
import threading
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from time import monotonic
from typing import Any, Protocol, TypeGuard

from sayso.ledger import RAN
from sayso.observing import ApprovalChange, CallerRefused, Observer, TurnBegan, TurnEnd, TurnEnded
from sayso.observing.observers import Named
from sayso.principals import proven_tenant

turns = logging.getLogger("sayso.turn")
approvals = logging.getLogger("sayso.approvals")
auth = logging.getLogger("sayso.auth")
_DECIDED = {"approved", "rejected", "voted", "expired"}
_RAN = {state.lower() for state in RAN}


class Writer(Protocol):
    """A handler that writes lines of which no record is made, as the service's own does."""

    @property
    def makes_lines(self) -> bool:
        """Whether `soon` writes what a record of the level INFO would become."""

    def soon(self, logger: str, text: str, fields: Callable[[], Mapping[str, Any]]) -> None:
        """Write a line of the level INFO soon."""


class LogLines(Observer):
    """Logs what has ended, at the level INFO."""

    @classmethod
    def wanted(cls) -> list[Named]:
        """This observer, if the log shows its lines when the service is made."""
        shown = turns.isEnabledFor(logging.INFO) or approvals.isEnabledFor(logging.INFO)
        return [Named("sayso", cls())] if shown else []

    def turn(self, began: TurnBegan) -> TurnEnd | None:
        """Log the turn at its end."""
        return partial(_turn_ended, began)

    def approval(self, change: ApprovalChange) -> None:
        """Log a decision, and the end of a run."""
        if change.event in _DECIDED:
            _log(approvals, f"call {change.event}", _decision(change))
        elif change.event in _RAN:
            _log(approvals, "call ended", _run(change))


@dataclass(slots=True)
class _Minute:
    """The number of refusals since the line that began it."""

    until: float
    more: int = 0


class RefusedLines(Observer):
    """Logs refused callers: the first one of a kind at once, further ones as a number a minute."""

    def __init__(self, seconds: float = 60.0) -> None:
        self._seconds = seconds
        self._lock = threading.Lock()
        self._minutes: dict[tuple[str, str], _Minute] = {}
        """The kinds that have had a line in this minute."""

    @classmethod
    def wanted(cls) -> list[Named]:
        """This observer, if the log shows its lines when the service is made."""
        return [Named("sayso", cls())] if auth.isEnabledFor(logging.WARNING) else []

    @property
    def running(self) -> bool:
        """Whether the minute of a kind is not over."""
        return bool(self._minutes)

    def refused(self, refusal: CallerRefused) -> None:
        """Log the refusal, or count it."""
        kind, now = (refusal.protocol, refusal.reason), monotonic()
        with self._lock:
            minute = self._minutes.get(kind)
            if minute is not None and now < minute.until:
                minute.more += 1
                return
            count = 1 if minute is None else 1 + minute.more
            self._minutes[kind] = self._minute()
        self._log(refusal, count)

    def _minute(self) -> _Minute:
        # By then its end has told, unless its loop is closed.
        return _Minute(monotonic() + 2 * self._seconds)

    def _log(self, refusal: CallerRefused, count: int) -> None:
        # A page asks before anybody has signed in.
        level = logging.INFO if refusal.reason == "missing" else logging.WARNING
        protocol, reason, address = refusal.protocol, refusal.reason, refusal.address
        said = _given(protocol=protocol, reason=reason, count=count, address=address)
        _log(auth, "caller refused", said, level)
        # Elsewhere the next refusal tells the number.
        with suppress(RuntimeError):
            asyncio.get_running_loop().call_later(self._seconds, self._minute_over, refusal)

    def _minute_over(self, refusal: CallerRefused) -> None:
        kind = refusal.protocol, refusal.reason
        with self._lock:
            count = self._minutes.pop(kind, _Minute(0.0)).more
            if count:
                self._minutes[kind] = self._minute()
        if count:
            # The address is that of the first one only.
            self._log(refusal._replace(address=None), count)


def _log(
    logger: logging.Logger, text: str, fields: Mapping[str, Any], level: int = logging.INFO
) -> None:
    """Log `text` with `fields`.

    The logger's own way takes twice the time: it searches the stack for its caller.
    """
    if logger.isEnabledFor(level):
        record = logging.getLogRecordFactory()(logger.name, level, __file__, 0, text, (), None)
        vars(record).update(fields)
        logger.handle(record)


def _turn_ended(began: TurnBegan, ended: TurnEnded) -> None:
    if not turns.isEnabledFor(logging.INFO):
        return
    fields = partial(_turn, began, ended)
    # A record costs half as much as a small turn.
    if (writer := _only_writer(turns)) is not None:
        writer.soon(turns.name, "turn ended", fields)
    else:
        _log(turns, "turn ended", fields())


def _only_writer(logger: logging.Logger) -> Writer | None:
    """The handler that gets the records of `logger`, if it is the only one and makes lines."""
    if logger.filters:
        return None
    found: list[logging.Handler] = []
    each: logging.Logger | None = logger
    while each is not None:
        found += each.handlers
        each = each.parent if each.propagate else None
    return found[0] if len(found) == 1 and _makes_lines(found[0]) else None


def _makes_lines(handler: Any) -> TypeGuard[Writer]:
    return getattr(handler, "makes_lines", False)


def _turn(began: TurnBegan, ended: TurnEnded) -> dict[str, Any]:
    caller, usage = began.caller, ended.usage
    read = usage.input_tokens + usage.cache_read_tokens + usage.cache_write_tokens
    return _given(
        turn=began.id,
        protocol=caller.protocol,
        conversation=began.conversation,
        principal=caller.principal,
        tenant=proven_tenant(caller.principal),
        address=caller.address,
        stop=ended.stop,
        error=ended.error,
        duration=round(ended.duration, 4),
        first=None if ended.first is None else round(ended.first, 4),
        model_calls=ended.model_calls,
        tool_calls=ended.tool_calls,
        proposals=ended.proposals,
        tokens_in=read,
        tokens_out=usage.output_tokens,
        price_usd=ended.price,
    )


def _decision(change: ApprovalChange) -> dict[str, Any]:
    row, entry = change.row, change.entry
    return _given(
        call=row.id,
        tool=row.name,
        who=entry.get("who"),
        claimed=bool(entry.get("claimed")) or None,
        protocol=entry.get("protocol"),
        address=entry.get("address"),
        waited=round(change.waited, 3),
        input=entry.get("input"),
        conversation=row.conversation,
        turn=change.turn,
    )


def _run(change: ApprovalChange) -> dict[str, Any]:
    row = change.row
    return _given(
        call=row.id,
        tool=row.name,
        state=row.state,
        principal=row.principal,
        duration=row.duration and round(row.duration, 4),
        fence=row.fence,
        turn=change.turn,
    )


def _given(**fields: Any) -> dict[str, Any]:
    """The fields that have a value. Principals are plain texts in a record."""
    principal = fields.get("principal")
    if principal is not None:
        fields["principal"] = str(principal)
    return {name: value for name, value in fields.items() if value is not None and value != ""}
