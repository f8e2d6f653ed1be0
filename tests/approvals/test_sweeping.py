"""Expiry is recorded when it happens, whether anybody looks or not."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from databases import empty_schema
from sayso import Agent, Call, tool
from sayso.ledger import Owner, Proposal, Transaction
from sayso.testing import Served, Service, scripted

DEADLINE = 60.0


def until(holds: Callable[[], Any]) -> Any:
    """The result of `holds` as soon as it is true."""
    deadline = time.monotonic() + DEADLINE
    while not (value := holds()):
        assert time.monotonic() < deadline, "it did not come true in time"
        time.sleep(0.05)
    return value


@pytest.fixture(params=["memory", "sqlite", "postgresql"])
def ledger(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[str]:
    """The address of an empty store of each kind."""
    if request.param == "postgresql":
        with empty_schema() as url:
            yield url
        return
    yield "memory://" if request.param == "memory" else f"sqlite:///{tmp_path}/calls.db"


def wiping() -> Agent:
    @tool(requires_approval=True)
    def wipe() -> str:
        """Wipe."""
        return "wiped"

    return Agent(name="wiping", model=scripted(*[[Call("1", "wipe", {})]] * 9), tools=[wipe])


def entries(service: Service, event: str) -> list[dict[str, Any]]:
    """The entries of one kind in the log, which is read without a look at any call."""
    page = asyncio.run(service.host.record.log(None, 1_000))
    return [one.row.entry for one in page.events if one.row.entry["event"] == event]


def test_expiry_is_logged_although_nobody_looks(sayso_served: Served, ledger: str) -> None:
    config = f'[approvals]\nttl = 0.3\nledger = "{ledger}"\n'
    services = [sayso_served(wiping(), config=config)]
    if ledger != "memory://":
        services.append(sayso_served(wiping(), config=config))
    ids = set()
    for service in services:
        conversation = service.conversation()
        conversation.say("wipe it")
        ids.add(conversation.pending[0]["id"])
    until(lambda: {one["id"] for one in entries(services[0], "expired")} == ids)
    # Both processes have had time for another look.
    time.sleep(1.5)
    assert len(entries(services[0], "expired")) == len(ids)


def test_another_process_sweeps_when_the_first_has_ended(
    sayso_served: Served, tmp_path: Path
) -> None:
    config = f'[approvals]\nttl = 0.3\nledger = "sqlite:///{tmp_path}/calls.db"\n'
    first = Served()
    gone = first(wiping(), config=config)
    service = sayso_served(wiping(), config=config)

    def sweeper() -> str:
        return str(asyncio.run(service.host.record.read(lambda tx: tx.notes("sweeper"))))

    until(lambda: gone.host.ledger.owner in sweeper())
    first.close()
    conversation = service.conversation()
    conversation.say("wipe it")
    until(lambda: entries(service, "expired"))
    assert service.host.ledger.owner in sweeper()


def test_death_of_the_process_that_ran_a_call_is_logged_although_nobody_looks(
    sayso_served: Served, ledger: str
) -> None:
    service = sayso_served(wiping(), config=f'[approvals]\nledger = "{ledger}"\nlease = 0.5\n')
    owner = Owner("somebody", "elsewhere", 1, time.time() + 0.2, "claim")
    now = time.time()
    row = Proposal("a" * 32, "tool_call", "wipe", {}, "t", 0, "c", now, now + 60, owner=owner)
    row.state, row.fence = "EXECUTING", 1

    def put(tx: Transaction) -> None:
        tx.put(row)

    asyncio.run(service.host.record._run(put))
    (entry,) = until(lambda: entries(service, "indeterminate"))
    assert entry["id"] == row.id
