"""Checks of a store's contents and searches."""

from __future__ import annotations

from typing import Any

from sayso.errors import LedgerUnavailable
from sayso.ledger import Decision, Owner, Pending, Proposal, Reading, SuspendedTurn, Transaction
from sayso.ledger.conformance.samples import (
    STRANGE,
    Check,
    Factory,
    filled,
    found,
    get,
    opened,
    proposal,
    put,
    turn,
)
from sayso.ledger.people import Comment, Terms, Vote


async def rows_come_back_as_they_were(factory: Factory) -> None:
    """Each field of each row, with every kind of JSON value."""
    owner = filled(Owner)
    full = filled(
        Proposal,
        id="full",
        kind="command",
        state="EXECUTING",
        decision=filled(Decision),
        owner=owner,
        terms=filled(Terms),
        votes=[filled(Vote)],
        comments=[filled(Comment)],
    )
    waiting = filled(SuspendedTurn, id=STRANGE, state="RESUMING", owner=owner)
    async with opened(factory) as store:
        await put(store, full, waiting, proposal("bare"), turn("bare"))
        assert await get(store, "full") == full
        assert await get(store, "bare") == proposal("bare")
        turns = await store.run(lambda tx: tx.turns([STRANGE, "bare", "unknown"]))
        assert turns == {STRANGE: waiting, "bare": turn("bare")}
        assert await found(store, conversation=STRANGE, turn=STRANGE, owner=STRANGE) == ["full"]
        unknown = [STRANGE, "", "x" * 10_000, "%", "' OR 1=1"]
        assert await store.run(lambda tx: tx.proposals(unknown)) == {}


async def long_texts_come_back(factory: Factory) -> None:
    """A megabyte of output, and identifiers far longer than an index likes."""
    long = proposal(
        "long",
        kind="command",
        conversation="c" * 100_000,
        output="x\0\u20ac" * 350_000,
        reference="r" * 100_000,
    )
    near = proposal("near", conversation="c" * 100_001)
    async with opened(factory) as store:
        await put(store, long, near)
        assert await get(store, "long") == long
        assert await found(store, conversation="c" * 100_000) == ["long"]


async def rows_are_copies(factory: Factory) -> None:
    """Changing a row after putting or reading it changes nothing in the store."""
    async with opened(factory) as store:
        given = proposal("a", input={"list": [1]})
        await put(store, given)
        given.input["list"].append(2)
        read = await get(store, "a")
        assert read is not None
        read.input["list"].append(3)
        read.state = "DONE"
        assert await get(store, "a") == proposal("a", input={"list": [1]})


async def rows_outlive_the_store(factory: Factory) -> None:
    """After closing and reopening, a shared store still has its rows; a closed one refuses to
    run."""
    store = factory()
    await store.open()
    await put(store, proposal("a"))
    await store.close()
    await store.close()
    try:
        await store.run(lambda tx: tx.find())
    except LedgerUnavailable:
        pass
    else:
        raise AssertionError("a closed store ran a work")
    if store.shared:
        async with opened(factory) as again:
            assert await get(again, "a") == proposal("a")


async def find_takes_every_filter(factory: Factory) -> None:
    """Each filter alone, all of them together, and empty values."""
    one: dict[str, Any] = {"kind": "command", "turn": "t1"}
    owner = Owner("owner-1", "boot", 1, 5.0)
    two: dict[str, Any] = {"kind": "command", "turn": "t2", "state": "EXECUTING", "owner": owner}
    async with opened(factory) as store:
        await put(
            store,
            proposal("a", **one, conversation="c1", reference="r1"),
            proposal("b", **one, conversation="c1", reference="r2", index=1, state="DONE"),
            proposal("c", **two, conversation="c2", reference="r1", created=1_001.0),
        )
        assert await found(store) == ["a", "b", "c"]
        assert await found(store, turn="t1") == ["a", "b"]
        assert await found(store, conversation="c2") == ["c"]
        assert await found(store, reference="r1") == ["a", "c"]
        assert await found(store, state="DONE") == ["b"]
        assert await found(store, owner="owner-1") == ["c"]
        every = {"turn": "t1", "conversation": "c1", "reference": "r2", "state": "DONE"}
        assert await found(store, **every) == ["b"]
        assert await found(store, reference="r1", state="DONE") == []
        assert await found(store, conversation="") == []


async def find_pages_in_order(factory: Factory) -> None:
    """By `created`, then `index`, or in reverse; each row is on exactly one page."""
    rows = [proposal(f"p{n:02}", created=1_000.0 + n // 4, index=3 - n % 4) for n in range(24)]
    order = [p.id for p in sorted(rows, key=lambda p: p.order)]
    async with opened(factory) as store:
        await put(store, *reversed(rows))
        for given in ({}, {"state": "PENDING"}, {"turn": "turn"}):
            for newest in (False, True):
                pages: list[str] = []
                way = {"newest": newest, "limit": 7, **given}
                while page := await found(store, after=pages[-1] if pages else None, **way):
                    assert len(page) <= 7
                    pages += page
                assert pages == (order[::-1] if newest else order)


async def notes_are_kept_by_their_names(factory: Factory) -> None:
    """A note is replaced and removed by its name, and found by how that begins."""

    def write(tx: Transaction) -> dict[str, str]:
        for name, text in (("a:1", "one"), ("a:2", "two"), ("ab", "other"), ("a:2", "three")):
            tx.note(name, text)
        tx.note("a:1", None)
        tx.note("a:9", None)
        return tx.notes("a:")

    async with opened(factory) as store:
        assert await store.run(write) == {"a:2": "three"}
        assert await store.run(lambda tx: tx.notes("a")) == {"a:2": "three", "ab": "other"}
        assert await store.run(lambda tx: tx.notes("b")) == {}


async def calls_that_time_has_ended_are_due(factory: Factory) -> None:
    """`due` finds open calls that have expired, and running ones whose lease has."""
    lapsed, held = Owner("o", "b", 1, 5.0), Owner("o", "b", 1, 9e9)
    rows = [
        proposal(STRANGE, expires=1.0),
        proposal("b", expires=2.0, state="APPROVED"),
        proposal("c", expires=3.0, state="EXECUTING", owner=lapsed, fence=1),
        proposal("d", expires=9e9),
        proposal("e", expires=1.0, state="EXECUTING", owner=held, fence=1),
        proposal("f", expires=1.0, state="DONE"),
        proposal("g", expires=1.0, state="EXPIRED"),
    ]
    async with opened(factory) as store:
        await put(store, *rows)
        due = await store.run(Reading(lambda tx: tx.due(), only=True))
        assert sorted(due) == sorted([STRANGE, "b", "c"])
        assert len(await store.run(lambda tx: tx.due(2))) == 2


async def pending_proposals_are_listed_newest_first(factory: Factory) -> None:
    """`pending` gives the places of undecided proposals, the newest first, in pages."""
    rows = [
        proposal("b", created=2.0, index=1, expires=9.0, agent="ops", tenant=STRANGE),
        proposal("a", created=2.0, principal=STRANGE, address="::1", terms=Terms([STRANGE])),
        proposal("c", created=3.0),
        proposal("d", created=4.0, state="APPROVED"),
        proposal(STRANGE, created=1.0),
    ]

    def write(tx: Transaction) -> list[Pending]:
        for row in rows:
            tx.put(row)
        return tx.pending(None, 10)

    async with opened(factory) as store:
        listed = await store.run(write)
        assert [row.id for row in listed] == ["c", "b", "a", STRANGE]
        b, a = listed[1:3]
        assert b == Pending("b", 2.0, 1, 9.0, "ops", None, STRANGE, None)
        assert (a.principal, a.tenant, a.address) == (STRANGE, None, "::1")
        assert (a.terms, b.terms) == (Terms([STRANGE]), None)
        part = await store.run(lambda tx: tx.pending((b.created, b.position, b.id), 1))
        assert part == [a]


CHECKS: tuple[Check, ...] = (
    rows_come_back_as_they_were,
    long_texts_come_back,
    rows_are_copies,
    rows_outlive_the_store,
    find_takes_every_filter,
    find_pages_in_order,
    notes_are_kept_by_their_names,
    calls_that_time_has_ended_are_due,
    pending_proposals_are_listed_newest_first,
)
