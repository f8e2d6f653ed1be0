"""The outcomes of decided calls: what a reply reports, and what they did to the session."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from contextlib import suppress
from typing import Any

from sayso.conversation import approvals
from sayso.ledger import RAN, Proposal
from sayso.ledger.choices import Choice
from sayso.turns.state import RunningTurn
from sayso.wire.messages import beyond_text
from sayso.wire.session import Session


def heard(turn: RunningTurn) -> set[str]:
    """The calls whose outcome the client has received: its session has their changes."""
    messages = beyond_text(turn.request.messages)
    return {outcome.id for m in messages if m.data is not None for outcome in m.data.outcomes}


def catch_up(turn: RunningTurn, known: set[str]) -> None:
    """Apply to the session the changes of calls whose outcome the client has not received."""
    for row in sorted(_unheard(turn), key=lambda row: row.finished or 0.0):
        if row.session and row.id not in known:
            _apply(turn.session, row.session)
            known.add(row.id)


def _unheard(turn: RunningTurn) -> list[Proposal]:
    """The calls whose outcome the client may not know: those that its newest message decides, and
    all calls of a turn at which the history ends and that has not continued since."""
    found, rows = turn.found, turn.found.rows
    here = {row.turn for choice, row in found.chosen if not choice.copy}
    here |= last_turns(turn)
    here = {id_ for id_ in here & found.turns.keys() if not found.turns[id_].reply}
    decided = [rows[row.id] for choice, row in found.chosen if choice.newest]
    return [*decided, *(row for row in rows.values() if row.turn in here)]


def last_turns(turn: RunningTurn) -> set[str]:
    """The turns whose calls the newest assistant message shows."""
    rows = turn.found.rows
    return {rows[id_].turn for id_ in approvals.last_shown(turn.request.messages) if id_ in rows}


def decided_calls(turn: RunningTurn, turns: Collection[str]) -> list[str]:
    """The calls of which a continuation of `turns` tells: those of them that have been carried out
    or rejected, those that a callable is about to carry out, and all that this request decides."""
    found = turn.found
    here = {row.id for choice, row in found.chosen if not choice.copy}
    here |= {grant.proposal.id for grant in found.grants}
    known: list[str] = []
    for row in found.rows.values():
        ended = row.state in RAN or row.state == "REJECTED"
        decided = ended or row.state in ("APPROVED", "EXECUTING")
        told = ended or (row.state == "APPROVED" and row.turn in found.callables)
        if (row.id in here and decided) or (row.turn in turns and told):
            known.append(row.id)
    return known


def _apply(session: Session, change: Mapping[str, Any]) -> None:
    for key, value in change.get("set", {}).items():
        # Changed in place, a value may be what no caller could send back.
        with suppress(ValueError):
            session.set(key, value)
    for key in change.get("delete", ()):
        session.delete(key)


def collect_outcomes(turn: RunningTurn, ran: set[str]) -> None:
    """Fill `data` with the outcomes to report, each in the list that carried its decision."""
    told: set[tuple[str, bool]] = set()
    for choice, chosen in turn.found.chosen:
        row = turn.found.rows[chosen.id]
        if (row.id, choice.through_approvals) in told:
            continue
        told.add((row.id, choice.through_approvals))
        if row.purged:
            # Its outcome stands in the recorded reply, while that is kept.
            continue
        rejected = row.state == "REJECTED" and choice.through_approvals
        if not rejected and row.state not in RAN:
            continue
        if row.id not in ran and not choice.newest and not _untold(turn, choice, row):
            continue
        _tell(turn, row, choice.through_approvals)
    # What a callable has run may have been approved by messages that are no choice of this request.
    named = {id_ for id_, _ in told}
    for grant in turn.found.grants:
        row = turn.found.rows[grant.proposal.id]
        if row.decision and row.id not in named and row.state in RAN:
            _tell(turn, row, row.decision.through_approvals)


def _tell(turn: RunningTurn, row: Proposal, through_approvals: bool) -> None:
    if through_approvals:
        turn.data.executed_approvals.append(approvals.executed_approval(row))
    elif row.kind == "tool_call":
        turn.data.executed_tool_calls.append(approvals.executed_tool_call(row))
    else:
        turn.data.executed_cmds.append(approvals.executed_command(row))


def _untold(turn: RunningTurn, choice: Choice, row: Proposal) -> bool:
    """Whether the call was decided directly before, and no reply has reported its outcome yet."""
    suspended = turn.found.turns.get(row.turn)
    return not choice.copy and suspended is not None and not suspended.reply
