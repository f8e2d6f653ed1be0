"""Sample rows, and helpers for the checks of stores."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import fields
from typing import Any, TypeVar

from sayso.ledger import Proposal, Store, SuspendedTurn, Transaction
from sayso.ledger.log import SUMMARY

T = TypeVar("T")
Factory = Callable[[], Store]
Check = Callable[[Factory], Awaitable[None]]

ALL = dict.fromkeys(range(SUMMARY + 1), 0)
"""All chains of the log from their first rows, for `Transaction.log`."""

STRANGE = "NUL \0, pile \U0001f4a9, lone \ud800, line \u2028, quote \"'\\ %s ? $1 :x {} \r\n\t"
"""Text that has broken stores before."""

NESTED: dict[str, Any] = {
    STRANGE: [STRANGE, {"": None}, [[[]]], {"a": {"b": {"c": [1, 2.5, True, False, None]}}}],
    "huge": [2**53 + 1, -(2**64), 10**300, 0, -1],
    "floats": [0.1, 1e-300, 1.7976931348623157e308, -0.5],
    "empty": {"list": [], "object": {}, "text": ""},
}


def proposal(name: str, **values: Any) -> Proposal:
    """A proposal whose id is `name`, created at 1,000 and expiring at 2,000."""
    given: dict[str, Any] = {
        "id": name,
        "kind": "tool_call",
        "name": "delete_pod",
        "input": {"name": name},
        "turn": "turn",
        "index": 0,
        "call_id": f"call-{name}",
        "created": 1_000.0,
        "expires": 2_000.0,
    }
    return Proposal(**given | values)


def turn(name: str, **values: Any) -> SuspendedTurn:
    """A suspended turn whose id is `name`, created at 1,000."""
    given: dict[str, Any] = {"id": name, "created": 1_000.0}
    return SuspendedTurn(**given | values)


_OF_TYPES: dict[str, Any] = {
    "str": STRANGE,
    "int": 7,
    "float": 1_600.125,
    "bool": True,
    "dict[str, Any]": NESTED,
    "list[str]": [STRANGE, "a"],
    "list[dict[str, Any]]": [NESTED, {}],
}


def filled(kind: type[T], /, **values: Any) -> T:
    """A row, or a part of one, with something hard to keep in each field without a value here."""
    left = [one for one in fields(kind) if one.name not in values]  # type: ignore[arg-type]
    return kind(**{f.name: _OF_TYPES[str(f.type).removesuffix(" | None")] for f in left}, **values)


@asynccontextmanager
async def opened(factory: Factory) -> AsyncIterator[Store]:
    """A store of `factory`, open within the block."""
    store = factory()
    await store.open()
    try:
        yield store
    finally:
        await store.close()


async def put(store: Store, *rows: Proposal | SuspendedTurn) -> None:
    """Write `rows` in one transaction."""

    def work(tx: Transaction) -> None:
        for row in rows:
            if isinstance(row, Proposal):
                tx.put(row)
            else:
                tx.put_turn(row)

    await store.run(work)


async def purged(
    store: Store,
    *,
    contents: float | None = None,
    turns: float | None = None,
    log: float | None = None,
    limit: int = 1_000,
) -> tuple[int, int, int]:
    """The counts of a purge of everything before these times."""
    return await store.run(
        lambda tx: tx.purge(
            contents_before=contents, turns_before=turns, log_before=log, limit=limit
        )
    )


async def get(store: Store, name: str) -> Proposal | None:
    """The proposal `name`."""
    return await store.run(lambda tx: tx.proposals([name]).get(name))


async def found(store: Store, **values: Any) -> list[str]:
    """The ids that `find` returns."""
    return await store.run(lambda tx: [p.id for p in tx.find(**values)])
