"""`/ready`: whether this process takes new turns and could record an approval."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from time import monotonic
from typing import Any, Protocol

from pydantic_core import to_json
from starlette.types import Receive, Scope, Send

from sayso.errors import TurnError, reasons
from sayso.http.access import Fixed

logger = logging.getLogger("sayso.app")

PATIENCE = 0.8
"""Seconds that a caller waits for the store's answer: probes commonly stop waiting after a
second."""
KEPT = 0.5
"""Seconds for which an answer is repeated, so that frequent requests do not keep the store busy."""
YES = Fixed(b'{"status":"ready"}')
ENDS = Fixed(b'{"status":"stopping"}', 503)
SILENT = "the approvals store has not answered yet"


class Asked(Protocol):
    """The part of the host that `/ready` uses."""

    stopping: bool
    leaving: bool
    details: dict[str, Callable[[], Any]]

    def check_threads(self) -> None:
        """Raise TurnError if calls that never end hold too many threads."""
        ...

    def check_ledger(self) -> Awaitable[None]:
        """Raise LedgerUnavailable if no approval could be recorded."""
        ...


class Ready:
    """Answers 200 while new turns are taken, else 503 with the cause; within a second."""

    def __init__(self, host: Asked) -> None:
        self._host = host
        self._asking: asyncio.Task[Fixed] | None = None
        self._answered = 0.0
        self._logged: str | None = None

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        ends = self._host.stopping or self._host.leaving
        answer = ENDS if ends else await self._in_time()
        await answer(scope, receive, send)

    async def _in_time(self) -> Fixed:
        """The store's answer, for all requests that wait for it."""
        asking, loop = self._asking, asyncio.get_running_loop()
        kept = asking and (not asking.done() or monotonic() < self._answered + KEPT)
        if asking is None or not kept or asking.get_loop() is not loop:
            asking = self._asking = loop.create_task(self._ask())
        await asyncio.wait({asking}, timeout=PATIENCE)
        return asking.result() if asking.done() else self._no(SILENT, SILENT)

    async def _ask(self) -> Fixed:
        try:
            self._host.check_threads()
            await self._host.check_ledger()
        except TurnError as error:
            return self._no(str(error), reasons(error))
        finally:
            self._answered = monotonic()
        self._logged = None
        return Fixed(to_json({"status": "ready", **self._details()})) if self._host.details else YES

    def _details(self) -> dict[str, Any]:
        """The state of what plugins do beside the turns; it never makes the service unready."""
        found = {name: of() for name, of in self._host.details.items()}
        return {"details": found} if found else {}

    def _no(self, detail: str, why: str) -> Fixed:
        # Log each cause once, since probes ask every few seconds.
        if why != self._logged:
            logger.warning("not ready: %s", why)
        self._logged = why
        body = {"status": "not ready", "detail": detail, **self._details()}
        return Fixed(to_json(body), 503)
