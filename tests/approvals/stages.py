"""Ledgers without a service: tests set the store's clock and the dead owners."""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import Callable, Collection, Coroutine
from dataclasses import dataclass, field
from typing import Any, TypeVar

from sayso.errors import InvalidRequest, LedgerUnavailable
from sayso.ledger import Owner, Proposal, Store, SuspendedTurn, Transaction
from sayso.ledger.choices import Choice, Conversation, Decided, Requester
from sayso.ledger.claims import boottime as real_boottime
from sayso.ledger.record import Ledger

T = TypeVar("T")
ALICE = Requester("alice", "acme", "u1", "v2", "192.0.2.1")


@dataclass
class World:
    """The state that processes share: seconds on top of the clocks, of the store's and of their
    own, and the processes that are known to be dead. `jump` moves only the store's clock."""

    late: float = 0.0
    jump: float = 0.0
    dead: set[str] = field(default_factory=set)

    def __post_init__(self) -> None:
        _worlds.append(self)


_worlds: list[World] = []
"""The newest is that of the test."""


def boottime() -> float:
    """The clock of the processes, in place of the machine's."""
    return real_boottime() + (_worlds[-1].late if _worlds else 0.0)


class _Later:
    def __init__(self, tx: Transaction, late: float) -> None:
        self._tx = tx
        self.now = tx.now + late

    def __getattr__(self, name: str) -> Any:
        return getattr(self._tx, name)


class Staged:
    """A store as one process of a `World` sees it; `fail` raises before or after a commit."""

    shared = True

    def __init__(self, store: Store, world: World) -> None:
        self.store = store
        self.world = world
        self.refuses = 0
        self.loses = 0
        self.runs = 0

    @property
    def url(self) -> str:
        return self.store.url

    async def open(self) -> None:
        await self.store.open()

    async def close(self) -> None:
        await self.store.close()

    async def run(self, work: Callable[[Transaction], T]) -> T:
        self.runs += 1
        if self.refuses:
            self.refuses -= 1
            raise LedgerUnavailable
        late = self.world.late + self.world.jump
        value = await self.store.run(lambda tx: work(_Later(tx, late)))  # type: ignore[arg-type]
        if self.loses:
            self.loses -= 1
            raise LedgerUnavailable("the answer was lost")
        return value

    async def check(self) -> None:
        await self.store.check()

    def renew(self, owner: str, seconds: float, ids: Collection[str]) -> None:
        """Leases are moved by the test."""

    def hold(self, owner: str) -> None:
        self.store.hold(owner)

    def dead(self, owner: Owner) -> bool:
        return owner.id in self.world.dead or self.store.dead(owner)


def run(work: Coroutine[Any, Any, T]) -> T:
    """The result of `work`, within two minutes."""

    async def bounded() -> T:
        return await asyncio.wait_for(work, 120)

    return asyncio.run(bounded())


def turn_of(*rows: Proposal, principal: str | None = "alice", **fields: Any) -> SuspendedTurn:
    return SuspendedTurn(
        id=rows[0].turn, created=0.0, principal=principal, calls=[r.id for r in rows], **fields
    )


def call(turn: str, index: int = 0, name: str = "a", **fields: Any) -> Proposal:
    """A proposal of `wipe` that is not recorded yet."""
    defaults: dict[str, Any] = {
        "id": secrets.token_hex(16),
        "kind": "tool_call",
        "name": "wipe",
        "input": {"name": name},
        "principal": "alice",
        "tenant": "acme",
        "user": "u1",
    }
    return Proposal(
        **{**defaults, **fields},
        turn=turn,
        index=index,
        call_id=f"c{index}",
        created=0.0,
        expires=0.0,
    )


def command(turn: str, text: str, index: int = 0, **fields: Any) -> Proposal:
    given = {"command": text, "files": None}
    return call(turn, index, kind="command", **{"name": "command", "input": given, **fields})  # type: ignore[arg-type]


def approve(row: Proposal, **changes: Any) -> Choice:
    fields: dict[str, Any] = {
        "id": row.id,
        "kind": row.kind,
        "approved": True,
        "newest": True,
        "name": row.name,
        "input": row.input,
        "loc": ("body", row.index),
    }
    return Choice(**{**fields, **changes})


def reject(row: Proposal, reason: str = "no", **changes: Any) -> Choice:
    return approve(row, **{"approved": False, "reason": reason, **changes})


async def decide(
    ledger: Ledger, *choices: Choice, who: Requester = ALICE, **options: Any
) -> Decided:
    conversation = options.pop("conversation", Conversation())
    return await ledger.decide(choices, options.pop("shown", ()), who, conversation, **options)


async def refused(ledger: Ledger, *choices: Choice, **options: Any) -> set[str]:
    """The types of the refusal; empty if the decisions were accepted."""
    try:
        await decide(ledger, *choices, **options)
    except InvalidRequest as error:
        return {item["type"] for item in error.items}
    return set()
