"""The record of proposals as plugins see it."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple, Protocol, TypeVar

from sayso.context import Caller
from sayso.hosting.numbers import Backlog
from sayso.ledger import Pending, Proposal, Transaction
from sayso.ledger.outbox import LogPage
from sayso.ledger.rules import Frozen

T = TypeVar("T")


class Ruling(NamedTuple):
    """One of several decisions, with its reason; `seen` is the digest of what its approver was
    shown (`Proposal.seen`)."""

    id: str
    approved: bool
    reason: str | None = None
    seen: str | None = None


class Notes(Protocol):
    """The notes of plugins in the store, as one atomic transaction sees them.

    `now` is the store's time. Names are printable ASCII; begin them with the name of your plugin.
    """

    @property
    def now(self) -> float:
        """The store's time, in seconds since the epoch."""
        ...

    def find(self, prefix: str) -> Mapping[str, str]:
        """The notes whose names begin with `prefix`, by their names."""
        ...

    def put(self, name: str, text: str | None) -> None:
        """Keep `text` under this name in place of the text before; None removes the note."""
        ...


class Record(Protocol):
    """The record of proposals, for plugins that list them and report their changes."""

    async def read(self, work: Callable[[Transaction], T]) -> T:
        """The result of `work`, which reads the state of one moment and writes nothing."""
        ...

    async def settle(self, ids: Sequence[str]) -> dict[str, Proposal]:
        """These rows by id, after updating those that have expired or whose owner has died."""
        ...

    async def notes(self, work: Callable[[Notes], T], *, lasting: bool = False) -> T:
        """The result of `work`, which reads and changes the notes of plugins in one transaction.

        It may run on another thread, and repeatedly, so it must have no other effects. A power loss
        directly afterwards may undo it, unless it is `lasting`.
        """
        ...

    def visible(self, row: Proposal | Pending, caller: Caller) -> bool:
        """Whether the call exists for this caller."""
        ...

    def barred(self, row: Proposal, caller: Caller) -> str:
        """The reason why this caller may not approve the call: "AGENT", "NOT_AN_APPROVER" or
        "OWN_REQUEST", in words by `why_barred`; an empty text if the caller may."""
        ...

    def standing(self, row: Proposal) -> str:
        """A text with the persons who have approved a call that waits for others, and with those
        still needed; empty for a call that nobody has approved."""
        ...

    async def backlog(self) -> Backlog:
        """The numbers of calls that wait, for metrics; it reads up to 1,000 rows."""
        ...

    async def frozen(self) -> Frozen | None:
        """The stop of all starts, if there is one: its author, time and reason."""
        ...

    async def freeze(self, caller: Caller, reason: str) -> None:
        """Stop all starts of approved calls, in every process, within two seconds."""
        ...

    async def thaw(self, caller: Caller) -> None:
        """Let approved calls start again."""
        ...

    async def log(self, cursor: str | None, limit: int = 100) -> LogPage:
        """The rows of the log after `cursor`; None begins with the oldest. Raises ValueError for an
        invalid cursor."""
        ...

    async def log_end(self) -> str:
        """The cursor after the newest rows, for a reader that begins now."""
        ...

    async def decide_all(self, rulings: Sequence[Ruling], caller: Caller) -> list[Proposal]:
        """Record all of these decisions in one transaction, or none; returns the rows in their
        order.

        Raises InvalidRequest whose items point at `["body", "decisions", index]`.
        """
        ...

    async def comment(self, id: str, caller: Caller, text: str) -> Proposal | None:
        """The call with this comment added, or None if it is not visible to this caller.

        Raises InvalidRequest if it has too many comments.
        """
        ...
