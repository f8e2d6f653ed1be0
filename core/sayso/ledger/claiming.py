"""Claims on their way to the store, and the clean-up of one whose answer is lost."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from functools import partial
from typing import TypeVar

from sayso.errors import LedgerUnavailable
from sayso.ledger import Reading, Store, Transaction
from sayso.ledger.beginnings import Claim
from sayso.ledger.choices import Continuation, Decided, Grant
from sayso.ledger.holdings import Holdings
from sayso.ledger.lease import Lease
from sayso.ledger.rules import Rules
from sayso.ledger.writes import Writes

T = TypeVar("T")


class Claiming:
    """Sends the claims of this process, and notes in `held` what they were granted."""

    def __init__(
        self, store: Store, rules: Rules, lease: Lease, writes: Writes, held: Holdings
    ) -> None:
        self.held = held
        self._store = store
        self._rules = rules
        self._lease = lease
        self._writes = writes

    def sent(self) -> Claim:
        """A claim that is about to be sent. Raises LedgerUnavailable if nothing would renew its
        lease."""
        self._lease.hold()
        return self._rules.new_claim()

    async def run(
        self, work: Callable[[Transaction], T], token: str, turns: Sequence[str] = ()
    ) -> T:
        """The result of the claim `token`, which is held from now on; `turns` are those that it may
        claim.

        A claim whose commit is in doubt is undone in the background: what it claimed would wait
        for its lease to run out.
        """
        self.held.send(token)
        try:
            result = await self._store.run(work)
        except (LedgerUnavailable, asyncio.CancelledError):
            # The claim itself may still be running.
            undone = partial(self._rules.disown, token=token, turns=turns)
            reading = Reading(undone, turns=turns, alone=True)
            self._writes.later(reading, turns, partial(self.held.end, token))
            raise
        except BaseException:
            self.held.end(token)
            raise
        self.held.keep(token, _granted(result))
        return result

    def ended(self, what: Grant | Continuation) -> None:
        """Note that the store has recorded the end of the call, or of the turns."""
        self.held.end(what.token, _ids(what))


def _granted(result: object) -> list[str]:
    """The calls or turns that a claim with this result was granted."""
    match result:
        case Decided():
            return [id_ for grant in result.grants for id_ in _ids(grant)]
        case (_, Continuation() as continuing):
            return _ids(continuing)
        case Continuation():
            return _ids(result)
    return []


def _ids(what: Grant | Continuation) -> list[str]:
    if isinstance(what, Grant):
        return [what.proposal.id]
    return [id_ for id_, _ in what.turns]
