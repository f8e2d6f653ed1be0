"""Services that use one store under one agent id; they should have the same tools.

A call that one service proposed does not run on another one whose tool of that name differs.
Therefore each service notes its tools in the store, and warns of services with other tools (design,
section 6, "The deed": "Agent").
"""

from __future__ import annotations

import asyncio
import json
import logging
import os
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from functools import partial
from typing import NamedTuple

from sayso.agent import Agent
from sayso.errors import SaysoError
from sayso.ledger import Reading, Transaction
from sayso.ledger.database import key
from sayso.ledger.record import Ledger
from sayso.workers import Workers

logger = logging.getLogger("sayso.ledger")
EVERY = 30.0
"""Seconds between two looks at the other services, and between two notes of this one."""
_LIVES = 2.5
_DIGITS = 16


class Replica(NamedTuple):
    """A live service: its address, and the digest of each of its tools."""

    where: str
    tools: dict[str, str]


class Replicas:
    """The live services of one agent id on the store of `ledger`."""

    def __init__(self, ledger: Ledger, agent: Agent, *, every: float = EVERY) -> None:
        self._ledger = ledger
        self._agent = agent
        self._every = every
        self._prefix = f"service:{key(agent.id)}:"
        self._mine = f"{self._prefix}{ledger.owner}"
        self._warned_of: set[tuple[str, str]] = set()

    async def watch(self) -> None:
        """Note this service, and warn of services with other tools, until the task is cancelled."""
        while True:
            try:
                await self.look()
            except Exception as error:
                logger.debug("the other services could not be looked at: %r", error)
            await asyncio.sleep(self._every)

    async def look(self) -> None:
        """Note this service, and warn of each other service once for each set of tools."""
        mine = Replica(_where(), await asyncio.to_thread(_tools, self._agent))
        for name, other in (await self._announce(mine)).items():
            differing = sorted({n for n, _ in mine.tools.items() ^ other.tools.items()})
            if differing and (seen := (name, str(other.tools))) not in self._warned_of:
                self._warned_of.add(seen)
                logger.warning(_OTHER, self._agent.id, mine.where, other.where, _few(differing))

    async def leave(self) -> None:
        """Remove the note of this service."""
        # The end of a service does not wait for an unavailable store, since the note expires by
        # itself.
        with suppress(SaysoError, TimeoutError):
            async with asyncio.timeout(1.0):
                await self._ledger.store.run(partial(_forget, name=self._mine))

    async def _announce(self, mine: Replica) -> dict[str, Replica]:
        def work(tx: Transaction) -> dict[str, Replica]:
            tx.note(self._mine, json.dumps([tx.now + _LIVES * self._every, *mine]))
            found: dict[str, Replica] = {}
            for name, text in tx.notes(self._prefix).items():
                until, *rest = json.loads(text)
                if until < tx.now:
                    tx.note(name, None)
                elif name != self._mine:
                    found[name] = Replica(*rest)
            return found

        # No flush is needed: nothing depends on the note after a loss of power.
        return await self._ledger.store.run(Reading(work, flushed=False))


_OTHER = (
    "two live services have the agent id %r and different tools: this one on %s, another on %s; "
    "what differs: %s. A call that one of them proposed is refused by the other "
    "(approval_tool_changed). Deploy the same tools to both, or give one another id: "
    "Agent(id=...)"
)


@asynccontextmanager
async def announced(ledger: Ledger, agent: Agent, workers: Workers) -> AsyncIterator[None]:
    """Keep this service noted for as long as it lives, if others may share its store."""
    if not ledger.store.shared:
        yield
        return
    replicas = Replicas(ledger, agent)
    watching = workers.on_engine_loop(replicas.watch)
    try:
        yield
    finally:
        watching.cancel()
        await workers.on_engine_loop(replicas.leave)


def _tools(agent: Agent) -> dict[str, str]:
    # The shell is left out: a command starts only where its folder is, whichever service runs it.
    return {name: tool.digest[:_DIGITS] for name, tool in agent.tools.items() if tool.offered}


def _where() -> str:
    return f"{socket.gethostname()}, process {os.getpid()}"


def _few(names: list[str]) -> str:
    more = f" and {len(names) - 5} more" if len(names) > 5 else ""
    return ", ".join(names[:5]) + more


def _forget(tx: Transaction, name: str) -> None:
    tx.note(name, None)
