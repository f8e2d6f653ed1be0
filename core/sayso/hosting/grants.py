"""Standing grants as plugins see them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple, Protocol

from sayso.context import Caller
from sayso.ledger.grants import StandingGrant


class Grantable(NamedTuple):
    """The calls that a standing grant is to approve.

    `arguments` is the whole input of a call, or with `pattern` one text with wildcards, or value,
    for each argument. `context` has the fields of the platform context that calls must state,
    `holder` the principal that causes them. It holds for `seconds`, and for `uses` calls.
    """

    tool: str
    arguments: Mapping[str, Any]
    holder: str
    uses: int
    seconds: float
    reason: str
    pattern: bool = False
    context: Mapping[str, Any] = {}


class Grants(Protocol):
    """The standing grants of one service."""

    async def give(self, wanted: Grantable, caller: Caller) -> StandingGrant:
        """Record a standing grant of this caller.

        Raises NotGranted, with a code, if the caller may not give it, and InvalidRequest for a
        wrong tool or input.
        """
        ...

    async def listed(self, caller: Caller) -> tuple[list[StandingGrant], float]:
        """The grants that exist for this caller, the newest first, and the time at the store: its
        own, those that it holds, and those of calls that it may see."""
        ...

    async def revoke(self, id: str, caller: Caller) -> StandingGrant | None:
        """End a grant at once; None if it does not exist for this caller. Raises NotGranted for an
        agent."""
        ...
