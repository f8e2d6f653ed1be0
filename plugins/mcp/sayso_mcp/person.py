"""The person at the client of one request: how they can be asked, and their answer."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from contextlib import AbstractAsyncContextManager, suppress
from typing import Any

import mcp_types as types
from mcp.shared.exceptions import MCPError
from mcp.shared.message import ServerMessageMetadata
from pydantic import ValidationError
from pydantic_core import to_json

from sayso import Caller, Host, Proposal
from sayso_mcp import questions
from sayso_mcp.peers import Context
from sayso_mcp.progress import Progress, kept_alive
from sayso_mcp.questions import Answer

logger = logging.getLogger("sayso.mcp")
_LOOK = 0.3
LONGEST = 2**17
"""Most bytes of an input that is shown: clients read no event above 1 MiB, and a character may be
escaped to six bytes, or to twelve."""


class Person:
    """The person at the client: asked by a form, sent to Sayso's page, or unreachable.

    Only a form can give an answer; opening a page decides nothing.
    """

    def __init__(
        self,
        host: Host,
        settings: Any,
        stopping: asyncio.Event,
        context: Context,
        caller: Caller,
        sending: Progress | None,
        is_gone: Callable[[], Awaitable[bool]],
    ) -> None:
        self._host = host
        self._settings = settings
        self._stopping = stopping
        self._context = context
        self._caller = caller
        self._sending = sending
        self._is_gone = is_gone
        self.fills_forms = settings.approvals == "client" and questions.takes_forms(context)
        """Whether the client's answer is accepted as a decision."""
        opens = settings.approvals != "deny" and settings.page and questions.takes_links(context)
        self.is_there = self.fills_forms or bool(opens)
        """Whether the client can ask its person at all."""

    def reads(self, row: Proposal) -> bool:
        """Whether the client can show the whole input of this call; if not, it does not ask."""
        fits = self._settings.transport == "stdio" or len(to_json(row.runs)) < LONGEST
        return self.is_there and fits

    def question(self, row: Proposal) -> types.ElicitRequest:
        """The question that the client is to put to its person."""
        return questions.form(row) if self.fills_forms else questions.link(row, self._settings.page)

    async def asked(self, row: Proposal) -> Answer | None:
        """The answer to a form while the call waits, up to 2025-11-25.

        None if there is none: the person took too long, the client left or the service stops, the
        call was decided elsewhere meanwhile, or the question was to open the page.
        """
        async with self._kept_alive(row):
            result = await self._elicited(row)
            if self.fills_forms:
                return None if result is None else questions.answer_of(result, row.seen)
            if result is not None and result.action == "accept" and await self._decided(row):
                await self._context.session.send_elicit_complete(row.id, self._context.request_id)
        return None

    async def at_page(self, row: Proposal) -> None:
        """Wait until the call is decided elsewhere, at most `ask_timeout` seconds."""
        async with self._kept_alive(row):
            await self._decided(row)

    def _kept_alive(self, row: Proposal) -> AbstractAsyncContextManager[None]:
        return kept_alive(self._sending, f"waiting for a person to decide on call {row.id}")

    async def _elicited(self, row: Proposal) -> types.ElicitResult | None:
        """The client's answer; None if it leaves, the call is decided elsewhere, or the service
        stops."""
        asking = asyncio.ensure_future(self._answer(self.question(row)))
        others: list[asyncio.Future[Any]] = [
            asyncio.ensure_future(work) for work in (self._stopping.wait(), self._decided(row))
        ]
        try:
            await asyncio.wait([asking, *others], return_when=asyncio.FIRST_COMPLETED)
            return asking.result() if asking.done() else None
        finally:
            for task in (asking, *others):
                task.cancel()

    async def _answer(self, request: types.ElicitRequest) -> types.ElicitResult | None:
        related = ServerMessageMetadata(related_request_id=self._context.request_id)
        try:
            return await self._context.session.send_request(
                request,
                types.ElicitResult,
                request_read_timeout_seconds=self._settings.ask_timeout,
                metadata=related,
            )
        except (MCPError, ValidationError) as error:
            logger.debug("elicitation failed", exc_info=error)
            return None

    async def _decided(self, row: Proposal) -> bool:
        """Whether the call is decided before the client leaves, the service stops, or `ask_timeout`
        ends."""
        with suppress(TimeoutError):
            async with asyncio.timeout(self._settings.ask_timeout):
                while not (self._stopping.is_set() or await self._is_gone()):
                    found = await self._host.calls.settled([row.id], self._caller, _LOOK)
                    if all(each.state != "PENDING" for each in found):
                        return True
        return False
