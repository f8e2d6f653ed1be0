"""Pending calls in words, and the outcomes of calls whose task was canceled."""

from __future__ import annotations

import json
from collections.abc import Sequence

from sayso import Approval, Caller, Host, Proposal, needed_approvals, visible
from sayso_a2a.settings import Approvals

CANCELED = "the task was canceled"
"""The reason with which the calls of a canceled task are rejected."""
DENIED = "calls that need approval do not run over A2A here"
"""The reason with which calls are rejected if nobody may approve over this protocol."""

_ELSEWHERE = "sayso approvals approve ID"
_WAYS: dict[Approvals, str] = {
    "client": (
        'To decide, send a message on this task with a data part: {"id": "ID", "execute": true} '
        'approves, {"id": "ID", "rejection_reason": "..."} rejects. A text decides nothing. A '
        f"person can also decide where the service runs, with: {_ELSEWHERE}"
    ),
    "inbox": (
        "No message over A2A decides it. A person decides where the service runs, on its page or "
        f"with: {_ELSEWHERE}. The task then goes on by itself."
    ),
    "deny": f"They were rejected: {DENIED}.",
}


def waiting_words(proposals: Sequence[Approval], approvals: Approvals) -> str:
    """The pending calls and how to decide them, for a person; empty without any."""
    if not proposals:
        return ""
    needs = "A call needs" if len(proposals) == 1 else f"{len(proposals)} calls need"
    lines = [f"{needs} a person's approval, and nothing of it has run:"]
    return "\n".join([*lines, *map(_line, proposals), _WAYS[approvals]])


def _line(proposal: Approval) -> str:
    why = f" ({_prose(proposal.intent)})" if proposal.intent else ""
    about = f": {_prose(proposal.description)}" if proposal.description else ""
    input = visible(json.dumps(proposal.input, ensure_ascii=False), strict=True)
    needed = _prose(needed_approvals(proposal))
    return " ".join(
        filter(None, [f"- {proposal.name} {input}{about}{why}", needed, f"[ID {proposal.id}]"])
    )


def _prose(text: str) -> str:
    return " ".join(visible(text).split())


def decided_elsewhere(approvals: Approvals) -> str:
    """The reason why a decision over A2A is refused."""
    return DENIED if approvals == "deny" else _WAYS["inbox"].replace("\n", " ")


async def withdraw(
    host: Host, caller: Caller, proposals: Sequence[Approval], reason: str
) -> list[Proposal]:
    """Reject the proposals that have not started; returns the rows of the others."""
    ids = [proposal.id for proposal in proposals]
    if ids:
        await host.calls.withdraw(ids, caller, reason)
    return await started(host, caller, ids)


async def started(host: Host, caller: Caller, ids: Sequence[str]) -> list[Proposal]:
    """The rows of the calls among `ids` that have started."""
    rows = [await host.calls.look(id_, caller) for id_ in ids]
    ran = ("EXECUTING", "DONE", "FAILED", "INDETERMINATE")
    return [row for row in rows if row is not None and row.state in ran]


def outcome_words(rows: Sequence[Proposal]) -> str:
    """The outcomes of calls that had started when their task was canceled; empty without any."""
    return "\n".join(map(_outcome, rows))


def _outcome(row: Proposal) -> str:
    if row.state == "EXECUTING":
        return (
            f"Outcome unknown: {row.name} [ID {row.id}] had started when the task was canceled, "
            "and still runs. Ask for the task again to learn how it ends."
        )
    return f"{row.name} [ID {row.id}] had started when the task was canceled. It gave: {row.output}"
