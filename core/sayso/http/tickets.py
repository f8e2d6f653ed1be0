"""Tickets: the holder of one may open one WebSocket as the principal that requested it.

A page in a browser cannot set headers on a WebSocket. Each ticket is a note in the approvals store,
named by its digest, so that every process on the store knows it, on whichever machine; the process
that removes the note has used the ticket.
"""

from __future__ import annotations

import json
import secrets
from collections.abc import Callable
from functools import partial
from hashlib import sha256
from typing import TypeVar

from pydantic_core import to_json
from starlette.types import Receive, Scope, Send

from sayso.errors import Busy, Unauthenticated
from sayso.host import ServiceHost
from sayso.http.endpoints import PRINCIPAL, answer, standard_error
from sayso.ledger import Transaction
from sayso.principals import Principal

LIFE = 30
"""Seconds for which a ticket is valid."""
MOST = 1_000
"""The largest number of open tickets."""
_NOTES = "ticket:"
_FIELDS = ("issuer", "subject", "tenant", "kind", "person", "expires")
T = TypeVar("T")


class Tickets:
    """The ASGI application at `POST /auth/ticket`: `{"ticket": str, "expires_in": seconds}`."""

    def __init__(self, host: ServiceHost) -> None:
        self._host = host

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        try:
            ticket = secrets.token_urlsafe(32)
            await _run(self._host, partial(_issue, ticket=ticket, principal=scope[PRINCIPAL]))
            status, body = 200, {"ticket": ticket, "expires_in": LIFE}
        except Exception as error:
            status, body = standard_error(error, self._host.failure(error))
        await answer(send, status, to_json(body), [(b"cache-control", b"no-store")])


async def redeemed(host: ServiceHost, ticket: str) -> Principal:
    """The principal for which the ticket was made; the ticket is then used up. Raises
    Unauthenticated, and LedgerUnavailable."""
    if (principal := await _run(host, partial(_redeem, ticket=ticket))) is None:
        raise Unauthenticated(
            f"the ticket is not valid: it is used, or older than {LIFE} seconds; "
            "POST /auth/ticket gives a new one",
            "ticket",
        )
    return principal


async def _run(host: ServiceHost, work: Callable[[Transaction], T]) -> T:
    return await host.workers.on_engine_loop(lambda: host.ledger.store.run(work))


def _name(ticket: str) -> str:
    # A reader of the store learns no ticket from these names.
    return _NOTES + sha256(ticket.encode("utf-8", "surrogateescape")).hexdigest()


def _issue(tx: Transaction, ticket: str, principal: Principal) -> None:
    notes = tx.notes(_NOTES)
    late = [name for name, text in notes.items() if _is_late(tx, json.loads(text))]
    for name in late:
        tx.note(name, None)
    if len(notes) - len(late) >= MOST:
        raise Busy(f"{MOST} tickets are open; use them, or wait {LIFE} seconds")
    said = {name: getattr(principal, name) for name in _FIELDS}
    said |= {"name": str(principal), "groups": sorted(principal.groups), "made": tx.now}
    tx.note(_name(ticket), json.dumps(said))


def _redeem(tx: Transaction, ticket: str) -> Principal | None:
    name = _name(ticket)
    text = tx.notes(name).get(name)
    # If several processes try this, one of them succeeds.
    if text is None or not tx.swap(name, text, None):
        return None
    said = json.loads(text)
    if _is_late(tx, said):
        return None
    said.pop("made")
    return Principal(said.pop("name"), **said)


def _is_late(tx: Transaction, said: dict[str, float]) -> bool:
    return abs(tx.now - said["made"]) > LIFE
