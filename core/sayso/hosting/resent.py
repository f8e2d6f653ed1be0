"""Requests of clients that send back only texts and the ids of calls.

Such a protocol names each call by its ledger id. Only the ledger says which of them are pending,
approved or done; the claims of the client's history do not count.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from sayso.context import Caller
from sayso.hosting import Calls
from sayso.ledger import Proposal
from sayso.wire.messages import Approval, ChatRequest, Data, Message

_MOST = 1000
"""Most calls of a history that are looked up, the newest first."""


@dataclass(frozen=True, slots=True)
class Shown:
    """One message as the client has it: its text, and the ids of the calls in it."""

    role: Literal["user", "assistant"]
    text: str
    ids: Sequence[str] = ()


@dataclass(frozen=True, slots=True)
class Asked:
    """The wish of a client: a turn with `request`; or, if that is None, to see the `pending`
    calls again, which starts nothing."""

    request: ChatRequest | None
    pending: Sequence[Proposal] = ()


async def asked(
    calls: Calls,
    caller: Caller,
    shown: Sequence[Shown],
    decisions: Sequence[Approval] = (),
    *,
    reported: Collection[str] = (),
    session: Mapping[str, Any] | None = None,
    supersede: bool = False,
) -> Asked:
    """The request of a client that has `shown` and makes `decisions`.

    The calls of its last assistant message that were decided elsewhere count as decided by this
    request, unless the client received their outcome (`reported`). Earlier calls run if they are
    approved and have not started; to run one again takes a decision of its own. A new text while
    calls are pending is no turn, unless it is to `supersede` them.
    """
    newest = shown[-1] if shown and shown[-1].role == "user" else Shown("user", "")
    history = shown[:-1] if shown and shown[-1] is newest else shown
    ids = [id_ for one in reversed(shown) for id_ in one.ids][:_MOST]
    rows = await calls.standing([*dict.fromkeys(ids)], caller) if ids else {}
    last = next((one.ids for one in reversed(history) if one.role == "assistant"), ())
    made = [*decisions, *_made_elsewhere(rows, last, {*reported, *(one.id for one in decisions)})]
    pending = [r for r in rows.values() if r.state == "PENDING" and r.kind == "tool_call"]
    if pending and not made and not (supersede and newest.text.strip()):
        return Asked(None, sorted(pending, key=lambda row: row.order))
    data = Data(approvals=made, session=None if session is None else dict(session))
    messages = [_message(one, rows, last is one.ids) for one in history]
    messages.append(Message(role="user", content=newest.text, data=data))
    return Asked(ChatRequest(messages=messages))


def _made_elsewhere(
    rows: Mapping[str, Proposal], ids: Iterable[str], known: Collection[str]
) -> Iterator[Approval]:
    for row in [rows[id_] for id_ in dict.fromkeys(ids) if id_ in rows and id_ not in known]:
        if row.state == "REJECTED":
            reason = row.decision.reason if row.decision else None
            yield Approval(id=row.id, type=row.kind, rejection_reason=reason or "no reason given")
        elif row.state not in ("PENDING", "EXPIRED") and not row.runs_again:
            yield Approval(id=row.id, type=row.kind, execute=True, seen=row.seen)


def _message(one: Shown, rows: Mapping[str, Proposal], is_last: bool) -> Message:
    """The message with its calls as the ledger has them; approved ones further back are meant."""
    found = [rows[id_] for id_ in dict.fromkeys(one.ids) if id_ in rows]
    stated = [
        Approval(
            id=row.id,
            type=row.kind,
            name=row.name,
            input=row.input,
            execute=row.state == "APPROVED" and not is_last,
        )
        for row in found
    ]
    data = Data(approvals=stated) if stated else None
    return Message(role=one.role, content=one.text, data=data)
