"""Checks of purging."""

from __future__ import annotations

from functools import partial
from typing import Any

from sayso.ledger import Decision, Owner
from sayso.ledger.conformance.samples import (
    Check,
    Factory,
    found,
    get,
    opened,
    proposal,
    purged,
    put,
    turn,
)


async def purge_forgets_old_contents(factory: Factory) -> None:
    """Contents of ended proposals are removed, oldest first and bounded; everything else stays."""
    decision = Decision(False, 1.0, "me", reason="no")
    contents: dict[str, Any] = {
        "input": {"a": 1},
        "edited": {"a": 2},
        "output": "out",
        "session": {"s": 1},
        "intent": "why",
        "decision": decision,
    }
    async with opened(factory) as store:
        await put(
            store,
            *(proposal(f"p{n}", state="DONE", finished=10.0 + n, **contents) for n in range(5)),
            proposal("late", state="DONE", finished=100.0, **contents),
            proposal("runs", state="EXECUTING", expires=1.0, **contents),
            proposal("waits", expires=100.0, **contents),
            proposal("lapsed", expires=20.0, **contents),
        )

        purge = partial(purged, store, contents=50.0)
        assert await purge(limit=3) == (3, 0, 0)
        rows = await store.run(lambda tx: tx.proposals([f"p{n}" for n in range(5)]))
        assert [rows[f"p{n}"].output for n in range(5)] == [None, None, None, "out", "out"]
        assert await purge() == (3, 0, 0)
        assert await purge() == (0, 0, 0)
        gone = await get(store, "p0")
        assert gone == proposal(
            "p0", state="DONE", finished=10.0, input={}, decision=Decision(False, 1.0, "me")
        )
        for name in ("late", "runs", "waits"):
            row = await get(store, name)
            assert row is not None
            assert row.output == "out"
        await put(store, gone)
        assert await purge() == (0, 0, 0)
        assert await get(store, "p0") == gone


async def purge_forgets_old_turns(factory: Factory) -> None:
    """Turns that ended before are removed; so are those that nobody continued and no call waits
    for."""
    dead = Owner("dead", "boot", 1, 40.0)
    async with opened(factory) as store:
        await put(
            store,
            turn("old", state="ENDED", created=1.0, ended=10.0),
            turn("new", state="ENDED", created=1.0, ended=100.0),
            turn("waits", created=1.0),
            proposal("a", turn="waits", expires=100.0),
            turn("runs", created=1.0),
            proposal("b", turn="runs", state="EXECUTING"),
            turn("left", created=2.0),
            proposal("c", turn="left", expires=20.0),
            turn("crashed", created=3.0, state="RESUMING", owner=dead),
        )

        purge = partial(purged, store, turns=50.0)
        assert await purge(limit=2) == (0, 2, 0)
        assert await purge() == (0, 1, 0)
        every = ["old", "new", "waits", "runs", "left", "crashed"]
        left = await store.run(lambda tx: sorted(tx.turns(every)))
        assert left == ["new", "runs", "waits"]
        assert len(await found(store)) == 3


async def purge_forgets_what_is_left_of_old_calls(factory: Factory) -> None:
    """Ended proposals without contents are removed together with the log; all others stay."""
    async with opened(factory) as store:
        await put(
            store,
            proposal("old", state="DONE", finished=10.0, input={}),
            proposal("full", state="DONE", finished=10.0, output="out"),
            proposal("new", state="DONE", finished=100.0, input={}),
            proposal("waits", expires=100.0, input={}),
            proposal("runs", state="EXECUTING", expires=1.0, input={}),
        )

        purge = partial(purged, store, log=50.0)
        assert await purge() == (0, 0, 1)
        assert sorted(await found(store)) == ["full", "new", "runs", "waits"]
        assert sum(await purge(contents=50.0) + await purge(contents=50.0)) == 2
        assert sorted(await found(store)) == ["new", "runs", "waits"]


CHECKS: tuple[Check, ...] = (
    purge_forgets_old_contents,
    purge_forgets_old_turns,
    purge_forgets_what_is_left_of_old_calls,
)
