"""Erasure of what a principal or a tenant has left, which leaves the log whole.

The log has digests of contents, and no contents; it keeps the names of principals until
`approvals.log_retention` removes its rows.
"""

from __future__ import annotations

from typing import NamedTuple

from sayso.ledger import OPEN, Proposal, Reading, Store, Transaction
from sayso.ledger.log import log

_PAGE = 200
_WHY = "erased"


class Erased(NamedTuple):
    """The numbers of calls without contents now, of those among them that were open and are
    rejected, and of running ones, which were left."""

    calls: int
    rejected: int
    running: int


async def erase(store: Store, *, principal: str | None = None, tenant: str | None = None) -> Erased:
    """Remove the inputs, outputs, sessions, comments and transcripts of calls that `principal`
    proposed, or that were proposed for `tenant`; open ones are rejected first.

    A call that runs is left: erase again when it has ended.
    """
    total, after = Erased(0, 0, 0), None
    while True:

        def work(tx: Transaction, after: str | None = after) -> tuple[Erased, str | None]:
            found = tx.find(after=after, limit=_PAGE)
            mine = [row for row in found if _is_meant(row, principal, tenant)]
            done = [row for row in mine if row.state != "EXECUTING"]
            rejected = [_erased(tx, row) for row in done]
            counts = Erased(len(done), sum(rejected), len(mine) - len(done))
            return counts, found[-1].id if len(found) == _PAGE else None

        page, after = await store.run(Reading(work))
        total = Erased(*(one + more for one, more in zip(total, page, strict=True)))
        if after is None:
            return total


def _is_meant(row: Proposal, principal: str | None, tenant: str | None) -> bool:
    if principal is not None and principal in (row.principal, row.person):
        return True
    return tenant is not None and row.tenant == tenant


def _erased(tx: Transaction, row: Proposal) -> bool:
    """Erase a call and the transcript of its turn; returns whether it was open."""
    was_open = row.state in OPEN
    if was_open:
        row.state, row.finished = "REJECTED", tx.now
        row.output = f"Rejected: {_WHY}"
        log(tx, "rejected", row)
    bare = row.without_contents()
    bare.user = bare.address = bare.client = bare.context = None
    bare.description, bare.input_description = "", {}
    tx.put(bare)
    log(tx, _WHY, bare)
    for turn in tx.turns([row.turn]).values():
        turn.transcript, turn.reply, turn.user = [], None, None
        turn.state, turn.ended, turn.owner = "ENDED", turn.ended or tx.now, None
        tx.put_turn(turn)
    return was_open
