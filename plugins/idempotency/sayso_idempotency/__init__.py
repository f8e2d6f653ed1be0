"""Requests that a client may send again: `Idempotency-Key`, with the semantics of Stripe.

    POST /api/chat            Idempotency-Key: 5b1f0f6f-2b8a-4d7c-9a53-2c1f0f6f2b8a

The same request with the same key gets the recorded answer with `Idempotent-Replayed: true`. If the
first attempt died, or failed for the moment, the second one continues its turn: the replies of the
model and the results of the tools are replayed, and a tool whose end is unknown is not run again.
"""

import asyncio
import logging
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from functools import partial
from secrets import token_hex
from typing import Any, TypeVar

from pydantic import Field

from sayso import (
    Caller,
    Duration,
    Host,
    InvalidRequest,
    KeptBeside,
    LedgerUnavailable,
    Notes,
    Plugin,
    Principal,
    Removed,
    Subject,
    hookimpl,
)
from sayso_idempotency import rows
from sayso_idempotency.attempts import Attempt, InProgress, NotKept, Replayed

__all__ = ["Idempotency"]

T = TypeVar("T")

logger = logging.getLogger("sayso.idempotency")
LONGEST = 255
"""Most characters of a key."""
_DAY = 24 * 3600.0
_SWEEPING = 600.0


class Idempotency(Plugin):
    """Keeps answers by the key of their request; active when named in `plugins`, or by a table."""

    name = "idempotency"
    active_by_default = False

    class Settings(Plugin.Settings):
        """The keys of `[plugin.idempotency]`."""

        keep: Duration = Field(default=_DAY, gt=0)
        """How long a key and the answer to its request are kept."""

    def __init__(self, settings: Any = None) -> None:
        super().__init__(settings)
        self._running: dict[str, str] = {}

    @hookimpl
    @asynccontextmanager
    async def lifespan(self, host: Host) -> AsyncIterator[None]:
        """Take requests with a key, and hold the keys of those that are being answered."""
        host.repeats = _Repeats(host, self.settings.keep, self._running)
        tasks = [asyncio.ensure_future(each) for each in (self._hold(host), self._sweep(host))]
        try:
            yield
        finally:
            host.repeats = None
            for task in tasks:
                task.cancel()

    @hookimpl
    async def erase_subject(self, subject: Subject, kept: KeptBeside) -> Removed:
        """Remove answers; their keys stay, so that nothing is carried out twice."""
        of = rows.whose(subject.principal, subject.tenant)
        return Removed("answer", *await kept.notes(partial(rows.erase, of=of)))

    async def _hold(self, host: Host) -> None:
        while True:
            await asyncio.sleep(rows.LEASE / 3)
            if self._running:
                await _tried(host, partial(rows.renew, owners=dict(self._running)))

    async def _sweep(self, host: Host) -> None:
        while True:
            more = await _tried(host, rows.sweep)
            await asyncio.sleep(0 if more else _SWEEPING)


class _Repeats:
    """Answers the chat endpoints, which ask about a request."""

    def __init__(self, host: Host, keep: float, running: dict[str, str]) -> None:
        self._host = host
        self._keep = keep
        self._running = running

    async def attempt(
        self, values: Sequence[bytes], request: Sequence[bytes], caller: Caller
    ) -> Attempt | Replayed:
        """The attempt to answer this request, or the recorded answer."""
        agent, principal = self._host.agent.id, caller.principal
        who = b"" if principal is None else b"p" + principal.encode()
        tenant = principal.tenant if isinstance(principal, Principal) else None
        where = [] if tenant is None else [tenant.encode()]
        key = rows.digest(agent.encode(), who, _key(values), *where)
        owner = token_hex(8)
        work = partial(
            rows.claim,
            key=key,
            request=rows.digest(*request),
            owner=owner,
            keep=self._keep,
            of=_whose(caller),
        )
        match await self._host.record.notes(work, lasting=True):
            case rows.Reply() as reply:
                if reply.body is None:
                    raise NotKept
                return Replayed(reply)
            case rows.Other():
                loc: list[str | int] = ["header", "idempotency-key"]
                words = "this key came with another request; send a new key with a new request"
                raise InvalidRequest.at(loc, "idempotency_key_reused", words)
            case rows.Running():
                raise InProgress
            case rows.Claimed() as claimed:
                return Attempt(self._host, key, owner, claimed, self._running)


def _whose(caller: Caller) -> list[str]:
    """Digests of the names by which the answer can be erased."""
    principal = caller.principal
    if principal is None:
        return []
    found = [rows.whose(principal)]
    if isinstance(principal, Principal):
        found += [rows.whose(principal.person)] if principal.person else []
        found += [rows.whose(None, principal.tenant)] if principal.tenant else []
    return list(dict.fromkeys(found))


async def _tried(host: Host, work: Callable[[Notes], T]) -> T | None:
    """The result of `work`; None while the store does not answer."""
    try:
        return await host.record.notes(work)
    except LedgerUnavailable as error:
        logger.debug("the keys of requests are not kept up now: %s", error)
        return None


def _key(values: Sequence[bytes]) -> bytes:
    """The key in the values of the header; raises InvalidRequest."""
    (value,) = values if len(values) == 1 else (b"",)
    if not 0 < len(value) <= LONGEST or not all(0x20 <= byte < 0x7F for byte in value):
        words = f"expected one key of 1 to {LONGEST} printable ASCII characters"
        raise InvalidRequest.at(["header", "idempotency-key"], "idempotency_key", words)
    return value
