"""The outcomes of decided calls: those that a reply reports, and their changes to the session."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from contextlib import suppress
from typing import Any

from sayso.context import Session
from sayso.conversation import approvals
from sayso.ledger import RAN, Proposal
from sayso.ledger.choices import Choice, Decided
from sayso.turns.plan import Asking
from sayso.wire.messages import Data, Message, beyond_text


def reported_in(messages: Sequence[Message]) -> frozenset[str]:
    """The calls whose outcome the client has received; the session that it sends has their
    changes."""
    return frozenset(
        outcome.id
        for message in beyond_text(messages)
        if message.data is not None
        for outcome in message.data.outcomes
    )


def catch_up(session: Session, asking: Asking, known: frozenset[str]) -> frozenset[str]:
    """Apply to the session the changes of calls whose outcome the client has not received, unless
    they are `known`. Returns the calls whose changes the session has now."""
    rows = {row.id: row for row in _unreported(asking) if row.session and row.id not in known}
    for row in sorted(rows.values(), key=lambda row: row.finished or 0.0):
        _apply(session, row.session or {})
    return known | rows.keys()


def _unreported(asking: Asking) -> Iterable[Proposal]:
    """The calls whose outcome the client may not know: those that its newest message decides, and
    all calls of a turn at which the history ends and that has not continued since."""
    found = asking.found
    yield from (found.rows[row.id] for choice, row in found.chosen if choice.newest)
    here = {row.turn for choice, row in found.chosen if not choice.copy} | asking.last_turns
    yield from (row for row in found.rows.values() if row.turn in here and _waits(found, row))


def _waits(found: Decided, row: Proposal) -> bool:
    """Whether the call belongs to a turn of the requester that has never been continued."""
    suspended = found.turns.get(row.turn)
    return suspended is not None and not suspended.reply


def _apply(session: Session, change: Mapping[str, Any]) -> None:
    for key, value in change.get("set", {}).items():
        # User code may have changed a value in place to one that no caller could send back.
        with suppress(ValueError):
            session.set(key, value)
    for key in change.get("delete", ()):
        session.delete(key)


def known_to_reply(found: Decided, turns: Collection[str]) -> list[str]:
    """The calls that the reply of a continuation of `turns` reports: those of these turns that have
    been carried out or rejected, those that a callable is about to carry out, and all that this
    request decides."""
    here = {row.id for choice, row in found.chosen if not choice.copy}
    here |= {grant.proposal.id for grant in found.grants}
    known: list[str] = []
    for row in found.rows.values():
        ended = row.state in RAN or row.state == "REJECTED"
        decided = ended or row.state in ("APPROVED", "EXECUTING")
        given = ended or (row.state == "APPROVED" and row.turn in found.callables)
        if (row.id in here and decided) or (row.turn in turns and given):
            known.append(row.id)
    return known


def outcomes_of(found: Decided, ran: Sequence[str]) -> Data:
    """The outcomes to report, each in the list that carried its decision; `ran` are the calls that
    this turn has carried out."""
    data = Data()
    named: set[tuple[str, bool]] = set()
    for choice, chosen in found.chosen:
        row = found.rows[chosen.id]
        if (row.id, choice.through_approvals) in named:
            continue
        named.add((row.id, choice.through_approvals))
        if _is_reported(found, choice, row, ran):
            _report(data, row, choice.through_approvals)
    # A callable may have run calls that were approved in earlier messages, which decide nothing
    # now.
    ids = {id_ for id_, _ in named}
    for row in [found.rows[id_] for id_ in ran if id_ not in ids]:
        if row.decision and row.state in RAN:
            _report(data, row, row.decision.through_approvals)
    return data


def _is_reported(found: Decided, choice: Choice, row: Proposal, ran: Collection[str]) -> bool:
    # The recorded reply has the outcome of a purged call, as long as it is kept.
    if row.purged:
        return False
    if row.state not in RAN and not (row.state == "REJECTED" and choice.through_approvals):
        return False
    decided_before = not choice.copy and _waits(found, row)
    return row.id in ran or choice.newest or decided_before


def _report(data: Data, row: Proposal, through_approvals: bool) -> None:
    if through_approvals:
        data.executed_approvals.append(approvals.executed_approval(row))
    elif row.kind == "tool_call":
        data.executed_tool_calls.append(approvals.executed_tool_call(row))
    else:
        data.executed_cmds.append(approvals.executed_command(row))
