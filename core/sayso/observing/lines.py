"""The log's observer: one line for each turn, each decision, and each run of an approved call.

No line has a message, an input, an output or a reason.
"""

from __future__ import annotations

import logging
from functools import partial
from typing import Any

from sayso.ledger import RAN
from sayso.observing import ApprovalChange, Observer, TurnBegan, TurnEnd, TurnEnded
from sayso.observing.observers import Named
from sayso.principals import proven_tenant

turns = logging.getLogger("sayso.turn")
approvals = logging.getLogger("sayso.approvals")
_DECIDED = {"approved", "rejected", "voted", "expired"}
_RAN = {state.lower() for state in RAN}


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
            approvals.info("call %s", change.event, extra=_decision(change))
        elif change.event in _RAN:
            approvals.info("call ended", extra=_run(change))


def _turn_ended(began: TurnBegan, ended: TurnEnded) -> None:
    caller, usage = began.caller, ended.usage
    read = usage.input_tokens + usage.cache_read_tokens + usage.cache_write_tokens
    turns.info(
        "turn ended",
        extra=_given(
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
        ),
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
