"""Tickets: the holder of one may open one WebSocket as the principal that requested it.

A page in a browser cannot set headers on a WebSocket. Each ticket is a file in the state folder,
named by its digest, so that every process of the service knows it; the process that removes the
file has used the ticket.
"""

from __future__ import annotations

import asyncio
import json
import os
import secrets
import time
from contextlib import suppress
from hashlib import sha256
from pathlib import Path

from pydantic_core import to_json
from starlette.types import Receive, Scope, Send

from sayso.errors import Busy, Unauthenticated
from sayso.host import ServiceHost
from sayso.http.endpoints import PRINCIPAL, answer, standard_error
from sayso.principals import Principal

LIFE = 30
"""Seconds for which a ticket is valid."""
MOST = 1_000
"""The largest number of open tickets."""
_FIELDS = ("issuer", "subject", "tenant", "kind", "person")


class Tickets:
    """The ASGI application at `POST /auth/ticket`: `{"ticket": str, "expires_in": seconds}`."""

    def __init__(self, host: ServiceHost) -> None:
        self._host = host

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        try:
            principal = scope[PRINCIPAL]
            made = await asyncio.to_thread(_issue, _folder(self._host.state_dir), principal)
            status, body = 200, {"ticket": made, "expires_in": LIFE}
        except Exception as error:
            status, body = standard_error(error, self._host.failure(error))
        await answer(send, status, to_json(body), [(b"cache-control", b"no-store")])


async def redeemed(state_dir: Path, ticket: str) -> Principal:
    """The principal for which the ticket was made; the ticket is then used up. Raises
    Unauthenticated."""
    return await asyncio.to_thread(_redeem, _folder(state_dir), ticket)


def _folder(state_dir: Path) -> Path:
    return state_dir / "tickets"


def _name(ticket: str) -> str:
    # A reader of the files learns no ticket from these names.
    return sha256(ticket.encode("utf-8", "surrogateescape")).hexdigest()


def _issue(folder: Path, principal: Principal) -> str:
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    if _swept(folder) >= MOST:
        raise Busy(f"{MOST} tickets are open; use them, or wait {LIFE} seconds")
    ticket = secrets.token_urlsafe(32)
    said = {name: getattr(principal, name) for name in _FIELDS}
    said |= {"name": str(principal), "groups": sorted(principal.groups)}
    made = os.open(folder / _name(ticket), os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    with os.fdopen(made, "w", encoding="utf-8") as file:
        json.dump(said, file)
    return ticket


def _swept(folder: Path) -> int:
    """The number of tickets that remain after the expired ones were removed."""
    left = 0
    for file in folder.iterdir():
        with suppress(FileNotFoundError):
            if _is_old(file):
                file.unlink()
            else:
                left += 1
    return left


def _redeem(folder: Path, ticket: str) -> Principal:
    file = folder / _name(ticket)
    try:
        late, said = _is_old(file), json.loads(file.read_text("utf-8"))
        # If several processes try this, one of them succeeds.
        file.unlink()
    except FileNotFoundError:
        late = True
    if late:
        raise Unauthenticated(
            f"the ticket is not valid: it is used, or older than {LIFE} seconds; "
            "POST /auth/ticket gives a new one"
        )
    return Principal(said.pop("name"), **said)


def _is_old(file: Path) -> bool:
    return abs(time.time() - file.stat().st_mtime) > LIFE
