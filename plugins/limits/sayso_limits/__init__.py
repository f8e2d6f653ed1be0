"""Limits for each principal: requests a minute, requests at once, tokens a day.

The counts are rows in the ledger's store, so they hold over all workers and machines that share it.
"""

from __future__ import annotations

import asyncio
import logging
from collections import Counter
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from contextvars import ContextVar
from functools import partial
from secrets import token_hex
from typing import Any

from pydantic import BaseModel, ConfigDict, Field

from sayso import (
    Caller,
    Host,
    LedgerUnavailable,
    ModelCallBegan,
    ModelCallEnded,
    Observer,
    Plugin,
    TooMany,
    hookimpl,
)
from sayso_limits.rows import DAY, Limit, give_back, name_of, sweep, take

__all__ = ["Limits"]
log = logging.getLogger("sayso.limits")
_CACHED = 10
"""The number of cached tokens that count as one."""


class _Spent:
    """The tokens of one turn."""

    def __init__(self) -> None:
        self.tokens = 0


_spent: ContextVar[_Spent | None] = ContextVar("sayso_limits_spent", default=None)


class Bounds(BaseModel):
    """The limits of one principal, or of each."""

    model_config = ConfigDict(extra="forbid")

    rate: int | None = Field(default=None, ge=1)
    """Most requests a minute."""
    concurrent: int | None = Field(default=None, ge=1)
    """Most requests at once."""
    tokens: int | None = Field(default=None, ge=1)
    """Most tokens a day (UTC); ten cached tokens count as one. A turn that runs is not cut off."""


class _Tokens(Observer):
    """Adds up the tokens of a turn."""

    def model_call(self, began: ModelCallBegan) -> Callable[[ModelCallEnded], None] | None:
        spent = _spent.get()
        if spent is None:
            return None

        def ended(end: ModelCallEnded) -> None:
            if end.reply is not None:
                usage = end.reply.usage
                spent.tokens += usage.input_tokens + usage.output_tokens + usage.cache_write_tokens
                spent.tokens += usage.cache_read_tokens // _CACHED

        return ended


class Limits(Plugin):
    """Limits for each principal; callers without one are known by their address."""

    name = "limits"
    active_by_default = False

    class Settings(Plugin.Settings):
        """The keys of `[plugin.limits]`."""

        rate: int | None = Field(default=None, ge=1)
        """Most requests a minute of each principal."""
        concurrent: int | None = Field(default=None, ge=1)
        """Most requests of each principal that run at once."""
        tokens: int | None = Field(default=None, ge=1)
        """Most tokens a day (UTC) of each principal; ten cached tokens count as one."""
        decisions: int | None = Field(default=600, ge=1)
        """Most requests a minute that decide a call. They count for no other limit."""
        principals: dict[str, Bounds] = {}
        """Other limits for some principals, by their names."""

    def __init__(self, settings: Any = None) -> None:
        super().__init__(settings)
        self._unpaid: Counter[str] = Counter()
        self._ending: set[asyncio.Future[None]] = set()

    @hookimpl
    def observe(self, host: Host) -> Observer:
        """The observer that counts tokens."""
        return _Tokens()

    @hookimpl
    def admit(self, caller: Caller, asks: str, host: Host) -> AbstractAsyncContextManager[None]:
        """The context of a request within the limits; raises TooMany as it is entered."""
        who = f"p:{caller.principal}" if caller.principal else f"a:{caller.address}"
        limit = self._limit(caller.principal)
        return self._admitted(host, name_of(who), limit, decides=asks == "decision")

    @hookimpl
    @asynccontextmanager
    async def resources(self, host: Host) -> AsyncIterator[None]:
        """Remove old rows once a day; at the end wait for the counts that are being written."""

        async def sweeping() -> None:
            while True:
                try:
                    await host.record.notes(sweep)
                except LedgerUnavailable as error:
                    log.debug("old rows are not removed now: %s", error)
                await asyncio.sleep(DAY)

        task = asyncio.ensure_future(sweeping())
        try:
            yield
        finally:
            task.cancel()

    def _limit(self, principal: str | None) -> Limit:
        given = self.settings
        own = given.principals.get(str(principal), given) if principal else given
        return Limit(own.rate, given.decisions, own.concurrent, own.tokens)

    @asynccontextmanager
    async def _admitted(
        self, host: Host, name: str, limit: Limit, *, decides: bool
    ) -> AsyncIterator[None]:
        id_, seconds = token_hex(6), host.config.limits.turn_time
        work = partial(take, name=name, limit=limit, id_=id_, seconds=seconds, decides=decides)
        if refusal := await host.record.notes(work):
            raise TooMany(
                f"{refusal.text}; try again in {max(1, round(refusal.seconds))} s",
                refusal.seconds,
                refusal.code,
            )
        spent = _Spent()
        token = _spent.set(spent)
        try:
            yield
        finally:
            _spent.reset(token)
            # Not cancelled with the turn.
            ending = asyncio.ensure_future(self._ended(host, name, id_, spent.tokens))
            self._ending.add(ending)
            ending.add_done_callback(self._ending.discard)
            await asyncio.shield(ending)

    async def _ended(self, host: Host, name: str, id_: str, tokens: int) -> None:
        tokens += self._unpaid.pop(name, 0)
        try:
            await host.record.notes(partial(give_back, name=name, id_=id_, tokens=tokens))
        except Exception as error:
            self._unpaid[name] += tokens
            log.warning("the tokens of a turn are counted with its next one: %s", error)
